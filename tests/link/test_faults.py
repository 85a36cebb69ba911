"""Workers die, hang and lose their links: no token is lost or repeated, and nothing is left behind."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from flash_router.core import Refused, Why
from flash_wire.tasks import end
from flash_wire.v1 import inference_pb2 as pb
from support.link_fleet import LinkFleet, until, until_async
from support.proxy import Proxy
from support.scripted_engine import Script, answer


@asynccontextmanager
async def kept_alive(fleet: LinkFleet) -> AsyncIterator[None]:
    """Starts children that died again, as a supervisor does."""

    async def keep() -> None:
        while True:
            for child in fleet._children:
                if not child.alive:
                    child.again()
            await asyncio.sleep(0.02)

    task = asyncio.create_task(keep())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_killed_at_every_token_position(fleet: LinkFleet, tmp_path: Path) -> None:
    """Request n loses its worker at position n of 8, from "has the prompt" on; another one goes on."""
    positions = list(range(-1, 8))
    once = tmp_path / "once"
    once.mkdir()
    script = Script(die_at={100 + at: at for at in positions}, die_once=str(once), max_slots=1, step=0.001)
    await fleet.router()
    await asyncio.gather(*(fleet.child(name, script) for name in ("w0", "w1", "w2")))
    async with kept_alive(fleet):
        for at in positions:
            got = await fleet.ask(fleet.request(100 + at, 8))
            fleet.expect(got, 100 + at, 8)
            assert (once / f"{100 + at}-{at}").exists(), "the worker did not die"
            assert got.done.resumed == (1 if at > 0 else 0)
    assert sum(child.starts for child in fleet._children) >= len(positions)
    await fleet.nothing_left()


async def test_only_worker_dies_and_its_successor_goes_on(fleet: LinkFleet, tmp_path: Path) -> None:
    await fleet.router()
    await fleet.child("w0", Script(die_at={5: 30}, die_once=str(tmp_path)))
    async with kept_alive(fleet):
        got = await fleet.ask(fleet.request(5, 60))
    fleet.expect(got, 5, 60)
    assert got.done.resumed == 1
    await fleet.nothing_left()


async def test_stopped_past_its_lease_and_woken(fleet: LinkFleet) -> None:
    """SIGSTOP: the other worker goes on; the one that wakes adds nothing and takes work again."""
    await fleet.router()
    script = Script(step=0.01, max_slots=2)
    first = await fleet.child("w0", script)
    seen: list[int] = []
    task = asyncio.create_task(fleet.ask(fleet.request(3, 600), on_tokens=seen.append))
    await until(lambda: seen and seen[-1] > 20, "some tokens")
    await fleet.child("w1", script)
    first.signal(signal.SIGSTOP)
    core = fleet.core
    assert core
    [session] = list(core._dispatcher.sessions)
    await until(lambda: session.begins == 2, "the second worker")
    first.signal(signal.SIGCONT)
    got = await task
    fleet.expect(got, 3, 600)
    assert got.done.resumed == 1
    await fleet.attached("w0", "w1")
    await asyncio.gather(*(fleet.ask(fleet.request(seed, 20)) for seed in range(4)))
    await fleet.nothing_left()


@pytest.mark.parametrize("way", ["to_target", "from_target", "cut"])
async def test_link_dropped(fleet: LinkFleet, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One direction goes silent, or the connection is reset: another worker goes on, and the link comes back."""
    for module in ("flash_router.streams", "flash_worker.link"):
        monkeypatch.setattr(f"{module}.SILENCE", 2.5)
    core = await fleet.router()
    host, _, port = core.fleet_address.rpartition(":")
    proxy = Proxy(host, int(port))
    address = await proxy.start()
    first = await fleet.worker("w0", Script(step=0.02), address=lambda real: address)
    seen: list[int] = []
    task = asyncio.create_task(fleet.ask(fleet.request(4, 250), on_tokens=seen.append))
    await until(lambda: seen and seen[-1] > 20, "some tokens")
    await fleet.worker("w1", Script(step=0.002))
    if way == "cut":
        proxy.cut()
    else:
        getattr(proxy, way).clear()
    [session] = list(core._dispatcher.sessions)
    await until(lambda: session.begins == 2, "the next worker")
    await until(lambda: not first.engine.running or session.holder.incarnation == first.presence.incarnation,
                "the first worker's abort")  # fmt: skip
    proxy.to_target.set()
    proxy.from_target.set()
    fleet.expect(await task, 4, 250)
    await fleet.attached("w0", "w1")
    assert session.crashes.count == 0, "a broken stream is no crash"
    await fleet.nothing_left()
    await proxy.close()


