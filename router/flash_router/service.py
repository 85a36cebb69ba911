"""The router's core: one request in, one stream of events out. Both fronts call it."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from typing import Any, Protocol

import grpc
from flash_wire.broker.client import Broker
from flash_wire.broker.connect import connect
from flash_wire.broker.types import Level
from flash_wire.fleet import RouterRecord, withdraw
from flash_wire.settings import TIERS, RouterLive, RouterStatic, hash_of, to_json
from flash_wire.stream import MAX_FRAME
from flash_wire.tasks import end
from flash_wire.v1 import fleet_pb2_grpc
from flash_wire.v1 import inference_pb2 as pb

from flash_router.core import CoreStats, ModelInfo, Refused, Why, on_parting
from flash_router.dispatch import Dispatcher, new_job
from flash_router.jobs import Jobs
from flash_router.listen import ADVERTISE, address, reachable
from flash_router.ops import TROUBLE
from flash_router.roster import Roster
from flash_router.session import GRACE, Session, digest
from flash_router.streams import FleetServicer
from flash_router.texts import Texts
from flash_router.upkeep import Upkeep

log = logging.getLogger(__name__)

LAST_WORDS = 3.0
"""Seconds for the broker's last operations when the router stops."""
TIER_NAMES: dict[int, str] = {pb.FLASH: "flash", pb.STANDARD: "standard"}


class Decides(Protocol):
    """Chooses a tier for a request that names none (flash_router.decide.Decider)."""

    def decide(self, request: pb.GenerateRequest) -> pb.Decision:
        """Called once for each request that names no tier."""
        ...

    def explain(self, request: pb.GenerateRequest) -> pb.Decision:
        """The same without an effect on the share that is held."""
        ...


