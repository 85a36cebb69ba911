"""A real control plane for the whole session, and a namespace of its own for each test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.kube import Kube, Pods
from support.operator_process import Operator, running_operator
from support.running import wait_for
from support.servers import Server, running_server

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "flashfleet"
ACCOUNT = "ff-flashfleet-operator"


@pytest.fixture(scope="session")
def plane() -> Iterator[Any]:
    from support.cluster import ControlPlane

    with ControlPlane() as plane:
        plane.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
        wait_for(lambda: plane.kubectl("explain", "fd", check=False).returncode == 0, 60, "the new API")
        yield plane


@pytest.fixture(scope="session")
def broker() -> Iterator[Server]:
    with running_server("redis") as server:
        yield server


@pytest.fixture
def kube(plane: Any) -> Iterator[Kube]:
    """In a new namespace that has the operator's ServiceAccount and Role, as the chart makes them."""
    with plane.namespace() as namespace:
        parts = [word for name in ("serviceaccount", "rbac") for word in ("--show-only", f"templates/{name}.yaml")]
        rights = plane.helm("template", "ff", str(CHART), "--namespace", namespace, *parts).stdout
        made = Kube(plane, namespace, rights)
        plane.kubectl("apply", "-f", "-", stdin=made.rights)
        yield made


@pytest.fixture
def start_operator(plane: Any, kube: Kube, broker: Server) -> Iterator[Callable[..., Operator]]:
    """Starts operators with the rights of the ServiceAccount, and ends them."""
    kubeconfig = plane.kubeconfig_for(kube.namespace, ACCOUNT)
    with contextlib.ExitStack() as stack:

        def start(*more: str, broker_url: str = broker.url, ready: bool = True) -> Operator:
            running = running_operator(kubeconfig, kube.namespace, *more, broker_url=broker_url, ready=ready)
            return stack.enter_context(running)

        yield start


@pytest.fixture
def operator(start_operator: Callable[..., Operator]) -> Operator:
    return start_operator()


@pytest.fixture
def pods(kube: Kube, broker: Server) -> Pods:
    return Pods(kube, broker.url)


@pytest.fixture
def chat() -> dict[str, Any]:
    """examples/chat.yaml"""
    return dict(yaml.safe_load((ROOT / "examples" / "chat.yaml").read_text()))
