"""The scaler: within bounds, up fast, down slow, at rest under a constant load, awake at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from flash_operator.api import Scaling
from flash_operator.scale import DOWN_AFTER, Decision, Load, Memory, load, scale
from flash_wire.broker.types import Depth
from flash_wire.fleet import Fleet, RouterRecord, WorkerRecord
from flash_wire.settings import Priorities
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import pool
from support.deployments import PURE

WEIGHTS = Priorities()
IDLE = Load(time=0.0, ready=1, oldest={"high": 0.0, "low": 0.0}, queued=0, tokens=0, active=0, held=0, used=0, full=0.0)
BUSY = replace(IDLE, active=4, full=0.5)
WAITING = replace(IDLE, queued=5, tokens=500, active=8, full=1.0, oldest={"high": 3.0, "low": 0.0})


def decide(now: int, seen: Load, memory: Memory | None = None, **bounds: Any) -> Decision:
    return scale(Scaling(**({"max": 10} | bounds)), WEIGHTS, seen, now, memory or Memory())


# -- up -------------------------------------------------------------------------------------------------------------


def test_a_queue_older_than_the_target_adds_workers_at_once() -> None:
    decision = decide(1, WAITING)
    assert decision.replicas == 2
    assert decision.why == "from 1 to 2: the oldest high request waits 3.0 s, the target is 2 s"
    assert decide(4, replace(WAITING, ready=4)).replicas == 6
    assert decide(4, replace(WAITING, ready=4, oldest={"high": 60.0, "low": 0.0})).replicas == 8


def test_a_queue_within_the_target_adds_none() -> None:
    assert decide(1, replace(WAITING, oldest={"high": 1.9, "low": 0.0})).replicas == 1


def test_low_may_wait_its_share_longer() -> None:
    """Class-aware: with weights 3 to 1, low's target is three times high's."""
    assert decide(1, replace(WAITING, oldest={"high": 0.0, "low": 5.9})).replicas == 1
    assert decide(1, replace(WAITING, oldest={"high": 0.0, "low": 6.1})).replicas == 2
    assert decide(1, replace(WAITING, oldest={"high": 2.1, "low": 0.0})).replicas == 2


def test_workers_that_are_starting_are_not_asked_for_again() -> None:
    now, memory = 1, Memory()
    for second in range(60):
        seen = replace(WAITING, time=float(second), oldest={"high": 3.0 + second, "low": 0.0})
        decision = decide(now, seen, memory)
        now, memory = decision.replicas, decision.memory
    assert now == 2, "one is ready and one loads: the queue's age says nothing new"


def test_a_measured_rate_says_how_many_at_once() -> None:
    """A worker does 100 tokens a second; 4,000 wait; two seconds are the target."""
    memory, seen = Memory(), replace(WAITING, oldest={"high": 1.0, "low": 0.0}, tokens=100)
    for second in range(0, 31, 10):
        memory = decide(1, replace(seen, time=float(second), used=second * 100), memory).memory
    assert memory.rate == pytest.approx(100)
    decision = decide(1, replace(seen, time=31.0, used=3100, tokens=4000), memory, max=50)
    assert decision.replicas == 4, "20 are needed; no more than four times what is there in one step"
    assert "4000 tokens wait, and one worker does 100 a second" in decision.why
    assert decide(8, replace(seen, time=31.0, used=3100, tokens=4000, ready=8), memory, max=50).replicas == 20


# -- from and to zero -----------------------------------------------------------------------------------------------


def test_a_held_request_wakes_the_tier_in_one_decision() -> None:
    """Pain 6."""
    decision = decide(0, replace(IDLE, ready=0, held=1), min=0)
    assert decision.replicas == 1
    assert decision.why == "from 0 to 1: 1 requests wait for the tier to wake"
    assert decide(0, replace(IDLE, ready=0, queued=1), min=0).replicas == 1
    assert decide(0, replace(IDLE, ready=0), min=0).replicas == 0


def test_it_stays_awake_while_the_first_worker_loads() -> None:
    now, memory = 0, Memory()
    for second in range(0, 1200, 5):
        decision = decide(now, replace(IDLE, time=float(second), ready=0, held=3), memory, min=0, idle_after=10.0)
        now, memory = decision.replicas, decision.memory
        assert now == 1


def test_an_idle_tier_sleeps_after_idle_after_and_not_before() -> None:
    now, memory = 2, Memory()
    for second in range(100):
        decision = decide(now, replace(IDLE, time=float(second), ready=2), memory, min=0, idle_after=60.0)
        assert decision.replicas == (2 if second < 60 else 0)
        memory = decision.memory
    assert decide(2, replace(IDLE, time=200.0, ready=2), memory, min=1, idle_after=60.0).replicas >= 1


def test_one_request_starts_the_wait_again() -> None:
    memory = decide(1, replace(IDLE, time=0.0), min=0, idle_after=60.0).memory
    memory = decide(1, replace(IDLE, time=59.0, active=1), memory, min=0, idle_after=60.0).memory
    decision = decide(1, replace(IDLE, time=61.0), memory, min=0, idle_after=60.0)
    assert decision.replicas == 1
    assert decision.again == pytest.approx(60.0)


def test_a_restarted_operator_takes_nothing_away_at_once() -> None:
    for low in (0, 1):
        assert decide(5, replace(IDLE, time=1e6, ready=5), Memory(), min=low).replicas == 5


# -- down -----------------------------------------------------------------------------------------------------------


def test_down_only_to_what_was_enough_for_five_minutes() -> None:
    memory, changes = Memory(), []
    now = 8
    for second in range(0, 700, 5):
        full = 0.9 if second == 100 else 0.2
        decision = decide(now, replace(BUSY, time=float(second), ready=now, full=full), memory)
        if decision.replicas != now:
            changes.append((second, decision.replicas))
        now, memory = decision.replicas, decision.memory
    assert changes[0][0] >= 100 + DOWN_AFTER - 10, "the busy moment counts for five minutes"
    assert changes[0][1] == math.ceil(8 * 0.2 / 0.7)


def test_the_memory_is_bounded() -> None:
    memory = Memory()
    for second in range(4000):
        memory = decide(3, replace(BUSY, time=second / 2, ready=3), memory).memory
    assert len(memory.needed) <= 32


def test_a_broker_that_lost_its_count_gives_no_rate() -> None:
    memory = decide(1, replace(WAITING, time=100.0, used=10_000)).memory
    memory = decide(1, replace(WAITING, time=120.0, used=5), memory).memory
    assert memory.rate == 0.0
    memory = decide(1, replace(WAITING, time=50.0, used=5), memory).memory
    assert memory.rate == 0.0


def test_bounds_that_changed_are_told() -> None:
    assert decide(7, BUSY, max=4).why == "from 7 to 4: the bounds are 1 to 4"
    assert decide(0, IDLE, min=2).why == "from 0 to 2: the bounds are 2 to 10"


# -- properties -----------------------------------------------------------------------------------------------------

LOADS = st.builds(
    Load,
    time=st.floats(0, 1e6),
    ready=st.integers(0, 20),
    oldest=st.fixed_dictionaries({"high": st.floats(0, 1000), "low": st.floats(0, 1000)}),
    queued=st.integers(0, 1000),
    tokens=st.integers(0, 10**7),
    active=st.integers(0, 1000),
    held=st.integers(0, 100),
    used=st.integers(0, 10**9),
    full=st.floats(0, 1),
)
MEMORIES = st.builds(
    Memory,
    since=st.none() | st.floats(0, 1e6),
    needed=st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 20)), max_size=5).map(
        lambda found: tuple(sorted(found))
    ),
    idle_since=st.none() | st.floats(0, 1e6),
    used=st.integers(0, 10**9),
    at=st.none() | st.floats(0, 1e6),
    rate=st.floats(0, 1e5),
)
BOUNDS = st.builds(
    lambda low, more, target: Scaling(min=low, max=max(1, low + more), target_wait=target),
    st.integers(0, 10),
    st.integers(0, 20),
    st.sampled_from([0.5, 2.0, 30.0]),
)


@PURE
@given(BOUNDS, LOADS, st.integers(0, 40), MEMORIES)
def test_never_outside_the_bounds_and_always_the_same(bounds: Scaling, seen: Load, now: int, memory: Memory) -> None:
    decision = scale(bounds, WEIGHTS, seen, now, memory)
    assert bounds.min <= decision.replicas <= bounds.max
    assert bool(decision.why) is (decision.replicas != now)
    assert decision.again is None or decision.again > 0
    assert scale(bounds, WEIGHTS, seen, now, memory) == decision


@PURE
@given(
    BOUNDS, LOADS, st.integers(0, 40), MEMORIES, st.integers(0, 10**6), st.floats(0, 500), st.floats(0, 500),
    st.integers(0, 9),
)  # fmt: skip
def test_a_longer_queue_never_asks_for_less(
    bounds: Scaling, seen: Load, now: int, memory: Memory, tokens: int, high: float, low: float, held: int
) -> None:
    seen = replace(seen, queued=seen.queued + 1, active=seen.active + 1)
    more = replace(
        seen,
        tokens=seen.tokens + tokens,
        held=seen.held + held,
        oldest={"high": seen.oldest["high"] + high, "low": seen.oldest["low"] + low},
    )
    less, much = (scale(bounds, WEIGHTS, one, now, memory).replicas for one in (seen, more))
    assert much >= less


@PURE
@given(BOUNDS, LOADS, st.integers(1, 40), MEMORIES)
def test_work_is_never_left_without_a_worker(bounds: Scaling, seen: Load, now: int, memory: Memory) -> None:
    seen = replace(seen, active=max(1, seen.active))
    assert scale(bounds, WEIGHTS, seen, now, memory).replicas >= 1


@dataclass
class Site:
    """Requests arrive evenly; a worker runs `slots` at once, each for `service` seconds; a start takes a while."""

    arrivals: float
    """A second."""
    service: float = 10.0
    slots: int = 4
    start: float = 20.0
    time: float = 0.0
    now: int = 1
    ready: float = 1.0
    running: float = 0.0
    waiting: float = 0.0
    used: float = 0.0
    starting: list[float] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    counts: list[int] = field(default_factory=list)

    def step(self, bounds: Scaling) -> None:
        self.time += 1
        self.ready += sum(at <= self.time for at in self.starting)
        self.starting = [at for at in self.starting if at > self.time]
        done = self.running / self.service
        self.running -= done
        self.used += done * 100
        self.waiting += self.arrivals
        taken = min(self.waiting, max(0.0, self.ready * self.slots - self.running))
        self.waiting -= taken
        self.running += taken
        seen = Load(
            time=self.time,
            ready=int(self.ready),
            oldest={"high": self.waiting / self.arrivals if self.waiting > 0.5 else 0.0, "low": 0.0},
            queued=math.floor(self.waiting),
            tokens=int(self.waiting * 100),
            active=math.ceil(self.running),
            held=0,
            used=int(self.used),
            full=min(1.0, self.running / (self.ready * self.slots)) if self.ready else 0.0,
        )
        decision = scale(bounds, WEIGHTS, seen, self.now, self.memory)
        self.memory = decision.memory
        if decision.replicas > self.now:
            self.starting += [self.time + self.start] * (decision.replicas - self.now)
        elif decision.replicas < self.now:
            self.ready = min(self.ready, decision.replicas)
        self.now = decision.replicas
        self.counts.append(self.now)


@pytest.mark.parametrize("arrivals", [0.2, 0.39, 0.41, 1.0, 1.7, 2.5, 3.9])
def test_a_constant_load_comes_to_rest(arrivals: float) -> None:
    """Enough workers, soon; then no change for the rest of two hours: no flapping."""
    site = Site(arrivals)
    for _ in range(7200):
        site.step(Scaling(min=1, max=20))
    needed = arrivals * site.service / site.slots
    rest = site.counts[3600:]
    assert len(set(rest)) == 1, f"{sorted(set(rest))} for {needed:.1f}"
    assert needed <= rest[0] <= math.ceil(needed / 0.7) + 1
    assert site.waiting < 1
    ups = sum(later > sooner for sooner, later in zip(site.counts, site.counts[1:], strict=False))
    downs = sum(later < sooner for sooner, later in zip(site.counts, site.counts[1:], strict=False))
    assert downs <= 3
    assert ups <= 8


def test_a_peak_comes_and_goes() -> None:
    site = Site(0.3)
    for second in range(7200):
        site.arrivals = 4.0 if 600 <= second < 1200 else 0.3
        site.step(Scaling(min=1, max=20))
    assert max(site.counts[600:720]) >= 8, "up within two minutes"
    assert min(site.counts[700:1200]) >= 4
    assert site.counts[-1] <= 2


# -- the fleet record -----------------------------------------------------------------------------------------------


def test_the_load_is_read_from_the_record() -> None:
    def worker(name: str, tier: str, state: str, free: int) -> WorkerRecord:
        return WorkerRecord(name, name, tier, state, slots=8, slots_free=free, kv_tokens=1000, kv_tokens_free=900)

    fleet = Fleet(
        workers=[
            worker("a", "flash", "ready", 2),
            worker("b", "flash", "ready", 6),
            worker("c", "flash", "loading", 0),
            worker("d", "flash", "draining", 0),
            worker("e", "standard", "ready", 8),
        ],
        routers=[RouterRecord("r", "ready", "", held={"flash": 2}), RouterRecord("s", "ready", "", held={"flash": 1})],
        desired={},
        pools=[
            pool("flash", high=Depth(2, 200, 1500, 7), low=Depth(1, 50, 4000, 3), active=6),
            pool("flash", high=Depth(1, 100, 2500, 1), active=2),
            pool("standard", high=Depth(9, 900, 9000, 9), active=9),
        ],
        time_ms=12_000,
    )
    assert load(fleet, "flash") == Load(
        time=12.0,
        ready=2,
        oldest={"high": 2.5, "low": 4.0},
        queued=4,
        tokens=350,
        active=8,
        held=3,
        used=11,
        full=0.5,
    )
    assert load(Fleet([], [], {}, [], 5000), "flash").idle
