"""Health and reflection whose streams end when the server stops.

The ones that grpcio ships never end by themselves, and a server waits for every open call: one watcher would make each
stop last its whole grace. (Stopping twice to cut them is no way out: it can crash grpcio.)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc
from grpc_reflection.v1alpha._async import ReflectionServicer

from flash_router.core import Core

HEALTH_PERIOD = 0.2
"""Seconds after which a watcher has heard of a change."""
T = TypeVar("T")


class Watch:
    """Answers health checks from core.ready, and reflection. Made and closed on the server's loop."""

    def __init__(self, core: Core, service: str) -> None:
        self._closing = asyncio.Event()
        self._health = _Health(core, frozenset(("", service)), self._closing)
        self._names = (service, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME)

    def add_to(self, server: Any) -> None:
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflecting = _Reflection(self._names)
        reflecting.closing = self._closing
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflecting, server)

    def close(self) -> None:
        """NOT_SERVING from now on; streams tell it and end."""
        self._closing.set()


class _Health(health_pb2_grpc.HealthServicer):
    def __init__(self, core: Core, services: frozenset[str], closing: asyncio.Event) -> None:
        self._core, self._services, self._closing = core, services, closing

    async def Check(self, request: Any, context: Any) -> Any:
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service {request.service[:100]!r} here")
        return health_pb2.HealthCheckResponse(status=self._status(request.service))

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        shown: int | None = None
        while True:
            closing = self._closing.is_set()
            if (now := self._status(request.service)) != shown:
                shown = now
                yield health_pb2.HealthCheckResponse(status=now)
            if closing:
                return
            await _first_of(asyncio.sleep(HEALTH_PERIOD), self._closing)

    def _status(self, service: str) -> int:
        kinds = health_pb2.HealthCheckResponse
        if service not in self._services:
            unknown: int = kinds.SERVICE_UNKNOWN
            return unknown
        status: int = kinds.SERVING if self._core.ready and not self._closing.is_set() else kinds.NOT_SERVING
        return status


class _Reflection(ReflectionServicer):
    closing: asyncio.Event

    async def ServerReflectionInfo(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        async for answer in super().ServerReflectionInfo(_until(request_iterator, self.closing), context):
            yield answer


async def _until(items: AsyncIterator[T], closing: asyncio.Event) -> AsyncIterator[T]:
    """The items, until they end or it closes."""
    iterator = aiter(items)
    while not closing.is_set():
        try:
            item = await _first_of(anext(iterator), closing)
        except StopAsyncIteration:
            return
        if item is None:
            return
        yield item


async def _first_of(work: Any, closing: asyncio.Event) -> Any:
    """What `work` gives, or None when it closes before."""
    working, closed = asyncio.ensure_future(_awaited(work)), asyncio.ensure_future(closing.wait())
    try:
        await asyncio.wait((working, closed), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, closed):
            task.cancel()


async def _awaited(work: Any) -> Any:
    return await work
