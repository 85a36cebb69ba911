"""All sessions of a router: those that run, and for a while those that ended under a request id."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterator

from flash_router.session import Session

KEEP_FOR = 120.0
"""Seconds in which a late duplicate of a finished request still gets its answer."""
KEEP_REQUESTS = 1000
KEEP_TOKENS = 1_000_000


class Sessions:
    def __init__(self) -> None:
        self._by_job: dict[str, Session] = {}
        self._by_request: dict[tuple[str, str], Session] = {}
        self._ended: OrderedDict[tuple[str, str], Session] = OrderedDict()
        self._ended_tokens = 0
        self._changed = asyncio.Event()

    async def empty(self, timeout: float) -> None:  # noqa: ASYNC109 - running out is not an error here
        """Until all have ended, or `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                while self._by_job:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return

    def __len__(self) -> int:
        """Those that have not ended."""
        return len(self._by_job)

    def __iter__(self) -> Iterator[Session]:
        """Those that have not ended. Safe against changes while it is walked."""
        return iter(list(self._by_job.values()))

    def get(self, job: str) -> Session | None:
        """By job id; None once it ended, which a worker is told as DONE."""
        return self._by_job.get(job)

    def find(self, tenant: str, request_id: str) -> Session | None:
        """By the client's id, ended ones too."""
        self._prune()
        key = (tenant, request_id)
        return self._by_request.get(key) or self._ended.get(key)

    def add(self, session: Session) -> None:
        self._by_job[session.id] = session
        if session.request_id:
            self._by_request[session.tenant, session.request_id] = session
        session.on_end.append(self._end)

    def rename(self, session: Session, job: str) -> None:
        """The same session under a new job id: the broker remembers an ended id for a minute."""
        del self._by_job[session.id]
        session.id = job
        self._by_job[job] = session

    def _end(self, session: Session) -> None:
        self._by_job.pop(session.id, None)
        self._changed.set()
        if session.request_id:
            key = (session.tenant, session.request_id)
            del self._by_request[key]
            self._ended[key] = session
            self._ended_tokens += _size(session)
        self._prune()

    def _prune(self) -> None:
        """Forget what is too old, too many or too large."""
        old = time.monotonic() - KEEP_FOR
        while self._ended:
            session = next(iter(self._ended.values()))
            crowded = len(self._ended) > KEEP_REQUESTS or self._ended_tokens > KEEP_TOKENS
            if not crowded and (session.ended is None or session.ended >= old):
                return
            self._ended.popitem(last=False)
            self._ended_tokens -= _size(session)


def _size(session: Session) -> int:
    return len(session.committed) + len(session.prompt_ids)
