"""Counts follow the queue, and a tier that sleeps is woken by the first request that a router holds."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest
from flash_operator.client import DEPLOYMENT, DEPLOYMENT_OF_OURS, EVENT
from support.kube import Kube, Pods
from support.operator_process import Operator
from support.running import wait_for

pytestmark = pytest.mark.cluster


def count(kube: Kube, tier: str = "flash") -> int:
    return int(kube.must(DEPLOYMENT, f"chat-{tier}")["spec"]["replicas"])


@pytest.fixture
def serving(kube: Kube, operator: Operator, pods: Pods, chat: dict[str, Any]) -> Operator:
    kube.apply(chat)
    for component in ("router", "flash", "standard"):
        kube.wait_pods(component)
    pods.serve()
    kube.wait_condition("Ready", "True", "Serving")
    return operator


@pytest.fixture
def chat(chat: dict[str, Any]) -> dict[str, Any]:
    chat["spec"]["flash"]["scaling"] = {"min": 0, "max": 4, "idleAfter": "4s", "targetWait": "2s"}
    return chat


def test_asleep_when_idle_and_awake_at_once(kube: Kube, operator: Operator, pods: Pods, chat: dict[str, Any]) -> None:
    """Pain 6: the request is held, and its wake is one reconcile."""
    kube.apply(chat)
    for component, wanted in (("router", 1), ("flash", 0), ("standard", 1)):
        kube.wait_pods(component, wanted)
    pods.serve()
    kube.wait_condition("Ready", "True", "Serving")
    kube.wait_condition("ScaledToZero", "True", "ScaledToZero")
    assert pods.snapshot().desired == {"flash": 0, "standard": 1}, "routers know that there is somebody to wake"
    (router,) = pods.snapshot().routers
    pods.announce([dataclasses.replace(router, held={"flash": 1})], [])
    began = time.monotonic()
    wait_for(lambda: count(kube) == 1, 30, "a worker")
    assert time.monotonic() - began < 5
    kube.wait_pods("flash")
    assert any("wait for the tier to wake" in event["message"] for event in kube.list(EVENT))
    pods.announce([dataclasses.replace(router, held={})], [])
    pods.serve()
    kube.wait_condition("ScaledToZero", "False", "Awake")
    wait_for(lambda: count(kube) == 0, 60, "sleep again")
    kube.wait_condition("ScaledToZero", "True", "ScaledToZero")


def test_a_record_that_was_lost_is_written_again(kube: Kube, serving: Operator, pods: Pods, broker: Any) -> None:
    import redis

    with redis.Redis.from_url(broker.url) as client:
        client.flushall()
    wait_for(lambda: set(pods.snapshot().desired) == {"flash", "standard"}, 60, "the wanted counts")
    kube.wait_condition("Ready", "False", "NotAnnounced", within=60)
    pods.serve()
    kube.wait_condition("Ready", "True", "Serving", within=60)


def test_nothing_is_scaled_blindly(kube: Kube, serving: Operator, pods: Pods, broker: Any) -> None:
    """Without a reading of the queue the counts rest, also that of an idle tier."""

    kube.merge(DEPLOYMENT_OF_OURS, "chat", {"spec": {"flash": {"scaling": {"min": 2, "max": 4}}}})
    wait_for(lambda: count(kube) == 2, 30, "the new bound")
    broker.freeze()
    try:
        kube.merge(DEPLOYMENT_OF_OURS, "chat", {"spec": {"flash": {"scaling": {"min": 0, "max": 4}}}})
        time.sleep(8)
        assert count(kube) == 2
    finally:
        broker.thaw()
