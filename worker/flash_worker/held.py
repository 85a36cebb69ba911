"""One job that this worker has claimed and where it stands, and what became of all of them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from time import monotonic

from flash_wire.broker.types import SUSPECT_CRASHES, Claimed


class Phase(enum.Enum):
    CLAIMED = "claimed"
    """Leased, and its router has yet to be asked: the link is not open, or it said NOT_YET."""
    ASKED = "asked"
    """Begin was sent."""
    RUNNING = "running"
    """The engine has it."""
    ENDING = "ending"
    """JobDone was sent: the broker hears of it only after the router's DoneAck."""


@dataclass(slots=True, eq=False)
class HeldJob:
    claimed: Claimed
    phase: Phase = Phase.CLAIMED
    nonce: str = ""
    """Drawn for each Begin; also the request's id in the engine, so that no output outlives its Begin."""
    alone: bool = False
    prompt_tokens: int = 0
    committed: int = 0
    """Tokens of the answer that were there when this worker began."""
    cached_tokens: int = 0
    told_cached: bool = False
    position: int = 0
    """Tokens of the answer so far."""
    unknown_since: float | None = None
    """Since when the broker does not know the job, in time.monotonic() seconds."""
    since: float = field(default_factory=monotonic)
    """When it was claimed, or last lost its link, in time.monotonic() seconds."""

    @property
    def id(self) -> str:
        return self.claimed.id

    @property
    def epoch(self) -> int:
        return self.claimed.epoch

    @property
    def is_suspect(self) -> bool:
        return self.alone or self.claimed.crashes >= SUSPECT_CRASHES

    @property
    def used(self) -> int:
        """Tokens of work: what was computed for this job, as the broker's pass is corrected by."""
        return max(0, self.prompt_tokens - self.cached_tokens) + self.position


@dataclass(slots=True)
class Counts:
    """Since the start, for metrics."""

    claimed: int = 0
    began: int = 0
    finished: int = 0
    handed_back: int = 0
    fenced: int = 0
    cancelled: int = 0
    lost_links: int = 0
