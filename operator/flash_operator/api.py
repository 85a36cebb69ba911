"""The FlashDeployment, typed: fields, defaults, checks. The same file serves `kubectl apply` and `flashfleet up`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import yaml
from flash_wire.settings import (
    Engine,
    Limits,
    Model,
    Priorities,
    Routing,
    Settings,
    SettingsError,
    knob,
    parse,
)
from flash_wire.units import Duration
from pydantic import ConfigDict, model_validator

API_VERSION = "flashfleet.io/v1alpha1"
KIND = "FlashDeployment"
_MAX_FILE = 1 << 20
_MAX_NODES = 20_000
_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


class Scaling(Settings):
    """Bounds of a tier whose worker count follows its queue."""

    min: int = knob(1, "Fewest workers.", unit="workers", ge=0, le=1000)
    max: int = knob(1, "Most workers.", unit="workers", ge=1, le=1000)
    target_wait: Duration = knob(2.0, "Queue wait that the count aims at.", gt=0, example="2s")

    @model_validator(mode="after")
    def _ordered(self) -> Scaling:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}: raise max or lower min")
        return self


class Tier(Settings):
    """One of the two models and how its workers run."""

    model: Model
    engine: Engine = knob(Engine, "How the model is run.")
    replicas: int | None = knob(
        None, "Fixed number of workers; 1 when neither replicas nor scaling is given.", unit="workers", ge=0, le=1000
    )
    scaling: Scaling | None = knob(None, "Bounds, instead of replicas.")
    on_tier_down: Literal["wait", "fallback"] = knob(
        "wait", "While no worker of this tier lives: wait holds its requests, fallback lets the other tier answer."
    )

    @model_validator(mode="after")
    def _one_way_to_count(self) -> Tier:
        if self.replicas is not None and self.scaling is not None:
            raise ValueError(
                "replicas and scaling are both set: keep replicas for a fixed count, scaling for a following one"
            )
        return self


class RouterSpec(Settings):
    """The routers in front of both tiers."""

    replicas: int = knob(1, "Number of routers.", unit="routers", ge=1, le=100)


class Spec(Settings):
    """What a person wants. Everything has a default except the two models."""

    flash: Tier
    standard: Tier
    router: RouterSpec = knob(RouterSpec, "The routers in front of both tiers.")
    routing: Routing = knob(Routing, "How a tier is chosen for a request.")
    priorities: Priorities = knob(Priorities, "Shares of tokens when both levels wait.")
    pinned_prefixes: tuple[str, ...] = knob(
        (), "System prompts whose KV pages every worker computes at start and keeps.", max_length=64
    )
    limits: Limits = knob(Limits, "What is refused rather than queued for ever.")
    drain: Duration = knob(60.0, "Time a stopping process has to finish what it runs.", gt=0, example="60s")


class Metadata(Settings):
    """The part of Kubernetes' ObjectMeta that this project reads; what the API server adds is ignored."""

    model_config = ConfigDict(extra="ignore")

    name: str = knob(
        ..., "Name of the deployment, and of the model that clients ask for.", pattern=_NAME, max_length=40
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
