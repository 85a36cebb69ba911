"""Says in a sentence why bytes are not a protobuf message, which the protobuf library does not.

Only read after parsing has failed: it walks the wire format once, without recursion deeper than protobuf's own limit.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

_MAX_DEPTH = 100
_WIRE_TYPES = {0: "varint", 1: "64-bit", 2: "length-delimited", 5: "32-bit"}


class _Fault(Exception):
    """The sentence."""


def fault(descriptor: Any, data: bytes) -> str:
    """What is wrong with `data` as a message of this kind, naming the field where it can."""
    try:
        _walk(descriptor, memoryview(data), "", 0)
    except _Fault as found:
        return str(found)
    return f"the bytes are not a {descriptor.full_name} message"


def _walk(descriptor: Descriptor | None, data: memoryview, path: str, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise _Fault(f"{path or 'the message'} is nested more than {_MAX_DEPTH} levels deep")
    where = path or (descriptor.full_name if descriptor else "the message")
    counts: dict[int, int] = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at, where)
        number, wire = key >> 3, key & 7
        if number == 0:
            raise _Fault(f"{where}: byte {at - 1} starts no field (field number 0)")
        field = descriptor.fields_by_number.get(number) if descriptor else None
        name = _name(field, number, path, counts)
        if wire == 0:
            _, at = _varint(data, at, name)
        elif wire in (1, 5):
            at = _skip(data, at, 8 if wire == 1 else 4, name)
        elif wire == 2:
            size, at = _varint(data, at, name)
            end = _skip(data, at, size, name)
            if field is not None:
                _content(field, data[at:end], name, depth)
            at = end
        else:
            raise _Fault(f"{name}: wire type {wire} is not one of {', '.join(_WIRE_TYPES.values())}")


def _content(field: FieldDescriptor, data: memoryview, name: str, depth: int) -> None:
    if field.type == FieldDescriptor.TYPE_STRING:
        try:
            bytes(data).decode("utf-8")
        except UnicodeDecodeError as error:
            raise _Fault(
                f"{name} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start} (send text as UTF-8)"
            ) from None
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        _walk(field.message_type, data, name, depth + 1)


def _name(field: FieldDescriptor | None, number: int, path: str, counts: dict[int, int]) -> str:
    prefix = f"{path}." if path else ""
    if field is None:
        return f"{prefix}field {number}"
    if not field.is_repeated:
        return prefix + field.name
    counts[number] = counts.get(number, -1) + 1
    return f"{prefix}{field.name}[{counts[number]}]"


def _varint(data: memoryview, at: int, name: str) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise _Fault(f"{name}: the bytes end in the middle of a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _Fault(f"{name}: a number is longer than 10 bytes")


def _skip(data: memoryview, at: int, size: int, name: str) -> int:
    if size > len(data) - at:
        raise _Fault(f"{name}: says {size} bytes follow, and {len(data) - at} do")
    return at + size
