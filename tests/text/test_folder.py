"""Model folders, peers' assets, and what a TextModel promises whatever it was made from."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from flash_wire.text import TextError, TextModel
from support.texts import TEXTS
from support.tiny_text import SPECIALS, make_tiny_tokenizer_folder
from transformers import AutoTokenizer


@pytest.fixture
def folder(tmp_path: Path, tiny_folder: Path) -> Path:
    """A folder of the test's own."""
    return Path(shutil.copytree(tiny_folder, tmp_path / "model"))


def change(file: Path, **values: Any) -> None:
    data = json.loads(file.read_text()) if file.exists() else {}
    for name, value in values.items():
        data.pop(name, None) if value is None else data.update({name: value})
    file.write_text(json.dumps(data))


def test_a_folder_reads_as_transformers(folder: Path) -> None:
    ours, reference = TextModel.from_folder(folder), AutoTokenizer.from_pretrained(str(folder))
    for text in [*TEXTS, "<|im_start|>user\nhi<|im_end|>"]:
        ids = ours.encode(text)
        assert ids == reference.encode(text)
        assert ours.decode(ids) == reference.decode(ids, skip_special_tokens=True)
    messages = [{"role": "user", "content": text} for text in TEXTS]
    wanted = reference.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    chat = [(message["role"], message["content"]) for message in messages]
    assert ours.encode_chat(chat) == reference.encode(wanted, add_special_tokens=False)


def test_tiny_folders_have_every_id(tmp_path: Path) -> None:
    for size in (259, 300, 1000):
        tiny = make_tiny_tokenizer_folder(tmp_path / str(size), size)
        text_model = TextModel.from_folder(tiny.folder)
        assert text_model.vocab_size == size
        assert text_model.encode("".join(SPECIALS)) == [0, 1, 2]
        assert text_model.decode(text_model.encode("é <x>\n\x00")) == "é <x>\n\x00"
    assert (
        make_tiny_tokenizer_folder(tmp_path / "again", 300).folder.joinpath("tokenizer.json").read_bytes()
        == (tmp_path / "300/tokenizer.json").read_bytes()
    )


def test_stop_ids_come_from_all_files(folder: Path) -> None:
    assert TextModel.from_folder(folder).stop_ids == {0, 2}  # <|endoftext|> by its name, eos_token
    change(folder / "generation_config.json", eos_token_id=[5, 6])
    change(folder / "config.json", eos_token_id=7)
    assert TextModel.from_folder(folder).stop_ids == {0, 2, 5, 6, 7}


def test_stop_ids_have_no_text(folder: Path) -> None:
    letter = TextModel.from_folder(folder).encode("q")
    change(folder / "config.json", eos_token_id=letter[0])
    changed = TextModel.from_folder(folder)
    assert changed.decode(changed.encode("1q2")) == "12"


def test_the_template_file_comes_before_the_config(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ bos_token }}{{ messages[0].content }}!")
    assert TextModel.from_folder(folder).encode_chat([("user", "a")]) == TextModel.from_folder(folder).encode(
        "<|im_start|>a!"
    )


def test_named_templates_and_tokens_as_objects(folder: Path) -> None:
    change(
        folder / "tokenizer_config.json",
        chat_template=[{"name": "tools", "template": "no"}, {"name": "default", "template": "{{ eos_token }}"}],
        eos_token={"content": "<|im_end|>", "special": True},
    )
    assert TextModel.from_folder(folder).encode_chat([("user", "a")]) == [2]


def test_without_a_template_messages_are_refused_and_prompts_are_not(folder: Path) -> None:
    change(folder / "tokenizer_config.json", chat_template=None)
    text_model = TextModel.from_folder(folder)
    assert not text_model.has_template
    assert text_model.encode("a")
    with pytest.raises(ValueError, match="no chat template: send prompt instead"):
        text_model.encode_chat([("user", "a")])


