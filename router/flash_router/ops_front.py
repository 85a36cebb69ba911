"""What the people and machines around a router ask it over HTTP: health, metrics, the fleet, the page."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from flash_wire.fleet import Fleet
from prometheus_client.exposition import choose_encoder

from flash_router import page
from flash_router.core import Core
from flash_router.metrics import Metrics
from flash_router.openai_out import dumps

ReadFleet = Callable[[], Awaitable[Fleet]]
_FRESH = 0.5
"""Seconds that a reading is shared: however many pages are open, the broker is asked twice a second."""
_WITHIN = 2.0
_log = logging.getLogger("flash_router.http")
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def ops_routes(core: Core, metrics: Metrics, read_fleet: ReadFleet | None) -> APIRouter:
    routes = APIRouter()
    view = FleetView(core, metrics, read_fleet)

    @routes.get("/healthz")
    async def healthz() -> Response:
        return Response("ok\n", media_type="text/plain", headers=_HEADERS)

    @routes.get("/readyz")
    async def readyz() -> Response:
        ready = core.ready
        return Response(
            "ready\n" if ready else "not ready: starting or draining\n",
            status_code=200 if ready else 503,
            media_type="text/plain",
            headers=_HEADERS,
        )

    @routes.get("/metrics")
    async def scrape(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(metrics.registry), headers={**_HEADERS, "content-type": content_type})

    @routes.get("/fleet")
    async def fleet() -> Response:
        return Response(dumps(await view.read()), media_type="application/json", headers=_HEADERS)

    @routes.get("/")
    async def dashboard() -> Response:
        return Response(page.HTML, media_type="text/html", headers=page.HEADERS)

    return routes


class FleetView:
    """/fleet: the fields of flash_wire.fleet.Fleet, and `router` with what this router knows itself.

    While the broker is away the last reading is shown, with its age and the reason.
    """

    def __init__(self, core: Core, metrics: Metrics, read_fleet: ReadFleet | None) -> None:
        self._core, self._metrics, self._read_fleet = core, metrics, read_fleet
        self._lock = asyncio.Lock()
        self._last: dict[str, Any] = {"workers": [], "routers": [], "desired": {}, "pools": [], "time_ms": 0}
        self._read_at: float | None = None
        self._tried_at = -1e9
        self._error = ""

    async def read(self) -> dict[str, Any]:
        if self._read_fleet is not None:
            async with self._lock:
                if time.monotonic() - self._tried_at > _FRESH:
                    await self._refresh(self._read_fleet)
        age = None if self._read_at is None else round(time.monotonic() - self._read_at, 3)
        return {**self._last, "age_s": age, "error": self._error, "router": self._router()}

    async def _refresh(self, read_fleet: ReadFleet) -> None:
        try:
            async with asyncio.timeout(_WITHIN):
                self._last = dataclasses.asdict(await read_fleet())
        except Exception as error:
            if not self._error:
                _log.warning("the fleet record cannot be read: %s", type(error).__name__)
            # Only the kind of error: a broker's message may hold its address with a password.
            self._error = f"the broker does not answer ({type(error).__name__})"
        else:
            self._error = ""
            self._read_at = time.monotonic()
        self._tried_at = time.monotonic()

    def _router(self) -> dict[str, Any]:
        models = [{"id": model.id, "ready": model.ready} for model in self._core.models()]
        return {
            "ready": self._core.ready,
            "models": models,
            "stats": dataclasses.asdict(self._core.stats()),
            "recent": self._metrics.recent.rows(),
        }
