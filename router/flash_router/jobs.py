"""A session as the broker sees it: the only place where one becomes a Job."""

from __future__ import annotations

import time

from flash_wire.broker.client import Broker
from flash_wire.broker.types import AdmitLimits, Enqueued, Job, Pool, Released, Restored
from flash_wire.room import need
from flash_wire.stream import LEASE_MS

from flash_router.session import Session

UNLIMITED = AdmitLimits(queue_tokens=0, queue_requests=0, tenant_tokens=0)
"""For a request that was admitted once: a loss of the broker does not throw it out."""


class Jobs:
    """Single tries. Raises what redis raises; flash_router.ops tries again."""

    def __init__(self, broker: Broker, owner: str) -> None:
        self.broker = broker
        self.owner = owner
        self._clock: float | None = None

    def set_clock(self, time_ms: int) -> None:
        """Redis TIME as just read: deadlines are written in it."""
        self._clock = time_ms - time.monotonic() * 1000

    def pool(self, session: Session) -> Pool:
        assert session.revision is not None
        return Pool(self.broker.fleet, session.revision.tier, session.revision.rev)

    async def enqueue(self, session: Session, seq: int, limits: AdmitLimits) -> Enqueued:
        return await self.broker.enqueue(self.pool(session), await self._job(session, seq), limits)

    async def restore(self, session: Session, seq: int) -> Restored | None:
        """None when no worker holds the session any more."""
        holder = session.holder
        if holder is None:
            return None
        job = await self._job(session, seq)
        return await self.broker.restore(self.pool(session), job, session.epoch, holder.incarnation, LEASE_MS)

    async def release(self, session: Session, epoch: int, incarnation: str) -> Released:
        return await self.broker.release(self.pool(session), session.id, epoch, incarnation, session.crashes.count)

    async def _job(self, session: Session, seq: int) -> Job:
        if self._clock is None:
            self.set_clock(await self.broker.time_ms())
        assert self._clock is not None
        return Job(
            id=session.id,
            level=session.level,
            need=need_of(session),
            cost=need_of(session),
            owner=self.owner,
            deadline=int(session.deadline * 1000 + self._clock),
            tenant=session.tenant,
            request=session.request_id,
            seq=seq,
            epoch=session.epoch,
            crashes=session.crashes.count,
        )


def need_of(session: Session) -> int:
    """Room in KV tokens that a worker must have free to take the session on, and the work that is charged for it."""
    revision = session.revision
    assert revision is not None
    return need(
        len(session.prompt_ids),
        len(session.committed),
        session.sampling.max_tokens,
        block_size=revision.block_size,
        max_model_len=revision.max_model_len,
    )
