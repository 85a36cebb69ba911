"""About sixty counts over a prompt, the same at training and at serving.

Pure Python: one pass of compiled patterns and dictionary look-ups over at most reading.MAX_CHARS characters.
Counts go through log(1 + count / scale), so that the few words of a wrapper move them little and a long prompt does
not drown everything else.
"""

from __future__ import annotations

import re
from itertools import pairwise
from math import log1p, sqrt

from flash_router import cues
from flash_router.reading import UNSPACED, Prompt, Reading, read

_GROUP_NAMES = tuple(cues.GROUPS)
_SCALARS = (
    "chars", "words", "sentences", "lines", "paragraphs", "words_per_sentence", "longest_sentence",
    "word_length", "word_spread", "long_words", "very_long_words", "abstract_words", "distinct_words", "short_prompt",
    "numbers", "digits", "longest_number", "decimals", "percent", "currency", "numbers_per_word",
    "operators", "big_arithmetic", "equations", "math_symbols", "variables", "latex",
    "list_items", "commas", "colons", "questions", "asks", "brackets", "quotes", "quoted_share", "names",
    "code_marks", "code_lines", "script_other", "script_unspaced", "uppercase_words",
    "deep_and_long", "shallow_and_short", "head_deep", "head_shallow", "turns", "follow_up", "context_deep",
    "context_code", "context_numbers",
)  # fmt: skip
NAMES: tuple[str, ...] = _SCALARS + _GROUP_NAMES
"""Names of the counts, in the order of `vector`."""
VERSION = 1
"""Raised whenever a count changes its meaning, so that an artefact made for other counts is refused."""

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_SENTENCE = re.compile(r"[.!?。！？]+(?=\s|$|[^\x00-\x7f])|\n+|[。！？]")
_LIST_ITEM = re.compile(r"^[ \t]*(?:[-*•]|\(?[0-9a-z]{1,2}[.)])[ \t]", re.M)
_PARAGRAPH = re.compile(r"\n[ \t\r]*\n")
_UNSPACED = re.compile(UNSPACED.pattern + "+")
_NOT_LATIN = re.compile(r"[\u0370-\u1dff\u2c00-\ud7ff]+")
_CODE_MARKS = ("```", "()", "==", "!=", "->", "=>", "&&", "||", "::", "</", "_")
_CODE_WORDS = frozenset(("def", "import", "return", "const", "elif", "endif", "fn", "struct", "void", "lambda"))
_CODE_CALL = re.compile(r"\.\w+\(|[;{}][ \t]*$", re.M)
_LATEX = re.compile(r"\\[a-zA-Z]+|\$[^$\n]+\$")
_QUOTED = re.compile(
    r"\"[^\"\n]{1,400}\"|“[^”\n]{1,400}”|«[^»\n]{1,400}»|「[^」\n]{1,400}」|(?<!\w)'[^'\n]{2,400}'(?!\w)"
)
_OPERATORS = "+*/^<>=×÷"
_MINUS = re.compile(r"[-−](?<=[\d\s)].)(?=[\d\s(])")
_MATH = re.compile(r"[∑∫√≤≥≠∈∀∃∂∞πθ≡∪∩⊂²³]")
_ONE_LETTER = frozenset("aiyeoàóéuw")
"""Words of one letter in some language: no variables."""
_MATH_WORDS = frozenset(("log", "sin", "cos", "tan", "mod", "sqrt", "lim"))
_NAME = re.compile(r"(?<=[a-z,;:] )[A-ZÀ-Þ][a-zà-ÿ]+")

_GROUP_INDEX = {name: index for index, name in enumerate(_GROUP_NAMES)}
_CUES: dict[str, tuple[int, ...]] = {}
for _name, _words in cues.GROUPS.items():
    for _word in dict.fromkeys(_words.split()):
        _CUES[_word] = (*_CUES.get(_word, ()), _GROUP_INDEX[_name])
