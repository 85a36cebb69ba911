"""A model folder as Hugging Face lays it out -> the three text assets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flash_wire.text.errors import TextError

MAX_FILE = 256 * 1024 * 1024
"""Bytes of any of the files read here."""
SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


def read_folder(folder: Path) -> tuple[bytes, str, dict[str, Any]]:
    """tokenizer.json's bytes, the chat template ("" for none), and {"special_tokens": {...}, "stop_ids": [...]}.

    Stop ids named by a token that the tokenizer must look up stand under "stop_tokens". Raises TextError.
    """
    if not folder.is_dir():
        raise TextError(f"{folder}: no such folder: give the folder that holds tokenizer.json")
    file = folder / "tokenizer.json"
    if not file.is_file():
        other = next((name for name in ("tokenizer.model", "vocab.json", "vocab.txt") if (folder / name).is_file()), "")
        hint = (
            f"there is {other}: convert it with transformers' AutoTokenizer.from_pretrained(...).save_pretrained(...)"
            if other
            else "copy it from the model's page"
        )
        raise TextError(f"{file}: no such file; {hint}")
    config = _json(folder / "tokenizer_config.json")
    special = _json(folder / "special_tokens_map.json") | config
    tokens = {name: text for name in SPECIAL_NAMES if (text := _token_text(special.get(name)))}
    stops: list[int] = []
    for name in ("generation_config.json", "config.json"):
        ids = _json(folder / name).get("eos_token_id")
        stops += _ids(ids, f"{folder / name}: eos_token_id")
    return read_file(file), _template(folder, config), {"special_tokens": tokens, "stop_ids": stops}


def read_file(file: Path) -> bytes:
    try:
        size = file.stat().st_size
        if size > MAX_FILE:
            raise TextError(f"{file}: {size} bytes, at most {MAX_FILE} are read: is this the right file?")
        return file.read_bytes()
    except OSError as error:
        raise TextError(f"{file}: cannot be read ({error.strerror}): check its rights") from None


def _text(file: Path) -> str:
    try:
        return read_file(file).decode()
    except UnicodeDecodeError as error:
        raise TextError(f"{file}: broken UTF-8 at byte {error.start}: copy the file again") from None


def _json(file: Path) -> dict[str, Any]:
    """The file's object; {} where there is no such file."""
    if not file.is_file():
        return {}
    try:
        data = json.loads(_text(file))
    except (json.JSONDecodeError, RecursionError) as error:
        raise TextError(f"{file}: not JSON ({error}): copy the file again") from None
    if not isinstance(data, dict):
        raise TextError(f"{file}: holds {type(data).__name__}, an object is meant: copy the file again")
    return data


def _template(folder: Path, config: dict[str, Any]) -> str:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return _text(file)
    template = config.get("chat_template")
    if isinstance(template, list):  # several named ones: [{"name": ..., "template": ...}]
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    if template is None:
        return ""
    if not isinstance(template, str):
        raise TextError(
            f"{folder / 'tokenizer_config.json'}: chat_template is {type(template).__name__}: a text, or a"
            " list with one named default, is meant"
        )
    return template


def _token_text(value: Any) -> str:
    """A special token is written as its text or as an object with `content`."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else ""


def _ids(value: Any, where: str) -> list[int]:
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(number, int) and not isinstance(number, bool) and number >= 0 for number in ids):
        raise TextError(f"{where} is {value!r}: a token id or a list of them is meant")
    return ids
