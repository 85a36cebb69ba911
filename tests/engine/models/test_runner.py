"""What a runner refuses, and page copies."""

from __future__ import annotations

import pytest
import torch
from flash_worker.batch import Row
from support.model_steps import feed, open_runner, prompt
from support.tiny_models import make_tiny_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return make_tiny_checkpoint(tmp_path_factory.mktemp("runner"), tokenizer=False, max_position_embeddings=96)


@pytest.fixture
def runner(checkpoint):
    return open_runner(checkpoint)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (Row("r", [1, 384], 0, [0], True), "outside the vocabulary of 384"),
        (Row("r", [-1], 0, [0], True), "outside the vocabulary"),
        (Row("r", [1] * 17, 0, [0], True), "do not cover"),
        (Row("r", [1], 16, [0], True), "do not cover"),
        (Row("r", [], 0, [0], True), "do not cover"),
        (Row("r", [1], 0, [96], True), "outside the pool"),
        (Row("r", [1], 0, [-1], True), "outside the pool"),
        (Row("r", [1], 96, list(range(7)), True), "beyond the longest"),
    ],
)
def test_refused_before_anything_is_written(runner, row, why):
    before = [layer.clone() for layer in runner.pool._layers]
    with pytest.raises(ValueError, match=why):
        runner.step([Row("fine", [1, 2], 0, [3], True), row])
    assert all(torch.equal(a, b) for a, b in zip(before, runner.pool._layers, strict=True))


def test_nothing_to_do(runner):
    assert runner.step([]).shape == (0, 384)
    assert runner.step([Row("r", [1, 2], 0, [0], False)]).shape == (0, 384)


def test_copy_page(runner):
    ids = prompt(1, 24, 384)
    expected = feed(runner, ids, [3, 4], [20, 1])[-1]
    runner.copy_page(4, 9)
    runner.step([Row("other", prompt(2, 24, 384), 0, [5, 4], True)])
    again = runner.step([Row("r", ids[-1:], 23, [3, 9], True)])[0]
    assert torch.equal(again, expected)


def test_the_pool_has_room_for_kv_tokens(checkpoint):
    assert open_runner(checkpoint, kv_tokens=1000, block_size=16).pool.pages == 63
