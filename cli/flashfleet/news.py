"""What is new about the workers of a fleet, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flash_wire.fleet import WorkerRecord

_EVERY = 2.0
"""Seconds between two words about what a loading worker does."""
_MOST = 256


class News:
    """Remembers what it said of each life of a worker: a dead one's record outlives it by some seconds, and must not be
    taken for the state of the life after it, which has the same name."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[str, float]] = {}

    def of(self, workers: Iterable[WorkerRecord], now: float) -> Iterator[str]:
        """A sentence for each change of a worker's state, and for what a loading one does from time to time.

        `now` is time.monotonic() seconds.
        """
        for worker in workers:
            line, at = self._said.get(worker.incarnation, ("", 0.0))
            new = worker.state + (f": {worker.detail}" if worker.detail else "")
            if new != line and (worker.state != line.partition(":")[0] or now - at > _EVERY):
                self._said[worker.incarnation] = (new, now)
                yield f"{worker.name} {new}"
        while len(self._said) > _MOST:
            del self._said[next(iter(self._said))]
