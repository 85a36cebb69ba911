"""flash.v1.Inference as clients see it: events, refusals that say when to come back, cancel, deadlines, health."""

from __future__ import annotations

import asyncio
import json
import time

import grpc
import pytest
from flash_router.core import Refused, Why
from flash_router.grpc_front import MAX_MESSAGE, GrpcFront
from flash_router.metrics import Metrics
from flash_wire.v1 import inference_pb2 as pb
from flash_wire.v1.inference_pb2_grpc import InferenceStub
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status
from support.fronts import Fronts

TEXT = "The capital of France is Paris."


def ask(**fields) -> pb.GenerateRequest:
    return pb.GenerateRequest(**{"messages": [pb.Message(role="user", content="What is it?")]} | fields)


@pytest.fixture
async def fronts(core):
    """Without the HTTP front, whose stop takes longer than a test."""
    metrics = Metrics(core)
    front = GrpcFront(core, metrics)
    front.bind("127.0.0.1", 0)
    await front.start()
    yield Fronts(core, metrics, front, None)
    await core.stop(0)
    await front.stop(0)


@pytest.fixture
async def channel(fronts):
    async with grpc.aio.insecure_channel(fronts.grpc) as made:
        yield made


@pytest.fixture
def stub(channel) -> InferenceStub:
    return InferenceStub(channel)


def details(error: grpc.RpcError, kind):
    """The google.rpc detail of that kind, or None."""
    for packed in rpc_status.from_call(_AsCall(error)).details:
        found = kind()
        if packed.Unpack(found):
            return found
    return None


class _AsCall:
    """grpc_status reads a call; an AioRpcError has the same under other types."""

    def __init__(self, error) -> None:
        self._error = error

    def code(self):
        return self._error.code()

    def details(self):
        return self._error.details()

    def trailing_metadata(self):
        return tuple(self._error.trailing_metadata())


async def test_events_pass_through_and_headers_say_who_answers(stub, core) -> None:
    core.rule = "Prüfung 100%"
    call = stub.Generate(ask(request_id="r-1", tenant="team"))
    metadata = dict(await call.initial_metadata())
    events = [event async for event in call]
    assert [event.WhichOneof("event") for event in events] == ["started", *["delta"] * 7, "done"]
    assert "".join(event.delta.text for event in events) == TEXT
    assert [event.delta.first_token for event in events[1:-1]] == list(range(7))
    assert metadata["x-flashfleet-tier"] == "standard"
    assert metadata["x-flashfleet-how"] == "rule"
    assert metadata["x-flashfleet-rule"] == "Pr%C3%BCfung 100%25"
    assert metadata["x-flashfleet-request-id"] == "r-1"
    assert core.finished == ["r-1"]


async def test_generate_once_collects(stub) -> None:
    call = stub.GenerateOnce(ask(sampling=pb.Sampling(logprobs=True)))
    answer = await call
    assert (answer.text, list(answer.token_ids)) == (TEXT, list(range(100, 107)))
    assert list(answer.logprobs) == [-0.5] * 7
    assert (answer.started.tier, answer.done.finish) == (pb.FLASH, pb.STOP)
    assert dict(await call.initial_metadata())["x-flashfleet-tier"] == "flash"


async def test_a_late_failure_is_a_done_that_says_so(stub, core) -> None:
    core.end = pb.Done(finish=pb.ERROR, detail="worker lost")
    assert [event async for event in stub.Generate(ask())][-1].done.detail == "worker lost"
    assert (await stub.GenerateOnce(ask())).done.finish == pb.ERROR


