"""Answers in OpenAI's shape: one JSON body, or server-sent events.

A stream's chunks differ only in a few places, so their bytes are laid out once per request; for each delta only the
text is encoded.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import partial
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from flash_wire.v1 import inference_pb2 as pb

from flash_router.core import Refused, Why
from flash_router.openai_types import Ask
from flash_router.said import STATUSES, TIER_NAMES

DONE = b"data: [DONE]\n\n"
dumps = partial(json.dumps, separators=(",", ":"))
CANCELLED_STATUS = 499
"""Cancelled by another call. No standard status says so; client libraries do not retry this one."""
_FINISH = {pb.STOP: "stop", pb.LENGTH: "length"}


class Stream:
    """The bytes of one stream: first(), delta() for each, then last(), or error_event() where it breaks off."""

    def __init__(self, ask: Ask, started: pb.Started) -> None:
        self._ask = ask
        self._started = started
        head = _head(ask, started, "chat.completion.chunk" if ask.chat else "text_completion")
        self._before = f'data: {dumps(head)[:-1]},"choices":[{{"index":0,'
        usage = ',"usage":null' if ask.include_usage else ""
        self._after = f"}}]{usage}}}\n\n"
        self._plain = f',"logprobs":null,"finish_reason":null{self._after}'
        self._open, self._close = ('"delta":{"content":', "}") if ask.chat else ('"text":', "")
        self._offset = 0
        self._head = head

    def first(self) -> bytes:
        """The role, for a chat; nothing for a completion."""
        if not self._ask.chat:
            return b""
        return f'{self._before}"delta":{{"role":"assistant","content":""}}{self._plain}'.encode()

    def delta(self, delta: pb.Delta) -> bytes:
        """b"" while the text lags behind the tokens."""
        text = delta.text
        if not self._ask.logprobs:
            return f"{self._before}{self._open}{quoted(text)}{self._close}{self._plain}".encode() if text else b""
        logprobs = dumps(_logprobs(self._ask, delta.token_ids, delta.logprobs, self._offset))
        self._offset += len(text)
        return (
            f"{self._before}{self._open}{quoted(text)}{self._close}"
            f',"logprobs":{logprobs},"finish_reason":null{self._after}'
        ).encode()

    def last(self, done: pb.Done) -> bytes:
        """The finish reason, the usage where it was asked for, and the end mark. For STOP and LENGTH only."""
        body = '"delta":{}' if self._ask.chat else '"text":""'
        chunk = f'{self._before}{body},"logprobs":null,"finish_reason":"{_FINISH[done.finish]}"{self._after}'.encode()
        if self._ask.include_usage:
            whole = {**self._head, "choices": [], "usage": usage(self._started, done)}
            chunk += f"data: {dumps(whole)}\n\n".encode()
        return chunk + DONE


def error_event(refused: Refused, *, code: str = "") -> bytes:
    """In place of the rest of a stream. OpenAI's client raises it."""
    return f"data: {dumps(error_body(refused, code=code))}\n\n".encode()


def whole(ask: Ask, started: pb.Started, deltas: Sequence[pb.Delta], done: pb.Done) -> bytes:
    """The answer without streaming. For STOP and LENGTH only."""
    text = "".join(delta.text for delta in deltas)
    logprobs = None
    if ask.logprobs:
        ids = [token for delta in deltas for token in delta.token_ids]
        logprobs = _logprobs(ask, ids, [one for delta in deltas for one in delta.logprobs], 0)
    choice: dict[str, Any] = {"index": 0}
    if ask.chat:
        choice["message"] = {"role": "assistant", "content": text, "refusal": None}
    else:
        choice["text"] = text
    choice |= {"logprobs": logprobs, "finish_reason": _FINISH[done.finish]}
    head = _head(ask, started, "chat.completion" if ask.chat else "text_completion")
    return dumps({**head, "choices": [choice], "usage": usage(started, done)}).encode()


def usage(started: pb.Started, done: pb.Done) -> dict[str, Any]:
    """OpenAI's usage, and beside it what only this fleet knows."""
    counts, decision = done.usage, started.decision
    return {
        "prompt_tokens": counts.prompt_tokens,
        "completion_tokens": counts.completion_tokens,
        "total_tokens": counts.prompt_tokens + counts.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": counts.cached_tokens},
        "flashfleet": {
            "request_id": started.request_id,
            "tier": TIER_NAMES.get(started.tier, "auto"),
            "how": decision.how,
            "rule": decision.rule,
            "score": round(decision.score, 6),
            "threshold": round(decision.threshold, 6),
            "reasons": [{"name": reason.name, "weight": round(reason.weight, 4)} for reason in decision.reasons],
            "truncated": decision.truncated,
            "note": decision.note,
            "queue_ms": round(started.queue_ms, 3),
            "ttft_ms": round(done.ttft_ms, 3),
            "tpot_ms": round(done.tpot_ms, 3),
            "total_ms": round(done.total_ms, 3),
            "resumed": done.resumed,
            "stop": done.stop,
        },
    }


def unfinished(done: pb.Done) -> tuple[Refused, int, str] | None:
    """What a Done that is no whole answer becomes: the error, its HTTP status and its code. None for a whole one."""
    if done.finish in _FINISH:
        return None
    tokens = f"after {done.usage.completion_tokens} tokens"
    if done.finish == pb.CANCELLED:
        detail = done.detail or "another call asked for it"
        return Refused(Why.INVALID, f"the request was cancelled {tokens}: {detail}"), CANCELLED_STATUS, "cancelled"
    if done.finish == pb.DEADLINE:
        late = Refused(
            Why.DEADLINE, f"the deadline passed {tokens}: {done.detail or 'allow more time or ask for less'}"
        )
        return late, STATUSES[Why.DEADLINE].http, STATUSES[Why.DEADLINE].code
    failed = Refused(Why.INTERNAL, f"the answer broke off {tokens}: {done.detail or 'the worker failed'}")
    return failed, STATUSES[Why.INTERNAL].http, STATUSES[Why.INTERNAL].code


def error_body(refused: Refused, *, code: str = "") -> dict[str, Any]:
    """OpenAI's error object."""
    status = STATUSES[refused.why]
    param = refused.field or ("model" if refused.why is Why.NOT_FOUND else None)
    return {"error": {"message": refused.message, "type": status.type, "param": param, "code": code or status.code}}


def _head(ask: Ask, started: pb.Started, kind: str) -> dict[str, Any]:
    return {
        "id": f"{'chatcmpl' if ask.chat else 'cmpl'}-{started.request_id}",
        "object": kind,
        "created": int(time.time()),
        "model": started.model,
        "system_fingerprint": f"fp_{started.revision}" if started.revision else None,
    }


def _logprobs(ask: Ask, ids: Sequence[int], logprobs: Sequence[float], offset: int) -> dict[str, Any]:
    """Tokens are named by their ids: a token's own text is not text where characters span tokens."""
    names = [f"token_id:{token}" for token in ids]
    values = [_finite(value) for value in logprobs]
    if ask.chat:
        pairs = zip(names, values, strict=False)
        content: list[dict[str, Any]] = [
            {"token": name, "logprob": value, "bytes": None, "top_logprobs": []} for name, value in pairs
        ]
        return {"content": content, "refusal": None}
    return {"tokens": names, "token_logprobs": values, "top_logprobs": None, "text_offset": [offset] * len(names)}


def _finite(value: float) -> float:
    """JSON has no infinities; OpenAI writes -9999 for what is all but impossible."""
    return value if value > -9999.0 else -9999.0
