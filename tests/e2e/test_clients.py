"""The clients that people have, against a running fleet with a real model: openai, grpcio, the command line."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import openai
import pytest
from flash_wire.v1 import inference_pb2 as pb
from support.running import SMOLLM2, Running, collect, deployment, greedy, up

pytestmark = pytest.mark.slow
CAPITAL = "What is the capital of France?"
EXTRA = "  routing: {rules: [{name: proof, when: {contains: [prove]}, to: standard}]}\n"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    file = tmp_path_factory.mktemp("fleet") / "chat.yaml"
    file.write_text(deployment(source=SMOLLM2, extra=EXTRA))
    with up(file) as running:
        yield running


@pytest.fixture
def stub(fleet: Running) -> Iterator[object]:
    with grpc.insecure_channel(fleet.grpc) as channel:
        yield fleet.stub(channel)


@pytest.mark.parametrize("tier", [pb.FLASH, pb.STANDARD])
def test_both_tiers_know_the_capital_of_france(stub, tier: pb.Tier) -> None:
    request = pb.GenerateRequest(
        messages=[pb.Message(role="user", content=CAPITAL)],
        tier=tier,
        sampling=pb.Sampling(max_tokens=24, temperature=0),
    )
    got = collect(stub.Generate(request, timeout=60))
    assert "Paris" in got.text
    assert got.started.tier == tier
    assert got.done.usage.completion_tokens == len(got.ids)
    assert got.done.ttft_ms > 0


def test_easy_goes_to_flash_and_hard_to_standard_with_the_reason(stub) -> None:
    easy = collect(stub.Generate(greedy(CAPITAL, tokens=4), timeout=60)).started
    hard = collect(stub.Generate(greedy("Prove that 2 is even.", tokens=4), timeout=60)).started
    assert (easy.tier, easy.decision.how) == (pb.FLASH, "score")
    assert easy.decision.score < easy.decision.threshold
    assert (hard.tier, hard.decision.how, hard.decision.rule) == (pb.STANDARD, "rule", "proof")


def test_generate_once_equals_the_stream(stub) -> None:
    request = greedy(CAPITAL, tokens=12, tier=pb.FLASH)
    once, streamed = stub.GenerateOnce(request, timeout=60), collect(stub.Generate(request, timeout=60))
    assert (list(once.token_ids), once.text) == (streamed.ids, streamed.text)


@pytest.mark.parametrize("tier", [pb.FLASH, pb.STANDARD])
def test_greedy_text_is_the_same_alone_and_among_fifteen_others(stub, tier: pb.Tier) -> None:
    alone = collect(stub.Generate(greedy(CAPITAL, tokens=64, tier=tier), timeout=120))
    others = [f"Write {n} words about the sea, and then about {n + 1} ships." for n in range(15)]
    with ThreadPoolExecutor(16) as pool:
        asked = [
            pool.submit(lambda text=text: collect(stub.Generate(greedy(text, tokens=64, tier=tier), timeout=300)))
            for text in [*others[:8], CAPITAL, *others[8:]]
        ]
        among = asked[8].result()
        for other in asked:
            other.result()
    assert among.ids == alone.ids
    assert among.text == alone.text


def test_stop_strings_are_never_part_of_the_text(stub) -> None:
    whole = collect(stub.Generate(greedy("Count from one to ten.", tokens=40, tier=pb.FLASH), timeout=60)).text
    middle = whole[len(whole) // 2 : len(whole) // 2 + 4]
    request = greedy("Count from one to ten.", tokens=40, tier=pb.FLASH)
    request.sampling.stop.append(middle)
    got = collect(stub.Generate(request, timeout=60))
    assert got.text == whole[: whole.index(middle)]
    assert (got.done.finish, got.done.stop) == (pb.STOP, middle)


def test_seeded_sampling_repeats_and_seeds_differ(stub) -> None:
    def drawn(seed: int) -> list[int]:
        sampling = pb.Sampling(max_tokens=16, temperature=1.0, seed=seed, ignore_eos=True)
        request = pb.GenerateRequest(prompt="Once upon a time", tier=pb.FLASH, sampling=sampling)
        return collect(stub.Generate(request, timeout=60)).ids

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


def test_openai_sync_and_streaming(fleet: Running) -> None:
    client = openai.OpenAI(base_url=f"http://{fleet.http}/v1", api_key="unused")
    assert {"chat", "chat:flash", "chat:standard"} <= {model.id for model in client.models.list()}
    messages = [{"role": "user", "content": CAPITAL}]
    answer = client.chat.completions.create(model="chat", messages=messages, max_tokens=24, temperature=0)
    assert "Paris" in answer.choices[0].message.content
    stream = client.chat.completions.create(
        model="chat:standard", messages=messages, max_tokens=24, temperature=0, stream=True
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert "Paris" in text
    raw = client.chat.completions.with_raw_response.create(model="chat", messages=messages, max_tokens=2)
    assert raw.headers["x-flashfleet-tier"] == "flash"
    done = client.completions.create(model="chat:flash", prompt="The capital of France is", max_tokens=3, temperature=0)
    assert "Paris" in done.choices[0].text


def test_openai_async(fleet: Running) -> None:
    async def ask() -> str:
        async with openai.AsyncOpenAI(base_url=f"http://{fleet.http}/v1", api_key="unused") as client:
            stream = await client.chat.completions.create(
                model="chat", messages=[{"role": "user", "content": CAPITAL}], max_tokens=24, temperature=0, stream=True
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])

    assert "Paris" in asyncio.run(ask())


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"model": "chta"}, grpc.StatusCode.NOT_FOUND, "chta"),
        ({"messages": []}, grpc.StatusCode.INVALID_ARGUMENT, "prompt"),
        ({"messages": [pb.Message(role="user", content="")]}, grpc.StatusCode.INVALID_ARGUMENT, "empty"),
        ({"sampling": pb.Sampling(max_tokens=-1)}, grpc.StatusCode.INVALID_ARGUMENT, "max_tokens"),
        ({"messages": [pb.Message(role="user", content="word " * 20000)]}, grpc.StatusCode.INVALID_ARGUMENT, "tokens"),
    ],
)
def test_bad_requests_are_told_what_is_wrong(stub, change: dict, code: grpc.StatusCode, said: str) -> None:
    fields = {"messages": [pb.Message(role="user", content=CAPITAL)], "tier": pb.FLASH} | change
    with pytest.raises(grpc.RpcError) as caught:
        list(stub.Generate(pb.GenerateRequest(**fields), timeout=30))
    assert caught.value.code() == code
    assert said in caught.value.details()


def test_broken_utf8_is_told(fleet: Running) -> None:
    with grpc.insecure_channel(fleet.grpc) as channel:
        raw = channel.unary_stream(
            "/flash.v1.Inference/Generate", request_serializer=None, response_deserializer=pb.GenerateEvent.FromString
        )
        with pytest.raises(grpc.RpcError) as caught:
            list(raw(b"\x1a\x02\xff\xfe", timeout=10))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "UTF-8" in caught.value.details()


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "flashfleet", *words], capture_output=True, text=True, timeout=120)


def test_ask_streams_and_says_who_answered(fleet: Running) -> None:
    got = command("ask", CAPITAL, "--address", fleet.grpc, "--max-tokens", "24", "--temperature", "0")
    assert got.returncode == 0, got.stderr
    assert "Paris" in got.stdout
    assert "flash: score" in got.stderr
    assert "TTFT" in got.stderr
    assert "TPOT" in got.stderr


def test_status_shows_tiers_queues_and_workers(fleet: Running) -> None:
    got = command("status", "--url", f"http://{fleet.http}")
    assert got.returncode == 0, got.stderr
    for word in ("flash", "standard", "chat-flash-0", "ready", "QUEUE"):
        assert word in got.stdout
    record = json.loads(command("status", "--url", f"http://{fleet.http}", "--json").stdout)
    assert {worker["name"] for worker in record["workers"]} == {"chat-flash-0", "chat-standard-0"}


def test_explain_agrees_with_what_is_done(fleet: Running) -> None:
    got = command("route", "explain", "Prove that 2 is even.", "--address", fleet.grpc)
    assert "standard: rule proof" in got.stdout


def test_the_page_and_the_metrics_are_served(fleet: Running) -> None:
    with urllib.request.urlopen(f"http://{fleet.http}/", timeout=10) as page:
        assert b"FlashFleet" in page.read()
    with urllib.request.urlopen(f"http://{fleet.http}/metrics", timeout=10) as metrics:
        assert b"flashfleet_" in metrics.read()


def test_a_taken_port_is_told_and_leaves_nothing(fleet: Running, tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(deployment())
    port = fleet.grpc.rpartition(":")[2]
    got = command("up", str(file), "--grpc-port", port, "--http-port", "0")
    assert got.returncode == 2
    assert f"{port} is already taken" in got.stderr + got.stdout


def test_a_typo_in_the_file_names_the_field(tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(deployment().replace("engine:", "engin:", 1))
    got = command("up", str(file))
    assert got.returncode == 2
    assert "spec.flash.engin: unknown field; did you mean engine?" in got.stderr


def test_a_live_edit_restarts_no_worker(tmp_path: Path) -> None:
    from support.running import wait_for

    file = tmp_path / "chat.yaml"
    file.write_text(deployment(standard=0))
    with up(file) as fleet:
        before = fleet.workers()
        with grpc.insecure_channel(fleet.grpc) as channel:
            request = pb.GenerateRequest(messages=[pb.Message(role="user", content="please zebra")])
            file.write_text(
                deployment(
                    standard=0, extra="  routing: {rules: [{name: zoo, when: {contains: [zebra]}, to: flash}]}\n"
                )
            )
            wait_for(lambda: fleet.stub(channel).Explain(request, timeout=5).rule == "zoo", 20, "the new rule")
        assert fleet.workers() == before
