"""The fields of a settings class as data: what the CRD's schema and the reference page are both made of. Pure."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from annotated_types import Ge, Gt, Le, Lt, MaxLen
from flash_wire.settings import Settings
from flash_wire.units import format_duration
from pydantic import BaseModel, WithJsonSchema
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from flash_operator.api_cluster import QUANTITY

Kind = Literal["object", "list", "map", "any", "enum", "string", "integer", "number", "boolean", "duration", "quantity"]


@dataclass(frozen=True, slots=True)
class Shape:
    """The type of a value."""

    kind: Kind
    of: type[Settings] | None = None
    """Class of an object."""
    items: Shape | None = None
    """Of a list, or the values of a map."""
    values: tuple[str, ...] = ()
    """Of an enum."""
    least: float | None = None
    most: float | None = None
    above: float | None = None
    """Must be greater than this."""
    longest: int | None = None
    """Most characters, items or entries."""
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Knob:
    """One field."""

    name: str
    """As people write it."""
    attribute: str
    shape: Shape
    doc: str
    unit: str
    required: bool
    default: Any
    """As JSON; None where nothing is filled in."""
    example: str
    """As people write it; "" for an object, whose fields have their own."""


def knobs(kind: type[Settings]) -> Iterator[Knob]:
    """Every field of a settings class. Raises TypeError for a type that no schema here can say."""
    for attribute, field in kind.model_fields.items():
        shape = _shape(field.annotation, tuple(field.metadata))
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        yield Knob(
            name=field.alias or attribute,
            attribute=attribute,
            shape=shape,
            doc=field.description or "",
            unit=str(extra.get("unit", "")),
            required=field.is_required(),
            default=_default(shape, field),
            example=_example(shape, field),
        )


def _shape(annotation: Any, metadata: tuple[Any, ...] = ()) -> Shape:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _shape(arguments[0], (*arguments[1:], *metadata))
    if origin in (typing.Union, types.UnionType):
        present = [one for one in arguments if one is not type(None)]
        if set(present) == {int, str}:
            return Shape("quantity", pattern=QUANTITY.pattern)
        if len(present) == 1:
            return _shape(present[0], metadata)
    limits = _limits(metadata)
    if any(isinstance(one, WithJsonSchema) for one in metadata):
        return Shape("duration", **limits)
    if origin is Literal:
        return Shape("enum", values=arguments)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return Shape("list", items=_shape(arguments[0]), **limits)
    if origin is dict:
        if arguments[1] is Any:
            return Shape("any")
        return Shape("map", items=_shape(arguments[1]), **limits)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return Shape("object", of=typing.cast(type[Settings], annotation))
    plain: dict[Any, Kind] = {bool: "boolean", int: "integer", float: "number", str: "string"}
    if annotation in plain:
        return Shape(plain[annotation], **limits)
    raise TypeError(f"{annotation!r} has no schema here")


def _limits(metadata: tuple[Any, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in metadata:
        if isinstance(one, FieldInfo):
            found |= _limits(tuple(one.metadata))
        elif isinstance(one, Ge):
            found["least"] = one.ge
        elif isinstance(one, Gt):
            found["above"] = one.gt
        elif isinstance(one, Le):
            found["most"] = one.le
        elif isinstance(one, MaxLen):
            found["longest"] = one.max_length
        elif isinstance(one, Lt):
            raise TypeError("lt is not said in schemas here: write le")
        elif pattern := getattr(one, "pattern", None):
            found["pattern"] = pattern
    return found


def _default(shape: Shape, field: FieldInfo) -> Any:
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined or value is None:
        return None
    if shape.kind == "object":
        return {}  # its fields fill themselves in
    if shape.kind == "duration":
        return format_duration(value)
    return list(value) if isinstance(value, tuple) else value


def _example(shape: Shape, field: FieldInfo) -> str:
    if field.examples:
        return _written(field.examples[0])
    if shape.kind == "enum":
        return next((value for value in reversed(shape.values) if value and value != field.default), "")
    if shape.kind == "boolean":
        return _written(not field.default)
    if shape.kind == "object" or not (default := _default(shape, field)):
        return ""
    return _written(default)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
