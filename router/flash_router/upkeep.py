"""What a router looks after once a second: the broker's identity, the fleet, leases that lapsed, stranded requests."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from flash_wire.broker.types import Pool, ServerIdentity
from flash_wire.fleet import RouterRecord, announce_router, snapshot
from flash_wire.v1 import inference_pb2 as pb

from flash_router.core import Refused, Why
from flash_router.dispatch import Dispatcher, Line, new_job
from flash_router.jobs import need_of
from flash_router.ops import TROUBLE
from flash_router.pace import Pace
from flash_router.prompts import fit, source_of, tokenise
from flash_router.session import Session

log = logging.getLogger(__name__)

EVERY = 1.0
TTL_MS = 10_000
"""Life of the router's fleet entry. Its lapse cancels all of its streams, so a loop that stalls gets some time."""
SWEEP_EVERY = 10
"""Rounds between two steps of the sweep."""
GIVE_UP = 5.0
"""Seconds for one round's questions to the broker."""
OFFER_AGAIN = 5.0
"""Seconds after which the broker is told again of a job that nobody holds. It answers DUPLICATE when all is well."""
STRANDED = 8.0
"""Seconds without a known worker of its revision after which a request moves on, if there is another: longer than a
fleet entry lives, so that a worker that restarts gets its own work back."""


class Upkeep:
    def __init__(self, dispatcher: Dispatcher, record: Callable[[], RouterRecord]) -> None:
        self._dispatcher = dispatcher
        self._record = record
        self._identity: ServerIdentity | None = None
        self._settled = time.monotonic()
        self._round = 0

    async def run(self) -> None:
        """For ever. An outage of the broker ends nothing."""
        while True:
            started = time.monotonic()
            try:
                async with asyncio.timeout(GIVE_UP):
                    await self._talk()
                self._dispatcher.traffic.answered()
            except TROUBLE as error:
                self._dispatcher.traffic.failed(error)
                self._settled = time.monotonic()
            except Exception:
                log.exception("a round of upkeep failed")
            try:
                self._look_after_sessions()
            except Exception:
                log.exception("looking after the requests failed")
            await asyncio.sleep(max(0.05, EVERY - (time.monotonic() - started)))

    async def _talk(self) -> None:
        dispatcher, broker = self._dispatcher, self._dispatcher.jobs.broker
        identity = await broker.generation()
        if identity != self._identity:
            if self._identity is not None:
                log.warning("the broker restarted or lost its data: registering %d requests", len(dispatcher.lines))
            self._settled = time.monotonic()
            dispatcher.register_again()
            # The one read before registering began: a loss in between is seen at the next round.
            self._identity = identity
        await announce_router(broker, broker.fleet, self._record(), TTL_MS)
        fleet = await snapshot(broker, broker.fleet)
        dispatcher.jobs.set_clock(fleet.time_ms)
        dispatcher.roster.see(fleet)
        dispatcher.buried(dispatcher.fates.seen(fleet, settled=time.monotonic() - self._settled))
        for depth in fleet.pools:
            dispatcher.paces.setdefault((depth.pool.tier, depth.pool.rev), Pace()).see(depth.levels)
        self._round += 1
        for pool in self._pools():
            await broker.reap(pool)
            if self._round % SWEEP_EVERY == 0:
                await broker.sweep(pool)
        for gone in dispatcher.paces.keys() - {(pool.tier, pool.rev) for pool in self._pools()}:
            del dispatcher.paces[gone]

    def _pools(self) -> list[Pool]:
        dispatcher = self._dispatcher
        fleet = dispatcher.jobs.broker.fleet
        known = {Pool(fleet, tier, rev) for tier, rev in dispatcher.roster.pools()}
        if dispatcher.roster.fleet is not None:
            known |= {depth.pool for depth in dispatcher.roster.fleet.pools}
        known |= {dispatcher.jobs.pool(session) for session in dispatcher.sessions if session.revision is not None}
        return sorted(known, key=lambda pool: (pool.tier, pool.rev))

    def _look_after_sessions(self) -> None:
        now = time.monotonic()
        for session in self._dispatcher.sessions:
            line = self._dispatcher.lines[session]
            if session.holder is None and session.revision is not None and line.queued and line.ops.idle:
                self._look_after(session, line, now)

    def _look_after(self, session: Session, line: Line, now: float) -> None:
        """A request that waits in the broker."""
        dispatcher, revision = self._dispatcher, session.revision
        assert revision is not None
        here = dispatcher.roster.revision(revision.tier, revision.rev)
        if here is not None:
            line.stranded = None
            if need_of(session) > here.kv_tokens:
                # Claim would stop at it for ever: the worker that it would have fitted has gone.
                session.refuse(
                    Refused(
                        Why.UNAVAILABLE,
                        f"the request needs {need_of(session)} KV tokens, and the largest worker of tier"
                        f" {revision.tier} that is left has {here.kv_tokens}",
                    )
                )
                return
        elif not dispatcher.roster.serves(revision.tier, revision.rev):
            line.stranded = line.stranded or now
            if now - line.stranded > STRANDED and dispatcher.roster.newest(revision.tier) is not None:
                line.stranded = None
                line.task = asyncio.create_task(self._move(session, line))
                return
        if now - line.offered > OFFER_AGAIN and line.release is None:
            dispatcher.requeue(session)

    async def _move(self, session: Session, line: Line) -> None:
        """To the newest revision, under a new job id: the old one is cancelled in its pool."""
        dispatcher, old = self._dispatcher, session.revision
        assert old is not None
        new = dispatcher.roster.newest(old.tier)
        if new is None or session.holder is not None or session.is_over:
            return
        if session.committed and new.text.hash != old.text.hash:
            session.finish(
                pb.ERROR,
                f"the last worker of revision {old.rev} is gone, and revision {new.rev} has another tokenizer or"
                " template, which cannot continue this answer: ask again",
            )
            return
        try:
            ids = session.prompt_ids
            if not session.committed:
                ids = await tokenise(session.request, new)
            sampling = session.request.sampling if not session.committed else session.sampling
            settled = fit(sampling, ids, new, source_of(session.request))
        except Refused as refusal:
            session.refuse(refusal)
            return
        if session.holder is not None or session.is_over:
            return
        pool, job = dispatcher.jobs.pool(session), session.id
        line.ops.add("cancel in the old pool", lambda: dispatcher.jobs.broker.cancel(pool, job))
        dispatcher.sessions.rename(session, new_job())
        session.move(new, ids, settled)
        line.seq = 0
        dispatcher.requeue(session)
