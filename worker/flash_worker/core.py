"""What the engine's thread does: the scheduler's steps on the model, stop strings, failures. No threads, no locks."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from flash_worker.batch import Draw, Runner
from flash_worker.kv import AccountBroken
from flash_worker.progress import Step
from flash_worker.request import Output, Request
from flash_worker.scheduler import Scheduler
from flash_worker.stats import Stats, StepStats
from flash_worker.stops import StopStrings

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

_FAILED_STEPS = 8
"""Steps that fail in a row before the engine calls itself unhealthy: the device is gone, not a request bad."""


class Sampling(Protocol):
    """Draws one token for each row of logits."""

    def draw(self, logits: torch.Tensor, draws: Sequence[Draw], /) -> tuple[list[int], list[float]]: ...


class Core:
    """One turn at a time: schedule, run, draw, settle."""

    def __init__(self, scheduler: Scheduler, runner: Runner, sampler: Sampling) -> None:
        self.scheduler = scheduler
        self.trouble = ""
        """Why nothing new should be taken; "" while all is well."""
        self.steps = 0
        self.last_step: StepStats | None = None
        """Of the last turn; None where it had no step."""
        self._runner = runner
        self._sampler = sampler
        self._stops: dict[str, StopStrings] = {}
        self._failed_in_a_row = 0
        self._failed = self._tokens = self._drawn = 0
        self._seconds = 0.0
        self.stats = self._read_figures()

    def turn(self, now: float) -> list[Output]:
        """One step, if there is work. Returns all that it gave. Raises RuntimeError where requests wait for ever."""
        step = self.scheduler.schedule(now)
        outputs = self.scheduler.take()
        self.last_step = None
        if step is not None:
            outputs += self._step(step)
        elif self.scheduler.live and not outputs:
            raise RuntimeError(f"{self.scheduler.live} requests wait and the scheduler found no work for any of them")
        for output in outputs:
            if output.finish is not None:
                self._stops.pop(output.id, None)
        self.update_stats()
        return outputs

    def update_stats(self) -> None:
        try:
            self.stats = self._read_figures()
        except AccountBroken as error:
            self._break(str(error))

    def _break(self, why: str) -> None:
        log.error("the engine is unhealthy: %s", why)
        self.trouble = self.trouble or why

    def add(self, request: Request, stops: StopStrings | None) -> list[Output]:
        if stops is not None and stops.stopped:
            return [Output(request.id, len(request.committed), finish="stop", stop=stops.stopped)]
        try:
            self.scheduler.add(request)
        except ValueError as error:  # A prefix was pinned since submit looked.
            return [Output(request.id, len(request.committed), finish="error", detail=str(error))]
        if stops is not None:
            self._stops[request.id] = stops
        return []

    def abort(self, id: str) -> list[Output]:
        self._stops.pop(id, None)
        self.scheduler.abort(id)
        return self.scheduler.take()

    def add_pin(self, id: str, tokens: tuple[int, ...]) -> list[Output]:
        try:
            self.scheduler.add_pin(id, tokens)
        except ValueError as error:
            return [Output(id, 0, finish="error", detail=f"pin:{error}")]
        return []

    def drop(self, id: str) -> None:
        """Forget a request."""
        self._stops.pop(id, None)
        self.scheduler.drop(id)

    def _step(self, step: Step) -> list[Output]:
        began = time.monotonic()
        try:
            logits = self._runner.step(step.rows)
            ids, logprobs = self._sampler.draw(logits, step.draws) if step.draws else ([], [])
            outputs = self.scheduler.settle(step, ids, logprobs)
        except Exception as error:
            log.exception("step %d failed with %d requests", step.number, len(step.rows))
            self._failed += 1
            self._failed_in_a_row += 1
            outputs = self.scheduler.fail(step, f"the step failed: {error!r}")
            # Whatever went wrong, and however far it came: each request of the step is told that it ended.
            told = {output.id for output in outputs if output.finish is not None}
            outputs += [
                Output(row.id, row.start, finish="error", detail=f"the step failed: {error!r}")
                for row in step.rows
                if row.id not in told
            ]
            try:
                self.scheduler.check_account()
            except AccountBroken as broken:
                self._break(str(broken))
            if self._failed_in_a_row >= _FAILED_STEPS:
                self._break(f"{self._failed_in_a_row} steps failed in a row, the last with {error!r}")
        else:
            self._failed_in_a_row = 0
            self._drawn += len(ids)
            outputs = [self._cut_at_stop(output) for output in outputs]
        seconds = time.monotonic() - began
        self.steps += 1
        self._tokens += step.tokens
        self._seconds += seconds
        self.last_step = StepStats(seconds, step.tokens, len(step.draws), len(step.rows), step.preempted)
        return outputs

    def _cut_at_stop(self, output: Output) -> Output:
        stops = self._stops.get(output.id)
        if stops is None or not output.ids:
            return output
        try:
            keep = stops.push(output.ids)
        except Exception as error:
            log.exception("the text of %r cannot be followed", output.id)
            self.scheduler.drop(output.id)
            return replace(output, ids=(), logprobs=(), finish="error", detail=f"decoding failed: {error!r}")
        if not stops.stopped:
            return output
        if output.finish is None:
            self.scheduler.drop(output.id)
        return replace(
            output, ids=output.ids[:keep], logprobs=output.logprobs[:keep], finish="stop", stop=stops.stopped, detail=""
        )

    def _read_figures(self) -> Stats:
        scheduler, pool = self.scheduler, self.scheduler.pool
        return Stats(
            steps=self.steps,
            failed_steps=self._failed,
            step_seconds=self._seconds,
            tokens=self._tokens,
            drawn=self._drawn,
            preemptions=scheduler.preemptions,
            prefix_queries=scheduler.prefix_queries,
            prefix_hits=scheduler.prefix_hits,
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            account=pool.account(),
            waste_tokens=scheduler.waste_tokens(),
            pinned_tokens=pool.pinned * pool.block_size,
        )
