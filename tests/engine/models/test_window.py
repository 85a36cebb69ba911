"""Sliding windows with sinks, against a plain mask over all keys."""

from __future__ import annotations

import pytest
import torch
from flash_worker.batch import Row
from support.model_steps import feed, open_runner, pages_for, prompt
from support.tiny_models import make_tiny_checkpoint

LENGTH = 150


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return make_tiny_checkpoint(tmp_path_factory.mktemp("window"), tokenizer=False)


@pytest.fixture(scope="module")
def plain(checkpoint):
    from transformers import LlamaForCausalLM

    return LlamaForCausalLM.from_pretrained(checkpoint, dtype=torch.float32, attn_implementation="eager").eval()


def masked(plain, ids: list[int], window: int, sink: int) -> torch.Tensor:
    query, key = torch.arange(len(ids))[:, None], torch.arange(len(ids))[None]
    seen = (key <= query) & ((key > query - window) | (key < sink)) if window else key <= query
    mask = torch.zeros(len(ids), len(ids)).masked_fill(~seen, torch.finfo(torch.float32).min)
    with torch.inference_mode():
        return plain(torch.tensor([ids]), attention_mask=mask[None, None]).logits[0]


@pytest.mark.parametrize(("window", "sink"), [(0, 0), (1, 0), (16, 0), (20, 4), (33, 16), (50, 37), (100, 3), (400, 4)])
@pytest.mark.parametrize("block", [1, 7, 16])
def test_equals_the_mask(checkpoint, plain, window, sink, block):
    runner = open_runner(checkpoint, window=window, sink_tokens=sink, block_size=block)
    ids = prompt(window, LENGTH, runner.vocab_size)
    expected = masked(plain, ids, window, sink)
    pages = pages_for(runner, 0, LENGTH)
    decoded = feed(runner, ids, pages, [90, 1])
    assert (decoded - expected[89:]).abs().max() < 1e-3
    chunked = feed(runner, ids, pages, [47])
    assert (chunked - expected[[46, 93, 140, 149]]).abs().max() < 1e-3


def test_the_window_changes_the_answer(checkpoint):
    ids = prompt(1, LENGTH, 384)
    full, narrow = open_runner(checkpoint), open_runner(checkpoint, window=20, sink_tokens=4)
    pages = pages_for(full, 0, LENGTH)
    assert not torch.allclose(feed(full, ids, pages, [LENGTH]), feed(narrow, ids, pages, [LENGTH]), atol=1e-2)


def test_reads_only_the_pages_that_matter(checkpoint):
    runner = open_runner(checkpoint, window=32, sink_tokens=4)
    ids = prompt(2, LENGTH, runner.vocab_size)
    pages = pages_for(runner, 0, LENGTH)
    before = feed(runner, ids, pages, [LENGTH - 1, 1])[-1]
    # Pages 1 to 6 hold positions 16 to 111: behind the sinks and before every window that the last token has.
    with torch.inference_mode():
        for layer in runner.pool._layers:
            layer[:, pages[1:7]] = 1e6
    again = runner.step([Row("r", ids[-1:], LENGTH - 1, pages, True)])[0]
    assert torch.equal(again, before)
