"""Reads a GGUF file whose every length is checked against the file before it is believed."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from flash_worker.models.errors import ModelError

_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING: Final = 8
_ARRAY: Final = 9
_MAX_TENSORS: Final = 100_000
_MAX_FIELDS: Final = 10_000
_MAX_DIMS: Final = 4


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor lies. `shape` is row-major, as numpy and torch say it (GGUF writes it reversed)."""

    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    size: int
    """Bytes."""


class GGUFFile:
    """Metadata and tensors of a GGUF file, read through a memory map.

    `fields` holds scalars, strings and short numeric arrays; string arrays (the tokenizer's) are stepped over.
    Raises ModelError for anything that is not a whole, little-endian GGUF file of version 2 or 3.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fields: dict[str, Any] = {}
        self.tensors: dict[str, TensorInfo] = {}
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ModelError(f"{path}: cannot be read: {error}") from None
        self._end = len(self._map)
        self._at = 0
        self._read_header()

    def array(self, name: str) -> np.ndarray:
        """One tensor as fp32, in the shape that `tensors` gives. Raises ModelError for types gguf cannot dequantise."""
        info = self.tensors[name]
        raw = np.frombuffer(self._map, dtype=np.uint8, count=info.size, offset=info.offset)
        rows = raw.reshape(*info.shape[:-1], -1) if info.size else raw
        try:
            with np.errstate(all="ignore"):
                values = dequantize(rows, info.kind)
        except NotImplementedError:
            raise ModelError(
                f"{self.path}: tensor {name} has type {info.kind.name}, which cannot be read here; use a"
                " file of type Q4_0, Q4_1, Q8_0, F16 or F32"
            ) from None
        return values.reshape(info.shape).astype(np.float32, copy=False)

    def _read_header(self) -> None:
        if self._take(4, "magic") != b"GGUF":
            raise ModelError(f"{self.path}: is not a GGUF file (its first four bytes are not GGUF)")
        version = self._scalar("I")
        if version not in (2, 3):
            raise ModelError(f"{self.path}: GGUF version {version} is not known (2 and 3 are)")
        tensors, fields = self._scalar("Q"), self._scalar("Q")
        if tensors > _MAX_TENSORS or fields > _MAX_FIELDS:
            raise ModelError(f"{self.path}: claims {tensors} tensors and {fields} fields: the header is damaged")
        for _ in range(fields):
            name = self._string()
            if name in self.fields:
                raise ModelError(f"{self.path}: field {name} is there twice")
            self.fields[name] = self._value(self._scalar("I"), name)
        infos = list(self._tensor_infos(tensors))
        alignment = self.fields.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1) or alignment > 1 << 20:
            raise ModelError(f"{self.path}: general.alignment is {alignment!r}, not a power of two")
        base = -(-self._at // alignment) * alignment
        for name, kind, shape, offset, size in infos:
            if base + offset + size > self._end:
                raise ModelError(
                    f"{self.path}: tensor {name} ends at byte {base + offset + size} and the file at"
                    f" {self._end}: the file was cut short, fetch it again"
                )
            if name in self.tensors:
                raise ModelError(f"{self.path}: tensor {name} is there twice")
            self.tensors[name] = TensorInfo(kind, shape, base + offset, size)

    def _tensor_infos(self, count: int) -> Iterator[tuple[str, GGMLQuantizationType, tuple[int, ...], int, int]]:
        for _ in range(count):
            name = self._string()
            dims = self._scalar("I")
            if not 1 <= dims <= _MAX_DIMS:
                raise ModelError(f"{self.path}: tensor {name} has {dims} dimensions")
            shape = tuple(reversed([self._scalar("Q") for _ in range(dims)]))
            code, offset = self._scalar("I"), self._scalar("Q")
            try:
                kind = GGMLQuantizationType(code)
                block, width = GGML_QUANT_SIZES[kind]
            except (ValueError, KeyError):
                raise ModelError(f"{self.path}: tensor {name} has the unknown type {code}") from None
            elements = 1
            for size in shape:
                elements *= size
            if not elements or shape[-1] % block:
                raise ModelError(f"{self.path}: tensor {name} of shape {list(shape)} cannot be {kind.name}")
            yield name, kind, shape, offset, elements // block * width

    def _value(self, code: int, name: str) -> Any:
        if code in _SCALARS:
            return self._scalar(_SCALARS[code])
        if code == _STRING:
            return self._string()
        if code != _ARRAY:
            raise ModelError(f"{self.path}: field {name} has the unknown type {code}")
        inner, count = self._scalar("I"), self._scalar("Q")
        if inner in _SCALARS:
            values = self._take(count * struct.calcsize("<" + _SCALARS[inner]), name)
            return np.frombuffer(values, dtype=np.dtype("<" + _SCALARS[inner])).tolist() if count <= 4096 else None
        if inner != _STRING or count * 8 > self._end - self._at:
            raise ModelError(f"{self.path}: field {name} claims {count} values of type {inner}: the header is damaged")
        for _ in range(count):
            self._take(self._scalar("Q"), name)
        return None

    def _scalar(self, code: str) -> Any:
        return struct.unpack("<" + code, self._take(struct.calcsize("<" + code), "a number"))[0]

    def _string(self) -> str:
        try:
            return self._take(self._scalar("Q"), "a name").decode()
        except UnicodeDecodeError:
            raise ModelError(f"{self.path}: the name that ends at byte {self._at} is not UTF-8") from None

    def _take(self, size: int, what: str) -> bytes:
        if size > self._end - self._at:
            raise ModelError(
                f"{self.path}: ends inside its header ({what}, byte {self._at} of {self._end}): the file"
                " was cut short or is damaged, fetch it again"
            )
        self._at += size
        return self._map[self._at - size : self._at]
