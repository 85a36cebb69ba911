"""What only a cluster gives a meaning: where pods go, what they get, who reaches them."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from flash_wire.settings import Settings, knob
from pydantic import BeforeValidator, Field, model_validator

DNS_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
"""Of a Secret or a claim."""
QUANTITY = re.compile(r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$")


def _quantity(value: Any) -> Any:
    if isinstance(value, str) and not QUANTITY.match(value):
        raise ValueError(f"{value!r} is not a quantity: write for example 500m, 2, 8Gi")
    if isinstance(value, bool | float):
        raise ValueError(f"{value!r} is not a quantity: write a whole number, or a text such as 500m or 8Gi")
    if isinstance(value, int) and value < 0:
        raise ValueError(f"{value} is not a quantity: it cannot be negative")
    return value


Quantity = Annotated[int | str, BeforeValidator(_quantity)]
"""What Kubernetes calls a quantity: 2, 500m, 8Gi."""
Name = Annotated[str, Field(max_length=63)]
Text = Annotated[str, Field(max_length=253)]


class Resources(Settings):
    """What a pod's container asks for, and what it may have at most."""

    requests: dict[Text, Quantity] = knob(
        dict, "What the scheduler sets aside.", max_length=32, example={"cpu": "2", "memory": "4Gi"}
    )
    limits: dict[Text, Quantity] = knob(
        dict,
        "The most it may have; devices are asked for here, MIG slices by their own resource names.",
        max_length=32,
        example={"nvidia.com/gpu": 1},
    )


class Toleration(Settings):
    """A taint of a node that the pods put up with."""

    key: str = knob("", "Key of the taint; empty is every taint.", max_length=253, example="nvidia.com/gpu")
    operator: Literal["Exists", "Equal"] = knob("Equal", "Equal compares value, Exists takes any value.")
    value: str = knob("", "Value of the taint, with Equal.", max_length=63, example="inference")
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = knob("", "Effect; empty is every effect.")
    toleration_seconds: int | None = knob(
        None, "How long a pod stays after a NoExecute taint came; for ever if left out.", unit="seconds", ge=0,
        example=300,
    )  # fmt: skip

    @model_validator(mode="after")
    def _says_something(self) -> Toleration:
        if not self.key and self.operator == "Equal":
            raise ValueError("a toleration with operator Equal needs a key: give key, or write operator: Exists")
        if self.operator == "Exists" and self.value:
            raise ValueError("a toleration with operator Exists has no value: remove value, or write operator: Equal")
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise ValueError("tolerationSeconds is set without effect NoExecute: write effect: NoExecute, or remove it")
        return self


class OverlayMetadata(Settings):
    """Labels and annotations that pods get beside their own."""

    labels: dict[Text, Name] = knob(dict, "Labels.", max_length=32, example={"team": "search"})
    annotations: dict[Text, Annotated[str, Field(max_length=4096)]] = knob(
        dict, "Annotations.", max_length=32, example={"example.com/scrape": "true"}
    )


class PodOverlay(Settings):
    """Merged last into the pod template, for what has no field here."""

    metadata: OverlayMetadata = knob(OverlayMetadata, "Labels and annotations that pods get beside their own.")
    spec: dict[str, Any] = knob(
        dict,
        "Any part of a pod's spec. Lists of named things merge by name, other lists replace; null removes.",
        example={"priorityClassName": "serving"},
    )


class Pod(Settings):
    """Where the pods of one kind go, and what they get."""

    image: str = knob(
        "", "Container image; the operator's own default if left out.", max_length=512,
        example="registry.example.com/flashfleet-worker:0.1.0",
    )  # fmt: skip
    resources: Resources = knob(Resources, "CPU, memory and devices of each pod.")
    node_selector: dict[Text, Name] = knob(
        dict, "Labels that a node must have.", max_length=32, example={"nvidia.com/gpu.product": "NVIDIA-L4"}
    )
    tolerations: tuple[Toleration, ...] = knob(
        (), "Taints that the pods put up with.", max_length=16, example=[{"key": "gpu", "operator": "Exists"}]
    )
    pod_overlay: PodOverlay = knob(
        PodOverlay,
        "Merged last into the pod template, for what has no field here.",
        example={"spec": {"priorityClassName": "serving"}},
    )


class Service(Settings):
    """The Service in front of the routers. It has the FlashDeployment's name."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = knob("ClusterIP", "Kind of Service.")
    annotations: dict[Text, Annotated[str, Field(max_length=4096)]] = knob(
        dict, "Annotations of the Service.", max_length=32, example={"example.com/internal": "true"}
    )


class Broker(Settings):
    """Where the queue is. The pods read the Secret, and the operator reads this one key of it."""

    secret: str = knob(
        "", "Secret in this namespace with the queue's address (redis://...); the operator's default if left out.",
        max_length=253, pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", example="chat-redis",
    )  # fmt: skip
    key: str = knob(
        "", "Key in that Secret; the operator's default (url) if left out.", max_length=253,
        pattern=r"^[-._a-zA-Z0-9]*$", example="url",
    )  # fmt: skip

    @model_validator(mode="after")
    def _key_of_a_secret(self) -> Broker:
        if self.key and not self.secret:
            raise ValueError("key is set without a secret: name the secret too, or remove key")
        return self
