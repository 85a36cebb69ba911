"""Tokenizers from GGUF metadata read text as other programs do."""

from __future__ import annotations

import heapq
import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import regex
from flash_wire.text import TextError, TextModel
from flash_wire.text.gguf_file import read_metadata
from support.texts import TEXTS
from support.tiny_vocab_gguf import bpe_keys, spm_keys, write_gguf
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

SPECIAL_TEXTS = [
    "<|im_start|>user\nhi<|im_end|>",
    "a <|endoftext|> b",
    "<|im_end",
    "x<|im_start|><|im_start|>",
    "<s>a</s>b",
]


@pytest.fixture(scope="module")
def smollm_reference(smollm_file: Path) -> Any:
    return AutoTokenizer.from_pretrained(str(smollm_file.parent), gguf_file=smollm_file.name, local_files_only=True)


def with_digits_apart(reference: Any) -> Any:
    """transformers does not look at `smollm`; the model's own tokenizer.json splits digits off first."""
    tokenizer = Tokenizer.from_str(reference.backend_tokenizer.to_str())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return tokenizer


def test_smollm_encodes_as_its_own_tokenizer(smollm: TextModel, smollm_reference: Any) -> None:
    own = with_digits_apart(smollm_reference)
    for text in TEXTS + SPECIAL_TEXTS + ["spaces before   12", "\n\n 7"]:
        assert smollm.encode(text) == own.encode(text).ids, text


def test_smollm_encodes_as_transformers_where_splitting_digits_off_changes_nothing(
    smollm: TextModel, smollm_reference: Any
) -> None:
    compared = [text for text in TEXTS + SPECIAL_TEXTS if not regex.search(r"\s\s\p{N}|(?![0-9])\p{N}", text)]
    assert len(compared) > 25
    for text in compared:
        assert smollm.encode(text) == smollm_reference.encode(text), text


def test_smollm_decodes_as_transformers(smollm: TextModel, smollm_reference: Any) -> None:
    for text in TEXTS + SPECIAL_TEXTS:
        ids = smollm.encode(text)
        assert smollm.decode(ids) == smollm_reference.decode(ids, skip_special_tokens=True), text


def test_smollm_chat_is_transformers_chat(smollm: TextModel, smollm_reference: Any) -> None:
    chat = [("system", "Be brief."), ("user", "What is 2 + 2?"), ("assistant", "4"), ("user", "Größer? 😀")]
    messages = [{"role": role, "content": content} for role, content in chat]
    for part in (messages, messages[1:], messages[:2]):
        wanted = smollm_reference.apply_chat_template(part, tokenize=False, add_generation_prompt=True)
        ids = smollm.encode_chat([(m["role"], m["content"]) for m in part])
        assert ids == smollm_reference.encode(wanted, add_special_tokens=False)


def test_metadata_is_what_the_gguf_package_reads(tmp_path: Path, spm_file: Path) -> None:
    from gguf import GGUFReader

    for file in (spm_file, write_gguf(tmp_path / "m.gguf", bpe_keys("qwen2"))):
        fields = GGUFReader(file).fields
        ours = read_metadata(file, lambda key: True)
        assert ours == {key: field.contents() for key, field in fields.items() if not key.startswith("GGUF.")}
        assert set(read_metadata(file)) == {key for key in ours if key.startswith("tokenizer.")}


def test_smollm_stops_at_both_ends(smollm: TextModel) -> None:
    assert smollm.vocab_size == 49152
    assert {smollm.decode([number]) for number in smollm.stop_ids} == {""}
    assert smollm.stop_ids == set(smollm.encode("<|im_end|><|endoftext|>"))


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2"])
def test_byte_level_as_transformers(tmp_path: Path, pre: str) -> None:
    write_gguf(tmp_path / "m.gguf", bpe_keys(pre))
    text_model = TextModel.from_gguf(tmp_path / "m.gguf")
    reference = PreTrainedTokenizerFast.from_pretrained(str(tmp_path), gguf_file="m.gguf", local_files_only=True)
    for text in TEXTS + SPECIAL_TEXTS:
        # Qwen's own tokenizer composes characters, which transformers leaves out for GGUF.
        given = unicodedata.normalize("NFC", text) if pre == "qwen2" else text
        assert text_model.encode(text) == reference.encode(given), text
        if pre != "llama-bpe":  # whole words first: transformers leaves that out for GGUF, and only a merge can differ
            assert text_model.decode(text_model.encode(given)) == reference.decode(
                reference.encode(given), skip_special_tokens=True
            )


