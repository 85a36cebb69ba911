"""The FlashDeployment, typed: fields, defaults, checks. The same file serves `kubectl apply` and `flashfleet up`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import yaml
from flash_wire.settings import (
    TIERS,
    Engine,
    Limits,
    Model,
    Prefix,
    Priorities,
    Routing,
    Settings,
    SettingsError,
    TierName,
    knob,
    parse,
)
from flash_wire.units import Duration
from pydantic import ConfigDict, model_validator
from pydantic.alias_generators import to_camel

from flash_operator.api_cluster import DNS_NAME, Broker, Pod, Service

API_VERSION = "flashfleet.io/v1alpha1"
KIND = "FlashDeployment"
_MAX_FILE = 1 << 20
_MAX_NODES = 20_000
_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_SERVICE_NAME = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
_DAY = 86400


class WeightSource(Model):
    """Where a tier's weights come from, and how its pods get at them."""

    secret: str = knob(
        "",
        "Secret in this namespace whose keys become variables of the workers, for example HF_TOKEN for a gated hf://"
        " model.",
        max_length=253,
        pattern=rf"^$|{DNS_NAME}",
        example="hugging-face",
    )
    cache_claim: str = knob(
        "",
        "Volume claim that keeps downloaded weights for all workers; left out, each pod keeps its own until it ends.",
        max_length=253,
        pattern=rf"^$|{DNS_NAME}",
        example="weights",
    )


class Scaling(Settings):
    """Bounds of a tier whose worker count follows its queue, or that leaves it to somebody else."""

    min: int = knob(1, "Fewest workers; 0 lets an idle tier end.", unit="workers", ge=0, le=1000)
    max: int = knob(1, "Most workers.", unit="workers", ge=1, le=1000, example=4)
    target_wait: Duration = knob(2.0, "Queue wait that the count aims at.", gt=0, le=_DAY, example="2s")
    idle_after: Duration = knob(
        300.0, "Time without a request after which a tier with min 0 ends its last worker.", gt=0, le=_DAY, example="5m"
    )
    wake_wait: Duration = knob(
        600.0, "Longest time that a request is held while a tier wakes from zero.", gt=0, le=_DAY, example="10m"
    )
    external: bool = knob(
        False, "Leave the count to an HPA or KEDA that targets the tier's Deployment; then the bounds are theirs too."
    )

    @model_validator(mode="after")
    def _ordered(self) -> Scaling:
        fields = type(self).model_fields
        bounds = ("min", "max", "target_wait", "idle_after")
        if self.external and any(getattr(self, name) != fields[name].default for name in bounds):
            raise ValueError(
                "external is true, so an HPA or KEDA holds the bounds: remove min, max, targetWait and idleAfter, or"
                " remove external"
            )
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}: raise max or lower min")
        return self


class Tier(Pod):
    """One of the two models and how its workers run."""

    model: WeightSource = knob(..., "Where the weights come from.")
    engine: Engine = knob(Engine, "How the model is run.")
    replicas: int | None = knob(
        None,
        "Fixed number of workers; 1 when neither replicas nor scaling is given.",
        unit="workers",
        ge=0,
        le=1000,
        example=2,
    )
    scaling: Scaling | None = knob(None, "Bounds, instead of replicas.", example={"min": 1, "max": 4})
    on_tier_down: Literal["wait", "fallback"] = knob(
        "wait", "While no worker of this tier lives: wait holds its requests, fallback lets the other tier answer."
    )
    rollout: Literal["surge", "replace"] = knob(
        "surge",
        "How a change reaches the workers: surge starts a new one before an old one ends, replace ends one first, where"
        " there is no device to spare.",
    )
    start_within: Duration = knob(
        1800.0, "Time that a worker may take to fetch and load its model.", ge=10, le=_DAY, example="30m"
    )

    @model_validator(mode="after")
    def _one_way_to_count(self) -> Tier:
        if self.replicas is not None and self.scaling is not None:
            raise ValueError(
                "replicas and scaling are both set: keep replicas for a fixed count, scaling for a following one"
            )
        return self


class RouterSpec(Pod):
    """The routers in front of both tiers."""

    replicas: int = knob(1, "Number of routers.", unit="routers", ge=1, le=100)
    service: Service = knob(Service, "The Service in front of them.")


class Spec(Settings):
    """What a person wants. Everything has a default except the two models."""

    flash: Tier = knob(..., "The fast tier.")
    standard: Tier = knob(..., "The careful tier.")
    router: RouterSpec = knob(RouterSpec, "The routers in front of both tiers.")
    routing: Routing = knob(Routing, "How a tier is chosen for a request.")
    priorities: Priorities = knob(Priorities, "Shares of tokens when both levels wait.")
    pinned_prefixes: tuple[Prefix, ...] = knob(
        (),
        "System prompts whose KV pages every worker computes at start and keeps.",
        max_length=64,
        example=["You are a helpful assistant."],
    )
    limits: Limits = knob(Limits, "What is refused rather than queued for ever.")
    broker: Broker = knob(Broker, "Where the queue is.")
    drain: Duration = knob(60.0, "Time a stopping process has to finish what it runs.", gt=0, le=_DAY, example="60s")


