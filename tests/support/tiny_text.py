"""A small real tokenizer for tests: byte-level BPE with few merges, so that any text encodes."""

from __future__ import annotations

import json
import os
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from flash_wire.text.pieces import byte_alphabet

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Ids 0, 1 and 2."""
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CORPUS = (
    "the quick brown fox jumps over the lazy dog and then the other dog asks why this is so and what there is to do "
    "in the town on the hill where all the people meet to sing and to read the news of the day in their own way "
    "one two three four five six seven eight nine ten write a list of things that are in the house and on the table "
    "please answer the question with a number and say what you think about the weather and the time of the year"
)


class TinyText(NamedTuple):
    folder: Path
    vocab_size: int
    endoftext_id: int
    im_start_id: int
    im_end_id: int
    """Ends a turn: the eos token."""


def make_tiny_tokenizer_folder(path: str | os.PathLike[str], vocab_size: int = 384) -> TinyText:
    """Writes tokenizer.json and tokenizer_config.json (with a ChatML template) into `path`, which is made if needed.

    Every id below `vocab_size` (259 or more) is in the vocabulary. The same size gives the same files.
    """
    if vocab_size < 256 + len(SPECIALS):
        raise ValueError(f"vocab_size is {vocab_size}: give at least {256 + len(SPECIALS)}")
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    merges = _merges(vocab_size - 256 - len(SPECIALS))
    words = [*SPECIALS, *sorted(byte_alphabet()), *(left + right for left, right in merges)]
    words += [f"<|unused_{number}|>" for number in range(len(words), vocab_size)]
    added = [number for number, word in enumerate(words) if word.startswith("<|")]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": number, "content": words[number], "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True} for number in added],
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {word: number for number, word in enumerate(words)}, "merges": merges},
    }  # fmt: skip
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": SPECIALS[1], "eos_token": SPECIALS[2],
              "unk_token": SPECIALS[0], "pad_token": SPECIALS[0], "chat_template": TEMPLATE,
              "clean_up_tokenization_spaces": False, "model_max_length": 1 << 20}  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False))
    return TinyText(folder, vocab_size, 0, 1, 2)


def _merges(count: int) -> list[list[str]]:
    """The `count` most useful pairs of the corpus, fewer if it has no more; ties go to the smaller pair."""
    words = Counter(" " + word for word in _CORPUS.split())
    pieces = {word: ["\u0120" if char == " " else char for char in word] for word in words}
    merges: list[list[str]] = []
    made: set[str] = set()
    while len(merges) < count:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, parts in pieces.items():
            for pair in pairwise(parts):
                pairs[pair] += words[word]
        fresh = [pair for pair in pairs if pair[0] + pair[1] not in made]
        if not fresh:
            break
        left, right = min(fresh, key=lambda pair: (-pairs[pair], pair))
        merges.append([left, right])
        made.add(left + right)
        for parts in pieces.values():
            place = 0
            while place < len(parts) - 1:
                if parts[place] == left and parts[place + 1] == right:
                    parts[place : place + 2] = [left + right]
                place += 1
    return merges
