"""Regular expressions that cannot hang: Python's syntax, matched in time linear in the text.

Python's own matcher backtracks: `(a+)+$` or `.*x.*y` on an unlucky prompt takes minutes while it holds the
interpreter. Here only a pattern whose steps per character are few and bounded goes to it; every other pattern runs
as a set of states (Thompson), whose transitions are kept as they are found. What that cannot express (look-around,
back-references, atomic groups) is refused when the settings are read. Only whether the pattern is found is answered,
without regard to case; `$` is the very end of the text, or of a line under (?m).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

# The standard library's parser; its names are the same from 3.11 on, and the tests compare both matchers.
_ops: Any = import_module("re._constants")
_parser: Any = import_module("re._parser")

MAX_STATES = 500
"""Of one pattern: bounds the work for one character."""
MAX_STEPS = 8
"""Choices that Python's matcher may have at one place of the text; a pattern with more is matched by states."""
WORK = 100_000
"""Visits of states, beyond remembered transitions, that one search may make: about 25 ms."""
_CACHE = 5000

_START, _WORD, _NEWLINE, _OTHER = 0, 1, 2, 3
_FOUND: _Place


class PatternError(ValueError):
    """A pattern that cannot be matched in bounded time. The message says which part and what to write instead."""


class TooMuchWork(Exception):
    """A search went beyond its bound: the text was not searched to its end."""


Test = Callable[[str], bool]
_REFUSED = {
    "ASSERT": "look-around (?=...) or (?<=...)",
    "ASSERT_NOT": "look-around (?!...) or (?<!...)",
    "GROUPREF": "a back-reference",
    "GROUPREF_EXISTS": "a conditional group",
    "GROUPREF_IGNORE": "a back-reference",
    "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive repeat",
}


class _Place:
    """A set of states after some text, with the transitions found so far."""

    __slots__ = ("before", "moves", "states")

    def __init__(self, states: tuple[int, ...], before: int) -> None:
        self.states = states
        self.before = before
        self.moves: dict[str, _Place] = {}


_FOUND = _Place((), _START)


class Pattern:
    """A compiled pattern. `found` is for one thread at a time, since it remembers transitions."""

    def __init__(self, source: str) -> None:
        """Raises PatternError where `source` does not compile or cannot be bounded."""
        try:
            tree = _parser.parse(source, re.IGNORECASE)
            plain = re.compile(source, re.IGNORECASE)
        except (re.error, RecursionError, OverflowError) as error:
            raise PatternError(f"regex {source!r} does not compile: {error}") from None
        self.source = source
        self._builder = _Builder(source, tree.state.flags)
        self._begin = self._builder.sequence(list(tree), _Builder.MATCH, tree.state.flags)
        self._plain = plain if _steps(tree) <= MAX_STEPS else None
        self._places: dict[tuple[tuple[int, ...], int], _Place] = {}
        self._size = 0

    @property
    def backtracks(self) -> bool:
        """True where Python's matcher is used, because its work is bounded by the pattern itself."""
        return self._plain is not None

    def found(self, text: str) -> bool:
        """Whether the pattern is anywhere in `text`. Raises TooMuchWork beyond WORK."""
        if self._plain is not None:
            return self._plain.search(text) is not None
        return self.found_by_states(text)

    def found_by_states(self, text: str) -> bool:
        """As `found`, always without backtracking."""
        work = [WORK]
        place = self._place((), _START)
        for char in text:
            following = place.moves.get(char)
            if following is None:
                following = self._move(place, char, work)
            if following is _FOUND:
                return True
            place = following
        return self._builder.MATCH in self._closure(place, None, work)

    def _move(self, place: _Place, char: str, work: list[int]) -> _Place:
        closed = self._closure(place, char, work)
        if self._builder.MATCH in closed:
            following = _FOUND
        else:
            nodes = self._builder.nodes
            states = {target for test, target in (nodes[state] for state in closed) if test(char)}
            following = self._place(tuple(sorted(states)), _side(char))
        if self._size >= _CACHE:
            self._places.clear()
            self._size = 0
        else:
            place.moves[char] = following
            self._size += 1
        return following

    def _place(self, states: tuple[int, ...], before: int) -> _Place:
        place = self._places.get((states, before))
        if place is None:
            place = self._places[states, before] = _Place(states, before)
        return place

    def _closure(self, place: _Place, char: str | None, work: list[int]) -> set[int]:
        """The consuming states (or MATCH) that can be reached before `char` (None: the end)."""
        splits, asserts = self._builder.splits, self._builder.asserts
        todo = [*place.states, self._begin]
        seen: set[int] = set(todo)
        out: set[int] = set()
        while todo:
            state = todo.pop()
            work[0] -= 1
            following: Iterable[int]
            if state in splits:
                following = splits[state]
            elif state in asserts:
                holds, target = asserts[state]
                following = (target,) if holds(place.before, char) else ()
            else:
                out.add(state)
                continue
            for one in following:
                if one not in seen:
                    seen.add(one)
                    todo.append(one)
        if work[0] < 0:
            raise TooMuchWork(f"regex {self.source!r} took too long on this text")
        return out


