"""The router as a process: its ready line, live reload, taken ports, broken settings, an orderly stop."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import httpx
import pytest
from flash_router.main import main
from flash_wire.settings import RouterLive, RouterStatic, Routing, to_json
from flash_wire.v1 import inference_pb2 as pb
from flash_wire.v1.inference_pb2_grpc import InferenceStub
from support import fake_router

TESTS = Path(__file__).parents[1]
WITHIN = 60.0


class Process:
    """A child whose lines are read as they come."""

    def __init__(self, module: str, folder: Path, **environment: str) -> None:
        env = (
            os.environ
            | {"FLASHFLEET_BROKER_URL": "redis://:hush@127.0.0.1:1/0", "PYTHONPATH": str(TESTS)}
            | environment
        )
        self.child = subprocess.Popen(
            [sys.executable, "-m", module, "--settings", str(folder)],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.out: queue.Queue[str] = queue.Queue()
        self.err: list[str] = []
        threading.Thread(target=lambda: [self.out.put(line) for line in self.child.stdout], daemon=True).start()
        self._reading = threading.Thread(target=lambda: self.err.extend(self.child.stderr), daemon=True)
        self._reading.start()

    def ready(self) -> dict:
        end = time.monotonic() + WITHIN
        while time.monotonic() < end:
            with contextlib.suppress(queue.Empty):
                return json.loads(self.out.get(timeout=0.1))
            assert self.child.poll() is None, "".join(self.err)
        raise AssertionError("no ready line: " + "".join(self.err))

    def wait(self) -> int:
        code = self.child.wait(WITHIN)
        self._reading.join(10)
        return code

    @property
    def errors(self) -> str:
        return "".join(self.err)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    static = RouterStatic(fleet="default/chat", grpc_port=0, http_port=0, fleet_port=0, drain=20.0)
    write(tmp_path, "static.json", to_json(static))
    write(tmp_path, "live.json", to_json(RouterLive()))
    return tmp_path


def write(folder: Path, name: str, text: str) -> None:
    (folder / f".{name}").write_text(text)
    (folder / f".{name}").rename(folder / name)


@pytest.fixture
def run(folder: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(module: str = "support.fake_router", **environment: str) -> Process:
        started.append(Process(module, folder, **environment))
        return started[-1]

    yield start
    for process in started:
        process.child.kill()
        process.child.wait()


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def test_a_stop_serves_what_runs_on_both_fronts(run) -> None:
    process = run(FAKE_PAUSE="0.3")
    told = process.ready()
    assert told["ready"] is True
    assert not told["grpc"].endswith(":0")
    with grpc.insecure_channel(told["grpc"]) as channel, ThreadPoolExecutor(1) as pool:
        events = InferenceStub(channel).Generate(pb.GenerateRequest(prompt="x"), timeout=WITHIN)
        next(events)
        url = f"http://{told['http']}/v1/completions"
        with httpx.stream("POST", url, json={"prompt": "x", "stream": True}, timeout=WITHIN) as answer:
            rest = pool.submit(lambda: "".join(event.delta.text for event in events))
            lines = answer.iter_lines()
            assert "data:" in next(lines)
            process.child.send_signal(signal.SIGTERM)
            remaining = list(lines)
        assert remaining[-2:] == ["data: [DONE]", ""]
        assert rest.result() == "The capital of France is Paris."
    assert process.wait() == 0
    assert "hush" not in process.errors


def test_live_settings_are_taken_in_place_and_bad_ones_refused(run, folder) -> None:
    process = run()
    http = f"http://{process.ready()['http']}"

    def model() -> str:
        return httpx.get(f"{http}/v1/models", timeout=WITHIN).json()["data"][0]["id"]

    assert model() == "chat"
    write(folder, "live.json", to_json(RouterLive(routing=Routing(standard_share=0.5))))
    until(lambda: model() == "share-0.5", "the edit is taken")
    bad = ['{"routing": {"standardShar": 1}}', "{", to_json(RouterLive(routing=Routing(standard_share=0.99)))]
    said = ["did you mean standardShare?", "is not JSON", "takes no 0.99"]
    for text, sentence in zip(bad, said, strict=True):
        write(folder, "live.json", text)
        until(lambda sentence=sentence: sentence in process.errors, sentence)
        assert model() == "share-0.5"
    assert process.errors.count("is not JSON") == 1
    write(folder, "live.json", to_json(RouterLive(routing=Routing(standard_share=0.25))))
    until(lambda: model() == "share-0.25", "a good edit after bad ones is taken")


@pytest.fixture
def refused(folder, monkeypatch, capfd) -> Callable[..., str]:
    """What the process says when it ends before it serves; in this process, since starting one takes seconds."""

    def run_it(url: str = "redis://:hush@127.0.0.1:1/0") -> str:
        monkeypatch.setenv("FLASHFLEET_BROKER_URL", url)
        assert main(["--settings", str(folder)], start=fake_router.start) == 2
        out, err = capfd.readouterr()
        assert out == ""
        assert "Traceback" not in err
        assert "hush" not in err
        return err

    return run_it


@pytest.mark.parametrize(
    ("field", "name"), [("http_port", "httpPort"), ("grpc_port", "grpcPort"), ("fleet_port", "fleetPort")]
)
def test_a_taken_port_is_one_clear_line(refused, folder, field, name) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = {"grpc_port": 0, "http_port": 0, "fleet_port": 0} | {field: port}
        write(folder, "static.json", to_json(RouterStatic(fleet="default/chat", **ports)))
        said = refused()
    line = f"port {port} is already taken on 127.0.0.1: stop what listens there or choose another with {name}"
    assert said == f"flash_router: {line}\n"


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("static.json", "{}", "static.json: fleet: must be given"),
        ("static.json", '{"fleet": "a/b", "grpcPor": 1}', "did you mean grpcPort?"),
        ("static.json", "[]", "must be a mapping"),
        ("live.json", "nothing", "live.json: is not JSON"),
        ("live.json", None, "live.json: cannot be read: No such file"),
        ("static.json", '{"fleet": "a/b", "host": "203.0.113.7", "httpPort": 0}', "choose another with host"),
        ("static.json", '{"fleet": "a/b", "host": "no.such.host.invalid", "httpPort": 0}', "no.such.host.invalid"),
    ],
)
def test_broken_settings_are_told(refused, folder, file, text, said) -> None:
    if text is None:
        (folder / file).unlink()
    else:
        write(folder, file, text)
    assert said in refused()


@pytest.mark.parametrize("url", ["", "http://:hush@somewhere", "redis://:hush@somewhere:port/0"])
def test_a_broker_that_cannot_be(refused, url) -> None:
    assert "FLASHFLEET_BROKER_URL" in refused(url)


def test_the_exit_code_of_a_refusal(run, folder) -> None:
    write(folder, "static.json", "{}")
    assert run("flash_router").wait() == 2


def test_the_real_core_starts_serves_and_stops(run, start_server) -> None:
    server = start_server("redis")
    process = run("flash_router", FLASHFLEET_BROKER_URL=f"redis://127.0.0.1:{server.port}/0")
    told = process.ready()
    http = f"http://{told['http']}"
    assert httpx.get(f"{http}/readyz").status_code == 200

    def routers() -> list[dict]:
        return httpx.get(f"{http}/fleet", timeout=WITHIN).json()["routers"]

    until(lambda: [one["grpc"] for one in routers()] == [told["grpc"]], "the router stands in the fleet record")
    with grpc.insecure_channel(told["grpc"]) as channel:
        decision = InferenceStub(channel).Explain(pb.GenerateRequest(prompt="What is 1 + 1?"), timeout=WITHIN)
    assert decision.how == "score"
    process.child.send_signal(signal.SIGTERM)
    assert process.wait() == 0, process.errors
    assert "Traceback" not in process.errors
