"""Bodies that OpenAI's API knows, and the ones it does not: each is read, refused by name, or shown to be broken."""

from __future__ import annotations

import json

import httpx
import pytest
from flash_router.core import Refused, Why
from flash_router.http_front import MAX_BODY, build_app
from flash_router.metrics import Metrics
from flash_wire.v1 import inference_pb2 as pb

USER = {"role": "user", "content": "hi"}
JSON = {"content-type": "application/json"}


@pytest.fixture
async def client(core):
    """Calls the app without a server between: what is tested here is what is read and written."""
    transport = httpx.ASGITransport(build_app(core, Metrics(core)))
    async with httpx.AsyncClient(transport=transport, base_url="http://router") as made:
        yield made


@pytest.fixture
def post(client):
    async def send(path: str, body, headers=JSON) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await client.post(f"/v1/{path}", content=content, headers=headers)

    return send


CHAT = [
    ({}, "messages", "must be given"),
    ({"messages": None}, "messages", "must be given"),
    ({"messages": []}, "messages", "at least one"),
    ({"messages": "hi"}, "messages", "a string: write a list"),
    ({"messages": ["hi"]}, "messages[0]", "write an object"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "is missing"),
    ({"messages": [{"content": "x"}]}, "messages[0].role", "is missing"),
    ({"messages": [{"role": "user", "content": ""}]}, "messages[0].content", "is empty"),
    ({"messages": [{"role": "", "content": "x"}]}, "messages[0].role", "is empty"),
    ({"messages": [{"role": 1, "content": "x"}]}, "messages[0].role", "a number: write a string"),
    ({"messages": [{**USER, "contnt": "x"}]}, "messages[0].contnt", "unknown field"),
    ({"messages": [{**USER, "tool_calls": [{}]}]}, "messages[0].tool_calls", "call no tools"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "messages[0].content[0].type",
        "read text only",
    ),
    ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages[0].content", "surrogate"),
    ({"temperatur": 1}, "temperatur", "did you mean temperature?"),
    ({"qqqq": 1}, "qqqq", "known here: messages"),
    ({"tools": [{"type": "function"}]}, "tools", "call no tools"),
    ({"tool_choice": "auto"}, "tool_choice", "not supported"),
    ({"functions": [{}]}, "functions", "not supported"),
    ({"response_format": {"type": "json_object"}}, "response_format", '{"type": "text"}'),
    ({"audio": {}}, "audio", "text only"),
    ({"modalities": ["audio"]}, "modalities", "text only"),
    ({"n": 2}, "n", "one answer"),
    ({"n": True}, "n", "one answer"),
    ({"top_logprobs": 3}, "top_logprobs", "not supported"),
    ({"reasoning_effort": "high"}, "reasoning_effort", "choose the tier"),
    ({"max_tokens": -1}, "max_tokens", "is -1"),
    ({"max_tokens": 1.5}, "max_tokens", "whole number"),
    ({"max_tokens": True}, "max_tokens", "whole number"),
    ({"max_tokens": 10**30}, "max_tokens", "out of range"),
    ({"max_completion_tokens": 0}, "max_completion_tokens", "is 0"),
    ({"max_tokens": 5, "max_completion_tokens": 6}, "max_completion_tokens", "give one of them"),
    ({"temperature": "hot"}, "temperature", "write a number"),
    ({"temperature": -0.5}, "temperature", "is -0.5"),
    ({"temperature": 1e300}, "temperature", "too large"),
    ({"top_p": 0}, "top_p", "above 0"),
    ({"presence_penalty": 3}, "presence_penalty", "from -2 to 2"),
    ({"logit_bias": {"a": 1}}, "logit_bias[a]", "no token id"),
    ({"logit_bias": {"5": 1000}}, "logit_bias[5]", "from -100 to 100"),
    ({"logit_bias": [1]}, "logit_bias", "write an object"),
    ({"stop": 5}, "stop", "a list of strings"),
    ({"stop": [""]}, "stop[0]", "is empty"),
    ({"stop": ["x"] * 17}, "stop", "at most 16"),
    ({"stream": "yes"}, "stream", "true or false"),
    ({"stream_options": {"usage": True}}, "stream_options.usage", "unknown field"),
    ({"logprobs": 5}, "logprobs", "true or false"),
    ({"priority": "urgent"}, "priority", "high or low"),
    ({"tier": "fast"}, "tier", "flash or standard"),
    ({"model": "chat:flash", "tier": "standard"}, "tier", "name one of them"),
    ({"model": 7}, "model", "write a string"),
    ({"metadata": {"a": 1}}, "metadata.a", "write a string"),
    ({"metadata": {"a": "x" * 600}}, "metadata.a", "too long"),
    ({"tenant": "a b"}, "tenant", "'a b'"),
    ({"seed": "x"}, "seed", "whole number"),
]


