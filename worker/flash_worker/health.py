"""/healthz, /readyz and /metrics of a worker, over the standard library's asyncio.

Liveness looks at the engine's steps and at claim attempts, never at whether the broker, a router or the Kubernetes API
can be reached: an outage of those must not restart a worker that has weights loaded and streams running.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable

MAX_STEP_AGE = 60.0
"""Seconds without a step while requests run, after which the engine is stuck."""
MAX_CLAIM_AGE = 30.0
"""Seconds without a claim attempt, after which the event loop is stuck. The broker's timeouts end well before."""
REQUEST_WITHIN = 5.0
MAX_HEAD = 8192

Answer = tuple[int, str, bytes]
"""Status, content type, body."""


class Health:
    """What a probe may ask. Filled in as the worker starts."""

    def __init__(self) -> None:
        self.loading = "starting"
        """What the worker is doing before it is loaded; "" afterwards."""
        self.draining = False
        self.step_age: Callable[[], float] = lambda: 0.0
        self.claim_age: Callable[[], float] = lambda: 0.0
        self.engine_trouble: Callable[[], str] = lambda: ""

    def trouble(self) -> str:
        """Why the process should be restarted; "" while all is well."""
        if reason := self.engine_trouble():
            return reason
        if self.loading:
            return ""
        if (age := self.step_age()) > MAX_STEP_AGE:
            return f"the engine has requests and made no step for {age:.0f} s"
        if (age := self.claim_age()) > MAX_CLAIM_AGE:
            return f"no claim was attempted for {age:.0f} s"
        return ""

    def readiness(self) -> str:
        """Why the worker is not ready; "" when it is. Latched: from loaded until it drains or stalls."""
        if self.loading:
            return f"loading: {self.loading}"
        if self.draining:
            return "draining"
        return self.trouble()


class HealthServer:
    """Serves GET and HEAD, one request a connection."""

    def __init__(self, health: Health, metrics: Callable[[], tuple[str, bytes]]) -> None:
        """metrics: (content type, body)."""
        self._health = health
        self._metrics = metrics
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Raises OSError with a sentence when the port is taken."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_HEAD)
        except OSError as error:
            raise OSError(
                f"port {port} on {host} cannot be opened for health and metrics ({error.strerror or error}): set"
                " httpPort to a free one, or to 0"
            ) from None
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def answer(self, path: str) -> Answer:
        if path == "/healthz":
            return _said(self._health.trouble())
        if path == "/readyz":
            return _said(self._health.readiness())
        if path == "/metrics":
            kind, body = self._metrics()
            return 200, kind, body
        return 404, "text/plain", b"here are /healthz, /readyz and /metrics\n"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(REQUEST_WITHIN):
                head = await reader.readuntil(b"\r\n\r\n")
                words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
                method, path = (words[0], words[1].partition("?")[0]) if len(words) == 3 else ("", "")
                status, kind, body = self.answer(path)
                if method not in ("GET", "HEAD"):
                    status, kind, body = 405, "text/plain", b"only GET and HEAD\n"
                reason = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}[status]
                lines = (
                    f"HTTP/1.1 {status} {reason}",
                    f"Content-Type: {kind}",
                    f"Content-Length: {len(body)}",
                    "Connection: close",
                )
                writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if method == "HEAD" else body))
                await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _said(reason: str) -> Answer:
    body = json.dumps({"status": "ok"} if not reason else {"status": "unavailable", "reason": reason}) + "\n"
    return (503 if reason else 200), "application/json", body.encode()
