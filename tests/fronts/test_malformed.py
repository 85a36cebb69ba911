"""Random bodies and bytes: always a clear refusal of the client's side or an answer, never a fault of ours.

FLASHFLEET_FUZZ sets how many of each kind are tried.
"""

from __future__ import annotations

import json
import os
import random

import grpc
import httpx
from flash_router.openai_types import _CHAT, _CHAT_UNSUPPORTED, _COMPLETION, _COMPLETION_UNSUPPORTED
from flash_wire.v1 import inference_pb2 as pb

COUNT = int(os.environ.get("FLASHFLEET_FUZZ", "2000"))
ODD = [None, True, False, 0, 1, -1, 2, 0.5, -0.0, 1e308, -1e308, 2**31, 2**32, 2**63, 2**64, -(2**70), 10**400, "", " ",
       "x", "high", "flash", "chat", "\ud800", "\x00", "é" * 50, "user", [], {}, [[]], [None], [""], ["a"], [1], [[1]],
       {"type": "text"}, {"a": "b"}, {"1": 1}, {"-1": 1}, {"99999999999": 1}, {"include_usage": True}]  # fmt: skip


def odd(draw: random.Random, depth: int = 0):
    kind = draw.random()
    if depth > 3 or kind < 0.6:
        return draw.choice(ODD)
    if kind < 0.8:
        return [odd(draw, depth + 1) for _ in range(draw.randrange(4))]
    keys = ["role", "content", "type", "text", "name", "tool_calls", "\ud800", "", "x" * 99]
    return {draw.choice(keys): odd(draw, depth + 1) for _ in range(draw.randrange(4))}


def message(draw: random.Random):
    fine = {
        "role": draw.choice(["user", "system", "assistant"]),
        "content": draw.choice(["hi", "x", [{"type": "text", "text": "y"}]]),
    }
    if draw.random() < 0.5:
        fine[draw.choice(["role", "content", "name", "extra"])] = odd(draw)
    return fine


def body(draw: random.Random, chat: bool) -> bytes:
    fields = [*_CHAT, *_CHAT_UNSUPPORTED] if chat else [*_COMPLETION, *_COMPLETION_UNSUPPORTED]
    made = {"messages": [message(draw)]} if chat else {"prompt": draw.choice(["x", "hi", [1], ["a"]])}
    for _ in range(draw.randrange(4)):
        made[draw.choice(fields) if draw.random() < 0.9 else f"f{draw.randrange(99)}"] = odd(draw)
    text = json.dumps(made).encode()
    if draw.random() < 0.3:  # cut, turn or put in a byte
        at = draw.randrange(len(text))
        text = draw.choice([text[:at], text[:at] + bytes([draw.randrange(256)]) + text[at + 1 :],
                            text[:at] + bytes([draw.randrange(256)]) + text[at:]])  # fmt: skip
    return text


async def test_random_json(fronts) -> None:
    draw = random.Random(20)
    statuses: dict[int, int] = {}
    async with httpx.AsyncClient(base_url=fronts.http, timeout=20) as client:
        for number in range(COUNT):
            chat = draw.random() < 0.7
            content = body(draw, chat)
            path = "/v1/chat/completions" if chat else "/v1/completions"
            got = await client.post(path, content=content, headers={"content-type": "application/json"})
            statuses[got.status_code] = statuses.get(got.status_code, 0) + 1
            assert got.status_code in (200, 400, 404), (number, content, got.text)
            if got.status_code != 200:
                error = got.json()["error"]
                assert 10 < len(error["message"]) < 2000, (number, content)
                assert error["type"] == "invalid_request_error"
            else:
                assert '"error"' not in got.text, (number, content, got.text)
    assert min(statuses.get(200, 0), statuses.get(400, 0)) > COUNT / 20, statuses


def wire(draw: random.Random) -> bytes:
    """A real message, then damaged; or bytes of no message at all."""
    if draw.random() < 0.2:
        return draw.randbytes(draw.randrange(1, 60))
    request = pb.GenerateRequest(model=draw.choice(["", "chat", "chat:flash", "chat", "no"]))
    for _ in range(draw.choice([1, 1, 1, 0, 2])):
        request.messages.add(role=draw.choice(["user"] * 6 + ["", "a b"]), content=draw.choice(["hi", "é", "x", ""]))
    if draw.random() < 0.1:
        request.prompt = draw.choice(["", "x"])
    if draw.random() < 0.1:
        request.prompt_ids.ids.extend([1, 2**32 - 1])
    sampling = request.sampling
    for name in ("temperature", "top_p", "presence_penalty", "frequency_penalty", "repetition_penalty"):
        if draw.random() < 0.08:
            setattr(sampling, name, draw.choice([0, 1, -1, 0.5, float("nan"), float("inf"), 1e38]))
    for name in ("max_tokens", "top_k"):
        if draw.random() < 0.08:
            setattr(sampling, name, draw.choice([0, 1, -1, 2**31 - 1, -(2**31)]))
    if draw.random() < 0.1:
        sampling.logit_bias[draw.choice([0, 2**32 - 1])] = draw.choice([0, 100, 101, float("nan")])
    if draw.random() < 0.1:
        sampling.stop.append(draw.choice(["", "x"]))
    data = request.SerializeToString()
    if draw.random() < 0.5:
        for _ in range(draw.randrange(1, 4)):
            at = draw.randrange(len(data) + 1)
            data = draw.choice([data[:at], data[:at] + draw.randbytes(1) + data[at + 1 :],
                                data[:at] + draw.randbytes(2) + data[at:]])  # fmt: skip
    return data


async def test_random_bytes(fronts) -> None:
    draw = random.Random(21)
    fine = refused = 0
    allowed = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
    async with grpc.aio.insecure_channel(fronts.grpc) as channel:
        once = channel.unary_unary("/flash.v1.Inference/GenerateOnce")
        for number in range(COUNT):
            data = wire(draw)
            call = once(data, timeout=20)
            code, details = await call.code(), await call.details()
            if code is grpc.StatusCode.OK:
                fine += 1
                continue
            refused += 1
            assert code in allowed, (number, data, code, details)
            assert 10 < len(details) < 2000, (number, data)
    assert min(fine, refused) > COUNT / 40, (fine, refused)
