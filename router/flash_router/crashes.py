"""Who died with one job's prompt: counted by the router alone, so that no loss of the broker forgets it.

A broken stream is not a crash. It becomes one when the worker is known to be dead (a new incarnation of its name
said Hello, or its fleet entry lapsed), and stops being one when the same incarnation comes back.
"""

from __future__ import annotations

from flash_wire.broker.types import SUSPECT_CRASHES

POISON_CRASHES = 2
"""So many crashes while alone, and the prompt is the cause. With the two before, at most four workers die."""


class Crashes:
    """The crash account of one job. Incarnations that are only lost count as dead where waiting is the safe side."""

    __slots__ = ("_dead", "_lost")

    def __init__(self) -> None:
        self._lost: dict[str, bool] = {}
        self._dead: dict[str, bool] = {}

    def lost(self, incarnation: str, *, alone: bool) -> None:
        """The stream broke while this incarnation ran the job."""
        if incarnation not in self._dead:
            self._lost[incarnation] = alone or self._lost.get(incarnation, False)

    def died(self, incarnation: str) -> bool:
        """It is known to be dead. True when that changes the account."""
        if incarnation not in self._lost:
            return False
        self._dead[incarnation] = self._lost.pop(incarnation)
        return True

    def back(self, incarnation: str) -> bool:
        """The same incarnation lives after all. True when that changes the account."""
        return (self._lost.pop(incarnation, None) is not None) | (self._dead.pop(incarnation, None) is not None)

    @property
    def unresolved(self) -> frozenset[str]:
        """Lost, and not known to be dead or alive."""
        return frozenset(self._lost)

    @property
    def count(self) -> int:
        """Confirmed crashes: what the broker is told."""
        return len(self._dead)

    @property
    def suspect(self) -> bool:
        """Run it alone. Workers whose fate is open count: running alone needlessly costs little."""
        return len(self._dead) + len(self._lost) >= SUSPECT_CRASHES

    @property
    def poison(self) -> bool:
        return sum(self._dead.values()) >= POISON_CRASHES

    @property
    def undecided(self) -> bool:
        """Poison if those whose fate is open are dead: give it to nobody until that is known."""
        return not self.poison and sum(self._dead.values()) + sum(self._lost.values()) >= POISON_CRASHES
