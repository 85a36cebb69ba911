"""What the command line tells a person: status tables, reasons, and each mistake in its own sentence."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from flash_wire.broker.types import Depth, Pool
from flash_wire.fleet import Fleet, PoolDepth, RouterRecord, WorkerRecord
from flash_wire.v1 import inference_pb2 as pb
from flashfleet import client, main, status

WORKER = WorkerRecord("i1", "chat-flash-0", "flash", "ready", "abc", slots=32, slots_free=30, kv_tokens=1000,
                      kv_tokens_free=900, last_step_ms=1500)  # fmt: skip
FLEET = Fleet(
    workers=[WORKER, dataclasses.replace(WORKER, incarnation="i2", name="chat-standard-0", tier="standard",
                                         state="loading", detail="layer 3 of 30")],
    routers=[RouterRecord("r1", "ready", "127.0.0.1:9001", "127.0.0.1:9000", "127.0.0.1:8000", held={"standard": 2},
                          share=0.25)],
    desired={"flash": 1, "standard": 1},
    pools=[PoolDepth(Pool("default/chat", "flash", "abc"),
                     {"high": Depth(3, 300, 2500), "low": Depth(1, 50, 9000)}, 7)],
    time_ms=1,
)  # fmt: skip


def test_status_has_a_row_for_each_tier_worker_and_router() -> None:
    lines = [line.split() for line in status.render(dataclasses.asdict(FLEET)).splitlines() if line]
    flash = ["flash", "1", "1", "7", "3", "(300", "tokens)", "1", "(50", "tokens)", "9.0", "s", "0"]
    standard = ["standard", "1", "0", "0", "0", "(0", "tokens)", "0", "(0", "tokens)", "0.0", "s", "2"]
    assert flash in lines
    assert standard in lines
    assert ["chat-flash-0", "flash", "ready", "30/32", "900/1000", "abc", "1.5", "s", "ago"] in lines
    assert any(line[:6] == ["chat-standard-0", "standard", "loading:", "layer", "3", "of"] for line in lines)
    assert ["r1", "ready", "127.0.0.1:9000", "127.0.0.1:8000", "25%"] in lines


def test_an_empty_fleet_is_said_in_words() -> None:
    empty = Fleet([], [], {}, [], 0)
    text = status.render(dataclasses.asdict(empty) | {"error": "the broker does not answer (TimeoutError)", "age_s": 3})
    assert "no worker is alive" in text
    assert "no router is alive" in text
    assert "the broker does not answer (TimeoutError); this reading is 3 s old" in text


@pytest.fixture
def not_a_router() -> Iterator[str]:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>")

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("url", "said"),
    [("ftp://x", "starts with http://"), ("http://127.0.0.1:1", "nothing answers at http://127.0.0.1:1")],
)
def test_an_address_without_a_router_is_told(url: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["status", "--url", url]) == 1
    assert said in capsys.readouterr().err


def test_something_else_at_the_address_is_told(not_a_router: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["status", "--url", not_a_router]) == 1
    assert "is not a router's" in capsys.readouterr().err


def test_ask_without_a_fleet_says_how_to_start_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["ask", "hello", "--address", "127.0.0.1:1", "--timeout", "5"]) == 1
    assert "flashfleet up FILE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (pb.Decision(tier=pb.FLASH, how="score", score=0.1, threshold=0.5,
                     reasons=[pb.Reason(name="short_prompt", weight=-0.6)]),
         "flash: score 0.10 < 0.50 (short_prompt -0.60)"),
        (pb.Decision(tier=pb.STANDARD, how="score", score=0.5, threshold=0.5, truncated=True),
         "standard: score 0.50 >= 0.50; prompt read in part"),
        (pb.Decision(tier=pb.STANDARD, how="rule", rule="proof"), "standard: rule proof"),
        (pb.Decision(tier=pb.STANDARD, how="rule", rule="rule 1"), "standard: rule 1"),
        (pb.Decision(tier=pb.FLASH, how="fallback", note="standard has no worker"),
         "flash: fallback; standard has no worker"),
    ],
)  # fmt: skip
def test_the_reason_for_a_tier_fits_a_line(decision: pb.Decision, said: str) -> None:
    assert client.why(decision) == said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["up"], "file"),
        (["up", "x.yaml", "--grpc-port", "70000"], "70000 is not a port from 0 to 65535"),
        (["up", "x.yaml", "--grpc-port", "abc"], "abc is not a port from 0 to 65535"),
        (["ask", "hi", "--tier", "flsh"], "invalid choice: 'flsh'"),
        (["ask", "hi", "--max-tokens", "99999999999"], "99999999999 is not a number from 1 to 2147483647"),
        (["ask", "hi", "--seed", "-1"], "-1 is not a number from 0 to"),
    ],
)
def test_a_mistyped_command_is_told(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main.main(words)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_explain_says_whose_decision_it_is(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    from support.running import deployment

    file = tmp_path / "chat.yaml"
    file.write_text(deployment(extra="  routing: {rules: [{name: zoo, when: {contains: [zebra]}, to: standard}]}\n"))
    assert main.main(["route", "explain", "a zebra", "--file", str(file)]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("standard: rule zoo")
    assert "no fleet asked" in told.err


def test_a_dry_run_prints_the_plan_and_starts_nothing(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    from support.running import deployment

    file = tmp_path / "chat.yaml"
    file.write_text(deployment())
    assert main.main(["up", str(file), "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "chat-flash: start 1" in told
    assert '"weights": "int8"' in told
