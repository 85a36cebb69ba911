"""One router in the test's own process, with scripted workers beside it or in processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from flash_router.service import RouterCore, start
from flash_wire.broker.client import Broker
from flash_wire.broker.connect import connect
from flash_wire.settings import RouterLive, RouterStatic, WorkerLive, WorkerStatic, parse, to_json
from flash_wire.tasks import end
from flash_wire.text import StreamDecoder, TextModel
from flash_wire.v1 import inference_pb2 as pb
from flash_worker.serve import FleetWorker, Presence, Served
from redis.exceptions import RedisError
from support import scripted_engine
from support.scripted_engine import REVISION, Script, ScriptedEngine, answer

FLEET = "test/chat"


class AlwaysFlash:
    """A decider that decides nothing."""

    def decide(self, request: pb.GenerateRequest) -> pb.Decision:
        return pb.Decision(tier=pb.FLASH, how="score", score=0.1, threshold=0.4)

    explain = decide


async def until(condition: Callable[[], object], what: str, within: float = 30.0) -> None:
    """Waits for a condition; fails naming it."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, f"{what} did not come within {within:g} s"
        await asyncio.sleep(0.01)


async def until_async(condition: Callable[[], Awaitable[object]], what: str, within: float = 30.0) -> None:
    end = time.monotonic() + within
    while not await condition():
        assert time.monotonic() < end, f"{what} did not come within {within:g} s"
        await asyncio.sleep(0.02)


def worker_static(tier: str = "flash", **engine: object) -> WorkerStatic:
    data = {"fleet": FLEET, "tier": tier, "model": {"source": "package://none/none.gguf"}, "drain": "5s"}
    return parse(WorkerStatic, data | {"engine": {"kvTokens": 4096, **engine}})


@dataclass(eq=False)
class LocalWorker:
    """A worker on the test's event loop."""

    engine: ScriptedEngine
    worker: FleetWorker
    presence: Presence
    tasks: list[asyncio.Task[None]]
    broker: Broker

    async def drain(self, seconds: float = 5.0) -> None:
        self.presence.say("draining")
        await self.worker.drain(seconds)
        await self.presence.leave()
        await self.stop()

    async def stop(self) -> None:
        """At once, as a crash leaves it: nothing is handed back, the entry stays."""
        await end(*self.tasks)
        await self.worker.links.close()
        self.engine.close()
        await self.broker.redis.aclose()


@dataclass(eq=False)
class ChildWorker:
    """A worker in a process of its own, started again like a supervisor does when `again` is called."""

    name: str
    folder: Path
    env: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0

    def again(self) -> None:
        self.starts += 1
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, scripted_engine.__file__, "--settings", str(self.folder), "--name", self.name],
                env=self.env,
                stderr=log,
                stdout=log,
            )

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()

    def log(self) -> str:
        return (self.folder / "log").read_text()


@dataclass
class Answer:
    """A stream read to its end, checked for order."""

    started: pb.Started = field(default_factory=pb.Started)
    ids: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[float] = field(default_factory=list)
    done: pb.Done = field(default_factory=pb.Done)
    deltas: int = 0


