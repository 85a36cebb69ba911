"""The fleet records in the brokers, read apart from reconciling: a broker that is away slows no reconcile down."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from flash_wire import fleet
from flash_wire.broker.connect import BrokerClient, connect
from redis.exceptions import RedisError

from flash_operator.observe import Key
from flash_operator.queue import WorkQueue

_FASTEST_S = 1.0
_SLOWEST_S = 15.0
_SLOWER = 1.5
_MOST_BROKERS = 64
_TOGETHER = 8


@dataclass(frozen=True, slots=True)
class Reading:
    """`fleet` is the last one that was read; `error` says why there is none now."""

    fleet: fleet.Fleet | None = None
    error: str = ""
    at: float = float("-inf")
    """time.monotonic() of the last answer."""


@dataclass(slots=True)
class _Watched:
    url: str
    desired: dict[str, int]
    """What the record is to say."""
    urgent: bool
    """Something is to be noticed soon: a tier sleeps, scales or changes."""
    reading: Reading = Reading()
    wait: float = _FASTEST_S


class Fleets:
    """Polls each watched fleet, fast while it changes and slowly while it does not; `changed(key)` is called with news.

    Also writes the wanted number of workers where the record says another.
    """

    def __init__(self, changed: Callable[[Key], None]) -> None:
        self._changed = changed
        self._watched: dict[Key, _Watched] = {}
        self._brokers: dict[str, BrokerClient] = {}
        self.queue: WorkQueue[Key] = WorkQueue(self._poll, workers=_TOGETHER, longest_wait=_SLOWEST_S)

    def watch(self, key: Key, url: str, desired: Mapping[str, int], *, urgent: bool) -> None:
        """Keeps the record of `key` at `url` read, and its wanted counts written."""
        known = self._watched.get(key)
        if known is None or known.url != url:
            self._watched[key] = _Watched(url, dict(desired), urgent)
            self.queue.add(key)
            return
        if known.desired != desired or (urgent and not known.urgent):
            self.hurry(key)
        known.desired, known.urgent = dict(desired), urgent

    def hurry(self, key: Key) -> None:
        """Something happened that the record will soon show."""
        if known := self._watched.get(key):
            known.wait = _FASTEST_S
            self.queue.add(key)

    def reading(self, key: Key) -> Reading:
        known = self._watched.get(key)
        return known.reading if known else Reading()

    def forget(self, key: Key) -> None:
        self._watched.pop(key, None)
        self.queue.forget(key)

    async def close(self) -> None:
        for broker in self._brokers.values():
            with contextlib.suppress(RedisError, OSError):
                await broker.aclose()

    async def _poll(self, key: Key) -> float | None:
        watched = self._watched.get(key)
        if watched is None:
            return None
        before = watched.reading
        try:
            broker = await self._broker(watched.url)
            name = "/".join(key)
            found = await fleet.snapshot(broker, name)
            if any(found.desired.get(tier) != count for tier, count in watched.desired.items()):
                await fleet.set_desired(broker, name, watched.desired)
            watched.reading = Reading(found, "", time.monotonic())
        except (RedisError, OSError, TimeoutError, ValueError) as error:
            # The text of a Redis error may quote what was sent; the address is enough to act on.
            watched.reading = dataclasses.replace(before, error=f"{type(error).__name__}: {_first_line(error)}")
        news = _gist(before) != _gist(watched.reading)
        watched.wait = _FASTEST_S if news or watched.urgent else min(_SLOWEST_S, watched.wait * _SLOWER)
        if watched.reading.error:
            watched.wait = max(watched.wait, 2.0)
        if news and self._watched.get(key) is watched:
            self._changed(key)
        return watched.wait

    async def _broker(self, url: str) -> BrokerClient:
        if url not in self._brokers:
            if len(self._brokers) >= _MOST_BROKERS:  # addresses that nobody uses any more
                used = {watched.url for watched in self._watched.values()}
                for old in [old for old in self._brokers if old not in used]:
                    await asyncio.shield(self._brokers.pop(old).aclose())
            self._brokers[url] = connect(url)
        return self._brokers[url]


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:200]


def _gist(reading: Reading) -> object:
    """What a reconcile would act on or tell; free slots and ages move all the time."""
    found = reading.fleet
    if found is None:
        return bool(reading.error), reading.error
    workers = [(w.incarnation, w.name, w.tier, w.state, w.static_hash, w.live_hash, w.detail) for w in found.workers]
    routers = [
        (
            r.id,
            r.state,
            r.static_hash,
            r.live_hash,
            sorted(r.workers),
            round(r.share, 2),
            sorted(t for t in r.held if r.held[t]),
        )
        for r in found.routers
    ]
    waiting = [
        (d.pool.tier, d.pool.rev, any(level.queued for level in d.levels.values()), d.active > 0) for d in found.pools
    ]
    return bool(reading.error), workers, routers, waiting, sorted(found.desired.items())
