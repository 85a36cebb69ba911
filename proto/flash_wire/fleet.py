"""Who is alive and what is wanted: the only writer and the only reader of the fleet record in the broker.

Routers, workers, the operator, the scaler, `flashfleet status` and the dashboard all read `snapshot`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from flash_wire.broker.types import Depth, Level, Pool


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    incarnation: str
    """New at each start of the process."""
    name: str
    tier: str
    state: str
    """loading, ready or draining."""
    rev: str = ""
    slots: int = 0
    slots_free: int = 0
    kv_tokens: int = 0
    kv_tokens_free: int = 0
    max_model_len: int = 0
    static_hash: str = ""
    live_hash: str = ""
    last_step_ms: int = 0
    """Age of the last engine step, in ms."""
    http: str = ""
    """host:port of its /metrics and health."""
    detail: str = ""
    """While loading: what it is doing, for people."""
    protocol: int = 1


@dataclass(frozen=True, slots=True)
class RouterRecord:
    id: str
    """New at each start of the process; the `owner` of its jobs."""
    state: str
    """ready or draining."""
    fleet: str
    """host:port that workers dial."""
    grpc: str = ""
    http: str = ""
    held: dict[str, int] = field(default_factory=dict)
    """Requests held as text, by tier: what wakes a tier from zero."""
    held_tokens: int = 0
    static_hash: str = ""
    live_hash: str = ""
    share: float = 0.0
    """Observed share of standard."""
    protocol: int = 1


@dataclass(frozen=True, slots=True)
class PoolDepth:
    pool: Pool
    levels: dict[Level, Depth]
    active: int


@dataclass(frozen=True, slots=True)
class Fleet:
    """One consistent reading. Lapsed entries are left out."""

    workers: list[WorkerRecord]
    routers: list[RouterRecord]
    desired: dict[str, int]
    """Wanted workers per tier, written by the operator or by `flashfleet up`."""
    pools: list[PoolDepth]
    time_ms: int
    """Redis TIME of the reading."""
