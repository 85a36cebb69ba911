"""What the scheduler hands to the model for one step. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

    from flash_worker.request import Sampling


FAILED_DRAW = -1
"""The id that a sampler gives a row whose token cannot be drawn: the request must end with "error"."""


@dataclass(frozen=True, slots=True)
class Row:
    """One request's part of a step: `tokens` at positions start, start+1, ... are run; their keys and values go to
    `pages`."""

    id: str
    tokens: Sequence[int]
    start: int
    """Tokens of this request whose keys and values are in its pages already."""
    pages: Sequence[int]
    """Page numbers in order; page i holds positions [i*block_size, (i+1)*block_size). Covers start+len(tokens)."""
    sample: bool
    """True when the last token is the newest known one, so that the next one is drawn from its logits."""


@dataclass(frozen=True, slots=True)
class Draw:
    """All that drawing one token depends on."""

    sampling: Sampling
    position: int
    """Of the drawn token in the answer (from 0): with sampling.seed it keys the noise."""
    prompt: Sequence[int]
    answer: Sequence[int]
    """Answer tokens so far: penalties count these (repetition_penalty the prompt too)."""
    stop_ids: frozenset[int]
    """End-of-text ids of the model."""


class Runner(Protocol):
    """The model on a device, with its page pool."""

    vocab_size: int
    max_model_len: int

    def step(self, rows: Sequence[Row]) -> torch.Tensor:
        """Run the rows; fp32 logits [rows with sample, vocab], in the order of `rows`.

        A request's logits do not depend on which rows stand beside it (up to fp32 rounding for fp32 weights).
        """
        ...

    def copy_page(self, source: int, target: int) -> None:
        """Copy a page's keys and values in all layers (copy-on-write)."""
        ...
