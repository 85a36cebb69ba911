"""From a waiting request to a worker that runs it, whatever the broker and the workers do meanwhile.

The router is the truth about its requests. The broker is told, asked again until it answers, and told again all of it
when it lost its data.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
import uuid
from dataclasses import dataclass, field

from flash_wire.broker.types import Admission, AdmitLimits, Enqueued, Pool, Released
from flash_wire.settings import RouterLive
from flash_wire.v1 import inference_pb2 as pb

from flash_router.core import Refused, Why
from flash_router.fates import Fates
from flash_router.holding import RETRY_AFTER, Holding
from flash_router.jobs import UNLIMITED, Jobs
from flash_router.ops import Call, Ops, Traffic
from flash_router.pace import Pace
from flash_router.prompts import fit, size_of, source_of, tokenise
from flash_router.roster import Revision, Roster
from flash_router.session import Session, cancel_frame
from flash_router.sessions import Sessions

log = logging.getLogger(__name__)

PATIENCE = 0.25
"""Seconds that the broker must have been silent before a request counts as held for it."""
TURN_AFTER = 1.0
"""Seconds that a client is told to stay away where more requests come at once than can be queued."""


@dataclass(slots=True)
class Line:
    """What the dispatcher keeps beside a session that has not ended."""

    ops: Ops
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None
    held: str = ""
    """Why the request waits in the router and not in the broker; "" while it does not."""
    patience: float = 0.0
    """Seconds it may wait for a tier to wake from zero, where it met one with no worker."""
    queued: bool = False
    """The broker has said that it knows the job."""
    seq: int = 0
    release: tuple[int, str] | None = None
    """(epoch, incarnation) that lost the job and for which it has yet to be released."""
    poisoned: bool = False
    offered: float = field(default_factory=time.monotonic)
    """When the broker was last told of the job, in time.monotonic() seconds."""
    stranded: float | None = None
    """Since when no worker of the session's revision is known."""


