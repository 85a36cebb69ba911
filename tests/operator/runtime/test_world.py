"""The caches: which key an object concerns, and whether anything about it is new."""

from __future__ import annotations

import itertools
from typing import Any

from flash_operator.client import CONFIG_MAP, DEPLOYMENT, DEPLOYMENT_OF_OURS, POD
from flash_operator.observe import World, config_maps

KEY = ("ns", "chat")
_versions = itertools.count(1)


def body(name: str, owner: str | None = "chat", uid: str = "u1", **more: Any) -> dict[str, Any]:
    labels = {"flashfleet.io/deployment": owner} if owner else {}
    meta = {"namespace": "ns", "name": name, "uid": uid, "labels": labels, "resourceVersion": str(next(_versions))}
    return {"metadata": meta, **more}


def deployment(replicas: int = 1, **status: Any) -> dict[str, Any]:
    return body("chat-flash", spec={"replicas": replicas, "template": {"spec": {}}}, status=status)


def test_a_child_concerns_its_owner_and_only_news_are_news() -> None:
    world = World()
    assert world.put(DEPLOYMENT, deployment()) == KEY
    assert world.put(DEPLOYMENT, deployment()) is None, "only the version is new"
    assert world.put(DEPLOYMENT, deployment(readyReplicas=1)) == KEY
    assert world.put(DEPLOYMENT, deployment(replicas=2)) == KEY
    assert world.family(KEY).views("Deployment")[0]["spec"]["replicas"] == 2


def test_an_older_version_changes_nothing() -> None:
    """After an apply its answer is known at once; the watch may still bring what was before."""
    world = World()
    old, new = deployment(1), deployment(2)
    assert world.put(DEPLOYMENT, new) == KEY
    assert world.put(DEPLOYMENT, old) is None
    assert world.family(KEY).views("Deployment")[0]["spec"]["replicas"] == 2


def test_an_object_that_was_made_again_is_news() -> None:
    world = World()
    world.put(CONFIG_MAP, body("chat-live", data={"live.json": "{}"}))
    assert world.put(CONFIG_MAP, body("chat-live", uid="u2", data={"live.json": "{}"})) == KEY
    assert world.drop(CONFIG_MAP, "ns", "chat-live", "u1") is None, "the old one's end comes late"
    assert world.drop(CONFIG_MAP, "ns", "chat-live", "u2") == KEY
    assert world.versions(CONFIG_MAP) == {}


def test_a_child_that_loses_its_label_is_missed() -> None:
    world = World()
    world.put(CONFIG_MAP, body("chat-live", data={}))
    assert world.put(CONFIG_MAP, body("chat-live", owner=None, data={})) == KEY
    assert world.family(KEY).children == {}


def test_strangers_are_nobodys() -> None:
    world = World()
    assert world.put(POD, body("other", owner=None, spec={})) is None
    assert world.versions(POD) == {}


def test_a_flash_deployment_and_its_end() -> None:
    world = World()
    made = body("chat", owner=None, spec={"a": 1}, status={})
    made["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    assert world.put(DEPLOYMENT_OF_OURS, made) == KEY
    assert world.keys() == [KEY]
    kept = world.family(KEY).deployment
    assert kept is not None
    assert "managedFields" not in kept["metadata"]
    assert kept["kind"] == "FlashDeployment"
    assert world.put(DEPLOYMENT_OF_OURS, body("chat", owner=None, spec={"a": 1}, status={})) is None
    assert world.put(DEPLOYMENT_OF_OURS, body("chat", owner=None, spec={"a": 2}, status={})) == KEY
    assert world.drop(DEPLOYMENT_OF_OURS, "ns", "chat", "another") is None
    assert world.drop(DEPLOYMENT_OF_OURS, "ns", "chat", "u1") == KEY
    assert world.keys() == []


def test_nothing_is_kept_of_what_is_gone() -> None:
    world = World()
    world.put(DEPLOYMENT_OF_OURS, body("chat", owner=None, spec={}))
    world.put(DEPLOYMENT, deployment())
    world.drop(DEPLOYMENT_OF_OURS, "ns", "chat")
    world.drop(DEPLOYMENT, "ns", "chat-flash")
    assert (world._families, world._owners) == ({}, {})


def test_what_a_pod_mounts() -> None:
    spec = {
        "volumes": [
            {"name": "a", "configMap": {"name": "one"}},
            {"name": "b", "projected": {"sources": [{"configMap": {"name": "two"}}, {"secret": {"name": "no"}}]}},
            {"name": "c", "emptyDir": {}},
        ]
    }
    assert config_maps(spec) == {"one", "two"}
    world = World()
    world.put(POD, body("chat-flash-1", spec=spec))
    assert config_maps(world.family(KEY).views("Pod")[0]["spec"]) == {"one", "two"}
