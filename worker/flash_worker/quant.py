"""Linear layers: fp32, and packed INT8 whose result for a row does not depend on the rows beside it."""

from __future__ import annotations

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
    """INT8 weights with a scale for each output channel, INT8 activations with a scale for each token.

    The packed kernel has one activation scale per call, taken from the smallest and the largest value it is given.
    So each row is divided by its absolute maximum, and a guard row that holds -1 and +1 always goes first: the
    kernel's scale is then the same constant in every call. Its sums are exact integers, so a row's result is the
    same bits whatever stands beside it.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """`weight` [out, in], finite. Raises ModelError where this CPU has no INT8 kernel."""
        self._reduce_range = _saturates()
        self._packed = _pack(weight)
        self._bias = bias
        self._rows = torch.zeros(0, weight.shape[1])
        self._grow(16)

    def __call__(self, x: Tensor) -> Tensor:
        tokens = x.shape[0]
        if tokens >= self._rows.shape[0]:
            self._grow(tokens)
        scale = x.abs().amax(dim=1, keepdim=True).clamp_min_(_TINY)
        rows = self._rows[: tokens + 1]
        # A row with NaN or infinity stays so through its scale; inside the shared call it must be harmless.
        torch.div(x, scale, out=rows[1:]).nan_to_num_(0.0, 0.0, 0.0)
        y: Tensor = torch.ops.quantized.linear_dynamic(rows, self._packed, self._reduce_range)[1:]
        y.mul_(scale)
        return y if self._bias is None else y.add_(self._bias)

    def _grow(self, tokens: int) -> None:
        self._rows = torch.zeros(tokens + 1, self._rows.shape[1])
        self._rows[0, 0], self._rows[0, -1] = -1.0, 1.0


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
    """Whether products of 8-bit values overflow 16 bits here, as they do on CPUs without VNNI.

    Seen by trying the worst case, since what the kernel uses is not what the CPU reports. Activations then keep 7 bits.
    """
    weight = torch.ones(8, 64)
    rows = torch.ones(8, 64)
    rows[0] = -1.0
    y = torch.ops.quantized.linear_dynamic(rows, _pack(weight), False)
    return bool((y[1:] - 64).abs().max() > 1)
