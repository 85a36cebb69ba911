"""A FlashDeployment becomes objects, and they stay what they should be."""

from __future__ import annotations

import time
from typing import Any

import pytest
from flash_operator.client import (
    CONFIG_MAP,
    DEPLOYMENT,
    DEPLOYMENT_OF_OURS,
    EVENT,
    PDB,
    POD,
    REPLICA_SET,
    SERVICE,
    Resource,
)
from support.kube import Kube, Pods
from support.operator_process import Operator
from support.running import wait_for

pytestmark = pytest.mark.cluster
NAMES = {"chat-router", "chat-flash", "chat-standard"}


def settle(operator: Operator, quiet: float = 2.0) -> None:
    """Returns when the operator has not written for a while."""
    end = time.monotonic() + 60
    writes, since = operator.writes(), time.monotonic()
    while time.monotonic() - since < quiet:
        assert time.monotonic() < end, f"the operator goes on writing:\n{operator.log()}"
        time.sleep(0.2)
        if (now := operator.writes()) != writes:
            writes, since = now, time.monotonic()


def applied(kube: Kube, operator: Operator, body: dict[str, Any]) -> None:
    kube.apply(body)
    wait_for(lambda: set(kube.deployments()) == NAMES, 30, "the Deployments")
    settle(operator)


def versions(kube: Kube) -> dict[tuple[str, str], str]:
    """Of all that the operator made; it changes with any write, also one that says the same."""
    return {
        (resource.kind, one["metadata"]["name"]): one["metadata"]["resourceVersion"]
        for resource in (DEPLOYMENT, SERVICE, CONFIG_MAP, PDB, DEPLOYMENT_OF_OURS)
        for one in kube.list(resource)
    }


def test_the_example_becomes_objects_that_it_owns(kube: Kube, operator: Operator, chat: dict[str, Any]) -> None:
    applied(kube, operator, chat)
    uid = kube.must(DEPLOYMENT_OF_OURS, "chat")["metadata"]["uid"]
    assert kube.names(SERVICE) == {"chat"}
    assert kube.names(PDB) == {"chat-flash"}
    maps = kube.names(CONFIG_MAP) - {"kube-root-ca.crt"}
    assert {name for name in maps if name.endswith("-live")} == {f"{name}-live" for name in NAMES}
    assert len([name for name in maps if "-static-" in name]) == 3
    for resource in (DEPLOYMENT, SERVICE, CONFIG_MAP, PDB):
        for one in kube.list(resource, "flashfleet.io/deployment=chat"):
            (owner,) = one["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["uid"], owner["controller"]) == ("FlashDeployment", uid, True)
            assert "finalizers" not in one["metadata"]
    made = kube.must(DEPLOYMENT_OF_OURS, "chat")["metadata"]
    assert "finalizers" not in made
    assert not any("kopf" in name for name in made.get("annotations") or {})
    told = [event["message"] for event in kube.list(EVENT) if event["reason"] == "Planned"]
    assert "chat-router: start 1; chat-flash: start 1; chat-standard: start 1" in told


def test_applied_twice_changes_nothing(kube: Kube, operator: Operator, chat: dict[str, Any]) -> None:
    applied(kube, operator, chat)
    before, writes, calls = versions(kube), operator.writes(), operator.calls()
    kube.apply(chat)
    kube.merge(DEPLOYMENT_OF_OURS, "chat", {"metadata": {"annotations": {"somebody": "looks"}}})
    time.sleep(5)
    after = versions(kube)
    after.pop(("FlashDeployment", "chat"))
    before.pop(("FlashDeployment", "chat"))
    assert after == before
    assert operator.writes() == writes
    assert operator.calls() == calls, "an idle operator asks nothing"


def test_a_new_operator_changes_nothing(kube: Kube, start_operator: Any, chat: dict[str, Any]) -> None:
    """It has no memory of what it applied; the objects themselves say it."""
    first = start_operator()
    applied(kube, first, chat)
    assert first.stop() == 0
    before = versions(kube)
    second = start_operator()
    wait_for(lambda: second.leading, 30, "a leader")
    wait_for(lambda: second.metric("flashfleet_operator_reconcile_total") >= 1, 30, "a reconcile")
    settle(second)
    assert versions(kube) == before
    assert second.writes() == 0


@pytest.mark.parametrize(
    ("resource", "name", "patch"),
    [
        (DEPLOYMENT, "chat-standard", {"spec": {"replicas": 5}}),
        (DEPLOYMENT, "chat-flash", {"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": 1}}}}),
        (DEPLOYMENT, "chat-router", {"metadata": {"labels": {"app.kubernetes.io/component": "other"}}}),
        (SERVICE, "chat", {"spec": {"selector": {"app.kubernetes.io/component": "flash"}}}),
        (CONFIG_MAP, "chat-router-live", {"data": {"live.json": "{}"}}),
        (PDB, "chat-flash", {"spec": {"maxUnavailable": 0}}),
        (SERVICE, "chat", {"metadata": {"labels": {"flashfleet.io/deployment": None}}}),
        (CONFIG_MAP, "chat-flash-live", {"metadata": {"ownerReferences": None}}),
    ],
    ids=["count", "strategy", "label", "selector", "settings", "budget", "our label", "owner"],
)
def test_drift_is_repaired(
    kube: Kube, operator: Operator, chat: dict[str, Any], resource: Resource, name: str, patch: dict[str, Any]
) -> None:
    applied(kube, operator, chat)

    def wanted() -> dict[str, Any]:
        body = kube.must(resource, name)
        meta = {part: body["metadata"].get(part) for part in ("labels", "ownerReferences")}
        return {"metadata": meta, "spec": body.get("spec"), "data": body.get("data")}

    before = wanted()
    kube.merge(resource, name, patch)
    wait_for(lambda: wanted() == before, 20, "the repair")


