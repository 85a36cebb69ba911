"""The worker's end of the streams to routers: one for each registered router, dialled again for as long as it lives."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import grpc
from flash_wire import PROTOCOL
from flash_wire.fleet import RouterRecord
from flash_wire.stream import ALIVE_EVERY, MAX_FRAME, SILENCE
from flash_wire.tasks import end
from flash_wire.text import TextModel
from flash_wire.v1 import fleet_pb2 as fp
from flash_wire.v1 import fleet_pb2_grpc

log = logging.getLogger(__name__)

CONNECT_WITHIN = 5.0
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds between two attempts to dial."""
FORGET_AFTER = 15.0
"""Seconds that a router may be missing from the fleet record before its link is given up. An open one is kept: a
record that lost its data is no reason to break a stream."""
OPTIONS = [
    ("grpc.max_receive_message_length", MAX_FRAME),
    ("grpc.max_send_message_length", MAX_FRAME),
    # A channel must not come back on a connection that another channel found dead.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 0),
]


class Listener(Protocol):
    """What a link tells (flash_worker.lease.Leases). Called on the event loop; must not block."""

    def opened(self, link: Link) -> None: ...
    def closed(self, link: Link) -> None: ...
    def received(self, link: Link, frame: fp.RouterFrame) -> None: ...


