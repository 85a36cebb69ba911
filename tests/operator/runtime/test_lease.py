"""Leader election: never two leaders, never long without one, another installation is refused."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import dataclass, field
from typing import Any

import pytest
from flash_operator.client import ApiError, Resource, Unreachable
from flash_operator.lease import DURATION_S, Election, Refused
from hypothesis import given, settings
from hypothesis import strategies as st
from support.virtual_time import clock, run


@dataclass
class Store:
    """The one Lease, with the API server's rules for versions."""

    lease: dict[str, Any] | None = None
    version: int = 0

    def put(self, body: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        self.lease = copy.deepcopy(body)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return copy.deepcopy(self.lease)


@dataclass
class Line:
    """One operator's way to the store: it may be slow, and cut between two times."""

    store: Store
    cuts: list[tuple[float, float]] = field(default_factory=list)
    delay: float = 0.05

    async def _there(self) -> None:
        await asyncio.sleep(self.delay)
        for begin, length in self.cuts:
            if begin <= clock() < begin + length:
                raise Unreachable("refused")

    async def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any]:
        await self._there()
        if self.store.lease is None:
            raise ApiError(404, "NotFound", "no lease")
        return copy.deepcopy(self.store.lease)

    async def create(self, resource: Resource, body: dict[str, Any]) -> dict[str, Any]:
        await self._there()
        if self.store.lease is not None:
            raise ApiError(409, "Conflict", "there is one")
        return self.store.put(body)

    async def replace(self, resource: Resource, body: dict[str, Any]) -> dict[str, Any]:
        await self._there()
        if self.store.lease is None:
            raise ApiError(404, "NotFound", "no lease")
        if body["metadata"].get("resourceVersion") != self.store.lease["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "changed since")
        answer = self.store.put(body)
        await asyncio.sleep(self.delay)
        return answer


class Operators:
    def __init__(self) -> None:
        self.store = Store()
        self.leaders: list[tuple[float, str, bool]] = []
        self.now: set[str] = set()
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.elections: dict[str, Election] = {}

    def start(self, name: str, release: str = "one", line: Line | None = None) -> None:
        def say(leading: bool) -> None:
            self.leaders.append((clock(), name, leading))
            (self.now.add if leading else self.now.discard)(name)
            assert len(self.now) <= 1, f"two leaders at {clock()}: {self.now}"

        election = Election(
            line or Line(self.store),  # type: ignore[arg-type]
            "ns",
            name,
            release,
            acquired=lambda: say(True),
            lost=lambda: say(False),
            clock=clock,
        )
        self.elections[name] = election
        self.tasks[name] = asyncio.create_task(election.run())

    async def kill(self, name: str) -> None:
        """As SIGKILL: nothing is said, and the Lease stays as it is."""
        self.tasks[name].cancel()
        await asyncio.gather(self.tasks[name], return_exceptions=True)

    async def end(self) -> None:
        for name in self.tasks:
            await self.kill(name)


def test_a_killed_leader_is_replaced_within_twenty_seconds() -> None:
    async def main() -> None:
        operators = Operators()
        operators.start("a")
        await asyncio.sleep(3)
        operators.start("b")
        await asyncio.sleep(31)
        assert operators.now == {"a"}
        await operators.kill("a")
        killed = clock()
        await asyncio.sleep(18)
        assert operators.now == {"b"}
        assert operators.leaders[-1][0] - killed > 8, "a Lease that was renewed lately is respected"
        await operators.end()

    run(main)


def test_a_leader_that_ends_hands_over_at_once() -> None:
    async def main() -> None:
        operators = Operators()
        operators.start("a")
        await asyncio.sleep(1)
        operators.start("b")
        await asyncio.sleep(10)
        await operators.elections["a"].release()
        assert operators.now == set()
        await asyncio.sleep(2.5)
        assert operators.now == {"b"}
        assert operators.store.lease is not None
        assert operators.store.lease["spec"]["leaseTransitions"] == 2
        await operators.end()

    run(main)


def test_another_installation_is_refused_by_name() -> None:
    async def main() -> None:
        operators = Operators()
        operators.start("a-pod", release="team/fleet")
        await asyncio.sleep(1)
        operators.start("b-pod", release="other/fleet")
        await asyncio.sleep(1)
        with pytest.raises(Refused, match=r"namespace ns already has .*'team/fleet', pod a-pod.*'other/fleet'"):
            await operators.tasks["b-pod"]
        assert operators.now == {"a-pod"}
        # Once the first is gone for good, the second may have the scope.
        await operators.kill("a-pod")
        await asyncio.sleep(2 * DURATION_S)
        operators.start("c-pod", release="other/fleet")
        await asyncio.sleep(1)
        with pytest.raises(Refused):
            await operators.tasks["c-pod"]
        await operators.end()

    run(main)


def test_a_leader_without_the_server_stops_before_another_starts() -> None:
    async def main() -> None:
        operators = Operators()
        operators.start("a", line=Line(operators.store, cuts=[(20, 60)]))
        await asyncio.sleep(2)
        operators.start("b")
        await asyncio.sleep(60)
        lost = next(at for at, name, leading in operators.leaders if name == "a" and not leading)
        won = next(at for at, name, leading in operators.leaders if name == "b" and leading)
        assert lost + 4 < won
        assert operators.now == {"b"}
        await operators.end()

    run(main)


def test_an_outage_of_the_server_ends_with_a_leader() -> None:
    async def main() -> None:
        operators = Operators()
        for name in ("a", "b"):
            operators.start(name, line=Line(operators.store, cuts=[(10, 20)]))
        await asyncio.sleep(28)
        assert operators.now == set()
        await asyncio.sleep(10)
        assert len(operators.now) == 1
        await operators.end()

    run(main)


cut = st.lists(st.tuples(st.floats(0, 200), st.floats(0.1, 40)), max_size=4)


@settings(max_examples=80, deadline=None)
@given(cuts=st.lists(cut, min_size=2, max_size=3), delays=st.lists(st.floats(0, 3), min_size=3, max_size=3))
def test_never_two_leaders(cuts: list[list[tuple[float, float]]], delays: list[float]) -> None:
    """Under any cuts and any slowness. `Operators` asserts it at each change."""

    async def main() -> None:
        operators = Operators()
        for number, one in enumerate(cuts):
            operators.start(str(number), line=Line(operators.store, one, delays[number]))
        await asyncio.sleep(300)
        if max(delays) < 0.5:  # slower than that, a renewal may not fit in its time
            assert len(operators.now) == 1, "all cuts are over, so somebody leads"
        for task in operators.tasks.values():
            assert not task.done()
        await operators.end()

    run(main)
