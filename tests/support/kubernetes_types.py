"""Is this a valid Kubernetes object? Checked against the models of the official client, which are made from OpenAPI.

The API server prunes or refuses what it does not know; here an unknown field, a missing one and a wrong type each give
a sentence with the path to it. (What depends on other values, only the API server knows.)
"""

from __future__ import annotations

from typing import Any

from kubernetes import client
from pydantic import BaseModel, ValidationError


def model_of(api_version: str, kind: str) -> type[BaseModel] | None:
    """The client's class, e.g. apps/v1 Deployment -> V1Deployment. None for kinds that Kubernetes itself lacks."""
    group, _, version = api_version.rpartition("/")
    if "." in group and not group.endswith(".k8s.io"):
        return None
    name = "CoreV1Event" if kind == "Event" else version[:1].upper() + version[1:] + kind
    return getattr(client, name, None)


def problems(body: dict[str, Any]) -> list[str]:
    """What is wrong with an object; empty when nothing is, or when its kind is not one of Kubernetes' own."""
    kind = str(body.get("kind"))
    model = model_of(str(body.get("apiVersion")), kind)
    if model is None:
        return []
    try:
        model.model_validate(body, by_alias=True, by_name=False)
    except ValidationError as error:
        return [f"{kind}.{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
    return []
