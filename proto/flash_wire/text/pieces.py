"""What each token adds to the text, as bytes.

A tokenizer's decoder is a chain over all tokens of an answer. For the kinds that language models use, the chain comes
down to: every token adds fixed bytes, the first one may lose its leading space, and UTF-8 is read over the joined
bytes. That makes streaming exact and costs O(1) for a token, so other kinds of decoder are refused.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from typing import Any

from flash_wire.text.errors import TextError

_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_alphabet() -> dict[str, int]:
    """Character -> byte of the byte-level alphabet: printable Latin-1 stands for itself, the rest from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


_BYTE_OF = byte_alphabet()


class Pieces:
    """Token id -> bytes, for one tokenizer. Safe for several threads."""

    def __init__(self, decoder: Any, token: Callable[[int], str | None], hidden: frozenset[int]) -> None:
        """`decoder`: the tokenizer.json's entry. `token`: id -> its written form. `hidden` ids add no text.

        Raises TextError for a decoder whose text is not a sum of its tokens' bytes.
        """
        self._token = token
        self._hidden = hidden
        self._byte_level = False
        self._byte_fallback = False
        self._replace: list[tuple[str, str]] = []
        self._metaspace = ""
        self.first_loses = ""
        """Character that the first token of a text loses wherever it stands in it."""
        self.strip = ("", 0)
        """Character, and how many of it a text loses at its start at most."""
        self._read(decoder)
        self._bytes: dict[int, bytes | None] = {}

    def bytes_of(self, token_id: int, first: bool) -> bytes | None:
        """Bytes that the token adds; None for ids that add no text and do not count as the first token."""
        if first and self.first_loses and token_id not in self._hidden:
            token = self._token(token_id)
            return None if token is None else self._plain(token.replace(self.first_loses, ""))
        try:
            return self._bytes[token_id]
        except KeyError:
            pass
        token = None if token_id in self._hidden else self._token(token_id)
        if token is None and token_id not in self._hidden:
            return None  # not of this vocabulary: kept out of the table, which so stays as small as the vocabulary
        piece = self._bytes[token_id] = None if token is None else self._plain(token)
        return piece

    def _plain(self, token: str) -> bytes:
        if self._byte_level:
            try:
                return bytes([_BYTE_OF[char] for char in token])
            except KeyError:  # an added token that was written in clear
                return token.encode()
        for old, new in self._replace:
            token = token.replace(old, new)
        if self._byte_fallback and (match := _FALLBACK.fullmatch(token)):
            return bytes([int(match[1], 16)])
        return token.encode()

    def _read(self, decoder: Any) -> None:
        steps = (
            decoder.get("decoders") if isinstance(decoder, dict) and decoder.get("type") == "Sequence" else [decoder]
        )
        if not isinstance(steps, list) or not steps or not all(isinstance(step, dict) for step in steps):
            raise TextError(
                f"tokenizer.json: decoder is {_short(decoder)}: give one of ByteLevel, Metaspace or a"
                " Sequence of Replace, ByteFallback, Fuse and Strip"
            )
        fused = False
        for place, step in enumerate(steps):
            kind = step.get("type")
            if kind == "ByteLevel" and len(steps) == 1:
                self._byte_level = True
            elif kind == "Metaspace" and place == 0:
                mark = step.get("replacement", "▁")
                if not isinstance(mark, str) or len(mark) != 1:
                    raise TextError(
                        f"tokenizer.json: decoder Metaspace has replacement {_short(mark)}: one character is meant"
                    )
                self._replace.append((mark, " "))
                never = step.get("prepend_scheme", "always") == "never" or step.get("add_prefix_space") is False
                self.first_loses = "" if never else mark
            elif kind == "Replace" and not fused and not self._byte_fallback and _is_plain_replace(step):
                self._replace.append((step["pattern"]["String"], step["content"]))
            elif kind == "ByteFallback" and not fused:
                self._byte_fallback = True
            elif kind == "Fuse":
                fused = True
            elif kind == "Strip" and fused and not self.strip[1] and _is_start_strip(step):
                self.strip = (step["content"], step["start"])
            else:
                raise TextError(
                    f"tokenizer.json: decoder step {place + 1}, {_short(step)}, is not of a kind whose text"
                    " can be streamed: ByteLevel, Metaspace, or Replace, ByteFallback, Fuse and Strip (at the"
                    " start) in this order"
                )


class RunningText:
    """The text of a growing list of ids. `add` and `end` give only text that no later id can change."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._first = True
        self._strip_char, self._strip_left = pieces.strip

    def add(self, token_id: int) -> str:
        piece = self._pieces.bytes_of(token_id, self._first)
        if piece is None:
            return ""
        self._first = False
        text = self._utf8.decode(piece)
        return self._stripped(text) if self._strip_left and text else text

    def end(self) -> str:
        """What is left: U+FFFD where the last character is cut short."""
        return self._stripped(self._utf8.decode(b"", final=True))

    def _stripped(self, text: str) -> str:
        while self._strip_left and text:
            if text[0] != self._strip_char:
                self._strip_left = 0
            else:
                self._strip_left -= 1
                text = text[1:]
        return text


def _is_plain_replace(step: dict[str, Any]) -> bool:
    pattern, content = step.get("pattern"), step.get("content")
    return (
        isinstance(pattern, dict)
        and isinstance(pattern.get("String"), str)
        and pattern["String"] != ""
        and isinstance(content, str)
    )


def _is_start_strip(step: dict[str, Any]) -> bool:
    content, start = step.get("content"), step.get("start")
    return isinstance(content, str) and len(content) == 1 and isinstance(start, int) and step.get("stop") == 0


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
