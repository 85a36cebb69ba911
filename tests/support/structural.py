"""What an API server does with a structural schema, as far as it can be said without CEL: fill defaults in, refuse."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

Body = dict[str, Any]
_TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}


def defaulted(schema: Body, value: Any) -> Any:
    """A copy of `value` with the schema's defaults, as the API server stores it: nulls count as left out."""
    if isinstance(value, list):
        return [defaulted(schema.get("items", {}), item) for item in value]
    if not isinstance(value, dict):
        return value
    made = {name: part for name, part in value.items() if part is not None}
    for name, part in schema.get("properties", {}).items():
        if name not in made and "default" in part:
            made[name] = copy.deepcopy(part["default"])
        if name in made:
            made[name] = defaulted(part, made[name])
    return made


def problems(schema: Body, value: Any, where: str = "") -> Iterator[str]:
    """Each way in which `value` breaks the schema. Unknown fields count, as with strict validation."""
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            yield f"{where}: neither integer nor string"
        elif isinstance(value, str) and not re.search(schema["pattern"], value):
            yield f"{where}: does not match"
        return
    kind = schema.get("type")
    if kind and (not isinstance(value, _TYPES[kind]) or (kind != "boolean" and isinstance(value, bool))):
        yield f"{where}: {value!r} is no {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is not one of {schema['enum']}"
    for word, holds in (
        ("minimum", lambda bound: value >= bound),
        ("maximum", lambda bound: value <= bound),
        ("maxLength", lambda bound: len(value) <= bound),
        ("maxItems", lambda bound: len(value) <= bound),
        ("maxProperties", lambda bound: len(value) <= bound),
    ):
        if word in schema and not holds(schema[word]):
            yield f"{where}: {value!r} breaks {word} {schema[word]}"
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from problems(schema.get("items", {}), item, f"{where}[{number}]")
    if isinstance(value, dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        known = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{where}.{name}: required"
        for name, part in value.items():
            if name == "metadata" and not where:
                continue  # the API server's own
            if name in known:
                yield from problems(known[name], part, f"{where}.{name}")
            elif "additionalProperties" in schema:
                yield from problems(schema["additionalProperties"], part, f"{where}.{name}")
            else:
                yield f"{where}.{name}: unknown field"
