"""uvicorn on a loop and a socket that are ours."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

MAX_HEADERS = 64 * 1024
MAX_CONNECTIONS = 16_384
IDLE = 65
"""Seconds that an idle connection is kept: longer than the usual proxy keeps one, so that the proxy closes first."""


class HttpServer:
    """Serves an ASGI app: `start`, then `stop`."""

    def __init__(self, app: Any, taken: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=IDLE,
            h11_max_incomplete_event_size=MAX_HEADERS,
        )
        self._server = _Server(config)
        self._socket = taken
        self._serving: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    async def start(self) -> None:
        """Returns when requests are served."""
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._socket]), name="http")
        while not self._server.started:
            if self._serving.done():
                await self._serving
                raise RuntimeError("the HTTP server ended while it started")
            await asyncio.sleep(0.01)

    async def stop(self, grace: float) -> None:
        """Takes no more connections; requests that run have `grace` seconds."""
        if self._serving is None:
            self._socket.close()
            return
        self._server.config.timeout_graceful_shutdown = max(1, math.ceil(grace))
        self._server.should_exit = True
        await self._serving


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the process's: they end the other parts too, in order."""
        yield
