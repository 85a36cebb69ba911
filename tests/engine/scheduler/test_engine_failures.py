"""An engine in which something goes wrong: it tells everyone concerned, and goes on where it can."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import pytest
from flash_worker.batch import Row
from flash_worker.engine import Unavailable
from flash_worker.request import Output
from support.engine_bench import PATIENCE, assert_set
from support.engine_bench import EngineBench as Bench


def test_a_failed_step_ends_its_requests_and_the_engine_goes_on(make: Callable[..., Bench]):
    bench = make(max_seqs=2)
    failing = threading.Event()

    def fail(rows: Sequence[Row]) -> None:
        if not failing.is_set() and any(row.start > 8 for row in rows):
            failing.set()
            raise MemoryError("the device has no room")

    bench.device.before_step = fail
    victims = [bench.submit("a", max_tokens=50), bench.submit("b", max_tokens=50)]
    waiting = bench.submit("waiting")
    for request in victims:
        end = bench.end_of(request.id)
        assert end.finish == "error"
        assert "the device has no room" in end.detail
        assert bench.answer(request) == bench.alone(request)[: end.position]
    bench.ends_alone(waiting)
    assert bench.engine.healthy
    assert bench.engine.stats().failed_steps == 1
    assert bench.engine.stats().account.held == 0


def test_a_sampler_that_draws_too_few_fails_the_step(make: Callable[..., Bench]):
    bench = make()
    whole = bench.device.draw
    bench.device.draw = lambda logits, draws: ([], [])  # type: ignore[method-assign]
    bench.submit("a")
    assert "drew 1 tokens, and got 0" in bench.end_of("a").detail
    bench.device.draw = whole  # type: ignore[method-assign]
    bench.ends_alone(bench.submit("b"))


def test_a_device_that_is_gone_makes_the_engine_unhealthy(make: Callable[..., Bench]):
    bench = make()

    def fail(rows: Sequence[Row]) -> None:
        raise RuntimeError("device lost")

    bench.device.before_step = fail
    for i in range(8):
        bench.submit(f"r{i}")
        assert bench.end_of(f"r{i}").finish == "error"
    bench.until(lambda: not bench.engine.healthy)
    assert "8 steps failed in a row" in bench.engine.trouble
    assert bench.engine.room().slots == 0
    with pytest.raises(Unavailable, match="unhealthy"):
        bench.submit("more")


def test_a_broken_account_refuses_new_work_and_ends_what_is_here(make: Callable[..., Bench]):
    bench = make()
    request = bench.submit("a", max_tokens=300)
    bench.until(lambda: "a" in bench.outputs)
    bench.engine._pool._held += 1
    bench.until(lambda: not bench.engine.healthy)
    assert "do not sum" in bench.engine.trouble
    with pytest.raises(Unavailable):
        bench.submit("more")
    bench.ends_alone(request)


def test_a_mistake_in_the_loop_tells_everyone(make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch):
    bench = make()
    bench.submit("a", max_tokens=400)
    bench.submit("b", max_tokens=400)
    bench.until(lambda: "b" in bench.outputs)

    def fail(now: float) -> None:
        raise KeyError("a mistake")

    monkeypatch.setattr(bench.engine._scheduler, "schedule", fail)
    assert {bench.end_of("a").finish, bench.end_of("b").finish} == {"error"}
    assert not bench.engine.healthy
    with pytest.raises(Unavailable, match="a mistake"):
        bench.submit("c")


def test_a_listener_that_fails_does_not_stop_the_engine(make: Callable[..., Bench]):
    bench = make()
    hear, calls = bench.engine.on_output, []

    def fail_once(outputs: list[Output]) -> None:
        hear(outputs)
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("the listener is at fault")

    bench.engine.on_output = fail_once
    bench.ends_alone(bench.submit("a"))


def test_liveness_sees_a_step_that_hangs(make: Callable[..., Bench]):
    bench = make()
    assert bench.engine.last_step_age() == 0.0
    gate, entered = threading.Event(), threading.Event()
    bench.device.before_step = lambda rows: (entered.set(), assert_set(gate))  # type: ignore[func-returns-value]
    request = bench.submit("a")
    assert entered.wait(PATIENCE)
    age, steps = bench.engine.last_step_age(), bench.engine.steps
    time.sleep(0.02)
    assert bench.engine.last_step_age() >= age + 0.02
    assert bench.engine.busy
    assert bench.engine.steps == steps
    gate.set()
    bench.ends_alone(request)
    bench.until(lambda: not bench.engine.busy)
    assert bench.engine.last_step_age() == 0.0
