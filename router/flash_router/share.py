"""Holds the observed share of standard to its target, whatever the scores of the prompts that come.

A score alone is no budget: on other prompts the same threshold gives another share. So the controller ranks each
score among the recent ones, which makes the rank uniform whatever the scores are, and sends the upper part to
standard. What is still owed or overdrawn (ties, drift, decisions taken for another reason) moves the cut:

    cut = 1 - target - debt / HORIZON        debt += target - (1 if standard else 0)

In expectation debt shrinks by 1/HORIZON of itself at each request. That is a first-order loop: it has one real
pole, so it settles and cannot oscillate. The debt is bounded, because at a cut of 1 nothing goes to standard, at 0
everything does. Over N requests the share is off by (change of debt) / N.

Each router replica holds its own share; where all hold it, the fleet does.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

WINDOW = 1000
"""Scores that are remembered, and decisions that `observed` looks back on."""
SEEDS = 200
"""Scores of the prior's reference mix that stand in for requests at the start; each real one replaces one."""
HORIZON = 100
"""Requests over which a debt is paid back."""
NEVER = 2.0
"""A threshold above every score."""
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the controller says of one score. `standard` is `score >= threshold`, always."""

    standard: bool
    threshold: float
    tie: bool
    """Equal scores stood at the cut and were divided to hold the share."""


class ShareController:
    """One router's share of standard. Not for use by several threads at once; a decision takes microseconds."""

    def __init__(self, target: float, quantiles: Sequence[float]) -> None:
        """`target` in [0, 1]; `quantiles`: scores at equal steps of the prior's reference mix, rising."""
        self._target = _checked(target)
        self._sorted = _resampled(quantiles, SEEDS)
        self._seeds = deque(_spread(self._sorted))
        self._order: deque[float] = deque()
        self._debt = 0.0
        self._count = 0
        self._decided: deque[bool] = deque(maxlen=WINDOW)
        self._standard = 0

    @property
    def target(self) -> float:
        return self._target

    @target.setter
    def target(self, value: float) -> None:
        """A new target holds from the next request on: what was owed under the old one is forgotten."""
        if _checked(value) != self._target:
            self._target = value
            self._debt = 0.0
            self._decided.clear()
            self._standard = 0

    @property
    def observed(self) -> float:
        """Share of standard among the last WINDOW classified requests; the target before the first."""
        return self._standard / len(self._decided) if self._decided else self._target

    @property
    def error(self) -> float:
        """observed - target, in [-1, 1]."""
        return self.observed - self._target

    @property
    def threshold(self) -> float:
        """The score at the cut now: 0 sends everything to standard, NEVER nothing."""
        if self._target <= 0.0:
            return NEVER
        return 0.0 if self._target >= 1.0 else self._score_at(self._cut())

    def verdict(self, score: float) -> Verdict:
        """What would be decided for `score` now. Moves nothing."""
        if self._target <= 0.0:
            return Verdict(False, NEVER, False)
        if self._target >= 1.0:
            return Verdict(True, 0.0, False)
        below, upto = bisect_left(self._sorted, score), bisect_right(self._sorted, score)
        # A new score is as likely at each of the places among its equals: the golden ratio visits them evenly.
        place = (self._count * _GOLDEN) % 1.0
        rank = (below + place * (upto - below + 1)) / (len(self._sorted) + 1)
        cut = self._cut()
        standard = rank >= cut
        threshold = self._score_at(cut)
        tie = upto > below and (below / (len(self._sorted) + 1) < cut <= (upto + 1) / (len(self._sorted) + 1))
        # The cut falls among equals, or just beside this score: say the threshold that this decision obeyed.
        if standard:
            threshold = min(threshold, score)
        elif threshold <= score:
            threshold = math.nextafter(score, math.inf)
        return Verdict(standard, threshold, tie)

    def record(self, score: float, standard: bool) -> None:
        """Counts one classified request, with the tier it was given (also where not the score decided)."""
        self._count += 1
        if len(self._order) >= WINDOW:
            self._forget(self._order.popleft())
        elif self._seeds:
            self._forget(self._seeds.popleft())
        insort(self._sorted, score)
        self._order.append(score)
        if len(self._decided) == WINDOW:
            self._standard -= self._decided[0]
        self._decided.append(standard)
        self._standard += standard
        # Beyond these bounds the cut is 0 or 1 already: a larger debt would only be paid back for longer.
        debt = self._debt + self._target - standard
        self._debt = min(max(debt, -HORIZON * self._target - 1), HORIZON * (1 - self._target) + 1)

    def _cut(self) -> float:
        return 1.0 - self._target - self._debt / HORIZON

    def _forget(self, score: float) -> None:
        del self._sorted[bisect_left(self._sorted, score)]

    def _score_at(self, cut: float) -> float:
        """The score at rank `cut` of the window; beyond both ends when the cut is."""
        index = math.ceil(cut * (len(self._sorted) + 1)) - 1
        if index >= len(self._sorted):
            return NEVER
        return self._sorted[index] if index >= 0 else 0.0


def _checked(target: float) -> float:
    if not 0.0 <= target <= 1.0:
        raise ValueError(f"a share must be between 0 and 1, not {target}")
    return target


def _resampled(quantiles: Sequence[float], count: int) -> list[float]:
    """`count` scores spread as the quantiles are, rising."""
    out: list[float] = []
    for index in range(count):
        position = (index + 0.5) / count * (len(quantiles) - 1)
        left = min(int(position), len(quantiles) - 2)
        part = position - left
        out.append(quantiles[left] * (1 - part) + quantiles[left + 1] * part)
    return out


def _spread(values: Sequence[float]) -> list[float]:
    """The values in an order in which every stretch is a fair sample: forgetting the first k leaves no bias."""
    return [values[index] for index in sorted(range(len(values)), key=lambda index: (index * _GOLDEN) % 1.0)]
