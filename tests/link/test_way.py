"""The way of a request with nothing going wrong, and the ways in which it is refused."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
from flash_router.core import Refused, Why
from flash_router.session import Session
from flash_wire.fleet import set_desired, snapshot
from flash_wire.v1 import inference_pb2 as pb
from support.link_fleet import FLEET, LinkFleet, until, until_async
from support.scripted_engine import Script, answer


async def test_one_request(fleet: LinkFleet) -> None:
    core = await fleet.router()
    await fleet.worker()
    got = await fleet.ask(fleet.request(7, 40))
    fleet.expect(got, 7, 40)
    assert got.started.tier == pb.FLASH
    assert got.started.model == "chat"
    assert got.started.decision.how == "score"
    assert got.done.usage.prompt_tokens == len(fleet.text.encode("tell me about 7"))
    assert got.done.usage.cached_tokens == 16
    assert 0 < got.done.ttft_ms <= got.done.total_ms
    assert core.ready
    assert [(m.id, m.ready) for m in core.models()] == [("chat", True), ("chat:flash", True), ("chat:standard", False)]
    await fleet.nothing_left()


async def test_many_at_once_and_logprobs(fleet: LinkFleet) -> None:
    await fleet.router()
    first = await fleet.worker("w0", Script(max_slots=4, per_step=3))
    second = await fleet.worker("w1", Script(max_slots=4))
    requests = [fleet.request(seed, 20 + seed) for seed in range(40)]
    for request in requests:
        request.sampling.logprobs = True
    for seed, got in enumerate(await asyncio.gather(*(fleet.ask(request) for request in requests))):
        fleet.expect(got, seed, 20 + seed)
        assert got.logprobs == [-0.5] * (20 + seed)
    assert first.engine.most_beside <= 4
    assert second.engine.submitted, "the second worker took nothing"
    await fleet.nothing_left()


async def test_chat_stop_string_and_eos(fleet: LinkFleet) -> None:
    await fleet.router()
    await fleet.worker()
    text = fleet.text_of(answer(3, 60))
    stop = text[20:23]
    request = fleet.request(3, 60)
    request.sampling.stop.append(stop)
    got = await fleet.ask(request)
    # The scripted engine knows no stop strings: the router finds the end in the committed tokens by itself.
    assert got.text == text[: text.index(stop)]
    assert (got.done.finish, got.done.stop) == (pb.STOP, stop)
    request = pb.GenerateRequest(messages=[pb.Message(role="user", content="hi")], tier=pb.FLASH)
    request.sampling.CopyFrom(pb.Sampling(seed=5, max_tokens=50, stop_token_ids=[answer(5, 10)[9]]))
    got = await fleet.ask(request)
    assert got.ids == answer(5, 50)[: answer(5, 50).index(answer(5, 10)[9]) + 1]
    assert got.done.finish == pb.STOP
    assert got.started.decision.how == "forced"
    await fleet.nothing_left()


@pytest.mark.parametrize(
    ("fields", "why", "words"),
    [
        ({"model": "other"}, Why.NOT_FOUND, "chat:standard"),
        ({"tokens": 5000}, Why.INVALID, "5000"),
        ({"prompt": "word " * 3000}, Why.INVALID, "2048"),
        ({"request_id": "gone", "resume_position": 3}, Why.NOT_FOUND, "gone"),
        ({"prompt_ids": [1, 99999], "tier": pb.FLASH}, Why.INVALID, "99999"),
    ],
)
async def test_refusals_name_the_fault_and_the_next_one_runs(
    fleet: LinkFleet, fields: dict[str, object], why: Why, words: str
) -> None:
    await fleet.router()
    await fleet.worker()
    request = fleet.request(1, int(str(fields.pop("tokens", 5))))
    if ids := fields.pop("prompt_ids", None):
        request.ClearField("prompt")
        request.prompt_ids.ids.extend(ids)  # type: ignore[arg-type]
    request.MergeFrom(pb.GenerateRequest(**fields))
    with pytest.raises(Refused) as refused:
        await fleet.ask(request)
    assert refused.value.why is why
    assert words in refused.value.message
    fleet.expect(await fleet.ask(fleet.request(2, 5)), 2, 5)
    await fleet.nothing_left()


@pytest.mark.parametrize("name", ["logit_bias", "allowed_token_ids", "stop_token_ids"])
async def test_ids_beyond_the_vocabulary_never_reach_a_worker(fleet: LinkFleet, name: str) -> None:
    await fleet.router()
    worker = await fleet.worker()
    size = fleet.text.vocab_size

    def asking(token: int) -> pb.GenerateRequest:
        request = fleet.request(1, 5)
        given: object = {token: 1.0} if name == "logit_bias" else [token]
        request.sampling.MergeFrom(pb.Sampling(**{name: given}))  # type: ignore[arg-type]
        return request

    with pytest.raises(Refused) as refused:
        await fleet.ask(asking(size))
    assert (refused.value.why, refused.value.field) == (Why.INVALID, f"sampling.{name}")
    assert refused.value.message.startswith(f"sampling.{name} has {size}, but the vocabulary of tier flash has {size} ")
    assert not worker.engine.submitted
    assert (await fleet.ask(asking(size - 1))).done.finish in (pb.STOP, pb.LENGTH)
    await fleet.nothing_left()


async def test_default_length_is_what_is_left(fleet: LinkFleet) -> None:
    await fleet.router()
    await fleet.worker("w0", Script(max_model_len=64, per_step=8))
    request = fleet.request(4, 1)
    request.sampling.ClearField("max_tokens")
    got = await fleet.ask(request)
    assert got.done.usage.prompt_tokens + got.done.usage.completion_tokens == 64


async def test_full_queue_says_when_to_come_back(fleet: LinkFleet) -> None:
    await fleet.router({"limits": {"queueRequests": 2}})
    worker = await fleet.worker("w0", Script(max_slots=1))
    worker.engine.paused.clear()
    running = [asyncio.create_task(fleet.ask(fleet.request(seed, 5))) for seed in range(3)]

    async def queued() -> int:
        depth, _ = await fleet.broker.depth(worker.worker.leases._pool)
        return depth["high"].queued

    end = time.monotonic() + 20
    while await queued() < 2 or not worker.engine.running:
        assert time.monotonic() < end
        await asyncio.sleep(0.02)
    with pytest.raises(Refused) as refused:
        await fleet.ask(fleet.request(9, 5))
    assert refused.value.why is Why.BUSY
    assert refused.value.retry_after is not None
    assert 1.0 <= refused.value.retry_after <= 60.0
    assert "limits.queueRequests" in refused.value.message
    worker.engine.paused.set()
    for seed, got in enumerate(await asyncio.gather(*running)):
        fleet.expect(got, seed, 5)
    await fleet.nothing_left()


async def test_deadline_while_queued_and_while_running(fleet: LinkFleet) -> None:
    await fleet.router()
    worker = await fleet.worker("w0", Script(max_slots=1))
    worker.engine.paused.clear()
    running = asyncio.create_task(fleet.ask(fleet.request(1, 5), within=1.0))
    await until(lambda: worker.engine.running, "the first request")
    with pytest.raises(Refused) as refused:
        await fleet.ask(fleet.request(2, 5), within=0.3)
    assert refused.value.why is Why.DEADLINE
    got = await running
    assert got.done.finish == pb.DEADLINE
    worker.engine.paused.set()
    await fleet.nothing_left()


async def test_max_wait_ends_a_queued_request(fleet: LinkFleet) -> None:
    await fleet.router({"limits": {"maxWait": "400ms"}})
    worker = await fleet.worker("w0", Script(max_slots=1))
    worker.engine.paused.clear()
    running = asyncio.create_task(fleet.ask(fleet.request(1, 5)))
    await until(lambda: worker.engine.running, "the first request")
    with pytest.raises(Refused, match="maxWait") as refused:
        await fleet.ask(fleet.request(2, 5))
    assert refused.value.why is Why.DEADLINE
    worker.engine.paused.set()
    fleet.expect(await running, 1, 5)
    await fleet.nothing_left()


@pytest.mark.parametrize("state", ["held", "queued", "prompted", "streaming"])
@pytest.mark.parametrize("how", ["closed", "asked", "not back"])
async def test_cancel_at_every_state_frees_everything(
    fleet: LinkFleet, state: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client without a request_id goes away; it asks for the end; one with an id is not back within the grace."""
    monkeypatch.setattr("flash_router.service.GRACE", 0.5)
    core = await fleet.router()
    if state == "held":
        await set_desired(fleet.broker, FLEET, {"flash": 1})
    worker = None if state == "held" else await fleet.worker("w0", Script(max_slots=1, step=0.005))
    blocker = None
    if worker and state != "streaming":
        worker.engine.paused.clear()
    if state == "queued":
        blocker = asyncio.create_task(fleet.ask(fleet.request(1, 5)))
        await until(lambda: worker.engine.running, "the blocker")
    seen: list[int] = []
    request = fleet.request(2, 1500, request_id="" if how == "closed" else "mine", tenant="t")
    task = asyncio.create_task(fleet.ask(request, on_tokens=seen.append))

    def mine() -> list[Session]:
        return [session for session in core._dispatcher.sessions if session.tenant == "t"]

    await until(mine, "the session")
    [session] = mine()
    line = core._dispatcher.lines[session]
    await until(
        {
            "held": lambda: core.stats().held == {"flash": 1},
            "queued": lambda: line.queued,
            "prompted": lambda: session.holder is not None and worker.engine.running,
            "streaming": lambda: len(seen) > 3,
        }[state],
        state,
    )
    if how == "asked":
        assert await core.cancel("mine", "t") is True
        got = await task
        assert got.done.finish == pb.CANCELLED
    else:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert session.is_over is (how == "closed")
        await until(lambda: session.is_over, "the end of the grace", 5.0)
    assert session.done.finish == pb.CANCELLED
    assert await core.cancel("mine", "t") is False
    assert await core.cancel("mine", "another tenant") is False
    if worker:
        worker.engine.paused.set()
    if blocker:
        fleet.expect(await blocker, 1, 5)
    if worker and state in ("prompted", "streaming"):
        await until(lambda: worker.engine.aborted, "the engine's abort")
    assert core.stats().held == {}
    await fleet.nothing_left()


