"""A TCP proxy that can stop forwarding in either direction, as a broken network does: connections stay open."""

from __future__ import annotations

import asyncio
import contextlib

from flash_wire.tasks import end


class Proxy:
    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.to_target = asyncio.Event()
        """Set: bytes go on. Cleared: they are swallowed."""
        self.from_target = asyncio.Event()
        self.to_target.set()
        self.from_target.set()
        self.connections = 0

    async def start(self) -> str:
        """host:port to dial instead."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    def cut(self) -> None:
        """Reset every connection that is open."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        await end(*self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        for one, other, gate in ((reader, back, self.to_target), (there, writer, self.from_target)):
            self._writers.add(other)
            task = asyncio.create_task(self._pump(one, other, gate))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if gate.is_set():
                    writer.write(data)
                    await writer.drain()
        self._writers.discard(writer)
        if gate.is_set():
            writer.close()
