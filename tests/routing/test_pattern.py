"""Regular expressions in rules: the same answers as Python's, in bounded time."""

from __future__ import annotations

import re
import time
from random import Random

import pytest
from flash_wire.pattern import MAX_STATES, Pattern, PatternError, TooMuchWork

ATOMS = ("a", "b", "A", ".", r"\w", r"\d", r"\s", "[a-c]", "[^a]", r"\b", "^", "$", "(?:ab)", "(a|bc)", "(?:a|)",
         r"\B", "1", " ", r"[\d_]", "[A-Z]", r"[^\W\d]", "(?m:^b)", "(?s:.)",
         r"\A", r"\Z", r"\S", r"\D", "é", "[à-ö]")  # fmt: skip
REPEATS = ("", "", "", "*", "+", "?", "{2}", "{1,3}", "*?", "+?", "{0,2}", "{2,}")
LETTERS = "abAcB1_ \nxéÉ"


def test_answers_equal_pythons() -> None:
    rng = Random(4)
    compared = by_states = 0
    for _ in range(4000):
        source = "".join(rng.choice(ATOMS) + rng.choice(REPEATS) for _ in range(rng.randint(1, 5)))
        if rng.random() < 0.3:
            source = f"({source}){rng.choice(REPEATS)}"
        try:
            python = re.compile(source, re.IGNORECASE)
        except re.error:
            continue
        pattern = Pattern(source)
        by_states += not pattern.backtracks
        for _ in range(4):
            # A newline at the very end is where `$` differs, by intention.
            text = "".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 9))).rstrip("\n") or "x"
            wanted = python.search(text) is not None
            assert pattern.found(text) == wanted, (source, text)
            assert pattern.found_by_states(text) == wanted, (source, text)
            compared += 1
    assert compared > 9_000
    assert by_states > 1000


EVIL = [
    (r"(a+)+$", "a" * 8000 + "!", False),
    (r"(a|a)*b", "a" * 8000, False),
    (r"^(\w+\s?)*$", "word " * 1600 + "!", False),
    (r".*x.*y.*z", "xy" * 4000, False),
    (r"(x+x+)+y", "x" * 8000, False),
    (r"(.*)*=(.*)*=.*9", "=" * 8000, False),
    (r"(a|b)*a(a|b){20}c", "ab" * 4000, False),
    (r"^(([a-z])+.)+[A-Z]([a-z])+$", "1" + "a" * 8000, False),
    (r"prove.*(theorem|lemma)", "x" * 7000 + " Prove this THEOREM", True),
]


@pytest.mark.parametrize(("source", "text", "found"), EVIL)
def test_evil_patterns_take_linear_time(source: str, text: str, found: bool) -> None:
    pattern = Pattern(source)
    assert not pattern.backtracks
    before = time.thread_time()
    assert pattern.found(text) == found
    # Python's matcher needs minutes to years for these; CPU time, so that a busy machine does not matter.
    assert time.thread_time() - before < 2


def test_a_search_beyond_its_bound_stops() -> None:
    pattern = Pattern("(a|b)*a" + "(a|b)" * 60 + "c")
    rng = Random(1)
    text = "".join(rng.choice("ab") for _ in range(8000))
    before = time.thread_time()
    with pytest.raises(TooMuchWork):
        pattern.found(text)
    assert time.thread_time() - before < 2
    assert pattern.found("b" + "a" * 61 + "c"), "the next text is searched as if nothing had happened"


def test_memory_is_bounded() -> None:
    pattern = Pattern(r"(a|b)*a(a|b){12}c")
    rng = Random(2)
    for _ in range(30):
        pattern.found("".join(rng.choice("ab") for _ in range(3000)))
        assert len(pattern._places) <= 5100


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("(a", "does not compile"),
        ("(?=a)b", "look-around"),
        ("(?<!a)b", "look-around"),
        (r"(a)\1", "back-reference"),
        ("(?>a)b", "atomic"),
        ("a++", "possessive"),
        ("(a)?(?(1)b|c)", "conditional"),
        ("(a{99}){99}", "too large"),
    ],
)
def test_what_cannot_be_bounded_is_refused(source: str, words: str) -> None:
    with pytest.raises(PatternError, match=words):
        Pattern(source)


def test_simple_patterns_go_to_pythons_matcher() -> None:
    assert Pattern(r"\bprove\b").backtracks
    assert Pattern(r"(step|phase) \d{4}").backtracks
    assert not Pattern(r"a+").backtracks
    assert MAX_STATES >= 500