async def test_duplicate_attaches_and_the_newest_has_the_stream(fleet: LinkFleet) -> None:
    await fleet.router()
    worker = await fleet.worker("w0", Script(step=0.005))
    request = fleet.request(8, 120, request_id="one")
    seen: list[int] = []
    first = asyncio.create_task(fleet.ask(request, on_tokens=seen.append))
    await until(lambda: seen and seen[-1] > 20, "some tokens")
    again = pb.GenerateRequest()
    again.CopyFrom(request)
    again.resume_position = 11
    second = await fleet.ask(again)
    old = await first
    assert old.done.finish == pb.CANCELLED
    assert "took the stream over" in old.done.detail
    assert second.ids == answer(8, 120)[11:]
    whole = fleet.text_of(answer(8, 120))
    assert second.text
    assert whole.endswith(second.text)
    decoded_before = len(whole) - len(second.text)
    assert fleet.text_of(answer(8, 120)[:11]).startswith(whole[:decoded_before])
    assert len(worker.engine.submitted) == 1
    # A late duplicate gets the finished answer, from any position; a position beyond it is a mistake.
    late = await fleet.ask(request)
    fleet.expect(late, 8, 120)
    again.resume_position = 121
    with pytest.raises(Refused, match="120 tokens"):
        await fleet.ask(again)
    assert len(worker.engine.submitted) == 1
    await fleet.nothing_left()


