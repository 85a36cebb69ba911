"""The scheduler: which request runs how many tokens in the next step. Pure Python, one loop without phases.

Every request has `computed` tokens that chase its `known` ones, and a step is {request: n} under one token budget.
That covers prompts in chunks beside decodes, prefix hits, preempted and resumed requests with the same few lines.

Invariants
- `running` and `waiting` are in order of arrival, and all of `running` arrived before all of `waiting`: admission
  takes the head of waiting, preemption takes the tail of running. So nothing waits for ever and nothing overtakes.
- The oldest request is never preempted, and `check` has made sure that it fits alone: there is always progress.
- Nothing is admitted in a step that preempted.
- A request preempted p times comes back only when every running request could grow by block_size * 4**p tokens (or to
  its end), so it is preempted at most log4(its longest / block_size) + 2 times.
- A page given back while a step in flight may touch it is not used before that step has settled.

With a sliding window, pages that no token can see any more are held until the request ends: a block table that only
grows is what makes prefix pages shareable, and `room` counts on the whole footprint.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from flash_worker.batch import FAILED_DRAW
from flash_worker.kv import PINNED, Account, Entry, PagePool
from flash_worker.progress import Part, Progress, Step
from flash_worker.request import Finish, NeverFits, Output, Request, Sampling


class Scheduler:
    """Not thread-safe, except `check`. One step may be in flight while the next is scheduled; steps settle in order.

    A caller that does overlap has rows with progress.UNKNOWN for tokens that the step before is drawing, and fills
    them in on the device. One that settles each step before it schedules the next never sees them.
    """

    def __init__(
        self,
        pool: PagePool,
        *,
        max_seqs: int,
        max_step_tokens: int,
        max_model_len: int,
        vocab_size: int,
        stop_ids: frozenset[int] = frozenset(),
    ) -> None:
        """max_seqs: requests in a step. max_step_tokens: budget of a step. stop_ids: the model's end-of-text ids."""
        if max_seqs < 1 or max_step_tokens < 1 or max_model_len < 2:
            raise ValueError("max_seqs and max_step_tokens must be at least 1, and max_model_len at least 2")
        self.pool = pool
        self.running: list[Progress] = []
        self.waiting: deque[Progress] = deque()
        self.preemptions = 0
        self.prefix_queries = 0
        self.prefix_hits = 0
        self._max_seqs = max_seqs
        self._max_step_tokens = max_step_tokens
        self._max_model_len = max_model_len
        self._vocab_size = vocab_size
        self._stop_ids = stop_ids
        self._by_id: dict[str, Progress] = {}
        self._outputs: list[Output] = []
        self._arrivals = 0
        self._number = 0
        self._settled = 0

    @property
    def live(self) -> int:
        """Requests that have not ended."""
        return len(self._by_id)

    # Coming and going

    def check(self, request: Request) -> None:
        """Raises NeverFits or ValueError where the request can never run. Changes nothing."""
        prompt, committed, sampling = request.prompt, request.committed, request.sampling
        if not prompt:
            raise ValueError(f"request {request.id!r} has an empty prompt: give at least one token")
        if sampling.max_tokens < 1:
            raise ValueError(f"max_tokens is {sampling.max_tokens}: it must be at least 1")
        for name, ids in (("prompt", prompt), ("committed", committed)):
            if ids and (min(ids) < 0 or max(ids) >= self._vocab_size):
                wrong = next(id for id in ids if not 0 <= id < self._vocab_size)
                raise ValueError(f"{name} has token id {wrong}: this model's ids are 0 to {self._vocab_size - 1}")
        if len(prompt) >= self._max_model_len:
            raise NeverFits(
                f"the prompt has {len(prompt)} tokens: this worker takes {self._max_model_len}, prompt and answer"
                f" together"
            )
        needs = self.pool.pages(self._limit(request) - 1) * self.pool.block_size
        has = self.pool.usable * self.pool.block_size
        if needs > has:
            raise NeverFits(
                f"request {request.id!r} needs {needs} KV tokens (prompt {len(prompt)}, max_tokens"
                f" {sampling.max_tokens}), the pool has {has}: shorten the prompt or lower max_tokens"
            )

    def add(self, request: Request) -> None:
        """Queue a request. Raises as `check` does, and ValueError for an id that is here already.

        Where the committed tokens already end the answer, its finish is in the next `take`, with no token.
        """
        self.check(request)
        if request.id in self._by_id:
            raise ValueError(f"request {request.id!r} is here already: ids must be new")
        progress = self._enter(request, request.domain, pin=False)
        if request.committed and (finish := self._ended(progress)):
            self._finish(progress, finish)

    def add_pin(self, id: str, tokens: tuple[int, ...]) -> None:
        """Queue the computing and pinning of a prefix: whole pages. It ends with finish "length".

        Raises ValueError where it would leave too little: pins may take half of the pool, and what is here must fit.
        """
        pages = len(tokens) // self.pool.block_size
        if len(tokens) % self.pool.block_size or not tokens:
            raise ValueError(f"a pinned prefix is whole pages of {self.pool.block_size} tokens, not {len(tokens)}")
        if (self.pool.pinned + pages) * 2 > self.pool.total:
            raise ValueError(self.pool.pin_refusal(pages))
        if refusal := self._too_tight(pages):
            raise ValueError(refusal)
        request = Request(id, tokens, (), Sampling(max_tokens=1, temperature=0.0))
        self.check(request)
        self._enter(request, PINNED, pin=True)

    def abort(self, id: str, finish: Finish = "cancelled", detail: str = "") -> bool:
        """End a request at any moment, also while a step with it is in flight. False where the id is unknown."""
        progress = self._by_id.get(id)
        if progress is not None:
            self._finish(progress, finish, detail)
        return progress is not None

    def drop(self, id: str) -> None:
        """End a request without an Output: the caller has written its own."""
        if (progress := self._by_id.get(id)) is not None:
            self._remove(progress)

    def take(self) -> list[Output]:
        """What ended outside of `settle`: deadlines, aborts, resumed answers that were over."""
        outputs, self._outputs = self._outputs, []
        return outputs

    def _enter(self, request: Request, domain: str, pin: bool) -> Progress:
        self._arrivals += 1
        progress = Progress(request, self._arrivals, self._limit(request), domain, pin)
        self._by_id[request.id] = progress
        self.waiting.append(progress)
        return progress

    def _limit(self, request: Request) -> int:
        return min(len(request.prompt) + request.sampling.max_tokens, self._max_model_len)

    def _ended(self, progress: Progress) -> Finish | None:
        """Whether the answer's last token ends it."""
        sampling, last = progress.request.sampling, progress.answer[-1]
        if last in sampling.stop_token_ids or (last in self._stop_ids and not sampling.ignore_eos):
            return "stop"
        return "length" if len(progress.request.prompt) + len(progress.answer) >= progress.limit else None

    def _finish(self, progress: Progress, finish: Finish, detail: str = "") -> None:
        self._remove(progress)
        self._outputs.append(Output(progress.id, len(progress.answer), finish=finish, detail=detail))

    def _remove(self, progress: Progress) -> None:
        progress.done = True
        del self._by_id[progress.id]
        if progress in self.running:
            self.running.remove(progress)
        else:
            self.waiting.remove(progress)
        self._release(progress)

    def _release(self, progress: Progress) -> None:
        in_flight = progress.last_step > self._settled
        self.pool.release(progress.lose_pages(), progress.last_step if in_flight else None)

    # A step

    def schedule(self, now: float) -> Step | None:
        """The next step, or None where there is nothing to run. `now` is on the clock of Request.deadline."""
        for progress in [p for p in self._by_id.values() if p.request.deadline is not None]:
            assert progress.request.deadline is not None
            if progress.request.deadline <= now:
                self._finish(progress, "deadline", "the deadline passed")
        chosen: list[tuple[Progress, int]] = []
        budget = self._max_step_tokens
        preempted = self.preemptions
        held_up = False
        i = 0
        while i < len(self.running) and budget:
            progress = self.running[i]
            count = min(progress.todo, budget)
            if count and self._grow(progress, progress.computed + count, wait=held_up):
                chosen.append((progress, count))
                budget -= count
            elif count:
                held_up = True  # Whoever is younger must not take the pages that this one waits for.
            i += 1
        preempted = self.preemptions - preempted
        while not (preempted or held_up) and self.waiting and budget and len(self.running) < self._max_seqs:
            progress = self.waiting[0]
            if not self._admit(progress):
                break
            count = min(progress.todo, budget)
            if not self._grow(progress, progress.computed + count):
                raise AssertionError(f"{progress.id} was admitted without room for its first tokens")
            chosen.append((progress, count))
            budget -= count
        return self._make_step(chosen, preempted) if chosen else None

    def _grow(self, progress: Progress, tokens: int, wait: bool = False) -> bool:
        """Give a request pages for so many tokens, preempting the youngest while there are none.

        False where it must wait for a step in flight to give pages back, or was itself the youngest. wait: someone
        older waits for pages, so take none.
        """
        pool = self.pool
        more = pool.pages(tokens) - len(progress.pages)
        if more <= 0:
            return True
        if wait:
            return False
        while more > pool.available + pool.returning:
            victim = self.running[-1]
            if victim is self.running[0]:
                raise AssertionError(f"{victim.id} is alone and finds no page, though it was checked: {pool.account()}")
            self._preempt(victim)
            if victim is progress:
                return False
        if more > pool.available:
            return False
        progress.pages += pool.allocate(more)
        return True

    def _preempt(self, progress: Progress) -> None:
        """Take a request's pages. It keeps its tokens and its place, and is computed again later."""
        self.running.pop()
        self._release(progress)
        progress.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(progress)

    def _admit(self, progress: Progress) -> bool:
        """Move the head of the queue to running, with its prefix hits, if there is room for it and for some growth."""
        pool = self.pool
        hits = pool.match(progress.tokens(0, progress.known), progress.domain)
        growth = pool.block_size * 4 ** min(progress.preemptions, 16)
        wanted = sum(self._pages_ahead(p, growth) for p in [*self.running, progress])
        if wanted - len(hits) > pool.available - pool.idle(hits):
            return False
        self.waiting.popleft()
        self.running.append(progress)
        progress.pages = pool.take(hits)
        progress.computed = progress.settled = len(hits) * pool.block_size
        progress.published = len(hits)
        progress.chain = hits[-1] if hits else None
        self.prefix_queries += progress.known
        self.prefix_hits += progress.computed
        if progress.cached_tokens is None:
            progress.cached_tokens = min(progress.computed, len(progress.request.prompt))
        return True

    def _pages_ahead(self, progress: Progress, growth: int) -> int:
        """Pages that a request still wants for all it knows and `growth` tokens more, or to its end."""
        tokens = min(progress.known + growth, progress.limit - 1)
        return max(0, self.pool.pages(tokens) - len(progress.pages))

    def _make_step(self, chosen: list[tuple[Progress, int]], preempted: int) -> Step:
        self._number += 1
        step = Step(self._number, [], [], [], preempted)
        for progress, count in chosen:
            end = progress.computed + count
            sample = end == progress.known
            step.rows.append(progress.row(count, sample))
            if sample:
                step.draws.append(progress.draw(self._stop_ids))
                progress.pending += 1
            progress.computed = end
            progress.last_step = step.number
            step.parts.append(Part(progress, progress.generation, end, sample))
        return step

    def settle(self, step: Step, ids: Sequence[int], logprobs: Sequence[float]) -> list[Output]:
        """Take a step's drawn tokens, one for each of `step.draws`. Returns all that was said since the last time."""
        if len(ids) != len(step.draws) or len(logprobs) != len(step.draws):
            raise ValueError(f"step {step.number} drew {len(step.draws)} tokens, and got {len(ids)}")
        self._settled = step.number
        drawn = iter(zip(ids, logprobs, strict=True))
        for part in step.parts:
            progress = part.progress
            token, logprob = next(drawn) if part.sample else (-1, 0.0)
            if progress.done:
                continue
            if part.sample and token == FAILED_DRAW:
                # Its logits may come from keys and values that are wrong: nobody else shall read them.
                self.pool.distrust(progress.pages)
                self._finish(progress, "error", "no token can be drawn: the logits or the sampling settings allow none")
                continue
            if part.generation == progress.generation:
                progress.settled = part.end
                self._publish(progress)
            if part.sample:
                progress.pending -= 1
                progress.answer.append(token)
                self._say(progress, token, logprob)
        self.pool.settled(step.number)
        return self.take()

    def fail(self, step: Step, detail: str) -> list[Output]:
        """A step failed: its requests end with "error", and nothing that it wrote is ever read."""
        self._settled = step.number
        for part in step.parts:
            if not part.progress.done:
                self._finish(part.progress, "error", detail)
        self.pool.settled(step.number)
        return self.take()

    def _publish(self, progress: Progress) -> None:
        """Offer the pages that settled full to the prefix cache."""
        size = self.pool.block_size
        while progress.chained and (progress.published + 1) * size <= progress.settled:
            i = progress.published
            block = progress.tokens(i * size, (i + 1) * size)
            progress.chain = self.pool.publish(progress.pages[i], block, progress.chain, progress.domain)
            progress.chained = progress.chain is not None
            progress.published += 1

    def _say(self, progress: Progress, token: int, logprob: float) -> None:
        position = len(progress.answer) - 1
        finish = self._ended(progress)
        detail = ""
        if progress.pin:
            finish, detail = self._pin(progress)
        if finish:
            self._remove(progress)
        cached, progress.cached_tokens = progress.cached_tokens or 0, 0
        logprobs = (logprob,) if progress.request.sampling.logprobs else ()
        self._outputs.append(Output(progress.id, position, (token,), logprobs, finish, detail, cached_tokens=cached))

    def _too_tight(self, pages: int) -> str:
        """Why so many pages cannot be pinned: a request that is here needs them to be able to end."""
        longest = max((self.pool.pages(p.limit - 1) for p in self._by_id.values() if not p.pin), default=0)
        if longest + pages <= self.pool.usable:
            return ""
        return f"a request that needs {longest} pages is running, and pinning {pages} would not leave them"

    def _pin(self, progress: Progress) -> tuple[Finish, str]:
        entries: list[Entry] = []
        entry = progress.chain
        while entry is not None:
            entries.append(entry)
            entry = entry.parent
        if len(entries) * self.pool.block_size < len(progress.request.prompt) or not all(e.alive for e in entries):
            return "error", "a page of the prefix lost its place in the prefix table: pin it again"
        # Requests may have come since the pin was queued.
        if refusal := self._too_tight(len(entries)):
            return "error", f"pin:{refusal}"
        try:
            self.pool.pin(entries[::-1])
        except ValueError as error:
            return "error", f"pin:{error}"
        return "length", ""

    # The account

    def check_account(self) -> Account:
        """Look at every page and every request. Raises AccountBroken."""
        return self.pool.check(progress.pages for progress in self.running)

    def waste_tokens(self) -> int:
        """Places in the last pages of running requests that hold no token."""
        return sum(len(p.pages) * self.pool.block_size - p.computed for p in self.running)

    def most_preemptions(self, request: Request) -> int:
        """A bound on how often one request can be preempted."""
        return math.ceil(math.log(max(self._limit(request) / self.pool.block_size, 1), 4)) + 2
