"""An engine without a model: its tokens are a function of (seed, position), its speed and its faults are set.

Run as a program it is a worker process: `python scripted_engine.py --settings FOLDER --name NAME`, with the fields of
Script in the environment variable SCRIPT as JSON and the tokenizer's folder in SCRIPT_TEXT.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flash_wire.room import need
from flash_wire.text import TextModel
from flash_worker.request import NeverFits, Output, Request, Room

REVISION = "0123456789ab"
FIRST_ID, IDS = 30, 160
"""Drawn ids are single bytes of the tiny tokenizer, so that many characters take several tokens."""


def token(seed: int, position: int) -> int:
    mixed = (seed * 0x9E3779B97F4A7C15 + position * 0xC2B2AE3D27D4EB4F) & (2**64 - 1)
    return FIRST_ID + (mixed >> 33) % IDS


def answer(seed: int, count: int) -> list[int]:
    """The whole answer of an undisturbed run."""
    return [token(seed, position) for position in range(count)]


@dataclass
class Script:
    step: float = 0.002
    """Seconds of one step; each gives every running request one token."""
    per_step: int = 1
    max_slots: int = 8
    kv_tokens: int = 4096
    max_model_len: int = 2048
    die_at: dict[int, int] = field(default_factory=dict)
    """Seed -> position at which the process kills itself, once it has sent the tokens before. -1 dies at the prompt."""
    die_once: str = ""
    """A folder: each (seed, position) kills only once over all processes, by a file in it."""


@dataclass
class _Running:
    request: Request
    position: int
    aborted: bool = False


class ScriptedEngine:
    """flash_worker.engine.Engine as the fleet sees it."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.on_output: Callable[[list[Output]], None] = lambda outputs: None
        self.trouble = ""
        self.submitted: list[Request] = []
        self.aborted: list[str] = []
        self.most_beside = 0
        """Most requests that ran at the same time."""
        self.paused = threading.Event()
        self.paused.set()
        self._lock = threading.Lock()
        self._running: dict[str, _Running] = {}
        self._work = threading.Event()
        self._closing = False
        self._stepped = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, request: Request) -> None:
        if len(request.prompt) + request.sampling.max_tokens > self.script.max_model_len:
            raise NeverFits(f"{len(request.prompt)} and {request.sampling.max_tokens} tokens never fit")
        with self._lock:
            self.submitted.append(request)
            self._running[request.id] = _Running(request, len(request.committed))
            self.most_beside = max(self.most_beside, len(self._running))
        self._work.set()

    def abort(self, id: str) -> None:
        with self._lock:
            if (running := self._running.get(id)) is not None:
                running.aborted = True
                self.aborted.append(id)
        self._work.set()

    def room(self) -> Room:
        script = self.script
        with self._lock:
            taken = sum(self._need(running) for running in self._running.values())
            slots = script.max_slots - len(self._running)
        return Room(max(0, slots), max(0, script.kv_tokens - taken), script.max_slots, script.kv_tokens)

    def _need(self, running: _Running) -> int:
        request = running.request
        return need(len(request.prompt), running.position, request.sampling.max_tokens, block_size=16,
                    max_model_len=self.script.max_model_len)  # fmt: skip

    @property
    def running(self) -> int:
        with self._lock:
            return len(self._running)

    def last_step_age(self) -> float:
        return time.monotonic() - self._stepped if self._running else 0.0

    def pin(self, prefix: Sequence[int]) -> int:
        return len(prefix) // 16 * 16

    def close(self, drain: float = 0.0) -> None:
        self._closing = True
        self.paused.set()
        self._work.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def _run(self) -> None:
        while not self._closing:
            if not self._running:
                self._work.wait(0.2)
                self._work.clear()
                continue
            time.sleep(self.script.step)
            self.paused.wait()
            if outputs := self._step():
                self.on_output(outputs)
            self._stepped = time.monotonic()

    def _step(self) -> list[Output]:
        outputs = []
        with self._lock:
            for id, running in list(self._running.items()):
                output = self._advance(id, running)
                if output.finish is not None:
                    del self._running[id]
                outputs.append(output)
        return outputs

    def _advance(self, id: str, running: _Running) -> Output:
        request, sampling = running.request, running.request.sampling
        if running.aborted:
            return Output(id, running.position, finish="cancelled")
        if request.deadline is not None and time.monotonic() >= request.deadline:
            return Output(id, running.position, finish="deadline")
        self._maybe_die(sampling.seed, running.position)
        count = min(self.script.per_step, sampling.max_tokens - running.position)
        ids = tuple(token(sampling.seed, running.position + i) for i in range(count))
        output = Output(
            id,
            running.position,
            ids,
            tuple(-0.5 for _ in ids) if sampling.logprobs else (),
            finish="length" if running.position + count >= sampling.max_tokens else None,
            cached_tokens=16,
        )
        running.position += count
        return output

    def _maybe_die(self, seed: int, position: int) -> None:
        at = self.script.die_at.get(seed)
        if at is None or (at >= 0 and at != position):
            return
        if self.script.die_once:
            try:
                (Path(self.script.die_once) / f"{seed}-{at}").touch(exist_ok=False)
            except FileExistsError:
                return
        time.sleep(0.02)  # let the last tokens reach the socket: the fault is the death, not a lost write
        os._exit(9)


def main() -> int:
    from flash_worker.main import main as worker_main
    from flash_worker.serve import Served

    script = Script(**json.loads(os.environ.get("SCRIPT", "{}"), object_hook=_int_keys))
    text = TextModel.from_folder(os.environ["SCRIPT_TEXT"])
    engine = ScriptedEngine(script)
    return worker_main(build=lambda *_: Served(engine, text, REVISION, script.max_model_len))


def _int_keys(data: dict[str, object]) -> dict[object, object]:
    return {int(key) if key.lstrip("-").isdigit() else key: value for key, value in data.items()}


if __name__ == "__main__":
    sys.exit(main())
