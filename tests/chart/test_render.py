"""What `helm template` makes of values. Needs helm."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.kubernetes_types import model_of, problems

from .conftest import CHART, NAMESPACE, Helm

pytestmark = pytest.mark.cluster

ROOMS = ("router", "worker")
VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
DIGEST = "sha256:" + "0123456789abcdef" * 4
PRODUCTION: dict[str, Any] = {
    "operator": {"replicas": 2, "watchNamespaces": ["team-a", "team-b"]},
    "redis": {"enabled": False},
    "broker": {"existingSecret": "our-redis", "readableSecrets": ["other-redis"]},
    "imagePullSecrets": ["registry"],
    "rbac": {"aggregateUserRoles": True},
    "metrics": {
        "serviceMonitor": {"enabled": True},
        "podMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
    },
}
MATRIX: dict[str, dict[str, Any]] = {
    "defaults": {},
    "production": PRODUCTION,
    "persistent redis": {"redis": {"persistence": {"enabled": True, "storageClass": "fast"}}},
    "own redis password": {"redis": {"existingSecret": "mine"}, "operator": {"watchNamespaces": ["team-a"]}},
    "bare": {
        "networkPolicy": {"enabled": False},
        "crds": {"enabled": False},
        "rbac": {"create": False},
        "serviceAccount": {"create": False, "name": "ours"},
        "operator": {"replicas": 3, "podDisruptionBudget": {"minAvailable": "50%"}},
    },
    "everything on a pod": {
        "commonLabels": {"team": "serving"},
        "operator": {
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "nodeSelector": {"disk": "ssd"},
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
            "priorityClassName": "high",
            "extraEnv": [{"name": "A", "value": "b"}],
            "extraArgs": ["--log-level=debug"],
            "podAnnotations": {"a": "b"},
            "podLabels": {"c": "d"},
        },
        "redis": {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"a": "b"}, "podAnnotations": {"e": "f"}},
        "networkPolicy": {"metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]},
    },
}


@pytest.mark.parametrize("name", MATRIX)
def test_each_set_of_values_renders_valid_objects(helm: Helm, name: str) -> None:
    objects = helm(MATRIX[name]).objects
    assert [said for body in objects for said in problems(body)] == []
    assert all(model_of(b["apiVersion"], b["kind"]) or b["apiVersion"].startswith("monitoring.") for b in objects)
    names = [(b["kind"], b["metadata"].get("namespace"), b["metadata"]["name"]) for b in objects if not hook(b)]
    assert len(set(names)) == len(names)
    for body in objects:
        assert len(body["metadata"]["name"]) <= 63
        cluster_wide = body["kind"] in ("ClusterRole", "CustomResourceDefinition")
        assert ("namespace" in body["metadata"]) != cluster_wide


def hook(body: dict[str, Any]) -> str:
    return str(body["metadata"].get("annotations", {}).get("helm.sh/hook", ""))


def test_a_wrong_object_would_be_noticed(helm: Helm) -> None:
    body = helm().one("Deployment")
    body["spec"]["template"]["spec"]["containers"][0]["imagePullPolice"] = "Never"
    body["spec"]["replicas"] = "1"
    assert len(problems(body)) == 2
    del body["spec"]["selector"]
    assert any("selector" in said for said in problems(body))


def test_long_names_stay_names(helm: Helm) -> None:
    for value in ({"fullnameOverride": "a" * 63}, {"nameOverride": "b" * 63}):
        for body in helm(value).objects:
            assert len(body["metadata"]["name"]) <= 63, body["metadata"]["name"]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"operator": {"replica": 2}}, r"additional propert.* 'replica' not allowed"),
        ({"redsi": {}}, r"'redsi' not allowed"),
        ({"operator": {"replicas": "2"}}, r"/operator/replicas.*got string, want integer"),
        ({"operator": {"image": {"digest": "sha256:abc"}}}, r"/operator/image/digest.*does not match pattern"),
        ({"operator": {"watchNamespaces": ["Team"]}}, r"/operator/watchNamespaces/0"),
        ({"imagePullPolicy": "always"}, r"/imagePullPolicy.*must be one of"),
        ({"redis": {"maxMemory": "1Gi"}}, r"/redis/maxMemory.*does not match pattern"),
        ({"test": {"easy": {"tier": "fast"}}}, r"/test/easy/tier.*must be one of"),
    ],
)
def test_the_schema_refuses_what_is_mistyped(helm: Helm, values: dict[str, Any], says: str) -> None:
    done = helm(values)
    assert done.code != 0
    assert re.search(says, done.text.replace("\n", " ")), done.text


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"redis": {"enabled": False}}, "kubectl create secret generic flashfleet-redis"),
        ({"broker": {"existingSecret": "x"}}, "set redis.enabled to false to use your Redis"),
        (
            {"redis": {"enabled": False, "existingSecret": "x"}, "broker": {"existingSecret": "y"}},
            "name your own Redis' Secret in broker.existingSecret",
        ),
        ({"serviceAccount": {"create": False}}, "set serviceAccount.name"),
        (
            {"operator": {"replicas": 2, "podDisruptionBudget": {"minAvailable": 2}}},
            "no node with an operator could be drained",
        ),
    ],
)
def test_values_that_contradict_each_other_are_refused_with_what_to_write(
    helm: Helm, values: dict[str, Any], says: str
) -> None:
    done = helm(values)
    assert done.code != 0
    assert says in done.text


@pytest.mark.parametrize("name", MATRIX)
def test_rights_are_few(helm: Helm, name: str) -> None:
    rendered = helm(MATRIX[name])
    for role in [b for b in rendered.objects if b["kind"] in ("Role", "ClusterRole")]:
        for rule in role["rules"]:
            assert "*" not in json.dumps(rule)
            if "secrets" in rule["resources"]:
                assert rule["verbs"] == ["get"]
                assert rule["resourceNames"] == ["other-redis"]
            assert not {"pods/exec", "serviceaccounts", "roles", "rolebindings", "nodes"} & set(rule["resources"])
            if "flashdeployments" in rule["resources"] and role["kind"] == "Role":
                assert rule["verbs"] == ["get", "list", "watch"]
    assert not rendered.of("ClusterRoleBinding")


def test_the_operator_has_rights_in_watched_namespaces_only(helm: Helm) -> None:
    def places(values: dict[str, Any]) -> tuple[list[str], list[str]]:
        rendered = helm(values)
        bound = sorted(b["metadata"]["namespace"] for b in rendered.of("RoleBinding"))
        arguments = rendered.pods["ff-flashfleet-operator"]["containers"][0]["args"]
        return bound, [a.partition("=")[2] for a in arguments if a.startswith("--namespace=")]

    assert places({}) == ([NAMESPACE], [NAMESPACE])
    assert places({"operator": {"watchNamespaces": ["team-b", "team-a"]}}) == (
        ["team-a", "team-b"],
        ["team-a", "team-b"],
    )


@pytest.mark.parametrize("name", MATRIX)
def test_every_pod_is_hardened(helm: Helm, name: str) -> None:
    pods = helm(MATRIX[name]).pods
    assert pods
    for pod in pods.values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["enableServiceLinks"] is False
        for container in pod["containers"] + pod.get("initContainers", []):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]
            assert "privileged" not in context
        for volume in pod["volumes"]:
            assert "hostPath" not in volume
    tokens = {name for name, pod in pods.items() if pod["automountServiceAccountToken"]}
    assert tokens == {"ff-flashfleet-operator"}


@pytest.mark.parametrize("name", MATRIX)
def test_no_secret_stands_in_an_argument_a_variable_or_a_config_map(helm: Helm, name: str) -> None:
    rendered = helm(MATRIX[name])
    for body in rendered.objects:
        if body["kind"] != "Secret":
            assert "PASSWORD" not in json.dumps(body), body["metadata"]["name"]
    for pod in rendered.pods.values():
        for container in pod["containers"]:
            for variable in container.get("env", []):
                if re.search(r"URL|AUTH|PASS|TOKEN", variable["name"]):
                    assert "secretKeyRef" in variable["valueFrom"]


def test_the_operator_understands_its_arguments(helm: Helm) -> None:
    from flash_operator.main import _parse

    values = PRODUCTION | {"operator": PRODUCTION["operator"] | {"extraArgs": ["--log-level=debug"]}}
    options, chosen = _parse(helm(values).pods["ff-flashfleet-operator"]["containers"][0]["args"])
    made = options("ignored")
    assert made.namespaces == ("team-a", "team-b")
    assert made.release == f"{NAMESPACE}/ff"
    assert (made.broker_secret, made.broker_key) == ("our-redis", "url")
    assert (made.router_image, made.worker_image) == tuple(f"localhost/flashfleet-{one}:{VERSION}" for one in ROOMS)
    assert (made.port, chosen.log_level) == (8080, "debug")


def test_a_digest_wins_over_a_tag(helm: Helm) -> None:
    image = {"repository": "r.example/x", "tag": "2", "digest": DIGEST}
    values = {part: {"image": image} for part in ("operator", "router", "worker", "redis")}
    rendered = helm(values)
    operator = rendered.pods["ff-flashfleet-operator"]["containers"][0]
    whole = f"r.example/x@{DIGEST}"
    assert operator["image"] == whole
    assert {f"--router-image={whole}", f"--worker-image={whole}"} <= set(operator["args"])
    assert rendered.pods["ff-flashfleet-redis"]["containers"][0]["image"] == whole
    tagged = helm({"operator": {"image": {"tag": "2"}}}).pods["ff-flashfleet-operator"]["containers"][0]
    assert tagged["image"] == "localhost/flashfleet-operator:2"


def test_a_changed_redis_configuration_restarts_redis_and_nothing_else(helm: Helm) -> None:
    before, after = helm(), helm({"redis": {"maxMemory": "1gb"}})
    assert before.one("StatefulSet")["spec"]["template"] != after.one("StatefulSet")["spec"]["template"]
    assert before.one("Deployment") == after.one("Deployment")
    assert "maxmemory-policy noeviction" in after.one("ConfigMap", "-redis")["data"]["redis.conf"]


def test_the_password_is_made_at_install_and_never_at_upgrade(helm: Helm) -> None:
    """A render that upgrades finds no cluster here, so no Secret; what matters is that none is an ordinary object."""
    values = {"operator": {"watchNamespaces": ["team-a"]}}
    for flags in ((), ("--is-upgrade",)):
        secrets = helm(values, *flags).of("Secret")
        assert {hook(secret) for secret in secrets} == {"pre-upgrade" if flags else "pre-install", "post-delete"}
        assert all(s["metadata"]["annotations"]["argocd.argoproj.io/hook"] == "Skip" for s in secrets)
        made = {s["metadata"]["namespace"]: s for s in secrets if hook(s) != "post-delete"}
        assert set(made) == {"team-a", NAMESPACE}
        assert set(made["team-a"]["stringData"]) == {"url"}
        assert set(made[NAMESPACE]["stringData"]) == {"url", "password", "auth.conf"}
        assert made["team-a"]["stringData"]["url"] == made[NAMESPACE]["stringData"]["url"]
    assert not helm({"redis": {"existingSecret": "mine"}}).of("Secret")
    assert not helm(PRODUCTION).of("Secret")


def test_the_queue_is_the_one_that_was_named(helm: Helm) -> None:
    def arguments(values: dict[str, Any]) -> set[str]:
        return set(helm(values).pods["ff-flashfleet-operator"]["containers"][0]["args"])

    assert {"--broker-secret=ff-flashfleet-broker", "--broker-key=url"} <= arguments({})
    assert "--broker-secret=mine" in arguments({"redis": {"existingSecret": "mine"}})
    ours = PRODUCTION | {"broker": {"existingSecret": "our-redis", "existingSecretKey": "address"}}
    assert {"--broker-secret=our-redis", "--broker-key=address"} <= arguments(ours)


def test_every_policy_names_both_directions_and_selects_its_pods(helm: Helm) -> None:
    rendered = helm()
    for policy in rendered.of("NetworkPolicy"):
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
        wanted = policy["spec"]["podSelector"]["matchLabels"]
        owner = next(b for b in rendered.objects if b["kind"] in ("Deployment", "StatefulSet")
                     and b["metadata"]["name"] == policy["metadata"]["name"])  # fmt: skip
        assert wanted.items() <= owner["spec"]["template"]["metadata"]["labels"].items()
    assert rendered.one("NetworkPolicy", "-redis")["spec"]["egress"] == []


def test_budgets_and_services_select_the_pods_that_are_made(helm: Helm) -> None:
    rendered = helm({"operator": {"replicas": 2}})
    labels = [b["spec"]["template"]["metadata"]["labels"] for b in rendered.objects if "template" in b.get("spec", {})]
    for body in rendered.of("Service") + rendered.of("PodDisruptionBudget"):
        selector = body["spec"]["selector"]
        selector = selector.get("matchLabels", selector)
        assert sum(selector.items() <= label.items() for label in labels) == 1
    assert not helm().of("PodDisruptionBudget")  # with one operator it would only block a drain


@pytest.fixture
def notes(helm: Helm, chart: Path, tmp_path: Path) -> Callable[[dict[str, Any]], str]:
    """NOTES.txt as people see it. Helm shows it only while it installs, so a copy of the chart has it in an object."""
    copy = tmp_path / "flashfleet"
    shutil.copytree(chart, copy)
    (copy / "templates" / "NOTES.txt").rename(copy / "notes")
    wrapped = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: notes}\ndata:\n  text: |\n"
    (copy / "templates" / "notes.yaml").write_text(wrapped + '{{ tpl (.Files.Get "notes") . | indent 4 }}\n')

    def read(values: dict[str, Any]) -> str:
        return str(helm(values, chart=copy).one("ConfigMap", "notes")["data"]["text"])

    return read


def test_notes_name_the_real_objects(notes: Callable[[dict[str, Any]], str]) -> None:
    text = notes({})
    assert "rollout status deployment/ff-flashfleet-operator" in text
    assert "kubectl -n serving apply -f examples/chat.yaml" in text
    assert "Secret ff-flashfleet-broker" in text
    assert "WARNING" not in text
    assert "WARNING: crds.keep is false" in notes({"crds": {"keep": False}})
    assert "key url of the Secret our-redis; it must exist in: team-a, team-b, serving" in notes(PRODUCTION)


def test_helm_lints_the_chart(helm: Helm) -> None:
    done = helm({}, "--strict", verb="lint")
    assert done.code == 0, done.text
