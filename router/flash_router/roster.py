"""Which workers this router can reach, and which the fleet record says are alive or wanted."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from flash_wire.fleet import Fleet
from flash_wire.settings import TIERS
from flash_wire.text import TextModel
from flash_wire.v1 import fleet_pb2 as fp

REMEMBERED = 64
"""Revisions whose age is kept: more than a router sees between two restarts of a sane fleet."""


@dataclass(frozen=True, slots=True)
class Revision:
    """One tier at one revision, with the room of its largest reachable worker."""

    tier: str
    rev: str
    text: TextModel
    max_model_len: int
    kv_tokens: int
    block_size: int


@dataclass(slots=True)
class Attached:
    """A worker that said Hello and whose text is known."""

    hello: fp.Hello
    text: TextModel
    state: str = "ready"


class Roster:
    def __init__(self) -> None:
        self._attached: dict[str, Attached] = {}
        self._age: dict[tuple[str, str], int] = {}
        self._counter = 0
        self._changed = asyncio.Event()
        self.fleet: Fleet | None = None
        """The newest reading of the fleet record; None until there was one."""

    # -- streams

    def attach(self, hello: fp.Hello, text: TextModel) -> None:
        self._attached[hello.incarnation] = Attached(hello, text)
        key = (hello.tier, hello.revision)
        if key not in self._age:
            self._counter += 1
            self._age[key] = self._counter
            while len(self._age) > REMEMBERED:
                del self._age[min(self._age, key=self._age.__getitem__)]
        self._notify()

    def detach(self, incarnation: str) -> None:
        if self._attached.pop(incarnation, None) is not None:
            self._notify()

    def mark(self, incarnation: str, state: str) -> None:
        """What the worker says of itself: ready or draining."""
        worker = self._attached.get(incarnation)
        if worker is not None and state and worker.state != state:
            worker.state = state
            self._notify()

    # -- questions

    def reachable(self) -> list[str]:
        """Incarnations of the attached workers that are ready, sorted."""
        return sorted(name for name, worker in self._attached.items() if worker.state == "ready")

    def newest(self, tier: str) -> Revision | None:
        """The revision that came last among those with a ready worker: where new requests go."""
        revs = {w.hello.revision for w in self._attached.values() if w.hello.tier == tier and w.state == "ready"}
        if not revs:
            return None
        return self.revision(tier, max(revs, key=lambda rev: self._age.get((tier, rev), 0)))

    def revision(self, tier: str, rev: str) -> Revision | None:
        """One revision, if a ready worker of it can be reached. The figures are those of its largest worker."""
        workers = [
            w
            for w in self._attached.values()
            if w.hello.tier == tier and w.hello.revision == rev and w.state == "ready"
        ]
        if not workers:
            return None
        largest = max(workers, key=lambda w: (w.hello.kv_tokens, w.hello.max_model_len))
        hello = largest.hello
        return Revision(
            tier=tier,
            rev=rev,
            text=largest.text,
            max_model_len=hello.max_model_len,
            kv_tokens=hello.kv_tokens,
            block_size=hello.block_size or 1,
        )

    def serves(self, tier: str, rev: str) -> bool:
        """Whether any worker of the revision is known to live, draining or not, here or by the fleet record."""
        if any(w.hello.tier == tier and w.hello.revision == rev for w in self._attached.values()):
            return True
        return self.fleet is not None and any(w.tier == tier and w.rev == rev for w in self.fleet.workers)

    def expects(self, tier: str) -> bool:
        """Whether a worker of the tier is there, starting or wanted. True while nobody knows."""
        if self.fleet is None or self.newest(tier) is not None:
            return True
        if self.fleet.desired.get(tier, 0) > 0:
            return True
        return any(w.tier == tier and w.state in ("loading", "ready") for w in self.fleet.workers)

    def pools(self) -> list[tuple[str, str]]:
        """(tier, rev) of every revision seen, newest last."""
        return sorted(self._age, key=self._age.__getitem__)

    @property
    def tiers(self) -> tuple[str, ...]:
        return TIERS

    # -- changes

    def see(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._notify()

    async def changed(self, timeout: float) -> None:  # noqa: ASYNC109 - running out is not an error here
        """Until something changed, or `timeout` seconds."""
        event = self._changed
        try:
            async with asyncio.timeout(timeout):
                await event.wait()
        except TimeoutError:
            return

    def _notify(self) -> None:
        event, self._changed = self._changed, asyncio.Event()
        event.set()
