"""Values of a JSON body, each read as one kind or refused by name. Raises Refused(INVALID)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from flash_router.core import Refused, Why
from flash_router.validate import refuse

UINT32 = 2**32 - 1


def read_json(body: bytes) -> dict[str, Any]:
    """The body as a JSON object. Says where it is broken."""
    try:
        decoded = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _broken(f"the body is not UTF-8: byte 0x{body[error.start]:02x} at offset {error.start}") from None
    if not decoded.strip():
        raise _broken("the body is empty: send a JSON object")
    try:
        data = json.loads(decoded, parse_constant=_no_constant, parse_int=_int)
    except json.JSONDecodeError as error:
        raise _broken(f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise _broken("the body is nested too deeply") from None
    except ValueError as error:
        raise _broken(f"the body is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise _broken(f"the body is {kind_of(data)}: send a JSON object")
    return data


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        refuse(name, f"is {kind_of(value)}: write a string")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        refuse(name, f"has half of a surrogate pair at character {error.start}: it is not text")
    return str(value)


def integer(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            value = int(value)
        else:
            refuse(name, f"is {kind_of(value)}: write a whole number")
    if not low <= value <= high:
        refuse(name, f"is out of range: write a whole number from {low} to {high}")
    return int(value)


def number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        refuse(name, f"is {kind_of(value)}: write a number")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not abs(result) < 3.4e38:
        refuse(name, "is too large: write a smaller number")
    return result


def switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        refuse(name, f"is {kind_of(value)}: write true or false")
    return bool(value)


def listed(name: str, value: Any, most: int) -> list[Any]:
    if not isinstance(value, list):
        refuse(name, f"is {kind_of(value)}: write a list")
    if len(value) > most:
        refuse(name, f"has {len(value)} entries: give at most {most}")
    return list(value)


def mapping(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        refuse(name, f"is {kind_of(value)}: write an object")
    return dict(value)


def choice(name: str, value: Any, choices: Mapping[str, int]) -> int:
    key = value.lower() if isinstance(value, str) else ""
    if key not in choices:
        said = repr(value[:40]) if isinstance(value, str) else kind_of(value)
        refuse(name, f"is {said}: write {' or '.join(choices)}")
    return choices[key]


def _broken(message: str) -> Refused:
    return Refused(Why.INVALID, message)


def _int(digits: str) -> int:
    """In Python, so that other threads get their turn within a list of a million ids: the parser itself gives none."""
    return int(digits)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


def shown(name: str) -> str:
    """A client's own name in a sentence, kept short and printable."""
    return name[:60].encode("ascii", "backslashreplace").decode() or '""'


def kind_of(value: Any) -> str:
    names = {
        type(None): "null",
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), "of an unknown kind")