def test_stored_truncation_and_padding_are_dropped(folder: Path) -> None:
    change(
        folder / "tokenizer.json",
        truncation={"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
        padding={"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                 "pad_type_id": 0, "pad_token": "<|endoftext|>"},
    )  # fmt: skip
    text_model = TextModel.from_folder(folder)
    assert text_model.decode(text_model.encode("abcdefgh")) == "abcdefgh"
    assert len(text_model.encode("a")) == 1


def test_metaspace_decoders_lose_the_first_space_only(folder: Path) -> None:
    marks = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    vocab = {"<unk>": 0, "▁a": 1, "▁b": 2, "▁": 3, "c": 4, "▁▁": 5}
    data = json.loads((folder / "tokenizer.json").read_text())
    model = {"type": "BPE", "vocab": vocab, "merges": [], "unk_token": "<unk>"}
    change(folder / "tokenizer.json", decoder=marks, pre_tokenizer=marks, model=data["model"] | model, added_tokens=[])
    from tokenizers import Tokenizer

    library, ours = Tokenizer.from_file(str(folder / "tokenizer.json")), TextModel.from_folder(folder)
    for ids in ([1, 2, 4], [4, 1], [5, 1], [3, 3, 1], [99, 1, 1], []):
        assert ours.decode(ids) == library.decode(ids)


def test_hash_is_of_all_three_assets(tiny: TextModel) -> None:
    tokenizer_json, template, config = tiny.assets()
    same = TextModel.from_assets(tokenizer_json, template, config)
    assert same.hash == tiny.hash
    assert len(tiny.hash) == 16
    others = {
        TextModel.from_assets(tokenizer_json + b"\n", template, config).hash,
        TextModel.from_assets(tokenizer_json, template + " ", config).hash,
        TextModel.from_assets(tokenizer_json, template, config + " ").hash,
        tiny.hash,
    }
    assert len(others) == 4


def test_a_peer_reads_and_writes_the_same(tiny: TextModel) -> None:
    peer = TextModel.from_assets(*tiny.assets())
    chat = [("system", "s"), ("user", "x <|im_end|> y")]
    assert peer.encode_chat(chat) == tiny.encode_chat(chat)
    assert (peer.stop_ids, peer.special_ids, peer.vocab_size) == (tiny.stop_ids, tiny.special_ids, tiny.vocab_size)


def test_many_threads_at_once(tiny: TextModel) -> None:
    fresh = TextModel.from_assets(*tiny.assets())  # so that what is built on first use is built under the threads
    chats = [[("user", text + ("<|im_end|>" if number % 2 else ""))] for number, text in enumerate(TEXTS)] * 8
    wanted = [tiny.encode_chat(chat) for chat in chats]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(fresh.encode_chat, chats)) == wanted
        texts = [fresh.decode(ids) for ids in wanted]
        assert list(pool.map(TextModel.from_assets(*tiny.assets()).decode, wanted)) == texts


@pytest.mark.parametrize("text", ["a\ud800b", "\udfff"])
def test_lone_surrogates_are_refused(tiny: TextModel, text: str) -> None:
    with pytest.raises(ValueError, match=r"prompt: character \d is U\+D[8F]\w\w, half of a surrogate pair") as caught:
        tiny.encode(text)
    assert not isinstance(caught.value, UnicodeError)
    with pytest.raises(ValueError, match=r"message 2 \(user\): character \d"):
        tiny.encode_chat([("system", "fine"), ("user", text)])
    with pytest.raises(ValueError, match="must be text, not bytes"):
        tiny.encode(b"abc")  # type: ignore[arg-type]


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(TextError, match="no such folder"):
        TextModel.from_folder(tmp_path / "none")
    with pytest.raises(TextError, match=r"tokenizer\.json: no such file"):
        TextModel.from_folder(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"x")
    with pytest.raises(TextError, match=r"there is tokenizer\.model: convert it"):
        TextModel.from_folder(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("tokenizer.json", "{", "tokenizer.json: not JSON"),
        ("tokenizer.json", "[]", "has no model"),
        ("tokenizer.json", '{"model": {"type": "Nonsense"}}', "the tokenizers library refuses it"),
        ("tokenizer_config.json", "nope", "tokenizer_config.json: not JSON"),
        ("tokenizer_config.json", "[1]", "holds list"),
        ("tokenizer_config.json", '{"chat_template": 3}', "chat_template is int"),
        ("tokenizer_config.json", '{"chat_template": "a\\n{% if %}"}', "chat template, line 2"),
        ("generation_config.json", '{"eos_token_id": "x"}', "eos_token_id is 'x'"),
        ("config.json", '{"eos_token_id": [true]}', "eos_token_id is"),
    ],
)
def test_broken_files_are_named(folder: Path, file: str, content: str, message: str) -> None:
    (folder / file).write_text(content)
    with pytest.raises(TextError, match=message) as caught:
        TextModel.from_folder(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    "decoder",
    [None, {"type": "WordPiece", "prefix": "##", "cleanup": True}, {"type": "BPEDecoder", "suffix": "</w>"},
     {"type": "Sequence", "decoders": []},
     {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 0, "stop": 1}]}],
)  # fmt: skip
def test_decoders_that_cannot_stream_are_refused(folder: Path, decoder: Any) -> None:
    data = json.loads((folder / "tokenizer.json").read_text()) | {"decoder": decoder}
    (folder / "tokenizer.json").write_text(json.dumps(data))
    with pytest.raises(TextError, match="decoder"):
        TextModel.from_folder(folder)


def test_broken_assets_of_a_peer(tiny: TextModel) -> None:
    tokenizer_json, template, _ = tiny.assets()
    for config in ("", "[]", '{"stop_ids": [-1]}', '{"stop_ids": ["2"]}', '{"special_tokens": {"bos_token": 1}}',
                   '{"special_tokens": {"messages": "x"}}'):  # fmt: skip
        with pytest.raises(TextError, match="text config"):
            TextModel.from_assets(tokenizer_json, template, config)


def test_a_text_that_the_tokenizer_cannot_take_is_a_value_error(tiny: TextModel) -> None:
    """A vocabulary without an unknown token and without this character, for raw prompts and for guarded chats."""
    tokenizer_json, _, config = tiny.assets()
    data = json.loads(tokenizer_json)
    vocab = {"a": 0, "é": 1, "1": 2, " ": 3, "\n": 4, "<|im_end|>": 5}
    data["model"] = {"type": "WordLevel", "vocab": vocab, "unk_token": "none"}
    data["added_tokens"] = [token | {"id": 5} for token in data["added_tokens"] if token["content"] == "<|im_end|>"]
    data["pre_tokenizer"] = {"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated", "invert": False}
    text_model = TextModel.from_assets(json.dumps(data).encode(), "{{ messages[0].content }}", config)
    assert text_model.encode("a1") == [0, 2]
    with pytest.raises(ValueError, match="prompt: the model's tokenizer cannot encode it"):
        text_model.encode("z")
    with pytest.raises(ValueError, match="messages: the model's tokenizer cannot encode it"):
        text_model.encode_chat([("user", "<|im_end|>")])
