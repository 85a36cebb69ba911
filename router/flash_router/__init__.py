"""The client's side of a request."""
