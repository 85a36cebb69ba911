"""StreamDecoder: text that is never taken back, never past a stop string, and the same however ids are grouped."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

import pytest
from flash_wire.text import StreamDecoder, TextModel
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.texts import TEXTS
from support.tiny_vocab_gguf import spm_keys, write_gguf
from tokenizers import Tokenizer

MANY = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
KINDS = ["smollm", "tiny", "spm", "spm_without_prefix"]


@pytest.fixture(scope="session")
def spm_without_prefix(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    file = tmp_path_factory.mktemp("spm_bare") / "m.gguf"
    return TextModel.from_gguf(write_gguf(file, spm_keys(add_space_prefix=False)))


class Kind:
    """No dataclass: a failing property would print the whole tokenizer."""

    def __init__(self, model: TextModel, ids: st.SearchStrategy[list[int]]) -> None:
        self.model = model
        self.ids = ids
        self.library = Tokenizer.from_buffer(model.assets()[0])
        """The same tokenizer, used directly."""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    model: TextModel = request.getfixturevalue(request.param)
    # Any id, also of no vocabulary; then parts of real text, so that whole characters and their halves are common.
    anything = st.integers(0, model.vocab_size + 3)
    special = st.sampled_from(sorted(model.special_ids))
    real = st.sampled_from([number for text in TEXTS for number in model.encode(text)])
    ids = st.lists(st.one_of(real, real, real, anything, special), max_size=40)
    return Kind(model, ids)


def cuts(ids: Sequence[int], data: st.DataObject) -> list[list[int]]:
    places = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=6)))
    return [list(ids[a:b]) for a, b in zip([0, *places], [*places, len(ids)], strict=True)]


def expected(full: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """The cut and the stop string, by looking at every beginning of the text: the first that ends in a stop string."""
    for end in range(1, len(full) + 1):
        matches = [stop for stop in stops if full[:end].endswith(stop)]
        if matches:
            longest = max(matches, key=len)
            return full[: end - len(longest)], longest
    return full, None


def draw_stops(full: str, data: st.DataObject) -> list[str]:
    """Mostly parts of the text, some with a wrong last character, some that do not occur."""
    stops: list[str] = []
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, max(len(full) - 1, 0)))
        part = full[start : start + data.draw(st.integers(1, 8))] or "x"
        stops.append(part + data.draw(st.sampled_from(["", "", "", "e", "\ufffd", " "])))
    return stops


@MANY
@given(data=st.data())
def test_deltas_joined_are_the_full_decode(kind: Kind, data: st.DataObject) -> None:
    ids = data.draw(kind.ids)
    decoder = StreamDecoder(kind.model)
    deltas = [decoder.push(part) for part in cuts(ids, data)]
    assert "".join(deltas) + decoder.flush() == kind.model.decode(ids)
    assert decoder.tokens_used == len(ids)
    assert decoder.stopped is None


@MANY
@given(data=st.data())
def test_text_is_cut_at_the_stop_that_is_complete_first(kind: Kind, data: st.DataObject) -> None:
    ids = data.draw(kind.ids)
    full = kind.model.decode(ids)
    stops = draw_stops(full, data)
    wanted, stop = expected(full, stops)
    decoder = StreamDecoder(kind.model, stops)
    emitted = ""
    for part in cuts(ids, data):
        emitted += decoder.push(part)
        assert wanted.startswith(emitted)  # never a character of the stop string, and nothing is taken back
    emitted += decoder.flush()
    assert (emitted, decoder.stopped) == (wanted, stop)


@MANY
@given(data=st.data())
def test_nothing_that_may_begin_a_stop_is_emitted_and_nothing_else_is_held(kind: Kind, data: st.DataObject) -> None:
    ids = data.draw(kind.ids)
    stops = draw_stops(kind.model.decode(ids), data)
    plain, decoder, seen, emitted = StreamDecoder(kind.model), StreamDecoder(kind.model, stops), "", ""
    for number in ids:
        seen += plain.push([number])
        emitted += decoder.push([number])
        if decoder.stopped is not None:
            break
        held = [end for end in range(1, len(seen) + 1) if any(stop.startswith(seen[-end:]) for stop in stops)]
        assert emitted == seen[: len(seen) - max(held, default=0)]


@MANY
@given(data=st.data())
def test_grouping_changes_nothing(kind: Kind, data: st.DataObject) -> None:
    ids = data.draw(kind.ids)
    stops = draw_stops(kind.model.decode(ids), data)

    def run(parts: list[list[int]]) -> tuple[str, str | None, int]:
        decoder = StreamDecoder(kind.model, stops)
        return "".join(map(decoder.push, parts)) + decoder.flush(), decoder.stopped, decoder.tokens_used

    one_by_one = run([[number] for number in ids])
    assert run([ids]) == one_by_one
    assert run(cuts(ids, data)) == one_by_one


@MANY
@given(data=st.data())
def test_tokens_used_ends_with_the_token_that_completes_the_stop(kind: Kind, data: st.DataObject) -> None:
    ids = data.draw(kind.ids)
    stops = [stop for stop in draw_stops(kind.model.decode(ids), data) if "\ufffd" not in stop] or ["e"]
    decoder = StreamDecoder(kind.model, stops)
    decoder.push(ids)
    if decoder.stopped is None:
        assert decoder.tokens_used == len(ids)
        return
    used = decoder.tokens_used
    assert any(stop in settled(kind.model, ids[:used]) for stop in stops)
    assert not any(stop in settled(kind.model, ids[: used - 1]) for stop in stops)


def settled(model: TextModel, ids: Sequence[int]) -> str:
    return StreamDecoder(model).push(ids)


@MANY
@given(data=st.data())
def test_a_new_decoder_goes_on_where_another_was(kind: Kind, data: st.DataObject) -> None:
    ids = data.draw(kind.ids)
    stops = draw_stops(kind.model.decode(ids), data)
    committed = data.draw(st.integers(0, len(ids)))
    first, resumed = StreamDecoder(kind.model, stops), StreamDecoder(kind.model, stops)
    before = "".join(first.push([number]) for number in ids[:committed])
    assert resumed.push(ids[:committed]) == before
    for number in ids[committed:]:
        assert resumed.push([number]) == first.push([number])
    assert (resumed.flush(), resumed.stopped, resumed.tokens_used) == (first.flush(), first.stopped, first.tokens_used)


@MANY
@given(data=st.data())
def test_replacement_characters_only_for_broken_bytes_or_at_the_end(kind: Kind, data: st.DataObject) -> None:
    # SmolLM2's vocabulary has no token for some control characters and for the first byte of some planes.
    spelled = st.characters(max_codepoint=0x1FFFF, exclude_categories=["Cs", "Cc"], exclude_characters="\ufffd▁")
    text = data.draw(st.text(spelled, max_size=30))
    ids = kind.model.encode(text)
    decoder = StreamDecoder(kind.model)
    kept = data.draw(st.integers(0, len(ids)))
    emitted = decoder.push(ids[:kept])
    assert "\ufffd" not in emitted
    assert kind.model.decode(ids) == text
    assert text.startswith(emitted)
    assert decoder.flush() in ("", "\ufffd")


@MANY
@given(data=st.data())
def test_decode_is_the_tokenizers_own_where_bytes_are_whole(kind: Kind, data: st.DataObject) -> None:
    ids = data.draw(kind.ids)
    own = kind.library.decode(ids, skip_special_tokens=True)
    ours = kind.model.decode(ids)
    # Byte tokens between others: the library breaks all of a run in which one byte is broken. We break only that one.
    assert ours == own or ("\ufffd" in own and own.count("\ufffd") >= ours.count("\ufffd"))


@example(numbers=[0xE2, 0x82, 0xE2, 0x82, 0xAC])
@example(numbers=[0xF0, 0x9F, 0x98])
@example(numbers=[0xED, 0xA0, 0x80, 0xF4, 0x90, 0x80, 0x80, 0xC0, 0x80])
@given(
    numbers=st.lists(
        st.one_of(st.integers(0, 255), st.sampled_from(b"\xe2\x82\xac\xf0\x9f\x98\x80\xc3\xa9")), max_size=12
    )
)
@MANY
def test_byte_level_text_is_exactly_the_librarys(tiny: TextModel, numbers: list[int]) -> None:
    from flash_wire.text.pieces import byte_alphabet

    vocab = Tokenizer.from_buffer(tiny.assets()[0]).get_vocab()
    ids = [vocab[char] for byte in numbers for char, value in byte_alphabet().items() if value == byte]
    own = Tokenizer.from_buffer(tiny.assets()[0]).decode(ids)
    assert tiny.decode(ids) == own == bytes(numbers).decode(errors="replace")


def test_a_stop_inside_one_token(tiny: TextModel) -> None:
    word = tiny.encode(" the")
    assert len(word) == 1
    decoder = StreamDecoder(tiny, ["h"])
    assert decoder.push(word) == " t"
    assert (decoder.stopped, decoder.tokens_used) == ("h", 1)


def test_a_stop_over_several_tokens_is_held_and_let_go(tiny: TextModel) -> None:
    decoder = StreamDecoder(tiny, ["END."])
    deltas = [decoder.push(tiny.encode(part)) for part in ("a", "E", "N", "D", "!", "E", "N")]
    assert deltas == ["a", "", "", "", "END!", "", ""]
    assert decoder.flush() == "EN"


def test_the_first_complete_stop_wins_and_then_the_longest(tiny: TextModel) -> None:
    assert run(tiny, "xabcd", ["abcd", "bc"]) == ("xa", "bc")
    assert run(tiny, "xabcd", ["bc", "abc", "c"]) == ("x", "abc")
    assert run(tiny, "aaab", ["aab"]) == ("a", "aab")
    assert run(tiny, "ababac", ["abac"]) == ("ab", "abac")


def run(model: TextModel, text: str, stops: list[str]) -> tuple[str, str | None]:
    decoder = StreamDecoder(model, stops)
    return decoder.push(model.encode(text)) + decoder.flush(), decoder.stopped


def test_nothing_after_the_stop(tiny: TextModel) -> None:
    decoder = StreamDecoder(tiny, ["."])
    assert decoder.push(tiny.encode("one. two. three")) == "one"
    used = decoder.tokens_used
    assert decoder.push(tiny.encode("more")) == ""
    assert decoder.flush() == ""
    assert decoder.tokens_used == used


def test_special_tokens_have_no_text(smollm: TextModel) -> None:
    ids = smollm.encode("<|im_start|>a<|endoftext|>b<|im_end|>")
    decoder = StreamDecoder(smollm, ["<|im_end|>"])
    assert decoder.push(ids) + decoder.flush() == "ab"
    assert decoder.stopped is None  # a stop string is looked for in the text, where special tokens are not


def test_a_character_over_three_tokens_waits(smollm: TextModel) -> None:
    ids = smollm.encode("𝕏")
    assert len(ids) > 2
    decoder = StreamDecoder(smollm)
    assert [decoder.push([number]) for number in ids] == [""] * (len(ids) - 1) + ["𝕏"]


def test_flush_ends_the_decoder(tiny: TextModel) -> None:
    decoder = StreamDecoder(tiny)
    decoder.push(tiny.encode("é")[:1])
    assert decoder.flush() == "\ufffd"
    assert decoder.flush() == ""
    with pytest.raises(ValueError, match="flushed"):
        decoder.push([3])


@pytest.mark.parametrize(
    ("stops", "message"),
    [
        ([""], "stop text 1 is empty"),
        (["a"] * 17, "17 texts"),
        (["a", "b" * 1001], "stop text 2 has 1001"),
        ("ab", "give a list"),
        ([3], "stop text 1"),
    ],
)
def test_bad_stops_are_refused(tiny: TextModel, stops: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StreamDecoder(tiny, stops)


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


@pytest.mark.parametrize("what", ["real text", "broken bytes", "half a stop"])
def test_cost_is_linear(spm: TextModel, what: str) -> None:
    """Eight times the tokens, some eight times the time; decoding all again for each token takes sixty-four."""
    vocab = Tokenizer.from_buffer(spm.assets()[0]).get_vocab()
    a = vocab["a"]
    unit = {"real text": spm.encode(TEXTS[6]), "broken bytes": [vocab["<0xFF>"], vocab["<0xE2>"]], "half a stop": [a]}[
        what
    ]
    short = (unit * 4000)[:4000]

    def stream(ids: list[int]) -> None:
        decoder = StreamDecoder(spm, ["a" * 999 + "b"])
        for number in ids:
            decoder.push([number])

    stream(short)
    ratio = min(seconds(lambda: stream(short * 8)) for _ in range(3)) / min(
        seconds(lambda: stream(short)) for _ in range(3)
    )
    assert ratio < 30


def test_random_streams_of_every_kind_at_length(smollm: TextModel, spm: TextModel) -> None:
    rng = random.Random(7)
    for model in (smollm, spm):
        ids = [rng.randrange(model.vocab_size) for _ in range(5000)]
        decoder = StreamDecoder(model)
        assert "".join(decoder.push([number]) for number in ids) + decoder.flush() == model.decode(ids)