def test_what_is_deleted_comes_back(kube: Kube, operator: Operator, chat: dict[str, Any]) -> None:
    applied(kube, operator, chat)
    before = kube.names(CONFIG_MAP)
    kube.delete(DEPLOYMENT, "chat-router")
    kube.delete(SERVICE, "chat")
    for name in before - {"kube-root-ca.crt"}:
        kube.delete(CONFIG_MAP, name)
    wait_for(lambda: kube.names(CONFIG_MAP) == before, 20, "the ConfigMaps")
    wait_for(lambda: set(kube.deployments()) == NAMES and kube.names(SERVICE) == {"chat"}, 20, "the others")


def test_what_others_add_stays(kube: Kube, operator: Operator, chat: dict[str, Any]) -> None:
    applied(kube, operator, chat)
    kube.merge(DEPLOYMENT, "chat-flash", {"metadata": {"annotations": {"team": "us"}, "labels": {"cost": "42"}}})
    writes = operator.writes()
    time.sleep(2)
    meta = kube.must(DEPLOYMENT, "chat-flash")["metadata"]
    assert (meta["annotations"]["team"], meta["labels"]["cost"]) == ("us", "42")
    assert operator.writes() == writes


def test_two_who_disagree_do_not_keep_the_server_busy(kube: Kube, operator: Operator, chat: dict[str, Any]) -> None:
    applied(kube, operator, chat)
    writes = operator.writes()
    end, edits = time.monotonic() + 12, 0
    while time.monotonic() < end:
        if kube.must(SERVICE, "chat")["spec"]["selector"]["app.kubernetes.io/component"] == "router":
            kube.merge(SERVICE, "chat", {"spec": {"selector": {"app.kubernetes.io/component": "mine"}}})
            edits += 1
        time.sleep(0.05)
    assert edits >= 2, "it is repaired, more than once"
    assert operator.writes() - writes <= 6


def test_an_edit_of_a_rule_changes_one_live_settings_file(kube: Kube, operator: Operator, chat: dict[str, Any]) -> None:
    applied(kube, operator, chat)
    before = versions(kube)
    chat["spec"]["routing"]["rules"] = [{"name": "sums", "when": {"contains": ["sum"]}, "to": "standard"}]
    kube.apply(chat)
    wait_for(lambda: '"sums"' in kube.must(CONFIG_MAP, "chat-router-live")["data"]["live.json"], 20, "the rule")
    settle(operator)
    after = versions(kube)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {("FlashDeployment", "chat"), ("ConfigMap", "chat-router-live")}
    assert set(before) == set(after)


