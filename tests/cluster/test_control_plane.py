"""The control plane that other tests stand on is a real one: rights, controllers, outages, capacity, a clean end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster import ControlPlane
from support.cluster_processes import sweep
from support.running import wait_for

pytestmark = pytest.mark.cluster
TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    with ControlPlane(audit=True) as running:
        yield running


@pytest.fixture
def namespace(cluster: ControlPlane) -> Iterator[str]:
    with cluster.namespace() as name:
        yield name


def deployment(replicas: int, *, name: str = "web", gpus: int = 0) -> str:
    limits = {"nvidia.com/gpu": gpus} if gpus else {}
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "web", "image": "example/web:1", "resources": {"limits": limits}}]},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec})


def pods(cluster: ControlPlane, namespace: str) -> list[dict]:
    return cluster.request("GET", f"/api/v1/namespaces/{namespace}/pods").body["items"]


def ready(cluster: ControlPlane, namespace: str) -> int:
    """Ready replicas of the Deployment web, as its controller tells."""
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"
    return cluster.request("GET", path).body["status"].get("readyReplicas", 0)


def test_the_versions_are_the_pinned_ones(cluster: ControlPlane) -> None:
    said = json.loads(cluster.kubectl("version", "-o", "json").stdout)
    pinned = (TESTS / "cluster" / "tools" / "kubernetes" / "go.mod").read_text()
    assert f"\tk8s.io/kubernetes {said['serverVersion']['gitVersion']} " in pinned
    assert said["clientVersion"]["gitVersion"] == said["serverVersion"]["gitVersion"]


def test_an_account_may_do_what_its_role_says_and_nothing_else(cluster: ControlPlane, namespace: str) -> None:
    cluster.kubectl("-n", namespace, "create", "serviceaccount", "someone")
    token = cluster.token_for(namespace, "someone")
    here, elsewhere = f"/api/v1/namespaces/{namespace}/pods", "/api/v1/namespaces/kube-system/pods"
    refused = cluster.request("GET", here, token=token)
    assert refused.status == 403
    assert f'User "system:serviceaccount:{namespace}:someone" cannot list resource "pods"' in refused.body["message"]
    assert cluster.request("GET", here, token="not-a-token").status == 401

    config = cluster.kubeconfig_for(namespace, "someone")
    asked = cluster.kubectl("get", "pods", kubeconfig=config, check=False)
    assert "Forbidden" in asked.stderr
    cluster.kubectl("-n", namespace, "create", "role", "looks", "--verb=list", "--resource=pods")
    cluster.kubectl(
        *("-n", namespace, "create", "rolebinding", "looks", "--role=looks"), f"--serviceaccount={namespace}:someone"
    )
    wait_for(lambda: cluster.request("GET", here, token=token).status == 200, 30, "the right to list pods")
    assert cluster.request("GET", elsewhere, token=token).status == 403
    assert cluster.request("DELETE", here, token=token).status == 403


def test_a_deployment_becomes_pods_and_goes_with_them(cluster: ControlPlane, namespace: str) -> None:
    cluster.kubectl("-n", namespace, "apply", "-f", "-", stdin=deployment(3))
    wait_for(lambda: len(pods(cluster, namespace)) == 3, 60, "three pods")
    (set_,) = cluster.request("GET", f"/apis/apps/v1/namespaces/{namespace}/replicasets").body["items"]
    assert set_["metadata"]["ownerReferences"][0]["name"] == "web"
    for pod in pods(cluster, namespace):
        assert pod["metadata"]["ownerReferences"][0]["uid"] == set_["metadata"]["uid"]
        assert pod["spec"]["serviceAccountName"] == "default"
    cluster.kubectl("-n", namespace, "delete", "deployment", "web")
    wait_for(lambda: not pods(cluster, namespace), 60, "the end of the pods")


def test_a_deleted_namespace_ends(cluster: ControlPlane) -> None:
    with cluster.namespace() as name:
        cluster.kubectl("-n", name, "create", "configmap", "kept")
    wait_for(lambda: cluster.request("GET", f"/api/v1/namespaces/{name}").status == 404, 90, "the namespace's end")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_api_server_goes_and_comes_back_as_it_was(
    cluster: ControlPlane, namespace: str, how: signal.Signals
) -> None:
    cluster.kubectl("-n", namespace, "create", "configmap", "kept")
    server = cluster.server
    with cluster.outage(how):
        with pytest.raises(ConnectionRefusedError):
            cluster.request("GET", "/readyz")
        assert cluster.kubectl("get", "nodes", check=False).returncode != 0
    assert cluster.server == server
    assert cluster.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/kept").status == 200
    cluster.kubectl("-n", namespace, "apply", "-f", "-", stdin=deployment(2))
    wait_for(lambda: len(pods(cluster, namespace)) == 2, 60, "pods from controllers that have seen the outage")


def test_an_api_server_that_hangs_answers_later(cluster: ControlPlane) -> None:
    with cluster.outage(signal.SIGSTOP), pytest.raises(TimeoutError):
        cluster.request("GET", "/readyz", timeout=0.5)
    assert cluster.ready()


def test_pretended_nodes_have_so_many_gpus(cluster: ControlPlane, namespace: str) -> None:
    nodes = cluster.add_kwok_nodes(2, gpus=2)
    assert len(nodes) == 2
    cluster.kubectl("-n", namespace, "apply", "-f", "-", stdin=deployment(5, gpus=1))
    wait_for(lambda: ready(cluster, namespace) == 4, 60, "four pods on four GPUs")

    def refusal() -> str:
        (left,) = [pod for pod in pods(cluster, namespace) if "nodeName" not in pod["spec"]]
        return " ".join(each.get("message", "") for each in left["status"].get("conditions", []))

    wait_for(lambda: "2 Insufficient nvidia.com/gpu" in refusal(), 60, "the scheduler's reason")


def test_every_request_is_written_down(cluster: ControlPlane, namespace: str) -> None:
    cluster.kubectl("-n", namespace, "create", "serviceaccount", "asker")
    path = f"/api/v1/namespaces/{namespace}/secrets"
    cluster.request("GET", path, token=cluster.token_for(namespace, "asker"))
    who = f"system:serviceaccount:{namespace}:asker"

    def asked() -> list[dict]:
        return [event for event in cluster.audit_events() if event["user"].get("username") == who]

    wait_for(asked, 10, "the request in the audit log")
    (event,) = asked()
    assert (event["verb"], event["requestURI"], event["responseStatus"]["code"]) == ("list", path, 403)


def test_helm_speaks_to_it(cluster: ControlPlane, namespace: str) -> None:
    assert json.loads(cluster.helm("-n", namespace, "list", "-o", "json").stdout) == []


def test_a_test_that_is_killed_takes_it_along(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import sys, time
        sys.path.insert(0, sys.argv[1])
        from support.cluster import ControlPlane
        with ControlPlane(controllers=False) as cluster:
            print(cluster.folder, *(cluster.pid(name) for name in cluster.memory()), flush=True)
            time.sleep(600)
    """)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", script, str(TESTS)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            folder, *numbers = process.stdout.readline().split()
            assert len(numbers) == 2
            assert sweep(tmp_path) == []  # its owner lives
            os.kill(int(numbers[1]), signal.SIGSTOP)  # one that hangs dies too
        finally:
            process.kill()
    if sys.platform == "linux":
        wait_for(lambda: not any(alive(int(number)) for number in numbers), 20, "the end of its processes")
    assert Path(folder).exists()
    assert sweep(tmp_path) == [Path(folder)]
    assert not Path(folder).exists()
    wait_for(lambda: not any(alive(int(number)) for number in numbers), 20, "the end of its processes")


def alive(pid: int) -> bool:
    """Not a zombie: an orphan waits for whoever is process 1 to notice."""
    end = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(end.strip()) and not end.startswith("Z")


def test_it_ends_with_its_processes() -> None:
    start = time.monotonic()
    with ControlPlane(controllers=False) as cluster:
        folder, numbers = cluster.folder, [cluster.pid(name) for name in cluster.memory()]
        assert len(numbers) == 2
        print(f"ready after {time.monotonic() - start:.1f} s")
    assert not folder.exists()
    assert not any(alive(number or 0) for number in numbers)
