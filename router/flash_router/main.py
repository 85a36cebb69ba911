"""The router's process: python -m flash_router --settings FOLDER.

FOLDER has static.json and live.json; live.json is read again when it changes. The broker's address comes from
FLASHFLEET_BROKER_URL (it may hold a password, and a command line is public), the host that others dial from
FLASHFLEET_ADVERTISE. When all ports are open, one JSON line on standard output says where.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from flash_wire import fleet
from flash_wire.broker.connect import BrokerClient, connect
from flash_wire.settings import RouterLive, RouterStatic, SettingsError

from flash_router.core import Core
from flash_router.grpc_front import GrpcFront
from flash_router.http_front import build_app
from flash_router.http_server import HttpServer
from flash_router.listen import ADVERTISE, CannotListen, address, explained, listen, reachable
from flash_router.metrics import Metrics
from flash_router.ops_front import ReadFleet
from flash_router.settings_files import keep_reloading, parsed, read_bytes

BROKER_URL = "FLASHFLEET_BROKER_URL"
_LAST_WORDS = 2.0
_log = logging.getLogger("flash_router")


class RunningCore(Core, Protocol):
    """What `start` gives: flash_router.service.RouterCore."""

    @property
    def fleet_address(self) -> str: ...
    def announce(self, *, grpc: str, http: str) -> None: ...
    async def stop(self, drain: float) -> None: ...


Reload = Callable[[RouterLive], None]
StartCore = Callable[[RouterStatic, RouterLive, str], Awaitable[tuple[RunningCore, Reload]]]
"""(static, live, broker URL) -> the core, and what takes new live settings (raises SettingsError, then unchanged)."""


def main(arguments: list[str] | None = None, *, start: StartCore | None = None) -> int:
    """Exit code: 0 after a stop by SIGTERM or SIGINT, 2 for settings or ports that cannot be used."""
    parser = argparse.ArgumentParser(prog="flash_router", description="The client's side of a request.")
    parser.add_argument("--settings", type=Path, required=True, help="folder with static.json and live.json")
    folder: Path = parser.parse_args(arguments).settings
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        router = _prepared(folder, start or _start_core)
        asyncio.run(router.run())
    except (SettingsError, CannotListen) as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"flash_router: {line}\n")
        return 2
    return 0


def _prepared(folder: Path, start: StartCore) -> _Router:
    """Everything that can be wrong before a port is taken is told here. Raises SettingsError."""
    static_path, live_path = folder / "static.json", folder / "live.json"
    static = parsed(RouterStatic, read_bytes(static_path), static_path)
    live_bytes = read_bytes(live_path)
    live = parsed(RouterLive, live_bytes, live_path)
    broker_url = os.environ.get(BROKER_URL, "")
    if not broker_url:
        raise SettingsError(f"{BROKER_URL} is not set: give the broker's address, for example redis://127.0.0.1:6379/0")
    try:
        connect(broker_url)
    except ValueError as error:
        raise SettingsError(f"{BROKER_URL}: {error}") from None
    return _Router(static, live, live_path, live_bytes, broker_url, start)


async def _start_core(static: RouterStatic, live: RouterLive, broker_url: str) -> tuple[RunningCore, Reload]:
    # Here and not above: the classifier's library takes a second to import, and settings are checked before.
    from flash_router import classify, service
    from flash_router.decide import Decider

    try:
        decider = Decider(live, classify.load())
    except ValueError as error:
        raise SettingsError(f"live.json: routing.rules: {error}") from None
    core = await service.start(static, live, broker_url, decider)

    def reload(new: RouterLive) -> None:
        try:
            decider.reload(new)  # may refuse, and then nothing is changed
        except ValueError as error:
            raise SettingsError(f"routing.rules: {error}") from None
        core.reload(new)

    return core, reload


class _Router:
    def __init__(
        self,
        static: RouterStatic,
        live: RouterLive,
        live_path: Path,
        live_bytes: bytes,
        broker_url: str,
        start: StartCore,
    ) -> None:
        self._static, self._live = static, live
        self._live_path, self._live_bytes = live_path, live_bytes
        self._broker_url, self._start = broker_url, start
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        static = self._static
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        # Ports first: a taken one is told before anything is announced to the fleet.
        taken = listen(static.host, static.http_port, "httpPort")
        try:
            listen(static.host, static.grpc_port, "grpcPort").close()
            listen(static.host, static.fleet_port, "fleetPort").close()
            with explained("fleetPort", static.host, static.fleet_port):
                core, reload = await self._start(static, self._live, self._broker_url)
        except BaseException:
            taken.close()
            raise
        metrics = Metrics(core)
        grpc_front = GrpcFront(core, metrics, max_duration=self._live.limits.max_duration)
        broker = connect(self._broker_url)
        http = HttpServer(build_app(core, metrics, _fleet_reader(broker, static.fleet)), taken)
        try:
            grpc_front.bind(static.host, static.grpc_port)
            await grpc_front.start()
            await http.start()
            self._announce(core, grpc_front.port, http.port)
            reloading = asyncio.create_task(keep_reloading(self._live_path, self._live_bytes, reload), name="reload")
            await self._stopping.wait()
            reloading.cancel()
        finally:
            await self._stop(core, grpc_front, http)
            await broker.aclose()

    def _on_signal(self) -> None:
        if self._stopping.is_set():
            _log.warning("a second signal: ending at once")
            os._exit(1)
        self._stopping.set()

    def _announce(self, core: RunningCore, grpc_port: int, http_port: int) -> None:
        host = reachable(self._static.host, os.environ.get(ADVERTISE, ""))
        grpc_address, http_address = address(host, grpc_port), address(host, http_port)
        core.announce(grpc=grpc_address, http=http_address)
        line = {"ready": True, "grpc": grpc_address, "http": http_address, "fleet": core.fleet_address}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        _log.info(
            "serving gRPC at %s, OpenAI at http://%s/v1, workers at %s", grpc_address, http_address, core.fleet_address
        )

    async def _stop(self, core: RunningCore, grpc_front: GrpcFront, http: HttpServer) -> None:
        """All at once: no new request is taken, what runs has `drain` seconds."""
        drain = self._static.drain
        _log.info("stopping: what runs has %.0f s", drain)
        # The fronts wait a little longer than the core, to tell clients how it ended.
        fronts = drain + _LAST_WORDS
        await asyncio.gather(core.stop(drain), grpc_front.stop(fronts), http.stop(fronts))


def _fleet_reader(broker: BrokerClient, name: str) -> ReadFleet:
    async def read_fleet() -> fleet.Fleet:
        return await fleet.snapshot(broker, name)

    return read_fleet
