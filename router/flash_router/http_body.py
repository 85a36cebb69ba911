"""Bodies of HTTP requests: read within bounds, and parsed where large ones do not stall the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from starlette.requests import Request

from flash_router.core import Refused
from flash_router.desk import Desk, Room

T = TypeVar("T")
MAX_BODY = 16 * 1024 * 1024
"""Bytes of one request; text and ids within it have bounds of their own in `validate`."""
MAX_DISCARDED = 8 * MAX_BODY
BODY_WITHIN = 30.0
"""Seconds that a client has to send its body."""
SMALL_BODY = 64 * 1024
"""Bytes up to which a body is parsed on the event loop (about 1 ms) and never refused for others' bodies."""
MAX_BODIES = 4 * MAX_BODY
"""Bytes of larger bodies that are being read or parsed."""


class BodyTooLong(Exception):
    """More than MAX_BODY bytes came."""


class Bodies:
    """All that one server reads."""

    def __init__(self) -> None:
        self.room = Room(MAX_BODIES, "bytes of large bodies")
        self._desk = Desk("bodies")

    async def read(self, request: Request, parse: Callable[[bytes], T]) -> T:
        """What `parse` makes of the body. It runs in a thread for a large one.

        Raises BodyTooLong, TimeoutError after BODY_WITHIN, Refused(BUSY) while other large bodies fill the room, and
        what `parse` raises.
        """
        parts: list[bytes] = []
        total = taken = 0
        busy: Refused | None = None
        try:
            async with asyncio.timeout(BODY_WITHIN):
                async for part in request.stream():
                    total += len(part)
                    if total > MAX_DISCARDED:
                        break
                    if total <= MAX_BODY and busy is None:
                        parts.append(part)
                        if total > SMALL_BODY:
                            try:
                                self.room.take(total - taken)
                                taken = total
                            except Refused as refused:
                                busy = refused
                    if total > MAX_BODY or busy is not None:
                        # A client reads the answer only after it has sent its body: drop the rest of a moderate one.
                        parts.clear()
                        self.room.give(taken)
                        taken = 0
            if total > MAX_BODY:
                raise BodyTooLong
            if busy is not None:
                raise busy
            body = b"".join(parts)
            parts.clear()
            if total <= SMALL_BODY:
                return parse(body)
            return await self._desk.do(lambda: parse(body))
        finally:
            self.room.give(taken)
