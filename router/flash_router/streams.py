"""The router's end of the worker streams: who says Hello, what Begin is answered, where tokens go."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import grpc
from flash_wire import PROTOCOL
from flash_wire.settings import TIERS
from flash_wire.stream import ALIVE_EVERY, SILENCE
from flash_wire.tasks import end
from flash_wire.text import TextModel
from flash_wire.v1 import fleet_pb2 as fp
from flash_wire.v1 import fleet_pb2_grpc
from flash_wire.v1 import inference_pb2 as pb

from flash_router.dispatch import Dispatcher
from flash_router.session import Session, refuse
from flash_router.texts import Texts

log = logging.getLogger(__name__)

HELLO_WITHIN = 30.0
"""Seconds for Hello and, where asked for, TextAssets."""
MOST_WAITING = 10_000
"""Frames waiting for one worker: one that reads none is cut off."""

FINISHES = frozenset((pb.STOP, pb.LENGTH, pb.DEADLINE, pb.ERROR))


class WorkerStream:
    """One worker's stream, from its Hello to its end."""

    def __init__(self, hello: fp.Hello) -> None:
        self.hello = hello
        self.incarnation = hello.incarnation
        self.closed = asyncio.Event()
        self._outbox: deque[fp.RouterFrame] = deque()
        self._filled = asyncio.Event()

    def send(self, frame: fp.RouterFrame) -> None:
        """Put a frame behind the others. Never waits; a worker that does not read is cut off."""
        if len(self._outbox) >= MOST_WAITING:
            self.closed.set()
            return
        self._outbox.append(frame)
        self._filled.set()

    async def take(self) -> list[fp.RouterFrame]:
        """The frames to write now; one Alive when there was none for a second."""
        if not self._outbox:
            try:
                async with asyncio.timeout(ALIVE_EVERY):
                    await self._filled.wait()
            except TimeoutError:
                return [fp.RouterFrame(alive=fp.Alive(state="ready"))]
        self._filled.clear()
        frames = list(self._outbox)
        self._outbox.clear()
        return frames


