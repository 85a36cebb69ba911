"""What a request_id is good for: coming back to an answer, and never getting another's."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from typing import Any

import grpc
import httpx
import pytest
from flash_router.core import Refused, Why
from flash_router.session import Session
from flash_wire.v1 import inference_pb2 as pb
from flash_wire.v1 import inference_pb2_grpc
from support.fronts import serving
from support.link_fleet import Answer, LinkFleet, LocalWorker, until
from support.scripted_engine import Script, answer


def resumed(request: pb.GenerateRequest, position: int) -> pb.GenerateRequest:
    again = pb.GenerateRequest()
    again.CopyFrom(request)
    again.resume_position = position
    return again


async def leave(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def streamed(fleet: LinkFleet, request: pb.GenerateRequest, more_than: int = 10) -> asyncio.Task[Answer]:
    """A call that has had some tokens."""
    seen: list[int] = []
    task: asyncio.Task[Answer] = asyncio.create_task(fleet.ask(request, on_tokens=seen.append))
    await until(lambda: seen and seen[-1] > more_than, "some tokens")
    return task


async def blocked(fleet: LinkFleet) -> tuple[LocalWorker, asyncio.Task[Answer]]:
    """A worker whose only place is taken until it is let go on."""
    worker = await fleet.worker("w0", Script(max_slots=1))
    worker.engine.paused.clear()
    task: asyncio.Task[Answer] = asyncio.create_task(fleet.ask(fleet.request(99, 5)))
    await until(lambda: worker.engine.running, "the blocker")
    return worker, task


async def test_a_full_queue_does_not_stick_to_the_id(fleet: LinkFleet) -> None:
    core = await fleet.router({"limits": {"queueRequests": 1}})
    worker, blocker = await blocked(fleet)
    waiting = asyncio.create_task(fleet.ask(fleet.request(1, 5)))
    await until(lambda: any(line.queued for s, line in core._dispatcher.lines.items() if not s.holder), "the queue")
    request = fleet.request(2, 5, request_id="again")
    with pytest.raises(Refused) as refused:
        await fleet.ask(request)
    assert refused.value.why is Why.BUSY
    worker.engine.paused.set()
    await asyncio.gather(blocker, waiting)
    fleet.expect(await fleet.ask(request), 2, 5)
    await fleet.nothing_left()


@pytest.mark.parametrize("end", ["deadline", "cancelled"])
async def test_an_end_without_tokens_does_not_stick_to_the_id(fleet: LinkFleet, end: str) -> None:
    core = await fleet.router()
    worker, blocker = await blocked(fleet)
    request = fleet.request(2, 5, request_id="again", tenant="t")
    if end == "deadline":
        with pytest.raises(Refused) as refused:
            await fleet.ask(request, within=0.2)
        assert refused.value.why is Why.DEADLINE
    else:
        task = asyncio.create_task(fleet.ask(request))
        await until(lambda: core._dispatcher.sessions.find("t", "again"), "the request")
        assert await core.cancel("again", "t")
        assert (await task).done.finish == pb.CANCELLED
    worker.engine.paused.set()
    await blocker
    fleet.expect(await fleet.ask(request), 2, 5)
    await fleet.nothing_left()


async def test_what_broke_off_is_told_from_a_position_and_starts_anew_without(fleet: LinkFleet) -> None:
    core = await fleet.router()
    worker = await fleet.worker("w0", Script(step=0.005))
    request = fleet.request(3, 120, request_id="cut", tenant="t")
    task = await streamed(fleet, request)
    assert await core.cancel("cut", "t")
    first = await task
    rest = await fleet.ask(resumed(request, 4))
    assert rest.ids == first.ids[4:]
    assert rest.done.finish == pb.CANCELLED
    assert rest.done.detail == "cancelled by request"
    assert len(worker.engine.submitted) == 1
    fleet.expect(await fleet.ask(request), 3, 120)
    assert len(worker.engine.submitted) == 2
    await fleet.nothing_left()


async def test_another_request_under_the_same_id_is_refused_and_disturbs_nobody(fleet: LinkFleet) -> None:
    await fleet.router()
    worker = await fleet.worker("w0", Script(step=0.005))
    request = fleet.request(4, 120, request_id="same", tenant="t")
    task = await streamed(fleet, request)
    other = fleet.request(4, 120, request_id="same", tenant="t")
    other.prompt = "something else"
    longer = fleet.request(4, 121, request_id="same", tenant="t")
    for wrong in (other, longer, resumed(other, 3)):
        with pytest.raises(Refused, match="'same' belongs to another request") as refused:
            await fleet.ask(wrong)
        assert refused.value.why is Why.CONFLICT
    fleet.expect(await fleet.ask(fleet.request(5, 5, request_id="same", tenant="other")), 5, 5)
    fleet.expect(await task, 4, 120)
    with pytest.raises(Refused, match="id of its own"):
        await fleet.ask(other)
    assert len(worker.engine.submitted) == 2
    await fleet.nothing_left()


async def test_a_client_that_comes_back_in_time_goes_on(fleet: LinkFleet) -> None:
    core = await fleet.router()
    worker = await fleet.worker("w0", Script(step=0.005))
    request = fleet.request(6, 200, request_id="back", tenant="t")
    await leave(await streamed(fleet, request))
    [session] = core._dispatcher.sessions
    had = len(session.committed)
    await until(lambda: len(session.committed) > had, "tokens while the client is away")
    with pytest.raises(Refused, match="resume_position"):
        await fleet.ask(resumed(request, 500))
    got = await fleet.ask(resumed(request, 7))
    assert got.ids == answer(6, 200)[7:]
    assert got.done.finish == pb.LENGTH
    assert session._away is None
    assert len(worker.engine.submitted) == 1
    await fleet.nothing_left()


async def test_an_answer_that_ended_while_the_client_was_away_is_kept(fleet: LinkFleet) -> None:
    core = await fleet.router()
    await fleet.worker("w0", Script(step=0.002))
    request = fleet.request(7, 60, request_id="late", tenant="t")
    await leave(await streamed(fleet, request))
    await until(lambda: not len(core._dispatcher.sessions), "the end")
    fleet.expect(await fleet.ask(request), 7, 60)
    await fleet.nothing_left()


async def test_a_router_that_stops_waits_for_no_client_that_is_away(fleet: LinkFleet) -> None:
    core = await fleet.router()
    await fleet.worker("w0", Script(step=0.01))
    await leave(await streamed(fleet, fleet.request(8, 1500, request_id="away")))
    [session] = core._dispatcher.sessions
    async with asyncio.timeout(8.0):
        await core.stop(60.0)
    assert session.done is not None
    assert session.done.finish == pb.CANCELLED
    fleet._cores.remove(core)


async def test_refused_requests_leave_nothing_in_memory(fleet: LinkFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    core = await fleet.router()
    await fleet.worker()
    made: list[weakref.ref[Session]] = []
    real = Session.__init__

    def spy(self: Session, *args: object, **named: object) -> None:
        real(self, *args, **named)  # type: ignore[arg-type]
        made.append(weakref.ref(self))

    monkeypatch.setattr(Session, "__init__", spy)
    for number in range(20):
        request = fleet.request(1, 5, request_id=f"large{number}", tenant="t")
        request.prompt = "word " * 20_000
        with pytest.raises(Refused):
            await fleet.ask(request)
    assert len(made) == 20
    assert core._dispatcher.sessions.kept_bytes == 0
    await fleet.nothing_left()
    gc.collect()
    assert [ref for ref in made if ref() is not None] == []


@pytest.mark.parametrize("request_id", ["", "mine"])
@pytest.mark.parametrize("front", ["grpc", "http"])
async def test_the_dashboard_has_the_figures_of_a_client_that_left(
    fleet: LinkFleet, front: str, request_id: str
) -> None:
    core = await fleet.router()
    await fleet.worker("w0", Script(step=0.005))
    request = fleet.request(9, 1500, request_id=request_id)
    async with serving(core) as fronts:
        fleet._cores.remove(core)  # `serving` stops it
        if front == "grpc":
            async with grpc.aio.insecure_channel(fronts.grpc) as channel:
                call = inference_pb2_grpc.InferenceStub(channel).Generate(request)
                tokens = 0
                async for event in call:
                    tokens += len(event.delta.token_ids)
                    if tokens > 10:
                        break
                call.cancel()
        else:
            body = {"model": "chat", "prompt": request.prompt, "max_tokens": 1500, "ignore_eos": True, "stream": True}
            body |= {"request_id": request_id} if request_id else {}
            async with (
                httpx.AsyncClient() as client,
                client.stream("POST", f"{fronts.http}/v1/completions", json=body) as got,
            ):
                await until(lambda: [s for s in core._dispatcher.sessions if len(s.committed) > 10], "some tokens")
                assert got.status_code == 200
        await until(lambda: fronts.metrics.recent.rows(), "the row")
        [row] = fronts.metrics.recent.rows()
    assert row["finish"] == "cancelled"
    assert 10 < row["completionTokens"] < 1500
    assert row["promptTokens"] > 0
    assert 0 < row["ttftMs"] <= row["totalMs"]
