"""Talking to a running fleet: one gRPC call, printed as it streams."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import grpc
from flash_wire.v1 import inference_pb2 as pb
from flash_wire.v1 import inference_pb2_grpc

TIER_NAMES = {pb.FLASH: "flash", pb.STANDARD: "standard", pb.AUTO: "auto"}


class AskFailed(Exception):
    """The fleet refused or broke off. The message is for a person."""


class NobodyThere(AskFailed):
    """Nothing listens at the address."""


@dataclass(frozen=True, slots=True)
class Answer:
    started: pb.Started
    text: str
    done: pb.Done


def ask(address: str, request: pb.GenerateRequest, *, timeout: float, show: bool = True) -> Answer:
    """Send `request` to host:port `address`; with `show`, text goes to standard output as it comes."""
    with grpc.insecure_channel(address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        started, text, done, tokens = pb.Started(), [], None, 0
        try:
            for event in _events(stub, request, timeout):
                kind = event.WhichOneof("event")
                if kind == "started":
                    started = event.started
                elif kind == "delta":
                    text.append(event.delta.text)
                    tokens += len(event.delta.token_ids)
                    if show:
                        sys.stdout.write(event.delta.text)
                        sys.stdout.flush()
                elif kind == "done":
                    done = event.done
        except grpc.RpcError as error:
            failure = _failure(error, address)
            if started.request_id:
                raise AskFailed(f"{failure} (after {tokens} tokens from {why(started.decision)})") from None
            raise failure from None
    if done is None:
        raise AskFailed("the stream ended without saying how")
    return Answer(started, "".join(text), done)


def _events(
    stub: inference_pb2_grpc.InferenceStub, request: pb.GenerateRequest, timeout: float
) -> Iterator[pb.GenerateEvent]:
    yield from stub.Generate(request, timeout=timeout)


def explain(address: str, request: pb.GenerateRequest) -> pb.Decision:
    with grpc.insecure_channel(address) as channel:
        try:
            return inference_pb2_grpc.InferenceStub(channel).Explain(request, timeout=10)
        except grpc.RpcError as error:
            raise _failure(error, address) from None


def _failure(error: grpc.RpcError, address: str) -> AskFailed:
    code, details = error.code(), error.details()
    if code == grpc.StatusCode.UNAVAILABLE and "connect" in (details or "").lower():
        return NobodyThere(
            f"nothing answers at {address}: start a fleet with `flashfleet up FILE`, or name it with --address"
        )
    return AskFailed(f"{code.name}: {details}")


def why(decision: pb.Decision) -> str:
    """One line: which tier and why."""
    tier = TIER_NAMES[decision.tier]
    if decision.how == "rule":
        reason = decision.rule if decision.rule.startswith("rule ") else f"rule {decision.rule}"
    elif decision.how == "score":
        sign = ">=" if decision.score >= decision.threshold else "<"
        top = ", ".join(f"{r.name} {r.weight:+.2f}" for r in decision.reasons[:2])
        reason = f"score {decision.score:.2f} {sign} {decision.threshold:.2f}" + (f" ({top})" if top else "")
    else:
        reason = decision.how
    extra = [text for text in (decision.note, "prompt read in part" if decision.truncated else "") if text]
    return f"{tier}: {reason}" + "".join(f"; {text}" for text in extra)


def timings(answer: Answer) -> str:
    done = answer.done
    parts = [f"{done.usage.completion_tokens} tokens", f"TTFT {done.ttft_ms:.0f} ms", f"TPOT {done.tpot_ms:.0f} ms"]
    if done.resumed:
        parts.append(f"resumed {done.resumed}x")
    return " · ".join(parts)
