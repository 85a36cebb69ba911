"""The worker's jobs: claimed by room, begun with their router, run by the engine, kept by beats, acked at the end.

All of it runs on one event loop, apart from the engine's thread, so a long step delays no beat. The broker may be away
or lose everything: what runs goes on, because the router's fence decides what counts.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from typing import Protocol

from flash_wire.broker.client import Broker
from flash_wire.broker.types import Held, Level, Pool
from flash_wire.stream import LEASE_MS
from flash_wire.tasks import end
from flash_wire.v1 import fleet_pb2 as fp
from flash_wire.v1 import inference_pb2 as pb

from flash_worker.acks import LONGEST_PAUSE, TROUBLE, Acks, BrokerHealth
from flash_worker.convert import FINISHES, request_of
from flash_worker.held import Counts, HeldJob, Phase
from flash_worker.link import Link
from flash_worker.request import Output, Request, Room
from flash_worker.wakeups import Wakeups

log = logging.getLogger(__name__)

OWNER_WITHIN = 2.0
"""Seconds that a job may wait here for the link to its router; then another worker gets it."""
STAND_BACK = 1.0
"""Seconds without claims after a link broke or such a job was handed back. Else the worker that cannot reach a router
takes the same job again at once, before one that can."""
LAST_WORDS = 2.0
"""Seconds for acks and releases when the worker stops."""
ASK_AGAIN = 0.2
"""Seconds after NOT_YET."""
UNKNOWN_FOR = 10.0
"""Seconds after which a job that never began here, and that the broker does not know, is forgotten."""


class Runs(Protocol):
    """The part of flash_worker.engine.Engine that leases use."""

    def submit(self, request: Request) -> None: ...
    def abort(self, id: str) -> None: ...
    def room(self) -> Room: ...


class Leases:
    def __init__(
        self,
        *,
        broker: Broker,
        pool: Pool,
        incarnation: str,
        engine: Runs,
        link_to: Callable[[str], Link | None],
        weights: Callable[[], dict[Level, int]],
        lease_ms: int = LEASE_MS,
        health: BrokerHealth | None = None,
    ) -> None:
        """link_to: the open link to a router, by its id. weights: of the levels, as of now."""
        self.counts = Counts()
        self.draining = False
        self.last_attempt = time.monotonic()
        """When a claim was last attempted or found needless: liveness looks at it, not at whether it succeeded."""
        self._health = health or BrokerHealth()
        self._broker = broker
        self._pool = pool
        self._incarnation = incarnation
        self._engine = engine
        self._link_to = link_to
        self._weights = weights
        self._lease_ms = lease_ms
        self._jobs: dict[str, HeldJob] = {}
        self._by_nonce: dict[str, HeldJob] = {}
        self._alone: HeldJob | None = None
        self._acks = Acks(broker, pool, incarnation, self._health)
        self._wakeups = Wakeups(broker, pool)
        self._changed = asyncio.Event()
        self._stand_back = 0.0
        self._releases: set[asyncio.Task[None]] = set()

    # -- what others ask

    def __len__(self) -> int:
        return len(self._jobs)

    def room(self) -> tuple[int, int]:
        """(slots, KV tokens) that may be claimed: the engine's room less what is claimed and has not begun."""
        if self.draining or self._alone is not None or time.monotonic() < self._stand_back:
            return 0, 0
        room = self._engine.room()
        pending = [job for job in self._jobs.values() if job.phase in (Phase.CLAIMED, Phase.ASKED)]
        slots = min(room.slots - len(pending), 2 * room.max_slots - len(self._jobs))
        return max(0, slots), max(0, room.kv_tokens - sum(job.claimed.need for job in pending))

    # -- loops, each for ever

    async def run(self) -> None:
        """Claim, beat and ack until cancelled. An outage of the broker ends none of them."""
        loops = [asyncio.create_task(loop()) for loop in (self._claim_loop, self._beat_loop, self._acks.run)]
        try:
            done, _ = await asyncio.wait(loops, return_when=asyncio.FIRST_COMPLETED)
            for loop in done:
                loop.result()
        finally:
            await end(*loops)
            await self._wakeups.close()

    async def _claim_loop(self) -> None:
        pause = 0.05
        while True:
            self.last_attempt = time.monotonic()
            slots, kv_tokens = self.room()
            try:
                if slots > 0:
                    claim = await self._broker.claim(
                        self._pool, self._incarnation, slots, kv_tokens, self._weights(), self._lease_ms
                    )
                    self._health.answered()
                    pause = 0.05
                    for claimed in claim.jobs:
                        self._take(HeldJob(claimed))
                    if claim.jobs:
                        continue
                    self._wakeups.watch_queue()
                back = self._stand_back - time.monotonic()
                await self._wakeups.wait(back if back > 0 else 1.0)
            except TROUBLE as error:
                self._health.failed(error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            except Exception:
                log.exception("a claim failed")
                await asyncio.sleep(LONGEST_PAUSE)

    async def _beat_loop(self) -> None:
        while True:
            await asyncio.sleep(self._lease_ms / 3000)
            self._pass_on_unreachable()
            holdings = {job.id: job.epoch for job in self._jobs.values()}
            if not holdings:
                continue
            try:
                said = await self._broker.beat(self._pool, self._incarnation, holdings, self._lease_ms)
                self._health.answered()
            except TROUBLE as error:
                self._health.failed(error)
                continue
            except Exception:
                log.exception("a beat failed")
                continue
            for id, word in said.items():
                job = self._jobs.get(id)
                if job is not None and job.epoch == holdings[id]:
                    self._heed(job, word)

    def _pass_on_unreachable(self) -> None:
        now = time.monotonic()
        for job in list(self._jobs.values()):
            away = self._link_to(job.claimed.owner) is None
            if job.phase is Phase.CLAIMED and away and now - job.since > OWNER_WITHIN:
                self._stand_back = now + STAND_BACK
                self._hand_back(job, "its router cannot be reached from here")

    def _heed(self, job: HeldJob, word: Held) -> None:
        if word is Held.EXTENDED:
            job.unknown_since = None
        elif word is Held.UNKNOWN:
            # The broker lost it or has it queued. The router's fence decides, unless the router was never reached.
            job.unknown_since = job.unknown_since or time.monotonic()
            if job.phase is Phase.CLAIMED and time.monotonic() - job.unknown_since > UNKNOWN_FOR:
                self._forget(job)
        elif word is Held.FENCED:
            self.counts.fenced += 1
            self._give_up(job, "fenced: another worker holds it")
        else:
            self.counts.cancelled += 1
            self._give_up(job, "the broker says that it is over")

    # -- a job's way

    def _take(self, job: HeldJob) -> None:
        """A job was claimed."""
        self.counts.claimed += 1
        if (old := self._jobs.get(job.id)) is not None:
            self._forget(old)  # its lease had lapsed, and it came back to us under a new epoch
        self._jobs[job.id] = job
        if self.draining or (self._alone is not None and self._alone is not job):
            self._hand_back(job, "draining" if self.draining else "a suspect runs alone here")
            return
        if job.is_suspect:
            self._run_alone(job)
        self._begin(job)

    def _begin(self, job: HeldJob) -> None:
        """Ask the job's router. Without an open link the lease is kept until the broker says CANCELLED."""
        link = self._link_to(job.claimed.owner)
        if link is None or self._jobs.get(job.id) is not job or job.phase is not Phase.CLAIMED:
            return
        job.nonce = secrets.token_hex(8)
        job.phase = Phase.ASKED
        self._by_nonce[job.nonce] = job
        link.send(fp.WorkerFrame(begin=fp.Begin(job=job.id, epoch=job.epoch, nonce=job.nonce)))

    def _run_alone(self, job: HeldJob) -> None:
        """Two workers died with it: nothing else runs beside it."""
        self._alone = job
        for other in list(self._jobs.values()):
            if other is not job and other.phase is not Phase.ENDING:
                self._hand_back(other, "a suspect runs alone here")

    def _prompt(self, prompt: fp.Prompt) -> None:
        job = self._by_nonce.get(prompt.nonce)
        if job is None or job.phase is not Phase.ASKED:
            return
        job.alone = prompt.alone
        if self._alone is not None and self._alone is not job:
            self._hand_back(job, "a suspect runs alone here")
            return
        if job.is_suspect:
            self._run_alone(job)
        job.phase = Phase.RUNNING
        job.prompt_tokens = len(prompt.prompt_ids)
        job.committed = job.position = len(prompt.committed_ids)
        self.counts.began += 1
        try:
            self._engine.submit(request_of(prompt))
        except ValueError as error:
            self._end(job, pb.ERROR, detail=str(error))
        except RuntimeError as error:
            self._hand_back(job, str(error))

    def outputs(self, outputs: list[Output]) -> None:
        """What one step gave."""
        for output in outputs:
            job = self._by_nonce.get(output.id)
            if job is None or job.phase is not Phase.RUNNING:
                continue
            job.position = output.position + len(output.ids)
            if output.ids and (link := self._link_to(job.claimed.owner)) is not None:
                cached = 0 if job.told_cached else output.cached_tokens
                if not job.told_cached:
                    job.told_cached, job.cached_tokens = True, output.cached_tokens
                link.send_tokens(job.id, job.epoch, job.nonce, output.position, output.ids, output.logprobs, cached)
            if output.finish == "cancelled":
                self._hand_back(job, output.detail or "the engine stopped it")
            elif output.finish is not None:
                self._end(job, FINISHES[output.finish], detail=output.detail, stop=output.stop)

    def _end(self, job: HeldJob, finish: pb.FinishReason, *, detail: str = "", stop: str = "") -> None:
        job.phase = Phase.ENDING
        if self._alone is job:
            self._alone = None
        link = self._link_to(job.claimed.owner)
        if link is not None:
            done = fp.JobDone(
                job=job.id,
                epoch=job.epoch,
                nonce=job.nonce,
                position=job.position,
                finish=finish,
                detail=detail,
                stop=stop,
            )
            link.send(fp.WorkerFrame(done=done))
        self._wakeups.now()

    def _hand_back(self, job: HeldJob, why: str) -> None:
        """Release it in the broker and tell its router, which releases it too: the broker takes the first."""
        self.counts.handed_back += 1

        async def release() -> None:
            try:
                await self._broker.release(self._pool, job.id, job.epoch, self._incarnation)
            except TROUBLE as error:
                self._health.failed(error)

        task = asyncio.create_task(release())
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)
        self._give_up(job, why)

    def _give_up(self, job: HeldJob, why: str) -> None:
        """Stop running it and tell its router that somebody else must."""
        link = self._link_to(job.claimed.owner)
        if link is not None and job.nonce:
            back = fp.HandBack(job=job.id, epoch=job.epoch, nonce=job.nonce, why=why)
            link.send(fp.WorkerFrame(hand_back=back))
        self._forget(job)

    def _forget(self, job: HeldJob) -> None:
        self._stop(job)
        if self._jobs.get(job.id) is job:
            del self._jobs[job.id]
        if self._alone is job:
            self._alone = None
        self._wakeups.now()
        self._changed.set()

    def _stop(self, job: HeldJob) -> None:
        """No output of this Begin counts any more."""
        if job.nonce:
            self._by_nonce.pop(job.nonce, None)
            if job.phase is Phase.RUNNING:
                self._engine.abort(job.nonce)
            job.nonce = ""

    def _finish(self, job: HeldJob) -> None:
        """Its router knows the end: ack it in the broker."""
        self.counts.finished += 1
        self._acks.add(job.id, job.epoch, job.used)
        self._forget(job)

    # -- the link's listener

    def opened(self, link: Link) -> None:
        self._stand_back = 0.0
        self._wakeups.now()
        for job in list(self._jobs.values()):
            if job.claimed.owner == link.router_id:
                self._begin(job)

    def closed(self, link: Link) -> None:
        """Nothing of that router goes on; its jobs are asked for again when the link is back."""
        self.counts.lost_links += 1
        for job in list(self._jobs.values()):
            if job.claimed.owner == link.router_id:
                self._stop(job)
                job.phase, job.since = Phase.CLAIMED, time.monotonic()
        self._stand_back = time.monotonic() + STAND_BACK

    def received(self, link: Link, frame: fp.RouterFrame) -> None:
        kind = frame.WhichOneof("frame")
        if kind == "prompt":
            self._prompt(frame.prompt)
        elif kind == "refuse":
            self._refused(frame.refuse)
        elif kind == "done_ack":
            job = self._by_nonce.get(frame.done_ack.nonce)
            if job is not None and job.phase is Phase.ENDING:
                self._finish(job)
        elif kind == "cancel":
            job = self._jobs.get(frame.cancel.job)
            if job is not None and job.epoch == frame.cancel.epoch:
                self.counts.cancelled += 1
                self._finish(job)

    def _refused(self, refusal: fp.Refuse) -> None:
        job = self._by_nonce.get(refusal.nonce)
        if job is None or job.epoch != refusal.epoch:
            return
        if refusal.why == fp.Refuse.DONE:
            self._finish(job)
        elif refusal.why == fp.Refuse.NOT_YET:
            self._stop(job)
            job.phase = Phase.CLAIMED
            asyncio.get_running_loop().call_later(ASK_AGAIN, self._begin, job)
        else:
            self._forget(job)

    # -- the end

    async def drain(self, seconds: float) -> None:
        """Claim nothing more, hand back what has not begun, finish the rest within `seconds`, hand back what is left.

        Returns when the broker has heard of all of it, or cannot be reached.
        """
        self.draining = True
        for job in list(self._jobs.values()):
            if job.phase in (Phase.CLAIMED, Phase.ASKED):
                self._hand_back(job, "draining")
        until = time.monotonic() + seconds
        while self._jobs and (left := until - time.monotonic()) > 0:
            await self._change(left)
        for job in list(self._jobs.values()):
            if job.phase is Phase.ENDING:
                self._forget(job)  # its router did not confirm the end: the lease lapses, the next one hears DONE
            else:
                self._hand_back(job, "draining")
        await self._acks.sent(LAST_WORDS)
        if self._releases:
            await asyncio.wait(set(self._releases), timeout=LAST_WORDS)

    async def _change(self, timeout: float) -> None:  # noqa: ASYNC109 - running out is not an error here
        self._changed.clear()
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            return
