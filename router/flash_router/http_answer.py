"""One generation over HTTP: streamed or whole, and over as soon as the client is."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, TypeVar, cast

from flash_wire.v1 import inference_pb2 as pb
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from flash_router import openai_out
from flash_router.core import Core, Refused, Why
from flash_router.metrics import Call
from flash_router.openai_types import Ask, as_asked
from flash_router.said import STATUSES, UNEXPECTED, decision_headers, retry_after

T = TypeVar("T")
_log = logging.getLogger("flash_router.http")
_STREAM_HEADERS = [
    ("content-type", "text/event-stream; charset=utf-8"),
    ("cache-control", "no-cache"),
    # A proxy that buffers would turn a stream into one late answer.
    ("x-accel-buffering", "no"),
]


STUCK_AFTER = 120.0
"""Seconds in which a client takes nothing of what is sent, after which it counts as gone."""
_LOOK_EVERY = 10.0


class ClientGone(Exception):
    """The client closed the connection, or stopped reading it."""


class Answer(Response):
    """The answer to `ask`, as an ASGI response.

    The core's iterator is opened, read and closed in one task, which ends when the client leaves: closing it is what
    frees the worker's pages. Sending waits for the client's buffer, so a slow client slows the reading down and
    nothing piles up.
    """

    def __init__(self, core: Core, ask: Ask, deadline: float | None, call: Call) -> None:
        self._core, self._ask, self._deadline, self._call = core, ask, deadline, call
        self._sending_since: float | None = None
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_gone(receive, self._serve(scope, receive, send), self._is_stuck)
        except ClientGone:
            self._call.left()

    def _is_stuck(self) -> bool:
        return self._sending_since is not None and time.monotonic() - self._sending_since > STUCK_AFTER

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = False
        try:
            events = self._core.generate(self._ask.request, deadline=self._deadline)
            async with aclosing(cast("AsyncGenerator[pb.GenerateEvent, None]", events)):
                started = await _started(events)
                self._call.started(started)
                if self._ask.stream:
                    sending = True
                    await self._stream(events, started, send)
                    return
                response = await self._whole(events, started)
        except Refused as refused:
            self._call.refused(refused)
            response = error_response(as_asked(self._ask, refused))
        except Exception:
            self._call.failed()
            _log.exception("an HTTP request failed")
            fault = Refused(Why.INTERNAL, UNEXPECTED)
            if sending:
                await _chunk(send, openai_out.error_event(fault))
                await _chunk(send, b"", more=False)
                return
            response = error_response(fault)
        await response(scope, receive, send)

    async def _stream(self, events: AsyncIterator[pb.GenerateEvent], started: pb.Started, send: Send) -> None:
        headers = [*_STREAM_HEADERS, *decision_headers(started)]
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        stream = openai_out.Stream(self._ask, started)
        if first := stream.first():
            await _chunk(send, first)
        done: pb.Done | None = None
        async for event in events:
            if event.HasField("delta"):
                if chunk := stream.delta(event.delta):
                    # A timer for each token would cost more than two stores that another task looks at.
                    self._sending_since = time.monotonic()
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                    self._sending_since = None
            elif event.HasField("done"):
                done = event.done
        done = _whole_answer(done)
        self._call.done(done)
        broken = openai_out.unfinished(done)
        await _chunk(send, stream.last(done) if broken is None else openai_out.error_event(broken[0], code=broken[2]))
        await _chunk(send, b"", more=False)

    async def _whole(self, events: AsyncIterator[pb.GenerateEvent], started: pb.Started) -> Response:
        deltas: list[pb.Delta] = []
        done: pb.Done | None = None
        async for event in events:
            if event.HasField("delta"):
                deltas.append(event.delta)
            elif event.HasField("done"):
                done = event.done
        done = _whole_answer(done)
        self._call.done(done)
        headers = dict(decision_headers(started))
        if broken := openai_out.unfinished(done):
            refused, status, code = broken
            return error_response(refused, status=status, code=code, headers=headers)
        body = openai_out.whole(self._ask, started, deltas, done)
        return Response(body, media_type="application/json", headers=headers)


async def until_gone(receive: Receive, work: Coroutine[Any, Any, T], stuck: Callable[[], bool]) -> T:
    """The result of `work`. When the client leaves first, or `stuck` says that it might as well have, `work` is
    cancelled and over before ClientGone is raised.

    The request's body must have been read: what `receive` gives after it is the disconnect.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnect(receive))
    try:
        while not (working.done() or leaving.done() or stuck()):
            await asyncio.wait((working, leaving), timeout=_LOOK_EVERY, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGone
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait((working,))
            if not working.cancelled() and (error := working.exception()):
                _log.error("ending a request whose client left failed", exc_info=error)


def error_response(
    refused: Refused, *, status: int = 0, code: str = "", headers: Mapping[str, str] | None = None
) -> Response:
    """OpenAI's error, with Retry-After (whole seconds) where another try may help and a word where it cannot."""
    extra = dict(headers or {})
    if (seconds := retry_after(refused)) is not None:
        extra["retry-after"] = str(max(1, math.ceil(seconds)))
    else:
        # OpenAI's clients would otherwise repeat every 5xx, which costs a worker and ends the same.
        extra["x-should-retry"] = "false"
    body = openai_out.dumps(openai_out.error_body(refused, code=code))
    return Response(
        body, status_code=status or STATUSES[refused.why].http, media_type="application/json", headers=extra
    )


async def _started(events: AsyncIterator[pb.GenerateEvent]) -> pb.Started:
    async for event in events:
        if event.HasField("started"):
            return event.started
        break
    raise RuntimeError("the core's first event is not Started")


def _whole_answer(done: pb.Done | None) -> pb.Done:
    if done is None:
        raise RuntimeError("the core's events ended without Done")
    return done


async def _chunk(send: Send, body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