class LinkFleet:
    def __init__(self, url: str, folder: Path, text_folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.text_folder = text_folder
        self.text = TextModel.from_folder(text_folder)
        self.core: RouterCore | None = None
        self.broker = Broker(connect(url), FLEET)
        self._locals: list[LocalWorker] = []
        self._children: list[ChildWorker] = []
        self._cores: list[RouterCore] = []

    async def router(self, live: dict[str, object] | None = None) -> RouterCore:
        static = parse(RouterStatic, {"fleet": FLEET, "grpcPort": 0, "httpPort": 0, "fleetPort": 0})
        core = await start(static, parse(RouterLive, live or {}), self.url, AlwaysFlash())
        self._cores.append(core)
        self.core = self.core or core
        return core

    async def worker(
        self,
        name: str = "w0",
        script: Script | None = None,
        *,
        tier: str = "flash",
        revision: str = REVISION,
        text: TextModel | None = None,
        address: Callable[[str], str] = lambda real: real,
        attached: bool = True,
    ) -> LocalWorker:
        """Started, and attached to the router. `address` may put a proxy before the router's port."""
        script = script or Script()
        static = worker_static(tier, kvTokens=script.kv_tokens)
        broker = Broker(connect(self.url), FLEET)
        live = WorkerLive()
        presence = Presence(broker, static, name, "static", lambda: "live", "127.0.0.1:1")
        engine = ScriptedEngine(script)
        served = Served(engine, text or self.text, revision, script.max_model_len)
        worker = FleetWorker(served, static, presence, broker, lambda: live, lambda: "live")
        make = worker.links._make
        worker.links._make = lambda router_id, real: make(router_id, address(real))
        presence.fleet_worker = worker
        presence.say("ready")
        engine.start()
        tasks = [asyncio.create_task(presence.run()), asyncio.create_task(worker.run())]
        local = LocalWorker(engine, worker, presence, tasks, broker)
        self._locals.append(local)
        if attached:
            await until(lambda: any(link.open for link in worker.links), f"{name}'s link")
        return local

    async def child(self, name: str, script: Script | None = None, *, attached: bool = True) -> ChildWorker:
        script = script or Script()
        folder = self.folder / name
        folder.mkdir()
        (folder / "static.json").write_text(to_json(worker_static(kvTokens=script.kv_tokens)))
        (folder / "live.json").write_text(to_json(WorkerLive()))
        env = dict(
            os.environ,
            FLASHFLEET_BROKER_URL=self.url,
            SCRIPT=json.dumps(asdict(script)),
            SCRIPT_TEXT=str(self.text_folder),
            PYTHONPATH=str(Path(__file__).parents[1]),
            OMP_NUM_THREADS="1",
        )
        child = ChildWorker(name, folder, env)
        self._children.append(child)
        child.again()
        if attached:
            await self.attached(name)
        return child

    async def attached(self, *names: str) -> None:
        assert self.core is not None
        roster = self.core._roster

        def here() -> bool:
            return set(names) <= {worker.hello.name for worker in roster._attached.values()}

        await until(here, f"Hello of {names}")

    async def forget(self, local: LocalWorker) -> None:
        self._locals.remove(local)

    # -- asking

    def request(self, seed: int, tokens: int, **fields: object) -> pb.GenerateRequest:
        sampling = pb.Sampling(max_tokens=tokens, seed=seed, ignore_eos=True)
        return pb.GenerateRequest(prompt=f"tell me about {seed}", sampling=sampling, **fields)

    async def ask(
        self,
        request: pb.GenerateRequest,
        *,
        within: float = 60.0,
        on_tokens: Callable[[int], object] = lambda count: None,
        core: RouterCore | None = None,
    ) -> Answer:
        core = core or self.core
        assert core is not None
        got = Answer()
        async with contextlib.aclosing(core.generate(request, deadline=time.monotonic() + within)) as events:
            await self.read(events, got, on_tokens, request.resume_position)
        return got

    async def read(
        self,
        events: AsyncIterator[pb.GenerateEvent],
        got: Answer,
        on_tokens: Callable[[int], object] = lambda count: None,
        first: int = 0,
    ) -> None:
        async for event in events:
            kind = event.WhichOneof("event")
            if kind == "started":
                assert not got.ids
                got.started = event.started
            elif kind == "delta":
                assert event.delta.first_token == first + len(got.ids), "a token was lost or repeated"
                got.ids += event.delta.token_ids
                got.text += event.delta.text
                got.logprobs += event.delta.logprobs
                got.deltas += 1
                on_tokens(len(got.ids))
            else:
                got.done = event.done
                return
        raise AssertionError("the stream ended without Done")

    def expect(self, got: Answer, seed: int, tokens: int) -> None:
        """The answer is that of an undisturbed run, ids and text."""
        assert got.ids == answer(seed, tokens)
        assert got.text == self.text_of(got.ids)
        assert got.done.finish == pb.LENGTH
        assert got.done.usage.completion_tokens == tokens

    def text_of(self, ids: list[int]) -> str:
        decoder = StreamDecoder(self.text)
        return decoder.push(ids) + decoder.flush()

    # -- looking

    async def live_jobs(self) -> list[str]:
        """Job keys in the broker that are queued or active."""
        found = []
        async for key in self.broker.redis.scan_iter(match="*:job:*"):
            if await self.broker.redis.hget(key, "state") in ("queued", "active"):
                found.append(key)
        return found

    async def nothing_left(self) -> None:
        """No job waits or runs anywhere: not in the broker, not in a worker, not in the router."""

        async def clean() -> bool:
            workers = all(not local.worker.leases and not local.engine.running for local in self._locals)
            routers = all(not core._dispatcher.sessions and not core._dispatcher.lines for core in self._cores)
            try:
                return workers and routers and not await self.live_jobs()
            except (RedisError, OSError):
                return False  # a connection from before a restart

        await until_async(clean, "an empty fleet")
        tenants = [key async for key in self.broker.redis.scan_iter(match="*:tenant:*")]
        for key in tenants:
            counted = await self.broker.redis.hgetall(key)
            assert all(int(value) == 0 for value in counted.values()), f"{key} still counts {counted}"

    async def close(self) -> None:
        for child in self._children:
            child.end()
        for local in self._locals:
            await local.stop()
        for core in self._cores:
            await core.stop(0.0)
        await self.broker.redis.aclose()
