"""Large bodies beside a running stream: refused by their size alone, and the event loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from flash_router import prompts
from flash_router.core import Refused, Why
from flash_router.http_front import build_app
from flash_router.http_server import HttpServer
from flash_router.listen import listen
from flash_router.metrics import Metrics
from flash_wire.v1 import inference_pb2 as pb
from support.link_fleet import LinkFleet, until
from support.scripted_engine import Script

LARGE = 3_800_000
WORST_LAG = 1.0
"""Seconds; the machine that runs this is slow and busy, and the fault was 5 and more."""


@pytest.fixture
async def url(fleet: LinkFleet) -> AsyncIterator[str]:
    core = await fleet.router()
    server = HttpServer(build_app(core, Metrics(core)), listen("127.0.0.1", 0, "httpPort"))
    await server.start()
    yield f"http://127.0.0.1:{server.port}"
    await server.stop(0)


def send(url: str, body: bytes) -> httpx.Response:
    headers = {"content-type": "application/json"}
    return httpx.post(f"{url}/v1/chat/completions", content=body, headers=headers, timeout=60)


async def worst_lag(over: asyncio.Event) -> float:
    worst = 0.0
    while not over.is_set():
        before = time.monotonic()
        await asyncio.sleep(0.005)
        worst = max(worst, time.monotonic() - before - 0.005)
    return worst


@pytest.mark.parametrize("kind", ["text", "ids"])
async def test_they_do_not_stall_a_stream(fleet: LinkFleet, url: str, kind: str) -> None:
    await fleet.worker("w0", Script(step=0.005))
    if kind == "text":
        message = {"role": "user", "content": "tell me " * (LARGE // 8)}
        body = json.dumps({"messages": [message], "tier": "flash"}).encode()
    else:
        body = json.dumps({"messages": [7] * 1_200_000}).encode()
    stream = asyncio.create_task(fleet.ask(fleet.request(1, 400)))
    over = asyncio.Event()
    lag = asyncio.create_task(worst_lag(over))
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(12) as clients:
        answers = await asyncio.gather(*(loop.run_in_executor(clients, send, url, body) for _ in range(12)))
    over.set()
    assert await lag < WORST_LAG
    fleet.expect(await stream, 1, 400)
    for answer in answers:
        assert answer.status_code in (400, 429), answer.text
        if answer.status_code == 429:
            assert int(answer.headers["retry-after"]) >= 1
        elif kind == "text":
            error = answer.json()["error"]
            assert error["param"] == "messages"
            assert "at least" in error["message"]
            assert "takes at most 2048" in error["message"]
    assert any(answer.status_code == 400 for answer in answers)
    await fleet.nothing_left()


async def test_what_may_fit_is_tokenised_and_counted(fleet: LinkFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long texts that no length refuses wait for the threads, up to a bound; then they are told to come back."""
    await fleet.router()
    await fleet.worker()
    text = "x" * 9000  # more than the loop takes, and less than 2048 of the longest tokens
    request = pb.GenerateRequest(prompt=text, tier=pb.FLASH)
    with pytest.raises(Refused, match=r"prompt is 9\d+ tokens long, and tier flash takes at most 2048"):
        await fleet.ask(request)
    monkeypatch.setattr(prompts._room, "most", 8999)
    with pytest.raises(Refused, match=r"takes at most 8999 at once") as refused:
        await fleet.ask(request)
    assert refused.value.why is Why.BUSY
    assert refused.value.retry_after
    assert prompts._room.taken == 0
    await until(lambda: not fleet.core._dispatcher.sessions, "the end")


async def test_ids_beyond_the_context_are_refused_by_their_number(fleet: LinkFleet) -> None:
    await fleet.router()
    await fleet.worker()
    request = pb.GenerateRequest(prompt_ids=pb.TokenIds(ids=[5] * 3000), tier=pb.FLASH)
    with pytest.raises(Refused, match="prompt_ids is 3000 tokens long, and tier flash takes at most 2048"):
        await fleet.ask(request)
