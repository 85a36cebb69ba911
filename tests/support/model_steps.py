"""Runs one or more requests on a Runner, page by page, as the scheduler would."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from flash_wire.settings import Engine
from flash_worker.batch import Row, Runner
from flash_worker.models.checkpoint import open_checkpoint
from flash_worker.models.llama import LlamaRunner
from flash_worker.models.loading import make_runner, read_weights


def open_runner(path: Path, **engine: object) -> LlamaRunner:
    """A runner without a tokenizer, with a small page pool."""
    settings = Engine(**({"kv_tokens": 1536} | engine))
    checkpoint = open_checkpoint(path)
    with torch.inference_mode():
        weights = read_weights(checkpoint, settings.weights)
        return make_runner(checkpoint.config, weights, settings, checkpoint.config.max_positions)


def pages_for(runner: LlamaRunner, number: int, tokens: int) -> list[int]:
    """Pages of request `number`: scattered over the pool, the same for the same arguments, never shared."""
    count = -(-tokens // runner.pool.block)
    pages = runner.pool.pages
    assert (number + 1) * count <= pages, "the pool is too small for so many requests"
    step = next(s for s in range(pages // 2 + 1, pages + 1) if _coprime(s, pages))
    return [(number * count + i) * step % pages for i in range(count)]


def _coprime(a: int, b: int) -> bool:
    while b:
        a, b = b, a % b
    return a == 1


def feed(runner: Runner, ids: Sequence[int], pages: Sequence[int], chunks: Iterable[int]) -> torch.Tensor:
    """Logits [chunks, vocab] after each chunk of `ids`; the last size repeats until all tokens are in."""
    at, out, sizes = 0, [], list(chunks)
    while at < len(ids):
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        out.append(runner.step([Row("r", ids[at : at + size], at, pages, True)]))
        at += size
    return torch.cat(out)


def greedy(runner: Runner, ids: Sequence[int], pages: Sequence[int], count: int) -> list[int]:
    """`count` tokens after `ids`, each the likeliest."""
    known = list(ids)
    logits = runner.step([Row("r", known, 0, pages, True)])
    for _ in range(count):
        known.append(int(logits.argmax()))
        logits = runner.step([Row("r", known[-1:], len(known) - 1, pages, True)])
    return known[len(ids) :]


def prompt(seed: int, length: int, vocab: int) -> list[int]:
    """Random tokens."""
    return torch.randint(0, vocab, (length,), generator=torch.Generator().manual_seed(seed)).tolist()
