"""A loaded model in the fleet: its links, its leases, its entry in the fleet record."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from flash_wire import PROTOCOL
from flash_wire.broker.client import Broker
from flash_wire.broker.types import Level, Pool
from flash_wire.fleet import WorkerRecord, announce_worker, snapshot, withdraw
from flash_wire.settings import WorkerLive, WorkerStatic
from flash_wire.text import TextModel
from flash_wire.v1 import fleet_pb2 as fp

from flash_worker.acks import TROUBLE, BrokerHealth
from flash_worker.lease import Leases
from flash_worker.link import Link, Links
from flash_worker.request import Output, Request, Room

log = logging.getLogger(__name__)

ANNOUNCE_EVERY = 1.0
LOOK_EVERY = 0.2
"""The same while a loaded worker knows no router."""
TTL_MS = 5000
"""Life of the worker's fleet entry: how soon a death that nobody saw is known."""
GIVE_UP = 5.0
"""Seconds for one round's questions to the broker."""
LAST_FRAMES = 1.0
"""Seconds for what is still to be written to routers when the worker stops."""


class EngineLike(Protocol):
    """What the fleet needs of an engine: flash_worker.engine.Engine, or a scripted one in tests."""

    on_output: Callable[[list[Output]], None]

    def start(self) -> None: ...
    def submit(self, request: Request) -> None: ...
    def abort(self, id: str) -> None: ...
    def room(self) -> Room: ...
    def last_step_age(self) -> float: ...
    def pin(self, prefix: Sequence[int]) -> int: ...
    def close(self, drain: float = 0.0) -> None: ...
    @property
    def trouble(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Served:
    """A model that is ready to run."""

    engine: EngineLike
    text: TextModel
    revision: str
    max_model_len: int
    """Longest prompt and answer together, tokens."""
    description: str = ""
    stats: Callable[[], Any] | None = None
    """flash_worker.stats.Stats, for metrics."""


class Presence:
    """The worker's entry in the fleet record, and what it reads there: which routers to dial."""

    def __init__(self, broker: Broker, static: WorkerStatic, name: str, static_hash: str, live_hash: Callable[[], str],
                 http: str) -> None:  # fmt: skip
        self.incarnation = uuid.uuid4().hex
        self.name = name
        self.state = "loading"
        self.detail = "starting"
        self.health = BrokerHealth()
        self.fleet_worker: FleetWorker | None = None
        self._broker = broker
        self._static = static
        self._static_hash = static_hash
        self._live_hash = live_hash
        self._http = http
        self._now = asyncio.Event()

    def say(self, state: str, detail: str = "") -> None:
        """Change the entry, at once rather than at the next round."""
        self.state, self.detail = state, detail
        self._now.set()

    def record(self) -> WorkerRecord:
        engine = self._static.engine
        worker = self.fleet_worker
        room = worker.served.engine.room() if worker else Room(0, 0, engine.max_seqs, engine.kv_tokens)
        slots, kv_tokens = worker.leases.room() if worker else (0, 0)
        return WorkerRecord(
            incarnation=self.incarnation,
            name=self.name,
            tier=self._static.tier,
            state=self.state,
            rev=worker.served.revision if worker else "",
            slots=room.max_slots,
            slots_free=slots,
            kv_tokens=room.max_kv_tokens,
            kv_tokens_free=kv_tokens,
            max_model_len=worker.served.max_model_len if worker else 0,
            static_hash=self._static_hash,
            live_hash=self._live_hash(),
            last_step_ms=int(worker.served.engine.last_step_age() * 1000) if worker else 0,
            http=self._http,
            detail=self.detail,
        )

    async def run(self) -> None:
        """Announce and look, every second, for ever. An outage of the broker ends nothing."""
        while True:
            try:
                async with asyncio.timeout(GIVE_UP):
                    await announce_worker(self._broker, self._broker.fleet, self.record(), TTL_MS)
                    routers = (await snapshot(self._broker, self._broker.fleet)).routers
                self.health.answered()
                if self.fleet_worker is not None:
                    await self.fleet_worker.links.follow(routers)
            except TROUBLE as error:
                self.health.failed(error)
            except Exception:
                log.exception("announcing failed")
            try:
                async with asyncio.timeout(LOOK_EVERY if self._looks_for_routers() else ANNOUNCE_EVERY):
                    await self._now.wait()
            except TimeoutError:
                continue
            self._now.clear()

    def _looks_for_routers(self) -> bool:
        """Loaded and attached to none: requests may be held until it has dialled."""
        return self.fleet_worker is not None and not any(link.open for link in self.fleet_worker.links)

    async def leave(self) -> None:
        try:
            async with asyncio.timeout(LAST_FRAMES):
                await withdraw(self._broker, self._broker.fleet, self.record())
        except TROUBLE as error:
            log.info("the worker's fleet entry is left to lapse: %s", type(error).__name__)


class FleetWorker:
    """A served model, from its first claim to its drain."""

    def __init__(
        self,
        served: Served,
        static: WorkerStatic,
        presence: Presence,
        broker: Broker,
        live: Callable[[], WorkerLive],
        live_hash: Callable[[], str],
    ) -> None:
        self.served = served
        self._static = static
        self._presence = presence
        self._live = live
        self._live_hash = live_hash
        self.links = Links(self._link)
        self.leases = Leases(
            broker=broker,
            pool=Pool(static.fleet, static.tier, served.revision),
            incarnation=presence.incarnation,
            engine=served.engine,
            link_to=self.links.get,
            weights=self._weights,
            health=presence.health,
        )
        loop = asyncio.get_running_loop()
        # One wake-up of the loop for each step that gave something, whatever the number of requests in it.
        served.engine.on_output = lambda outputs: _post(loop, self.leases.outputs, outputs)

    def claim_age(self) -> float:
        """Seconds since the last claim attempt."""
        return time.monotonic() - self.leases.last_attempt

    async def run(self) -> None:
        """For ever."""
        await self.leases.run()

    async def drain(self, seconds: float) -> None:
        """Hand over or finish everything; then close the links."""
        await self.leases.drain(seconds)
        for link in self.links:
            await link.flushed(LAST_FRAMES)
        await self.links.close()

    def _weights(self) -> dict[Level, int]:
        priorities = self._live().priorities
        return {"high": priorities.high, "low": priorities.low}

    def _link(self, router_id: str, address: str) -> Link:
        return Link(router_id, address, self._hello, self.served.text, self._alive, self.leases)

    def _hello(self) -> fp.Hello:
        record = self._presence.record()
        return fp.Hello(
            protocol=PROTOCOL,
            incarnation=record.incarnation,
            name=record.name,
            tier=record.tier,
            revision=record.rev,
            text_hash=self.served.text.hash,
            max_model_len=record.max_model_len,
            kv_tokens=record.kv_tokens,
            static_hash=record.static_hash,
            live_hash=record.live_hash,
            max_seqs=record.slots,
            block_size=self._static.engine.block_size,
        )

    def _alive(self) -> fp.Alive:
        slots, kv_tokens = self.leases.room()
        state = "draining" if self.leases.draining else "ready"
        return fp.Alive(slots_free=slots, kv_tokens_free=kv_tokens, state=state, live_hash=self._live_hash())


def _post(loop: asyncio.AbstractEventLoop, call: Callable[[list[Output]], None], outputs: list[Output]) -> None:
    try:
        loop.call_soon_threadsafe(call, outputs)
    except RuntimeError:
        log.debug("outputs after the loop's end: nobody is there to read them")
