"""bench/batching.py with steps that all cost the same: the bound it divides by is itself right."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

BENCH = runpy.run_path(str(Path(__file__).parents[3] / "bench" / "batching.py"))


def test_the_bound_is_what_the_lengths_allow(capsys: pytest.CaptureFixture[str]):
    assert BENCH["main"](["--unit"]) == 0
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (line["bench"], line["met"]) == ("batching", True)
    load = BENCH["Load"].draw(250, 128, 512, outstanding=50, slots=32, vocab=1000, seed=0)
    # By hand: a static batch costs its longest; what waits is always the next in order of sending.
    static, queue, left = 0, list(range(50)), list(range(50, 250))
    while queue:
        batch, queue = queue[:32], queue[32:]
        static += max(load.lengths[i] for i in batch)
        for _ in batch:
            if left:
                queue.append(left.pop(0))
    assert line["figures"]["static_tokens_per_s"] == pytest.approx(sum(load.lengths) / static, abs=0.01)
    # Slots are never idle while someone waits, so no schedule is much better than the sum shared among the slots.
    least = sum(load.lengths) / 32
    assert least <= sum(load.lengths) / line["figures"]["continuous_tokens_per_s"] <= least + 512 + 1
    assert 2.7 < line["figures"]["bound"] < 3.1
    assert line["figures"]["p99_ratio"] < 0.6


def test_lengths_are_exponential_and_capped():
    load = BENCH["Load"].draw(20_000, 128, 512, outstanding=50, slots=32, vocab=1000, seed=1)
    assert min(load.lengths) == 1
    assert max(load.lengths) == 512
    # The mean of min(Exp(128), 512) is 128 * (1 - e**-4).
    assert sum(load.lengths) / len(load.lengths) == pytest.approx(125.7, rel=0.03)
    assert all(4 <= len(prompt) <= 16 for prompt in load.prompts)
