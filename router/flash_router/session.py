"""One request's life: the fence, the committed tokens, their text, and the client that reads them.

The committed list is the truth. Tokens are taken only from the current (epoch, nonce) and only at position
len(committed), so no token is lost or repeated, whatever workers and broker do. Readers hold two cursors into
the committed tokens and their text: a slow client finds a longer delta, never a longer queue.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Protocol

from flash_wire.broker.types import Level
from flash_wire.text import StreamDecoder
from flash_wire.v1 import fleet_pb2 as fp
from flash_wire.v1 import inference_pb2 as pb

from flash_router.core import Refused, Why
from flash_router.crashes import Crashes

if TYPE_CHECKING:
    from flash_router.roster import Revision


GRACE = 10.0
"""Seconds in which a client with a request_id may come back before its request is cancelled: a reconnect takes a client
1 to 3 s with the usual backoff, a pod that is rescheduled does not come back at all, and the worker's room is taken all
that time."""


class Holder(Protocol):
    """The worker's stream that runs a session now (flash_router.streams)."""

    incarnation: str

    def send(self, frame: fp.RouterFrame) -> None: ...


class Session:
    """A request from its arrival until it is forgotten. All of it runs on the router's event loop."""

    def __init__(self, job: str, request: pb.GenerateRequest, *, level: Level, deadline: float) -> None:
        self.id = job
        self.request_id = request.request_id
        self.tenant = request.tenant
        self.level: Level = level
        self.deadline = deadline
        """time.monotonic() seconds: the client's, or limits.maxDuration."""
        self.model = ""
        self.tier = ""
        self.decision = pb.Decision()
        self.request = request
        """Empty once the session ended: a prompt can be megabytes."""
        self.digest = digest(request) if request.request_id else b""

        self.revision: Revision | None = None
        self.prompt_ids: list[int] = []
        self.sampling = pb.Sampling()
        """Every field set, once the revision is known."""
        self._decoder: StreamDecoder | None = None
        self._stop_ids: frozenset[int] = frozenset()

        self.committed: list[int] = []
        self.logprobs: list[float] = []
        self.pieces: list[str] = []
        """Text as it became certain; its concatenation is never taken back."""
        self.epoch = 0
        """The highest that was accepted: the base for the broker when it forgets."""
        self.nonce = ""
        self.holder: Holder | None = None
        self.alone = False
        self.crashes = Crashes()

        self.arrived = time.monotonic()
        self.began: float | None = None
        self.first_token: float | None = None
        self.last_token: float | None = None
        self.ended: float | None = None
        self.begins = 0
        self.resumed = 0
        self.cached_tokens = 0
        self.done: pb.Done | None = None
        self.refusal: Refused | None = None
        self.note = ""
        """For Done.detail, where nothing else is to be said."""
        self.worker_acks = False
        """The end came from a worker, which ends the job in the broker too once it has the router's word."""

        self.reader: Reader | None = None
        self._away: asyncio.TimerHandle | None = None
        """Runs while a client that may come back is away."""
        self.on_end: list[Callable[[Session], None]] = []

    # -- what the dispatcher fills in

    def prepare(self, revision: Revision, prompt_ids: list[int], sampling: pb.Sampling) -> None:
        """Before the first Begin, or when the request moves to another revision before any token."""
        self.revision, self.prompt_ids, self.sampling = revision, prompt_ids, sampling
        self._decoder = StreamDecoder(revision.text, tuple(sampling.stop))
        stop = set(sampling.stop_token_ids)
        if not sampling.ignore_eos:
            stop |= revision.text.stop_ids
        self._stop_ids = frozenset(stop)

    def move(self, revision: Revision, prompt_ids: list[int], sampling: pb.Sampling) -> None:
        """To another revision, with the same text where tokens were committed. The old one's epochs mean nothing."""
        seed = self.sampling.seed
        if self.committed:
            self.note = f"continued at revision {revision.rev}: the last worker of {self.started().revision} went away"
            self.revision, self.sampling = revision, sampling
        else:
            self.prepare(revision, prompt_ids, sampling)
        self.sampling.seed = seed
        self.epoch, self.nonce = 0, ""

    @property
    def is_over(self) -> bool:
        return self.ended is not None

    # -- the worker's side

    def begin(self, holder: Holder, epoch: int, nonce: str) -> fp.RouterFrame:
        """The answer to Begin: Prompt when this worker now holds the session, else why not."""
        if self.is_over:
            return refuse(self.id, epoch, nonce, fp.Refuse.DONE, "finished")
        if epoch <= self.epoch:
            # After a loss the broker may hand out an epoch twice: the second to come is refused, whoever it is.
            return refuse(self.id, epoch, nonce, fp.Refuse.STALE, f"epoch {epoch}, and {self.epoch} was accepted")
        if self.crashes.undecided or self.revision is None:
            return refuse(self.id, epoch, nonce, fp.Refuse.NOT_YET, "the fate of its last workers is not known")
        if self.holder is not None:
            # Not Cancel: the old holder must not end the job in the broker.
            self.holder.send(refuse(self.id, self.epoch, self.nonce, fp.Refuse.STALE, "another worker holds it"))
        self.epoch, self.nonce, self.holder = epoch, nonce, holder
        self.alone = self.crashes.suspect
        self.begins += 1
        self.resumed += bool(self.committed)
        if self.began is None:
            self.began = time.monotonic()
            self._wake()
        return fp.RouterFrame(
            prompt=fp.Prompt(
                job=self.id,
                epoch=epoch,
                nonce=nonce,
                prompt_ids=self.prompt_ids,
                committed_ids=self.committed,
                sampling=self.sampling,
                time_left_ms=max(1, int((self.deadline - time.monotonic()) * 1000)),
                priority=pb.HIGH if self.level == "high" else pb.LOW,
                alone=self.alone,
            )
        )

    def holds(self, epoch: int, nonce: str) -> bool:
        return self.holder is not None and epoch == self.epoch and nonce == self.nonce

    def take(self, frame: fp.Tokens) -> bool:
        """Commit a frame's tokens. False when the fence refuses them: not the holder's, or not the next ones."""
        if self.is_over or not self.holds(frame.epoch, frame.nonce) or frame.position != len(self.committed):
            return False
        now = time.monotonic()
        if self.begins == 1 and self.first_token is None:
            self.cached_tokens = frame.cached_tokens
        if frame.ids:
            if self.first_token is None:
                self.first_token = now
            self.last_token = now
            assert self._decoder is not None
            self.committed.extend(frame.ids)
            if self.sampling.logprobs:
                self.logprobs.extend(frame.logprobs)
            if piece := self._decoder.push(frame.ids):
                self.pieces.append(piece)
            self._wake()
        return True

    def natural_end(self) -> tuple[pb.FinishReason, str] | None:
        """Whether the committed tokens are a whole answer: (reason, stop string).

        Needed where a worker died between its last tokens and its JobDone: the next one must not go on.
        """
        assert self._decoder is not None
        if self._decoder.stopped is not None:
            return pb.STOP, self._decoder.stopped
        if self.committed and self.committed[-1] in self._stop_ids:
            return pb.STOP, ""
        if len(self.committed) >= self.sampling.max_tokens:
            return pb.LENGTH, ""
        return None

    def let_go(self, epoch: int, nonce: str) -> bool:
        """The holder hands the job back. False when it is not the holder."""
        if not self.holds(epoch, nonce):
            return False
        self.holder = None
        return True

    def lost(self) -> None:
        """The holder's stream broke."""
        if self.holder is not None:
            self.crashes.lost(self.holder.incarnation, alone=self.alone)
            self.holder = None

    # -- the end

    def finish(self, reason: pb.FinishReason, detail: str = "", stop: str = "", *, worker_acks: bool = False) -> None:
        """Write the end down, once. Later calls change nothing."""
        if self.is_over:
            return
        self.worker_acks = worker_acks
        self.ended = now = time.monotonic()
        if self._decoder is not None and (piece := self._decoder.flush()):
            self.pieces.append(piece)
        self.done = self._account(now, reason, detail, stop)
        self.request = pb.GenerateRequest()
        self._stay()
        for listener in self.on_end:
            listener(self)
        self.on_end.clear()
        self._wake()

    def so_far(self) -> pb.Done:
        """The end, or what it would be if the client's going ended it now."""
        return self.done or self._account(time.monotonic(), pb.CANCELLED)

    @property
    def is_kept(self) -> bool:
        """Whether the end is worth keeping for a late duplicate: a refusal, or an end without a token, is not."""
        return self.refusal is None and (self.is_whole or bool(self.committed))

    @property
    def is_whole(self) -> bool:
        """Ended with a whole answer."""
        return self.done is not None and self.done.finish in (pb.STOP, pb.LENGTH)

    def _account(self, now: float, reason: pb.FinishReason, detail: str = "", stop: str = "") -> pb.Done:
        tokens = len(self.committed)
        first, last = self.first_token, self.last_token
        return pb.Done(
            finish=reason,
            usage=pb.Usage(
                prompt_tokens=len(self.prompt_ids), completion_tokens=tokens, cached_tokens=self.cached_tokens
            ),
            ttft_ms=(first - self.arrived) * 1000 if first else 0.0,
            tpot_ms=(last - first) * 1000 / (tokens - 1) if first and last and tokens > 1 else 0.0,
            total_ms=(now - self.arrived) * 1000,
            resumed=self.resumed,
            detail=detail or self.note,
            stop=stop,
        )

    def refuse(self, refusal: Refused) -> None:
        """End it before its first event; after that, end it as Done with the refusal's reason."""
        if not self.is_over and self.began is None:
            self.refusal = refusal.again()
        self.finish(pb.DEADLINE if refusal.why is Why.DEADLINE else pb.ERROR, refusal.message)

    # -- the client's side

    def attach(self, position: int = 0) -> Reader:
        """A reader from token `position` on. The newest wins: an older one ends with CANCELLED.

        Raises Refused when the position lies beyond what was committed.
        """
        if position > len(self.committed):
            raise Refused(
                Why.INVALID,
                f"resume_position is {position}, but request {self.request_id!r} has {len(self.committed)} tokens:"
                " send the position of the first token that is missing",
                field="resume_position",
            )
        self._stay()
        if self.reader is not None:
            self.reader.replaced = True
            self.reader.wake.set()
        self.reader = Reader(self, position)
        return self.reader

    def leave(self, reader: Reader, grace: float) -> None:
        """The client of `reader` went away. Cancels the request unless another attaches within `grace` seconds."""
        if self.reader is not reader:
            return
        self.reader = None
        if grace > 0 and not self.is_over:
            self._away = asyncio.get_running_loop().call_later(grace, self.give_up)
        else:
            self.give_up()

    def give_up(self) -> None:
        """Cancel it where no client is there."""
        if self.reader is None:
            self.finish(pb.CANCELLED, "the client went away")

    def _stay(self) -> None:
        if self._away is not None:
            self._away.cancel()
            self._away = None

    def started(self) -> pb.Started:
        began = self.began if self.began is not None else (self.ended or time.monotonic())
        return pb.Started(
            request_id=self.request_id or self.id,
            tier=pb.FLASH if self.tier == "flash" else pb.STANDARD,
            decision=self.decision,
            queue_ms=(began - self.arrived) * 1000,
            model=self.model,
            revision=self.revision.rev if self.revision else "",
        )

    def text_before(self, position: int) -> int:
        """Characters of text that went out with the first `position` tokens."""
        if not position or self.revision is None:
            return 0
        return len(StreamDecoder(self.revision.text, tuple(self.sampling.stop)).push(self.committed[:position]))

    def _wake(self) -> None:
        if self.reader is not None:
            self.reader.wake.set()


