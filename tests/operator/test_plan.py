"""The plan: what runs, with which settings, and what is said about it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from flash_operator import api, api_cluster
from flash_operator.plan import CLUSTER, Observed, Place, Plan, Running, plan
from flash_wire.settings import RouterLive, RouterStatic, WorkerLive, WorkerStatic, parse
from hypothesis import given
from hypothesis import strategies as st
from support.deployments import PURE

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


def scaled(**fields: Any) -> api.FlashDeployment:
    return changed(flash=EXAMPLE.spec.flash.model_copy(update={"scaling": api.Scaling(**fields)}))


@PURE
@given(now=st.integers(0, 20), low=st.integers(0, 5), more=st.integers(0, 5), wish=st.none() | st.integers(0, 20))
def test_a_scaled_tier_follows_the_scaler_within_its_bounds(now: int, low: int, more: int, wish: int | None) -> None:
    low, high = low, max(1, low + more)
    world = Observed({"chat-flash": Running(now, "x", "y")}, {} if wish is None else {"flash": wish})
    flash = plan(scaled(min=low, max=high), world, CLUSTER).processes[1]
    assert flash.replicas == max(low, min(high, now if wish is None else wish))


def test_without_a_scaler_no_tier_stays_at_zero() -> None:
    assert plan(scaled(min=0, max=3), Observed(), PLACE).desired["flash"] == 1
    asleep = Observed({"chat-flash": Running(0, "x", "y")})
    assert plan(scaled(min=0, max=3), asleep, PLACE).desired["flash"] == 1
    assert plan(scaled(min=0, max=3), asleep, CLUSTER).desired["flash"] == 0


def test_a_tier_that_may_sleep_is_tried_first() -> None:
    assert plan(scaled(min=0, max=3), Observed(), CLUSTER).desired["flash"] == 1


def test_a_count_of_somebody_else_is_left_alone() -> None:
    deployment = scaled(external=True)
    for now in (0, 1, 7):
        world = world_of(plan(deployment, Observed(), CLUSTER))
        world = Observed({**world.processes, "chat-flash": replace(world.processes["chat-flash"], replicas=now)})
        after = plan(deployment, world, CLUSTER)
        assert (after.processes[1].replicas, after.processes[1].external) == (now, True)
        assert after.sentences == ()


def test_routers_hold_requests_only_for_a_tier_that_something_wakes() -> None:
    def wake_wait(deployment: api.FlashDeployment, place: Place) -> float:
        router = plan(deployment, Observed(), place).processes[0]
        return parse(RouterLive, json.loads(router.live)).tiers["flash"].wake_wait

    assert wake_wait(scaled(min=0, wake_wait=60.0), CLUSTER) == 60.0
    assert wake_wait(scaled(external=True, wake_wait=60.0), CLUSTER) == 60.0
    assert wake_wait(scaled(min=1, wake_wait=60.0), CLUSTER) == 0
    assert wake_wait(scaled(min=0, wake_wait=60.0), PLACE) == 0


def test_a_claim_becomes_a_folder() -> None:
    model = api.WeightSource(source="pvc://weights/llama/8b")
    flash = plan(changed(flash=EXAMPLE.spec.flash.model_copy(update={"model": model})), Observed(), CLUSTER).processes[
        1
    ]
    assert flash.claim == "weights"
    assert parse(WorkerStatic, json.loads(flash.static)).model.source == "file:///claims/weights/llama/8b"


def test_what_only_pods_need_changes_no_settings_file() -> None:
    before = plan(EXAMPLE, Observed(), CLUSTER)
    tier = EXAMPLE.spec.flash.model_copy(
        update={
            "resources": api_cluster.Resources(limits={"cpu": 2}),
            "image": "other",
            "model": EXAMPLE.spec.flash.model.model_copy(update={"secret": "s", "cache_claim": "c"}),
        }
    )
    after = plan(changed(flash=tier), world_of(before), CLUSTER)
    assert after.sentences == ()
