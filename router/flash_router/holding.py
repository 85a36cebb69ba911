"""How many requests wait as text in this router, while a tier or the broker is away. Bounded in number and tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flash_wire.settings import Limits

from flash_router.core import Refused, Why

RETRY_AFTER = 5.0
"""Seconds a client is told to stay away where nothing can be measured: the thing that is away may come back."""


class Holding:
    def __init__(self) -> None:
        self._requests: dict[str, int] = {}
        self.tokens = 0

    @property
    def by_tier(self) -> dict[str, int]:
        """Requests held, by tier: in the fleet record this wakes a tier from zero."""
        return dict(self._requests)

    @property
    def requests(self) -> int:
        return sum(self._requests.values())

    @contextmanager
    def hold(self, tier: str, tokens: int, limits: Limits, what: str) -> Iterator[None]:
        """Count a request as held inside the block. Raises Refused where it would be one too many."""
        for name, have, limit in (
            ("heldRequests", self.requests + 1, limits.held_requests),
            ("heldTokens", self.tokens + tokens, limits.held_tokens),
        ):
            if have > limit:
                raise Refused(
                    Why.UNAVAILABLE,
                    f"{what}, and this router holds its fill of waiting requests: limits.{name} is {limit} and this"
                    f" would make {have}",
                    retry_after=RETRY_AFTER,
                )
        self._requests[tier] = self._requests.get(tier, 0) + 1
        self.tokens += tokens
        try:
            yield
        finally:
            self.tokens -= tokens
            left = self._requests[tier] - 1
            if left:
                self._requests[tier] = left
            else:
                del self._requests[tier]
