"""Keeps a user's text from being read as control tokens.

A chat template writes control tokens such as <|im_end|> between the messages. The same characters inside a message
are only text: read as the token they would end the user's turn and let a user speak as the system.

The way, only for chats in which a message holds such characters: they are *marked* before the template runs (a
private-use character is put inside them), so that what is unmarked afterwards was written by the template. Those are
then given secret names, the marks are removed, and the whole is encoded in one go by a second tokenizer that is equal
but knows the control tokens by their secret names only. Splitting, spaces and merges so stay the tokenizer's own.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer

from flash_wire.text.chat import Message
from flash_wire.text.errors import TextError

_MARKS = range(0xF0000, 0xFFFF0)
"""The private-use plane that a mark is taken from."""
_NAMES = range(0x100000, 0x10FFF0)
"""The private-use plane of the secret names. Another one, since marks are removed after the names are in."""


def encode(tokenizer: Tokenizer, text: str, what: str, add_special_tokens: bool) -> list[int]:
    """Ids of the text. Raises ValueError, named after `what`, for a text that the tokenizer cannot take."""
    try:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library's own panics are no Exception
        raise ValueError(f"{what}: the model's tokenizer cannot encode it ({error})") from None
    return ids


class Controls:
    """The control tokens of one model. Safe for several threads."""

    def __init__(
        self, tokenizer: Tokenizer, tokenizer_json: Callable[[], bytes], written: str, stop_ids: frozenset[int]
    ) -> None:
        """`written`: what the chat template itself writes: added tokens in there are controls too, except in the
        assistant's own messages, which templates take apart by them (<think>)."""
        added = tokenizer.get_added_tokens_decoder()
        strict = {token.content: number for number, token in added.items() if token.special or number in stop_ids}
        wide = {token.content: number for number, token in added.items() if token.content in written}
        self._ids = {text: number for text, number in (wide | strict).items() if text}
        singles = [text for text in self._ids if len(text) == 1]
        self._aliases = {text: chr(_NAMES[number]) for number, text in enumerate(singles)}
        self._strict = _Finder([text for text in strict if text], self._aliases)
        self._wide = _Finder(list(self._ids), self._aliases)
        folded = any(added[number].normalized for number in self._ids.values())
        self._normalizer = tokenizer.normalizer if folded else None
        self._json = tokenizer_json
        self._guarded: Tokenizer | None = None
        self._names: dict[str, str] = {}
        self._lock = threading.Lock()

    def found_in(self, messages: Sequence[Message]) -> bool:
        """Whether a message holds a control token, or the beginning or end of one at its edge."""
        return any(self._finder(role).finds(text) for role, content in messages for text in self._forms(content))

    def encode(
        self,
        messages: Sequence[Message],
        render: Callable[[Sequence[Message]], str],
        check: Callable[[str], None] = lambda text: None,
    ) -> list[int]:
        """Ids of the rendered chat, with the messages' control tokens as plain text. `check` may refuse its length."""
        everything = "".join(content for _, content in messages)
        unused = (chr(code) for code in _MARKS if chr(code) not in everything)
        mark, swap = next(unused), next(unused)
        rendered = render([(role, self._finder(role).mark(content, mark, swap)) for role, content in messages])
        tokenizer, names = self._guarded_tokenizer()
        named, count = self._wide.pattern.subn(lambda match: names[match[0]], rendered)
        unmarked = named.replace(mark, "")
        for text, alias in self._aliases.items():
            unmarked = unmarked.replace(swap + alias, text)
        check(unmarked)
        ids = encode(tokenizer, unmarked, "messages", add_special_tokens=False)
        controls = set(self._ids.values())
        if sum(number in controls for number in ids) != count:
            raise ValueError(
                "messages: they hold text that this model's tokenizer can only read as control tokens: remove it"
            )
        return ids

    def _finder(self, role: str) -> _Finder:
        return self._strict if role == "assistant" else self._wide

    def _forms(self, content: str) -> tuple[str, ...]:
        if self._normalizer is None:
            return (content,)
        return content, self._normalizer.normalize_str(content)

    def _guarded_tokenizer(self) -> tuple[Tokenizer, dict[str, str]]:
        with self._lock:  # built once, and only if ever needed: it doubles the tokenizer's memory
            if self._guarded is None:
                key = "".join(chr(secrets.choice(_NAMES)) for _ in range(8))
                self._names = {text: key + chr(_NAMES[number]) for number, text in enumerate(self._ids)}
                self._guarded = Tokenizer.from_str(json.dumps(_renamed(json.loads(self._json()), self._names)))
            return self._guarded, self._names


class _Finder:
    """Finds and marks a set of control tokens in a message."""

    def __init__(self, texts: list[str], aliases: Mapping[str, str]) -> None:
        self._aliases = aliases
        longest_first = sorted(texts, key=len, reverse=True)  # as the tokenizer: leftmost, then longest
        self.pattern = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        self._begins = {text[:cut] for text in texts for cut in range(1, len(text))}
        self._ends = {text[cut:] for text in texts for cut in range(1, len(text))}
        self._reach = max(map(len, texts), default=0)

    def finds(self, content: str) -> bool:
        return bool(self.pattern.search(content) or self._tail(content.rstrip()) or self._head(content.lstrip()))

    def mark(self, content: str, mark: str, swap: str) -> str:
        """`mark` after the first character of each control token, and inside what could become one at an edge.

        A control token of one character cannot be cut: `swap` and its alias stand for it.
        """
        marked = self.pattern.sub(lambda match: self._cut(match[0], mark, swap), content)
        bare = marked.rstrip()
        if tail := self._tail(bare):
            cut = len(bare) - tail + 1
            marked = marked[:cut] + mark + marked[cut:]
        bare = marked.lstrip()
        if self._head(bare):
            cut = len(marked) - len(bare)
            marked = marked[:cut] + mark + marked[cut:]
        return marked

    def _cut(self, text: str, mark: str, swap: str) -> str:
        return text[0] + mark + text[1:] if len(text) > 1 else swap + self._aliases[text]

    def _tail(self, content: str) -> int:
        """Length of the longest end of `content` that begins a control token."""
        return next((n for n in range(min(self._reach - 1, len(content)), 0, -1) if content[-n:] in self._begins), 0)

    def _head(self, content: str) -> int:
        return next((n for n in range(min(self._reach - 1, len(content)), 0, -1) if content[:n] in self._ends), 0)


def _renamed(data: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The tokenizer.json with the control tokens under their secret names, in the added tokens and in the model."""
    for token in data.get("added_tokens") or []:
        token["content"] = names.get(token["content"], token["content"])
    data["post_processor"] = None  # only for beginnings that raw prompts get, and it names tokens
    model = data["model"]
    vocab = model["vocab"]
    names = {text: name for text, name in names.items() if len(text) > 1}  # a single character may be a byte of others
    if isinstance(vocab, dict):
        model["vocab"] = {names.get(text, text): number for text, number in vocab.items()}
    elif isinstance(vocab, list):
        model["vocab"] = [[names.get(text, text), score] for text, score in vocab]
    else:
        raise TextError(f"tokenizer.json: model.vocab is {type(vocab).__name__}: a mapping or a list is meant")
    if isinstance(model.get("unk_token"), str):
        model["unk_token"] = names.get(model["unk_token"], model["unk_token"])
    if model.get("merges"):
        model["merges"] = [merge for merge in model["merges"] if not _makes(merge, names)]
    return data


def _makes(merge: str | list[str], names: Mapping[str, str]) -> bool:
    """Whether a merge makes, or starts from, a renamed token: the model no longer has that word."""
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return left in names or right in names or left + right in names
