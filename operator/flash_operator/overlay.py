"""Merges a person's overlay into a pod template, as they would expect of `kubectl patch`. Pure."""

from __future__ import annotations

from typing import Any

KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
"""Lists whose items are known by one field: an overlay's item joins the one of the same name, or comes last."""


def merge(base: Any, over: Any, name: str = "") -> Any:
    """`base` with `over` on top: mappings merge, lists of KEYS merge by name, the rest is replaced, and None removes.

    Neither argument is changed.
    """
    if isinstance(base, dict) and isinstance(over, dict):
        merged = dict(base)
        for key, value in over.items():
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = merge(merged.get(key), value, key)
        return merged
    if isinstance(over, dict):
        return merge({}, over, name)
    key = KEYS.get(name, "")
    if key and isinstance(base, list) and isinstance(over, list) and _all_named(base, key) and _all_named(over, key):
        items = {item[key]: item for item in base}
        for item in over:
            items[item[key]] = merge(items.get(item[key], {}), item)
        return list(items.values())
    return over


def _all_named(items: list[Any], key: str) -> bool:
    return all(isinstance(item, dict) and isinstance(item.get(key), str) for item in items)
