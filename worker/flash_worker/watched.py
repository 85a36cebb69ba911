"""A settings file that is read again when it changes. A bad edit is refused, logged, and changes nothing."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from flash_wire.settings import Settings, SettingsError, hash_of, parse, to_json

log = logging.getLogger(__name__)

LOOK_EVERY = 0.5
S = TypeVar("S", bound=Settings)


def read(kind: type[S], path: Path) -> S:
    """Raises SettingsError with the file's name and one sentence for each mistake."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None
    return _parse(kind, path, text)


def _parse(kind: type[S], path: Path, text: str) -> S:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise SettingsError(f"{path} is no JSON: {error}") from None
    return parse(kind, data, path.name)


class Watched(Generic[S]):
    """`value` is the newest good reading, `hash` names it."""

    def __init__(self, kind: type[S], path: Path, changed: Callable[[S], None] = lambda value: None) -> None:
        """Raises SettingsError where the first reading is bad."""
        self._kind = kind
        self._path = path
        self._changed = changed
        self.value = read(kind, path)
        self.hash = hash_of(to_json(self.value))
        self._text = path.read_text(encoding="utf-8")

    def look(self) -> None:
        """Read it again if its text has changed. A mounted ConfigMap changes by its link, so times say nothing."""
        try:
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return  # being replaced; what is in use stays
        if text == self._text:
            return
        self._text = text
        try:
            value = _parse(self._kind, self._path, text)
        except SettingsError as error:
            log.error("%s was changed and is refused, the old settings stay: %s", self._path.name, error)
            return
        self.value, self.hash = value, hash_of(to_json(value))
        log.info("%s was read again", self._path.name)
        self._changed(value)

    async def follow(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            self.look()