class Reader:
    """One client's place in a session. Holds no tokens of its own, so a slow client costs no memory."""

    __slots__ = ("_piece", "_session", "_skip", "_token", "replaced", "wake")

    def __init__(self, session: Session, position: int) -> None:
        self._session = session
        self._token = position
        self._piece = 0
        self._skip = session.text_before(position)
        self.replaced = False
        self.wake = asyncio.Event()

    async def events(self) -> AsyncIterator[pb.GenerateEvent]:
        """Started, Deltas, Done. Raises Refused before the first event only."""
        session = self._session
        while session.began is None and not session.is_over and not self.replaced:
            await self._changed()
        if session.refusal is not None:
            raise session.refusal.again()
        yield pb.GenerateEvent(started=session.started())
        while not self.replaced:
            # Read before the delta is taken: an end that comes while the client is slow has its own turn.
            done = session.done
            if delta := self._delta():
                yield pb.GenerateEvent(delta=delta)
            elif done is not None:
                yield pb.GenerateEvent(done=done)
                return
            else:
                await self._changed()
        yield pb.GenerateEvent(
            done=pb.Done(finish=pb.CANCELLED, detail="another call with this request_id took the stream over")
        )

    async def _changed(self) -> None:
        await self.wake.wait()
        self.wake.clear()

    def _delta(self) -> pb.Delta | None:
        """All that is new since the last call, as one delta."""
        session, first = self._session, self._token
        ids = session.committed[first:]
        text = "".join(session.pieces[self._piece :])
        self._token += len(ids)
        self._piece = len(session.pieces)
        if self._skip:
            text, self._skip = text[self._skip :], max(0, self._skip - len(text))
        if not ids and not text:
            return None
        logprobs = session.logprobs[first : first + len(ids)] if session.logprobs else ()
        return pb.Delta(first_token=first, token_ids=ids, text=text, logprobs=logprobs)


def digest(request: pb.GenerateRequest) -> bytes:
    """Of all that a request asks for. The id, and where a client is in the answer, are no part of it."""
    asked = pb.GenerateRequest()
    asked.CopyFrom(request)
    asked.ClearField("request_id")
    asked.ClearField("resume_position")
    return hashlib.sha256(asked.SerializeToString(deterministic=True)).digest()


def refuse(job: str, epoch: int, nonce: str, why: fp.Refuse.Why, detail: str) -> fp.RouterFrame:
    return fp.RouterFrame(refuse=fp.Refuse(job=job, epoch=epoch, nonce=nonce, why=why, detail=detail))


def cancel_frame(job: str, epoch: int, why: str) -> fp.RouterFrame:
    return fp.RouterFrame(cancel=fp.Cancel(job=job, epoch=epoch, why=why))