@pytest.mark.parametrize(("change", "param", "said"), CHAT)
async def test_chat_bodies_that_are_refused(post, core, change, param, said) -> None:
    body = change if change == {} else {"messages": [USER], "model": "chat"} | change
    got = await post("chat/completions", body)
    error = got.json()["error"]
    assert (got.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert said in error["message"]
    assert error["message"].startswith(param)
    assert core.requests == []


COMPLETION = [
    ({}, "prompt", "must be given"),
    ({"prompt": ""}, "prompt", "is empty"),
    ({"prompt": []}, "prompt", "is empty"),
    ({"prompt": ["a", "b"]}, "prompt", "one in a request"),
    ({"prompt": [1, 2]}, "prompt", "named tier"),
    ({"prompt": [1, "a"], "tier": "flash"}, "prompt[1]", "whole number"),
    ({"prompt": [-1], "tier": "flash"}, "prompt[0]", "out of range"),
    ({"prompt": {"a": 1}}, "prompt", "a list of token ids"),
    ({"prompt": "x", "echo": True}, "echo", "not supported"),
    ({"prompt": "x", "suffix": "y"}, "suffix", "not supported"),
    ({"prompt": "x", "best_of": 2}, "best_of", "one answer"),
    ({"prompt": "x", "logprobs": 2}, "logprobs", "above 0"),
    ({"prompt": "x", "messages": []}, "messages", "unknown field"),
]


@pytest.mark.parametrize(("body", "param", "said"), COMPLETION)
async def test_completion_bodies_that_are_refused(post, core, body, param, said) -> None:
    got = await post("completions", body)
    error = got.json()["error"]
    assert (got.status_code, error["param"]) == (400, param)
    assert said in error["message"]
    assert core.requests == []


HARMLESS = {
    "n": 1, "tools": [], "tool_choice": "none", "response_format": {"type": "text"}, "top_logprobs": 0,
    "modalities": ["text"], "store": False, "service_tier": "auto", "stop": None, "max_tokens": None, "user": "u",
    "metadata": {}, "stream_options": None, "functions": None, "logit_bias": {},
}  # fmt: skip


async def test_what_asks_for_nothing_is_accepted(post, core) -> None:
    message = {"role": "assistant", "content": "a", "refusal": None, "annotations": [], "tool_calls": None}
    got = await post("chat/completions", {"messages": [USER, message, USER], **HARMLESS})
    assert got.status_code == 200, got.text
    assert core.requests[0].sampling == pb.Sampling()
    assert [one.content for one in core.requests[0].messages] == ["hi", "a", "hi"]


async def test_parts_of_text_are_joined(post, core) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert (await post("chat/completions", {"messages": [{"role": "user", "content": parts}]})).status_code == 200
    assert core.requests[0].messages[0].content == "one\ntwo"


BROKEN = [
    (b"", "is empty"),
    (b'{"messages": "\xff"}', "byte 0xff at offset 14"),
    (b'{"messages": [}', "line 1, column 15"),
    (b'{"a": NaN}', "NaN is no JSON value"),
    (b"[1]", "a list: send a JSON object"),
    (b'"x"', "a string: send a JSON object"),
    (b"[" * 100_000, "nested too deeply"),
    (b'{"a": ' * 100_000, "nested too deeply"),
    (b'{"max_tokens": ' + b"9" * 5000 + b"}", "not JSON"),
]


@pytest.mark.parametrize(("body", "said"), BROKEN)
async def test_bodies_that_are_no_json(post, core, body, said) -> None:
    got = await post("chat/completions", body)
    assert got.status_code == 400
    assert said in got.json()["error"]["message"]
    assert core.requests == []


async def test_other_kinds_of_content_are_refused(post, core) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        got = await post("chat/completions", {"messages": [USER]}, {"content-type": kind})
        assert got.status_code == 400
        assert "content-type: application/json" in got.json()["error"]["message"]
    assert core.requests == []


async def test_a_body_that_is_too_long_is_not_read(fronts, core) -> None:
    async with httpx.AsyncClient(base_url=fronts.http, timeout=20) as client:

        async def endless():
            for _ in range(MAX_BODY // 65536 + 2):
                yield b"x" * 65536

        for content in (b"x" * (MAX_BODY + 1), endless()):
            got = await client.post("/v1/chat/completions", content=content, headers=JSON)
            assert (got.status_code, got.json()["error"]["code"]) == (413, "request_too_large")
    assert core.requests == []


async def test_unknown_models_paths_and_methods(post, client) -> None:
    got = await post("chat/completions", {"messages": [USER], "model": "gpt-4"})
    error = got.json()["error"]
    assert (got.status_code, error["code"], error["param"]) == (404, "model_not_found", "model")
    got = await client.get("/v1/chat/completions")
    assert (got.status_code, got.headers["allow"]) == (405, "POST")
    assert "does not take GET" in got.json()["error"]["message"]
    got = await client.get("/v2/nothing")
    assert got.status_code == 404
    assert "/v1/chat/completions" in got.json()["error"]["message"]


async def test_the_header_and_the_field_agree(post, core) -> None:
    body = {"messages": [USER], "tenant": "a"}
    got = await post("chat/completions", body, {**JSON, "x-flashfleet-tenant": "b"})
    assert (got.status_code, got.json()["error"]["param"]) == (400, "tenant")
    got = await post("chat/completions", body, {**JSON, "x-flashfleet-tenant": "a", "x-flashfleet-request-id": "r"})
    assert got.status_code == 200
    assert (core.requests[0].tenant, core.requests[0].request_id) == ("a", "r")


async def test_the_bytes_of_a_stream(post, core, monkeypatch) -> None:
    monkeypatch.setattr("flash_router.openai_out.time.time", lambda: 1700000000.9)
    core.words = ('He said "no"\n', "\u2028\x01é𝄞")
    body = {"messages": [USER], "stream": True, "request_id": "r", "stream_options": {"include_usage": True}}
    got = await post("chat/completions", body)
    assert got.headers["content-type"] == "text/event-stream; charset=utf-8"
    head = (
        'data: {"id":"chatcmpl-r","object":"chat.completion.chunk","created":1700000000,"model":"chat",'
        '"system_fingerprint":"fp_r1","choices":[{"index":0,"delta":'
    )
    tail = ',"logprobs":null,"finish_reason":null}],"usage":null}\n\n'
    lines = got.text.split("\n\n")
    assert lines[0] + "\n\n" == head + '{"role":"assistant","content":""}' + tail
    assert lines[1] + "\n\n" == head + r'{"content":"He said \"no\"\n"}' + tail
    assert lines[2] + "\n\n" == head + r'{"content":"\u2028\u0001\u00e9\ud834\udd1e"}' + tail
    assert lines[3] == head + '{},"logprobs":null,"finish_reason":"stop"}],"usage":null}'
    last = json.loads(lines[4].removeprefix("data: "))
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] == 13
    assert last["usage"]["flashfleet"]["how"] == "score"
    assert lines[5:] == ["data: [DONE]", ""]


async def test_the_bytes_of_a_completion_stream(post, monkeypatch) -> None:
    monkeypatch.setattr("flash_router.openai_out.time.time", lambda: 1700000000.9)
    got = await post("completions", {"prompt": "x", "stream": True, "request_id": "r", "max_tokens": 1})
    head = (
        'data: {"id":"cmpl-r","object":"text_completion","created":1700000000,"model":"chat",'
        '"system_fingerprint":"fp_r1","choices":[{"index":0,"text":'
    )
    assert got.text == (
        head + '"The","logprobs":null,"finish_reason":null}]}\n\n'
        + head + '"","logprobs":null,"finish_reason":"length"}]}\n\n'
        + "data: [DONE]\n\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("path", "body", "theirs", "ours"),
    [
        ("chat/completions", {"messages": [USER], "max_tokens": 9}, "sampling.max_tokens", "max_tokens"),
        (
            "chat/completions",
            {"messages": [USER], "max_completion_tokens": 9},
            "sampling.max_tokens",
            "max_completion_tokens",
        ),
        ("chat/completions", {"messages": [USER]}, "messages", "messages"),
        ("chat/completions", {"messages": [USER], "logit_bias": {"7": 1}}, "sampling.logit_bias", "logit_bias"),
        ("completions", {"prompt": [1], "tier": "flash"}, "prompt_ids", "prompt"),
    ],
)
async def test_the_cores_refusals_name_the_clients_fields(core, post, path, body, theirs, ours) -> None:
    core.refuse.append(Refused(Why.INVALID, f"{theirs} is 9, which is too much", field=theirs))
    got = await post(path, body)
    assert got.status_code == 400
    error = got.json()["error"]
    assert (error["param"], error["message"]) == (ours, f"{ours} is 9, which is too much")
