"""Which lost workers are dead, and which only lost their stream."""

from __future__ import annotations

from flash_wire.fleet import Fleet

SETTLE = 6.0
"""Seconds after the broker lost its data in which a missing fleet entry says nothing: workers announce themselves
again every second, and an entry lives for about five."""
MOST = 4096


class Fates:
    def __init__(self) -> None:
        self._open: dict[str, str] = {}

    def lost(self, incarnation: str, name: str) -> None:
        """Its stream broke; what became of it is open."""
        self._open[incarnation] = name
        while len(self._open) > MOST:
            del self._open[next(iter(self._open))]

    def hello(self, incarnation: str, name: str) -> list[str]:
        """A worker came (back). Returns the incarnations that are thereby known to be dead."""
        self._open.pop(incarnation, None)
        return self._close([old for old, called in self._open.items() if called == name])

    def seen(self, fleet: Fleet, *, settled: float) -> list[str]:
        """A reading of the fleet record, `settled` seconds after the broker was found or last lost its data.

        Returns the incarnations that are thereby known to be dead: replaced under their name, or lapsed.
        """
        alive = {worker.incarnation for worker in fleet.workers}
        names = {worker.name for worker in fleet.workers}
        return self._close(
            [old for old, name in self._open.items() if old not in alive and (name in names or settled >= SETTLE)]
        )

    def _close(self, dead: list[str]) -> list[str]:
        for incarnation in dead:
            del self._open[incarnation]
        return dead
