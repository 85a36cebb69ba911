"""GGUF metadata -> the three text assets.

A GGUF holds a vocabulary and its merges or scores, and names the way text was split. From these a tokenizer.json is
written that reads text as the model's own one does.
"""

from __future__ import annotations

import json
from typing import Any

from flash_wire.text.errors import TextError
from flash_wire.text.folder import SPECIAL_NAMES

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Values of tokenizer.ggml.token_type."""

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + r"|\p{N}{1,3}" + _REST
_QWEN2 = _CONTRACTIONS + r"|\p{N}" + _REST
_SPLITS = {
    "gpt-2": [_GPT2],
    "smollm": [r"\p{N}", _GPT2],
    "llama-bpe": [_LLAMA3],
    "qwen2": [_QWEN2],
    # What llama.cpp does for a file that names no way, and for one that says "default".
    "default": [r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
}
_SAME = {
    "gpt2": "gpt-2",
    "olmo": "gpt-2",
    "starcoder": "smollm",
    "refact": "smollm",
    "llama3": "llama-bpe",
    "llama-v3": "llama-bpe",
    "falcon3": "llama-bpe",
    "deepseek-r1-qwen": "qwen2",
    "": "default",
}
_KEYS = {"unk_token": "unknown_token_id", "pad_token": "padding_token_id", "sep_token": "seperator_token_id"}
_STOP_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


def read_vocab(meta: dict[str, Any]) -> tuple[bytes, str, dict[str, Any]]:
    """tokenizer.json's bytes, the chat template ("" for none), and {"special_tokens": ..., "stop_ids": ...}.

    Raises TextError that names the key at fault.
    """
    kind = meta.get("tokenizer.ggml.model")
    if kind is None:
        raise TextError("the metadata has no tokenizer.ggml.model: convert the model again with its tokenizer")
    tokens = _texts(meta, "tokens")
    if not tokens:
        raise TextError("tokenizer.ggml.tokens is empty: convert the model again with its tokenizer")
    types = _numbers(meta, "token_type", len(tokens)) or [NORMAL] * len(tokens)
    vocab = {token: number for number, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        number = next(number for number, token in enumerate(tokens) if vocab[token] != number)
        raise TextError(
            f"tokenizer.ggml.tokens has {tokens[number]!r} as {number} and as {vocab[tokens[number]]}: one"
            " of the two would have no text; convert the model again"
        )
    if kind == "gpt2":
        parts = _byte_level(meta, vocab)
    elif kind == "llama":
        parts = _sentencepiece(meta, vocab, types)
    else:
        raise TextError(
            f"tokenizer.ggml.model is {kind!r}; known are gpt2 (byte-level BPE) and llama (SentencePiece"
            " BPE): use the model's safetensors folder with its tokenizer.json"
        )
    special_tokens = _special_tokens(meta, tokens)
    ends = {special_tokens.get("bos_token"), special_tokens.get("eos_token")}
    data = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": _added_tokens(tokens, types, ends),
        **parts,
        "post_processor": _beginning(meta, kind, vocab, special_tokens),
    }  # fmt: skip
    stop_ids = {stop for key in _STOP_KEYS if (stop := _id(meta, key, len(tokens))) is not None}
    template = meta.get("tokenizer.chat_template", "")
    if not isinstance(template, str):
        raise TextError(
            f"tokenizer.chat_template is {type(template).__name__}, a text is meant: convert the model again"
        )
    config = {"special_tokens": special_tokens, "stop_ids": sorted(stop_ids)}
    return json.dumps(data, ensure_ascii=False).encode(), template, config


def _byte_level(meta: dict[str, Any], vocab: dict[str, int]) -> dict[str, Any]:
    name = meta.get("tokenizer.ggml.pre", "")
    splits = _SPLITS.get(_SAME.get(name, name)) if isinstance(name, str) else None
    if splits is None:
        known = ", ".join(sorted([*_SPLITS, *(other for other in _SAME if other)]))
        raise TextError(
            f"tokenizer.ggml.pre is {name!r}; known are {known}: use the model's safetensors folder with its"
            " tokenizer.json"
        )
    merges = [merge.split(" ", 1) for merge in _texts(meta, "merges")]
    for number, merge in enumerate(merges):
        if len(merge) != 2 or merge[0] not in vocab or merge[1] not in vocab or "".join(merge) not in vocab:
            raise TextError(
                f"tokenizer.ggml.merges, entry {number}, {' '.join(merge)!r}, is no pair of tokens that makes"
                " a token: convert the model again"
            )
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False} for regex in splits
    ]
    return {
        # Qwen's own tokenizer composes characters first; llama.cpp leaves that out.
        "normalizer": {"type": "NFC"} if splits is _SPLITS["qwen2"] else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*split, byte_level]},
        "decoder": byte_level,
        "model": _bpe(vocab, merges, ignore_merges=splits is _SPLITS["llama-bpe"]),
    }


def _sentencepiece(meta: dict[str, Any], vocab: dict[str, int], types: list[int]) -> dict[str, Any]:
    scores = _numbers(meta, "scores", len(vocab))
    if not scores:
        raise TextError(
            "tokenizer.ggml.scores is missing, which a SentencePiece vocabulary is merged by: convert the model again"
        )
    unknown = _id(meta, "unknown_token_id", len(vocab))
    unk_token = next((token for token, number in vocab.items() if number == unknown or types[number] == UNKNOWN), None)
    bytes_known = all(f"<0x{byte:02X}>" in vocab for byte in range(256))
    if unk_token is None and not bytes_known:
        raise TextError(
            "tokenizer.ggml.tokens has neither an unknown token nor all bytes <0x00> to <0xFF>, so that not"
            " every text can be read: convert the model again"
        )
    prefix = meta.get("tokenizer.ggml.add_space_prefix", True) is not False
    to_mark = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    to_space = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    prepend = [{"type": "Prepend", "prepend": "▁"}] if prefix else []
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*prepend, to_mark]},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": [to_space, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]},
        "model": _bpe(vocab, _score_merges(vocab, types, scores), unk_token=unk_token, fuse_unk=True,
                      byte_fallback=bytes_known),
    }  # fmt: skip


def _score_merges(vocab: dict[str, int], types: list[int], scores: list[float]) -> list[list[str]]:
    """SentencePiece joins the two neighbours whose joined token has the best score, in whatever two parts it came.

    As a list of merges: every cut of every token into two tokens, the best-scored token first. Only normal tokens take
    part, so that no text is joined to a control token or to the name of a byte.
    """
    normal = {token for token, number in vocab.items() if types[number] in (NORMAL, UNUSED)}
    best_first = sorted(normal, key=lambda token: (-scores[vocab[token]], vocab[token]))
    return [
        [token[:cut], token[cut:]]
        for token in best_first
        for cut in range(len(token) - 1, 0, -1)
        if token[:cut] in normal and token[cut:] in normal
    ]


def _bpe(vocab: dict[str, int], merges: list[list[str]], **settings: Any) -> dict[str, Any]:
    plain = {"dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}  # fmt: skip
    return {"type": "BPE", **plain, **settings, "vocab": vocab, "merges": merges}


def _added_tokens(tokens: list[str], types: list[int], ends: set[str | None]) -> list[dict[str, Any]]:
    """Tokens that are found in a text before anything else. Without a token_type the two ends are all that is known."""
    special = {number for number, kind in enumerate(types) if kind in (CONTROL, UNKNOWN)}
    special |= {number for number, token in enumerate(tokens) if token in ends}
    return [
        {"id": number, "content": tokens[number], "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": number in special}
        for number, kind in enumerate(types)
        if (number in special or kind == USER_DEFINED) and tokens[number]
    ]  # fmt: skip


def _beginning(
    meta: dict[str, Any], kind: str, vocab: dict[str, int], special_tokens: dict[str, str]
) -> dict[str, Any] | None:
    """The post-processor that puts the beginning-of-text id before a raw prompt, where the model wants it."""
    pre = meta.get("tokenizer.ggml.pre", "")
    by_default = kind == "llama" or _SAME.get(pre, pre) == "llama-bpe"
    bos = special_tokens.get("bos_token")
    if bos is None or not meta.get("tokenizer.ggml.add_bos_token", by_default):
        return None
    first, text = {"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [first, text],
        "pair": [first, text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {bos: {"id": bos, "ids": [vocab[bos]], "tokens": [bos]}},
    }


def _special_tokens(meta: dict[str, Any], tokens: list[str]) -> dict[str, str]:
    """bos_token and so on, as chat templates name them."""
    found = {name: _id(meta, _KEYS.get(name, f"{name}_id"), len(tokens)) for name in SPECIAL_NAMES}
    return {name: tokens[number] for name, number in found.items() if number is not None}


def _id(meta: dict[str, Any], key: str, size: int) -> int | None:
    number = meta.get(f"tokenizer.ggml.{key}")
    if number is None or (type(number) is int and number in (0xFFFFFFFF, -1)):  # both are written for "none"
        return None
    if type(number) is not int or not 0 <= number < size:
        raise TextError(f"tokenizer.ggml.{key} is {number!r}: an id below {size} is meant; convert the model again")
    return number


def _texts(meta: dict[str, Any], key: str) -> list[str]:
    value = meta.get(f"tokenizer.ggml.{key}")
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        what = "missing" if value is None else f"{type(value).__name__}, not a list of texts"
        raise TextError(f"tokenizer.ggml.{key} is {what}: convert the model again with its tokenizer")
    return value


def _numbers(meta: dict[str, Any], key: str, count: int) -> list[Any]:
    """The list, [] where there is none."""
    value = meta.get(f"tokenizer.ggml.{key}")
    if value is None:
        return []
    if not isinstance(value, list) or len(value) != count or not all(isinstance(one, int | float) for one in value):
        raise TextError(
            f"tokenizer.ggml.{key} must have one number for each of {count} tokens: convert the model again"
        )
    return value
