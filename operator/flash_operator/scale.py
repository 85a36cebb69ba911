"""How many workers a tier should have, from its queue. Pure: the same load and memory give the same decision.

Up fast: the oldest request waits longer than the target, or more is queued than the workers can clear in it. Down slow:
only to the most that was needed at any time of the last five minutes. To zero: after `idleAfter` without any request.
From zero: at once, for the first request that a router holds.

A worker takes whatever it has room for. So a queue means that the workers are full, and room that stays free means
that there are too many of them; between the two the count rests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from flash_wire.broker.types import Level
from flash_wire.fleet import Fleet
from flash_wire.settings import Priorities

from flash_operator.api import Scaling

DOWN_AFTER = 300.0
"""Seconds that fewer workers must have been enough."""
FULL = 0.7
"""Share of their room that workers may fill after a step down, so that it causes no queue."""
GROWTH = 2.0
"""Most times the ready workers in one decision, while only the age of the queue is known."""
_BUCKET = 10.0
_SMOOTHING = 0.3
_SLOWEST = 0.01
"""Tokens a second below which a measured rate says nothing."""
_MEASURED_OVER = 10.0
"""Seconds of an unbroken queue that a rate is taken from: work is counted when an answer ends, so in lumps."""


@dataclass(frozen=True, slots=True)
class Load:
    """One tier in one reading of the fleet record."""

    time: float
    """Seconds, of the broker's clock."""
    ready: int
    """Workers that are ready."""
    oldest: dict[Level, float]
    """Age of the head of each level, in seconds; 0 when empty."""
    queued: int
    """Requests waiting in the broker."""
    tokens: int
    """Tokens of work waiting in the broker."""
    active: int
    """Requests that workers hold."""
    held: int
    """Requests that routers hold as text, because no worker is there."""
    used: int
    """Tokens of work done since the broker began to count."""
    full: float
    """Share of the ready workers' room that is taken, 0 to 1: of slots or of KV tokens, whichever is more."""

    @property
    def idle(self) -> bool:
        return not (self.queued or self.active or self.held)


@dataclass(frozen=True, slots=True)
class Memory:
    """What one decision leaves to the next. Starting without one only delays steps down."""

    since: float | None = None
    """When remembering began; no step down before DOWN_AFTER has passed."""
    needed: tuple[tuple[float, int], ...] = ()
    """(time, most workers needed from then on for 10 s), oldest first."""
    idle_since: float | None = None
    used: int = 0
    at: float | None = None
    """Work done, and when: where measuring the rate began; None while no queue stands."""
    rate: float = 0.0
    """Tokens of work a second that one full worker does; 0 while unknown."""


@dataclass(frozen=True, slots=True)
class Decision:
    replicas: int
    why: str
    """A sentence where the count changes; else ""."""
    memory: Memory = field(default_factory=Memory)
    again: float | None = None
    """Seconds after which time alone may change the decision."""


def load(fleet: Fleet, tier: str) -> Load:
    """What the fleet record says of one tier."""
    ready = [worker for worker in fleet.workers if worker.tier == tier and worker.state == "ready"]
    pools = [pool for pool in fleet.pools if pool.pool.tier == tier]
    levels = [(name, depth) for pool in pools for name, depth in pool.levels.items()]
    oldest: dict[Level, float] = {"high": 0.0, "low": 0.0}
    for name, depth in levels:
        oldest[name] = max(oldest[name], depth.oldest_ms / 1000)
    return Load(
        time=fleet.time_ms / 1000,
        ready=len(ready),
        oldest=oldest,
        queued=sum(depth.queued for _, depth in levels),
        tokens=sum(depth.tokens for _, depth in levels),
        active=sum(pool.active for pool in pools),
        held=sum(router.held.get(tier, 0) for router in fleet.routers),
        used=sum(depth.used for _, depth in levels),
        full=max(
            _share(sum(w.slots - w.slots_free for w in ready), sum(w.slots for w in ready)),
            _share(sum(w.kv_tokens - w.kv_tokens_free for w in ready), sum(w.kv_tokens for w in ready)),
        ),
    )


