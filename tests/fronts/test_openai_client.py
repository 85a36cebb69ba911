"""The official client, in its three ways."""

from __future__ import annotations

import asyncio
import json
import time

import httpx
import openai
import pytest
from flash_router.core import Refused, Why
from flash_wire.v1 import inference_pb2 as pb

ASK = [{"role": "user", "content": "What is the capital of France?"}]
TEXT = "The capital of France is Paris."


@pytest.fixture
def client(threaded):
    with openai.OpenAI(base_url=f"{threaded.http}/v1", api_key="unused", max_retries=0, timeout=20) as made:
        yield made


def test_chat(client, core) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="chat",
        messages=[{"role": "developer", "content": "Be short."}, *ASK],
        temperature=0,
        top_p=0.5,
        max_completion_tokens=50,
        seed=7,
        stop=["\n\n"],
        logit_bias={"17": -100},
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        user="someone",
        metadata={"run": "1"},
        extra_body={"priority": "low", "top_k": 5, "request_id": "r-1"},
        extra_headers={"x-flashfleet-tenant": "team-a"},
    )
    answer = raw.parse()
    assert answer.choices[0].message.content == TEXT
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.object, answer.model, answer.id) == ("chat.completion", "chat", "chatcmpl-r-1")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (11, 7, 18)
    assert answer.usage.prompt_tokens_details.cached_tokens == 4
    assert answer.usage.model_extra["flashfleet"]["tier"] == "flash"
    assert {name: raw.headers[f"x-flashfleet-{name}"] for name in ("tier", "how", "score", "rule", "request-id")} == {
        "tier": "flash", "how": "score", "score": "0.1200", "rule": "", "request-id": "r-1",
    }  # fmt: skip
    expected = pb.GenerateRequest(
        model="chat",
        messages=[pb.Message(role="system", content="Be short."), pb.Message(**ASK[0])],
        priority=pb.LOW,
        request_id="r-1",
        tenant="team-a",
        sampling=pb.Sampling(
            temperature=0, top_p=0.5, max_tokens=50, seed=7, stop=["\n\n"], logit_bias={17: -100}, presence_penalty=0.5,
            frequency_penalty=-0.5, top_k=5,
        ),
    )  # fmt: skip
    assert core.requests == [expected]


