"""A plan as Kubernetes objects: owned, labelled, hardened, the same bytes for the same plan, and valid."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flash_operator import api
from flash_operator.manifests import manifests
from flash_operator.naming import OWNER_LABEL, TEMPLATE_LABEL, Images
from flash_operator.overlay import merge
from flash_operator.plan import CLUSTER, Observed, Plan, Running, plan
from flash_operator.pod_template import PRE_STOP
from flash_wire.settings import hash_of
from hypothesis import given
from hypothesis import strategies as st
from support.deployments import BODIES, DEPLOYMENTS, PURE
from support.kubernetes_types import problems
from support.mistakes import patched

ROOT = Path(__file__).parents[2]
Body = dict[str, Any]
IMAGES = Images("example.com/router:1", "example.com/worker:1")
UID = "0b0e7a5e-0000-4000-8000-000000000000"


def made(deployment: api.FlashDeployment, observed: Observed | None = None) -> list[Body]:
    return manifests(deployment, plan(deployment, observed or Observed(), CLUSTER), IMAGES, UID)


def of(kind: str, objects: list[Body]) -> dict[str, Body]:
    return {body["metadata"]["name"]: body for body in objects if body["kind"] == kind}


def pod(name: str, objects: list[Body]) -> Body:
    return of("Deployment", objects)[name]["spec"]["template"]["spec"]


def container(name: str, objects: list[Body]) -> Body:
    return pod(name, objects)["containers"][0]


def changed(**spec: Any) -> api.FlashDeployment:
    return api.from_dict(patched({"spec": spec}))


def shuffled(value: Any) -> Any:
    """The same value with every mapping in another order."""
    if isinstance(value, dict):
        return {name: shuffled(part) for name, part in reversed(value.items())}
    return [shuffled(part) for part in value] if isinstance(value, list) else value


@PURE
@given(BODIES)
def test_the_same_deployment_gives_the_same_bytes(body: Body) -> None:
    one, other = made(api.from_dict(body)), made(api.from_dict(shuffled(body)))
    assert json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def applied(wanted: Plan) -> Observed:
    return Observed({p.name: Running(p.replicas, p.static_hash, p.live_hash) for p in wanted.processes})


@PURE
@given(DEPLOYMENTS, st.dictionaries(st.sampled_from(["flash", "standard"]), st.integers(0, 12)))
def test_applying_twice_changes_nothing(deployment: api.FlashDeployment, scaled: dict[str, int]) -> None:
    first = plan(deployment, Observed(scaled=scaled), CLUSTER)
    second = plan(deployment, applied(first), CLUSTER)
    assert second.sentences == ()
    assert manifests(deployment, second, IMAGES, UID) == manifests(deployment, first, IMAGES, UID)


@PURE
@given(DEPLOYMENTS)
def test_every_object_is_owned_and_labelled(deployment: api.FlashDeployment) -> None:
    objects = made(deployment)
    names = [(body["kind"], body["metadata"]["name"]) for body in objects]
    assert len(set(names)) == len(names)
    for body in objects:
        meta = body["metadata"]
        assert meta["namespace"] == deployment.metadata.namespace
        assert meta["name"].startswith(deployment.metadata.name)
        assert len(meta["name"]) <= 63
        assert meta["labels"]["app.kubernetes.io/managed-by"] == "flashfleet-operator"
        assert meta["labels"][OWNER_LABEL] == deployment.metadata.name
        assert [(ref["uid"], ref["controller"], ref["blockOwnerDeletion"]) for ref in meta["ownerReferences"]] == [
            (UID, True, True)
        ]
    for name, body in of("Deployment", objects).items():
        labels = body["spec"]["template"]["metadata"]["labels"]
        assert body["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert labels[OWNER_LABEL] == deployment.metadata.name
        # No pod of one kind is taken for one of another.
        assert [
            n
            for n, o in of("Deployment", objects).items()
            if o["spec"]["selector"]["matchLabels"].items() <= labels.items()
        ] == [name]


@PURE
@given(DEPLOYMENTS)
def test_every_object_is_one_that_kubernetes_knows(deployment: api.FlashDeployment) -> None:
    for body in made(deployment):
        assert problems(body) == []


@PURE
@given(DEPLOYMENTS)
def test_every_pod_is_hardened(deployment: api.FlashDeployment) -> None:
    for body in of("Deployment", made(deployment)).values():
        spec = body["spec"]["template"]["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for one in spec["containers"]:
            assert one["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"startupProbe", "livenessProbe", "readinessProbe"} <= one.keys()
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        assert all("hostPath" not in volume for volume in spec["volumes"])


@PURE
@given(DEPLOYMENTS)
def test_no_secret_is_written_down(deployment: api.FlashDeployment) -> None:
    """The broker's address may hold a password: pods get it from a Secret, and only from there."""
    for body in of("Deployment", made(deployment)).values():
        variables = {one["name"]: one for one in body["spec"]["template"]["spec"]["containers"][0]["env"]}
        source = variables["FLASHFLEET_BROKER_URL"]["valueFrom"]["secretKeyRef"]
        assert source == {"name": deployment.spec.broker.secret or "flashfleet-broker", "key": "url"}