_PAIRS: dict[tuple[str, str], int] = {
    (pair.split()[0], pair.split()[1]): _GROUP_INDEX[name]
    for name, pairs in cues.PAIRS.items()
    for pair in pairs.split("/")
}
_PAIR_FIRST = frozenset(first for first, _ in _PAIRS)
_UNSPACED_GROUP = {cue: _GROUP_INDEX[name] for name, listed in cues.UNSPACED.items() for cue in listed.split("|")}
# Longest first: a cue must not be hidden by a shorter one that starts it.
_UNSPACED_CUE = re.compile("|".join(sorted(_UNSPACED_GROUP, key=lambda cue: (-len(cue), cue))))
_DEEP = tuple(_GROUP_INDEX[name] for name in cues.DEEP_GROUPS)
_SHALLOW = tuple(_GROUP_INDEX[name] for name in cues.SHALLOW_GROUPS)
_COURTESY = cues.COURTESY
_ENDINGS = cues.ABSTRACT_ENDINGS


def vector(prompt: Prompt) -> tuple[list[float], Reading]:
    """The counts of `prompt` in the order of NAMES, and what was read of it."""
    reading = read(prompt)
    return measure(reading), reading


def measure(reading: Reading) -> list[float]:
    """The counts of what was read."""
    text = reading.ask
    unspaced = sum(map(len, _UNSPACED.findall(text))) if not text.isascii() else 0
    found = _WORD.findall(text)
    words = [word for word in map(str.lower, found) if word not in _COURTESY]
    groups = _cue_counts(words, text if unspaced else "")

    # Unspaced scripts: a run of characters is one match, so words are counted from the characters (two make one).
    n_words = unspaced / 2 + len(words)
    lengths = [len(word) for word in words] if not unspaced else [min(len(word), 4) for word in words]
    count = max(len(lengths), 1)
    mean = sum(lengths) / count
    spread = sqrt(max(sum(length * length for length in lengths) / count - mean * mean, 0.0))
    abstract = sum(1 for word in words if len(word) > 6 and (word[-4:] in _ENDINGS or word[-3:] in _ENDINGS))
    sentences = [part for part in _SENTENCE.split(text) if len(part) > 2]
    n_sentences = max(len(sentences), 1)
    longest = max(map(len, sentences), default=0)

    numbers = _NUMBER.findall(text)
    n_digits = sum(map(len, numbers))
    variables = sum(1 for word in words if len(word) == 1 and word not in _ONE_LETTER)
    capitals = sum(1 for word in filter(str.isupper, found) if len(word) > 1)
    operators = sum(map(text.count, _OPERATORS)) + len(_MINUS.findall(text))
    math_marks = sum(1 for word in words if word in _MATH_WORDS)
    if not text.isascii():
        math_marks += len(_MATH.findall(text))
    # Digits to carry: what makes 7 + 5 easy and 4711 * 815 hard.
    arithmetic = bool(operators or groups[_GROUP_INDEX["cue_compute"]])
    big_arithmetic = log1p(max(n_digits - 4, 0) / 2) if arithmetic and len(numbers) > 1 else 0.0
    quoted = _QUOTED.findall(text) if '"' in text or " '" in text or not text.isascii() else []
    code = _code_marks(text, words)
    size = max(len(text), 1)
    n_questions = text.count("?") + text.count("？")
    deep = sum(groups[index] for index in _DEEP)
    shallow = sum(groups[index] for index in _SHALLOW)
    follow_up = float(bool(reading.turns) and n_words <= 2 and not numbers)
    context_deep, context_code, context_numbers = _context(reading.context)
    head_deep, head_shallow = _head(reading.head)

    scalars = (
        log1p(len(text) / 200), log1p(n_words / 40), log1p(n_sentences / 4), log1p(text.count("\n") / 4),
        log1p(len(_PARAGRAPH.findall(text)) / 2), log1p(n_words / n_sentences / 15), log1p(longest / 100),
        mean / 5, spread / 3, sum(1 for length in lengths if length >= 8) / count,
        log1p(sum(1 for length in lengths if length >= 12) / 2), log1p(abstract / 2), len(set(words)) / count,
        1 / (1 + n_words / 8),
        log1p(len(numbers) / 2), log1p(n_digits / 6), log1p(max(map(len, numbers), default=0) / 3),
        log1p(sum(1 for number in numbers if "." in number)), log1p(text.count("%")),
        log1p(text.count("$") + text.count("€") + text.count("£") + text.count("¥")),
        len(numbers) / (len(numbers) + n_words + 4),
        log1p(operators / 2), big_arithmetic, log1p(text.count("=")), log1p(math_marks),
        log1p(variables / 2), log1p(len(_LATEX.findall(text)) if "\\" in text or "$" in text else 0),
        log1p(len(_LIST_ITEM.findall(text)) / 2),
        log1p((text.count(",") + text.count("，") + text.count("、")) / 3),
        log1p((text.count(":") + text.count(";") + text.count("：")) / 2), log1p(n_questions / 2),
        log1p((groups[_GROUP_INDEX["wh"]] + groups[_GROUP_INDEX["how"]] + n_questions) / 3),
        log1p((text.count("(") + text.count("[") + text.count("{")) / 2), log1p(len(quoted)),
        sum(map(len, quoted)) / size, log1p(len(_NAME.findall(text)) / 3),
        log1p(code / 2), log1p(text.count("\n    ") + text.count("\n\t")),
        (sum(map(len, _NOT_LATIN.findall(text))) - unspaced) / size if not text.isascii() else 0.0, unspaced / size,
        log1p(capitals / 3),
        log1p(deep) * log1p(n_words / 20), log1p(shallow) / (1 + n_words / 20), log1p(head_deep), log1p(head_shallow),
        log1p(reading.turns / 2), follow_up, follow_up * log1p(context_deep), log1p(context_code / 4),
        follow_up * log1p(context_numbers / 4),
    )  # fmt: skip
    return [*scalars, *(log1p(value) for value in groups)]


