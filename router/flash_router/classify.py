"""The linear model: P(standard is right and flash is wrong) from the counts, with the reasons.

The artefact is JSON and is checked on load: names of the counts, their means and scales, coefficients, intercept,
and the quantiles of its own scores on the reference mix, which are the share controller's first guess. scikit-learn
fits it; serving is a dot product, 50 times faster than scikit-learn's predict on one row.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from flash_router import features
from flash_router.reading import Prompt

FORMAT = 1
CLIP = 4.0
"""A count further than this from its mean, in scales, counts as this far: one odd count alone decides nothing."""
MAX_REASONS = 5
DIGITS = 6
"""Of a score: what is closer is equal."""


class PriorError(ValueError):
    """An artefact that cannot be used. The message names the file, the field and what to do."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the model says of one prompt."""

    score: float
    """P(standard is right and flash is wrong), in (0, 1)."""
    reasons: tuple[tuple[str, float], ...]
    """Counts and their part of the score in log-odds against an average prompt; largest first, at most MAX_REASONS."""
    truncated: bool
    """Part of the prompt was not read."""


@dataclass(frozen=True, slots=True)
class Prior:
    """A fitted model. Immutable; one may serve any number of threads."""

    version: str
    means: tuple[float, ...]
    scales: tuple[float, ...]
    coefficients: tuple[float, ...]
    intercept: float
    quantiles: tuple[float, ...]
    """Scores of the reference mix at equal steps from the lowest to the highest."""
    provenance: dict[str, Any]

    def judge(self, prompt: Prompt) -> Judgement:
        """Score, reasons and whether the prompt was read whole. Never fails."""
        counts, reading = features.vector(prompt)
        parts = [
            coefficient * min(max((count - mean) / scale, -CLIP), CLIP)
            for coefficient, count, mean, scale in zip(self.coefficients, counts, self.means, self.scales, strict=True)
        ]
        odds = self.intercept + math.fsum(parts)
        ranked = sorted(zip(features.NAMES, parts, strict=True), key=lambda pair: -abs(pair[1]))[:MAX_REASONS]
        reasons = tuple((name, part) for name, part in ranked if part)
        return Judgement(round(_sigmoid(odds), DIGITS), reasons, reading.truncated)


def _sigmoid(odds: float) -> float:
    if odds >= 0:
        return 1 / (1 + math.exp(-min(odds, 700.0)))
    growth = math.exp(max(odds, -700.0))
    return growth / (1 + growth)


def load(path: Path | None = None) -> Prior:
    """The artefact at `path`, or the one that ships. Raises PriorError; OSError where the file cannot be read."""
    if path is None:
        text = resources.files("flash_router").joinpath("prior.json").read_text(encoding="utf-8")
    else:
        text = path.read_text(encoding="utf-8")
    return parse(text, str(path or "prior.json"))


def parse(text: str, where: str = "prior") -> Prior:
    """The artefact written in `text`. Raises PriorError."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise PriorError(f"{where} is no JSON: {error}; make it again with tools/train_prior.py") from None
    if not isinstance(data, dict):
        raise PriorError(f"{where} must be a JSON object, not {type(data).__name__}")
    if data.get("format") != FORMAT:
        raise PriorError(f"{where}: format is {data.get('format')!r}, this release reads {FORMAT}: train it again")
    if data.get("features") != features.VERSION:
        raise PriorError(
            f"{where}: made for version {data.get('features')!r} of the counts, this release has"
            f" {features.VERSION}: train it again"
        )
    names = data.get("names")
    if not isinstance(names, list) or tuple(names) != features.NAMES:
        raise PriorError(f"{where}: names {_difference(names)}: train it again for this release")
    count = len(features.NAMES)
    scales = _numbers(data, "scales", where, count)
    if min(scales) <= 0:
        raise PriorError(f"{where}: scales must be above 0, {features.NAMES[scales.index(min(scales))]} is not")
    quantiles = _numbers(data, "quantiles", where, None)
    if len(quantiles) < 2 or list(quantiles) != sorted(quantiles) or quantiles[0] < 0 or quantiles[-1] > 1:
        raise PriorError(f"{where}: quantiles must be at least two probabilities in rising order")
    version, provenance = data.get("version"), data.get("provenance")
    if not isinstance(version, str) or not isinstance(provenance, dict):
        raise PriorError(f"{where}: version must be a text and provenance an object")
    intercept = _numbers({"intercept": [data.get("intercept")]}, "intercept", where, 1)[0]
    means, coefficients = _numbers(data, "means", where, count), _numbers(data, "coefficients", where, count)
    return Prior(version, means, scales, coefficients, intercept, quantiles, provenance)


def _numbers(data: dict[str, Any], field: str, where: str, count: int | None) -> tuple[float, ...]:
    values = data.get(field)
    if not isinstance(values, list) or (count is not None and len(values) != count):
        found = f"{len(values)} values" if isinstance(values, list) else type(values).__name__
        raise PriorError(f"{where}: {field} must be a list of {count or 'two or more'} numbers, not {found}")
    for index, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise PriorError(f"{where}: {field}[{index}] must be a finite number, not {value!r}")
    return tuple(map(float, values))


def _difference(names: object) -> str:
    if not isinstance(names, list):
        return "is missing"
    unknown: Sequence[object] = [name for name in names if name not in features.NAMES]
    missing = [name for name in features.NAMES if name not in names]
    if not unknown and not missing:
        return "stand in another order than the counts"
    return f"do not fit the counts (unknown {unknown[:3]}, missing {missing[:3]})"
