"""A text's tokens bounded from below by its characters: no token stands for more than so many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flash_wire.text.pieces import byte_alphabet

SHORTEST_BOUND = 16
"""Not below the secret names that control tokens are given (flash_wire.text.controls)."""
COMPOSED = 4
"""Characters that NFC may make one of."""
_WRITTEN = {byte: char for char, byte in byte_alphabet().items()}
_INNER = range(0x80, 0xC0)
"""Bytes of which every character beyond ASCII has one."""
_KEEPING = frozenset(("ByteLevel", "Digits", "Metaspace", "Punctuation", "Split", "UnicodeScripts"))
"""Pre-tokenizers that keep every character, unless their behavior says Removed."""


@dataclass(frozen=True, slots=True)
class Bound:
    longest: int = 0
    """Characters of the longest token; 0 where a token may stand for any number of them."""
    composes: bool = False
    """Text beyond ASCII goes through NFC first."""
    swallows: bool = False
    """Some tokens take the blanks beside them."""
    lost: str = ""
    """ASCII characters for which the vocabulary has nothing: they leave no token."""

    def least(self, text: str) -> int:
        """Tokens that `text` has at least. Takes some ms for millions of characters; 0 where there is no bound."""
        if not self.longest:
            return 0
        size = sum(map(len, text.split())) if self.swallows else len(text)
        size -= sum(map(text.count, self.lost))
        return -(-size // (self.longest * (COMPOSED if self.composes and not text.isascii() else 1)))


def bound_of(data: Mapping[str, Any], vocab: Iterable[str], added: Iterable[Any]) -> Bound:
    """`data` is the tokenizer.json, `vocab` all tokens as written, `added` the AddedTokens."""
    words = set(vocab)
    normalizers = _steps(data.get("normalizer"), "normalizers")
    splitters = _steps(data.get("pre_tokenizer"), "pretokenizers")
    kinds = set(map(_type, normalizers))
    lost = _lost(data["model"], words, "ByteLevel" in {*map(_type, splitters), *kinds})
    if lost is None or not all(map(_lengthens, normalizers)) or not all(map(_keeps, splitters)):
        return Bound()
    longest = max(SHORTEST_BOUND, *map(len, words))
    return Bound(longest, "NFC" in kinds, any(token.lstrip or token.rstrip for token in added), lost)


def _steps(step: Any, inside: str) -> list[dict[str, Any]]:
    if not isinstance(step, dict):
        return []
    if _type(step) != "Sequence":
        return [step]
    parts = step.get(inside)
    return [one for part in (parts if isinstance(parts, list) else []) for one in _steps(part, inside)]


def _type(step: Mapping[str, Any]) -> str:
    return str(step.get("type"))


def _lost(model: Mapping[str, Any], words: set[str], byte_level: bool) -> str | None:
    """ASCII characters that leave no token; None where others too may be lost, or be drawn together as unknown."""
    kind, unknown = model.get("type", "BPE"), model.get("unk_token")
    if kind == "BPE" and isinstance(unknown, str) and unknown in words and not model.get("fuse_unk"):
        return ""
    if kind == "BPE" and byte_level:
        written: Mapping[int, str] = _WRITTEN
    elif kind in ("BPE", "Unigram") and model.get("byte_fallback"):
        # A character without a token falls back only where all its bytes have one.
        written = {byte: f"<0x{byte:02X}>" for byte in range(256)}
        return "" if words.issuperset(written.values()) else None
    else:
        return None
    if not words.issuperset(written[byte] for byte in _INNER):
        return None
    return "".join(chr(byte) for byte in range(0x80) if written[byte] not in words)


def _lengthens(step: Mapping[str, Any]) -> bool:
    """Never makes a text shorter, NFC aside."""
    if _type(step) == "Replace":
        pattern, content = step.get("pattern"), step.get("content")
        old = pattern.get("String") if isinstance(pattern, dict) else None
        return isinstance(old, str) and isinstance(content, str) and len(content) >= len(old)
    return _type(step) in ("Prepend", "ByteLevel", "NFC", "NFD", "Lowercase")


def _keeps(step: Mapping[str, Any]) -> bool:
    return _type(step) in _KEEPING and step.get("behavior") != "Removed"
