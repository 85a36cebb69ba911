"""Metadata of a GGUF file, without its tensors.

Read here instead of with the `gguf` package because that makes an array object of every string (seconds for a real
vocabulary), needs numpy in the router, and counts on for ever where a damaged header claims 2**60 elements. Here every
count is held against the bytes that are left.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flash_wire.text.errors import TextError

_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_SIZES = {kind: struct.calcsize("<" + code) for kind, code in _SCALARS.items()}
MAX_KEYS = 65_536
MAX_ITEMS = 4_000_000
"""Elements of one array that is read."""


def read_metadata(
    file: Path, wanted: Callable[[str], bool] = lambda key: key.startswith("tokenizer.")
) -> dict[str, Any]:
    """The wanted keys with their values: int, float, bool, str, or a list of one of these.

    Raises TextError that names the place in the file.
    """
    try:
        with file.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Header(data).read(wanted)
    except OSError as error:
        raise TextError(f"cannot be read ({error.strerror or error}): check the path and its rights") from None
    except ValueError as error:
        if isinstance(error, TextError):
            raise
        raise TextError("the file is empty: download it again") from None


class _Header:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._place = 0
        self._key = ""

    def read(self, wanted: Callable[[str], bool]) -> dict[str, Any]:
        if self._data[:4] != b"GGUF":
            raise TextError(f"begins with {self._data[:4]!r} instead of b'GGUF': it is no GGUF file")
        self._place = 4
        version = self._number("I")
        if version & 0xFFFF == 0:
            raise TextError("is written for a big-endian machine: convert it again without --bigendian")
        if version not in (2, 3):
            raise TextError(
                f"has GGUF version {version}, 2 and 3 are read: convert the model again with a present llama.cpp"
            )
        self._number("Q")  # number of tensors
        keys = self._number("Q")
        if keys > MAX_KEYS:
            raise self._fault(f"claims {keys} keys, more than {MAX_KEYS}")
        values: dict[str, Any] = {}
        for number in range(keys):
            self._key = f"key {number + 1} of {keys}"
            self._key = key = self._text()
            value = self._value(self._number("I"), wanted(key))
            if key in values:
                raise self._fault("occurs twice")
            if wanted(key):
                values[key] = value
        return values

    def _value(self, kind: int, keep: bool) -> Any:
        """The value that starts here; None, only passed over, unless it is to be kept."""
        if kind == _STRING:
            return self._text() if keep else self._pass(self._number("Q"))
        if kind in _SCALARS:
            return self._number(_SCALARS[kind])
        if kind == _ARRAY:
            kind, count = self._number("I"), self._number("Q")
            if kind == _STRING:
                self._room_for(count * 8)
                if count > MAX_ITEMS:
                    raise self._fault(f"has {count} texts, more than {MAX_ITEMS}")
                if keep:
                    return [self._text() for _ in range(count)]
                for _ in range(count):
                    self._pass(self._number("Q"))
                return None
            if kind in _SCALARS:
                start = self._pass(count * _SIZES[kind])
                if not keep:
                    return None
                if count > MAX_ITEMS:
                    raise self._fault(f"has {count} numbers, more than {MAX_ITEMS}")
                return list(struct.unpack_from(f"<{count}{_SCALARS[kind]}", self._data, start))
            raise self._fault(f"is an array of type {kind}, which is not defined or an array itself")
        raise self._fault(f"has the value type {kind}, which is not defined")

    def _number(self, code: str) -> Any:
        size = struct.calcsize("<" + code)
        return struct.unpack_from("<" + code, self._data, self._pass(size))[0]

    def _text(self) -> str:
        length = self._number("Q")
        start = self._pass(length)
        try:
            return self._data[start : start + length].decode()
        except UnicodeDecodeError:
            raise self._fault("holds broken UTF-8") from None

    def _pass(self, size: int) -> int:
        """Goes `size` bytes on; gives where they start."""
        self._room_for(size)
        start = self._place
        self._place += size
        return start

    def _room_for(self, size: int) -> None:
        if size > len(self._data) - self._place:
            raise self._fault(
                f"needs {size} bytes and {len(self._data) - self._place} are left: the file is cut short or damaged"
            )

    def _fault(self, what: str) -> TextError:
        where = f"{self._key} " if self._key else ""
        return TextError(f"GGUF header, byte {self._place}: {where}{what}; download the file again")
