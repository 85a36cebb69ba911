"""A Plan applied as child processes of this machine: the embedded queue, routers, workers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from flash_operator.api import FlashDeployment
from flash_operator.plan import Observed, Place, Plan, Process, Running, plan
from flash_wire import fleet
from flash_wire.broker.client import Broker
from flash_wire.broker.connect import connect
from flash_wire.settings import SettingsError
from redis.exceptions import RedisError

from flashfleet import valkey
from flashfleet.child import Child
from flashfleet.news import News

READY_WITHIN = 300.0
"""Seconds that a model may take to load before `up` says that something is wrong."""

_POLL = 0.25
_SLACK = 5.0
"""Seconds beyond its drain that a process gets before it is killed."""


@dataclass(frozen=True, slots=True)
class Addresses:
    grpc: str
    http: str


@dataclass(slots=True)
class _Kept:
    """One running child and the files that it reads."""

    process: Process
    child: Child
    folder: Path


class LocalFleet:
    """Runs one FlashDeployment until `stop`. `say` gets sentences for people."""

    def __init__(
        self, deployment: FlashDeployment, place: Place, say: Callable[[str], None], *, verbose: bool = False
    ) -> None:
        self._deployment = deployment
        self._place = place
        self._say = say
        self._verbose = verbose
        self._kept: list[_Kept] = []
        self._numbers: dict[str, int] = {}
        self._broker_child: Child | None = None
        self._broker: Broker | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._addresses: dict[str, Addresses] = {}
        self._news = News()
        self._wanted: Plan | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="flashfleet-"))
        (self._folder / "pid").write_text(str(os.getpid()))

    # -- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> Addresses:
        """Start everything; returns when the first router serves. Raises SettingsError with the reason if not."""
        sweep_leftovers()
        await self._start_broker()
        await self.apply(self._deployment)
        self._tasks.append(asyncio.create_task(self._watch()))
        return await self.first_router()

    async def ready(self, within: float = READY_WITHIN) -> None:
        """Returns when every tier that wants workers has all of them ready and reached by a router."""
        async with asyncio.timeout(within):
            while True:
                self._raise_refusals()
                found = await self.snapshot()
                if (
                    found is not None
                    and self._wanted is not None
                    and all(
                        sum(worker.tier == tier for worker in _serving(found)) >= count
                        for tier, count in self._wanted.desired.items()
                    )
                ):
                    self._tell(found)
                    return
                await asyncio.sleep(_POLL)

    async def stop(self) -> None:
        """Routers first, so that what they hold is still answered; then workers; then the queue."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for role in ("router", "worker"):
            await asyncio.gather(
                *(k.child.stop(k.process.drain + _SLACK) for k in self._kept if k.process.role == role)
            )
        if self._broker is not None:
            with contextlib.suppress(RedisError, OSError):
                await self._broker.redis.aclose()
        if self._broker_child is not None:
            await self._broker_child.stop(_SLACK)
        shutil.rmtree(self._folder, ignore_errors=True)

    def kill(self) -> None:
        """At once, without drain."""
        for kept in self._kept:
            kept.child.kill()
        if self._broker_child is not None:
            self._broker_child.kill()

    # -- the plan -----------------------------------------------------------------------------------------------

    async def apply(self, deployment: FlashDeployment) -> None:
        """Make the running processes those of `deployment`: live settings in place, static ones by a roll.

        Raises SettingsError or TimeoutError where a new worker cannot work; the ones before it run on.
        """
        if deployment.fleet != self._deployment.fleet:
            raise SettingsError(
                f"metadata: {self._deployment.fleet} cannot become {deployment.fleet} while it runs; stop it and start"
                " the other"
            )
        wanted = plan(deployment, self._observed(), self._place)
        for sentence in wanted.sentences:
            self._say(sentence)
        # Rolls first: where one fails, no live setting has changed either.
        for process in wanted.processes:
            await self._bring(process, deployment, wanted)
        for process in wanted.processes:
            for kept in self._kept:
                if kept.process.name == process.name and kept.process.live_hash != process.live_hash:
                    _write(kept.folder / "live.json", process.live)
                    kept.process = replace(kept.process, live=process.live)
        self._deployment, self._wanted = deployment, wanted
        await self._tell_desired()

    def _observed(self) -> Observed:
        running: dict[str, Running] = {}
        for kept in self._kept:
            before = running.get(kept.process.name)
            count = 1 + (before.replicas if before else 0)
            running[kept.process.name] = Running(count, kept.process.static_hash, kept.process.live_hash)
        return Observed(running)

    async def _bring(self, process: Process, deployment: FlashDeployment, wanted: Plan) -> None:
        mine = [kept for kept in self._kept if kept.process.name == process.name]
        current = [kept for kept in mine if kept.process.static_hash == process.static_hash]
        old = [kept for kept in mine if kept.process.static_hash != process.static_hash]
        for kept in current[process.replicas :]:
            await self._end(kept)
        for _ in range(process.replicas - len(current)):
            # A router owns its ports, so the old one goes first; a worker's place is taken before it goes.
            if old and process.role == "router":
                await self._end(old.pop())
            fresh = self._begin(process, deployment, wanted)
            if old:
                try:
                    await self._worker_ready(fresh)
                except BaseException:
                    await self._end(fresh)
                    raise
                await self._end(old.pop())
        for kept in old:
            await self._end(kept)

    def _begin(self, process: Process, deployment: FlashDeployment, wanted: Plan) -> _Kept:
        number = self._numbers.get(process.name, 0)
        self._numbers[process.name] = number + 1
        files = process
        if process.role == "router" and any(kept.process.name == process.name for kept in self._kept):
            free = replace(self._place, grpc_port=0, http_port=0, fleet_port=0)
            files = next(p for p in plan(deployment, Observed(), free).processes if p.name == process.name)
        name = f"{process.name}-{number}"
        folder = self._folder / name
        folder.mkdir()
        _write(folder / "static.json", files.static)
        _write(folder / "live.json", files.live)
        command = [sys.executable, "-m", process.module, "--settings", str(folder)]
        if process.role == "worker":
            command += ["--name", name]
        child = Child(name, command, self._environment(wanted), self._on_line, self._on_end)
        kept = _Kept(process, child, folder)
        self._kept.append(kept)
        return kept

    def _environment(self, wanted: Plan) -> dict[str, str]:
        workers = sum(wanted.desired.values())
        cores = max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
        return os.environ | {
            "FLASHFLEET_BROKER_URL": self._broker_url,
            "FLASHFLEET_CORES": str(max(1, cores // max(1, workers))),
            "PYTHONUNBUFFERED": "1",
        }

    async def _end(self, kept: _Kept) -> None:
        await kept.child.stop(kept.process.drain + _SLACK)
        self._kept.remove(kept)
        shutil.rmtree(kept.folder, ignore_errors=True)

    async def _worker_ready(self, kept: _Kept) -> None:
        async with asyncio.timeout(READY_WITHIN):
            while True:
                _raise_refusal(kept)
                found = await self.snapshot()
                if found and any(worker.name == kept.child.name for worker in _serving(found)):
                    return
                await asyncio.sleep(_POLL)

    # -- the queue ----------------------------------------------------------------------------------------------

    async def _start_broker(self) -> None:
        if url := os.environ.get("FLASHFLEET_BROKER_URL"):
            self._broker_url = url
        else:
            folder = self._folder / "queue"
            folder.mkdir()
            self._broker_url = valkey.url(folder)
            self._broker_child = Child(
                "queue",
                [str(valkey.server_binary()), "-"],
                dict(os.environ),
                self._on_line,
                self._on_end,
                stdin=valkey.configuration(folder),
            )
        self._broker = Broker(connect(self._broker_url), self._deployment.fleet)
        try:
            async with asyncio.timeout(20):
                while True:
                    with contextlib.suppress(RedisError, OSError):
                        await self._broker.redis.ping()
                        return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            tail = "\n".join(self._broker_child.tail) if self._broker_child else ""
            raise SettingsError(
                "the queue does not answer within 20 s"
                + (f":\n{tail}" if tail else ": is FLASHFLEET_BROKER_URL right?")
            ) from None

    async def snapshot(self) -> fleet.Fleet | None:
        """The fleet record, or None while the queue is away."""
        assert self._broker is not None
        with contextlib.suppress(RedisError, OSError):
            return await fleet.snapshot(self._broker.redis, self._deployment.fleet)
        return None

    async def _tell_desired(self) -> None:
        assert self._broker is not None
        assert self._wanted is not None
        with contextlib.suppress(RedisError, OSError):
            await fleet.set_desired(self._broker.redis, self._deployment.fleet, self._wanted.desired)

    # -- what the children say ----------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Tells what changed in the fleet, and what is wanted again after the queue lost it."""
        while True:
            await self._tell_desired()
            if (found := await self.snapshot()) is not None:
                self._tell(found)
            await asyncio.sleep(_POLL)

    def _tell(self, found: fleet.Fleet) -> None:
        ready = {worker.name for worker in found.workers if worker.state == "ready"}
        for kept in self._kept:
            kept.child.served = kept.child.served or kept.child.name in ready
        for sentence in self._news.of(found.workers, time.monotonic()):
            self._say(sentence)

    def _on_line(self, name: str, line: str) -> None:
        if line.startswith('{"ready"'):
            with contextlib.suppress(ValueError, KeyError):
                told = json.loads(line)
                self._addresses[name] = Addresses(told["grpc"], told["http"])
                for kept in self._kept:
                    if kept.child.name == name:
                        kept.child.served = True
                return
        if self._verbose:
            self._say(f"{name}: {line}")

    def _on_end(self, name: str, sentence: str) -> None:
        self._say(f"{name} {sentence}")
        if (address := self._addresses.get(name)) is not None:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._tasks.append(asyncio.create_task(self._forget_router(address)))

    async def _forget_router(self, address: Addresses) -> None:
        """Withdraw a dead router's record, so that workers do not hold its requests until it lapses."""
        assert self._broker is not None
        if (found := await self.snapshot()) is not None:
            for router in found.routers:
                if router.grpc == address.grpc:
                    with contextlib.suppress(RedisError, OSError):
                        await fleet.withdraw(self._broker.redis, self._deployment.fleet, router)

    async def first_router(self) -> Addresses:
        first = f"{self._deployment.metadata.name}-router-0"
        try:
            async with asyncio.timeout(60):
                while first not in self._addresses:
                    self._raise_refusals()
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise SettingsError("the router does not start within 60 s:\n" + self._tail_of(first)) from None
        return self._addresses[first]

    def _tail_of(self, name: str) -> str:
        return "\n".join(line for kept in self._kept if kept.child.name == name for line in kept.child.tail)

    def _raise_refusals(self) -> None:
        for kept in self._kept:
            _raise_refusal(kept)

    @property
    def children(self) -> dict[str, int | None]:
        """Name -> process id of every child, for tests that kill them."""
        found = {kept.child.name: kept.child.pid for kept in self._kept}
        if self._broker_child is not None:
            found["queue"] = self._broker_child.pid
        return found


def _raise_refusal(kept: _Kept) -> None:
    if kept.child.refused:
        raise SettingsError(f"{kept.child.name}: " + ("\n".join(kept.child.tail) or "refused to start"))


def _serving(found: fleet.Fleet) -> list[fleet.WorkerRecord]:
    """Workers that a request can reach: ready by their own word, and attached to a router by the router's."""
    attached = {incarnation for router in found.routers for incarnation in router.workers}
    return [worker for worker in found.workers if worker.state == "ready" and worker.incarnation in attached]


def _write(path: Path, text: str) -> None:
    """In one step, so that a reader never sees half a file."""
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def sweep_leftovers() -> None:
    """Remove the folders of fleets whose supervisor was killed outright."""
    for folder in Path(tempfile.gettempdir()).glob("flashfleet-*"):
        with contextlib.suppress(OSError, ValueError):
            if folder.stat().st_uid != os.getuid():
                continue
            pid = int((folder / "pid").read_text())
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                shutil.rmtree(folder, ignore_errors=True)
