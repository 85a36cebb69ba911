"""Both fronts over a core, a fake one or a real one, on free ports of the loopback address."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from flash_router.grpc_front import GrpcFront
from flash_router.http_front import build_app
from flash_router.http_server import HttpServer
from flash_router.listen import listen
from flash_router.metrics import Metrics
from flash_router.ops_front import ReadFleet
from support.fake_core import FakeCore


@dataclass
class Fronts:
    core: FakeCore
    metrics: Metrics
    grpc_front: GrpcFront
    http_server: HttpServer

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.grpc_front.port}"

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.http_server.port}"


@contextlib.asynccontextmanager
async def serving(core: FakeCore, read_fleet: ReadFleet | None = None) -> AsyncIterator[Fronts]:
    metrics = Metrics(core)
    grpc_front = GrpcFront(core, metrics)
    grpc_front.bind("127.0.0.1", 0)
    http_server = HttpServer(build_app(core, metrics, read_fleet), listen("127.0.0.1", 0, "httpPort"))
    await grpc_front.start()
    await http_server.start()
    try:
        yield Fronts(core, metrics, grpc_front, http_server)
    finally:
        await core.stop(0)
        await asyncio.gather(grpc_front.stop(0), http_server.stop(0))
