"""The one error of this package that is about the model's files, not about a request."""

from __future__ import annotations


class TextError(ValueError):
    """A tokenizer, template or GGUF header that cannot be used. Says what, where, and what to do."""