class RouterCore:
    """Implements flash_router.core.Core. Made by `start`."""

    def __init__(self, static: RouterStatic, live: RouterLive, broker_url: str, decider: Decides) -> None:
        self.id = new_job()
        """New at each start: the owner of this router's jobs."""
        self._static = static
        self._live = live
        self._decider = decider
        self._name = static.fleet.partition("/")[2]
        self._redis = connect(broker_url)
        self._roster = Roster()
        self._dispatcher = Dispatcher(
            live=live, jobs=Jobs(Broker(self._redis, static.fleet), self.id), roster=self._roster
        )
        self._servicer = FleetServicer(self._dispatcher, Texts(), self.id)
        self._upkeep = Upkeep(self._dispatcher, self._record)
        self._tasks: list[asyncio.Task[None]] = []
        self._server: Any = None
        self._fleet_address = ""
        self._grpc = self._http = ""
        self._static_hash, self._live_hash = hash_of(to_json(static)), hash_of(to_json(live))
        self._state = "starting"

    async def _start(self) -> None:
        options = [
            ("grpc.max_receive_message_length", MAX_FRAME),
            ("grpc.max_send_message_length", MAX_FRAME),
            ("grpc.so_reuseport", 0),
            ("grpc.keepalive_time_ms", 10_000),
            ("grpc.keepalive_timeout_ms", 5_000),
            ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ]
        self._server = grpc.aio.server(options=options)
        fleet_pb2_grpc.add_FleetServicer_to_server(self._servicer, self._server)
        host, port = self._static.host, self._static.fleet_port
        try:
            bound = self._server.add_insecure_port(address(host, port))
        except RuntimeError:
            bound = 0
        if not bound:
            raise OSError(
                f"port {port} on {host} cannot be opened for workers: another process has it; set fleetPort to a free"
                " one, or to 0"
            )
        self._fleet_address = address(reachable(host, os.environ.get(ADVERTISE, "")), bound)
        await self._server.start()
        self._tasks.append(asyncio.create_task(self._upkeep.run()))
        self._state = "ready"

    # -- requests

    async def generate(self, request: pb.GenerateRequest, *, deadline: float | None) -> AsyncIterator[pb.GenerateEvent]:
        """Started, Deltas, Done. `deadline` is time.monotonic() seconds.

        A request_id that runs, or that ended with tokens less than two minutes ago, is attached to from
        resume_position. The newest call has the stream: an older one ends with CANCELLED. Closing the iterator that
        has the stream cancels the request, with a request_id after GRACE seconds in which nobody attached.
        """
        session = self._find(request) or self._open(request, deadline)
        over = False
        reader = session.attach(request.resume_position)
        try:
            async for event in reader.events():
                over = event.HasField("done")
                yield event
        finally:
            if not over and (told := on_parting.get()) is not None:
                told(session.so_far())
            # A router that stops takes no client back.
            session.leave(reader, GRACE if session.request_id and self._state == "ready" else 0.0)

    def _find(self, request: pb.GenerateRequest) -> Session | None:
        """The session that a request id names, to attach to. Raises Refused where it should be there and is not, or
        is another request's.
        """
        if not request.request_id:
            return None
        session = self._dispatcher.sessions.find(request.tenant, request.request_id)
        if session is None and request.resume_position:
            raise Refused(
                Why.NOT_FOUND,
                f"request {request.request_id!r} is not known here: it ended some time ago or went to another router;"
                " send it again without resume_position",
                field="request_id",
            )
        if session is not None and session.digest != digest(request):
            raise Refused(
                Why.CONFLICT,
                f"request_id {request.request_id!r} belongs to another request, with another prompt or other settings:"
                " send this one under an id of its own",
                field="request_id",
            )
        if session is not None and session.is_over and not session.is_whole and not request.resume_position:
            return None  # It broke off, and the client has nothing of it to go on from: it starts anew.
        return session

    def _open(self, request: pb.GenerateRequest, deadline: float | None) -> Session:
        if self._state != "ready":
            raise Refused(Why.UNAVAILABLE, "this router is stopping: ask another", retry_after=1.0)
        asked = self._tier_of(request)
        latest = time.monotonic() + self._live.limits.max_duration
        session = Session(
            new_job(), request, level=self._level(request), deadline=min(latest, deadline if deadline else latest)
        )
        if session.deadline <= time.monotonic():
            raise Refused(Why.DEADLINE, "the request's deadline had passed when it came")
        session.model = self._name
        session.decision = self._decide(request, asked, explain=False)
        session.tier = TIER_NAMES[session.decision.tier]
        self._dispatcher.accept(session, may_fall_back=asked == pb.AUTO)
        return session

    def _tier_of(self, request: pb.GenerateRequest) -> pb.Tier:
        """What the request names, or AUTO. Raises Refused for a model that is not served here."""
        if request.model in ("", self._name):
            return request.tier
        for name in TIERS:
            if request.model == f"{self._name}:{name}":
                return pb.FLASH if name == "flash" else pb.STANDARD
        known = ", ".join(model.id for model in self.models())
        raise Refused(Why.NOT_FOUND, f"model {request.model!r} is not served here: use one of {known}", field="model")

    def _decide(self, request: pb.GenerateRequest, asked: int, *, explain: bool) -> pb.Decision:
        if asked != pb.AUTO:
            return pb.Decision(tier=pb.FLASH if asked == pb.FLASH else pb.STANDARD, how="forced")
        return self._decider.explain(request) if explain else self._decider.decide(request)

    def _level(self, request: pb.GenerateRequest) -> Level:
        if request.priority == pb.PRIORITY_UNSPECIFIED:
            return self._live.priorities.default
        return "high" if request.priority == pb.HIGH else "low"

    async def explain(self, request: pb.GenerateRequest) -> pb.Decision:
        return self._decide(request, self._tier_of(request), explain=True)

    async def cancel(self, request_id: str, tenant: str) -> bool:
        """False when no such request waits or runs."""
        session = self._dispatcher.sessions.find(tenant, request_id)
        if session is None or session.is_over:
            return False
        session.finish(pb.CANCELLED, "cancelled by request")
        return True

    # -- what people and probes ask

    def models(self) -> list[ModelInfo]:
        ready = {tier: self._roster.newest(tier) is not None for tier in TIERS}
        return [
            ModelInfo(self._name, any(ready.values())),
            *(ModelInfo(f"{self._name}:{tier}", ready[tier]) for tier in TIERS),
        ]

    @property
    def ready(self) -> bool:
        return self._state == "ready"

    @property
    def fleet_address(self) -> str:
        """host:port that workers dial."""
        return self._fleet_address

    def stats(self) -> CoreStats:
        share = getattr(self._decider, "share", None)
        return CoreStats(
            share=float(getattr(share, "observed", 0.0)),
            share_target=self._live.routing.standard_share,
            threshold=float(getattr(share, "threshold", 0.0)),
            held=self._dispatcher.holding.by_tier,
            held_tokens=self._dispatcher.holding.tokens,
            running=len(self._dispatcher.sessions),
        )

    def _record(self) -> RouterRecord:
        return RouterRecord(
            id=self.id,
            state="ready" if self._state == "ready" else "draining",
            fleet=self._fleet_address,
            held=self._dispatcher.holding.by_tier,
            held_tokens=self._dispatcher.holding.tokens,
            share=self.stats().share,
            grpc=self._grpc,
            http=self._http,
            static_hash=self._static_hash,
            live_hash=self._live_hash,
            workers=self._dispatcher.roster.reachable(),
        )

    # -- life

    def announce(self, *, grpc: str, http: str) -> None:
        """The fronts' addresses (host:port), for the fleet record."""
        self._grpc, self._http = grpc, http

    def reload(self, live: RouterLive) -> None:
        """Takes new live settings for requests from now on. The decider is reloaded by whoever made it."""
        self._live = self._dispatcher.live = live
        self._live_hash = hash_of(to_json(live))

    async def stop(self, drain: float) -> None:
        """Not ready at once; refuses new requests; serves the rest up to `drain` seconds, then ends them."""
        self._state = "draining"
        for session in self._dispatcher.sessions:
            session.give_up()
        await self._dispatcher.sessions.empty(drain)
        for session in self._dispatcher.sessions:
            session.refuse(Refused(Why.UNAVAILABLE, "the router stopped before the answer was over", retry_after=1.0))
        await self._dispatcher.flush(LAST_WORDS)
        await end(*self._tasks)
        self._servicer.close()
        await self._server.stop(0.5)
        try:
            async with asyncio.timeout(LAST_WORDS):
                await withdraw(self._redis, self._static.fleet, self._record())
        except TROUBLE as error:
            log.info("the router's fleet entry is left to lapse: %s", type(error).__name__)
        await self._redis.aclose()


async def start(static: RouterStatic, live: RouterLive, broker_url: str, decider: Decides) -> RouterCore:
    """Opens the workers' port (static.fleet_port, 0 takes a free one) and starts the loops.

    Returns before the broker or any worker can be reached: both may come later. Raises OSError when the port is taken,
    ValueError when the broker's address cannot be used.
    """
    core = RouterCore(static, live, broker_url, decider)
    try:
        await core._start()
    except BaseException:
        await core._redis.aclose()
        raise
    return core
