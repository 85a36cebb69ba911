"""A model made of hashes over a real page store, and a world that drives the scheduler with it. No torch.

What a page's cell holds depends on every token before it, and it is read back from the pages for each token drawn. So
a page that is wrong, stale, shared too soon or given away too early makes the tokens wrong.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from flash_worker.batch import Draw, Row
from flash_worker.kv import PagePool
from flash_worker.progress import UNKNOWN, Step
from flash_worker.request import NeverFits, Output, Request, Sampling
from flash_worker.scheduler import Scheduler

_PRIME = (1 << 61) - 1
POISON = -7
EOS = 0


def _cell(before: int, token: int) -> int:
    return (before * 1_000_003 + token * 7919 + 17) % _PRIME


def _fold(digest: int, cell: int) -> int:
    return (digest * 69_069 + cell) % _PRIME


def _token(digest: int, seed: int, vocab: int) -> int:
    return (digest ^ (seed * 0x9E3779B97F4A7C15)) % 1_000_000_007 % vocab


def alone(request: Request, vocab: int, max_model_len: int, stop_ids: frozenset[int] = frozenset({EOS})) -> list[int]:
    """The whole answer of a request that nothing disturbs, without pages or scheduler."""
    sampling, answer = request.sampling, list(request.committed)
    limit = min(len(request.prompt) + sampling.max_tokens, max_model_len)
    stops = sampling.stop_token_ids | (frozenset() if sampling.ignore_eos else stop_ids)
    before = digest = 0
    for token in (*request.prompt, *answer):
        before = _cell(before, token)
        digest = _fold(digest, before)
    while not (answer and answer[-1] in stops) and len(request.prompt) + len(answer) < limit:
        answer.append(_token(digest, sampling.seed, vocab))
        before = _cell(before, answer[-1])
        digest = _fold(digest, before)
    return answer


def make_prompt(length: int, start: int = 1) -> list[int]:
    """Token ids that differ for each start. Two with one start share a prefix."""
    return [(start * 31 + i * 5) % 49 + 1 for i in range(length)]


class Misuse(AssertionError):
    """The scheduler did to a page what a step in flight does not bear, or had it read what nobody wrote."""


@dataclass
class Launched:
    """A step on the device that has not been waited for."""

    rows: list[Row]
    starts: list[tuple[str, tuple[int, ...]]]
    """(request, pages) of each row, as they were at the launch."""
    seeds: dict[str, int]
    drawn: list[int] = field(default_factory=list)
    ran: bool = False


class FakeDevice:
    """Has `pages` pages. Steps run when they are waited for, so the last one launched is always late."""

    def __init__(self, pages: int, block_size: int, vocab_size: int = 50, max_model_len: int = 4096) -> None:
        self.vocab_size = vocab_size
        self.max_model_len = max_model_len
        self.block_size = block_size
        self.tokens_run = 0
        self.store: list[list[int]] = [[POISON] * block_size for _ in range(pages)]
        self.flying: collections.deque[Launched] = collections.deque()
        self._last: dict[str, int] = {}

    # The Runner of flash_worker.batch, with lists in the place of tensors: the "logits" are the drawn tokens' digests.

    def step(self, rows: Sequence[Row]) -> list[int]:
        """Digests of the rows with `sample`."""
        return [digest for row in rows if (digest := self._run(row, row.tokens)) is not None]

    def copy_page(self, source: int, target: int) -> None:
        self.store[target] = list(self.store[source])

    def draw(self, logits: Sequence[int], draws: Sequence[Draw]) -> tuple[list[int], list[float]]:
        """The Sampler: flash_worker.core.Sampling."""
        for draw in draws:
            assert draw.position == len(draw.answer), "a draw must see every token before it"
        ids = [_token(digest, d.sampling.seed, self.vocab_size) for digest, d in zip(logits, draws, strict=True)]
        return ids, [-float(id) for id in ids]

    def _run(self, row: Row, tokens: Sequence[int]) -> int | None:
        size = self.block_size
        if len(row.pages) * size < row.start + len(tokens):
            raise Misuse(f"{row.id}: {len(row.pages)} pages do not hold {row.start + len(tokens)} tokens")
        for position, token in enumerate(tokens, row.start):
            before = self.store[row.pages[(position - 1) // size]][(position - 1) % size] if position else 0
            if before == POISON:
                raise Misuse(f"{row.id} reads position {position - 1}, which nobody wrote")
            self.store[row.pages[position // size]][position % size] = _cell(before, token)
        self.tokens_run += len(tokens)
        if not row.sample:
            return None
        digest = 0
        for position in range(row.start + len(tokens)):
            cell = self.store[row.pages[position // size]][position % size]
            if cell == POISON:
                raise Misuse(f"{row.id} reads position {position}, which nobody wrote")
            digest = _fold(digest, cell)
        return digest

    # Overlap: launch the next step before the one before is waited for.

    def launch(self, step: Step) -> Launched:
        touched = {page: id for flying in self.flying for id, pages in flying.starts for page in pages}
        for row in step.rows:
            end = row.start + len(row.tokens)
            for page in row.pages[row.start // self.block_size : -(-end // self.block_size)]:
                if touched.get(page, row.id) != row.id:
                    raise Misuse(f"{row.id} writes page {page}, which {touched[page]} uses in a step in flight")
        drawing = [row for row in step.rows if row.sample]
        seeds = {row.id: draw.sampling.seed for row, draw in zip(drawing, step.draws, strict=True)}
        launched = Launched(list(step.rows), [(row.id, tuple(row.pages)) for row in step.rows], seeds)
        self.flying.append(launched)
        return launched

    def wait(self, launched: Launched) -> list[int]:
        """Run all that was launched up to this step, in order. Returns its drawn tokens."""
        while not launched.ran:
            first = self.flying.popleft()
            for row, (_, pages) in zip(first.rows, first.starts, strict=True):
                tokens = [self._last[row.id] if token == UNKNOWN else token for token in row.tokens]
                digest = self._run(Row(row.id, tokens, row.start, pages, row.sample), tokens)
                if digest is not None:
                    self._last[row.id] = _token(digest, first.seeds[row.id], self.vocab_size)
                    first.drawn.append(self._last[row.id])
            first.ran = True
        return launched.drawn

    def poison(self, pages: Sequence[int]) -> None:
        """These pages are free: whatever they hold is gone."""
        flying = {page for launched in self.flying for _, pages in launched.starts for page in pages}
        for page in pages:
            if page in flying:
                raise Misuse(f"page {page} is free while a step in flight uses it")
            self.store[page] = [POISON] * self.block_size


class World:
    """A scheduler, a device and a clock. After every step the account is checked page by page, and what each request
    was given is compared with its answer alone."""

    def __init__(
        self,
        *,
        pages: int = 16,
        block_size: int = 4,
        max_seqs: int = 4,
        max_step_tokens: int = 16,
        max_model_len: int = 200,
        vocab: int = 50,
        overlap: bool = False,
        prefix_cache: bool = True,
        digest: Callable[[bytes, bytes, bytes], bytes] | None = None,
    ) -> None:
        self.pool = PagePool(pages, block_size, prefix_cache=prefix_cache, digest=digest)
        self.scheduler = Scheduler(
            self.pool,
            max_seqs=max_seqs,
            max_step_tokens=max_step_tokens,
            max_model_len=max_model_len,
            vocab_size=vocab,
            stop_ids=frozenset({EOS}),
        )
        self.device = FakeDevice(pages, block_size, vocab, max_model_len)
        self.overlap = overlap
        self.now = 0.0
        self.requests: dict[str, Request] = {}
        self.answers: dict[str, list[int]] = {}
        self.ends: dict[str, Output] = {}
        self.firsts: dict[str, Output] = {}
        self.order: list[str] = []
        self.steps: list[Step] = []
        self.count = 0
        self.held_up = 0
        """How often someone ran in a step while someone older waited for pages."""
        self.preempted: collections.Counter[str] = collections.Counter()
        self._flight: tuple[Step, Launched] | None = None
        self._ids = itertools.count()
        self._expected: dict[str, list[int]] = {}

    def add(
        self,
        prompt: Sequence[int],
        max_tokens: int = 8,
        *,
        committed: Sequence[int] = (),
        deadline: float | None = None,
        domain: str = "",
        seed: int = 0,
        ignore_eos: bool = True,
        id: str = "",
    ) -> str:
        """Queue a request; returns its id. Raises as Scheduler.add does."""
        sampling = Sampling(max_tokens, temperature=0.0, seed=seed, ignore_eos=ignore_eos, logprobs=True)
        request = Request(
            id or f"r{next(self._ids)}", tuple(prompt), tuple(committed), sampling, deadline, domain=domain
        )
        self.scheduler.add(request)
        self.requests[request.id] = request
        self.answers[request.id] = list(committed)
        self._hear(self.scheduler.take())
        return request.id

    def try_add(self, *args: object, **kwargs: object) -> str:
        """add, or "" where the request can never fit."""
        try:
            return self.add(*args, **kwargs)  # type: ignore[arg-type]
        except NeverFits:
            return ""

    def abort(self, id: str) -> None:
        self.scheduler.abort(id)
        self._hear(self.scheduler.take())
        self.check()

    def step(self) -> bool:
        """One turn of the engine. False where there was nothing to do."""
        waiting, running = [p.id for p in self.scheduler.waiting], [p.id for p in self.scheduler.running]
        pages = {p.id: len(p.pages) for p in self.scheduler.running}
        step = self.scheduler.schedule(self.now)
        self._hear(self.scheduler.take())
        self.device.poison(self.pool._free)
        if step is not None:
            self._look_at(step, waiting, running)
            self._nobody_took_what_an_older_one_waits_for(step, pages)
        before = self._flight
        self._flight = (step, self.device.launch(step)) if step is not None else None
        if not self.overlap:
            assert before is None
            before = self._flight
            self._flight = None
        if before is not None:
            drawn = self.device.wait(before[1])
            self._hear(self.scheduler.settle(before[0], drawn, [-float(id) for id in drawn]))
        assert step is not None or before is not None or not self.scheduler.live, "requests wait, and nothing runs"
        self.device.poison(self.pool._free)
        self.check()
        return step is not None or before is not None

    def run(self, most: int = 20_000) -> None:
        """Step until nothing is left."""
        for _ in range(most):
            if not self.step():
                return
        raise AssertionError(f"{self.scheduler.live} requests have not ended after {most} steps")

    def check(self) -> None:
        self.scheduler.check_account()
        arrivals = [p.arrival for p in (*self.scheduler.running, *self.scheduler.waiting)]
        assert arrivals == sorted(arrivals), "someone overtook"
        assert self.scheduler.live == len(arrivals)

    def check_empty(self) -> None:
        """Nothing is left: every page is free or cached, but for the pinned ones."""
        account = self.pool.account()
        assert self.scheduler.live == 0
        assert account.held == self.pool.pinned
        assert account.in_flight == 0
        assert not (set(self.requests) ^ set(self.ends)), "each request ends, once"

    def expected(self, id: str) -> list[int]:
        if id not in self._expected:
            self._expected[id] = alone(self.requests[id], self.device.vocab_size, self.device.max_model_len)
        return self._expected[id]

    def forget_ended(self) -> None:
        """For long runs: let go of what has been compared."""
        flying = {id for launched in self.device.flying for id, _ in launched.starts}
        for id in self.ends:
            for table in (self.requests, self.answers, self._expected, self.firsts, self.preempted):
                table.pop(id, None)  # type: ignore[attr-defined]
            if id not in flying:
                self.device._last.pop(id, None)
        self.ends.clear()
        self.order.clear()

    def _look_at(self, step: Step, waiting: list[str], running: list[str]) -> None:
        self.count += 1
        if self.count <= 1000:
            self.steps.append(step)
        assert 0 < step.tokens <= self.scheduler._max_step_tokens
        assert len(step.rows) <= self.scheduler._max_seqs
        now_running = {p.id for p in self.scheduler.running}
        lost = [id for id in running if id not in now_running and id in self.scheduler._by_id]
        assert len(lost) == step.preempted
        self.preempted.update(lost)
        for id in lost:
            assert self.preempted[id] <= self.scheduler.most_preemptions(self.requests[id]), "a storm of preemptions"
        if lost:
            assert not (now_running & set(waiting)), "someone was admitted in a step that preempted"
            alive = [id for id in running if id in self.scheduler._by_id]
            assert alive[0] not in lost, "the oldest was preempted"

    def _nobody_took_what_an_older_one_waits_for(self, step: Step, before: dict[str, int]) -> None:
        if step.tokens == self.scheduler._max_step_tokens:
            return  # Whoever is left out may be so because of the budget.
        ran, held_up = {row.id for row in step.rows}, ""
        for progress in self.scheduler.running:
            if progress.id not in ran and progress.todo:
                held_up = held_up or progress.id
            elif held_up:
                self.held_up += 1
                grown = len(progress.pages) > before.get(progress.id, 0)
                assert not grown, f"{progress.id} took a page that {held_up} waits for"

    def _hear(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            id = output.id
            if id not in self.requests:
                continue  # A pin.
            assert id not in self.ends, f"{id} said something after its end"
            answer = self.answers[id]
            assert output.position == len(answer), f"{id}: position {output.position} after {len(answer)} tokens"
            if output.ids:
                self.firsts.setdefault(id, output)
            answer.extend(output.ids)
            assert list(output.logprobs) == [-float(token) for token in output.ids]
            expected = self.expected(id)
            assert answer == expected[: len(answer)], f"{id}: wrong tokens"
            if output.finish is not None:
                self.ends[id] = output
                self.order.append(id)
                if output.finish in ("stop", "length"):
                    assert answer == expected, f"{id} ended early"
