"""The model's side of a request."""