LLAMA_CPP_SPLITS = {
    "gpt-2": [r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"],
    "smollm": [r"\p{N}", r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"],
    "default": [
        r"[\p{P}\$\+<=>\^~\|]+",
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
        r"\p{N}+",
        r"[0-9][0-9][0-9]",
    ],
    "llama-bpe": [
        r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "qwen2": [
        r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
}


def split_one_after_the_other(patterns: list[str], text: str) -> list[str]:
    """Each pattern cuts the pieces of the one before; what it does not match stays a piece."""
    pieces = [text] if text else []
    for pattern in patterns:
        cut: list[str] = []
        for piece in pieces:
            place = 0
            for match in regex.finditer(pattern, piece):
                cut += [piece[place : match.start()], match[0]]
                place = match.end()
            cut.append(piece[place:])
        pieces = [piece for piece in cut if piece]
    return pieces


@pytest.mark.parametrize("pre", sorted(LLAMA_CPP_SPLITS))
def test_text_is_split_as_llama_cpp_does(tmp_path: Path, pre: str) -> None:
    file = write_gguf(tmp_path / "m.gguf", bpe_keys(pre))
    tokenizer = Tokenizer.from_buffer(TextModel.from_gguf(file).assets()[0])
    for text in TEXTS:
        pieces = [text[start:end] for _, (start, end) in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
        assert pieces == split_one_after_the_other(LLAMA_CPP_SPLITS[pre], text), text


def test_the_ways_of_splitting_differ(tmp_path: Path) -> None:
    """Or the two tests above could pass with one way for all."""
    files = {pre: write_gguf(tmp_path / f"{pre}.gguf", bpe_keys(pre)) for pre in LLAMA_CPP_SPLITS}
    models = {pre: TextModel.from_gguf(file) for pre, file in files.items()}
    text = "in 2024, at   12 or\n\n'quoted' DON'T, 1234"
    assert len({tuple(model.encode(text)) for model in models.values()}) == len(models)


def sentencepiece_oracle(keys: dict[str, Any], text: str) -> list[int]:
    """SentencePiece's own procedure: join the neighbours with the best-scored joined token, the leftmost first."""
    tokens, scores = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.scores"]
    ids = {token: number for number, token in enumerate(tokens) if keys["tokenizer.ggml.token_type"][number] == 1}
    parts: list[str | None] = list(text.replace(" ", "▁"))
    after = {place: place + 1 for place in range(len(parts))}
    queue: list[tuple[float, int, int, str]] = []

    def offer(left: int) -> None:
        right = after[left]
        if right < len(parts) and parts[left] and parts[right] and (joined := parts[left] + parts[right]) in ids:
            heapq.heappush(queue, (-scores[ids[joined]], left, right, joined))

    for place in range(len(parts) - 1):
        offer(place)
    while queue:
        _, left, right, joined = heapq.heappop(queue)
        if parts[left] is None or parts[right] is None or parts[left] + parts[right] != joined or after[left] != right:
            continue
        parts[left], parts[right] = joined, None
        after[left] = after[right]
        before = next((place for place in range(left - 1, -1, -1) if parts[place]), None)
        if before is not None:
            offer(before)
        offer(left)
    out: list[int] = []
    for part in parts:
        if part:
            out += [ids[part]] if part in ids else [tokens.index(f"<0x{byte:02X}>") for byte in part.encode()]
    return out


@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepiece_merges_by_score(tmp_path: Path, prefix: bool) -> None:
    keys = spm_keys(add_space_prefix=prefix)
    text_model = TextModel.from_gguf(write_gguf(tmp_path / "m.gguf", keys))
    for text in TEXTS[:22] + TEXTS[23:]:  # without the long run of one letter, where equal scores meet
        wanted = sentencepiece_oracle(keys, (" " if prefix and text else "") + text)
        assert text_model.encode(text) == [1, *wanted], text
        assert text_model.decode([1, *wanted]) == text.replace("▁", " ")


def test_sentencepiece_as_transformers(spm_file: Path, spm: TextModel) -> None:
    from transformers import LlamaTokenizer

    reference = LlamaTokenizer.from_pretrained(str(spm_file.parent), gguf_file=spm_file.name, local_files_only=True)
    # At a leading space and after special tokens llama.cpp and Llama's own files put one more space than transformers.
    for text in [text for text in TEXTS if not text.startswith(" ")]:
        assert spm.encode(text) == reference.encode(text), text
        assert spm.decode(spm.encode(text)) == reference.decode(reference.encode(text), skip_special_tokens=True), text


def test_sentencepiece_text_never_becomes_a_control_or_a_byte_token(spm: TextModel) -> None:
    plain = spm.encode("a <0x41> b")
    assert spm.decode(plain) == "a <0x41> b"
    assert spm.encode("x<s>y").count(1) == 2  # a raw prompt may hold control tokens: one written, one of the beginning


def test_user_defined_tokens_are_words_that_stay_whole(spm: TextModel) -> None:
    ids = spm.encode("a<|user|>b")
    assert 259 in ids
    assert spm.decode(ids) == "a<|user|> b"  # as with llama.cpp, text after an added token begins with a space


@pytest.mark.parametrize("add_bos", [True, False, None])
def test_beginning_of_text(tmp_path: Path, add_bos: bool | None) -> None:
    keys = spm_keys() if add_bos is None else spm_keys(add_bos_token=add_bos)
    text_model = TextModel.from_gguf(write_gguf(tmp_path / "m.gguf", keys))
    assert (text_model.encode("dog")[0] == 1) is (add_bos is not False)
    assert text_model.encode_chat([("user", "dog")]).count(1) == 2  # those that the template writes


def test_end_of_turn_keys_are_stops(tmp_path: Path) -> None:
    text_model = TextModel.from_gguf(write_gguf(tmp_path / "m.gguf", bpe_keys("gpt-2", eot_token_id=7)))
    assert text_model.stop_ids == {0, 2, 7}  # <|endoftext|> by its name, eos and eot by their keys


BROKEN = {
    "model": ("bert", "tokenizer.ggml.model is 'bert'"),
    "pre": ("nobody-knows", "tokenizer.ggml.pre is 'nobody-knows'"),
    "tokens": (["a", "a"], "as 0 and as 1"),
    "merges": (["t h", "no-such pair"], "tokenizer.ggml.merges, entry 1"),
    "token_type": ([1, 2, 3], "tokenizer.ggml.token_type"),
    "eos_token_id": (1_000_000, "tokenizer.ggml.eos_token_id is 1000000"),
}


@pytest.mark.parametrize("key", sorted(BROKEN))
def test_broken_keys_are_named(tmp_path: Path, key: str) -> None:
    value, message = BROKEN[key]
    keys = bpe_keys("gpt-2") | {f"tokenizer.ggml.{key}": value}
    if key == "tokens":
        keys["tokenizer.ggml.token_type"] = [1, 1]
    with pytest.raises(TextError, match=message) as caught:
        TextModel.from_gguf(write_gguf(tmp_path / "m.gguf", keys))
    assert "m.gguf" in str(caught.value)


@pytest.mark.parametrize("key", ["model", "tokens", "merges"])
def test_missing_keys_are_named(tmp_path: Path, key: str) -> None:
    keys = bpe_keys("gpt-2")
    del keys[f"tokenizer.ggml.{key}"]
    with pytest.raises(TextError, match=f"tokenizer.ggml.{key}"):
        TextModel.from_gguf(write_gguf(tmp_path / "m.gguf", keys))


def test_files_that_are_no_whole_gguf(tmp_path: Path, smollm_file: Path) -> None:
    file = tmp_path / "m.gguf"
    with smollm_file.open("rb") as whole:
        start = whole.read(600_000)
    for content, message in [
        (b"", "empty"),
        (b"PK\x03\x04 a zip", "no GGUF file"),
        (start[:4], "cut short"),
        (start[:100], "cut short"),
        (start, "cut short"),
        (b"GGUF" + (3).to_bytes(4, "big") + start[8:], "big-endian"),
        (b"GGUF" + (9).to_bytes(4, "little") + start[8:], "version 9"),
    ]:
        file.write_bytes(content)
        with pytest.raises(TextError, match=message):
            TextModel.from_gguf(file)
    with pytest.raises(TextError, match=r"none\.gguf.*cannot be read"):
        TextModel.from_gguf(tmp_path / "none.gguf")


def test_the_same_file_gives_the_same_hash(smollm: TextModel, smollm_file: Path) -> None:
    assert TextModel.from_gguf(smollm_file).hash == smollm.hash
    copy = TextModel.from_assets(*smollm.assets())
    assert copy.hash == smollm.hash
    assert copy.encode_chat([("user", "hi 12")]) == smollm.encode_chat([("user", "hi 12")])
    assert json.loads(smollm.assets()[2])["stop_ids"] == [2]
