"""Rules: the first that matches decides; nothing about a text can make them slow."""

from __future__ import annotations

import time
from typing import Any

import pytest
from flash_router.rules import Match, Rules
from flash_wire.settings import Rule, SettingsError, When, parse


def rules(*when: dict[str, Any], to: str = "standard") -> Rules:
    return Rules([parse(Rule, {"when": condition, "to": to}) for condition in when])


def matches(condition: dict[str, Any], prompt: Any, tenant: str = "") -> bool:
    return rules(condition).match(prompt, tenant).to is not None


@pytest.mark.parametrize(
    ("condition", "prompt", "expected"),
    [
        ({"contains": ["step by step"]}, "Do it STEP by Step.", True),
        ({"contains": ["x", "prove"]}, "Please Prove it", True),
        ({"contains": ["straße"]}, "die STRASSE", True),
        ({"contains": ["café"]}, "cafe\u0301 at noon", True),
        ({"contains": ["证明"]}, "请证明它", True),
        ({"contains": ["prove"]}, "hello", False),
        ({"regex": r"\bprove\b"}, "I PROVE it", True),
        ({"regex": r"\bprove\b"}, "improve it", False),
        ({"regex": r"(?m)^- .+\n- "}, "do\n- a\n- b", True),
        ({"minChars": 5}, "abcd", False),
        ({"minChars": 5}, "abcde", True),
        ({"maxChars": 5}, "abcde", True),
        ({"maxChars": 5}, "abcdef", False),
        ({"contains": ["prove"], "minChars": 100}, "prove it", False),
        ({"contains": ["prove"], "regex": "it$"}, "prove it", True),
        ({"contains": ["prove"], "regex": "that$"}, "prove it", False),
    ],
)
def test_conditions(condition: dict[str, Any], prompt: str, expected: bool) -> None:
    assert matches(condition, prompt) is expected
    assert matches(condition, [("user", prompt)]) is expected


def test_tenant() -> None:
    assert matches({"tenant": "acme"}, "x", "acme")
    assert not matches({"tenant": "acme"}, "x", "other")
    assert not matches({"tenant": "acme", "contains": ["y"]}, "x", "acme")


def test_only_what_the_user_wrote_is_searched_but_everything_is_measured() -> None:
    turns = [("system", "You prove theorems."), ("user", "Hi"), ("assistant", "I prove"), ("user", "Thanks")]
    assert not matches({"contains": ["prove"]}, turns)
    assert matches({"contains": ["prove"]}, [("user", "prove it"), ("assistant", "so"), ("user", "shorter")])
    assert matches({"minChars": 30}, turns)
    assert matches({"contains": ["prove"]}, [("tool", "prove it")]), "no user turn: everything is searched"


def test_first_match_decides() -> None:
    both = Rules([
        Rule(name="short", when=When(max_chars=3), to="flash"),
        Rule(when=When(contains=("a",)), to="standard"),
        Rule(when=When(contains=("b",)), to="flash"),
    ])  # fmt: skip
    assert both.match("a", "") == Match("short", "flash", "")
    assert both.match("abcd", "") == Match("rule 2", "standard", "")
    assert both.match("bcde", "") == Match("rule 3", "flash", "")
    assert both.match("xyzw", "") == Match("", None, "")


def test_very_long_texts_are_read_at_both_ends_and_it_is_said() -> None:
    filler = "x " * 150_000
    assert matches({"contains": ["prove"]}, filler + "prove")
    assert matches({"regex": "^prove"}, "prove" + filler)
    assert matches({"regex": "prove$"}, filler + "prove")
    missed = rules({"contains": ["prove"]}, {"regex": "prove"}).match(filler + "prove" + filler, "")
    assert missed.to is None
    assert "rule 1 read only" in missed.note
    assert "rule 2 read only" in missed.note
    assert not matches({"regex": "x.+y"}, "x" * 100_000 + "\n" + "y" * 100_000), "the seam is no text"


def test_evil_regex_in_a_rule_cannot_hold_the_router() -> None:
    evil = rules(*[{"regex": r"(\w+\s?)+\d{3}!$"}] * 10)
    before = time.thread_time()
    assert evil.match("word " * 40_000 + "?", "").to is None
    assert time.thread_time() - before < 2


def test_a_search_that_gave_up_is_said() -> None:
    from random import Random

    rng = Random(1)
    text = "".join(rng.choice("ab") for _ in range(8000))
    found = rules({"regex": "(a|b)*a" + "(a|b)" * 60 + "c"}).match(text, "")
    assert found.to is None
    assert "rule 1 was left out" in found.note


def test_settings_refuse_what_cannot_be_bounded() -> None:
    with pytest.raises(SettingsError, match=r"when.*look-around.*leave it out"):
        parse(Rule, {"when": {"regex": "(?=a)b"}, "to": "flash"})