def scale(scaling: Scaling, priorities: Priorities, load: Load, now: int, memory: Memory) -> Decision:
    """`now` workers are wanted now. The answer is within the bounds."""
    memory = _remember(load, memory)
    need, why = _needed(scaling, priorities, load, now, memory)
    memory = replace(memory, needed=_with(memory.needed, load.time, need))
    if need > now:
        wanted = need
    elif load.idle and scaling.min == 0 and _for(load.time, memory.idle_since) >= scaling.idle_after:
        wanted, why = 0, f"no request for {scaling.idle_after:g} s"
    elif _for(load.time, memory.since) >= DOWN_AFTER:
        wanted = min(now, max(count for _, count in memory.needed))
        why = f"{wanted} were enough for {DOWN_AFTER:g} s"
    else:
        wanted = now
    wanted = max(scaling.min, min(scaling.max, wanted))
    if not scaling.min <= now <= scaling.max:
        why = f"the bounds are {scaling.min} to {scaling.max}"
    said = f"from {now} to {wanted}: {why}" if wanted != now else ""
    return Decision(wanted, said, memory, _again(scaling, load, wanted, memory))


def _needed(scaling: Scaling, priorities: Priorities, load: Load, now: int, memory: Memory) -> tuple[int, str]:
    """(workers that the present load needs, why). Zero only of zero: ending the last one is for idleAfter to say."""
    target = scaling.target_wait
    if now == 0:
        return (
            (1, f"{load.held + load.queued} requests wait for the tier to wake") if load.held + load.queued else (0, "")
        )
    needs = [(1, "")]
    # Low waits its share longer by design, so it asks for more workers that much later.
    patience: dict[Level, float] = {"high": 1.0, "low": max(1.0, priorities.high / priorities.low)}
    for level, age in load.oldest.items():
        limit = target * patience[level]
        if age > limit and load.ready:
            more = math.ceil(load.ready * min(GROWTH, age / limit))
            needs.append((more, f"the oldest {level} request waits {age:.1f} s, the target is {limit:g} s"))
    if memory.rate > _SLOWEST and load.tokens:
        clearing = math.ceil(load.tokens / (memory.rate * target * max(patience.values() if _only_low(load) else (1,))))
        # A queue that was measured once must not start a thousand workers.
        clearing = min(clearing, math.ceil(GROWTH * GROWTH * max(1, load.ready)))
        needs.append((clearing, f"{load.tokens} tokens wait, and one worker does {memory.rate:.0f} a second"))
    if load.ready:
        needs.append((min(now, math.ceil(load.ready * load.full / FULL)), ""))
    if load.ready < now:
        # Some are still starting: what was asked for is on its way.
        needs.append((now if not load.idle else 1, ""))
    return max(needs, key=lambda need: need[0])


def _only_low(load: Load) -> bool:
    return not load.oldest["high"] and load.oldest["low"] > 0


def _remember(load: Load, memory: Memory) -> Memory:
    since = load.time if memory.since is None or load.time < memory.since else memory.since
    idle_since = (memory.idle_since if memory.idle_since is not None else load.time) if load.idle else None
    memory = replace(memory, since=since, idle_since=idle_since)
    passed = load.time - memory.at if memory.at is not None else -1.0
    # Only full workers show what a worker can do, and a queue says that they are full. A broker that lost its data
    # counts from the start.
    if not (load.queued and load.ready) or passed < 0 or load.used < memory.used:
        return replace(memory, used=load.used, at=load.time if load.queued and load.ready else None)
    if passed < _MEASURED_OVER:
        return memory
    seen = (load.used - memory.used) / passed / load.ready
    rate = seen if not memory.rate else memory.rate + _SMOOTHING * (seen - memory.rate)
    return replace(memory, used=load.used, at=load.time, rate=rate)


def _with(needed: tuple[tuple[float, int], ...], time: float, count: int) -> tuple[tuple[float, int], ...]:
    """The window with one more reading: at most 32 entries."""
    kept = [(at, most) for at, most in needed if time - DOWN_AFTER <= at <= time]
    if kept and time - kept[-1][0] < _BUCKET:
        kept[-1] = (kept[-1][0], max(kept[-1][1], count))
    else:
        kept.append((time, count))
    return tuple(kept)


def _again(scaling: Scaling, load: Load, wanted: int, memory: Memory) -> float | None:
    if load.queued or load.held:
        return 1.0
    if wanted <= scaling.min:
        return None
    if load.idle and scaling.min == 0 and wanted == 1:
        return max(1.0, scaling.idle_after - _for(load.time, memory.idle_since))
    return _BUCKET


def _for(now: float, since: float | None) -> float:
    return 0.0 if since is None else now - since


def _share(part: int, whole: int) -> float:
    return min(1.0, max(0.0, part / whole)) if whole else 0.0