@PURE
@given(DEPLOYMENTS)
def test_a_roll_never_lets_capacity_fall_under_what_was_asked(deployment: api.FlashDeployment) -> None:
    """Pain 8. Kubernetes keeps at least replicas - maxUnavailable ready pods; only `replace` asks for fewer."""
    for name, body in of("Deployment", made(deployment)).items():
        rolling = body["spec"]["strategy"]["rollingUpdate"]
        tier = {"flash": deployment.spec.flash, "standard": deployment.spec.standard}.get(name.rpartition("-")[2])
        if tier and tier.rollout == "replace":
            assert rolling == {"maxSurge": 0, "maxUnavailable": 1}
        else:
            assert rolling == {"maxSurge": 1, "maxUnavailable": 0}


@PURE
@given(DEPLOYMENTS)
def test_a_pod_has_time_to_drain(deployment: api.FlashDeployment) -> None:
    """Pain 3. The kubelet kills after the drain, never within it."""
    for name, body in of("Deployment", made(deployment)).items():
        grace = body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        before = PRE_STOP if name.endswith("-router") else 0
        assert grace >= math.ceil(deployment.spec.drain) + before + 5


@PURE
@given(DEPLOYMENTS)
def test_what_a_pod_mounts_is_there(deployment: api.FlashDeployment) -> None:
    objects = made(deployment)
    maps = of("ConfigMap", objects)
    order = [body["kind"] for body in objects]
    assert order.index("Deployment") > max(n for n, kind in enumerate(order) if kind == "ConfigMap")
    for body in of("Deployment", objects).values():
        spec = body["spec"]["template"]["spec"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for mount in spec["containers"][0]["volumeMounts"]:
            assert mount["name"] in volumes
            assert "subPath" not in mount  # such a file would never change
        sources = volumes["settings"]["projected"]["sources"]
        keys = {(one["configMap"]["name"], item["key"]) for one in sources for item in one["configMap"]["items"]}
        assert {key for _, key in keys} == {"static.json", "live.json"}
        for name, key in keys:
            assert key in maps[name]["data"]
            if key == "static.json":
                assert maps[name]["immutable"] is True
                assert name.endswith(hash_of(maps[name]["data"][key]))


def test_a_count_of_somebody_else_is_not_written() -> None:
    """Pain 5. An HPA and the operator never both write replicas."""
    deployment = changed(flash={"scaling": {"external": True}})
    deployments = of("Deployment", made(deployment))
    assert "replicas" not in deployments["chat-flash"]["spec"]
    assert deployments["chat-standard"]["spec"]["replicas"] == 1
    for scaled in (1, 5):
        world = Observed({"chat-flash": Running(scaled, "", "")})
        assert of("Deployment", made(deployment, world)) == deployments


def test_a_scale_or_a_live_edit_rolls_nothing() -> None:
    def templates(deployment: api.FlashDeployment, scaled: int = 1) -> list[str]:
        objects = made(deployment, Observed(scaled={"flash": scaled}))
        return [
            body["spec"]["template"]["metadata"]["labels"][TEMPLATE_LABEL]
            for body in of("Deployment", objects).values()
        ]

    base = changed(flash={"scaling": {"max": 5}})
    assert templates(base, 5) == templates(base, 1)
    edited = changed(
        flash={"scaling": {"max": 5}},
        routing={"standardShare": 0.5, "rules": [{"when": {"minChars": 9}, "to": "flash"}]},
        priorities={"high": 9},
        limits={"maxWait": "1m"},
    )
    assert templates(edited) == templates(base)
    assert of("ConfigMap", made(edited))["chat-router-live"] != of("ConfigMap", made(base))["chat-router-live"]


def test_an_engine_setting_rolls_its_own_tier() -> None:
    before, after = made(changed()), made(changed(flash={"engine": {"maxSeqs": 8}}))
    rolled = [
        name
        for name, body in of("Deployment", after).items()
        if body["spec"]["template"] != of("Deployment", before)[name]["spec"]["template"]
    ]
    assert rolled == ["chat-flash"]
    assert set(of("ConfigMap", after)) - set(of("ConfigMap", before)) == {
        next(name for name in of("ConfigMap", after) if name.startswith("chat-flash-static-"))
    }


@pytest.mark.parametrize(
    ("flash", "kept"),
    [
        ({"replicas": 1}, False),
        ({"replicas": 2}, True),
        ({"replicas": 0}, False),
        ({"scaling": {"max": 1}}, False),
        ({"scaling": {"max": 3}}, True),
        ({"scaling": {"external": True}}, True),
    ],
)
def test_a_budget_where_pods_are_to_spare(flash: Body, kept: bool) -> None:
    """Pain 13. One pod at a time, and never in the way of a drain that could go on."""
    budgets = of("PodDisruptionBudget", made(changed(flash=flash)))
    assert ("chat-flash" in budgets) is kept
    for budget in budgets.values():
        assert budget["spec"]["maxUnavailable"] == 1
        assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_a_drained_pod_may_move() -> None:
    for name in ("chat-router", "chat-flash"):
        (spread,) = pod(name, made(changed()))["topologySpreadConstraints"]
        assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
        assert spread["nodeTaintsPolicy"] == "Honor"
        assert spread["matchLabelKeys"] == ["pod-template-hash"]


def test_the_service_has_the_name_of_the_deployment() -> None:
    deployment = changed(router={"service": {"type": "LoadBalancer", "annotations": {"b": "2", "a": "1"}}})
    (service,) = of("Service", made(deployment)).values()
    assert service["metadata"]["name"] == "chat"
    assert service["metadata"]["annotations"] == {"a": "1", "b": "2"}
    assert service["spec"]["type"] == "LoadBalancer"
    ports = {port["name"]: port for port in service["spec"]["ports"]}
    assert (ports["grpc"]["port"], ports["http"]["port"]) == (9000, 8000)
    opened = {port["name"]: port["containerPort"] for port in container("chat-router", made(deployment))["ports"]}
    assert opened == {"grpc": 9000, "http": 8000, "fleet": 9001}


def test_a_gpu_tier_asks_for_its_gpu() -> None:
    deployment = api.load(ROOT / "examples" / "chat-gpu.yaml")
    objects = made(deployment)
    flash = container("chat-flash", objects)
    assert flash["resources"] == {
        "limits": {"memory": "16Gi", "nvidia.com/gpu": "1"},
        "requests": {"cpu": "4"},
    }
    assert flash["envFrom"] == [{"secretRef": {"name": "hugging-face"}}]
    cores = next(one for one in flash["env"] if one["name"] == "FLASHFLEET_CORES")
    assert cores["valueFrom"]["resourceFieldRef"]["resource"] == "requests.cpu"
    standard = pod("chat-standard", objects)
    assert standard["nodeSelector"] == {"nvidia.com/gpu.memory": "81920"}
    assert standard["tolerations"][0] == {"operator": "Exists", "key": "nvidia.com/gpu", "effect": "NoSchedule"}
    assert standard["priorityClassName"] == "serving"
    cache = next(volume for volume in standard["volumes"] if volume["name"] == "cache")
    assert cache["persistentVolumeClaim"] == {"claimName": "weights"}
    assert standard["containers"][0]["startupProbe"]["failureThreshold"] * 2 == 3600
    assert of("Deployment", objects)["chat-standard"]["spec"]["progressDeadlineSeconds"] > 3600
    assert len(of("PodDisruptionBudget", objects)) == 3


def test_a_claim_is_mounted_where_the_settings_look_for_it() -> None:
    deployment = changed(flash={"model": {"source": "pvc://weights/llama"}})
    objects = made(deployment)
    static = next(body for name, body in of("ConfigMap", objects).items() if name.startswith("chat-flash-static"))
    assert json.loads(static["data"]["static.json"])["model"]["source"] == "file:///claims/weights/llama"
    mount = next(one for one in container("chat-flash", objects)["volumeMounts"] if one["name"] == "weights")
    assert mount == {"name": "weights", "mountPath": "/claims/weights", "readOnly": True}


def test_images_of_a_tier_win_over_the_operators() -> None:
    deployment = changed(flash={"image": "mine"})
    objects = manifests(
        deployment, plan(deployment, Observed(), CLUSTER), replace(IMAGES, pull_secrets=("registry",)), UID
    )
    assert container("chat-flash", objects)["image"] == "mine"
    assert container("chat-standard", objects)["image"] == IMAGES.worker
    assert container("chat-router", objects)["image"] == IMAGES.router
    assert pod("chat-router", objects)["imagePullSecrets"] == [{"name": "registry"}]


def test_an_overlay_joins_what_is_there_and_cannot_take_a_pod_away() -> None:
    overlay = {
        "metadata": {"labels": {"team": "search", OWNER_LABEL: "other"}, "annotations": {"note": "x"}},
        "spec": {
            "containers": [
                {"name": "worker", "env": [{"name": "HOME", "value": "/home"}, {"name": "MORE", "value": "1"}]},
                {"name": "side", "image": "sidecar"},
            ],
            "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory"}}],
            "securityContext": {"runAsUser": None},
            "priorityClassName": "high",
        },
    }
    objects = made(changed(flash={"podOverlay": overlay}))
    template = of("Deployment", objects)["chat-flash"]["spec"]["template"]
    assert template["metadata"]["labels"]["team"] == "search"
    assert template["metadata"]["labels"][OWNER_LABEL] == "chat"
    assert template["metadata"]["annotations"]["note"] == "x"
    spec = template["spec"]
    worker, side = spec["containers"]
    assert side == {"name": "side", "image": "sidecar"}
    variables = {one["name"]: one.get("value") for one in worker["env"]}
    assert (variables["HOME"], variables["MORE"]) == ("/home", "1")
    assert "FLASHFLEET_BROKER_URL" in variables
    assert "runAsUser" not in spec["securityContext"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert next(one for one in spec["volumes"] if one["name"] == "tmp")["emptyDir"] == {"medium": "Memory"}
    plain = of("Deployment", made(changed()))["chat-flash"]["spec"]["template"]
    assert template["metadata"]["labels"][TEMPLATE_LABEL] != plain["metadata"]["labels"][TEMPLATE_LABEL]


JSON = st.recursive(
    st.integers() | st.text(max_size=3) | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "name", "env"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@PURE
@given(
    st.dictionaries(st.sampled_from(["a", "env", "volumes"]), JSON),
    st.dictionaries(st.sampled_from(["a", "env", "volumes"]), JSON),
)
def test_merging_is_idempotent_and_changes_neither(base: Body, over: Body) -> None:
    before = json.dumps([base, over])
    once = merge(base, over)
    assert json.dumps([base, over]) == before
    assert merge(once, over) == once
