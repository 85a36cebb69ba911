"""Ending asyncio tasks for certain."""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN = 0.1


async def end(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks and wait until all of them are over. What they raised is not raised here.

    One cancel is not enough: before Python 3.12 asyncio.wait_for swallows a cancel that comes in the same turn as its
    result, and the Redis client uses it for every command. So it is said again until it is heard.
    """
    given = [task for task in tasks if task is not None]
    left = {task for task in given if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN)
    for task in given:
        if not task.cancelled():
            task.exception()  # seen: no warning about it at the interpreter's end
