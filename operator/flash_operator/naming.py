"""What the objects of a FlashDeployment are called, and by which labels they are found. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flash_operator.api import FlashDeployment
from flash_operator.plan import Process

Body = dict[str, Any]
"""A Kubernetes object, or a part of one."""

OWNER_LABEL = "flashfleet.io/deployment"
TEMPLATE_LABEL = "flashfleet.io/template"
"""On pods: hash of the template that they were made from."""


@dataclass(frozen=True, slots=True)
class Images:
    """What the operator was started with. A FlashDeployment may name its own images and its own broker Secret."""

    router: str
    worker: str
    pull_policy: str = "IfNotPresent"
    broker_secret: str = "flashfleet-broker"  # noqa: S105 - a name
    broker_key: str = "url"
    pull_secrets: tuple[str, ...] = ()


def static_name(process: Process) -> str:
    return f"{process.name}-static-{process.static_hash}"


def live_name(process: Process) -> str:
    return f"{process.name}-live"


def component(process: Process) -> str:
    """router, flash or standard."""
    return process.tier or process.role


def selector(deployment: FlashDeployment, component: str) -> dict[str, str]:
    """Labels of the pods of one kind. A Deployment's selector can never change, so nothing may be added here."""
    return {
        "app.kubernetes.io/name": "flashfleet",
        "app.kubernetes.io/instance": deployment.metadata.name,
        "app.kubernetes.io/component": component,
    }


def labels(deployment: FlashDeployment, component: str) -> dict[str, str]:
    return selector(deployment, component) | {
        "app.kubernetes.io/managed-by": "flashfleet-operator",
        OWNER_LABEL: deployment.metadata.name,
    }
