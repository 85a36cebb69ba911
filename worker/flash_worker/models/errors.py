"""What goes wrong while a model is found, read or placed."""

from __future__ import annotations


class ModelError(ValueError):
    """A model that cannot be served. The message says what is wrong, where, and what to do instead."""
