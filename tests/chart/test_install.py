"""The chart on a real API server, with the real helm: install, upgrade, rollback, uninstall. No pods run here."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cluster import ControlPlane
from support.operator_process import running_operator
from support.running import wait_for

from .conftest import Helm
from .test_render import MATRIX

pytestmark = pytest.mark.cluster

RELEASE = "ff"
SECRET = "ff-flashfleet-broker"
ACCOUNT = "ff-flashfleet-operator"


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    with ControlPlane() as running:
        yield running


@pytest.fixture
def place(cluster: ControlPlane) -> Iterator[str]:
    """A namespace, and no CRD left from the test before."""
    with cluster.namespace("chart") as name:
        yield name
    cluster.kubectl("delete", "crd", "flashdeployments.flashfleet.io", "--ignore-not-found", "--wait")


@pytest.fixture
def run(cluster: ControlPlane, place: str, chart: Path, tmp_path: Path) -> Callable[..., str]:
    """run("upgrade", {values}) is helm upgrade ff CHART in the test's namespace."""

    def helm(verb: str, values: dict[str, Any] | None = None, *flags: str) -> str:
        words = [verb, RELEASE]
        if verb in ("install", "upgrade"):
            path = tmp_path / "values.json"
            path.write_text(json.dumps(values or {}))
            words += [str(chart), "--values", str(path)]
        return cluster.helm(*words, "--namespace", place, *flags).stdout

    return helm


def secret(cluster: ControlPlane, namespace: str, name: str = SECRET) -> dict[str, str] | None:
    answer = cluster.request("GET", f"/api/v1/namespaces/{namespace}/secrets/{name}")
    if answer.status == 404:
        return None
    return {key: base64.b64decode(value).decode() for key, value in (answer.body.get("data") or {}).items()}


def left(cluster: ControlPlane, namespace: str) -> set[str]:
    """What stands in a namespace, but for what Kubernetes itself puts there and Helm's own record."""
    kinds = "all,configmap,secret,serviceaccount,role,rolebinding,networkpolicy,pdb,pvc"
    names = cluster.kubectl("-n", namespace, "get", kinds, "-o", "name").stdout.split()
    return {name for name in names if name not in ("configmap/kube-root-ca.crt", "serviceaccount/default")}


def test_the_password_outlives_upgrade_and_rollback_and_goes_with_the_release(
    cluster: ControlPlane, place: str, run: Callable[..., str]
) -> None:
    run("install")
    first = secret(cluster, place)
    assert first is not None
    assert len(first["password"]) == 40
    assert first["url"] == f"redis://:{first['password']}@ff-flashfleet-redis.{place}.svc:6379/0"
    assert first["auth.conf"] == f"requirepass {first['password']}"
    manifest = cluster.helm("get", "manifest", RELEASE, "-n", place).stdout
    assert first["password"] not in manifest

    run("upgrade", {"redis": {"maxMemory": "1gb"}})
    assert secret(cluster, place) == first
    run("rollback", None, "1")
    assert secret(cluster, place) == first

    run("uninstall")
    assert secret(cluster, place) is None
    assert left(cluster, place) == set()

    run("install")
    again = secret(cluster, place)
    assert again is not None
    assert again["password"] != first["password"]


def test_a_namespace_that_is_watched_later_gets_the_same_address(
    cluster: ControlPlane, place: str, run: Callable[..., str]
) -> None:
    with cluster.namespace("team") as team:
        run("install")
        first = secret(cluster, place)
        assert first is not None
        run("upgrade", {"operator": {"watchNamespaces": [place, team]}})
        assert secret(cluster, place) == first
        assert secret(cluster, team) == {"url": first["url"]}
        run("uninstall")
        assert secret(cluster, team) is None
        assert left(cluster, team) == set()


def test_switching_to_a_redis_of_ones_own_and_back(cluster: ControlPlane, place: str, run: Callable[..., str]) -> None:
    cluster.kubectl("-n", place, "create", "secret", "generic", "ours", "--from-literal=url=rediss://h:6379")
    run("install", {"redis": {"enabled": False}, "broker": {"existingSecret": "ours"}})
    assert secret(cluster, place) is None
    # Not {}: Helm takes empty values as "as before".
    run("upgrade", {"redis": {"enabled": True}})
    made = secret(cluster, place)
    assert made is not None
    assert len(made["password"]) == 40
    run("uninstall")
    assert left(cluster, place) == {"secret/ours"}


def test_the_crd_outlives_the_release_and_is_upgraded_by_the_next(
    cluster: ControlPlane, place: str, run: Callable[..., str], root: Path
) -> None:
    run("install")
    cluster.kubectl("wait", "--for=condition=Established", "crd/flashdeployments.flashfleet.io", "--timeout=30s")
    cluster.kubectl("-n", place, "apply", "-f", str(root / "examples" / "chat.yaml"))
    run("uninstall")
    assert "chat" in cluster.kubectl("-n", place, "get", "fd", "-o", "name").stdout
    # An older chart's CRD, as it were: the next release brings it up to date.
    patch = [{"op": "replace", "path": "/spec/names/shortNames", "value": ["old"]}]
    cluster.kubectl("patch", "crd", "flashdeployments.flashfleet.io", "--type=json", "-p", json.dumps(patch))
    run("install")
    assert "chat" in cluster.kubectl("-n", place, "get", "fd", "-o", "name").stdout
    cluster.kubectl("-n", place, "delete", "fd", "chat")
    run("upgrade", {"crds": {"keep": False}})
    run("uninstall")
    cluster.kubectl("wait", "--for=delete", "crd/flashdeployments.flashfleet.io", "--timeout=30s")


