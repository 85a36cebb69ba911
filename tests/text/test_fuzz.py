"""Damaged tokenizers, GGUF headers and templates are refused by a ValueError: no crash, no other error, no hang."""

from __future__ import annotations

import contextlib
import copy
import json
import random
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from flash_wire.text import StreamDecoder, TextModel
from support.tiny_text import TEMPLATE
from support.tiny_vocab_gguf import bpe_keys, spm_keys, write_gguf

T = TypeVar("T")
COUNT = 250
CHAT = [("system", "s"), ("user", "Hi <|im_end|> é 12"), ("assistant", "a"), ("user", "b")]
WRONG: list[Any] = [None, True, -1, 2**40, 1e300, "", "x", [], [[]], {}, {"type": "BPE"}, ["a", "b"], "\ud800"]


def use(make: Callable[[], TextModel]) -> bool:
    """Does all that a model is for; whether all of it worked. Only ValueError may be raised."""
    model = attempt(make)
    if model is None:
        return False
    done = [attempt(lambda: model.encode("Hi é <|im_end|>")), attempt(lambda: model.encode_chat(CHAT))]
    for ids in done:
        decoder = StreamDecoder(model, ["i"])
        decoder.push([*(ids or []), 2**31])
        decoder.flush()
        model.decode(ids or [])
    return None not in done


def attempt(work: Callable[[], T]) -> T | None:
    with contextlib.suppress(ValueError):
        return work()
    return None


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something in the JSON can be replaced; of long lists and mappings only a few entries."""
    if path:
        yield path
    if isinstance(value, dict):
        for key in list(value)[:24]:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for index in range(min(len(value), 3)):
            yield from places(value[index], (*path, index))


def damaged(data: Any, rng: random.Random, spots: list[tuple[Any, ...]]) -> Any:
    data = json.loads(json.dumps(data))
    for path in rng.sample(spots, rng.choice([1, 1, 1, 2, 3])):
        try:
            parent = data
            for step in path[:-1]:
                parent = parent[step]
            if rng.random() < 0.2:
                del parent[path[-1]]
            else:
                parent[path[-1]] = copy.deepcopy(rng.choice(WRONG))
        except (KeyError, IndexError, TypeError):
            continue  # an earlier damage took the place away
    return data


def test_damaged_tokenizers(tiny: TextModel, spm: TextModel) -> None:
    rng = random.Random(1)
    outcomes = set()
    for model in (tiny, spm):
        tokenizer_json, template, config = model.assets()
        data = json.loads(tokenizer_json)
        spots = list(places(data))
        for number in range(COUNT // 2):
            if number % 5 == 0:
                raw = bytearray(tokenizer_json)
                for _ in range(3):
                    raw[rng.randrange(len(raw))] = rng.randrange(256)
                broken = bytes(raw[: rng.randrange(len(raw))] if number % 2 else raw)
            else:
                broken = json.dumps(damaged(data, rng, spots)).encode()
            outcomes.add(use(partial(TextModel.from_assets, broken, template, config)))
    assert outcomes == {True, False}


def test_damaged_gguf_headers(tmp_path: Path) -> None:
    rng = random.Random(2)
    file = tmp_path / "m.gguf"
    outcomes = set()
    for keys in (bpe_keys("llama-bpe"), spm_keys()):
        whole = write_gguf(tmp_path / "whole.gguf", keys).read_bytes()
        for number in range(COUNT // 2):
            raw = bytearray(whole)
            kind = number % 4
            if kind == 0:
                raw = raw[: rng.randrange(len(raw))]
            elif kind == 1:
                raw[rng.randrange(300)] = rng.randrange(256)
            elif kind == 2:  # a length or a count anywhere
                place = rng.randrange(4, len(raw) - 8)
                raw[place : place + 8] = struct.pack("<Q", rng.choice([0, 1, 2**20, 2**31, 2**60, 2**64 - 1]))
            else:
                for _ in range(5):
                    raw[rng.randrange(len(raw))] = rng.randrange(256)
            file.write_bytes(raw)
            outcomes.add(use(partial(TextModel.from_gguf, file)))
    assert outcomes == {True, False}


def test_wrong_values_in_gguf_keys(tmp_path: Path) -> None:
    rng = random.Random(3)
    texts: list[Any] = ["", "x", "gpt2", "llama", "{% if"]
    values = [*texts, True, 7, 2**31, [1, 2], [0.5], ["a", "b"], ["a b", "b"]]
    for number, keys in enumerate([bpe_keys("qwen2"), spm_keys()] * 20):
        for key in rng.sample(sorted(keys), 2):
            keys[key] = rng.choice(values)
        file = write_gguf(tmp_path / f"{number}.gguf", keys)
        use(partial(TextModel.from_gguf, file))


PIECES = ["{{", "}}", "{%", "%}", "{#", "#}", " for m in messages ", " endfor ", " if ", " else ", " endif ",
          "m.content",
          "messages[0]", "['role']", "loop.index", " set x = ", "namespace(a=1)", "| trim", "| tojson", "| nope", "**",
          "*", "+", "~", "99999999", "'a'", "raise_exception('no')", "range(9)", "strftime_now('%H')", "(", ")", "none",
          "bos_token", " macro f() ", " endmacro ", "f()", " generation ", " break ", "\n", "<|im_end|>", "é", "%",
          ".__class__", ".format(", "[", "]", ":", ",", "/ 0", "undefined_name", ".x.y"]  # fmt: skip


def test_damaged_templates(tiny: TextModel) -> None:
    rng = random.Random(4)
    tokenizer_json, _, config = tiny.assets()
    outcomes = set()
    for number in range(COUNT):
        if number % 2:
            template = "".join(rng.choices(PIECES, k=rng.randrange(1, 14)))
        else:
            place = rng.randrange(len(TEMPLATE))
            template = TEMPLATE[:place] + rng.choice(PIECES) + TEMPLATE[place + rng.randrange(12) :]
        outcomes.add(use(partial(TextModel.from_assets, tokenizer_json, template, config)))
    assert outcomes == {True, False}


def test_a_header_that_claims_without_end_is_refused_at_once(tmp_path: Path) -> None:
    key = b"tokenizer.ggml.token_type"
    start = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", len(key)) + key
    began = time.process_time()
    for tail in (struct.pack("<IIQ", 9, 5, 2**60), struct.pack("<IIQ", 9, 8, 2**61 + 1), struct.pack("<IQ", 8, 2**63)):
        (tmp_path / "m.gguf").write_bytes(start + tail + bytes(64))
        with pytest.raises(ValueError, match="cut short or damaged"):
            TextModel.from_gguf(tmp_path / "m.gguf")
    assert time.process_time() - began < 2