def test_a_blocking_client(threaded) -> None:
    with grpc.insecure_channel(threaded.grpc) as channel:
        stub = InferenceStub(channel)
        assert "".join(event.delta.text for event in stub.Generate(ask(), timeout=20)) == TEXT
        assert stub.GenerateOnce(ask(), timeout=20).text == TEXT


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (Refused(Why.INVALID, "prompt is too long", field="prompt"), grpc.StatusCode.INVALID_ARGUMENT),
        (Refused(Why.NOT_FOUND, "no such model"), grpc.StatusCode.NOT_FOUND),
        (Refused(Why.CONFLICT, "the id is another's"), grpc.StatusCode.ALREADY_EXISTS),
        (Refused(Why.BUSY, "the queue is full", retry_after=2.25), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (Refused(Why.UNAVAILABLE, "no worker"), grpc.StatusCode.UNAVAILABLE),
        (Refused(Why.DEADLINE, "too late"), grpc.StatusCode.DEADLINE_EXCEEDED),
        (Refused(Why.INTERNAL, "poison"), grpc.StatusCode.INTERNAL),
    ],
)
@pytest.mark.parametrize("method", ["Generate", "GenerateOnce", "Explain"])
async def test_refusals(stub, core, refused, code, method) -> None:
    core.refuse.append(refused)
    call = getattr(stub, method)(ask())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await (call.read() if method == "Generate" else call)
    error = caught.value
    assert (error.code(), error.details()) == (code, refused.message)
    trailing = dict(error.trailing_metadata())
    retry = details(error, error_details_pb2.RetryInfo)
    if refused.why in (Why.BUSY, Why.UNAVAILABLE):
        expected = 2250 if refused.why is Why.BUSY else 1000
        assert retry.retry_delay.ToMilliseconds() == expected
        assert trailing["grpc-retry-pushback-ms"] == str(expected)
    else:
        assert retry is None
        assert "grpc-retry-pushback-ms" not in trailing
    if refused.field:
        assert details(error, error_details_pb2.BadRequest).field_violations[0].field == "prompt"


async def test_grpcs_own_retries_obey_the_pushback(fronts, core) -> None:
    core.refuse += [Refused(Why.UNAVAILABLE, "no worker", retry_after=0.3)] * 2
    policy = {
        "maxAttempts": 5, "initialBackoff": "60s", "maxBackoff": "60s", "backoffMultiplier": 1,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }  # fmt: skip
    config = json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": policy}]})
    async with grpc.aio.insecure_channel(fronts.grpc, options=[("grpc.service_config", config)]) as channel:
        began = time.monotonic()
        assert (await InferenceStub(channel).GenerateOnce(ask(), timeout=20)).text == TEXT
    assert 0.6 <= time.monotonic() - began < 20
    assert len(core.requests) == 3


async def test_cancel_closes_the_iterator(stub, core, until) -> None:
    core.stall_after = 2
    call = stub.Generate(ask(request_id="gone"))
    for _ in range(3):
        await call.read()
    call.cancel()
    await until(lambda: core.closed == ["gone"])


async def _awaited(call):
    return await call


async def test_cancel_before_the_first_event_closes_the_iterator(stub, core, until) -> None:
    core.start_gate = asyncio.Event()
    streaming, once = stub.Generate(ask(request_id="a")), stub.GenerateOnce(ask(request_id="b"))
    waiting = [asyncio.ensure_future(streaming.read()), asyncio.ensure_future(_awaited(once))]
    await until(lambda: len(core.requests) == 2)
    streaming.cancel()
    once.cancel()
    await asyncio.wait(waiting)
    await until(lambda: sorted(core.closed) == ["a", "b"])


async def test_a_deadline_reaches_the_core_and_ends_the_call(stub, core, until) -> None:
    core.stall_after = 1
    began = time.monotonic()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        _ = [event async for event in stub.Generate(ask(request_id="late"), timeout=0.5)]
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert 0 < core.deadlines[0] - began < 0.6
    await until(lambda: core.closed == ["late"])
    core.stall_after = None
    await stub.GenerateOnce(ask())
    assert core.deadlines[1] is None


async def test_cancel_by_name_needs_the_same_tenant(stub, core, until) -> None:
    core.stall_after = 1
    call = stub.Generate(ask(request_id="mine", tenant="a"))
    await call.read()
    assert not (await stub.Cancel(pb.CancelRequest(request_id="mine", tenant="b"))).found
    assert not (await stub.Cancel(pb.CancelRequest(request_id="other", tenant="a"))).found
    assert (await stub.Cancel(pb.CancelRequest(request_id="mine", tenant="a"))).found
    with pytest.raises(grpc.aio.AioRpcError, match="request_id"):
        await stub.Cancel(pb.CancelRequest())


