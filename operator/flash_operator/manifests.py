"""A Plan as Kubernetes objects. Pure, and the same plan gives the same bytes.

Per process a Deployment, an immutable ConfigMap named by the hash of the static settings and one for the live ones;
a Service of the FlashDeployment's name in front of the routers; a PodDisruptionBudget where there is more than one
pod to spare. Workers dial routers by the addresses in the fleet record, so they need no Service.
"""

from __future__ import annotations

import math

from flash_operator.api import API_VERSION, KIND, FlashDeployment, Tier
from flash_operator.naming import Body, Images, component, labels, live_name, selector, static_name
from flash_operator.plan import Plan, Process
from flash_operator.pod_template import pod_template

KEPT_REVISIONS = 2
"""Undo means reverting the FlashDeployment; old ReplicaSets are kept only as long as a roll needs them."""
_PROGRESS_SLACK = 60


def manifests(deployment: FlashDeployment, plan: Plan, images: Images, owner_uid: str) -> list[Body]:
    """Everything that `deployment` owns, in the order in which it should be applied: what pods read comes first."""
    made: list[Body] = []
    for process in plan.processes:
        made += [_static(deployment, process), _live(deployment, process)]
    made.append(_service(deployment))
    for process in plan.processes:
        made.append(_deployment(deployment, process, pod_template(deployment, process, images)))
        if _has_some_to_spare(deployment, process):
            made.append(_budget(deployment, process))
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": deployment.metadata.name,
        "uid": owner_uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    for body in made:
        body["metadata"] |= {"namespace": deployment.metadata.namespace, "ownerReferences": [owner]}
    return made


def _static(deployment: FlashDeployment, process: Process) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": static_name(process), "labels": labels(deployment, component(process))},
        "immutable": True,
        "data": {"static.json": process.static},
    }


def _live(deployment: FlashDeployment, process: Process) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": live_name(process), "labels": labels(deployment, component(process))},
        "data": {"live.json": process.live},
    }


def _service(deployment: FlashDeployment) -> Body:
    wanted = deployment.spec.router.service
    metadata: Body = {"name": deployment.metadata.name, "labels": labels(deployment, "router")}
    if wanted.annotations:
        metadata["annotations"] = dict(sorted(wanted.annotations.items()))
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "type": wanted.type,
            "selector": selector(deployment, "router"),
            "ports": [
                {
                    "name": "grpc",
                    "port": 9000,
                    "protocol": "TCP",
                    "targetPort": "grpc",
                    "appProtocol": "kubernetes.io/h2c",
                },
                {"name": "http", "port": 8000, "protocol": "TCP", "targetPort": "http", "appProtocol": "http"},
            ],
        },
    }


def _deployment(deployment: FlashDeployment, process: Process, template: Body) -> Body:
    tier = deployment.tier(process.tier) if process.tier else None
    spec: Body = {
        "selector": {"matchLabels": selector(deployment, component(process))},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": _strategy(tier)},
        "revisionHistoryLimit": KEPT_REVISIONS,
        "progressDeadlineSeconds": math.ceil(tier.start_within) + _PROGRESS_SLACK if tier else 600,
        "template": template,
    }
    if not process.external:
        spec["replicas"] = process.replicas
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": process.name, "labels": labels(deployment, component(process))},
        "spec": spec,
    }


def _strategy(tier: Tier | None) -> dict[str, int]:
    """A roll never lets the ready pods fall under the wanted count, unless the tier asked for it."""
    if tier and tier.rollout == "replace":
        return {"maxSurge": 0, "maxUnavailable": 1}
    return {"maxSurge": 1, "maxUnavailable": 0}


def _has_some_to_spare(deployment: FlashDeployment, process: Process) -> bool:
    """By what the tier may become and not by what runs now, so that the budget does not come and go."""
    scaling = deployment.tier(process.tier).scaling if process.tier else None
    if scaling is None:
        return process.replicas > 1
    return scaling.external or scaling.max > 1


def _budget(deployment: FlashDeployment, process: Process) -> Body:
    """One pod at a time; one that does not serve anyway never blocks a node's drain."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": process.name, "labels": labels(deployment, component(process))},
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": selector(deployment, component(process))},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