async def test_poison_kills_four_workers_at_most_and_neighbours_live(fleet: LinkFleet) -> None:
    await fleet.router()
    script = Script(die_at={666: 5}, step=0.004, max_slots=4)
    await asyncio.gather(*(fleet.child(name, script) for name in ("w0", "w1", "w2")))
    neighbours = [asyncio.create_task(fleet.ask(fleet.request(seed, 200))) for seed in range(6)]
    await asyncio.sleep(0.1)
    async with kept_alive(fleet):
        poison = await fleet.ask(fleet.request(666, 100))
        assert poison.done.finish == pb.ERROR
        assert "poison" in poison.done.detail
        assert poison.ids == answer(666, 100)[: len(poison.ids)]
        for seed, got in enumerate(await asyncio.gather(*neighbours)):
            fleet.expect(got, seed, 200)
        assert sum(child.starts for child in fleet._children) - 3 <= 4
        await fleet.nothing_left()
        pools = [depth.pool for depth in fleet.core._roster.fleet.pools]
        assert len(await fleet.broker.dead(pools[0])) == 1


async def test_drain_hands_over_without_loss(fleet: LinkFleet) -> None:
    """SIGTERM finishes what it can within the drain; what is left goes on elsewhere."""
    await fleet.router()
    first = await fleet.worker("w0", Script(step=0.01, max_slots=4))
    seeds = range(6)
    seen: dict[int, int] = {}
    tasks = [
        asyncio.create_task(
            fleet.ask(fleet.request(seed, 40 if seed < 2 else 400), on_tokens=lambda n, s=seed: seen.update({s: n}))
        )
        for seed in seeds
    ]
    await until(lambda: len(seen) == 4, "four running requests")
    await fleet.worker("w1", Script(step=0.005, max_slots=8))
    await fleet.forget(first)
    await first.drain(0.5)
    for seed, got in zip(seeds, await asyncio.gather(*tasks), strict=True):
        fleet.expect(got, seed, 40 if seed < 2 else 400)
    assert fleet.core
    assert [w.hello.name for w in fleet.core._roster._attached.values()] == ["w1"]
    await fleet.nothing_left()


async def test_sigterm_of_a_process_exits_cleanly(fleet: LinkFleet) -> None:
    await fleet.router()
    child = await fleet.child("w0", Script(step=0.01))
    seen: list[int] = []
    task = asyncio.create_task(fleet.ask(fleet.request(1, 100), on_tokens=seen.append))
    await until(lambda: seen, "a token")
    child.signal(signal.SIGTERM)
    fleet.expect(await task, 1, 100)
    assert child.process
    await until(lambda: not child.alive, "the exit")
    assert child.process.returncode == 0, child.log()
    with pytest.raises(Refused) as refused:
        await fleet.ask(fleet.request(2, 5))
    assert refused.value.why is Why.UNAVAILABLE
    assert "Traceback" not in child.log()


async def test_router_gone_frees_its_jobs(fleet: LinkFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its entry lapses: beats say CANCELLED, and the worker is free again."""
    monkeypatch.setattr("flash_router.upkeep.TTL_MS", 3000)
    core = await fleet.router()
    worker = await fleet.worker("w0", Script(step=0.05))
    task = asyncio.create_task(fleet.ask(fleet.request(1, 1000)))
    await until(lambda: worker.engine.running, "the request")
    # As a killed process: no cancel, no goodbye.
    await end(*core._tasks)
    core._dispatcher.sessions._by_job.clear()
    core._servicer.close()
    await core._server.stop(0)
    await until(lambda: not worker.engine.running, "the engine's abort")

    async def free() -> bool:
        return not worker.worker.leases and not await fleet.live_jobs()

    await until_async(free, "the freed worker")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    fleet._cores.remove(core)
    await core._redis.aclose()
