"""The front door: up, ask, status, route."""