async def test_slow_client_gets_longer_deltas_and_costs_no_queue(fleet: LinkFleet) -> None:
    core = await fleet.router()
    await fleet.worker("w0", Script(step=0.001))
    deltas: list[pb.Delta] = []
    async with contextlib.aclosing(core.generate(fleet.request(6, 600), deadline=None)) as events:
        started = await anext(events)
        assert started.HasField("started")
        deltas.append((await anext(events)).delta)
        [session] = list(core._dispatcher.sessions)
        await until(lambda: session.is_over, "the end of the generation, while the client reads nothing")
        async for event in events:
            if event.HasField("done"):
                break
            deltas.append(event.delta)
    assert len(deltas) == 2
    assert [id for delta in deltas for id in delta.token_ids] == answer(6, 600)
    assert "".join(delta.text for delta in deltas) == fleet.text_of(answer(6, 600))


async def test_no_worker_and_none_wanted_is_unavailable_at_once(fleet: LinkFleet) -> None:
    core = await fleet.router()
    await until(lambda: core._roster.fleet is not None, "the fleet record")
    began = time.monotonic()
    with pytest.raises(Refused, match="tier flash has no worker") as refused:
        await fleet.ask(fleet.request(1, 5))
    assert refused.value.why is Why.UNAVAILABLE
    assert refused.value.retry_after
    assert time.monotonic() - began < 2


