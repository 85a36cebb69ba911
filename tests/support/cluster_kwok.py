"""Pretended nodes for a test cluster: kwok says that they are well and that their pods run. Nothing runs."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from support.cluster_client import message, tools
from support.cluster_processes import Failed

if TYPE_CHECKING:
    from support.cluster import ControlPlane

MARK = "kwok.x-k8s.io/node"


def add_nodes(cluster: ControlPlane, count: int, *, gpus: int = 0, cpu: str = "64", memory: str = "512Gi") -> list[str]:
    """Adds `count` nodes to those that there are, each with `gpus` of nvidia.com/gpu, and waits until all are Ready.

    Starts kwok and the scheduler when they do not run. Returns the new names. Raises Failed.
    """
    have = tools("kwok")
    cluster.start_scheduler()
    if cluster.pid("kwok") is None:
        files = have["kwok-stages"].split(os.pathsep)
        cluster.run(
            "kwok",
            [
                *(have["kwok"], f"--kubeconfig={cluster.kubeconfig}", "--node-ip=127.0.0.1", "--cidr=10.244.0.0/14"),
                *(f"--manage-nodes-with-annotation-selector={MARK}=fake", *(f"--config={file}" for file in files)),
            ],
        )
    taken = {item["metadata"]["name"] for item in cluster.request("GET", "/api/v1/nodes").body["items"]}
    names = [f"fake-{at}" for at in range(len(taken), len(taken) + count)]
    resources = {"cpu": cpu, "memory": memory, "pods": "250"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})

    def create(name: str) -> None:
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        body = {
            "metadata": {"name": name, "labels": labels, "annotations": {MARK: "fake"}},
            "status": {"capacity": resources, "allocatable": resources},
        }
        answer = cluster.request("POST", "/api/v1/nodes", body)
        if answer.status != 201:
            raise Failed(f"no node {name}: {message(answer)}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(create, names))
    cluster.until(lambda: _usable(cluster) >= set(names), "kwok", f"did not make {count} nodes Ready")
    return names


def _usable(cluster: ControlPlane) -> set[str]:
    """Names of nodes that are Ready and that pods may be put on."""
    time.sleep(0.2)
    return {
        item["metadata"]["name"]
        for item in cluster.request("GET", "/api/v1/nodes").body["items"]
        if any(each["type"] == "Ready" and each["status"] == "True" for each in item["status"].get("conditions", []))
        and not item["spec"].get("taints")
    }