def _cue_counts(words: list[str], unspaced: str) -> list[int]:
    """How often each group's cues stand in `words`, or in `unspaced` text."""
    groups = [0] * len(_GROUP_NAMES)
    get = _CUES.get
    for word in words:
        for index in get(word, ()):
            groups[index] += 1
    if not _PAIR_FIRST.isdisjoint(words):
        for pair in pairwise(words):
            if (found := _PAIRS.get(pair)) is not None:
                groups[found] += 1
    if unspaced:
        for cue in _UNSPACED_CUE.findall(unspaced):
            groups[_UNSPACED_GROUP[cue]] += 1
    return groups


def _code_marks(text: str, words: list[str]) -> int:
    """Marks that code has and prose has not."""
    marks = sum(map(text.count, _CODE_MARKS)) + sum(1 for word in words if word in _CODE_WORDS)
    return marks + len(_CODE_CALL.findall(text)) if "(" in text or ";" in text or "{" in text else marks


def _head(head: str) -> tuple[int, int]:
    """Deep and shallow cues in the start of a turn too long to be read."""
    if not head:
        return 0, 0
    lower = head.lower()
    groups = _cue_counts(_WORD.findall(lower), "" if head.isascii() else lower)
    return sum(groups[index] for index in _DEEP), sum(groups[index] for index in _SHALLOW)


def _context(context: str) -> tuple[int, int, int]:
    """Deep cues, code marks and numbers in what stands before the last user turn."""
    if not context:
        return 0, 0, 0
    lower = context.lower()
    words = _WORD.findall(lower)
    groups = _cue_counts(words, "" if context.isascii() else lower)
    return sum(groups[index] for index in _DEEP), _code_marks(context, words), len(_NUMBER.findall(context))