class _Builder:
    """From the parse tree to states. A state is a number; it consumes one character, splits, or asserts."""

    MATCH = 0

    def __init__(self, source: str, flags: int) -> None:
        self.source = source
        self.nodes: dict[int, tuple[Test, int]] = {}
        self.splits: dict[int, list[int]] = {}
        self.asserts: dict[int, tuple[Callable[[int, str | None], bool], int]] = {}
        self._next = 1

    def _new(self) -> int:
        if self._next > MAX_STATES:
            raise PatternError(f"regex {self.source!r} is too large: use smaller counts in {{...}}")
        self._next += 1
        return self._next - 1

    def _consume(self, test: Test, target: int) -> int:
        state = self._new()
        self.nodes[state] = (test, target)
        return state

    def _split(self, targets: list[int]) -> int:
        state = self._new()
        self.splits[state] = targets
        return state

    def sequence(self, tree: list[tuple[Any, Any]], target: int, flags: int) -> int:
        """The state from which `tree` leads to `target`; built from its end."""
        for op, argument in reversed(tree):
            target = self._item(op, argument, target, flags)
        return target

    def _item(self, op: Any, argument: Any, target: int, flags: int) -> int:
        if op in (_ops.LITERAL, _ops.NOT_LITERAL, _ops.ANY, _ops.IN):
            return self._consume(_test(op, argument, flags), target)
        if op is _ops.BRANCH:
            return self._split([self.sequence(list(branch), target, flags) for branch in argument[1]])
        if op is _ops.SUBPATTERN:
            _, added, removed, inner = argument
            return self.sequence(list(inner), target, (flags | added) & ~removed)
        if op in (_ops.MAX_REPEAT, _ops.MIN_REPEAT):
            low, high, inner = argument
            return self._repeat(low, high, inner, target, flags)
        if op is _ops.AT:
            state = self._new()
            self.asserts[state] = (_assertion(argument, flags), target)
            return state
        what = _REFUSED.get(str(op), f"{op}")
        raise PatternError(f"regex {self.source!r} has {what}, which cannot be matched in bounded time: leave it out")

    def _repeat(self, low: int, high: Any, inner: Any, target: int, flags: int) -> int:
        if high is _ops.MAXREPEAT:
            loop = self._split([target])
            self.splits[loop].append(self.sequence(list(inner), loop, flags))
            target = loop
        else:
            end = target
            for _ in range(high - low):
                target = self._split([self.sequence(list(inner), target, flags), end])
        for _ in range(low):
            before = self._next
            target = self.sequence(list(inner), target, flags)
            if self._next == before:
                break  # nothing in it consumes: once is as good as many times
        return target


def _steps(tree: Any) -> float:
    """Choices of a backtracking matcher at one start, at most; infinite for an unbounded repeat."""
    total: float = 1
    for op, argument in tree:
        if op in (_ops.MAX_REPEAT, _ops.MIN_REPEAT):
            low, high, inner = argument
            ways = _steps(inner)
            if high is _ops.MAXREPEAT or high > MAX_STEPS:
                return float("inf") if low != high else total * ways**low if ways > 1 else total
            total *= sum(ways**count for count in range(low, high + 1))
        elif op is _ops.BRANCH:
            total *= sum(_steps(branch) for branch in argument[1])
        elif op is _ops.SUBPATTERN:
            total *= _steps(argument[3])
        if total > MAX_STEPS:
            return float("inf")
    return total


def _side(char: str | None) -> int:
    if char is None:
        return _START
    if char.isalnum() or char == "_":
        return _WORD
    return _NEWLINE if char == "\n" else _OTHER


def _assertion(code: Any, flags: int) -> Callable[[int, str | None], bool]:
    lines = bool(flags & re.MULTILINE)
    if code in (_ops.AT_BEGINNING, _ops.AT_BEGINNING_STRING):
        each = lines and code is _ops.AT_BEGINNING
        return lambda before, char: before == _START or (each and before == _NEWLINE)
    if code in (_ops.AT_END, _ops.AT_END_STRING):
        each = lines and code is _ops.AT_END
        return lambda before, char: char is None or (each and char == "\n")
    wanted = code is _ops.AT_BOUNDARY
    return lambda before, char: ((before == _WORD) != (_side(char) == _WORD)) == wanted


def _test(op: Any, argument: Any, flags: int) -> Test:
    if op is _ops.ANY:
        return (lambda char: True) if flags & re.DOTALL else (lambda char: char != "\n")
    if op in (_ops.LITERAL, _ops.NOT_LITERAL):
        wanted, equal = chr(argument).lower(), op is _ops.LITERAL
        return lambda char: (char.lower() == wanted) == equal
    members = list(argument)
    negated = bool(members) and members[0][0] is _ops.NEGATE
    tests = [_member(kind, value, flags) for kind, value in members[negated:]]
    # Without case: a set has a character when it has either of its cases.
    return lambda char: any(test(char) or test(char.lower()) or test(char.upper()) for test in tests) != negated


def _member(kind: Any, value: Any, flags: int) -> Test:
    if kind is _ops.LITERAL:
        return lambda char: char == chr(value)
    if kind is _ops.RANGE:
        low, high = chr(value[0]), chr(value[1])
        return lambda char: len(char) == 1 and low <= char <= high
    base = _CATEGORIES[str(value).removeprefix("CATEGORY_").removeprefix("NOT_")]
    ascii_only = bool(flags & re.ASCII)
    wanted = "NOT_" not in str(value)
    return lambda char: (base(char) and (char.isascii() or not ascii_only)) == wanted


_CATEGORIES: dict[str, Test] = {
    "DIGIT": str.isdecimal,
    "SPACE": str.isspace,
    "WORD": lambda char: char.isalnum() or char == "_",
}
