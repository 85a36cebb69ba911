"""The engine: a thread that runs the scheduler's steps on a model and hands out what each step gave."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flash_wire import room as rooms
from flash_wire.settings import Engine as EngineSettings

from flash_worker.batch import Runner
from flash_worker.core import Core, Sampling
from flash_worker.kv import PagePool
from flash_worker.request import Output, Request, Room
from flash_worker.scheduler import Scheduler
from flash_worker.stats import Stats, StepStats
from flash_worker.stops import Decoder, StopStrings

if TYPE_CHECKING:
    from flash_wire.text import TextModel

log = logging.getLogger(__name__)


class Unavailable(RuntimeError):
    """The engine takes no request now: it is closing, unhealthy, or its queue is full. The message says which."""


@dataclass(slots=True)
class _Live:
    """What the caller's side knows of a request that has not ended."""

    prompt: int
    answer: int
    max_tokens: int


class Engine:
    """Runs requests on a model.

    All methods may be called from any thread. `on_output` is called from the engine's own thread, once for each step
    that gave something, with everything it gave; it must not block. Each submitted request ends in exactly one
    Output with `finish` set, also when it is aborted, its step fails or the engine closes.
    """

    def __init__(
        self,
        runner: Runner,
        sampler: Sampling,
        text: TextModel | None,
        settings: EngineSettings,
        *,
        on_output: Callable[[list[Output]], None] = lambda outputs: None,
        on_step: Callable[[StepStats], None] = lambda stats: None,
        stop_ids: frozenset[int] | None = None,
        decoder: Callable[[Sequence[str]], Decoder] | None = None,
        max_waiting: int = 1024,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """text: gives the end-of-text ids and decodes for stop strings; without it, pass `stop_ids` (and `decoder`,
        if requests may have stop strings). clock: what Request.deadline is measured by.

        The runner's page pool must have settings.kv_tokens // settings.block_size pages.
        """
        self.on_output = on_output
        self.on_step = on_step
        self._text = text
        self._decoder = decoder
        self._clock = clock
        self._settings = settings
        self._max_waiting = max_waiting
        self._max_model_len = min(settings.max_model_len or runner.max_model_len, runner.max_model_len)
        if stop_ids is None:
            stop_ids = text.stop_ids if text is not None else frozenset()
        self._pool = PagePool(
            settings.kv_tokens // settings.block_size, settings.block_size, prefix_cache=settings.prefix_cache
        )
        self._scheduler = scheduler = Scheduler(
            self._pool,
            max_seqs=settings.max_seqs,
            max_step_tokens=settings.max_step_tokens,
            max_model_len=self._max_model_len,
            vocab_size=runner.vocab_size,
            stop_ids=stop_ids,
        )
        self._core = Core(scheduler, runner, sampler)
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._inbox: deque[Callable[[], list[Output]]] = deque()
        self._live: dict[str, _Live] = {}
        self._pinned = 0
        self._pins: dict[str, tuple[threading.Event, list[str]]] = {}
        self._closing = False
        self._stopping = False
        self._died = ""
        self._progress = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    # What callers see

    def start(self) -> None:
        """Start the engine's thread. Once only."""
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Take a request. Raises NeverFits or ValueError where it can never run, Unavailable where not now.

        A request whose committed tokens already end the answer gets its finish at once, with no token.
        """
        self._scheduler.check(request)
        stops = None
        if request.sampling.stop:
            stops = StopStrings(self._make_decoder(request.sampling.stop), request.committed)
        with self._wake:
            self._refuse_if_unavailable()
            if request.id in self._live:
                raise ValueError(f"request {request.id!r} is running already: ids must be new")
            if len(self._live) >= self._settings.max_seqs + self._max_waiting:
                raise Unavailable(f"{len(self._live)} requests are here already, which is all that may run and wait")
            if not self.busy:
                self._progress = time.monotonic()
            self._live[request.id] = _Live(len(request.prompt), len(request.committed), request.sampling.max_tokens)
            self._post(lambda: self._core.add(request, stops))

    def abort(self, id: str) -> None:
        """End a request with finish "cancelled". An id that is unknown or has ended is left alone."""
        with self._wake:
            if id in self._live:
                self._post(lambda: self._core.abort(id))

    def pin(self, prefix: Sequence[int], timeout: float = 600.0) -> int:
        """Compute a prefix's pages and keep them for ever, for every request that starts so. Waits until it is done.

        Returns the number of tokens pinned: whole pages only. Raises ValueError where the pool is too small, and
        RuntimeError where the step failed or the time ran out.
        """
        tokens = tuple(prefix)
        tokens = tokens[: len(tokens) // self._settings.block_size * self._settings.block_size]
        if not tokens:
            return 0
        done, trouble = threading.Event(), list[str]()
        with self._wake:
            self._refuse_if_unavailable()
            if not self.busy:
                self._progress = time.monotonic()
            self._pinned += 1
            id = f"\0pin-{self._pinned}"
            self._pins[id] = (done, trouble)
            self._post(lambda: self._core.add_pin(id, tokens))
        if not done.wait(timeout):
            self._pins.pop(id, None)
            raise RuntimeError(f"pinning a prefix of {len(tokens)} tokens took over {timeout:g} s")
        if trouble:
            raise (ValueError if trouble[0].startswith("pin:") else RuntimeError)(trouble[0].removeprefix("pin:"))
        return len(tokens)

    def need(self, prompt: int, committed: int, max_tokens: int) -> int:
        """KV tokens that must be free to take such a request: the same figure as the router's."""
        return rooms.need(
            prompt,
            committed,
            max_tokens,
            block_size=self._settings.block_size,
            max_model_len=self._max_model_len,
        )

    def room(self) -> Room:
        """What may be claimed now. Requests whose needs sum to at most kv_tokens fit beside those that are here."""
        most = self._pool.usable * self._pool.block_size
        with self._lock:
            if self._closing or self.trouble:
                return Room(0, 0, self._settings.max_seqs, most)
            taken = sum(self.need(live.prompt, live.answer, live.max_tokens) for live in self._live.values())
            slots = max(0, self._settings.max_seqs - len(self._live))
        return Room(slots, max(0, most - taken), self._settings.max_seqs, most)

    @property
    def steps(self) -> int:
        """Steps that have run: what liveness looks at, together with `busy`."""
        return self._core.steps

    @property
    def busy(self) -> bool:
        """True while a request has not ended."""
        return bool(self._live or self._pins)

    @property
    def healthy(self) -> bool:
        return not self.trouble

    @property
    def trouble(self) -> str:
        """Why the engine is not healthy; "" while it is."""
        return self._died or self._core.trouble

    def last_step_age(self) -> float:
        """Seconds since the engine last got on: since its last step, or since it became busy. 0 while idle."""
        return time.monotonic() - self._progress if self.busy else 0.0

    def stats(self) -> Stats:
        """The figures as of the last step."""
        return self._core.stats

    def close(self, drain: float = 0.0) -> None:
        """Take nothing more, run on for up to `drain` seconds, cancel what is left, and end the thread.

        A caller that can hand requests back to a queue should abort them itself before this.
        """
        with self._wake:
            self._closing = True
            self._wake.notify_all()
            if self._thread.is_alive():
                self._wake.wait_for(lambda: not self.busy, timeout=drain)
            self._stopping = True
            self._wake.notify_all()
        if self._thread.ident is None:
            self._end_all()
        elif threading.current_thread() is not self._thread:
            self._thread.join()

    def _refuse_if_unavailable(self) -> None:
        if self.trouble:
            raise Unavailable(f"the engine is unhealthy: {self.trouble}")
        if self._closing:
            raise Unavailable("the engine is closing")

    def _post(self, message: Callable[[], list[Output]]) -> None:
        """Leave a message for the engine's thread. The lock is held."""
        self._inbox.append(message)
        self._wake.notify_all()

    def _make_decoder(self, stop: Sequence[str]) -> Decoder:
        if self._decoder is not None:
            return self._decoder(stop)
        if self._text is None:
            raise ValueError("stop strings need a tokenizer, and this engine was made without one")
        from flash_wire.text import StreamDecoder

        return StreamDecoder(self._text, stop)

    # The engine's thread

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self._turn()
        except Exception as error:
            log.exception("the engine's loop failed")
            with self._lock:
                self._died = f"the engine's loop failed: {error!r}"
        finally:
            self._end_all()

    def _wait_for_work(self) -> bool:
        with self._wake:
            while not (self._inbox or self._scheduler.live or self._stopping):
                self._wake.wait()
            return not self._stopping

    def _turn(self) -> None:
        outputs: list[Output] = []
        while True:
            with self._lock:
                if not self._inbox:
                    break
                message = self._inbox.popleft()
            outputs += message()
        outputs += self._core.turn(self._clock())
        self._progress = time.monotonic()
        self._hand_out(outputs)
        if self._core.last_step is not None:
            self._call(self.on_step, self._core.last_step)

    def _hand_out(self, outputs: list[Output]) -> None:
        if not outputs:
            return
        seen = []
        with self._wake:
            for output in outputs:
                if output.id in self._pins:
                    if output.finish is not None:
                        done, trouble = self._pins.pop(output.id)
                        trouble.extend([output.detail] if output.finish == "error" else [])
                        done.set()
                elif (live := self._live.get(output.id)) is not None:
                    if not output.ids:
                        # After a failure inside a step: what was told counts, not what was drawn.
                        output = replace(output, position=live.answer)
                    live.answer = output.position + len(output.ids)
                    seen.append(output)
                    if output.finish is not None:
                        del self._live[output.id]
            if not self.busy:
                self._wake.notify_all()
        if seen:
            self._call(self.on_output, seen)

    def _call(self, hook: Callable[..., None], argument: object) -> None:
        """Run someone else's code: its mistakes are logged and do not end the engine."""
        try:
            hook(argument)
        except Exception:
            log.exception("%r failed", hook)

    def _end_all(self) -> None:
        """Nothing runs any more: everyone who waits is told."""
        with self._lock:
            left = [(id, live.answer) for id, live in self._live.items()] + [(id, 0) for id in self._pins]
            self._inbox.clear()
        why = self._died
        try:
            for id, _ in left:
                self._core.drop(id)
            self._core.update_stats()
        except Exception:
            log.exception("the engine's pages could not all be given back at its end")
        self._hand_out(
            [
                Output(id, answer, finish="error" if why else "cancelled", detail=why or "the engine was closed")
                for id, answer in left
            ]
        )
