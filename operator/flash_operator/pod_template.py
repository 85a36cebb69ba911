"""The pod template of a process. Pure.

The pod can write to /tmp and nowhere else (and to the weights' cache), has no capabilities, no service account token
and no root.
"""

from __future__ import annotations

import hashlib
import json
import math

from flash_operator.api import FlashDeployment, Tier
from flash_operator.api_cluster import Pod, Toleration
from flash_operator.naming import (
    TEMPLATE_LABEL,
    Body,
    Images,
    component,
    labels,
    live_name,
    selector,
    static_name,
)
from flash_operator.overlay import merge
from flash_operator.plan import CLAIMS, CLUSTER, Process

SETTINGS = "/etc/flashfleet"
CACHE = "/cache"
USER = 65532
PRE_STOP = 5
"""Seconds that a router goes on taking new requests after it was told to end, while endpoints move."""
SLACK = 10
"""Seconds beyond the drain, for the last words, before the kubelet kills."""


def pod_template(deployment: FlashDeployment, process: Process, images: Images) -> Body:
    """PodTemplateSpec. Replica counts and live settings do not change it: those must roll nothing."""
    tier = deployment.tier(process.tier) if process.tier else None
    part: Pod = tier or deployment.spec.router
    body: Body = {
        "metadata": {
            "labels": labels(deployment, component(process)),
            "annotations": {"kubectl.kubernetes.io/default-container": process.role},
        },
        "spec": _spec(deployment, process, part, tier, images),
    }
    body = merge(body, part.pod_overlay.model_dump(mode="json", by_alias=True))
    # An overlay cannot take a pod away from its Deployment.
    body["metadata"]["labels"] |= labels(deployment, component(process))
    body["metadata"]["labels"][TEMPLATE_LABEL] = _hash(body)
    return body


def _spec(deployment: FlashDeployment, process: Process, part: Pod, tier: Tier | None, images: Images) -> Body:
    spec: Body = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": math.ceil(process.drain) + (0 if tier else PRE_STOP) + SLACK,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                # A wish: with a demand, the pods of a drained node would stay pending.
                "whenUnsatisfiable": "ScheduleAnyway",
                "nodeTaintsPolicy": "Honor",
                "labelSelector": {"matchLabels": selector(deployment, component(process))},
                "matchLabelKeys": ["pod-template-hash"],
            }
        ],
        "containers": [_container(deployment, process, part, tier, images)],
        "volumes": _volumes(process, tier),
    }
    if images.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in images.pull_secrets]
    if part.node_selector:
        spec["nodeSelector"] = dict(sorted(part.node_selector.items()))
    if part.tolerations:
        spec["tolerations"] = [_toleration(one) for one in part.tolerations]
    return spec


def _container(deployment: FlashDeployment, process: Process, part: Pod, tier: Tier | None, images: Images) -> Body:
    arguments = ["--settings", SETTINGS]
    if tier:
        arguments += ["--name", "$(POD_NAME)"]  # so that status finds the pod of an entry in the fleet record
    body: Body = {
        "name": process.role,
        "image": part.image or (images.worker if tier else images.router),
        "imagePullPolicy": images.pull_policy,
        "args": arguments,
        "env": _environment(deployment, part, tier, images),
        "ports": _ports(tier),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "settings", "mountPath": SETTINGS, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - in the pod
        ],
        **_probes(tier),
    }
    if resources := _resources(part):
        body["resources"] = resources
    if tier is None:
        body["lifecycle"] = {"preStop": {"sleep": {"seconds": PRE_STOP}}}
        return body
    body["volumeMounts"].append({"name": "cache", "mountPath": CACHE})
    if tier.model.secret:
        body["envFrom"] = [{"secretRef": {"name": tier.model.secret}}]
    if process.claim:
        body["volumeMounts"].append({"name": "weights", "mountPath": f"{CLAIMS}/{process.claim}", "readOnly": True})
    return body


def _environment(deployment: FlashDeployment, part: Pod, tier: Tier | None, images: Images) -> list[Body]:
    broker = deployment.spec.broker
    secret, key = (broker.secret, broker.key or "url") if broker.secret else (images.broker_secret, images.broker_key)
    variables: list[Body] = [
        {"name": "FLASHFLEET_BROKER_URL", "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}},
        {"name": "FLASHFLEET_ADVERTISE", "valueFrom": _field("status.podIP")},
        {"name": "POD_NAME", "valueFrom": _field("metadata.name")},
        {"name": "HOME", "value": "/tmp"},  # noqa: S108 - in the pod
    ]
    if tier is None:
        return variables
    for kind, given in (("limits", part.resources.limits), ("requests", part.resources.requests)):
        if "cpu" in given:
            reference = {"containerName": "worker", "resource": f"{kind}.cpu", "divisor": "1"}
            variables.append({"name": "FLASHFLEET_CORES", "valueFrom": {"resourceFieldRef": reference}})
            break
    variables += [
        {"name": "HF_HOME", "value": f"{CACHE}/huggingface"},
        {"name": "XDG_CACHE_HOME", "value": "/tmp"},  # noqa: S108 - in the pod
    ]
    return variables


def _field(path: str) -> Body:
    return {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}


def _ports(tier: Tier | None) -> list[Body]:
    ports = {"http": CLUSTER.worker_http_port}
    if tier is None:
        ports = {"grpc": CLUSTER.grpc_port, "http": CLUSTER.http_port, "fleet": CLUSTER.fleet_port}
    return [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()]


def _probes(tier: Tier | None) -> Body:
    """Startup waits for readiness, so that a worker which loads for an hour is never killed by its liveness."""

    def probe(path: str, every: int, failures: int) -> Body:
        return {
            "httpGet": {"path": path, "port": "http", "scheme": "HTTP"},
            "periodSeconds": every,
            "timeoutSeconds": 3,
            "failureThreshold": failures,
        }

    start_within = tier.start_within if tier else 120.0
    return {
        "startupProbe": probe("/readyz" if tier else "/healthz", 2, math.ceil(start_within / 2)),
        "livenessProbe": probe("/healthz", 5, 6),
        "readinessProbe": probe("/readyz", 5, 3),
    }


def _resources(part: Pod) -> Body:
    given = {"requests": part.resources.requests, "limits": part.resources.limits}
    return {kind: {name: str(amount) for name, amount in sorted(of.items())} for kind, of in given.items() if of}


def _volumes(process: Process, tier: Tier | None) -> list[Body]:
    def file(of: str, name: str) -> Body:
        return {"configMap": {"name": of, "items": [{"key": name, "path": name}]}}

    sources = [file(static_name(process), "static.json"), file(live_name(process), "live.json")]
    volumes: list[Body] = [
        {"name": "settings", "projected": {"defaultMode": 0o444, "sources": sources}},
        {"name": "tmp", "emptyDir": {}},
    ]
    if tier:
        claim = tier.model.cache_claim
        volumes.append(
            {"name": "cache", **({"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}})}
        )
    if process.claim:
        volumes.append({"name": "weights", "persistentVolumeClaim": {"claimName": process.claim, "readOnly": True}})
    return volumes


def _toleration(one: Toleration) -> Body:
    body: Body = {"operator": one.operator}
    for name, value in (("key", one.key), ("value", one.value), ("effect", one.effect)):
        if value:
            body[name] = value
    if one.toleration_seconds is not None:
        body["tolerationSeconds"] = one.toleration_seconds
    return body


def _hash(template: Body) -> str:
    text = json.dumps(template, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
