"""Linear layers: fp32, and packed INT8 whose result for a row does not depend on the rows beside it."""

from __future__ import annotations

import threading
import warnings
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

from flash_worker.models.errors import ModelError

_ENGINES = ("fbgemm", "x86", "onednn")
_TINY = 1e-30


class Linear(Protocol):
    """y = x W^T + b for fp32 x [tokens, in]; y is fp32 [tokens, out]."""

    def __call__(self, x: Tensor) -> Tensor: ...


class Fp32Linear:
    """Full precision."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight, self.bias)


class Int8Linear:
    """INT8 weights with a scale for each output channel; activations in two INT8 digits with a scale for each token.

    The packed kernel has one activation scale per call, taken from the smallest and the largest value it is given.
    So each row is divided by its absolute maximum, and a guard row that holds -1 and +1 always goes first: the
    kernel's scale is then the same constant in every call. Its sums are exact integers, so a row's result is the
    same bits whatever stands beside it.

    One digit loses too much: rows of a language model have outliers, beside which the rest is small. What its rounding
    left is a second row of the same call, so that the weights are read once. Where the processor's INT8 product is
    narrow (see `_saturates`) a digit has one bit less.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """`weight` [out, in], finite. Raises ModelError where this build of torch has no INT8 kernel."""
        self._packed = _pack(weight)
        self._reduce_range = _saturates()
        self._bias = bias
        self._inputs = weight.shape[1]
        # The kernel's step between neighbouring values, and how many it has on each side of 0.
        self._step, self._largest = (2 / 127, 63) if self._reduce_range else (2 / 255, 127)

    def __call__(self, x: Tensor) -> Tensor:
        tokens, step, largest = x.shape[0], self._step, self._largest
        unit = x.abs().amax(dim=1, keepdim=True).clamp_min_(_TINY).div_(largest)
        # A row with NaN or infinity stays so through its unit; inside the shared call it must be harmless.
        scaled = x.div(unit).nan_to_num_(0.0, 0.0, 0.0)
        rows = _rows(2 * tokens + 1, self._inputs)
        high, low = rows[1 : tokens + 1], rows[tokens + 1 :]
        torch.round(scaled, out=high)
        torch.sub(scaled, high, out=low)
        high.mul_(step)
        low.mul_(2 * largest * step)
        y: Tensor = torch.ops.quantized.linear_dynamic(rows, self._packed, self._reduce_range)
        # Separate products and sums: a fused one would round an element by where it lies among the threads.
        total = y[tokens + 1 :].mul_(1 / (2 * largest)).add_(y[1 : tokens + 1]).mul_(unit.div_(step))
        return total if self._bias is None else total.add_(self._bias)


class _Scratch(threading.local):
    """Input rows of the packed kernel by width, shared by all layers: a copy for each would be hundreds of MB."""

    def __init__(self) -> None:
        self.by_width: dict[int, Tensor] = {}


_scratch = _Scratch()


def _rows(count: int, width: int) -> Tensor:
    """[count, width], of which row 0 is the guard."""
    rows = _scratch.by_width.get(width)
    if rows is None or rows.shape[0] < count:
        with torch.inference_mode(False):  # so that calls outside inference mode may write it too
            rows = torch.zeros(max(count, 64), width)
            rows[0, 0], rows[0, -1] = -1.0, 1.0
        _scratch.by_width[width] = rows
    return rows[:count]


def _pack(weight: Tensor) -> torch.ScriptObject:
    _choose_engine()
    scale = weight.abs().amax(dim=1).clamp_min_(_TINY).div_(127)
    zero = torch.zeros(weight.shape[0], dtype=torch.int64)
    with warnings.catch_warnings():
        # torch announces that its quantised tensors will move to another package; the packed kernel stays.
        warnings.simplefilter("ignore")
        values = torch.quantize_per_channel(weight, scale.double(), zero, 0, torch.qint8)
        return torch.ops.quantized.linear_prepack(values, None)


@cache
def _choose_engine() -> str:
    """Use the fastest INT8 engine of this build of torch, for the whole process."""
    for engine in _ENGINES:
        if engine in torch.backends.quantized.supported_engines:
            torch.backends.quantized.engine = engine
            return engine
    have = ", ".join(torch.backends.quantized.supported_engines)
    raise ModelError(
        f"weights: int8 needs torch with one of {', '.join(_ENGINES)} (this build has: {have or 'none'});"
        " write weights: fp32"
    )


@cache
def _saturates() -> bool:
    """Whether products of 8-bit values overflow 16 bits here, as they do on processors without VNNI.

    Seen by trying the worst case, since what the kernel uses is not what the processor reports.
    """
    packed = _pack(torch.ones(8, 64))
    rows = torch.ones(8, 64)
    rows[0] = -1.0
    y = torch.ops.quantized.linear_dynamic(rows, packed, False)
    return bool((y[1:] - 64).abs().max() > 1)