class FleetServicer(fleet_pb2_grpc.FleetServicer):
    """Everything runs on the router's event loop, so no token meets a lock."""

    def __init__(self, dispatcher: Dispatcher, texts: Texts, router_id: str) -> None:
        self._dispatcher = dispatcher
        self._texts = texts
        self._router_id = router_id
        self._streams: dict[str, WorkerStream] = {}

    def close(self) -> None:
        """Close all streams: the router stops."""
        for stream in self._streams.values():
            stream.closed.set()

    async def Attach(self, request_iterator: AsyncIterator[fp.WorkerFrame], context: Any) -> None:
        frames = request_iterator.__aiter__()
        try:
            async with asyncio.timeout(HELLO_WITHIN):
                hello, text = await self._greet(frames, context)
        except (TimeoutError, StopAsyncIteration):
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no Hello with its TextAssets came in time")
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        stream = WorkerStream(hello)
        self._open(stream, text)
        heard = [time.monotonic()]
        tasks = {
            asyncio.create_task(self._read(stream, frames, heard)),
            asyncio.create_task(self._write(stream, context)),
            asyncio.create_task(self._watch(stream, heard)),
            asyncio.create_task(stream.closed.wait()),
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if (trouble := task.exception()) is not None and not isinstance(trouble, grpc.RpcError):
                    log.warning("stream of worker %s: %r", hello.name, trouble)
        finally:
            # First the consequences, which do not wait; then the tasks, which may.
            self._lose(stream)
            await end(*tasks)

    # -- the beginning

    async def _greet(self, frames: AsyncIterator[fp.WorkerFrame], context: Any) -> tuple[fp.Hello, TextModel]:
        """Raises ValueError with what the worker should have sent."""
        first = await anext(frames)
        if first.WhichOneof("frame") != "hello":
            raise ValueError(f"the first frame must be Hello, not {first.WhichOneof('frame')}")
        hello = first.hello
        if abs(hello.protocol - PROTOCOL) > 1:
            raise ValueError(
                f"worker {hello.name!r} speaks protocol {hello.protocol} and this router {PROTOCOL}: neighbours one"
                " apart serve each other, so update the older of the two"
            )
        if not hello.incarnation or not hello.name or hello.tier not in TIERS or not hello.revision:
            raise ValueError("Hello needs an incarnation, a name, a tier (flash or standard) and a revision")
        if not hello.max_model_len or not hello.kv_tokens:
            raise ValueError("Hello needs max_model_len and kv_tokens: the router admits by them")
        text = self._texts.get(hello.text_hash)
        welcome = fp.Welcome(protocol=PROTOCOL, router_id=self._router_id, need_text=text is None)
        await context.write(fp.RouterFrame(welcome=welcome))
        while text is None:
            frame = await anext(frames)
            kind = frame.WhichOneof("frame")
            if kind == "text_assets":
                if frame.text_assets.text_hash != hello.text_hash:
                    raise ValueError(f"Hello named text {hello.text_hash!r}, then came {frame.text_assets.text_hash!r}")
                text = await asyncio.to_thread(self._texts.read, frame.text_assets)
                self._texts.add(text)
            elif kind != "alive":
                raise ValueError(f"TextAssets must come before {kind}: Welcome said need_text")
        return hello, text

    def _open(self, stream: WorkerStream, text: TextModel) -> None:
        hello = stream.hello
        for other in list(self._streams.values()):
            # The same worker again, over a new connection; or its successor, before the old stream was seen to break.
            if other.hello.name == hello.name or other.incarnation == hello.incarnation:
                self._lose(other)
        self._streams[hello.incarnation] = stream
        log.info("worker %s (%s, revision %s) is attached", hello.name, hello.tier, hello.revision)
        self._dispatcher.worker_came(hello.incarnation, hello.name)
        self._dispatcher.roster.attach(hello, text)

    def _lose(self, stream: WorkerStream) -> None:
        """The stream is over, for whatever reason. Its jobs go to the next worker at once."""
        stream.closed.set()
        if self._streams.get(stream.incarnation) is not stream:
            return
        del self._streams[stream.incarnation]
        self._dispatcher.roster.detach(stream.incarnation)
        self._dispatcher.fates.lost(stream.incarnation, stream.hello.name)
        held = [session for session in self._dispatcher.sessions if session.holder is stream]
        log.info("worker %s is detached, with %d requests", stream.hello.name, len(held))
        for session in held:
            self._dispatcher.lost(session)

    # -- the three loops of a stream

    async def _read(self, stream: WorkerStream, frames: AsyncIterator[fp.WorkerFrame], heard: list[float]) -> None:
        async for frame in frames:
            if stream.closed.is_set():
                return
            heard[0] = time.monotonic()
            kind = frame.WhichOneof("frame")
            if kind == "tokens":
                self._tokens(stream, frame.tokens)
            elif kind == "begin":
                self._begin(stream, frame.begin)
            elif kind == "done":
                self._done(stream, frame.done)
            elif kind == "hand_back":
                self._hand_back(stream, frame.hand_back)
            elif kind == "alive":
                self._dispatcher.roster.mark(stream.incarnation, frame.alive.state)
            # Frames of a newer worker that this router does not know say nothing to it.

    async def _write(self, stream: WorkerStream, context: Any) -> None:
        while True:
            for frame in await stream.take():
                await context.write(frame)

    async def _watch(self, stream: WorkerStream, heard: list[float]) -> None:
        while (quiet := time.monotonic() - heard[0]) < SILENCE:  # noqa: ASYNC110 - no event per frame
            await asyncio.sleep(SILENCE - quiet)
        log.warning("worker %s was silent for %g s: its stream is closed", stream.hello.name, SILENCE)

    # -- frames

    def _session(self, stream: WorkerStream, job: str) -> Session | None:
        """The running session of a job, if it is of the stream's revision. A job that moved is not here any more."""
        session = self._dispatcher.sessions.get(job)
        if session is None or session.revision is None or session.revision.rev != stream.hello.revision:
            return None
        return session

    def _begin(self, stream: WorkerStream, begin: fp.Begin) -> None:
        session = self._session(stream, begin.job)
        if session is None:
            # It finished and was forgotten, or was never here: either way the worker acks it.
            stream.send(refuse(begin.job, begin.epoch, begin.nonce, fp.Refuse.DONE, "finished or unknown here"))
            return
        answer = session.begin(stream, begin.epoch, begin.nonce)
        if answer.HasField("prompt"):
            self._dispatcher.began(session)
            if (end := session.natural_end()) is not None:
                # The last worker died between its last tokens and its JobDone.
                session.finish(end[0], stop=end[1], worker_acks=True)
                answer = refuse(begin.job, begin.epoch, begin.nonce, fp.Refuse.DONE, "the answer is whole")
        stream.send(answer)

    def _tokens(self, stream: WorkerStream, tokens: fp.Tokens) -> None:
        session = self._dispatcher.sessions.get(tokens.job)
        if session is None or not session.holds(tokens.epoch, tokens.nonce):
            self._not_yours(stream, tokens.job, tokens.epoch, tokens.nonce)
        elif session.take(tokens):
            if (end := session.natural_end()) is not None:
                session.finish(end[0], stop=end[1], worker_acks=True)
        else:
            self._misplaced(stream, session, tokens.epoch, tokens.nonce)

    def _done(self, stream: WorkerStream, done: fp.JobDone) -> None:
        session = self._session(stream, done.job)
        if session is not None:
            if not session.holds(done.epoch, done.nonce):
                self._not_yours(stream, done.job, done.epoch, done.nonce)
                return
            if done.position != len(session.committed) or done.finish not in FINISHES:
                self._misplaced(stream, session, done.epoch, done.nonce)
                return
            session.finish(done.finish, done.detail, done.stop, worker_acks=True)
        stream.send(fp.RouterFrame(done_ack=fp.DoneAck(job=done.job, epoch=done.epoch, nonce=done.nonce)))

    def _hand_back(self, stream: WorkerStream, back: fp.HandBack) -> None:
        session = self._dispatcher.sessions.get(back.job)
        if session is not None and session.let_go(back.epoch, back.nonce):
            # The worker has released it, or tried to. A second release of the same epoch changes nothing.
            self._dispatcher.abandon(session, stream.incarnation)

    def _misplaced(self, stream: WorkerStream, session: Session, epoch: int, nonce: str) -> None:
        """A frame for a session of this stream that the fence refuses."""
        stream.send(refuse(session.id, epoch, nonce, fp.Refuse.STALE, f"{len(session.committed)} tokens are committed"))
        if session.let_go(epoch, nonce):
            # The holder itself lost count. Its stream is alive and the job is not: let another go on.
            log.error("worker %s lost count in request %s: it is given to another", stream.hello.name, session.id)
            self._dispatcher.abandon(session, stream.incarnation)

    def _not_yours(self, stream: WorkerStream, job: str, epoch: int, nonce: str) -> None:
        """Frames that were on their way when the session ended or went to another worker."""
        why = fp.Refuse.DONE if self._session(stream, job) is None else fp.Refuse.STALE
        stream.send(refuse(job, epoch, nonce, why, "another worker holds it, or it is over"))
