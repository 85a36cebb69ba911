"""Small GGUF files with real vocabularies, and no tensors."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from flash_wire.text.pieces import byte_alphabet
from support.tiny_text import SPECIALS, TEMPLATE

TEXTS = (
    "the quick brown fox jumps over the lazy dog, and the other dog asks: why is this so? I'm sure they've seen it; "
    "we'll see 12 or 1234 of them in 2024, at 10.50$ each... It's 'quoted' and DON'T SHOUT!\n\n  indented code(x) = "
    "x**2 + 3\n\tand tabs\r\n über café naïve 日本語 テスト 100% \u2581 done   "
)
_CROSSING = "1 2|3 4|12 34|Ġ 1|Ġ Ġ|Ċ Ċ|Ġ '|' q|' T|, Ċ"
CROSSING = [(pair.split()[0], pair.split()[1]) for pair in _CROSSING.split("|")]
"""Merges that are possible or not, as the text was split before."""


def write_gguf(file: Path, keys: dict[str, Any]) -> Path:
    """Writes the keys as the `gguf` package does it."""
    from gguf import GGUFWriter

    writer = GGUFWriter(str(file), "llama")
    for key, value in keys.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return file


def bpe_keys(pre: str, merges: int = 150, **more: Any) -> dict[str, Any]:
    """A byte-level vocabulary whose merges cross what some ways of splitting keep apart (digits, marks, spaces)."""
    alphabet = {byte: char for char, byte in byte_alphabet().items()}
    text = [alphabet[byte] for byte in TEXTS.encode()]
    learnt = [*CROSSING, *(pair for pair in _learn(text, merges, lambda pair: True) if pair not in CROSSING)]
    learnt = list({left + right: (left, right) for left, right in learnt}.values())
    tokens = [*SPECIALS, *sorted(alphabet.values()), *(left + right for left, right in learnt)]
    return _named(
        model="gpt2", pre=pre, tokens=tokens, merges=[f"{left} {right}" for left, right in learnt],
        token_type=[3] * len(SPECIALS) + [1] * (len(tokens) - len(SPECIALS)),
        bos_token_id=1, eos_token_id=2, add_bos_token=False, **more,
    ) | {"tokenizer.chat_template": TEMPLATE}  # fmt: skip


def spm_keys(merges: int = 150, **more: Any) -> dict[str, Any]:
    """A SentencePiece vocabulary with bytes, a token that the user defined, and scores that order the merges."""
    text = list(TEXTS.replace(" ", "▁"))
    learnt = _learn(text, merges, lambda pair: "▁" not in pair[1] or set(pair[0]) == {"▁"})
    words = [left + right for left, right in learnt]
    characters = sorted(set(text) - {"語"} | set("<s>"))  # one character of the text is left to the bytes
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "<|user|>", *words, *characters]
    types = [2, 3, 3, *[6] * 256, 4, *[1] * (len(words) + len(characters))]
    scores = [0.0] * 260 + [-float(rank) for rank in range(len(words))] + [-1000.0 - n for n in range(len(characters))]
    return _named(
        model="llama", tokens=tokens, token_type=types, scores=scores,
        bos_token_id=1, eos_token_id=2, unknown_token_id=0, **more,
    ) | {"tokenizer.chat_template": TEMPLATE.replace("<|im_start|>", "<s>").replace("<|im_end|>", "</s>")}  # fmt: skip


def _named(**keys: Any) -> dict[str, Any]:
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items()}


def _learn(text: list[str], count: int, allowed: Any) -> list[tuple[str, str]]:
    """Byte pair encoding of one running text."""
    text = list(text)
    merges: list[tuple[str, str]] = []
    made: set[str] = set(text)
    while len(merges) < count:
        pairs = Counter(pair for pair in pairwise(text) if allowed(pair) and pair[0] + pair[1] not in made)
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        made.add(best[0] + best[1])
        place = 0
        while place < len(text) - 1:
            if (text[place], text[place + 1]) == best:
                text[place : place + 2] = [best[0] + best[1]]
            place += 1
    return merges
