"""Engines for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flash_wire.text import TextModel
from support.engine_bench import VOCAB, EngineBench
from support.tiny_text import make_tiny_tokenizer_folder


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    return TextModel.from_folder(make_tiny_tokenizer_folder(tmp_path_factory.mktemp("text"), VOCAB).folder)


@pytest.fixture
def make(text: TextModel) -> Iterator[Callable[..., EngineBench]]:
    made: list[EngineBench] = []

    def bench(**settings: Any) -> EngineBench:
        made.append(EngineBench(settings.pop("text", text), **settings))
        made[-1].engine.start()
        return made[-1]

    yield bench
    for one in made:
        one.device.before_step = lambda rows: None
        one.engine.close()