class Dispatcher:
    def __init__(self, *, live: RouterLive, jobs: Jobs, roster: Roster) -> None:
        self.live = live
        self.jobs = jobs
        self.roster = roster
        self.holding = Holding()
        self.sessions = Sessions()
        self.fates = Fates()
        self.traffic = Traffic()
        self.paces: dict[tuple[str, str], Pace] = {}
        self.lines: dict[Session, Line] = {}
        self.turns = 0
        """Requests whose enqueue is not answered yet."""
        self._closing: set[asyncio.Task[None]] = set()

    # -- a request's way in

    def accept(self, session: Session, *, may_fall_back: bool) -> None:
        """Take a new session. From here on it ends by itself: answered, refused, too late or cancelled."""
        line = Line(Ops(self.traffic, session.deadline))
        self.lines[session] = line
        self.sessions.add(session)
        session.on_end.append(self._ended)
        self._arm(session, line)
        line.task = asyncio.create_task(self._admit(session, line, may_fall_back))

    async def _admit(self, session: Session, line: Line, may_fall_back: bool) -> None:
        try:
            revision = await self._find_revision(session, line, may_fall_back)
            prompt_ids = await tokenise(session.request, revision)
            sampling = fit(session.request.sampling, prompt_ids, revision, source_of(session.request))
            session.prepare(revision, prompt_ids, sampling)
            await self._queue(session, line)
        except Refused as refusal:
            session.refuse(refusal)
        except Exception:
            log.exception("request %s could not be queued", session.id)
            session.refuse(Refused(Why.INTERNAL, "the router failed to queue the request: its log says why"))

    async def _find_revision(self, session: Session, line: Line, may_fall_back: bool) -> Revision:
        """Where the request goes, waiting for the tier's first worker if need be."""
        if (found := self._choose(session, may_fall_back)) is not None:
            return found
        what = f"tier {session.tier} has no ready worker"
        with self.holding.hold(session.tier, size_of(session.request), self.live.limits, what):
            line.held, line.patience = what, self._wake_wait(session.tier)
            while (found := self._choose(session, may_fall_back)) is None:
                await self.roster.changed(1.0)
            line.held = ""
        return found

    def _choose(self, session: Session, may_fall_back: bool) -> Revision | None:
        """The revision to use now, or None to wait. Raises Refused where waiting is in vain."""
        tier = session.tier
        if (revision := self.roster.newest(tier)) is not None:
            return revision
        if may_fall_back and self._falls_back(tier):
            for other in self.roster.tiers:
                if other != tier and (revision := self.roster.newest(other)) is not None:
                    session.tier = other
                    session.decision.tier = pb.FLASH if other == "flash" else pb.STANDARD
                    session.decision.how = "fallback"
                    session.decision.note = f"{tier} has no ready worker, and onTierDown is fallback"
                    return revision
        if not self.roster.expects(tier) and not self._wake_wait(tier):
            raise Refused(
                Why.UNAVAILABLE,
                f"tier {tier} has no worker, none is starting and none is wanted: start one, or ask the other tier",
                retry_after=RETRY_AFTER,
            )
        return None

    def _falls_back(self, tier: str) -> bool:
        return any(name == tier and routing.on_tier_down == "fallback" for name, routing in self.live.tiers.items())

    def _wake_wait(self, tier: str) -> float:
        """Seconds that a request may be held for a tier that wakes from zero; 0 where nothing would wake it."""
        return next((routing.wake_wait for name, routing in self.live.tiers.items() if name == tier), 0.0)

    async def _queue(self, session: Session, line: Line) -> None:
        """Enqueue with admission. Raises Refused when the limits say no."""
        limits = self.live.limits
        admit = AdmitLimits(limits.queue_tokens, limits.queue_requests, limits.tenant_tokens)
        self._check_turns(session)
        tokens = len(session.prompt_ids)
        answer = line.ops.add("enqueue", lambda: self.jobs.enqueue(session, 0, admit))
        self.turns += 1
        try:
            while not answer.done():
                with self.traffic.change() as changed:
                    if not self.traffic.answering:
                        # One try that failed is no outage yet.
                        await asyncio.wait({answer, changed}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
                    if not self.traffic.answering and not answer.done() and not changed.done():
                        line.held = "the broker does not answer"
                        with self.holding.hold(session.tier, tokens, limits, line.held):
                            await asyncio.wait({answer, changed}, return_when=asyncio.FIRST_COMPLETED)
                        line.held = ""
                    elif self.traffic.answering and not changed.done():
                        # Its turn comes: a burst is no outage. The session's own timer ends this wait.
                        await asyncio.wait({answer, changed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.turns -= 1
        if not answer.cancelled():
            self._heed(session, line, answer.result())

    def _check_turns(self, session: Session) -> None:
        """Raises Refused(BUSY) where a burst is larger than what may be queued anyway."""
        most = 2 * self.live.limits.queue_requests
        if self.traffic.answering and self.turns >= most:
            raise Refused(
                Why.BUSY,
                f"{self.turns} requests wait to be queued, as many as two levels of a tier hold"
                f" (limits.queueRequests is {self.live.limits.queue_requests})",
                retry_after=TURN_AFTER,
            )

    def _heed(self, session: Session, line: Line, reply: Enqueued) -> None:
        """What an enqueue answered."""
        if session.is_over:
            return
        line.offered = time.monotonic()
        if reply.outcome in (Admission.ADMITTED, Admission.DUPLICATE):
            line.seq = reply.seq or line.seq
            line.queued = True
        elif reply.outcome is Admission.EXPIRED:
            session.refuse(Refused(Why.DEADLINE, "the request's deadline passed before it was queued"))
        elif reply.outcome is Admission.FINISHED:
            # The broker remembers the id as ended, and it is not: queue it under one that it does not know.
            self.sessions.rename(session, new_job())
            self.requeue(session)
        else:
            session.refuse(self._busy(session, reply))

    def _busy(self, session: Session, reply: Enqueued) -> Refused:
        weights = self.live.priorities
        share = (weights.high if session.level == "high" else weights.low) / (weights.high + weights.low)
        what = {
            Admission.QUEUE_TOKENS: f"tokens waiting at priority {session.level} (limits.queueTokens)",
            Admission.QUEUE_REQUESTS: f"requests waiting at priority {session.level} (limits.queueRequests)",
            Admission.TENANT_TOKENS: f"tokens of tenant {session.tenant!r} waiting and running (limits.tenantTokens)",
        }[reply.outcome]
        pool = self.jobs.pool(session)
        pace = self.paces.get((pool.tier, pool.rev)) or Pace()
        return Refused(
            Why.BUSY,
            f"tier {session.tier} is full: with this request there would be {reply.have} {what}, and {reply.limit} are"
            " allowed",
            retry_after=pace.retry_after(reply.queued_tokens, share),
        )

    # -- telling the broker

    def requeue(self, session: Session) -> None:
        """Tell the broker of an admitted job that waits. Idempotent; in its old place; no limit refuses it."""
        line = self.lines[session]
        line.offered = time.monotonic()
        if line.ops.waits("requeue") or line.ops.waits("enqueue"):
            return

        async def call() -> Enqueued | None:
            # By the time it is sent a worker may hold it: an enqueue is then not wrong, but not needed either.
            return None if session.holder else await self.jobs.enqueue(session, line.seq, UNLIMITED)

        def heed(answer: asyncio.Future[Enqueued | None]) -> None:
            if not answer.cancelled() and answer.exception() is None and (reply := answer.result()) is not None:
                self._heed(session, line, reply)

        line.ops.add("requeue", call).add_done_callback(heed)

    def register_again(self) -> None:
        """The broker restarted or lost its data: restore what streams, enqueue again what waits."""
        for session in self.sessions:
            line = self.lines[session]
            if not line.ops.touched:
                continue  # Still held: its own enqueue is to come, with admission.
            if session.holder is None:
                if line.release is None and line.queued:
                    self.requeue(session)
            elif not line.ops.waits("restore"):
                line.ops.add("restore", functools.partial(self.jobs.restore, session, line.seq))

    # -- what workers' streams report

    def began(self, session: Session) -> None:
        """A worker holds the session now."""
        if (line := self.lines.get(session)) is not None:
            line.release = None
            line.queued = True

    def lost(self, session: Session) -> None:
        """The holder's stream broke: release the job at once, so that the next worker goes on."""
        line, holder = self.lines.get(session), session.holder
        if line is None or holder is None:
            return
        line.release = (session.epoch, holder.incarnation)
        session.lost()
        self._judge(session, line)

    def abandon(self, session: Session, incarnation: str) -> None:
        """The holder is there but does not run the job any more, and has not released it."""
        if (line := self.lines.get(session)) is not None:
            line.release = (session.epoch, incarnation)
            self._judge(session, line)

    def worker_came(self, incarnation: str, name: str) -> None:
        """Hello: those of the same name that were lost are dead, and this one is not."""
        dead = self.fates.hello(incarnation, name)
        for session in self.sessions:
            if session.crashes.back(incarnation):
                self._judge(session, self.lines[session])
        self.buried(dead)

    def buried(self, dead: list[str]) -> None:
        """These incarnations are known to be dead."""
        for incarnation in dead:
            log.warning("worker incarnation %s is dead", incarnation)
            for session in self.sessions:
                if session.crashes.died(incarnation):
                    self._judge(session, self.lines[session])

    def _judge(self, session: Session, line: Line) -> None:
        """After a change of the crash account: end a poison prompt, wait, or give the job to the next worker."""
        if session.crashes.poison:
            count = session.crashes.count
            log.error("request %s is poison: %d workers died with its prompt", session.id, count)
            line.poisoned = True
            session.refuse(Refused(Why.INTERNAL, f"poison: {count} workers died while they ran this prompt"))
        elif line.release is not None and not session.crashes.undecided and session.holder is None:
            (epoch, incarnation), line.release = line.release, None
            line.offered = time.monotonic()

            async def call() -> None:
                said = await self.jobs.release(session, epoch, incarnation)
                if said is Released.GONE and not session.is_over:
                    self.requeue(session)

            line.ops.add("release", call)

    # -- the end

    def _arm(self, session: Session, line: Line) -> None:
        """One timer for a session: limits.maxWait until its first worker, the deadline afterwards."""
        at = session.deadline
        if session.began is None:
            at = min(at, session.arrived + max(self.live.limits.max_wait, line.patience))
        delay = max(0.0, at - time.monotonic())
        line.timer = asyncio.get_running_loop().call_later(delay, self._too_late, session, line)

    def _too_late(self, session: Session, line: Line) -> None:
        now = time.monotonic()
        waited = now - session.arrived
        if now >= session.deadline:
            session.refuse(Refused(Why.DEADLINE, f"the request's time was over after {waited:.1f} s"))
        elif session.began is None and waited >= max(self.live.limits.max_wait, line.patience):
            limit = f"limits.maxWait is {self.live.limits.max_wait:g} s"
            if line.patience > self.live.limits.max_wait:
                limit = f"the tier's scaling.wakeWait is {line.patience:g} s"
            if line.held:
                session.refuse(Refused(Why.UNAVAILABLE, f"{line.held}, and {limit}", retry_after=RETRY_AFTER))
            else:
                session.refuse(Refused(Why.DEADLINE, f"no worker took the request in {waited:.1f} s, and {limit}"))
        else:
            self._arm(session, line)

    def _ended(self, session: Session) -> None:
        line = self.lines.pop(session)
        if line.timer is not None:
            line.timer.cancel()
        if line.task is not None and line.task is not asyncio.current_task():
            line.task.cancel()
        if session.holder is not None and not session.worker_acks and session.done is not None:
            why = pb.FinishReason.Name(session.done.finish)
            session.holder.send(cancel_frame(session.id, session.epoch, why))
        cancel: Call | None = None
        # A worker that finished acks the job itself. All else, and what is still unanswered, ends with a cancel.
        if session.revision is not None and not (session.worker_acks and line.ops.idle):
            pool, job = self.jobs.pool(session), session.id
            cancel = _cancel(self.jobs, pool, job, bury=line.poisoned)
        line.ops.close(cancel)
        if not line.ops.idle:
            task = asyncio.create_task(line.ops.closed())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def flush(self, timeout: float) -> None:  # noqa: ASYNC109 - bounds the last words, does not cancel them
        """Wait for the last operations of sessions that have ended."""
        if self._closing:
            await asyncio.wait(set(self._closing), timeout=timeout)


def new_job() -> str:
    return uuid.uuid4().hex


def _cancel(jobs: Jobs, pool: Pool, job: str, *, bury: bool) -> Call:
    async def call() -> None:
        await jobs.broker.cancel(pool, job)
        if bury:
            await jobs.broker.bury(pool, job)

    return call