def test_an_edit_of_the_engine_rolls_one_tier(kube: Kube, operator: Operator, pods: Pods, chat: dict[str, Any]) -> None:
    """New static settings are a new ConfigMap; the old one stays while old pods may need it, and goes then."""
    applied(kube, operator, chat)
    for component in ("router", "flash", "standard"):
        kube.wait_pods(component)
    pods.serve()
    kube.wait_condition("Ready", "True", "Serving")
    old = {name for name in kube.names(CONFIG_MAP) if "flash-static" in name}
    (old_pod,) = kube.pods("flash")
    others = {name: one["metadata"]["generation"] for name, one in kube.deployments().items() if name != "chat-flash"}
    chat["spec"]["flash"]["engine"]["maxSeqs"] = 32
    kube.apply(chat)
    new_pod = next(pod for pod in kube.wait_pods("flash", 2) if pod["metadata"]["name"] != old_pod["metadata"]["name"])
    static = {name for name in kube.names(CONFIG_MAP) if "flash-static" in name}
    assert len(static) == 2
    assert old < static
    assert kube.condition("Ready")["reason"] == "RollingOut"
    assert (
        kube.condition("Ready")["observedGeneration"] == kube.must(DEPLOYMENT_OF_OURS, "chat")["metadata"]["generation"]
    )
    assert others == {n: d["metadata"]["generation"] for n, d in kube.deployments().items() if n != "chat-flash"}
    kube.run_pod(new_pod)
    wait_for(lambda: kube.get(POD, old_pod["metadata"]["name"]) is None, 30, "the end of the old pod")
    wait_for(
        lambda: {name for name in kube.names(CONFIG_MAP) if "flash-static" in name} == static - old,
        30,
        "the end of the old settings",
    )
    assert len(kube.list(REPLICA_SET, "app.kubernetes.io/component=flash")) == 2
    assert kube.condition("Ready")["status"] != "True", "no worker has said that it runs with the new settings"
    pods.serve()
    kube.wait_condition("Ready", "True", "Serving")


def test_a_count_that_somebody_else_sets_is_left_alone(kube: Kube, operator: Operator, chat: dict[str, Any]) -> None:
    """Also in the moment in which it is handed over: it stays what it was, and does not fall to one."""
    chat["spec"]["flash"].pop("scaling")
    chat["spec"]["flash"]["replicas"] = 3
    applied(kube, operator, chat)
    assert kube.must(DEPLOYMENT, "chat-flash")["spec"]["replicas"] == 3
    before = {pod["metadata"]["uid"] for pod in kube.wait_pods("flash", 3)}
    del chat["spec"]["flash"]["replicas"]
    chat["spec"]["flash"]["scaling"] = {"external": True}
    kube.apply(chat)
    wait_for(lambda: kube.names(PDB) == {"chat-flash"}, 20, "the budget")
    settle(operator)
    assert kube.must(DEPLOYMENT, "chat-flash")["spec"]["replicas"] == 3
    assert {pod["metadata"]["uid"] for pod in kube.wait_pods("flash", 3)} == before
    kube.merge(DEPLOYMENT, "chat-flash", {"spec": {"replicas": 7}}, "scale")
    settle(operator)
    assert kube.must(DEPLOYMENT, "chat-flash")["spec"]["replicas"] == 7
    status = kube.must(DEPLOYMENT_OF_OURS, "chat")["status"]
    assert status["tiers"]["flash"]["desired"] == 7
    chat["spec"]["flash"] = {**chat["spec"]["flash"], "replicas": 2}
    del chat["spec"]["flash"]["scaling"]
    kube.apply(chat)
    wait_for(lambda: kube.must(DEPLOYMENT, "chat-flash")["spec"]["replicas"] == 2, 20, "the fixed count")


def test_delete_leaves_nothing(kube: Kube, operator: Operator, chat: dict[str, Any]) -> None:
    applied(kube, operator, chat)
    kube.delete(DEPLOYMENT_OF_OURS, "chat")

    def left() -> list[str]:
        kinds = (DEPLOYMENT_OF_OURS, DEPLOYMENT, REPLICA_SET, POD, SERVICE, PDB, CONFIG_MAP)
        return [f"{r.kind} {name}" for r in kinds for name in kube.names(r) - {"kube-root-ca.crt"}]

    wait_for(lambda: not left(), 60, "the end of all")
    assert operator.metric("flashfleet_operator_reconcile_errors_total") == 0


def test_made_again_at_once(kube: Kube, operator: Operator, chat: dict[str, Any]) -> None:
    """The children of the one that went are not taken for those of the new one."""
    applied(kube, operator, chat)
    kube.delete(DEPLOYMENT_OF_OURS, "chat")
    kube.apply(chat)
    uid = kube.must(DEPLOYMENT_OF_OURS, "chat")["metadata"]["uid"]

    def owned() -> bool:
        found = kube.deployments()
        return set(found) == NAMES and all(
            [ref["uid"] for ref in one["metadata"]["ownerReferences"]] == [uid] for one in found.values()
        )

    wait_for(owned, 60, "children of the new one")
    time.sleep(3)
    assert owned()
