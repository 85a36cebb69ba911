"""What two processes of a fleet must agree on: stubs, broker, fleet record, text, settings."""

PROTOCOL = 1
"""Version in Hello and in the broker's job hashes. A process serves its own version and its neighbours."""

__version__ = "0.1.0"
