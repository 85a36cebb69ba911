"""The observed share is held to its target, whatever the scores are (bar: within 2 points after 2,000 requests)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from flash_router.share import HORIZON, NEVER, WINDOW, ShareController

SEEDED = [index / 100 for index in range(101)]
SCORES: dict[str, Callable[[Random], float]] = {
    "uniform": lambda rng: rng.random(),
    "low": lambda rng: rng.betavariate(1, 20),
    "high": lambda rng: rng.betavariate(20, 1),
    "constant": lambda rng: 0.3,
    "two values": lambda rng: rng.choice([0.1, 0.9]),
    "one in thirty": lambda rng: 0.02 if rng.random() < 0.97 else 0.99,
}


def run(controller: ShareController, score: Callable[[Random], float], count: int, rng: Random) -> list[bool]:
    out = []
    for _ in range(count):
        value = score(rng)
        verdict = controller.verdict(value)
        assert verdict.standard == (value >= verdict.threshold), "the threshold must explain the decision"
        controller.record(value, verdict.standard)
        out.append(verdict.standard)
    return out


def share(decisions: list[bool]) -> float:
    return sum(decisions) / len(decisions)


@pytest.mark.parametrize("target", [0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("first", SCORES)
def test_share_holds_after_a_step_to_any_distribution(target: float, first: str) -> None:
    for second in SCORES:
        rng = Random(f"{first} {second}")
        controller = ShareController(target, SEEDED)
        for name in (first, second):
            decided = run(controller, SCORES[name], 4000, rng)
            assert abs(share(decided[:2000]) - target) <= 0.02, (name, share(decided[:2000]))
            for start in range(2000, 3001, 50):
                window = decided[start : start + 1000]
                assert abs(share(window) - target) <= 0.02, (name, start, share(window))
            assert abs(controller.error) <= 0.02


def test_a_slow_drift_is_followed() -> None:
    rng = Random(5)
    controller = ShareController(0.3, SEEDED)
    decided = []
    for index in range(20_000):
        decided += run(controller, lambda rng, at=index: rng.betavariate(2, 2) * 0.5 + at / 40_000, 1, rng)
    for start in range(2000, 19_001, 250):
        assert abs(share(decided[start : start + 1000]) - 0.3) <= 0.02


def test_it_never_oscillates() -> None:
    """After a step the debt goes one way to its peak and back to nothing: no swing to the other side."""
    rng = Random(3)
    controller = ShareController(0.3, SEEDED)
    run(controller, SCORES["low"], 2000, rng)
    debt, debts = 0.0, []
    for _ in range(4000):
        debt += 0.3 - run(controller, SCORES["high"], 1, rng)[0]
        debts.append(debt)
    assert min(debts) >= -HORIZON * 0.3 - 15
    # Noise alone moves the debt by sqrt(target (1 - target) HORIZON / 2), about 3.2 requests.
    assert max(debts) < 16
    assert abs(debts[-1]) < 16


def test_constant_scores_are_divided_evenly() -> None:
    controller = ShareController(0.3, SEEDED)
    decided = run(controller, SCORES["constant"], 3000, Random(0))
    for start in range(300, 2900, 100):
        assert abs(share(decided[start : start + 100]) - 0.3) <= 0.04
    assert controller.verdict(0.3).tie
    assert not controller.verdict(0.9).tie
    assert controller.verdict(0.9).standard
    assert not controller.verdict(0.1).standard


def test_the_start_uses_the_priors_quantiles() -> None:
    controller = ShareController(0.3, SEEDED)
    assert controller.verdict(0.95).standard
    assert not controller.verdict(0.2).standard
    assert abs(controller.threshold - 0.7) < 0.02
    assert controller.observed == 0.3
    assert controller.error == 0.0


def test_bounds_are_exact() -> None:
    for target in (0.0, 1.0):
        controller = ShareController(target, SEEDED)
        for value in (0.0, 0.5, 1.0) * 100:
            assert controller.verdict(value).standard is bool(target)
            controller.record(value, bool(target))
        assert controller.observed == target
        assert controller.error == 0.0
    assert ShareController(0.0, SEEDED).threshold == NEVER
    assert ShareController(1.0, SEEDED).threshold == 0.0


def test_a_new_target_holds_at_once() -> None:
    rng = Random(9)
    controller = ShareController(0.1, SEEDED)
    run(controller, SCORES["low"], 2000, rng)
    controller.target = 0.5
    assert controller.observed == 0.5
    assert abs(share(run(controller, SCORES["low"], 500, rng)) - 0.5) <= 0.03


def test_decisions_taken_for_other_reasons_are_made_up_for() -> None:
    """Every tenth prompt goes to standard because it was truncated: the others get that much less."""
    rng = Random(2)
    controller = ShareController(0.3, SEEDED)
    decided = []
    for index in range(4000):
        value = rng.random()
        standard = controller.verdict(value).standard or index % 10 == 0
        controller.record(value, standard)
        decided.append(standard)
    assert abs(share(decided[2000:]) - 0.3) <= 0.02


def test_memory_is_bounded_and_long_overload_is_not_paid_back_for_ever() -> None:
    controller = ShareController(0.3, SEEDED)
    for _ in range(20_000):
        controller.record(0.5, True)
    assert len(controller._sorted) <= WINDOW + 200
    after = run(controller, SCORES["uniform"], 3000, Random(1))
    assert abs(share(after[1000:]) - 0.3) <= 0.02


@pytest.mark.parametrize("target", [-0.1, 1.1, float("nan")])
def test_a_share_outside_its_range_is_refused(target: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        ShareController(target, SEEDED)
