"""What surrounds the engine in a worker's process: health, settings that are read again, mistakes at the start."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from flash_wire.fleet import snapshot
from flash_wire.settings import SettingsError, WorkerLive
from flash_worker.health import Health
from flash_worker.watched import Watched, read
from support.link_fleet import FLEET, LinkFleet, until, until_async, worker_static
from support.scripted_engine import Script


def get(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def test_health_metrics_and_a_bad_edit(fleet: LinkFleet) -> None:
    await fleet.router()
    child = await fleet.child("w0", Script())

    async def entry():
        found = [w for w in (await snapshot(fleet.broker, FLEET)).workers if w.state == "ready"]
        return found[0] if found else None

    await until_async(entry, "the ready entry")
    record = await entry()
    assert (record.name, record.tier, record.slots, record.kv_tokens) == ("w0", "flash", 8, 4096)
    for path in ("/healthz", "/readyz"):
        assert await asyncio.to_thread(get, record.http, path) == (200, '{"status": "ok"}\n')
    assert (await asyncio.to_thread(get, record.http, "/nothing"))[0] == 404
    await fleet.ask(fleet.request(1, 5))

    async def counted() -> bool:
        status, page = await asyncio.to_thread(get, record.http, "/metrics")
        return status == 200 and 'flashfleet_worker_jobs_total{event="finished"} 1.0' in page

    await until_async(counted, "the count of the finished job")

    live = child.folder / "live.json"
    live.write_text('{"priorities": {"hihg": 2}}')
    await until(lambda: "did you mean high?" in child.log(), "the refusal of the edit")
    before = record.live_hash
    live.write_text('{"priorities": {"high": 7, "low": 2}}')

    async def changed() -> bool:
        now = await entry()
        return now is not None and now.live_hash != before

    await until_async(changed, "the new settings' hash")
    await fleet.ask(fleet.request(2, 5))

    await until(lambda: child.alive, "the worker")
    child.signal(signal.SIGTERM)
    await until(lambda: not child.alive, "the exit")
    assert child.process
    assert child.process.returncode == 0
    assert await entry() is None


async def test_readiness_stays_through_an_outage_of_the_queue(fragile_fleet: LinkFleet, own_server) -> None:
    fleet = fragile_fleet
    await fleet.router()
    await fleet.child("w0")

    async def entry():
        return next((w for w in (await snapshot(fleet.broker, FLEET)).workers if w.state == "ready"), None)

    await until_async(entry, "the ready entry")
    address = (await entry()).http
    await asyncio.to_thread(own_server.stop)
    for _ in range(10):
        assert (await asyncio.to_thread(get, address, "/readyz"))[0] == 200
        assert (await asyncio.to_thread(get, address, "/healthz"))[0] == 200
        await asyncio.sleep(0.1)
    await asyncio.to_thread(own_server.start)
    fleet.expect(await fleet.ask(fleet.request(1, 5)), 1, 5)


def test_health_latches_and_sees_a_stall() -> None:
    health = Health()
    assert "loading" in health.readiness()
    assert health.trouble() == ""
    health.loading = ""
    assert health.readiness() == ""
    health.step_age = lambda: 1000.0
    assert "no step" in health.trouble()
    assert "no step" in health.readiness()
    health.step_age = lambda: 0.0
    health.claim_age = lambda: 1000.0
    assert "no claim" in health.trouble()
    health.claim_age = lambda: 0.0
    health.draining = True
    assert health.readiness() == "draining"
    assert health.trouble() == "", "a draining worker is alive"


def test_watched_keeps_the_last_good_reading(tmp_path: Path) -> None:
    path = tmp_path / "live.json"
    path.write_text("{}")
    told: list[WorkerLive] = []
    watched = Watched(WorkerLive, path, told.append)
    first = watched.hash
    for bad in ('{"priorities": {"high": 0}}', "{", '{"nothing": 1}', "[]"):
        path.write_text(bad)
        watched.look()
        assert watched.hash == first
    path.unlink()
    watched.look()
    path.write_text('{"priorities": {"high": 9}}')
    watched.look()
    assert watched.value.priorities.high == 9
    assert told == [watched.value]
    with pytest.raises(SettingsError, match="cannot be read"):
        read(WorkerLive, tmp_path / "none.json")


@pytest.mark.parametrize(
    ("static", "url", "words"),
    [
        ({"fleet": "no-slash"}, "redis://127.0.0.1:1/0", "fleet"),
        ({}, "", "FLASHFLEET_BROKER_URL is not set"),
        ({}, "http://user:secret@127.0.0.1/", "redis://"),
        ({"model": {"source": "package://no_such_package/x.gguf"}}, "redis://127.0.0.1:1/0", "no_such_package"),
    ],
)
def test_mistakes_at_the_start_exit_with_2_and_a_sentence(
    tmp_path: Path, static: dict[str, object], url: str, words: str
) -> None:
    data = worker_static().model_dump(mode="json", by_alias=True) | static
    (tmp_path / "static.json").write_text(json.dumps(data))
    (tmp_path / "live.json").write_text("{}")
    env = {key: value for key, value in os.environ.items() if key != "FLASHFLEET_BROKER_URL"}
    env |= {"FLASHFLEET_BROKER_URL": url} if url else {}
    command = [sys.executable, "-m", "flash_worker", "--settings", str(tmp_path), "--name", "w"]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2, ended.stderr
    assert words in ended.stderr
    assert "secret" not in ended.stderr
    assert "Traceback" not in ended.stderr
