"""READY and REASON tell the truth: a worker counts once a router has it, and a failing pod's own words are shown."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from flash_operator.client import CONFIG_MAP, DEPLOYMENT_OF_OURS, EVENT
from support.kube import Body, Kube, Pods
from support.operator_process import Operator
from support.running import wait_for
from support.servers import running_server

pytestmark = pytest.mark.cluster
TIERS = ("flash", "standard")


@pytest.fixture
def made(kube: Kube, operator: Operator, chat: dict[str, Any]) -> Operator:
    """examples/chat.yaml with its three pods, of which nothing runs yet."""
    kube.apply(chat)
    for component in ("router", *TIERS):
        kube.wait_pods(component)
    return operator


def unscheduled(message: str) -> Body:
    return {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}


def test_pods_that_are_ready_are_not_enough(kube: Kube, made: Operator, pods: Pods) -> None:
    """Pains 1 and 2: the kubelet calls them ready, and no router has a worker yet."""
    for component in ("router", *TIERS):
        for pod in kube.pods(component):
            kube.run_pod(pod)
    kube.wait_condition("Ready", "False", "NotAnnounced")
    pods.serve(["router"])
    kube.wait_condition("RouterReady", "True", "Serving")
    assert kube.condition("Ready")["status"] == "False"
    pods.serve()
    found = kube.wait_condition("Ready", "True", "Serving")
    body = kube.must(DEPLOYMENT_OF_OURS, "chat")
    assert found["observedGeneration"] == body["metadata"]["generation"]
    assert body["status"]["tiers"]["flash"] == {
        "desired": 1,
        "ready": 1,
        "admitted": 1,
        "draining": 0,
        "workers": "1/1",
    }
    assert body["status"]["endpoint"]["grpc"] == f"chat.{kube.namespace}.svc:9000"
    assert made.metric("flashfleet_operator_objects", state="Serving") == 1


def test_ready_waits_for_the_settings_of_this_generation(
    kube: Kube, made: Operator, pods: Pods, chat: dict[str, Any]
) -> None:
    pods.serve()
    kube.wait_condition("Ready", "True", "Serving")
    chat["spec"]["priorities"] = {"high": 5, "low": 1}
    kube.apply(chat)
    found = kube.wait_condition("Ready", "False", "Reloading")
    assert "live settings" in found["message"]
    live = json.loads(kube.must(CONFIG_MAP, "chat-flash-live")["data"]["live.json"])
    assert live["priorities"]["high"] == 5
    pods.serve()
    kube.wait_condition("Ready", "True", "Serving")


def test_a_worker_that_is_attached_nowhere_is_told(kube: Kube, made: Operator, pods: Pods) -> None:
    pods.serve()
    kube.wait_condition("Ready", "True", "Serving")
    (router,) = pods.snapshot().routers
    pods.announce([dataclasses.replace(router, workers=["somebody-else"])], [])
    found = kube.wait_condition("Ready", "False", "NotAdmitted")
    assert "attached to no router" in found["message"]


TROUBLES: dict[str, tuple[Callable[[Kube, Body], None], list[str]]] = {
    "Unschedulable": (
        lambda kube, pod: kube.tell_pod(
            pod, phase="Pending", conditions=[unscheduled("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")]
        ),
        ["Insufficient nvidia.com/gpu"],
    ),
    "ImagePullBackOff": (
        lambda kube, pod: kube.tell_pod(
            pod,
            phase="Pending",
            container={"state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image x:1"}}},
        ),
        ["Back-off pulling image x:1"],
    ),
    "OOMKilled": (
        lambda kube, pod: kube.tell_pod(
            pod,
            phase="Running",
            container={
                "restartCount": 3,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            },
        ),
        ["exit code 137", "resources.limits.memory"],
    ),
    "CrashLoopBackOff": (
        lambda kube, pod: kube.tell_pod(
            pod,
            phase="Running",
            container={
                "restartCount": 4,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
                "lastState": {
                    "terminated": {"exitCode": 1, "reason": "Error", "message": "RuntimeError: no such device\n"}
                },
            },
        ),
        ["exit code 1", "no such device"],
    ),
}


@pytest.mark.parametrize("reason", TROUBLES)
def test_the_first_failing_pods_own_reason_is_shown_and_goes(
    kube: Kube, made: Operator, pods: Pods, reason: str
) -> None:
    """Pain 4."""
    fail, words = TROUBLES[reason]
    (pod,) = kube.pods("flash")
    fail(kube, pod)
    found = kube.wait_condition("Ready", "False", reason)
    for word in (pod["metadata"]["name"], *words):
        assert word in found["message"]
    kube.wait_condition("Degraded", "True", reason)
    kube.tell_pod(pod, phase="Pending")
    pods.serve()
    kube.wait_condition("Ready", "True", "Serving")
    kube.wait_condition("Degraded", "False", "AllWell")


def test_pods_that_a_quota_forbids(kube: Kube, operator: Operator, chat: dict[str, Any]) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    kube.call("POST", f"/api/v1/namespaces/{kube.namespace}/resourcequotas", quota)
    kube.apply(chat)
    found = kube.wait_condition("Ready", "False", "FailedCreate", within=60)
    assert "exceeded quota" in found["message"]


def test_a_pod_overlay_that_the_server_refuses_is_told(
    kube: Kube, made: Operator, pods: Pods, chat: dict[str, Any]
) -> None:
    """What ran before runs on."""
    pods.serve()
    kube.wait_condition("Ready", "True", "Serving")
    chat["spec"]["flash"]["podOverlay"] = {"spec": {"restartPolicy": "Never"}}
    kube.apply(chat)
    found = kube.wait_condition("Ready", "False", "InvalidSpec")
    assert "restartPolicy" in found["message"]
    wait_for(lambda: any(event["type"] == "Warning" for event in kube.list(EVENT)), 20, "a warning")
    assert len(kube.pods("flash")) == 1
    del chat["spec"]["flash"]["podOverlay"]
    kube.apply(chat)
    kube.wait_condition("Ready", "True", "Serving")


def test_an_outage_of_the_queue_is_unknown_and_not_a_failure(
    kube: Kube, start_operator: Any, chat: dict[str, Any]
) -> None:
    with running_server("redis") as server:
        operator = start_operator(broker_url=server.url)
        kube.apply(chat)
        for component in ("router", *TIERS):
            kube.wait_pods(component)
        stand_in = Pods(kube, server.url)
        stand_in.serve()
        kube.wait_condition("Ready", "True", "Serving")
        server.freeze()
        try:
            found = kube.wait_condition("Ready", "Unknown", "BrokerUnreachable", within=60)
            assert "does not answer" in found["message"]
            assert server.url not in found["message"]
            before = operator.metric("flashfleet_operator_reconcile_errors_total")
            # Reconciles go on: an edit still reaches the cluster.
            chat["spec"]["drain"] = "90s"
            kube.apply(chat)
            wait_for(lambda: any("90" in cm["data"].get("static.json", "") for cm in kube.list(CONFIG_MAP)), 20, "it")
            assert operator.metric("flashfleet_operator_reconcile_errors_total") == before
        finally:
            server.thaw()
        kube.wait_condition("BrokerReady", "True", "Answering", within=60)


def test_no_address_of_the_queue_is_told(kube: Kube, start_operator: Any, chat: dict[str, Any]) -> None:
    start_operator(broker_url="")
    kube.apply(chat)
    found = kube.wait_condition("BrokerReady", "False", "NoAddress")
    assert "FLASHFLEET_BROKER_URL" in found["message"]
    chat["spec"]["broker"] = {"secret": "mine"}
    kube.apply(chat)
    wait_for(lambda: "Secret" in kube.condition("BrokerReady")["message"], 20, "the Secret's name")
    assert "may not read" in kube.condition("BrokerReady")["message"], "it has no right to Secrets in general"


def test_a_scribbled_status_is_put_right(kube: Kube, made: Operator, pods: Pods) -> None:
    pods.serve()
    kube.wait_condition("Ready", "True", "Serving")
    kube.merge(DEPLOYMENT_OF_OURS, "chat", {"status": {"share": "99%", "conditions": []}}, "status")
    kube.wait_condition("Ready", "True", "Serving")


def test_the_share_is_written_by_the_point_and_by_the_minute(kube: Kube, made: Operator, pods: Pods) -> None:
    pods.serve()
    kube.wait_condition("Ready", "True", "Serving")
    (router,) = pods.snapshot().routers
    before = made.metric("flashfleet_operator_api_calls_total", verb="apply", resource="flashdeployments")
    for number in range(20):
        pods.announce([dataclasses.replace(router, share=0.3 + number / 100)], [])
        time.sleep(0.4)
    writes = made.metric("flashfleet_operator_api_calls_total", verb="apply", resource="flashdeployments") - before
    assert writes <= 1
