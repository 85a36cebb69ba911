"""`helm test`: asks a fleet each question by gRPC; fails unless the right tier answered what was expected."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path

import grpc
from flash_wire.v1 import inference_pb2 as pb
from flash_wire.v1.inference_pb2_grpc import InferenceStub

NAMES = {pb.FLASH: "flash", pb.STANDARD: "standard"}


def ask(stub: InferenceStub, prompt: str, until: float) -> tuple[str, str, str]:
    """(tier, answer, why it was that tier). Tries again while the fleet cannot be reached. Raises grpc.RpcError."""
    request = pb.GenerateRequest(
        messages=[pb.Message(role="user", content=prompt)],
        sampling=pb.Sampling(max_tokens=48, temperature=0),
    )
    while True:
        try:
            answer = stub.GenerateOnce(request, timeout=max(1.0, until - time.monotonic()))
        except grpc.RpcError as error:
            # A name that the cluster's DNS learns a moment later, or a router that is being replaced.
            if error.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() + 2 > until:
                raise
            time.sleep(2)
            continue
        if answer.done.finish not in (pb.STOP, pb.LENGTH):
            detail = f"{pb.FinishReason.Name(answer.done.finish)} {answer.done.detail}"
            return NAMES[answer.started.tier], f"(cut: {detail})", answer.started.decision.how
        return NAMES[answer.started.tier], answer.text, answer.started.decision.how


def wrong(question: dict[str, str], tier: str, text: str) -> list[str]:
    """What is not as the question expects, in sentences."""
    found = []
    if tier != question["tier"]:
        found.append(f"the {tier} tier answered, expected {question['tier']}")
    if not re.search(question["pattern"], text, re.IGNORECASE):
        found.append(f"the answer does not contain {question['pattern']!r}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True, help="host:port of the fleet's gRPC front")
    parser.add_argument("--questions", type=Path, required=True, help="JSON: [{prompt, tier, pattern}, ...]")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for each answer")
    given = parser.parse_args()
    failed = False
    with grpc.insecure_channel(given.address) as channel:
        stub = InferenceStub(channel)
        for question in json.loads(given.questions.read_text(encoding="utf-8")):
            print(f"ask {given.address}: {question['prompt']}", flush=True)
            try:
                tier, text, how = ask(stub, question["prompt"], time.monotonic() + given.timeout)
            except grpc.RpcError as error:
                print(f"  FAILED: {error.code().name}: {error.details()}", flush=True)
                failed = True
                continue
            print(f"  {tier} ({how}): {text.strip()}", flush=True)
            problems = wrong(question, tier, text)
            for problem in problems:
                print(f"  FAILED: {problem}", flush=True)
            failed = failed or bool(problems)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