async def test_explain(stub, core) -> None:
    decision = await stub.Explain(ask())
    assert (decision.tier, decision.how, decision.reasons[0].name) == (pb.FLASH, "score", "length")
    assert (await stub.Explain(ask(model="chat:standard"))).how == "forced"
    assert core.requests == []


async def test_a_slow_reader_holds_the_core_back(stub, core) -> None:
    core.words = ("x" * 4000,) * 20_000
    call = stub.Generate(ask())
    await call.read()
    before = -1
    while core.given != before:
        before = core.given
        await asyncio.sleep(0.2)
    assert 0 < core.given < 15_000
    call.cancel()


async def test_a_fault_of_the_core_is_internal_without_its_inside(stub, core) -> None:
    core.crash_after = 1
    for call in (stub.Generate(ask()), stub.GenerateOnce(ask())):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            _ = [event async for event in call] if hasattr(call, "read") else await call
        assert caught.value.code() == grpc.StatusCode.INTERNAL
        assert "ZeroDivision" not in caught.value.details()


RAW = [
    (b"\x1a\x02\xff\xfe", "prompt is not UTF-8: byte 0xff at offset 0"),
    (b"\x12\x0b\x0a\x04user\x12\x03ab\xc3", "messages[0].content is not UTF-8: byte 0xc3 at offset 2"),
    (b"\x1a\x10abc", "prompt: says 16 bytes follow, and 3 do"),
    (b"\x08\xff", "field 1"),
    (b"\x00\x01", "field number 0"),
    (b"\x1f", "wire type 7"),
    (b"\x2a\x03\x32\x01\xff", "sampling.stop[0] is not UTF-8"),
]


@pytest.mark.parametrize(("data", "said"), RAW)
@pytest.mark.parametrize("method", ["Generate", "GenerateOnce", "Explain"])
async def test_bytes_that_are_no_message(channel, core, data, said, method) -> None:
    kind = channel.unary_stream if method == "Generate" else channel.unary_unary
    call = kind(f"/flash.v1.Inference/{method}")(data)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await (call.read() if method == "Generate" else call)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    if said != "field 1":
        assert said in caught.value.details()
    assert core.requests == []


async def test_a_message_that_is_too_large_is_refused(channel, core) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_unary("/flash.v1.Inference/GenerateOnce")(b"x" * (MAX_MESSAGE + 1))
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert core.requests == []


async def test_health_follows_ready(channel, core, until) -> None:
    health = health_pb2_grpc.HealthStub(channel)
    kinds = health_pb2.HealthCheckResponse
    watch = health.Watch(health_pb2.HealthCheckRequest(service="flash.v1.Inference"))
    assert (await watch.read()).status == kinds.SERVING
    for service in ("", "flash.v1.Inference"):
        assert (await health.Check(health_pb2.HealthCheckRequest(service=service))).status == kinds.SERVING
    core.is_ready = False
    assert (await watch.read()).status == kinds.NOT_SERVING
    assert (await health.Check(health_pb2.HealthCheckRequest())).status == kinds.NOT_SERVING
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await health.Check(health_pb2.HealthCheckRequest(service="nobody"))
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    watch.cancel()


async def test_reflection_lists_the_service(channel) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    call = stub.ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    names = {one.name for one in (await call.read()).list_services_response.service}
    assert {"flash.v1.Inference", "grpc.health.v1.Health"} <= names
    await call.done_writing()


async def test_a_stop_serves_what_runs_and_waits_for_no_watcher(fronts, core) -> None:
    core.pause = 0.1
    async with grpc.aio.insecure_channel(fronts.grpc) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        reflecting = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
        await reflecting.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        await reflecting.read()
        call = aiter(InferenceStub(channel).Generate(ask()))
        await anext(call)
        began = time.monotonic()
        stopping = asyncio.ensure_future(fronts.grpc_front.stop(30))
        assert "".join([event.delta.text async for event in call]) == TEXT
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        await stopping
        assert time.monotonic() - began < 15
        await fronts.grpc_front.stop(0)  # again changes nothing