class Metadata(Settings):
    """The part of Kubernetes' ObjectMeta that this project reads; what the API server adds is ignored."""

    model_config = ConfigDict(extra="ignore")

    name: str = knob(
        ..., "Name of the deployment, and of the model that clients ask for.", pattern=_SERVICE_NAME, max_length=40
    )
    namespace: str = knob(
        "default", 'Its namespace; "default" where there is no cluster.', pattern=_NAME, max_length=63
    )


class FlashDeployment(Settings):
    """The resource."""

    api_version: Literal["flashfleet.io/v1alpha1"]
    kind: Literal["FlashDeployment"]
    metadata: Metadata
    spec: Spec

    @property
    def fleet(self) -> str:
        """namespace/name: the hash tag of its keys in the broker."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def tier(self, name: TierName) -> Tier:
        return self.spec.flash if name == "flash" else self.spec.standard


def from_dict(data: Any) -> FlashDeployment:
    """A parsed resource, for example from the API server. `status` is not spec and is left out."""
    if isinstance(data, dict):
        data = {key: value for key, value in data.items() if key != "status"}
        if data.get("kind") not in (None, KIND):
            raise SettingsError(f"kind: this is a {data['kind']}, not a {KIND}")
    return parse(FlashDeployment, data)


def from_yaml(text: str, name: str = "the file") -> FlashDeployment:
    """The one FlashDeployment in a YAML text. Raises SettingsError that names the line or the field."""
    if len(text) > _MAX_FILE:
        raise SettingsError(f"{name}: {len(text)} characters; a FlashDeployment has at most {_MAX_FILE}")
    try:
        documents = [data for data in yaml.load_all(text, Loader=_Loader) if data is not None]
    except yaml.YAMLError as error:
        raise SettingsError(f"{name}: not YAML: {_one_line(error)}") from None
    except RecursionError:
        raise SettingsError(f"{name}: nested too deeply") from None
    found = [data for data in documents if isinstance(data, dict) and data.get("kind") == KIND]
    if not found and len(documents) == 1:
        found = documents  # one document with a mistyped kind: its own error says more than "none found"
    if len(found) != 1:
        raise SettingsError(f"{name}: {len(found)} documents of kind {KIND}; write exactly one")
    if sum(1 for _ in _nodes(found[0])) > _MAX_NODES:
        raise SettingsError(f"{name}: more than {_MAX_NODES} values once its aliases are followed")
    try:
        return from_dict(found[0])
    except SettingsError as error:
        raise SettingsError("\n".join(f"{name}: {line}" for line in str(error).splitlines())) from None


def load(path: Path) -> FlashDeployment:
    """`from_yaml` of a file. Raises SettingsError also when the file cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not UTF-8 at byte {error.start}: save the file as UTF-8") from None
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None
    return from_yaml(text, str(path))


def without_cluster(deployment: FlashDeployment) -> list[str]:
    """What the deployment asks for and one machine cannot give: a sentence each. Empty when nothing is lost."""
    spec = deployment.spec
    said = []
    for name in TIERS:
        tier = deployment.tier(name)
        if scaling := tier.scaling:
            fixed = max(1, scaling.min)
            if scaling.external:
                said.append(f"{name}.scaling: on one machine nothing else scales; the count stays at 1")
            elif scaling.max > scaling.min:
                said.append(
                    f"{name}.scaling: on one machine the count stays at {fixed}; scaling from {scaling.min} to"
                    f" {scaling.max} needs a cluster"
                )
        if tier.model.source.startswith("pvc://"):
            said.append(f"{name}.model.source: pvc:// names a volume claim of a cluster; write file:///PATH here")
        if tier.model.secret:
            said.append(f"{name}.model.secret: is in a cluster; set its variables before `flashfleet up`")
        if tier.model.cache_claim:
            said.append(f"{name}.model.cacheClaim: is in a cluster; here downloads go to your own cache")
        said += _pods_only(name, tier, ("rollout", "start_within"))
    said += _pods_only("router", spec.router, ("service",))
    if spec.broker.secret:
        said.append("broker: its Secret is in a cluster; here FLASHFLEET_BROKER_URL names a queue, or `up` starts one")
    return said


def _pods_only(name: str, part: Pod, more: tuple[str, ...]) -> list[str]:
    fields = type(part).model_fields
    changed = [
        to_camel(key)
        for key in (*Pod.model_fields, *more)
        if getattr(part, key) != fields[key].get_default(call_default_factory=True)
    ]
    if not changed:
        return []
    return [f"{name}: {', '.join(changed)} {'has' if len(changed) == 1 else 'have'} no meaning without a cluster"]


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses a name given twice: YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str):
                if key in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key} is given twice", key_node.start_mark)
                seen.add(key)
        return super().construct_mapping(node, deep)


def _nodes(data: Any) -> Iterator[None]:
    """One item per value, aliases followed, and no more than the caller's limit needs."""
    stack, count = [data], 0
    while stack and count <= _MAX_NODES:
        value = stack.pop()
        count += 1
        yield None
        if isinstance(value, dict):
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)


def _one_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"{problem} (line {mark.line + 1}, column {mark.column + 1})" if mark else problem
