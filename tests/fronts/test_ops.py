"""Health, metrics, the fleet as JSON, and the page."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re

import httpx
import pytest
from flash_router.core import Refused, Why
from flash_wire.broker.types import Depth, Pool
from flash_wire.fleet import Fleet, PoolDepth, RouterRecord, WorkerRecord
from flash_wire.v1 import inference_pb2 as pb
from prometheus_client.parser import text_string_to_metric_families
from support.fronts import serving

USER = {"role": "user", "content": "a secret prompt"}
FLEET = Fleet(
    workers=[WorkerRecord("i1", "chat-flash-0", "flash", "ready", "r1", slots=8, slots_free=5)],
    routers=[RouterRecord("router-1", "ready", "127.0.0.1:1", held={"flash": 1})],
    desired={"flash": 1, "standard": 1},
    pools=[PoolDepth(Pool("default/chat", "flash", "r1"), {"high": Depth(2, 300, 40), "low": Depth(0, 0, 0)}, 3)],
    time_ms=1,
)


@pytest.fixture
async def client(fronts):
    async with httpx.AsyncClient(base_url=fronts.http, timeout=20) as made:
        yield made


async def ask(client, **fields) -> httpx.Response:
    return await client.post("/v1/chat/completions", json={"messages": [USER], **fields})


async def samples(client) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    text = (await client.get("/metrics")).text
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


async def test_healthz_and_readyz(client, core) -> None:
    assert (await client.get("/healthz")).status_code == 200
    assert (await client.get("/readyz")).status_code == 200
    core.is_ready = False
    assert (await client.get("/healthz")).status_code == 200
    got = await client.get("/readyz")
    assert (got.status_code, got.text) == (503, "not ready: starting or draining\n")


async def test_what_is_counted(client, core, until) -> None:
    assert (await ask(client)).status_code == 200
    core.refuse.append(Refused(Why.BUSY, "full"))
    assert (await ask(client)).status_code == 429
    assert (await ask(client, max_tokens=0)).status_code == 400
    core.stall_after = 1
    with pytest.raises(httpx.ReadTimeout):
        await client.post("/v1/chat/completions", json={"messages": [USER]}, timeout=0.2)
    await until(lambda: bool(core.closed))
    found = await samples(client)
    assert found["flashfleet_requests_total"] == {
        (("finish", "stop"), ("front", "http"), ("how", "score"), ("tier", "flash")): 1
    }
    assert found["flashfleet_refusals_total"] == {
        (("front", "http"), ("why", "busy")): 1,
        (("front", "http"), ("why", "invalid")): 1,
    }
    assert found["flashfleet_clients_gone_total"] == {(("front", "http"),): 1}
    tokens = found["flashfleet_tokens_total"]
    assert {dict(labels)["kind"]: n for labels, n in tokens.items()} == {"prompt": 11, "completion": 7, "cached": 4}
    assert found["flashfleet_ttft_seconds_sum"][(("tier", "flash"),)] == pytest.approx(0.0125)
    assert found["flashfleet_tpot_seconds_sum"][(("tier", "flash"),)] == pytest.approx(0.0025)
    assert found["flashfleet_queue_seconds_count"][(("tier", "flash"),)] == 2
    assert found["flashfleet_standard_share_observed"] == {(): 0.28}
    assert found["flashfleet_standard_share_target"] == {(): 0.3}
    assert found["flashfleet_held_requests"] == {(("tier", "flash"),): 0, (("tier", "standard"),): 2}
    assert found["flashfleet_ready"] == {(): 1}


async def test_openmetrics_when_it_is_asked_for(client) -> None:
    got = await client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert got.headers["content-type"].startswith("application/openmetrics-text")
    assert got.text.endswith("# EOF\n")


async def test_nothing_a_client_writes_becomes_a_label(client, core) -> None:
    async def series() -> int:
        return sum(len(labels) for labels in (await samples(client)).values())

    async def round_of_all() -> None:
        for tier in ("flash", "standard", "auto"):
            await ask(client, tier=tier)
        for why in Why:
            core.refuse.append(Refused(why, "x"))
            await ask(client)

    core.rule = "rule"
    await round_of_all()
    before = await series()
    for number in range(60):
        core.rule = f"rule-{number}"
        await ask(client, tenant=f"t{number}", request_id=f"r{number}", model=f"m{number}", user=f"u{number}")
        await ask(client, tenant=f"t{number}", request_id=f"q{number}")
        await client.get(f"/path-{number}")
        await client.request(f"METHOD{number}", "/v1/models")
    await round_of_all()
    assert await series() == before


async def test_fleet_shows_this_router_without_a_word_of_any_prompt(client, core) -> None:
    core.words = ("secret", " answer")
    await ask(client, request_id="a-long-request-id", tenant="acme")
    text = (await client.get("/fleet")).text
    got = (await client.get("/fleet")).json()
    row = got["router"]["recent"][0]
    assert (row["tier"], row["how"], row["finish"], row["completionTokens"]) == ("flash", "score", "stop", 2)
    assert row["id"] == "a-long-r"
    assert "secret" not in text
    assert "acme" not in text
    assert "a-long-request-id" not in text
    assert got["router"]["stats"]["share_target"] == 0.3
    assert [model["id"] for model in got["router"]["models"]] == ["chat", "chat:flash", "chat:standard"]


async def test_the_ring_is_bounded(client) -> None:
    for _ in range(60):
        await ask(client, max_tokens=1)
    assert len((await client.get("/fleet")).json()["router"]["recent"]) == 50


async def test_fleet_reads_the_record_and_keeps_the_last_one(core, monkeypatch) -> None:
    reads = 0
    broken = False

    async def read_fleet() -> Fleet:
        nonlocal reads
        reads += 1
        if broken:
            raise ConnectionError("redis://user:password@host is away")
        return FLEET

    async with serving(core, read_fleet) as fronts, httpx.AsyncClient(base_url=fronts.http) as client:
        many = await asyncio.gather(*(client.get("/fleet") for _ in range(20)))
        assert reads == 1
        got = many[0].json()
        assert got["workers"][0]["name"] == "chat-flash-0"
        assert got["pools"][0]["levels"]["high"]["oldest_ms"] == 40
        assert got["pools"][0]["pool"]["tier"] == "flash"
        assert (got["desired"], got["error"]) == ({"flash": 1, "standard": 1}, "")
        broken = True
        monkeypatch.setattr("flash_router.ops_front._FRESH", 0.0)
        got = await client.get("/fleet")
        assert got.json()["workers"][0]["name"] == "chat-flash-0"
        assert got.json()["error"] == "the broker does not answer (ConnectionError)"
        assert "password" not in got.text


async def test_the_page_runs_only_what_is_on_it(client) -> None:
    got = await client.get("/")
    policy = got.headers["content-security-policy"]
    for tag, source in (("script", "script-src"), ("style", "style-src")):
        inside = re.findall(rf"<{tag}>(.*?)</{tag}>", got.text, re.DOTALL)
        assert len(inside) == 1
        digest = base64.b64encode(hashlib.sha256(inside[0].encode()).digest()).decode()
        assert f"{source} 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert got.headers["x-content-type-options"] == "nosniff"
    assert "http://" not in got.text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in got.text
    assert "innerHTML" not in got.text
    assert " style=" not in got.text
    assert re.search(r"\son\w+=", got.text) is None


async def test_grpc_requests_are_counted_too(client, fronts) -> None:
    import grpc
    from flash_wire.v1.inference_pb2_grpc import InferenceStub

    async with grpc.aio.insecure_channel(fronts.grpc) as channel:
        request = pb.GenerateRequest(prompt="x", model="chat:standard")
        assert [event async for event in InferenceStub(channel).Generate(request)]
    labels = (("finish", "stop"), ("front", "grpc"), ("how", "forced"), ("tier", "standard"))
    assert (await samples(client))["flashfleet_requests_total"] == {labels: 1}
