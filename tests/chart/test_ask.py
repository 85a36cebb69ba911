"""The script of `helm test`, against a real gRPC front."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from pathlib import Path

import pytest
from flash_router.core import Refused, Why
from flash_wire.v1 import inference_pb2 as pb
from support.fake_core import FakeCore
from support.fronts import serving


async def run(
    chart: Path, folder: Path, address: str, *questions: dict[str, str], within: float = 30
) -> tuple[int, str]:
    path = folder / "questions.json"
    path.write_text(json.dumps(questions))
    arguments = [str(chart / "files" / "ask.py"), f"--address={address}", f"--questions={path}", f"--timeout={within}"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), 60)
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode or 0, output.decode()


EASY = {"prompt": "What is the capital of France?", "tier": "flash", "pattern": "paris"}
HARD = {"prompt": "Prove it.", "tier": "standard", "pattern": r"\w{4}"}


class TwoTiers(FakeCore):
    """What asks for a proof goes to standard."""

    def _decision(self, request: pb.GenerateRequest) -> pb.Decision:
        if "Prove" in request.messages[0].content:
            return pb.Decision(tier=pb.STANDARD, how="rule", rule="proof")
        return pb.Decision(tier=pb.FLASH, how="score")


def core(**fields: object) -> TwoTiers:
    return TwoTiers(words=("The", " capital", " is", " Paris"), **fields)  # type: ignore[arg-type]


async def test_an_easy_and_a_hard_question_that_are_answered_as_expected_pass(chart: Path, tmp_path: Path) -> None:
    async with serving(core()) as fronts:
        code, said = await run(chart, tmp_path, fronts.grpc, EASY, HARD)
    assert code == 0, said
    assert "flash (score): The capital is Paris" in said
    assert "standard (rule)" in said


@pytest.mark.parametrize(
    ("question", "says"),
    [
        (EASY | {"tier": "standard"}, "FAILED: the flash tier answered, expected standard"),
        (EASY | {"pattern": "london"}, "FAILED: the answer does not contain 'london'"),
    ],
)
async def test_the_wrong_tier_or_text_fails_and_says_so(
    chart: Path, tmp_path: Path, question: dict[str, str], says: str
) -> None:
    async with serving(core()) as fronts:
        code, said = await run(chart, tmp_path, fronts.grpc, HARD, question)
    assert code == 1
    assert says in said


async def test_an_answer_that_was_cut_fails(chart: Path, tmp_path: Path) -> None:
    async with serving(core(end=pb.Done(finish=pb.ERROR, detail="the engine fell over"))) as fronts:
        code, said = await run(chart, tmp_path, fronts.grpc, EASY)
    assert code == 1
    assert "the engine fell over" in said


async def test_a_refusal_fails_and_says_why(chart: Path, tmp_path: Path) -> None:
    async with serving(core(refuse=[Refused(Why.BUSY, "2000 requests wait")])) as fronts:
        code, said = await run(chart, tmp_path, fronts.grpc, EASY)
    assert code == 1
    assert "RESOURCE_EXHAUSTED: 2000 requests wait" in said


async def test_a_router_that_is_being_replaced_is_asked_again(chart: Path, tmp_path: Path) -> None:
    async with serving(core(refuse=[Refused(Why.UNAVAILABLE, "stopping", retry_after=0.1)])) as fronts:
        code, said = await run(chart, tmp_path, fronts.grpc, EASY)
    assert code == 0, said


async def test_nobody_there_fails_within_the_time(chart: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    code, said = await run(chart, tmp_path, address, EASY, within=1)
    assert code == 1
    assert "FAILED: " in said
