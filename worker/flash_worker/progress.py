"""One request on its way through the engine: how far its computed tokens have come after the known ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flash_worker.batch import Draw, Row

if TYPE_CHECKING:
    from flash_worker.kv import Entry
    from flash_worker.request import Request

UNKNOWN = -1
"""Stands in a row for the token that the step in flight is drawing. A runner that overlaps steps fills it in."""


class Progress:
    """A request's state. `computed` chases `known`: a prompt, a resumed answer and the next token are the same."""

    __slots__ = (
        "answer", "arrival", "cached_tokens", "chain", "chained", "computed", "domain", "done", "generation",
        "last_step", "limit", "pages", "pending", "pin", "preemptions", "published", "request", "settled",
    )  # fmt: skip

    def __init__(self, request: Request, arrival: int, limit: int, domain: str, pin: bool) -> None:
        self.request = request
        self.arrival = arrival
        self.limit = limit
        """Prompt and answer together end here at the latest."""
        self.domain = domain
        self.pin = pin
        self.answer = list(request.committed)
        """Committed and drawn tokens. Only grows."""
        self.pending = 0
        """Draws in steps that have not settled: tokens that exist but are not known yet."""
        self.pages: list[int] = []
        self.computed = 0
        """Tokens whose keys and values are in `pages`, or will be once the step in flight has settled."""
        self.settled = 0
        """Tokens of those in settled steps."""
        self.generation = 0
        """Counts how often the pages were lost, so that a step begun before that moves nothing afterwards."""
        self.preemptions = 0
        self.last_step = 0
        """The last step that had a row of this request."""
        self.published = 0
        """Full pages offered to the prefix cache."""
        self.chain: Entry | None = None
        """The prefix entry of the last of them."""
        self.chained = True
        self.cached_tokens: int | None = None
        """Prompt tokens found in the prefix cache when first admitted; None before, and once told."""
        self.done = False

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def known(self) -> int:
        """Tokens there are, counting those that the step in flight is drawing."""
        return len(self.request.prompt) + len(self.answer) + self.pending

    @property
    def todo(self) -> int:
        """Tokens that the next step could run; 0 where the draw in flight is the last."""
        return 0 if self.pending and self.known >= self.limit else self.known - self.computed

    def tokens(self, start: int, end: int) -> Sequence[int]:
        """Known tokens [start, end), with UNKNOWN for one that is being drawn."""
        prompt = self.request.prompt
        split = len(prompt)
        if end <= split:
            return prompt[start:end]
        answer = self.answer[max(0, start - split) : end - split]
        if self.pending and end > split + len(self.answer):
            answer = answer + [UNKNOWN] * (end - split - max(len(self.answer), start - split))
        return answer if start >= split else [*prompt[start:], *answer]

    def row(self, count: int, sample: bool) -> Row:
        return Row(self.id, self.tokens(self.computed, self.computed + count), self.computed, self.pages, sample)

    def draw(self, stop_ids: frozenset[int]) -> Draw:
        """`answer` is the live list: it has all tokens up to `position` once the steps before have settled."""
        return Draw(self.request.sampling, len(self.answer) + self.pending, self.request.prompt, self.answer, stop_ids)

    def lose_pages(self) -> list[int]:
        """Start over: nothing is computed any more. Returns the pages to release."""
        pages, self.pages = self.pages, []
        self.computed = self.settled = self.published = 0
        self.chain, self.chained = None, True
        self.generation += 1
        return pages


@dataclass(frozen=True, slots=True)
class Part:
    """One request's part of a step, as the scheduler needs it when the step settles."""

    progress: Progress
    generation: int
    end: int
    """Tokens computed when this step has settled."""
    sample: bool


@dataclass(frozen=True, slots=True)
class Step:
    number: int
    rows: list[Row]
    draws: list[Draw]
    """One for each row with `sample`, in the order of the rows."""
    parts: list[Part] = field(repr=False)
    preempted: int

    @property
    def tokens(self) -> int:
        return sum(len(row.tokens) for row in self.rows)
