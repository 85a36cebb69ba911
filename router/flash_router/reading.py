"""Which part of a prompt the classifier reads: the last user turn first, then a little of what stands before it.

Invariant: about MAX_CHARS characters at most are looked at, whatever the prompt's size, and `truncated` is true
whenever anything was left out. What a long turn asks for stands mostly in its last paragraph, its instruction
sometimes in its first: both are kept, the middle is not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from flash_router import cues

Prompt = str | Sequence[tuple[str, str]]
"""A raw prompt, or (role, content) pairs in order."""

MAX_CHARS = 2200
ASK_CHARS = 1500
"""A last user turn up to this length (half of it in scripts without blanks) is read whole."""
TAIL_CHARS = 1200
HEAD_CHARS = 300
LONG_LINE = 200
"""A line of this length is a paragraph of its own, also without a blank line around it."""
COHERENT_CHARS = 800
"""So far back from the end of a block are sentences looked at that may belong to the question."""
SURE_PARAGRAPH = 300
"""A last paragraph up to this length is one thought; a longer one is searched for where the question starts."""
CONTEXT_HEAD = 200
CONTEXT_TAIL = 500

UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\u0e00-\u0e7f]")
"""One character of a script that puts no blanks between words."""
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_SENTENCE_END = re.compile(r"(?<=[.!?][ \n])|(?<=[。！？\n])")
_DIGIT = re.compile(r"\d")
_LINE_END = re.compile(r"(?<=\n)")
_LIST = re.compile(r"\s*(?:[-*•]|\(?\w{1,2}[.)])\s")


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read of one prompt. All texts together have about MAX_CHARS characters at most."""

    ask: str
    """The last user turn, or the part of it that asks."""
    head: str
    """The first words of a last user turn too long to be read; else empty."""
    context: str
    """Start and end of what stands before the last user turn."""
    turns: int
    """User turns before the last one."""
    truncated: bool
    chars: int
    """Length of the whole prompt in characters."""


def last_user(messages: Sequence[tuple[str, str]]) -> int:
    """Index of the last user turn; of the last message where no one is called user; -1 of none."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index][0] == "user":
            return index
    return len(messages) - 1


def read(prompt: Prompt) -> Reading:
    """The parts of `prompt` that are counted. Never fails, also for an empty prompt."""
    if isinstance(prompt, str):
        turn, before, after, chars, turns = prompt, "", 0, len(prompt), 0
    else:
        at = last_user(prompt)
        turn = prompt[at][1] if prompt else ""
        chars = sum(len(content) for _, content in prompt)
        turns = sum(role == "user" for role, _ in prompt[:at])
        after = sum(len(content) for _, content in prompt[at + 1 :])
        before = _context([content for _, content in prompt[: max(at, 0)] if content])
    text = turn.strip()
    # Leading and trailing blanks say nothing: leaving them out is no truncation.
    unread = chars - after - len(turn) > CONTEXT_HEAD + CONTEXT_TAIL or after > 0
    part = 2 if _is_dense(text) else 1
    if len(text) <= ASK_CHARS // part:
        return Reading(text, "", before, turns, unread, chars)
    return Reading(_asking_part(text[-TAIL_CHARS // part :]), text[:HEAD_CHARS], before, turns, True, chars)


def _is_dense(text: str) -> bool:
    """True in scripts that put no blanks between words: a character there says, and costs, twice as much."""
    ends = text[:100] + text[-100:]
    return not ends.isascii() and len(UNSPACED.findall(ends)) * 4 > len(ends)


def _context(contents: list[str]) -> str:
    """Start and end of the earlier messages. Joins no more of them than it needs."""
    total = sum(map(len, contents))
    if total <= CONTEXT_HEAD + CONTEXT_TAIL:
        return "\n".join(contents)
    tail: list[str] = []
    size = 0
    for content in reversed(contents):
        tail.append(content[-(CONTEXT_TAIL - size) :])
        size += len(tail[-1])
        if size >= CONTEXT_TAIL:
            break
    head: list[str] = []
    size = 0
    for content in contents:
        head.append(content[: CONTEXT_HEAD - size])
        size += len(head[-1])
        if size >= CONTEXT_HEAD:
            break
    return "\n".join([*head, *reversed(tail)])


def is_courtesy(text: str) -> bool:
    """True when every word of `text` is one of politeness, as in "Thank you very much!"."""
    return len(text) <= 200 and all(
        word in cues.COURTESY or word in cues.COURTESY_LINKS for word in _WORD.findall(text.lower())
    )


def _asking_part(tail: str) -> str:
    """The last paragraph that is more than politeness, with the one before it where it only continues that."""
    paragraphs = _paragraphs(tail)
    while len(paragraphs) > 1 and is_courtesy(paragraphs[-1]):
        paragraphs.pop()
    asked = paragraphs.pop()
    while paragraphs and (_LIST.match(asked) or paragraphs[-1].endswith((":", "："))):
        asked = paragraphs.pop() + "\n\n" + asked
    if paragraphs and "\n" not in asked and len(asked) <= SURE_PARAGRAPH:
        return asked
    parts = _SENTENCE_END.split(asked) if len(asked) > SURE_PARAGRAPH or not paragraphs else _LINE_END.split(asked)
    return _coherent_end([part for part in parts if part])


def _paragraphs(text: str) -> list[str]:
    """`text` at blank lines and around long lines; never empty."""
    out: list[str] = []
    lines: list[str] = []
    for line in text.split("\n"):
        if not line.strip() or len(line) >= LONG_LINE or (lines and len(lines[-1]) >= LONG_LINE):
            if lines:
                out.append("\n".join(lines).strip())
            lines = [line] if line.strip() else []
        else:
            lines.append(line)
    if lines:
        out.append("\n".join(lines).strip())
    return out or [""]


def _coherent_end(parts: list[str]) -> str:
    """The last of these sentences or lines that hang together: what a question drags along, not what precedes it.

    Going back from the end, a part is kept while it, or the one before it, shares a word with the kept ones or has a
    number as they do, while a kept one leans on what is before it, and while no full stop divides them.
    """
    start = len(parts) - 1
    while start > 0 and is_courtesy(parts[start]):
        start -= 1
    # A number in the question itself links to nothing: "What is 7 + 5?" stands alone.
    words, numbers, size = _stems(parts[start]), False, len(parts[start])
    look = start - 1
    while look >= max(start - 2, 0) and size < COHERENT_CHARS:
        before = parts[look]
        stems = _stems(before)
        follows = look == start - 1 and (
            not before.rstrip().endswith((".", "!", "?", "。", "！", "？", '."', '?"'))
            or _LIST.match(parts[start]) is not None
            or _leans_back(parts[start])
        )
        if follows or (numbers and _has_digit(before)) or not words.isdisjoint(stems):
            for part in parts[look:start]:
                words |= _stems(part)
                numbers = numbers or _has_digit(part)
                size += len(part)
            start = look
        look -= 1
    return "".join(parts[start:]).strip()


def _stems(sentence: str) -> set[str]:
    """Starts of the longer words: the same for "wall" and "walls"."""
    return {word[:5] for word in _WORD.findall(sentence.lower()) if len(word) > 3 and word not in cues.LINKING}


def _has_digit(sentence: str) -> bool:
    return _DIGIT.search(sentence) is not None


def _leans_back(sentence: str) -> bool:
    """True when the sentence begins with a word that points at what stands before it."""
    first = _WORD.search(sentence)
    return first is not None and first[0].lower() in cues.POINTING
