"""The router's settings files: read at the start, and the live one again when it changes."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from flash_wire.settings import RouterLive, Settings, SettingsError, parse

MAX_FILE = 4 * 1024 * 1024
RELOAD_EVERY = 0.5
"""Seconds. Looking at the content needs no events, which mounted files do not give reliably."""
_log = logging.getLogger("flash_router")
S = TypeVar("S", bound=Settings)


def read_bytes(path: Path) -> bytes:
    """Raises SettingsError that names the file."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE + 1)
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > MAX_FILE:
        raise SettingsError(f"{path}: is larger than {MAX_FILE} bytes")
    return content


def parsed(kind: type[S], content: bytes, path: Path) -> S:
    """Raises SettingsError with a line for each mistake, each naming the file."""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path}: is not JSON: {error}") from None
    try:
        return parse(kind, data)
    except SettingsError as error:
        raise SettingsError("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from None


async def keep_reloading(path: Path, seen: bytes, apply: Callable[[RouterLive], None]) -> None:
    """Calls `apply` for each new content. One that cannot be used is told once and changes nothing."""
    told = ""
    while True:
        await asyncio.sleep(RELOAD_EVERY)
        try:
            content = await asyncio.to_thread(read_bytes, path)
            if content == seen:
                continue
            seen = content
            apply(parsed(RouterLive, content, path))
        except SettingsError as error:
            if str(error) != told:
                _log.error("live settings stay as they were: %s", error)
            told = str(error)
        except Exception:
            _log.exception("live settings stay as they were: the new ones could not be taken")
        else:
            told = ""
            _log.info("live settings reloaded")
