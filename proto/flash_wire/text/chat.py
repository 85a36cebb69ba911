"""Chat templates: a model's own Jinja, run in a sandbox, as `transformers` runs it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import jinja2
import jinja2.nodes

from flash_wire.text.errors import TextError
from flash_wire.text.sandbox import Sandbox

MAX_TEMPLATE = 1_000_000
"""Characters of a template."""
MAX_MESSAGES = 4096
MAX_RENDERED = 4_000_000
"""Characters of a rendered chat."""

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function", "ipython", "model"})
_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
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
            env = self._env = Sandbox()
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
        self._env.start()
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


def _reason(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
