"""`python -m flash_worker --settings FOLDER`: loads the model, joins the fleet, and drains on SIGTERM.

Environment: FLASHFLEET_BROKER_URL (may hold a password, so it is never a flag), FLASHFLEET_ADVERTISE (host name under
which others reach the health port; default is settings.host), FLASHFLEET_CORES (this worker's share of the machine).
Exit codes: 0 drained, 1 something failed, 2 the settings or the model cannot be used (no restart helps).
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeVar

from flash_wire.broker.client import Broker
from flash_wire.broker.connect import connect
from flash_wire.settings import SettingsError, WorkerLive, WorkerStatic, hash_of, to_json
from flash_wire.tasks import end

from flash_worker.health import Health, HealthServer
from flash_worker.metrics import Metrics
from flash_worker.serve import FleetWorker, Presence, Served
from flash_worker.watched import Watched, read

log = logging.getLogger(__name__)

REFUSED = 2
T = TypeVar("T")
Progress = Callable[[str, float], None]
Build = Callable[[WorkerStatic, Metrics, Progress], Served]
"""Loads the model; runs in a thread. Raises ValueError with a sentence where it cannot be used."""


class _Stop(Exception):
    """SIGTERM or SIGINT came."""


def build(static: WorkerStatic, metrics: Metrics, progress: Progress) -> Served:
    """The model that static.json names, in an engine."""
    from flash_worker.engine import Engine
    from flash_worker.models import load
    from flash_worker.sampling import Sampler

    cores = os.environ.get("FLASHFLEET_CORES", "")
    loaded = load(static.model, static.engine, cores=int(cores) if cores.isdigit() else None, progress=progress)
    engine = Engine(loaded.runner, Sampler(), loaded.text, static.engine, on_step=metrics.step)
    return Served(
        engine=engine,
        text=loaded.text,
        revision=loaded.revision,
        max_model_len=loaded.max_model_len,
        description=loaded.description,
        stats=engine.stats,
    )


class Worker:
    """One process' life."""

    def __init__(self, folder: Path, name: str, broker_url: str, advertise: str, build: Build) -> None:
        """Raises SettingsError or ValueError where the files or the address cannot be used."""
        self._static = read(WorkerStatic, folder / "static.json")
        self._static_hash = hash_of(to_json(self._static))
        self._live = Watched(WorkerLive, folder / "live.json")
        self._name = name or f"{self._static.tier}-{socket.gethostname()}-{os.getpid()}"
        self._redis = connect(broker_url)
        self._advertise = advertise or self._static.host
        self._build = build
        self._metrics = Metrics()
        self._health = Health()
        self._stop = asyncio.Event()

    async def run(self) -> int:
        """Until SIGTERM; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        server = HealthServer(self._health, self._metrics.page)
        await server.start(self._static.host, self._static.http_port)
        broker = Broker(self._redis, self._static.fleet)
        presence = Presence(
            broker, self._static, self._name, self._static_hash, lambda: self._live.hash,
            f"{self._advertise}:{server.port}",
        )  # fmt: skip
        announcing = asyncio.create_task(presence.run())
        following = asyncio.create_task(self._live.follow())
        try:
            return await self._serve(broker, presence)
        except _Stop:
            return 0
        except ValueError as error:
            log.error("%s", error)
            return REFUSED
        finally:
            await end(following, announcing)
            await presence.leave()
            await server.close()
            await self._redis.aclose()

    async def _serve(self, broker: Broker, presence: Presence) -> int:
        served = await self._load(presence)
        worker = FleetWorker(served, self._static, presence, broker, lambda: self._live.value, lambda: self._live.hash)
        self._health.claim_age = worker.claim_age
        self._metrics.watch(worker.leases, served.engine.room, served.stats, lambda: presence.health.failures)
        presence.fleet_worker = worker
        self._health.loading = ""
        presence.say("ready")
        log.info("worker %s serves %s, revision %s", self._name, self._static.tier, served.revision)
        running = asyncio.create_task(worker.run())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()  # raises: the loops end by an error only
            log.info("draining %d requests for up to %g s", len(worker.leases), self._static.drain)
            self._health.draining = True
            presence.say("draining")
            await worker.drain(self._static.drain)
            return 0
        finally:
            await end(running, stopping)
            await asyncio.to_thread(served.engine.close)

    async def _load(self, presence: Presence) -> Served:
        """Raises ValueError where the model cannot be used, _Stop on SIGTERM."""
        loop = asyncio.get_running_loop()

        def say(what: str, share: float) -> None:
            detail = f"{what} ({share:.0%})" if 0 < share < 1 else what
            self._health.loading = detail
            presence.say("loading", detail)

        def progress(what: str, share: float) -> None:
            loop.call_soon_threadsafe(say, what, share)

        served = await self._unless_stopped(asyncio.to_thread(self._build, self._static, self._metrics, progress))
        engine = served.engine
        self._health.step_age = engine.last_step_age
        self._health.engine_trouble = lambda: engine.trouble
        engine.start()
        for number, prefix in enumerate(self._static.pinned_prefixes, 1):
            say(f"pinning prefix {number} of {len(self._static.pinned_prefixes)}", 0.0)
            tokens = await self._unless_stopped(asyncio.to_thread(_pin, served, prefix))
            log.info("prefix %d is pinned: %d tokens", number, tokens)
        return served

    async def _unless_stopped(self, work: Coroutine[object, object, T]) -> T:
        task, stop = asyncio.ensure_future(work), asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise _Stop
        finally:
            stop.cancel()


def _pin(served: Served, prefix: str) -> int:
    """Pins what every chat with this system prompt starts with. Returns the tokens pinned, whole pages only."""
    if not served.text.has_template:
        return served.engine.pin(served.text.encode(prefix))
    # Two chats that part after the system prompt: what they share has no generation prompt and no half token.
    one, other = (served.text.encode_chat([("system", prefix), ("user", first)]) for first in ("a", "b"))
    shared = next((at for at, pair in enumerate(zip(one, other, strict=False)) if len(set(pair)) > 1), len(one))
    return served.engine.pin(one[:shared])


def main(argv: list[str] | None = None, build: Build = build) -> int:
    parser = argparse.ArgumentParser(prog="python -m flash_worker", description="One worker of a FlashFleet.")
    parser.add_argument("--settings", type=Path, required=True, help="folder with static.json and live.json")
    parser.add_argument("--name", default="", help="stable name of this worker; default: tier, host and process id")
    args = parser.parse_args(argv)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname).1s %(name)s %(message)s"
    )
    logging.getLogger("grpc").setLevel(logging.WARNING)
    url = os.environ.get("FLASHFLEET_BROKER_URL", "")
    if not url:
        print("FLASHFLEET_BROKER_URL is not set: give the queue's address, as redis://host:port/0", file=sys.stderr)
        return REFUSED
    try:
        worker = Worker(args.settings, args.name, url, os.environ.get("FLASHFLEET_ADVERTISE", ""), build)
    except (SettingsError, ValueError) as error:
        print(error, file=sys.stderr)
        return REFUSED
    try:
        return asyncio.run(worker.run())
    except OSError as error:
        print(error, file=sys.stderr)
        return REFUSED
