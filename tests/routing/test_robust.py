"""The decision follows the question, not how it is framed (bar: 95 % unchanged)."""

from __future__ import annotations

from collections import Counter
from random import Random

import prior_data
import pytest
from flash_router.classify import Prior
from flash_router.decide import Decider
from flash_wire.settings import RouterLive
from prior_kinds_languages import KINDS


@pytest.mark.parametrize("seed", [1, 2])
def test_framing_changes_few_decisions(prior: Prior, seed: int) -> None:
    decider = Decider(RouterLive(), prior)
    asked: Counter[str] = Counter()
    same: Counter[str] = Counter()
    tiers: Counter[int] = Counter()
    for kind in KINDS:
        rng = Random(f"robust/{seed}/{kind.name}")
        for _ in range(5):
            values = kind.draw(rng)
            plain = decider.explain(kind.write(values, 0)).tier
            tiers[plain] += 1
            for name, messages in prior_data.variations(kind, values, rng).items():
                asked[name] += 1
                same[name] += decider.explain(messages).tier == plain
    assert min(tiers.values()) > 0.3 * tiers.total(), "both tiers must be at stake"
    assert same.total() / asked.total() >= 0.95
    for name in asked:
        assert same[name] / asked[name] >= 0.92, (name, same[name] / asked[name])