async def test_fallback_says_so_and_a_named_tier_is_kept(fleet: LinkFleet) -> None:
    core = await fleet.router({"tiers": {"flash": {"onTierDown": "fallback"}}})
    await fleet.worker("s0", tier="standard")
    await until(lambda: core._roster.fleet is not None, "the fleet record")
    await until(lambda: core._roster.newest("standard") is not None, "the worker's Hello")
    got = await fleet.ask(fleet.request(1, 5))
    fleet.expect(got, 1, 5)
    assert got.started.tier == pb.STANDARD
    assert got.started.decision.how == "fallback"
    assert "flash has no ready worker" in got.started.decision.note
    with pytest.raises(Refused):
        await fleet.ask(fleet.request(2, 5, tier=pb.FLASH))


async def test_a_tier_at_zero_holds_requests_as_long_as_it_may_wake(fleet: LinkFleet) -> None:
    live = {"limits": {"maxWait": "200ms"}, "tiers": {"flash": {"wakeWait": "60s"}}}
    core = await fleet.router(live)
    await until(lambda: core._roster.fleet is not None, "the fleet record")
    assert not core._roster.expects("flash")
    task = asyncio.create_task(fleet.ask(fleet.request(1, 5)))
    await until(lambda: core.stats().held == {"flash": 1}, "a held request")
    await asyncio.sleep(0.4)
    assert not task.done(), "maxWait is over, wakeWait is not"
    with pytest.raises(Refused, match="none is wanted"):
        await fleet.ask(fleet.request(2, 5, tier=pb.STANDARD))
    await fleet.worker()
    fleet.expect(await task, 1, 5)


async def test_a_tier_that_does_not_wake_is_given_up_by_its_name(fleet: LinkFleet) -> None:
    core = await fleet.router({"limits": {"maxWait": "100ms"}, "tiers": {"flash": {"wakeWait": "300ms"}}})
    await until(lambda: core._roster.fleet is not None, "the fleet record")
    with pytest.raises(Refused, match=r"scaling\.wakeWait is 0\.3 s"):
        await fleet.ask(fleet.request(1, 5))


async def test_a_router_says_which_workers_it_reaches(fleet: LinkFleet) -> None:
    core = await fleet.router()
    await fleet.worker()
    await until(lambda: core._roster.newest("flash") is not None, "the worker's Hello")

    async def seen() -> bool:
        record = await snapshot(fleet.broker, FLEET)
        return bool(record.workers) and [router.workers for router in record.routers] == [
            [worker.incarnation for worker in record.workers]
        ]

    await until_async(seen, "the worker in the router's entry")


async def test_a_held_request_runs_when_the_tier_comes(fleet: LinkFleet) -> None:
    core = await fleet.router({"limits": {"heldRequests": 2}})
    await set_desired(fleet.broker, FLEET, {"flash": 1})
    tasks = [asyncio.create_task(fleet.ask(fleet.request(seed, 5))) for seed in range(2)]
    await until(lambda: core.stats().held == {"flash": 2}, "two held requests")
    with pytest.raises(Refused, match="heldRequests") as refused:
        await fleet.ask(fleet.request(9, 5))
    assert refused.value.why is Why.UNAVAILABLE

    async def seen() -> bool:
        routers = (await snapshot(fleet.broker, FLEET)).routers
        return [router.held for router in routers] == [{"flash": 2}]

    await until_async(seen, "the held requests in the fleet record")
    await fleet.worker()
    for seed, got in enumerate(await asyncio.gather(*tasks)):
        fleet.expect(got, seed, 5)
    assert core.stats().held == {}
    await fleet.nothing_left()
