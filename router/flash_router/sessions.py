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
KEEP_BYTES = 64 * 1024 * 1024
_SESSION = 8 * 1024
"""Bytes of a session without tokens and text: its objects, decision and decoder."""
_TOKEN = 36
"""Bytes of a token id or a log-probability in a list: the pointer and the number."""
_PIECE = 80
"""Bytes of a piece of text beside its characters."""


class Sessions:
    def __init__(self) -> None:
        self._by_job: dict[str, Session] = {}
        self._by_request: dict[tuple[str, str], Session] = {}
        self._ended: OrderedDict[tuple[str, str], tuple[Session, int]] = OrderedDict()
        """With the bytes that each was counted as."""
        self._ended_bytes = 0
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
        """By the client's id, and those that ended with tokens too."""
        self._prune()
        key = (tenant, request_id)
        if (session := self._by_request.get(key)) is None and key in self._ended:
            session, _ = self._ended[key]
        return session

    @property
    def kept_bytes(self) -> int:
        """Memory of those that ended and are kept, as estimated."""
        return self._ended_bytes

    def add(self, session: Session) -> None:
        """A session that ended under the same request id is forgotten."""
        self._by_job[session.id] = session
        if session.request_id:
            key = (session.tenant, session.request_id)
            self._forget(key)
            self._by_request[key] = session
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
            if session.is_kept:
                size = size_of(session)
                self._ended[key] = session, size
                self._ended_bytes += size
        self._prune()

    def _prune(self) -> None:
        """Forget what is too old, too many or too large."""
        old = time.monotonic() - KEEP_FOR
        while self._ended:
            key, (session, _) = next(iter(self._ended.items()))
            crowded = len(self._ended) > KEEP_REQUESTS or self._ended_bytes > KEEP_BYTES
            if not crowded and (session.ended is None or session.ended >= old):
                return
            self._forget(key)

    def _forget(self, key: tuple[str, str]) -> None:
        if key in self._ended:
            self._ended_bytes -= self._ended.pop(key)[1]


def size_of(session: Session) -> int:
    """Bytes that an ended session holds, about: characters count as if each took four bytes."""
    numbers = len(session.prompt_ids) + len(session.committed) + len(session.logprobs)
    text = sum(_PIECE + 4 * len(piece) for piece in session.pieces)
    return _SESSION + _TOKEN * numbers + text + 2 * session.sampling.ByteSize() + 2 * session.decision.ByteSize()
