"""The engine's figures, for metrics and for people."""

from __future__ import annotations

from dataclasses import dataclass

from flash_worker.kv import Account


@dataclass(frozen=True, slots=True)
class StepStats:
    """What one step was, for histograms."""

    seconds: float
    tokens: int
    """Run by the model: prompt chunks and one for each decode."""
    drawn: int
    requests: int
    preempted: int


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters since the start, and how things stand now."""

    steps: int
    failed_steps: int
    step_seconds: float
    tokens: int
    drawn: int
    preemptions: int
    prefix_queries: int
    """Tokens looked up in the prefix cache when requests were admitted."""
    prefix_hits: int
    """Tokens of those that were found."""
    running: int
    waiting: int
    account: Account
    waste_tokens: int
    """Places in the last pages of running requests that hold nothing: the only fragmentation that fixed-size pages
    have."""
    pinned_tokens: int
