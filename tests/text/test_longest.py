"""A text that cannot fit is refused by its length alone, and never one that would have fitted."""

from __future__ import annotations

import json

import pytest
from flash_wire.text import TextModel, TooLong
from flash_wire.text.longest import Bound, bound_of
from hypothesis import given, settings
from hypothesis import strategies as st

PARTS = st.sampled_from(["the other ", " ", "\n", "\x04", "\x13", "e\u0301", "é", "漢", "\U00040000", "x"])
TEXTS = st.lists(PARTS, max_size=12).map("".join)


@pytest.fixture(scope="module", params=["tiny", "smollm", "spm"])
def each(request: pytest.FixtureRequest) -> TextModel:
    return request.getfixturevalue(request.param)


def test_what_cannot_fit_is_not_encoded(each: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    assert each.bound.longest
    monkeypatch.setattr(each, "_tokenizer", None)  # any use would fail
    text = "x" * (each.bound.longest * 100 + 1)
    with pytest.raises(TooLong) as refused:
        each.encode(text, 100)
    assert (refused.value.characters, refused.value.at_least) == (len(text), 101)
    if each.has_template:
        for content in (text, text + "<|im_end|>"):
            with pytest.raises(TooLong):
                each.encode_chat([("user", content)], 100)


@settings(deadline=None)
@given(text=TEXTS, times=st.integers(1, 40))
def test_the_bound_is_below_the_truth(
    tiny: TextModel, smollm: TextModel, spm: TextModel, text: str, times: int
) -> None:
    for model in (tiny, smollm, spm):
        ids = model.encode(text * times)
        assert model.bound.least(text * times) <= len(ids)
        assert model.encode(text * times, len(ids)) == ids


def test_lost_characters_count_for_nothing(smollm: TextModel) -> None:
    assert "\x04" in smollm.bound.lost
    assert smollm.encode("\x04" * 5000, 10) == []


def test_what_takes_blanks_or_composes_is_counted_so() -> None:
    assert Bound(10, swallows=True).least("ab " + " " * 1000) == 1
    assert Bound(10, composes=True).least("e\u0301" * 200) == 10
    assert Bound(10, composes=True).least("e" * 400) == 40
    assert Bound().least("x" * 1000) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "Replace", "pattern": {"Regex": " +"}, "content": " "}},
        {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Strip"}]}},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "Removed"}},
        {"model": {"type": "WordPiece"}},
        {"model": {"type": "BPE", "unk_token": "a", "fuse_unk": True}, "pre_tokenizer": None},
    ],
)
def test_no_bound_where_characters_may_vanish(tiny: TextModel, change: dict[str, object]) -> None:
    data = json.loads(tiny.assets()[0])
    assert bound_of(data, data["model"]["vocab"], []) != Bound()
    assert bound_of({**data, **change}, data["model"]["vocab"], []) == Bound()
