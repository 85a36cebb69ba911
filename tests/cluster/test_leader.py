"""Two replicas, one leader; outages of the API server; another installation."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from flash_operator.client import DEPLOYMENT, LEASE
from support.kube import Kube
from support.operator_process import Operator
from support.running import wait_for

pytestmark = pytest.mark.cluster
Start = Callable[..., Operator]


def test_a_killed_leader_is_replaced_within_twenty_seconds(
    kube: Kube, start_operator: Start, chat: dict[str, Any]
) -> None:
    first = start_operator()
    wait_for(lambda: first.leading, 30, "a leader")
    second = start_operator()
    time.sleep(3)
    assert not second.leading
    first.kill()
    killed = time.monotonic()
    kube.apply(chat)
    wait_for(lambda: len(kube.deployments()) == 3, 30, "the work of the second")
    assert time.monotonic() - killed < 20
    assert second.leading
    assert kube.must(LEASE, "flashfleet-operator")["spec"]["leaseTransitions"] == 2


def test_a_leader_that_ends_hands_over_at_once(kube: Kube, start_operator: Start, chat: dict[str, Any]) -> None:
    first = start_operator()
    wait_for(lambda: first.leading, 30, "a leader")
    second = start_operator()
    began = time.monotonic()
    assert first.stop() == 0
    wait_for(lambda: second.leading, 30, "the second")
    assert time.monotonic() - began < 10
    kube.apply(chat)
    wait_for(lambda: len(kube.deployments()) == 3, 30, "the work of the second")


def test_another_installation_is_refused(kube: Kube, start_operator: Start) -> None:
    """Pain 15."""
    first = start_operator("--release", "team/fleet")
    wait_for(lambda: first.leading, 30, "a leader")
    second = start_operator("--release", "team/other", ready=False)
    assert second.process.wait(60) == 2
    wait_for(lambda: "already has a FlashFleet operator" in second.log(), 10, "the refusal")
    assert "release 'team/fleet'" in second.log()
    assert "another namespace" in second.log()
    assert first.leading


def test_the_api_server_goes_away_and_comes_back(
    plane: Any, kube: Kube, start_operator: Start, chat: dict[str, Any]
) -> None:
    operator = start_operator()
    kube.apply(chat)
    wait_for(lambda: len(kube.deployments()) == 3, 30, "the Deployments")
    with plane.outage():
        time.sleep(20)
        assert operator.process.poll() is None
        assert not operator.leading, "without a Lease it does not act"
        assert operator.get("/healthz")[0] == 200, "a restart would not help"
    kube.merge(DEPLOYMENT, "chat-standard", {"spec": {"replicas": 4}})
    chat["spec"]["flash"]["engine"]["maxSeqs"] = 16
    kube.apply(chat)
    wait_for(lambda: kube.must(DEPLOYMENT, "chat-standard")["spec"]["replicas"] == 1, 60, "the repair")
    wait_for(lambda: operator.leading, 60, "the leader")
    wait_for(
        lambda: kube.must(DEPLOYMENT, "chat-flash")["metadata"]["generation"] > 1, 60, "the edit that it did not see"
    )
    kube.merge(DEPLOYMENT, "chat-standard", {"spec": {"replicas": 3}})
    wait_for(lambda: kube.must(DEPLOYMENT, "chat-standard")["spec"]["replicas"] == 1, 60, "watches that work")


def test_what_was_deleted_while_nobody_watched(
    plane: Any, kube: Kube, start_operator: Start, chat: dict[str, Any]
) -> None:
    """A watch that starts over says nothing of it. The caches find out, and what is gone is not made again."""
    operator = start_operator("--resync", "5")
    kube.apply(chat)
    wait_for(lambda: len(kube.deployments()) == 3, 30, "the Deployments")
    operator.process.send_signal(19)  # SIGSTOP: it sees nothing
    kube.delete(DEPLOYMENT, "chat-router")
    kube.plane.kubectl("delete", "-n", kube.namespace, "fd", "chat", "--wait=false")
    plane.stop_api()
    operator.process.send_signal(18)
    plane.start_api()
    wait_for(lambda: not kube.deployments(), 60, "the end of all")
    time.sleep(8)
    assert not kube.deployments()
    assert operator.process.poll() is None


def test_without_the_crd_or_rights_it_says_so_and_is_not_ready(plane: Any, kube: Kube, start_operator: Start) -> None:
    plane.kubectl("delete", "-n", kube.namespace, "rolebinding", "--all")
    operator = start_operator(ready=False)
    wait_for(lambda: operator.http, 60, "its port")
    wait_for(lambda: "flashdeployments" in operator.log() and "forbidden" in operator.log(), 60, "the reason")
    assert operator.get("/readyz")[0] == 503
    assert not operator.leading
    plane.kubectl("apply", "-n", kube.namespace, "-f", "-", stdin=kube.rights)
    wait_for(lambda: operator.leading, 60, "the leader once the rights are there")
