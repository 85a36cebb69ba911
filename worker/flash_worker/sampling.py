"""Draws one token for each row of logits.

Order of what changes the logits: repetition penalty, presence and frequency penalty, bias, allowed and forbidden ids.
Then temperature, top-k, top-p among what top-k kept, and the draw: the largest sum of logit and Gumbel noise, which
is a draw from the softmax. The noise is a function of (seed, position, token id), so nothing else in the batch matters.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flash_worker import noise
from flash_worker.batch import FAILED_DRAW, Draw
from flash_worker.request import Sampling

log = logging.getLogger(__name__)

Floats = npt.NDArray[np.float32]
_FIRST_K = 64
_HEAD = 256
_GROWTH = 8


class DrawError(ValueError):
    """One row cannot be drawn. Its neighbours can."""


class Sampler:
    """The CPU sampler. Holds no state."""

    @torch.inference_mode()
    def draw(self, logits: Tensor, draws: Sequence[Draw]) -> tuple[list[int], list[float]]:
        """One token id and its log-probability for each row of `logits` [n, vocab], fp32, which stay as they are.

        The log-probability is that of the model: the log-softmax of the logits as given, before penalties, bias and
        temperature. It is 0.0 where sampling.logprobs is off. A row that cannot be drawn (its logits are not finite,
        or its settings leave no token) gives FAILED_DRAW; the other rows are not touched by it.
        """
        if logits.shape[0] != len(draws):
            raise ValueError(f"{logits.shape[0]} rows of logits for {len(draws)} draws")
        # One pass over all rows; a row that is not plainly greedy is drawn again below.
        ids: list[int] = (
            logits.argmax(dim=1).tolist() if any(_is_plain(d.sampling) for d in draws) else [0] * len(draws)
        )
        logprobs = [0.0] * len(draws)
        for i, draw in enumerate(draws):
            row = logits[i]
            try:
                if not _is_plain(draw.sampling):
                    ids[i] = _draw_row(row.numpy(), draw)
                value = float(row[ids[i]])
                # NaN and infinity sort above all else, so whoever reads the largest logit sees them.
                if not np.isfinite(value) or (draw.sampling.logprobs and not np.isfinite(float(row.max()))):
                    raise DrawError("its logits are not finite")
                if draw.sampling.logprobs:
                    logprobs[i] = value - float(torch.logsumexp(row, dim=0))
            except DrawError as error:
                log.warning("a row of the step cannot be drawn: %s", error)
                ids[i], logprobs[i] = FAILED_DRAW, 0.0
        return ids, logprobs


def _is_plain(sampling: Sampling) -> bool:
    """Greedy over the logits as they are."""
    return sampling.temperature == 0 and not _edits(sampling)


def _edits(sampling: Sampling) -> bool:
    return bool(
        sampling.logit_bias
        or sampling.allowed_token_ids
        or sampling.ignore_eos
        or sampling.presence_penalty
        or sampling.frequency_penalty
        or sampling.repetition_penalty != 1.0
    )


def _draw_row(row: Floats, draw: Draw) -> int:
    sampling = draw.sampling
    if _edits(sampling):
        row = _edited(row, draw)
    top = float(row.max())
    if not np.isfinite(top):
        raise DrawError("its logits are not finite, or its settings leave no token")
    if sampling.temperature == 0:
        return int(row.argmax())
    # The largest becomes 0: a tiny temperature then cannot overflow, it only makes the others very small.
    with np.errstate(over="ignore"):
        scaled = ((row - np.float32(top)).astype(np.float64) / sampling.temperature).astype(np.float32)
    if _limits(sampling, len(row)):
        kept = np.flatnonzero(scaled >= _threshold(scaled, sampling))
        return int(kept[_noisiest(scaled[kept], kept, draw)])
    return _draw_of_all(scaled, draw)


def _edited(row: Floats, draw: Draw) -> Floats:
    """A copy with penalties, bias and masks applied. OpenAI's and Hugging Face's definitions."""
    sampling, vocab = draw.sampling, len(row)
    row = row.copy()
    if sampling.repetition_penalty != 1.0:
        seen = np.unique(_ids([*draw.prompt, *draw.answer], vocab))
        values = row[seen]
        penalty = np.float32(sampling.repetition_penalty)
        row[seen] = np.where(values > 0, values / penalty, values * penalty)
    if (sampling.presence_penalty or sampling.frequency_penalty) and len(draw.answer):
        seen, counts = np.unique(_ids(draw.answer, vocab), return_counts=True)
        row[seen] -= np.float32(sampling.presence_penalty)
        row[seen] -= np.float32(sampling.frequency_penalty) * counts.astype(np.float32)
    if sampling.logit_bias:
        row[_ids(list(sampling.logit_bias), vocab)] += np.array(list(sampling.logit_bias.values()), dtype=np.float32)
    forbidden = np.zeros(vocab, dtype=bool)
    if sampling.allowed_token_ids:
        forbidden[:] = True
        forbidden[_ids(list(sampling.allowed_token_ids), vocab)] = False
    if sampling.ignore_eos and draw.stop_ids:
        forbidden[_ids(list(draw.stop_ids), vocab)] = True
    row[forbidden] = -np.inf
    return row


def _ids(tokens: Sequence[int], vocab: int) -> npt.NDArray[np.int64]:
    ids = np.asarray(tokens, dtype=np.int64)
    if ids.size and (ids.min() < 0 or ids.max() >= vocab):
        raise DrawError(f"its settings or tokens name an id outside the vocabulary of {vocab}")
    return ids


def _limits(sampling: Sampling, vocab: int) -> bool:
    return 0 < sampling.top_k < vocab or sampling.top_p < 1.0


def _threshold(scaled: Floats, sampling: Sampling) -> np.float32:
    """The smallest logit that top-k and top-p keep. All tokens that tie with it are kept too: which of them come
    first in a partial sort is left to chance, their values are not."""
    row = torch.from_numpy(scaled)
    vocab = len(scaled)
    lowest = np.float32(-np.inf)
    if 0 < sampling.top_k < vocab:
        lowest = np.float32(torch.topk(row, sampling.top_k).values[-1])
    if sampling.top_p >= 1.0:
        return np.maximum(lowest, np.finfo(np.float32).min)
    # Weights of all that top-k kept, ties with the last included, so that the share has a fixed total.
    kept = scaled[scaled >= lowest]
    total = float(np.exp(kept.astype(np.float64)).sum())
    k = min(_FIRST_K, len(kept))
    while True:
        best = torch.topk(row, k).values.numpy()
        reached = np.cumsum(np.exp(best.astype(np.float64))) >= sampling.top_p * total
        if reached.any() or k == len(kept):
            return np.float32(best[int(reached.argmax())] if reached.any() else best[-1])
        k = min(k * _GROWTH, len(kept))


def _noisiest(scaled: Floats, tokens: npt.NDArray[np.int64], draw: Draw) -> int:
    """Index of the largest sum of logit and noise."""
    numbers = noise.uniform(draw.sampling.seed, draw.position, tokens)
    return int((scaled + noise.gumbel(numbers)).argmax())


def _draw_of_all(scaled: Floats, draw: Draw) -> int:
    """As `_noisiest` over the whole vocabulary, with logarithms only for tokens whose noise could make them win."""
    vocab = len(scaled)
    numbers = noise.uniform(draw.sampling.seed, draw.position, np.arange(vocab))
    if vocab <= _HEAD:
        return int((scaled + noise.gumbel(numbers)).argmax())
    best, head = torch.topk(torch.from_numpy(scaled), _HEAD)
    tokens = head.numpy()
    bar = float((best.numpy() + noise.gumbel(numbers[tokens])).max())
    # A token outside the head needs noise above bar minus the head's smallest logit; a hair less allows for rounding.
    needed = np.exp(-np.exp(-(bar - float(best[-1]) - 1e-6)))
    rivals = np.union1d(np.flatnonzero(numbers >= needed), tokens)
    return int(rivals[(scaled[rivals] + noise.gumbel(numbers[rivals])).argmax()])
