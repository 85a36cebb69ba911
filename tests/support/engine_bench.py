"""An engine on a fake device, and what it said."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from flash_wire.settings import Engine as EngineSettings
from flash_wire.text import TextModel
from flash_worker.batch import Row
from flash_worker.engine import Engine
from flash_worker.request import Output, Request, Sampling
from flash_worker.stats import StepStats
from support.fake_runner import FakeDevice, alone

PATIENCE = 30.0
VOCAB = 384


class Device(FakeDevice):
    """A FakeDevice that can be told to wait or to fail."""

    def __init__(self, pages: int, block_size: int, **kwargs: Any) -> None:
        super().__init__(pages, block_size, VOCAB, **kwargs)
        self.before_step: Callable[[Sequence[Row]], None] = lambda rows: None

    def step(self, rows: Sequence[Row]) -> list[int]:
        self.before_step(rows)
        return super().step(rows)


class EngineBench:
    """An engine, and what it said."""

    def __init__(self, text: TextModel | None, **settings: Any) -> None:
        settings = {"kv_tokens": 512, "block_size": 4, "max_seqs": 4, "max_step_tokens": 32, **settings}
        self.settings = EngineSettings(**settings)
        self.device = Device(self.settings.kv_tokens // self.settings.block_size, self.settings.block_size)
        self.text = text
        self.batches: list[list[Output]] = []
        self.step_stats: list[StepStats] = []
        self.ended = threading.Condition()
        self.outputs: dict[str, list[Output]] = {}
        self.engine = Engine(self.device, self.device, text, self.settings, on_output=self._hear)  # type: ignore[arg-type]
        self.engine.on_step = self.step_stats.append

    def _hear(self, outputs: list[Output]) -> None:
        with self.ended:
            self.batches.append(outputs)
            for output in outputs:
                self.outputs.setdefault(output.id, []).append(output)
            self.ended.notify_all()

    def request(self, id: str, prompt: Sequence[int] = (5, 6, 7, 8, 9), max_tokens: int = 8, **kwargs: Any) -> Request:
        committed, deadline = tuple(kwargs.pop("committed", ())), kwargs.pop("deadline", None)
        kwargs = {"temperature": 0.0, "ignore_eos": True, **kwargs}
        return Request(id, tuple(prompt), committed, Sampling(max_tokens, **kwargs), deadline)

    def submit(self, id: str, *args: Any, **kwargs: Any) -> Request:
        request = self.request(id, *args, **kwargs)
        self.engine.submit(request)
        return request

    def until(self, condition: Callable[[], bool]) -> None:
        with self.ended:
            assert self.ended.wait_for(condition, timeout=PATIENCE), "it did not happen in time"

    def end_of(self, id: str) -> Output:
        self.until(lambda: bool(self.outputs.get(id)) and self.outputs[id][-1].finish is not None)
        assert sum(output.finish is not None for output in self.outputs[id]) == 1
        return self.outputs[id][-1]

    def answer(self, request: Request) -> list[int]:
        """Committed and given tokens, in the order of their positions."""
        tokens = list(request.committed)
        for output in self.outputs[request.id]:
            assert output.position == len(tokens)
            tokens += output.ids
        return tokens

    def alone(self, request: Request) -> list[int]:
        stop_ids = self.text.stop_ids if self.text else frozenset()
        return alone(request, VOCAB, self.device.max_model_len, stop_ids)

    def ends_alone(self, request: Request) -> None:
        assert self.end_of(request.id).finish in ("length", "stop")
        assert self.answer(request) == self.alone(request)


def assert_set(gate: threading.Event) -> None:
    assert gate.wait(PATIENCE)
