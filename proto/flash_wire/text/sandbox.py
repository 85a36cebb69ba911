"""The Jinja environment that chat templates run in.

A template comes with a model, from whoever published it. So it gets no way out (jinja2's sandbox), and bounded time and
memory: its loops share a budget of rounds, and every value that it builds is held to a size. What could build an
enormous value in one step (a width, a product, a replacement) is looked at before, everything else right after.
"""

from __future__ import annotations

import datetime
import functools
import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_BUILT = 8_000_000
"""Characters (or items) of any single value that a template builds."""
MAX_ROUNDS = 1_000_000
"""Rounds of all loops of one rendering together."""
MAX_WIDTH = 10_000
_MAX_BITS = 4096
_PADDING = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs", "indent", "wordwrap", "batch", "slice"})
_rounds: ContextVar[int] = ContextVar("rounds", default=MAX_ROUNDS)


class Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols])
        self.filters["tojson"] = _tojson
        self.filters = {name: _checked(name, function) for name, function in self.filters.items()}
        self.filters |= {"_counted": _counted, "_joined": _joined, "_held": _held}
        self.globals.pop("lipsum", None)
        self.globals["raise_exception"] = _raise
        self.globals["strftime_now"] = lambda layout: datetime.datetime.now().strftime(str(layout)[:200])

    def _parse(self, source: str, name: str | None, filename: str | None) -> jinja2.nodes.Template:
        tree: jinja2.nodes.Template = _Bounds().visit(super()._parse(source, name, filename))
        return tree

    def start(self) -> None:
        """Fills the budget of rounds for one rendering in this thread."""
        _rounds.set(MAX_ROUNDS)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr != "translate" and super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            for sized, count in ((left, right), (right, left)):
                if hasattr(sized, "__len__") and isinstance(count, int):
                    _check_size(len(sized) * count)
            _check_bits(_bits(left) + _bits(right))
        elif operator == "**":
            _check_bits(_bits(left) * abs(right) if isinstance(right, int) else 0)
        elif operator == "+" and hasattr(left, "__len__") and hasattr(right, "__len__"):
            _check_size(len(left) + len(right))
        elif operator == "%" and isinstance(left, str):
            _check_layout(left, right if isinstance(right, tuple) else (right,))
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str):
            _check_text_call(getattr(obj, "__name__", ""), owner, (*args, *kwargs.values()))
        return _held(super().call(context, obj, *args, **kwargs))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def checked(*args: Any, **kwargs: Any) -> str:
            given = [*args, *kwargs.values()]
            given += [one for each in given if isinstance(each, Mapping) for one in each.values()]
            _check_layout(value.__self__, given)
            return wrapped(*args, **kwargs)

        return checked


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks the assistant's text for training; here its body is simply rendered."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Bounds(NodeTransformer):
    """Puts the checks where jinja2 has no hook: at loops, at `~` and at captured blocks."""

    def visit_For(self, node: jinja2.nodes.For) -> jinja2.nodes.Node:
        self.generic_visit(node)
        node.iter = _through("_counted", node.iter)
        return node

    def visit_Concat(self, node: jinja2.nodes.Concat) -> jinja2.nodes.Node:
        self.generic_visit(node)
        return _through("_joined", jinja2.nodes.List(node.nodes, lineno=node.lineno))

    def visit_AssignBlock(self, node: jinja2.nodes.AssignBlock) -> jinja2.nodes.Node:
        self.generic_visit(node)
        node.filter = _through("_held", node.filter)
        return node


def _through(name: str, node: Any) -> jinja2.nodes.Filter:
    line = node.lineno if node is not None else 1
    return jinja2.nodes.Filter(node, name, [], [], None, None, lineno=line)


@jinja2.pass_context  # so that it runs when the template runs, never when it is compiled
def _counted(context: Any, values: Iterable[Any]) -> list[Any]:
    left = _rounds.get()
    items = list(itertools.islice(values, left + 1))
    if len(items) > left:
        raise SecurityError(f"its loops run for more than {MAX_ROUNDS} rounds")
    _rounds.set(left - len(items))
    return items


def _joined(values: list[Any]) -> str:
    texts = [str(value) for value in values]
    _check_size(sum(map(len, texts)))
    return "".join(texts)


def _held(value: Any) -> Any:
    if isinstance(value, str | list | tuple):
        _check_size(len(value))
    return value


def _checked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The filter with its arguments looked at before and its result after."""

    @functools.wraps(function)  # which also keeps jinja2's marks on filters that want the context
    def checked(*args: Any, **kwargs: Any) -> Any:
        given = list(args[1:] if hasattr(function, "jinja_pass_arg") else args)
        if given and name == "join":
            given[0] = list(given[0])
            args = (*args[: len(args) - len(given)], *given)
        if given:
            _check_text_call(name, given[0] if isinstance(given[0], str) else "", (*given, *kwargs.values()))
        if name == "format" and given:
            _check_layout(str(given[0]), (*given[1:], *kwargs.values()))
        return _held(function(*args, **kwargs))

    return checked


def _check_text_call(name: str, text: str, given: tuple[Any, ...]) -> None:
    if name in _PADDING and any(isinstance(value, int) and value > MAX_WIDTH for value in given):
        raise SecurityError(f"a width of more than {MAX_WIDTH}")
    if name == "replace":
        _check_size((len(text) + 1) * max((len(value) for value in given if isinstance(value, str)), default=0))
    if name == "join":
        separator = max([len(text), *(len(value) for value in given if isinstance(value, str))])
        for values in given:
            if isinstance(values, list | tuple):
                _check_size(sum(len(str(value)) + separator for value in values))


def _check_layout(layout: str, given: Iterable[Any]) -> None:
    """A layout may write its widths itself, or take them from its values with `*` or braces in braces."""
    texts = [layout, *(value for value in given if isinstance(value, str) and "{" in layout)]
    if any(len(digits) > 5 for text in texts[:1] for digits in re.findall(r"\d+", text)):
        raise SecurityError("a width of more than 99999")
    if "*" in layout or re.search(r"\{[^{}]*\{", layout):
        if any(len(digits) > 5 for text in texts[1:] for digits in re.findall(r"\d+", text)):
            raise SecurityError("a width of more than 99999")
        if any(isinstance(value, int) and value > MAX_WIDTH for value in given):
            raise SecurityError(f"a width of more than {MAX_WIDTH}")


def _check_size(size: int) -> None:
    if size > MAX_BUILT:
        raise SecurityError(f"a value of more than {MAX_BUILT} characters or items")


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0


def _check_bits(bits: int) -> None:
    if bits > _MAX_BITS:
        raise SecurityError(f"a number of more than {_MAX_BITS} bits")


def _raise(message: object) -> None:
    raise jinja2.TemplateError(str(message))


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None,
            separators: tuple[str, str] | None = None, sort_keys: bool = False) -> str:  # fmt: skip
    # jinja2's own escapes for HTML, which no model was trained on.
    if isinstance(indent, int) and indent > 16:
        raise SecurityError("an indent of more than 16")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
