"""Chat templates: a model's own Jinja, run in a sandbox, as `transformers` runs it."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from flash_wire.text.errors import TextError

MAX_TEMPLATE = 1_000_000
"""Characters of a template."""
MAX_MESSAGES = 4096
MAX_RENDERED = 4_000_000
"""Characters of a rendered chat."""
MAX_BUILT = 8_000_000
"""Characters (or items) of any single value that a template builds."""

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function", "ipython", "model"})
_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_GROWING = frozenset(
    {"center", "ljust", "rjust", "zfill", "expandtabs", "replace", "translate", "format", "format_map"}
)
_PROBES = 64

Message = tuple[str, str]
"""(role, content)."""


class ChatTemplate:
    """A compiled template. Safe for several threads."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """`special_tokens`: bos_token, eos_token and so on, which templates may name.

        Raises TextError for a template that does not compile.
        """
        if len(source) > MAX_TEMPLATE:
            raise TextError(f"chat template: {len(source)} characters, at most {MAX_TEMPLATE} are taken")
        try:
            env = _Sandbox()
            tree = env.parse(source)
            self._template = env.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise TextError(
                f"chat template, line {error.lineno}: {error.message}. Mend the template, or remove it and"
                " send prompts instead of messages"
            ) from None
        except Exception as error:  # jinja2's compiler lets some of Python's own errors through
            raise TextError(
                f"chat template: does not compile ({type(error).__name__}: {error}). Mend the template, or"
                " remove it and send prompts instead of messages"
            ) from None
        constants = {node.value for node in tree.find_all(jinja2.nodes.Const) if isinstance(node.value, str)}
        self.literals = "\0".join({node.data for node in tree.find_all(jinja2.nodes.TemplateData)} | constants)
        """All text that the template itself writes, with NUL between the parts."""
        self.roles = ROLES | {word for word in constants if _ROLE.fullmatch(word)}
        """Roles that a message may have: the usual ones and every word that the template names."""
        self._special_tokens = dict(special_tokens)

    def check(self, messages: Sequence[Message]) -> None:
        """Raises ValueError that names the message at fault."""
        if not messages:
            raise ValueError("messages is empty: give at least one message")
        if len(messages) > MAX_MESSAGES:
            raise ValueError(f"messages has {len(messages)} entries: give at most {MAX_MESSAGES}")
        for number, (role, content) in enumerate(messages, 1):
            if role not in self.roles:
                known = ", ".join(sorted(ROLES & self.roles))
                raise ValueError(f"message {number}: role {_short(role)} is unknown to this model: use one of {known}")
            if not isinstance(content, str):
                raise ValueError(f"message {number} ({role}): content must be text, not {type(content).__name__}")
        if (total := sum(len(content) for _, content in messages)) > MAX_RENDERED:
            raise ValueError(f"messages hold {total} characters: give at most {MAX_RENDERED}")

    def render(self, messages: Sequence[Message]) -> str:
        """The chat as text, with the beginning of the assistant's answer at the end.

        Raises ValueError, with the message and role at which the template first fails, where it can be told.
        """
        try:
            return self._run(messages, answer=True)
        except Exception as error:
            raise ValueError(f"{self._culprit(messages)}: the chat template refuses it ({_reason(error)})") from None

    def _run(self, messages: Sequence[Message], answer: bool) -> str:
        parts: list[str] = []
        length = 0
        for part in self._template.generate(
            messages=[{"role": role, "content": content} for role, content in messages],
            add_generation_prompt=answer,
            tools=None,
            documents=None,
            **self._special_tokens,
        ):
            length += len(part)
            if length > MAX_RENDERED:
                raise ValueError(f"its text grows over {MAX_RENDERED} characters")
            parts.append(part)
        return "".join(parts)

    def _culprit(self, messages: Sequence[Message]) -> str:
        """The first message with which the chat so far fails; templates themselves do not say it."""
        for number, (role, _) in enumerate(messages[:_PROBES], 1):
            try:
                self._run(messages[:number], answer=False)
            except Exception:
                return f"message {number} (role {role})"
        roles = ", ".join(role for role, _ in messages[:8]) + (", ..." if len(messages) > 8 else "")
        return f"messages with the roles {roles}"


class _Sandbox(ImmutableSandboxedEnvironment):
    """Refuses attributes that lead out of the template, and operations that build enormous values from short ones."""

    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols])
        self.filters["tojson"] = _tojson
        for name in ("center", "format", "indent", "wordwrap", "xmlattr", "urlize", "slice", "batch", "replace"):
            self.filters[name] = _bounded(self.filters[name])
        self.globals["raise_exception"] = _raise
        self.globals["strftime_now"] = lambda layout: datetime.datetime.now().strftime(str(layout)[:200])
        self.globals.pop("lipsum", None)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            for sized, count in ((left, right), (right, left)):
                if hasattr(sized, "__len__") and isinstance(count, int) and len(sized) * count > MAX_BUILT:
                    raise SecurityError(f"a value of more than {MAX_BUILT} items")
            _check_number(left)
            _check_number(right)
        elif operator == "**":
            if isinstance(left, int) and isinstance(right, int) and abs(right) * left.bit_length() > 4096:
                raise SecurityError("a number of more than 4096 bits")
        elif operator == "+":
            if hasattr(left, "__len__") and hasattr(right, "__len__") and len(left) + len(right) > MAX_BUILT:
                raise SecurityError(f"a value of more than {MAX_BUILT} items")
        elif isinstance(left, str):
            _check_widths(left)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str) and getattr(obj, "__name__", "") in _GROWING:
            _check_growth(owner, args, kwargs)
        return super().call(context, obj, *args, **kwargs)


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks the assistant's text for training; here its body is simply rendered."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The filter, refusing widths and counts with which a few characters become millions."""

    def checked(*args: Any, **kwargs: Any) -> Any:
        plain = [arg for arg in args if isinstance(arg, str | int)]
        if plain:
            _check_growth(plain[0] if isinstance(plain[0], str) else "", tuple(plain[1:]), kwargs)
        return function(*args, **kwargs)

    for mark in ("jinja_pass_arg",):  # how jinja2 knows that a filter wants the context or the environment
        if hasattr(function, mark):
            setattr(checked, mark, getattr(function, mark))
    return checked


def _check_growth(text: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    given = [*args, *kwargs.values()]
    _check_widths(text)
    longest = max((len(value) for value in given if isinstance(value, str)), default=0)
    if (len(text) + 1) * longest > MAX_BUILT:
        raise SecurityError(f"a text of more than {MAX_BUILT} characters")
    if any(isinstance(value, int) and value > 10_000 for value in given):
        raise SecurityError("a width of more than 10000")


def _check_widths(layout: str) -> None:
    if "%" in layout or "{" in layout:
        for digits in re.findall(r"\d+", layout):
            if len(digits) > 5:
                raise SecurityError("a width of more than 99999")


def _check_number(value: Any) -> None:
    if isinstance(value, int) and value.bit_length() > 4096:
        raise SecurityError("a number of more than 4096 bits")


def _raise(message: object) -> None:
    raise jinja2.TemplateError(str(message))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own escapes for HTML, which no model was trained on.
    if isinstance(indent, int) and indent > 16:
        raise SecurityError("an indent of more than 16")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _reason(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