class Link:
    """The stream to one router. While it is not open, `send` drops: the jobs begin again when it opens."""

    def __init__(
        self,
        router_id: str,
        address: str,
        hello: Callable[[], fp.Hello],
        text: TextModel,
        alive: Callable[[], fp.Alive],
        listener: Listener,
    ) -> None:
        self.router_id = router_id
        self.address = address
        self.open = False
        self.seen = time.monotonic()
        """When the fleet record last had the router."""
        self._hello = hello
        self._text = text
        self._alive = alive
        self._listener = listener
        self._outbox: deque[fp.WorkerFrame] = deque()
        self._last_tokens: dict[str, fp.Tokens] = {}
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._heard = 0.0
        self._broken = False
        self._task = asyncio.create_task(self._run())

    def send(self, frame: fp.WorkerFrame) -> None:
        if not self.open:
            return
        kind = frame.WhichOneof("frame")
        if kind in ("begin", "done", "hand_back"):
            self._last_tokens.pop(getattr(frame, kind).job, None)
        self._outbox.append(frame)
        self._filled.set()

    def send_tokens(
        self,
        job: str,
        epoch: int,
        nonce: str,
        position: int,
        ids: Sequence[int],
        logprobs: Sequence[float],
        cached_tokens: int,
    ) -> None:
        """Tokens that follow unsent ones of the same job join their frame, so a slow router costs no memory."""
        if not self.open:
            return
        last = self._last_tokens.get(job)
        if last is not None and last.nonce == nonce and last.position + len(last.ids) == position:
            last.ids.extend(ids)
            last.logprobs.extend(logprobs)
            return
        frame = fp.WorkerFrame(
            tokens=fp.Tokens(
                job=job,
                epoch=epoch,
                nonce=nonce,
                position=position,
                ids=ids,
                logprobs=logprobs,
                cached_tokens=cached_tokens,
            )
        )
        self._last_tokens[job] = frame.tokens
        self._outbox.append(frame)
        self._filled.set()

    async def flushed(self, timeout: float) -> None:  # noqa: ASYNC109 - running out is not an error here
        """Until everything was written, or `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                while self.open and self._outbox:
                    self._emptied.clear()
                    await self._emptied.wait()
        except TimeoutError:
            return

    async def close(self) -> None:
        await end(self._task)

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                await self._stream()
            except (grpc.RpcError, OSError, TimeoutError, asyncio.InvalidStateError) as error:
                self._say(_brief(error))
            except _Ended as ended:
                self._say(str(ended))
            except Exception:
                log.exception("the stream to router %s failed", self.address)
            if time.monotonic() - began > SILENCE:
                pause = FIRST_PAUSE
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads dials, guards nothing
            pause = min(pause * 2, LONGEST_PAUSE)

    def _say(self, why: str) -> None:
        """Once for each break; the attempts after it say nothing new."""
        log.log(logging.DEBUG if self._broken else logging.INFO, "no stream to router %s: %s", self.address, why)
        self._broken = True

    async def _stream(self) -> None:
        """One stream, from dialling to its end."""
        async with grpc.aio.insecure_channel(self.address, options=OPTIONS) as channel:
            call = fleet_pb2_grpc.FleetStub(channel).Attach()
            tasks: list[asyncio.Task[None]] = []
            try:
                async with asyncio.timeout(CONNECT_WITHIN):
                    await self._greet(call)
                self.open = True
                self._heard = time.monotonic()
                self._broken = False
                log.info("attached to router %s", self.address)
                self._listener.opened(self)
                tasks += [
                    asyncio.create_task(self._read(call)),
                    asyncio.create_task(self._write(call)),
                    asyncio.create_task(self._watch()),
                ]
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                if self.open:
                    self.open = False
                    self._outbox.clear()
                    self._last_tokens.clear()
                    self._emptied.set()
                    self._listener.closed(self)
                call.cancel()
                await end(*tasks)

    async def _greet(self, call: Any) -> None:
        await call.write(fp.WorkerFrame(hello=self._hello()))
        frame = await call.read()
        if frame is grpc.aio.EOF:
            raise _Ended(f"refused: {await call.details() or await call.code()}")
        if frame.WhichOneof("frame") != "welcome":
            raise _Ended(f"it answered Hello with {frame.WhichOneof('frame')}")
        welcome = frame.welcome
        if welcome.router_id != self.router_id:
            raise _Ended(f"another router answers there: {welcome.router_id}, not {self.router_id}")
        if abs(welcome.protocol - PROTOCOL) > 1:
            raise _Ended(
                f"it speaks protocol {welcome.protocol} and this worker {PROTOCOL}: update the older of the two"
            )
        if welcome.need_text:
            tokenizer, template, config = self._text.assets()
            assets = fp.TextAssets(
                text_hash=self._text.hash, tokenizer_json=tokenizer, chat_template=template, config_json=config
            )
            await call.write(fp.WorkerFrame(text_assets=assets))

    async def _read(self, call: Any) -> None:
        while (frame := await call.read()) is not grpc.aio.EOF:
            self._heard = time.monotonic()
            self._listener.received(self, frame)
        raise _Ended(f"closed by the router: {await call.details() or 'no reason given'}")

    async def _write(self, call: Any) -> None:
        while True:
            if not self._outbox:
                self._emptied.set()
                try:
                    async with asyncio.timeout(ALIVE_EVERY):
                        await self._filled.wait()
                except TimeoutError:
                    self._outbox.append(fp.WorkerFrame(alive=self._alive()))
            self._filled.clear()
            while self._outbox:
                frame = self._outbox.popleft()
                if frame.WhichOneof("frame") == "tokens" and self._last_tokens.get(frame.tokens.job) is frame.tokens:
                    del self._last_tokens[frame.tokens.job]
                await call.write(frame)

    async def _watch(self) -> None:
        while (quiet := time.monotonic() - self._heard) < SILENCE:  # noqa: ASYNC110 - no event for each frame
            await asyncio.sleep(SILENCE - quiet)
        raise _Ended(f"silent for {SILENCE:g} s")


class Links:
    """One link for each router of the fleet record."""

    def __init__(self, make: Callable[[str, str], Link]) -> None:
        self._make = make
        self._links: dict[str, Link] = {}

    def __iter__(self) -> Iterator[Link]:
        return iter(list(self._links.values()))

    def get(self, router_id: str) -> Link | None:
        """The link to a router, if it is open."""
        link = self._links.get(router_id)
        return link if link is not None and link.open else None

    async def follow(self, routers: Iterable[RouterRecord]) -> None:
        """Dial the routers that are new in the fleet record; give up those that left it and cannot be reached."""
        now = time.monotonic()
        for router in routers:
            if (link := self._links.get(router.id)) is None:
                self._links[router.id] = link = self._make(router.id, router.fleet)
            link.seen = now
        for router_id, link in list(self._links.items()):
            if not link.open and now - link.seen > FORGET_AFTER:
                del self._links[router_id]
                await link.close()

    async def close(self) -> None:
        links, self._links = list(self._links.values()), {}
        await asyncio.gather(*(link.close() for link in links))


class _Ended(Exception):
    """The stream is over; the message says why."""


def _brief(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {(error.details() or '').splitlines()[0][:200] if error.details() else ''}"
    return f"{type(error).__name__} {error}"