def test_chat_streams(client) -> None:
    with client.chat.completions.create(
        model="chat:standard", messages=ASK, stream=True, stream_options={"include_usage": True}
    ) as stream:
        chunks = list(stream)
        assert stream.response.headers["x-flashfleet-tier"] == "standard"
        assert stream.response.headers["x-flashfleet-how"] == "forced"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == TEXT
    assert [c.choices[0].finish_reason for c in chunks if c.choices] == [None] * 8 + ["stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 7
    assert chunks[-1].usage.model_extra["flashfleet"]["how"] == "forced"
    assert all(c.usage is None for c in chunks[:-1])
    assert len({c.id for c in chunks}) == 1


def test_length_is_the_finish_reason_when_cut(client) -> None:
    answer = client.chat.completions.create(model="chat", messages=ASK, max_tokens=2)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("The capital", "length")


def test_completions(client, core) -> None:
    answer = client.completions.create(model="chat:flash", prompt=["The"], max_tokens=3, logprobs=0)
    assert (answer.choices[0].text, answer.object) == ("The capital of", "text_completion")
    assert answer.choices[0].logprobs.tokens == ["token_id:100", "token_id:101", "token_id:102"]
    assert answer.choices[0].logprobs.token_logprobs == [-0.5] * 3
    client.completions.create(model="chat:flash", prompt=[1, 2, 3])
    assert list(core.requests[1].prompt_ids.ids) == [1, 2, 3]
    assert core.requests[1].sampling.max_tokens == 16
    stream = client.completions.create(model="chat", prompt="The", stream=True, max_tokens=4, logprobs=0)
    assert "".join(c.choices[0].text for c in stream) == "The capital of France"


def test_chat_logprobs(client) -> None:
    answer = client.chat.completions.create(model="chat", messages=ASK, logprobs=True, max_tokens=2)
    assert [(one.token, one.logprob) for one in answer.choices[0].logprobs.content] == [
        ("token_id:100", -0.5),
        ("token_id:101", -0.5),
    ]
    stream = client.chat.completions.create(model="chat", messages=ASK, logprobs=True, max_tokens=2, stream=True)
    seen = [one for chunk in stream if chunk.choices[0].logprobs for one in chunk.choices[0].logprobs.content]
    assert [one.token for one in seen] == ["token_id:100", "token_id:101"]


def test_models(client) -> None:
    assert [model.id for model in client.models.list()] == ["chat", "chat:flash", "chat:standard"]
    assert client.models.retrieve("chat:flash").owned_by == "flashfleet"
    with pytest.raises(openai.NotFoundError, match="there are: chat, chat:flash"):
        client.models.retrieve("gpt-4")


@pytest.mark.parametrize(
    ("refused", "raised", "code"),
    [
        (Refused(Why.INVALID, "prompt is too long", field="prompt"), openai.BadRequestError, "invalid_value"),
        (Refused(Why.NOT_FOUND, "no model"), openai.NotFoundError, "model_not_found"),
        (Refused(Why.CONFLICT, "the id is another's"), openai.ConflictError, "request_id_in_use"),
        (Refused(Why.BUSY, "full", retry_after=2.1), openai.RateLimitError, "rate_limit_exceeded"),
        (Refused(Why.UNAVAILABLE, "none", retry_after=0.2), openai.InternalServerError, "unavailable"),
        (Refused(Why.DEADLINE, "late"), openai.InternalServerError, "deadline_exceeded"),
        (Refused(Why.INTERNAL, "poison"), openai.InternalServerError, "internal_error"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_refusals_are_the_clients_own_errors(client, core, refused, raised, code, stream) -> None:
    core.refuse.append(refused)
    with pytest.raises(raised, match=refused.message) as caught:
        client.chat.completions.create(model="chat", messages=ASK, stream=stream)
    assert caught.value.code == code
    headers = caught.value.response.headers
    if refused.why in (Why.BUSY, Why.UNAVAILABLE):
        assert headers["retry-after"] == ("3" if refused.why is Why.BUSY else "1")
    else:
        assert "retry-after" not in headers
        assert headers["x-should-retry"] == "false"


def test_the_client_comes_back_when_told(threaded, core) -> None:
    core.refuse.append(Refused(Why.BUSY, "full", retry_after=0.01))
    with openai.OpenAI(base_url=f"{threaded.http}/v1", api_key="unused", max_retries=1) as client:
        assert client.chat.completions.create(model="chat", messages=ASK).choices[0].message.content == TEXT
    assert len(core.requests) == 2


@pytest.mark.parametrize(
    ("end", "status", "code", "said"),
    [
        (pb.Done(finish=pb.ERROR, detail="worker lost"), 500, "internal_error", "worker lost"),
        (pb.Done(finish=pb.DEADLINE), 504, "deadline_exceeded", "deadline passed after 0 tokens"),
        (pb.Done(finish=pb.CANCELLED), 499, "cancelled", "cancelled"),
    ],
)
def test_a_late_failure_is_an_error_and_not_a_short_answer(client, core, end, status, code, said) -> None:
    core.end = end
    with pytest.raises(openai.APIStatusError, match=said) as caught:
        client.chat.completions.create(model="chat", messages=ASK)
    assert (caught.value.status_code, caught.value.code) == (status, code)
    seen: list[str] = []
    chunks = client.chat.completions.create(model="chat", messages=ASK, stream=True)
    with pytest.raises(openai.APIError, match=said) as broken:
        seen.extend(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert "".join(seen) == TEXT
    assert broken.value.code == code


@pytest.mark.parametrize("stream", [False, True])
def test_a_fault_of_the_core_is_told_without_its_inside(client, core, stream) -> None:
    core.crash_after = 2
    with pytest.raises(openai.APIError, match="its log has the cause") as caught:
        list(client.chat.completions.create(model="chat", messages=ASK, stream=stream))
    assert "ZeroDivision" not in str(caught.value.body)


async def test_async_client_streams(fronts) -> None:
    async with openai.AsyncOpenAI(base_url=f"{fronts.http}/v1", api_key="unused", timeout=20) as client:
        answer = await client.chat.completions.create(model="chat", messages=ASK)
        assert answer.choices[0].message.content == TEXT
        stream = await client.chat.completions.create(model="chat", messages=ASK, stream=True)
        assert "".join([c.choices[0].delta.content or "" async for c in stream if c.choices]) == TEXT


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_cancels(fronts, core, until, stream) -> None:
    core.stall_after = 3
    async with httpx.AsyncClient(timeout=20) as client:
        body = {"model": "chat", "messages": ASK, "stream": stream, "request_id": "gone"}
        request = client.build_request("POST", f"{fronts.http}/v1/chat/completions", json=body)
        if stream:
            response = await client.send(request, stream=True)
            async for line in response.aiter_lines():
                if " of" in line:
                    break
            await response.aclose()
        else:
            with pytest.raises(httpx.ReadTimeout):
                await client.send(client.build_request(
                    "POST", f"{fronts.http}/v1/chat/completions", json=body, timeout=0.3))  # fmt: skip
    await until(lambda: core.closed == ["gone"])
    assert core.finished == []


async def test_a_client_that_leaves_the_queue_cancels(fronts, core, until) -> None:
    core.start_gate = asyncio.Event()
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.post(f"{fronts.http}/v1/chat/completions", json={"messages": ASK, "stream": True}, timeout=0.3)
    await until(lambda: core.closed == ["req-1"])


async def test_the_timeout_header_is_the_deadline(fronts, core) -> None:
    async with httpx.AsyncClient() as client:
        url = f"{fronts.http}/v1/chat/completions"
        got = await client.post(url, json={"messages": ASK}, headers={"x-flashfleet-timeout": "30s"})
        assert got.status_code == 200
        assert 25 < core.deadlines[0] - time.monotonic() < 30
        for wrong in ("30", "-1s", "0s", "25h", "soon"):
            got = await client.post(url, json={"messages": ASK}, headers={"x-flashfleet-timeout": wrong})
            assert got.status_code == 400, wrong
            assert "x-flashfleet-timeout" in got.json()["error"]["message"]
    assert len(core.requests) == 1


async def never_reads(fronts) -> asyncio.StreamWriter:
    """A client that sends a request, reads the head of the answer and then nothing."""
    body = json.dumps({"messages": ASK, "stream": True}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", fronts.http_server.port, limit=2**16)
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: "
    writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
    await reader.readuntil(b"\r\n\r\n")
    return writer


async def test_a_slow_reader_holds_the_core_back(fronts, core) -> None:
    core.words = ("x" * 4000,) * 20_000
    writer = await never_reads(fronts)
    before = -1
    while core.given != before:  # until the buffers are full and nothing moves
        before = core.given
        await asyncio.sleep(0.2)
    assert 0 < core.given < 15_000
    writer.close()


async def test_a_client_that_stopped_reading_counts_as_gone(fronts, core, until, monkeypatch) -> None:
    monkeypatch.setattr("flash_router.http_answer.STUCK_AFTER", 0.3)
    monkeypatch.setattr("flash_router.http_answer._LOOK_EVERY", 0.1)
    core.words = ("x" * 4000,) * 20_000
    writer = await never_reads(fronts)
    await until(lambda: core.closed == ["req-1"])
    writer.close()
