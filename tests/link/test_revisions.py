"""A roll to another revision: what waits moves, what streams goes on where its tokens mean the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from flash_wire.text import TextModel
from flash_wire.v1 import inference_pb2 as pb
from support.link_fleet import LinkFleet, until
from support.scripted_engine import Script, answer
from support.tiny_text import make_tiny_tokenizer_folder

OLD, NEW = "aaaaaaaaaaaa", "bbbbbbbbbbbb"


@pytest.mark.parametrize("same_text", [True, False])
async def test_roll(fleet: LinkFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_text: bool) -> None:
    monkeypatch.setattr("flash_router.upkeep.STRANDED", 0.2)
    core = await fleet.router()
    old = await fleet.worker("w0", Script(step=0.01, max_slots=1), revision=OLD)
    seen: list[int] = []
    streaming = asyncio.create_task(fleet.ask(fleet.request(1, 500), on_tokens=seen.append))
    await until(lambda: seen and seen[-1] > 10, "some tokens")
    waiting = asyncio.create_task(fleet.ask(fleet.request(2, 20)))
    await until(lambda: sum(line.queued for line in core._dispatcher.lines.values()) == 2, "the waiting request")
    text = fleet.text if same_text else TextModel.from_folder(make_tiny_tokenizer_folder(tmp_path / "t", 300).folder)
    new = await fleet.worker("w1", Script(), revision=NEW, text=text)
    await fleet.forget(old)
    await old.drain(0.1)
    moved, streamed = await waiting, await streaming
    assert moved.ids == answer(2, 20)
    assert moved.started.revision == NEW
    if same_text:
        fleet.expect(streamed, 1, 500)
        assert streamed.started.revision == OLD
        assert streamed.done.resumed == 1
        assert NEW in streamed.done.detail
    else:
        assert streamed.done.finish == pb.ERROR
        assert "another tokenizer" in streamed.done.detail
        assert streamed.ids == answer(1, 500)[: len(streamed.ids)]
        [prompt] = [request.prompt for request in new.engine.submitted]
        assert list(prompt) == text.encode("tell me about 2")
    await fleet.nothing_left()


async def test_new_requests_go_to_the_newest_ready_revision(fleet: LinkFleet) -> None:
    await fleet.router()
    old = await fleet.worker("w0", revision=OLD)
    new = await fleet.worker("w1", revision=NEW)
    await asyncio.gather(*(fleet.ask(fleet.request(seed, 5)) for seed in range(6)))
    assert not old.engine.submitted
    await fleet.forget(new)
    await new.drain()
    got = await fleet.ask(fleet.request(9, 5))
    assert got.started.revision == OLD


async def test_a_queued_request_that_no_worker_left_can_hold_ends_with_the_reason(fleet: LinkFleet) -> None:
    core = await fleet.router()
    big = await fleet.worker("w0", Script(max_slots=1, kv_tokens=2048, step=0.01))
    await fleet.worker("w1", Script(max_slots=1, kv_tokens=256))
    seen: list[int] = []
    first = asyncio.create_task(fleet.ask(fleet.request(1, 600), on_tokens=seen.append))
    await until(lambda: seen, "the first request")
    second = asyncio.create_task(fleet.ask(fleet.request(2, 900)))
    await until(lambda: sum(line.queued for line in core._dispatcher.lines.values()) == 2, "the second request")
    await fleet.forget(big)
    await big.drain(0.05)
    got, refused = await asyncio.gather(first, second, return_exceptions=True)
    assert "the largest worker" in str(refused)
    assert not isinstance(got, BaseException)
    assert got.done.finish == pb.ERROR
    await fleet.nothing_left()
