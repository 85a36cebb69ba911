"""Durations as people write them ("500ms", "30s", "10m", "2h"), held as seconds."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

_PATTERN = re.compile(r"^(\d+(?:\.\d+)?)(ms|s|m|h)$")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(value: Any) -> float:
    """Seconds of "500ms", "30s", "10m" or "2h". A bare number is refused: its unit would be a guess."""
    if isinstance(value, str) and (match := _PATTERN.match(value.strip())):
        return float(match[1]) * _SECONDS[match[2]]
    raise ValueError(f"{value!r} is not a duration: write a number with ms, s, m or h, for example 30s")


def format_duration(seconds: float) -> str:
    """The shortest spelling that parses back to the same number of milliseconds."""
    milliseconds = round(seconds * 1000)
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


def _from_person_or_code(value: Any) -> Any:
    return float(value) if isinstance(value, float) else parse_duration(value)


Duration = Annotated[
    float,
    BeforeValidator(_from_person_or_code),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^\d+(\.\d+)?(ms|s|m|h)$"}),
]
"""Seconds. A YAML float is not accepted through `parse_duration`; a Python float is, for code that builds settings."""
