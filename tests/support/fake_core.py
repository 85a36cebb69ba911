"""A router core without a fleet: it answers by itself, in full form, and writes down what is asked of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from flash_router.core import CoreStats, ModelInfo, Refused, Why
from flash_wire.v1 import inference_pb2 as pb

WORDS = ("The", " capital", " of", " France", " is", " Paris", ".")


@dataclass
class FakeCore:
    """Implements flash_router.core.Core. Set the fields to choose what happens next."""

    words: tuple[str, ...] = WORDS
    pause: float = 0.0
    """Seconds before each word."""
    refuse: list[Refused] = field(default_factory=list)
    """Taken one by one, first before the next request's first event."""
    start_gate: asyncio.Event | None = None
    """When set, Started waits for it."""
    stall_after: int | None = None
    """After so many words nothing comes any more."""
    end: pb.Done | None = None
    """Replaces the end of the answer."""
    crash_after: int | None = None
    """After so many words an exception flies, which a real core never lets happen."""
    rule: str = ""
    is_ready: bool = True
    model: str = "chat"
    requests: list[pb.GenerateRequest] = field(default_factory=list)
    deadlines: list[float | None] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    """Ids of requests whose iterator was closed before its end."""
    finished: list[str] = field(default_factory=list)
    given: int = 0
    """Events that were taken."""
    reloaded: list[object] = field(default_factory=list)
    announced: dict[str, str] = field(default_factory=dict)
    _running: dict[str, tuple[str, asyncio.Event]] = field(default_factory=dict)

    async def generate(self, request: pb.GenerateRequest, *, deadline: float | None) -> AsyncIterator[pb.GenerateEvent]:
        self.requests.append(request)
        self.deadlines.append(deadline)
        name = request.request_id or f"req-{len(self.requests)}"
        self._check(request)
        cancelled = asyncio.Event()
        self._running[name] = (request.tenant, cancelled)
        began, over = time.monotonic(), False
        try:
            if self.start_gate is not None:
                await self.start_gate.wait()
            yield self._count(pb.GenerateEvent(started=self._started(request, name)))
            async for event in self._body(request, cancelled, began):
                over = event.HasField("done")
                yield self._count(event)
        finally:
            del self._running[name]
            (self.finished if over else self.closed).append(name)

    def _count(self, event: pb.GenerateEvent) -> pb.GenerateEvent:
        self.given += 1
        return event

    def _check(self, request: pb.GenerateRequest) -> None:
        if self.refuse:
            raise self.refuse.pop(0)
        if not self.is_ready:
            raise Refused(Why.UNAVAILABLE, "this router is stopping: ask again", retry_after=0.5)
        if request.model and request.model != self.model:
            raise Refused(Why.NOT_FOUND, f"the model {request.model!r} does not exist here", field="model")

    async def _body(
        self, request: pb.GenerateRequest, cancelled: asyncio.Event, began: float
    ) -> AsyncIterator[pb.GenerateEvent]:
        sampling = request.sampling
        most = sampling.max_tokens if sampling.HasField("max_tokens") else len(self.words)
        words = self.words[:most]
        finish = pb.LENGTH if len(words) == most and most < len(self.words) else pb.STOP
        for position, word in enumerate(words):
            if position == self.stall_after:
                await cancelled.wait()
            if position == self.crash_after:
                raise ZeroDivisionError("a fault of the core")
            if self.pause:
                await asyncio.sleep(self.pause)
            if cancelled.is_set():
                yield pb.GenerateEvent(done=self._done(pb.CANCELLED, position, began))
                return
            logprobs = [-0.5] if sampling.logprobs else []
            delta = pb.Delta(first_token=position, token_ids=[100 + position], text=word, logprobs=logprobs)
            yield pb.GenerateEvent(delta=delta)
        yield pb.GenerateEvent(done=self.end or self._done(finish, len(words), began))

    def _started(self, request: pb.GenerateRequest, name: str) -> pb.Started:
        decision = self._decision(request)
        return pb.Started(
            request_id=name, tier=decision.tier, decision=decision, queue_ms=3, model=self.model, revision="r1"
        )

    def _decision(self, request: pb.GenerateRequest) -> pb.Decision:
        if request.tier != pb.AUTO:
            return pb.Decision(tier=request.tier, how="forced")
        if self.rule:
            return pb.Decision(tier=pb.STANDARD, how="rule", rule=self.rule)
        reasons = [pb.Reason(name="length", weight=-0.8)]
        return pb.Decision(tier=pb.FLASH, how="score", score=0.12, threshold=0.41, reasons=reasons)

    def _done(self, finish: pb.FinishReason, tokens: int, began: float) -> pb.Done:
        usage = pb.Usage(prompt_tokens=11, completion_tokens=tokens, cached_tokens=4)
        total = (time.monotonic() - began) * 1000
        return pb.Done(finish=finish, usage=usage, ttft_ms=12.5, tpot_ms=2.5, total_ms=total)

    async def explain(self, request: pb.GenerateRequest) -> pb.Decision:
        self._check(request)
        return self._decision(request)

    async def cancel(self, request_id: str, tenant: str) -> bool:
        found = self._running.get(request_id)
        if found is None or found[0] != tenant:
            return False
        found[1].set()
        return True

    def models(self) -> list[ModelInfo]:
        return [
            ModelInfo(name, self.is_ready) for name in (self.model, f"{self.model}:flash", f"{self.model}:standard")
        ]

    def stats(self) -> CoreStats:
        return CoreStats(
            share=0.28,
            share_target=0.3,
            threshold=0.41,
            held={"standard": 2},
            held_tokens=500,
            running=len(self._running),
        )

    @property
    def ready(self) -> bool:
        return self.is_ready

    # what the process itself asks of flash_router.service.RouterCore

    @property
    def fleet_address(self) -> str:
        return "127.0.0.1:1"

    def announce(self, *, grpc: str, http: str) -> None:
        self.announced = {"grpc": grpc, "http": http}

    def reload(self, live: object) -> None:
        self.reloaded.append(live)

    async def stop(self, drain: float) -> None:
        self.is_ready = False
        try:
            async with asyncio.timeout(drain):
                while self._running:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        except TimeoutError:
            for _, cancelled in self._running.values():
                cancelled.set()
