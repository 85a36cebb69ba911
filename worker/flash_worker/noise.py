"""Random numbers that are a function of (seed, position, token id) and of nothing else.

Each (seed, position) opens its own SplitMix64 sequence, whose n-th number belongs to token n. So a draw needs no
state: it is the same at any batch size, after a preemption, and when another worker goes on.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB

HIGHEST = 37.5
"""No noise is above this: the largest uniform number is 1 - 2**-54."""


def _mix(value: int) -> int:
    """SplitMix64's finaliser."""
    value = ((value ^ value >> 30) * _FIRST) & _MASK
    value = ((value ^ value >> 27) * _SECOND) & _MASK
    return value ^ value >> 31


def _key(seed: int, position: int) -> int:
    return _mix(_mix(seed & _MASK) + (position + 1) * _STEP & _MASK)


def uniform(seed: int, position: int, tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """One number in (0, 1) for each token id."""
    bits = tokens.astype(np.uint64)
    bits += np.uint64(1)
    bits *= np.uint64(_STEP)
    bits += np.uint64(_key(seed, position))
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(_FIRST)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(_SECOND)
    bits ^= bits >> np.uint64(31)
    bits >>= np.uint64(11)
    # The half keeps 0 out, so that no logarithm is infinite.
    values = bits.astype(np.float64)
    values += 0.5
    values *= 2.0**-53
    # 53 bits and a half do not fit a double near 1: the largest sums would round to 1.
    return np.minimum(values, 1.0 - 2.0**-53, out=values)


def gumbel(numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Standard Gumbel noise from uniform numbers."""
    return -np.log(-np.log(numbers))
