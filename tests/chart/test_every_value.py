"""Each documented value changes what is rendered. A new value without an entry here fails. Needs helm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from .conftest import Helm

pytestmark = pytest.mark.cluster

DIGEST = "sha256:" + "0123456789abcdef" * 4
CONTEXT = {"runAsUser": 1000}
TWO = {"operator.replicas": 2}
OWN_REDIS = {"redis.enabled": False, "broker.existingSecret": "ours"}
CLAIM = {"redis.persistence.enabled": True}

# value -> another one, and what has to be set with it
OTHER: dict[str, tuple[Any, dict[str, Any]]] = {
    "nameOverride": ("other", {}),
    "fullnameOverride": ("other", {}),
    "commonLabels": ({"a": "b"}, {}),
    "imagePullPolicy": ("Never", {}),
    "imagePullSecrets": (["registry"], {}),
    "operator.replicas": (3, {}),
    "operator.watchNamespaces": (["team-a"], {}),
    "operator.image.repository": ("x", {}),
    "operator.image.tag": ("2", {}),
    "operator.image.digest": (DIGEST, {}),
    "operator.resources": ({"limits": {"memory": "1Gi"}}, {}),
    "operator.extraArgs": (["--workers=2"], {}),
    "operator.extraEnv": ([{"name": "A", "value": "b"}], {}),
    "operator.podAnnotations": ({"a": "b"}, {}),
    "operator.podLabels": ({"a": "b"}, {}),
    "operator.nodeSelector": ({"a": "b"}, {}),
    "operator.tolerations": ([{"operator": "Exists"}], {}),
    "operator.affinity": ({"podAffinity": {}}, {}),
    "operator.priorityClassName": ("high", {}),
    "operator.podSecurityContext": (CONTEXT, {}),
    "operator.securityContext": (CONTEXT, {}),
    "operator.podDisruptionBudget.enabled": (False, TWO),
    "operator.podDisruptionBudget.minAvailable": (1, TWO),
    "operator.podDisruptionBudget.maxUnavailable": ("50%", TWO),
    "router.image.repository": ("x", {}),
    "router.image.tag": ("2", {}),
    "router.image.digest": (DIGEST, {}),
    "worker.image.repository": ("x", {}),
    "worker.image.tag": ("2", {}),
    "worker.image.digest": (DIGEST, {}),
    "broker.existingSecret": ("others", OWN_REDIS),
    "broker.existingSecretKey": ("address", OWN_REDIS),
    "broker.readableSecrets": (["x"], {}),
    "redis.enabled": (False, {"broker.existingSecret": "ours"}),
    "redis.existingSecret": ("mine", {}),
    "redis.image.repository": ("redis", {}),
    "redis.image.tag": ("7.4", {}),
    "redis.image.digest": (DIGEST, {}),
    "redis.maxMemory": ("1gb", {}),
    "redis.persistence.enabled": (True, {}),
    "redis.persistence.size": ("5Gi", CLAIM),
    "redis.persistence.storageClass": ("fast", CLAIM),
    "redis.resources": ({"limits": {"memory": "1Gi"}}, {}),
    "redis.podAnnotations": ({"a": "b"}, {}),
    "redis.nodeSelector": ({"a": "b"}, {}),
    "redis.tolerations": ([{"operator": "Exists"}], {}),
    "redis.podSecurityContext": (CONTEXT, {}),
    "redis.securityContext": (CONTEXT, {}),
    "serviceAccount.create": (False, {"serviceAccount.name": "ours"}),
    "serviceAccount.name": ("ours", {}),
    "serviceAccount.annotations": ({"a": "b"}, {}),
    "rbac.create": (False, {}),
    "rbac.aggregateUserRoles": (True, {}),
    "crds.enabled": (False, {}),
    "crds.keep": (False, {}),
    "networkPolicy.enabled": (False, {}),
    "networkPolicy.apiServerPorts": ([16443], {}),
    "networkPolicy.brokerPorts": ([6380], {}),
    "networkPolicy.metricsFrom": ([{"podSelector": {}}], {}),
    "metrics.serviceMonitor.enabled": (True, {}),
    "metrics.serviceMonitor.interval": ("5s", {"metrics.serviceMonitor.enabled": True}),
    "metrics.serviceMonitor.labels": ({"a": "b"}, {"metrics.serviceMonitor.enabled": True}),
    "metrics.podMonitor.enabled": (True, {}),
    "metrics.podMonitor.interval": ("5s", {"metrics.podMonitor.enabled": True}),
    "metrics.podMonitor.labels": ({"a": "b"}, {"metrics.podMonitor.enabled": True}),
    "metrics.prometheusRule.enabled": (True, {}),
    "metrics.prometheusRule.labels": ({"a": "b"}, {"metrics.prometheusRule.enabled": True}),
    "metrics.dashboard.enabled": (True, {}),
    "metrics.dashboard.labels": ({"a": "b"}, {"metrics.dashboard.enabled": True}),
    "metrics.dashboard.annotations": ({"a": "b"}, {"metrics.dashboard.enabled": True}),
    "test.flashDeployment": ("other", {}),
    "test.namespace": ("other", {}),
    "test.timeout": (5, {}),
    "test.easy.prompt": ("Hello?", {}),
    "test.easy.tier": ("standard", {}),
    "test.easy.pattern": ("hi", {}),
    "test.hard.prompt": ("Why?", {}),
    "test.hard.tier": ("flash", {}),
    "test.hard.pattern": ("because", {}),
    "extraObjects": ([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}], {}),
}


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """{"a.b": 1} as {"a": {"b": 1}}"""
    made: dict[str, Any] = {}
    for path, value in values.items():
        *groups, name = path.split(".")
        here = made
        for group in groups:
            here = here.setdefault(group, {})
        here[name] = value
    return made


@pytest.fixture(scope="module")
def documented(module: Callable[[str], ModuleType], chart: Path) -> set[str]:
    found = module("tools/gen_chart_docs.py").values((chart / "values.yaml").read_text())
    return {value.path for value in found if value.default}


def test_every_documented_value_is_tried(documented: set[str]) -> None:
    assert documented == set(OTHER)


@pytest.mark.parametrize("path", OTHER)
def test_a_value_has_an_effect(helm: Helm, path: str) -> None:
    value, beside = OTHER[path]
    before = helm(nested(beside)) if not path.startswith(("redis.enabled", "serviceAccount.create")) else helm()
    after = helm(nested(beside | {path: value}))
    assert before.objects != after.objects


def test_extra_objects_are_templates(helm: Helm) -> None:
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-extra"}})
    assert helm({"extraObjects": [text]}).one("ConfigMap", "ff-extra")
