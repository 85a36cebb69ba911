"""Tokenizer and chat template of one model."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from flash_wire.text.chat import ChatTemplate, Message
from flash_wire.text.controls import Controls, encode
from flash_wire.text.errors import TextError, TooLong
from flash_wire.text.folder import MAX_FILE, read_folder
from flash_wire.text.longest import bound_of
from flash_wire.text.pieces import Pieces, RunningText

END_NAMES = frozenset({
    "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|end_of_turn|>",
    "<end_of_turn>", "<|return|>", "<EOT>", "<|EOT|>", "<\uff5cend\u2581of\u2581sentence\uff5c>",
})  # fmt: skip
"""Special tokens that end a text or a turn by their name, whatever else a model's files say."""


class TextModel:
    """Text <-> token ids for one model. Immutable, and safe for several threads.

    Two processes with equal `hash` read and write the same ids. Made by from_folder, from_gguf or from_assets; each
    raises TextError, a ValueError, that says which file or field is wrong and what to do.
    """

    def __init__(self, tokenizer_json: bytes, chat_template: str, config_json: str) -> None:
        self._assets = (bytes(tokenizer_json), chat_template, config_json)
        self.hash = _hash(self._assets)
        """16 hex digits over the assets."""
        data = _load_json(tokenizer_json)
        self._tokenizer = _load_tokenizer(tokenizer_json)
        special_tokens, stop_ids, stop_tokens = _load_config(config_json)
        added = self._tokenizer.get_added_tokens_decoder()
        vocab = self._tokenizer.get_vocab(with_added_tokens=True)
        if not vocab:
            raise TextError("tokenizer.json: the vocabulary is empty: copy the file again")
        self.vocab_size = max(vocab.values()) + 1
        """One more than the largest id. A model's output may be wider: ids beyond have no text."""
        self.bound = bound_of(data, vocab, added.values())
        special = {number for number, token in added.items() if token.special}
        names = END_NAMES - ({"<|end|>"} if "<|return|>" in vocab else set())  # there it only ends a part of a turn
        stops = {vocab[text] for text in stop_tokens if text in vocab}
        stops |= {number for number in special if added[number].content in names}
        self.stop_ids = frozenset(stops | stop_ids)
        """End-of-text and end-of-turn ids."""
        self.special_ids = frozenset(special)
        """Ids that never show in a text (stop ids do not either)."""
        self.pieces = Pieces(data.get("decoder"), self._tokenizer.id_to_token, self.special_ids | self.stop_ids)
        self._template = ChatTemplate(chat_template, special_tokens) if chat_template else None
        written = self._template.literals if self._template else ""
        self._controls = Controls(self._tokenizer, lambda: self._assets[0], written, self.stop_ids)

    @classmethod
    def from_folder(cls, path: str | os.PathLike[str]) -> TextModel:
        """From a folder with tokenizer.json, and, where it has them, tokenizer_config.json, chat_template.jinja,
        generation_config.json and config.json."""
        folder = Path(path)
        tokenizer_json, template, config = read_folder(folder)
        return _located(str(folder), cls, tokenizer_json, template, config)

    @classmethod
    def from_gguf(cls, path: str | os.PathLike[str]) -> TextModel:
        """From a GGUF file's metadata; its tensors are not touched."""
        from flash_wire.text.gguf_file import read_metadata
        from flash_wire.text.gguf_vocab import read_vocab

        try:
            tokenizer_json, template, config = read_vocab(read_metadata(Path(path)))
        except TextError as error:
            raise TextError(f"{path}: {error}") from None
        return _located(str(path), cls, tokenizer_json, template, config)

    @classmethod
    def from_assets(cls, tokenizer_json: bytes, chat_template: str, config_json: str) -> TextModel:
        """From what another process's assets() gave."""
        return cls(tokenizer_json, chat_template, config_json)

    def assets(self) -> tuple[bytes, str, str]:
        """(tokenizer.json, chat template, config JSON): all that a peer needs. The first may have many megabytes."""
        return self._assets

    @property
    def has_template(self) -> bool:
        return self._template is not None

    def encode(self, text: str, most: int | None = None) -> list[int]:
        """A raw prompt. Special tokens written in it are read as such; the beginning-of-text id is added where the
        model wants one. Raises ValueError for text that is not valid Unicode, and TooLong, a ValueError, before any
        work for a text whose length shows that it has more than `most` tokens."""
        return self._ids(text, "prompt", most, add_special_tokens=True)

    def encode_chat(self, messages: Sequence[Message], most: int | None = None) -> list[int]:
        """(role, content) messages through the model's template, with the beginning of the answer at the end.

        Control tokens inside a content are plain text: no message can end its turn or speak for another role.
        Raises ValueError that names the message at fault, or says to use a prompt where the model has no template.
        Raises TooLong as `encode` does.
        """
        if self._template is None:
            raise ValueError("messages: this model has no chat template: send prompt instead")
        self._template.check(messages)
        for number, (role, content) in enumerate(messages, 1):
            _check_unicode(content, f"message {number} ({role})")
        if self._controls.found_in(messages):
            return self._controls.encode(messages, self._template.render, lambda text: self._check_length(text, most))
        return self._ids(self._template.render(messages), "messages", most, add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of an answer. Special and unknown ids add nothing; broken UTF-8 becomes U+FFFD."""
        text = RunningText(self.pieces)
        return "".join([text.add(number) for number in ids]) + text.end()

    def _ids(self, text: str, what: str, most: int | None, *, add_special_tokens: bool) -> list[int]:
        self._check_length(text, most)
        _check_unicode(text, what)
        return encode(self._tokenizer, text, what, add_special_tokens)

    def _check_length(self, text: str, most: int | None) -> None:
        """Of a text as the tokenizer gets it. Raises TooLong."""
        if most is not None and len(text) > most and (at_least := self.bound.least(text)) > most:
            raise TooLong(len(text), at_least)


def _located(
    where: str, cls: type[TextModel], tokenizer_json: bytes, template: str, config: dict[str, Any]
) -> TextModel:
    try:
        return cls(tokenizer_json, template, json.dumps(config, sort_keys=True, ensure_ascii=False))
    except TextError as error:
        raise TextError(f"{where}: {error}") from None


def _hash(assets: tuple[bytes, str, str]) -> str:
    digest = hashlib.sha256()
    for part in assets:
        data = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[:16]


def _load_json(tokenizer_json: bytes) -> dict[str, Any]:
    if len(tokenizer_json) > MAX_FILE:
        raise TextError(f"tokenizer.json: {len(tokenizer_json)} bytes, at most {MAX_FILE} are read")
    try:
        data = json.loads(tokenizer_json)
    except (ValueError, RecursionError) as error:
        raise TextError(f"tokenizer.json: not JSON ({error}): copy the file again") from None
    if not isinstance(data, dict) or not isinstance(data.get("model"), dict):
        raise TextError("tokenizer.json: has no model: copy the file again")
    return data


def _load_tokenizer(tokenizer_json: bytes) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_buffer(tokenizer_json)
        tokenizer.no_truncation()  # a stored training setting, which would cut prompts without a word
        tokenizer.no_padding()
        tokenizer.encode("a \u00e9\n1")
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library's own panics are no Exception
        raise TextError(
            f"tokenizer.json: the tokenizers library refuses it ({error}): copy the file again, or convert"
            " it with a newer transformers"
        ) from None
    return tokenizer


def _load_config(config_json: str) -> tuple[dict[str, str], set[int], list[str]]:
    try:
        config = json.loads(config_json)
    except (ValueError, RecursionError) as error:
        raise TextError(f"text config: not JSON ({error})") from None
    if not isinstance(config, dict):
        raise TextError(f"text config: holds {type(config).__name__}, an object is meant")
    tokens, ids = config.get("special_tokens", {}), config.get("stop_ids", [])
    if not isinstance(tokens, dict) or not all(isinstance(text, str) for text in tokens.values()):
        raise TextError("text config: special_tokens must map names to texts")
    if not isinstance(ids, list) or not all(type(number) is int and 0 <= number < 2**32 for number in ids):
        raise TextError("text config: stop_ids must be a list of token ids")
    reserved = {"messages", "tools", "documents", "add_generation_prompt"} & tokens.keys()
    if reserved or not all(name.isidentifier() for name in tokens):
        raise TextError("text config: special_tokens has a name that no token can have")
    return tokens, set(ids), [text for name, text in tokens.items() if name == "eos_token"]


def _check_unicode(text: str, what: str) -> None:
    if not isinstance(text, str):
        raise ValueError(f"{what}: must be text, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what}: character {error.start + 1} is U+{ord(text[error.start]):04X}, half of a surrogate"
            " pair, which no valid text holds: send valid UTF-8"
        ) from None