@pytest.mark.parametrize("name", MATRIX)
def test_the_api_server_takes_what_each_set_of_values_renders(
    cluster: ControlPlane, helm: Helm, root: Path, name: str
) -> None:
    """Server-side dry run with strict fields: what a schema alone does not know (quantities, names, CEL) shows here."""
    with cluster.namespace("dry") as place:
        bodies = [b for b in helm(MATRIX[name]).objects if not b["apiVersion"].startswith("monitoring.")]
        for body in bodies:
            if "namespace" in body["metadata"]:
                body["metadata"]["namespace"] = place
        items = json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies})
        cluster.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", stdin=items)


def test_the_operators_account_may_do_its_work_and_nothing_else(
    cluster: ControlPlane, place: str, run: Callable[..., str]
) -> None:
    run("install", {"broker": {"readableSecrets": ["chat-redis"]}})

    user = f"system:serviceaccount:{place}:{ACCOUNT}"
    for verb, what in (
        ("list", "flashfleet.io/flashdeployments"),
        ("patch", "flashfleet.io/flashdeployments/status"),
        ("patch", "apps/deployments"),
        ("delete", "/configmaps"),
        ("patch", "/services"),
        ("delete", "policy/poddisruptionbudgets"),
        ("watch", "/pods"),
        ("patch", "/events"),
        ("create", "coordination.k8s.io/leases"),
        ("update", "coordination.k8s.io/leases flashfleet-operator"),
        ("get", "/secrets chat-redis"),
    ):
        assert may(cluster, user, verb, what, place), (verb, what)
    for verb, what in (
        ("patch", "flashfleet.io/flashdeployments"),
        ("get", "/secrets"),
        ("list", "/secrets"),
        ("get", f"/secrets {SECRET}"),
        ("create", "/pods"),
        ("create", "/pods/exec"),
        ("delete", "/pods"),
        ("create", "rbac.authorization.k8s.io/roles"),
        ("create", "/serviceaccounts/token"),
        ("update", "coordination.k8s.io/leases other"),
        ("get", "/nodes"),
    ):
        assert not may(cluster, user, verb, what, place), (verb, what)
    assert not may(cluster, user, "list", "/pods", "default")
    assert not may(cluster, user, "list", "flashfleet.io/flashdeployments", "default")


def test_the_operator_works_with_the_charts_account(
    cluster: ControlPlane, place: str, run: Callable[..., str], root: Path
) -> None:
    """Its own arguments are compared in test_render; here it has no right but what the chart gave it."""
    run("install")
    config = cluster.kubeconfig_for(place, ACCOUNT)
    cluster.kubectl("-n", place, "apply", "-f", str(root / "examples" / "chat.yaml"))

    def names(kind: str) -> set[str]:
        return set(cluster.kubectl("-n", place, "get", kind, "-o", "name").stdout.split())

    def reason() -> str:
        path = '{.status.conditions[?(@.type=="Ready")].reason}'
        return cluster.kubectl("-n", place, "get", "fd", "chat", "-o", f"jsonpath={path}").stdout

    # No queue is there, so that it cannot become Ready; that it says so is enough.
    with running_operator(config, place, broker_url="redis://127.0.0.1:1/0") as operator:
        wait_for(lambda: {f"deployment.apps/chat-{n}" for n in ("router", "flash", "standard")} <= names("deploy"), 60,
                 "the Deployments")  # fmt: skip
        wait_for(lambda: reason() != "", 60, "a reason in status")
        wait_for(lambda: any("chat" in name for name in names("events")), 60, "an event")
        assert "service/chat" in names("service")
        assert operator.metric("flashfleet_operator_api_calls_total", reason="Forbidden") == 0, operator.log()
        assert "orbidden" not in operator.log()


def may(cluster: ControlPlane, user: str, verb: str, what: str, namespace: str) -> bool:
    """what: GROUP/RESOURCE[/SUBRESOURCE][ NAME]"""
    kind, _, name = what.partition(" ")
    group, resource, *sub = kind.split("/")
    attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": resource, "name": name}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes | ({"subresource": sub[0]} if sub else {})},
    }
    answer = cluster.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    assert answer.status == 201, answer.body
    return bool(answer.body["status"]["allowed"])


def test_a_namespace_editor_may_edit_fleets_where_roles_are_aggregated(
    cluster: ControlPlane, place: str, run: Callable[..., str]
) -> None:
    run("install", {"rbac": {"aggregateUserRoles": True}})
    cluster.kubectl("-n", place, "create", "rolebinding", "ann", "--clusterrole=edit", "--user=ann")
    cluster.kubectl("-n", place, "create", "rolebinding", "bob", "--clusterrole=view", "--user=bob")

    def fleets(user: str, verb: str) -> bool:
        return may(cluster, user, verb, "flashfleet.io/flashdeployments", place)

    end = time.monotonic() + 60  # aggregation is a controller's work and takes a moment
    while not (fleets("ann", "create") and fleets("bob", "list")):
        assert time.monotonic() < end, "the roles were not aggregated"
        time.sleep(0.1)
    assert fleets("ann", "delete")
    assert not fleets("bob", "create")
    run("uninstall")


def test_a_kept_crd_and_another_release_say_what_to_do(
    cluster: ControlPlane, place: str, run: Callable[..., str], chart: Path
) -> None:
    run("install")
    with cluster.namespace("second") as second:
        refused = cluster.helm("install", "other", str(chart), "-n", second, check=False)
        assert refused.returncode != 0
        assert "flashdeployments.flashfleet.io" in refused.stderr
        cluster.helm("uninstall", "other", "-n", second, check=False)
        cluster.helm("install", "other", str(chart), "-n", second, "--set", "crds.enabled=false")
        cluster.helm("uninstall", "other", "-n", second)
        assert left(cluster, second) == set()
