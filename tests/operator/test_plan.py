"""The plan: what runs, with which settings, and what is said about it."""

from __future__ import annotations

import json
from pathlib import Path

from flash_operator import api
from flash_operator.plan import Observed, Place, Plan, Running, plan
from flash_wire.settings import RouterLive, RouterStatic, WorkerLive, WorkerStatic, parse
from hypothesis import given
from hypothesis import strategies as st

EXAMPLE = api.load(Path(__file__).parents[2] / "examples" / "chat.yaml")
PLACE = Place("127.0.0.1", 9000, 8000, 9001, 0)


def world_of(wanted: Plan) -> Observed:
    return Observed({p.name: Running(p.replicas, p.static_hash, p.live_hash) for p in wanted.processes})


def changed(**spec: object) -> api.FlashDeployment:
    return EXAMPLE.model_copy(update={"spec": EXAMPLE.spec.model_copy(update=spec)})


def test_the_example_wants_a_router_and_two_workers() -> None:
    wanted = plan(EXAMPLE, Observed(), PLACE)
    assert [(p.name, p.module, p.replicas) for p in wanted.processes] == [
        ("chat-router", "flash_router", 1),
        ("chat-flash", "flash_worker", 1),
        ("chat-standard", "flash_worker", 1),
    ]
    assert wanted.desired == {"flash": 1, "standard": 1}
    assert wanted.sentences == ("chat-router: start 1", "chat-flash: start 1", "chat-standard: start 1")


def test_each_process_can_read_its_files() -> None:
    router, flash, standard = plan(EXAMPLE, Observed(), PLACE).processes
    assert parse(RouterStatic, json.loads(router.static)).grpc_port == 9000
    assert parse(RouterLive, json.loads(router.live)).routing == EXAMPLE.spec.routing
    assert parse(WorkerStatic, json.loads(flash.static)).engine == EXAMPLE.spec.flash.engine
    assert parse(WorkerStatic, json.loads(standard.static)).engine.weights == "fp32"
    assert parse(WorkerLive, json.loads(flash.live)).priorities.high == 3


def test_a_world_as_wanted_needs_nothing() -> None:
    wanted = plan(EXAMPLE, Observed(), PLACE)
    again = plan(EXAMPLE, world_of(wanted), PLACE)
    assert again.sentences == ()
    assert again.processes == wanted.processes


def test_a_rule_restarts_nothing() -> None:
    before = plan(EXAMPLE, Observed(), PLACE)
    routing = EXAMPLE.spec.routing.model_copy(update={"standard_share": 0.5, "rules": ()})
    after = plan(changed(routing=routing), world_of(before), PLACE)
    assert [p.static_hash for p in after.processes] == [p.static_hash for p in before.processes]
    assert [s.split(":")[0] for s in after.sentences] == ["chat-router"]
    assert "reload live settings" in after.sentences[0]


def test_an_engine_setting_rolls_its_tier_alone() -> None:
    before = plan(EXAMPLE, Observed(), PLACE)
    engine = EXAMPLE.spec.flash.engine.model_copy(update={"window": 2048})
    after = plan(changed(flash=EXAMPLE.spec.flash.model_copy(update={"engine": engine})), world_of(before), PLACE)
    assert len(after.sentences) == 1
    assert after.sentences[0].startswith("chat-flash: roll from settings ")


def test_what_nothing_asks_for_is_stopped() -> None:
    world = Observed({"chat-old": Running(1, "x", "y")})
    assert plan(EXAMPLE, world, PLACE).sentences[-1] == "chat-old: stop, nothing asks for it"


@given(now=st.integers(0, 20), low=st.integers(0, 5), more=st.integers(0, 5))
def test_a_scaled_tier_keeps_what_runs_within_its_bounds(now: int, low: int, more: int) -> None:
    bounds = api.Scaling(min=low, max=max(1, low + more))
    deployment = changed(flash=EXAMPLE.spec.flash.model_copy(update={"scaling": bounds}))
    flash = plan(deployment, Observed({"chat-flash": Running(now, "x", "y")}), PLACE).processes[1]
    assert bounds.min <= flash.replicas <= bounds.max
    if bounds.min <= now <= bounds.max:
        assert flash.replicas == now
