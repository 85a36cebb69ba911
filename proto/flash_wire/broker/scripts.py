"""Loads the .lua files beside it and runs them. One file is one operation; its header says what goes in and out."""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

_INCLUDE = re.compile(r"^-- @include (\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    source: str
    sha: str

    async def run(self, redis: Redis, keys: list[str], args: list[Any]) -> Any:
        """One round trip; two when the server does not know the script (a restart). Raises redis exceptions."""
        values = [*keys, *map(_text, args)]
        try:
            return await command(redis, "EVALSHA", self.sha, len(keys), *values)
        except NoScriptError:
            return await command(redis, "EVAL", self.source, len(keys), *values)


async def command(redis: Redis, *words: Any) -> Any:
    """One command, one try. The client's own function has no types."""
    execute: Any = redis.execute_command
    return await execute(*words)


@functools.cache
def script(name: str) -> Script:
    """The script of an operation, its includes in place."""
    source = _INCLUDE.sub(lambda match: _read(match[1]), _read(name))
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def _read(name: str) -> str:
    return resources.files("flash_wire.broker").joinpath(f"{name}.lua").read_text(encoding="utf-8").rstrip()


def _text(value: Any) -> str | bytes:
    return value if isinstance(value, str | bytes) else str(value)
