"""The errors of this package: one about the model's files, one about a request's text."""

from __future__ import annotations


class TextError(ValueError):
    """A tokenizer, template or GGUF header that cannot be used. Says what, where, and what to do."""


class TooLong(ValueError):
    """A text that its number of characters alone shows to have more tokens than are wanted. It was not encoded."""

    def __init__(self, characters: int, at_least: int) -> None:
        super().__init__(f"the text has {characters} characters, which are at least {at_least} tokens")
        self.characters = characters
        self.at_least = at_least
        """Tokens."""
