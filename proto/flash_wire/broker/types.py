"""What goes into and comes out of the broker's scripts."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Literal

Level = Literal["high", "low"]
LEVELS: tuple[Level, ...] = ("high", "low")
SUSPECT_CRASHES = 2
"""A job with so many crashes is a suspect. Claim returns it as the only job of its claim, however much room there is.
The worker that sees `Claimed.crashes` >= SUSPECT_CRASHES runs it alone: it releases every other job that it holds and
claims nothing until the suspect has ended."""


@dataclass(frozen=True, slots=True)
class Pool:
    """One queue pair: a tier at one revision of weights, tokenizer and template. Token ids mean nothing elsewhere."""

    fleet: str
    """namespace/name of the FlashDeployment: the hash tag of all its keys."""
    tier: str
    rev: str


@dataclass(frozen=True, slots=True)
class Job:
    """A request as the broker knows it: never its text or its token ids."""

    id: str
    """Made by the router that owns the job."""
    level: Level
    need: int
    """Room in KV tokens: prompt + committed + reserve for the answer. Compared with what a worker offers."""
    cost: int
    """Tokens of work that the stride charges; corrected at ack by what was used."""
    owner: str
    """Router id (RouterRecord.id): where the stream goes."""
    deadline: int = 0
    """Redis TIME in ms after which it is expired; 0 is none."""
    tenant: str = ""
    request: str = ""
    """The client's idempotent request id, "" if none."""
    seq: int = 0
    """Place in the queue; 0 draws a new one. A job that comes back keeps its own."""
    epoch: int = 0
    """Highest epoch its router has seen: the next claim gets a higher one."""
    crashes: int = 0
    """Worker incarnations that accepted the prompt and died; counted by the router alone."""


@dataclass(frozen=True, slots=True)
class AdmitLimits:
    """0 is no limit: what a router registers again after a loss was admitted before."""

    queue_tokens: int
    """Most tokens (cost) waiting in one level of one pool, so that low never shuts high out."""
    queue_requests: int
    """Most jobs waiting in one level of one pool."""
    tenant_tokens: int = 0
    """Most tokens (cost) of one tenant, waiting and running, over all pools of the fleet."""


class Admission(enum.Enum):
    ADMITTED = "admitted"
    DUPLICATE = "duplicate"
    """The same job is there already (an enqueue that was answered too late to be seen). As good as admitted."""
    QUEUE_TOKENS = "queue_tokens"
    QUEUE_REQUESTS = "queue_requests"
    TENANT_TOKENS = "tenant_tokens"
    EXPIRED = "expired"
    FINISHED = "finished"
    """A job of this id was acked or cancelled in this pool less than a minute ago: nothing was queued."""


@dataclass(frozen=True, slots=True)
class Enqueued:
    outcome: Admission
    seq: int
    """The job's place; 0 when refused."""
    queued_requests: int
    queued_tokens: int
    """Of its level, this job included when admitted."""
    limit: int = 0
    have: int = 0
    """When refused: the limit and what it would have become."""


@dataclass(frozen=True, slots=True)
class Claimed:
    id: str
    epoch: int
    owner: str
    level: Level
    need: int
    cost: int
    seq: int
    crashes: int
    deadline: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """Found dead at the head of the queue by a claim; its router must be told."""

    id: str
    owner: str
    why: Literal["expired", "owner_lapsed"]


@dataclass(frozen=True, slots=True)
class Claim:
    jobs: list[Claimed] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)


class Held(enum.Enum):
    """What a beat says of one job."""

    EXTENDED = "extended"
    CANCELLED = "cancelled"
    FENCED = "fenced"
    """Another holds it: stop at once."""
    UNKNOWN = "unknown"
    """Redis lost it, or has it queued: keep generating, the router's fence decides."""


class Acked(enum.Enum):
    OK = "ok"
    FENCED = "fenced"
    NOT_ACTIVE = "not_active"
    GONE = "gone"


class Released(enum.Enum):
    OK = "ok"
    FENCED = "fenced"
    NOT_ACTIVE = "not_active"
    GONE = "gone"


class Cancelled(enum.Enum):
    QUEUED = "queued"
    ACTIVE = "active"
    GONE = "gone"


class Restored(enum.Enum):
    OK = "ok"
    HELD_BY_ANOTHER = "held_by_another"
    """Left alone."""
    GONE = "gone"
    """Acked, cancelled or expired here less than a minute ago: nothing was restored."""


@dataclass(frozen=True, slots=True)
class Depth:
    """One level of one pool."""

    queued: int
    tokens: int
    oldest_ms: int
    """Age of the head; 0 when empty."""
    used: int = 0
    """Tokens of work of all acked jobs since the broker began to count: its slope is the drain rate, over all routers.
    """


@dataclass(frozen=True, slots=True)
class Reaped:
    """What a reap did."""

    requeued: list[str] = field(default_factory=list)
    """Ids whose lease had lapsed: queued again in their old place."""
    dropped: list[Dropped] = field(default_factory=list)
    """Ended instead: past their deadline, or their owner is gone."""


@dataclass(frozen=True, slots=True)
class Swept:
    """One bounded step of a sweep."""

    repaired: list[str]
    finished: bool
    """The scan went once over all keys; the next step begins anew."""


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """Differs after a restart, a failover or a wipe: then routers register what they hold again."""

    run_id: str
    generation: str
