"""Stop strings: the token of an answer at which it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Decoder(Protocol):
    """What is used of flash_wire.text.StreamDecoder."""

    stopped: str | None
    tokens_used: int

    def push(self, ids: Sequence[int], /) -> str: ...


class StopStrings:
    """Follows one answer's text, from its committed tokens on."""

    def __init__(self, decoder: Decoder, committed: Sequence[int]) -> None:
        self._decoder = decoder
        self._seen = 0
        if committed:
            self.push(committed)

    def push(self, ids: Sequence[int]) -> int:
        """Follow more tokens. Returns how many of them belong to the answer: all, unless a stop string ends in them
        (the token that completes it still counts)."""
        before = self._seen
        self._decoder.push(ids)
        self._seen += len(ids)
        return min(max(self._decoder.tokens_used - before, 0), len(ids)) if self.stopped else len(ids)

    @property
    def stopped(self) -> str:
        """The stop string that matched; "" while none has."""
        return self._decoder.stopped or ""
