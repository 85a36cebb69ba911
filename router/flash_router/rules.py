"""Rules: what the operator of a fleet decides, before and without the classifier. The first that matches decides.

`contains` and `regex` look at what the user wrote (all user turns; the whole of a raw prompt), not at system prompts
or answers, which are the same for every request. `minChars` and `maxChars` count the whole prompt. Work is bounded:
of a very long text, `contains` reads CONTAINS_CHARS and `regex` REGEX_CHARS from both ends, in linear time.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from flash_wire.pattern import Pattern, TooMuchWork
from flash_wire.settings import Rule, TierName

from flash_router.reading import Prompt

CONTAINS_CHARS = 200_000
REGEX_CHARS = 8_000
_SEAM = "\n\x00\n"
"""Stands for what is left out: no word, and `.` does not cross it."""


@dataclass(frozen=True, slots=True)
class Match:
    """What the rules say of one prompt."""

    rule: str
    """Name of the rule that decided; "" where none did."""
    to: TierName | None
    note: str
    """What was not looked at, if that could have changed the answer."""


class Rules:
    """A fleet's rules, compiled once per live settings."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        """Raises PatternError for a pattern that cannot be matched in bounded time."""
        self._rules = [_Compiled(rule, rule.name or f"rule {index}") for index, rule in enumerate(rules, 1)]

    def match(self, prompt: Prompt, tenant: str) -> Match:
        """The first rule whose conditions all hold."""
        text = _Text(prompt)
        notes: list[str] = []
        for rule in self._rules:
            if rule.holds(text, tenant, notes):
                return Match(rule.name, rule.to, "")
        return Match("", None, "; ".join(dict.fromkeys(notes)))


class _Compiled:
    def __init__(self, rule: Rule, name: str) -> None:
        when = rule.when
        self.name = name
        self.to = rule.to
        self._tenant = when.tenant
        self._min, self._max = when.min_chars, when.max_chars
        self._contains = tuple(_folded(text) for text in when.contains)
        self._pattern = Pattern(when.regex) if when.regex else None

    def holds(self, text: _Text, tenant: str, notes: list[str]) -> bool:
        """Cheapest first: a rule for another tenant or length reads no text."""
        if self._tenant and self._tenant != tenant:
            return False
        if text.size < self._min or (self._max and text.size > self._max):
            return False
        if self._contains and not any(part in text.folded for part in self._contains):
            if text.written_size > CONTAINS_CHARS:
                notes.append(f"{self.name} read only the first and last {CONTAINS_CHARS // 2} characters")
            return False
        return self._pattern is None or self._finds(self._pattern, text, notes)

    def _finds(self, pattern: Pattern, text: _Text, notes: list[str]) -> bool:
        try:
            found = pattern.found(text.ends)
        except TooMuchWork:
            notes.append(f"{self.name} was left out: its regex needs too many steps on this text")
            return False
        if not found and text.written_size > REGEX_CHARS:
            notes.append(f"{self.name} read only the first and last {REGEX_CHARS // 2} characters")
        return found


class _Text:
    """What rules look at. Each view is made when the first rule asks for it."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt

    @cached_property
    def size(self) -> int:
        """Characters of the whole prompt."""
        if isinstance(self._prompt, str):
            return len(self._prompt)
        return sum(len(content) for _, content in self._prompt)

    @cached_property
    def written(self) -> str:
        """What the user wrote; everything where no message is called the user's."""
        if isinstance(self._prompt, str):
            return self._prompt
        contents = [content for role, content in self._prompt if role == "user"]
        return "\n".join(contents or [content for _, content in self._prompt])

    @property
    def written_size(self) -> int:
        return len(self.written)

    @cached_property
    def folded(self) -> str:
        """For `contains`: without case, accents composed."""
        return _folded(_both_ends(self.written, CONTAINS_CHARS))

    @cached_property
    def ends(self) -> str:
        """For `regex`."""
        return _both_ends(self.written, REGEX_CHARS)


def _both_ends(text: str, size: int) -> str:
    if len(text) <= size:
        return text
    return text[: size // 2] + _SEAM + text[-(size // 2) :]


def _folded(text: str) -> str:
    return text.casefold() if text.isascii() else unicodedata.normalize("NFC", text.casefold())
