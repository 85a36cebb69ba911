"""Is this a valid Kubernetes object? Checked against the types that the official client was generated with.

The API server prunes or refuses what it does not know; here an unknown field, a missing one and a wrong type each give
a sentence with the path to it.
"""

from __future__ import annotations

import re
from typing import Any

from kubernetes import client

_PLAIN: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "float": (int, float),
    "object": (object,),
    "datetime": (str,),
}
_GROUPS = {"v1": "", "apps/v1": "apps", "policy/v1": "policy", "networking.k8s.io/v1": "networking"}


def model_of(api_version: str, kind: str) -> type | None:
    """The client's class, e.g. apps/v1 Deployment -> V1Deployment. None for kinds that Kubernetes itself lacks."""
    group, _, version = api_version.rpartition("/")
    if "." in group and not group.endswith(".k8s.io"):
        return None
    prefix = version[:1].upper() + version[1:]
    name = {"Event": "CoreV1Event"}.get(kind, prefix + kind)
    return getattr(client, name, None)


def problems(body: dict[str, Any]) -> list[str]:
    """What is wrong with an object; empty when nothing is, or when its kind is not one of Kubernetes' own."""
    kind = str(body.get("kind"))
    model = model_of(str(body.get("apiVersion")), kind)
    return [] if model is None else list(_object(body, model, kind))


def _object(value: Any, model: type, path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path}: {type(value).__name__} where {model.__name__} is wanted"]
    fields: dict[str, str] = {external: model.openapi_types[name] for name, external in model.attribute_map.items()}
    found = [f"{path}.{name}: unknown field" for name in value if name not in fields]
    for name, kind in fields.items():
        if name in value:
            found += _value(value[name], kind, f"{path}.{name}")
    blank = {name: value.get(external) for name, external in model.attribute_map.items()}
    try:
        model(**blank)  # raises for a missing field that is required
    except ValueError as error:
        found.append(f"{path}: {error}")
    return found


def _value(value: Any, kind: str, path: str) -> list[str]:
    if value is None:
        return []
    if listed := re.fullmatch(r"list\[(.+)\]", kind):
        if not isinstance(value, list):
            return [f"{path}: {type(value).__name__} where a list is wanted"]
        return [said for at, item in enumerate(value) for said in _value(item, listed[1], f"{path}[{at}]")]
    if mapped := re.fullmatch(r"dict\((\w+), (.+)\)", kind) or re.fullmatch(r"dict\[(\w+), (.+)\]", kind):
        if not isinstance(value, dict):
            return [f"{path}: {type(value).__name__} where a mapping is wanted"]
        return [said for key, item in value.items() for said in _value(item, mapped[2], f"{path}.{key}")]
    if kind in _PLAIN:
        right = isinstance(value, _PLAIN[kind]) and not (kind == "int" and isinstance(value, bool))
        return [] if right else [f"{path}: {value!r} where {kind} is wanted"]
    model = getattr(client, kind, None)
    return [f"{path}: type {kind} is not known"] if model is None else _object(value, model, path)
