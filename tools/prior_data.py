"""Generated prompts whose label is known by construction: the data that the shipped prior is fitted to.

A kind is a family of prompts with one label (1: worth the standard tier) and several phrasings with the same slots.
All phrasings but the last are for training; the last, and the JUDGE_* framings, are kept for judging robustness.
Everything is drawn from a seeded generator: the same seed gives the same prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

Messages = list[tuple[str, str]]
Slot = Callable[[Random], Any] | Sequence[Any]


@dataclass(frozen=True)
class Kind:
    """A family of prompts with one label."""

    name: str
    hard: bool
    language: str
    phrasings: tuple[str, ...]
    slots: dict[str, Slot]

    def draw(self, rng: Random) -> dict[str, Any]:
        """Values for the slots of the phrasings."""
        return {name: slot(rng) if callable(slot) else rng.choice(slot) for name, slot in self.slots.items()}

    def write(self, values: dict[str, Any], phrasing: int) -> str:
        """The prompt with these values in this phrasing (-1: the one kept for judging)."""
        return self.phrasings[phrasing].format(**values)


@dataclass(frozen=True)
class Example:
    """One prompt with its label."""

    messages: Messages
    hard: bool
    kind: str


FILLER = {
    "train": {
        "who": ["The harbour office", "A neighbour", "The museum", "Our branch in the valley", "The editor", "My aunt",
                "The regional paper", "A visitor from the coast", "The orchestra", "The committee"],
        "did": ["moved to a brighter building", "published a short notice", "repainted the old fence",
                "ordered a second delivery of paper", "opened the doors a little later", "wrote about the spring fair",
                "kept the garden in good order", "changed the colour of the sign", "sent a postcard to the mayor"],
        "when": ["last spring", "on a rainy morning", "during the holidays", "in the late afternoon", "this week",
                 "after a quiet winter", "shortly before lunch", "in March", "around 1987", "on the 14th"],
        "tail": ["and nobody seemed to mind", "which pleased the regulars", "as the weather report had promised",
                 "although the bus was late again", "with some help from the school", "and the coffee was good",
                 "because the roof had to be mended", "while the radio played old songs"],
    },
    "judge": {
        "who": ["A gardener", "The ferry company", "The village library", "Grandfather", "The bakery on the corner",
                "The swimming club", "A retired sailor", "The theatre", "The travel agency", "Her cousin"],
        "did": ["printed a new brochure", "found an old photograph", "planted tulips along the path",
                "replaced the wooden bench", "welcomed guests from abroad", "closed the south entrance",
                "painted the boat dark green", "collected stories from the river", "sold warm bread"],
        "when": ["in early autumn", "yesterday", "on Sunday", "at the end of May", "in the evening", "in 2004",
                 "before the concert", "during the long summer", "at noon", "on the 3rd of June"],
        "tail": ["and everyone stayed for tea", "though the wind was strong", "as people had hoped",
                 "to the delight of the children", "without much noise", "since the bridge was closed",
                 "and the lamps were lit early", "while the dog slept under the table"],
    },
}  # fmt: skip

WRAPPERS = (
    "{p}", "Please answer: {p}", "Hi! {p}", "Question: {p}", "Answer the question below.\n\n{p}", "{p} Please.",
    "Hello, I have a question for you. {p}", "You are a helpful assistant. {p}", "Q: {p}\nA:", "I was wondering, {p}",
    "Could you help me with this? {p}", "User request:\n{p}\n\nResponse:", "Hey there, quick one: {p}",
    "### Instruction:\n{p}\n\n### Response:", "Think about this and reply: {p}", "{p}\n\nGive your answer below.",
    "Here is my question:\n\"{p}\"", "I need some help. {p}", "{p} Thanks!", "{p}\n\nThank you in advance.",
    "{p} Cheers", "{p}\n\nThanks a lot, I appreciate your help.", "Bitte beantworte: {p}",
    "Réponds s'il te plaît : {p}", "请回答：{p}", "Por favor responde: {p}",
)  # fmt: skip
JUDGE_WRAPPERS = (
    "Please answer the following: {p}", "Please answer the following question.\n\n{p}",
    "As an AI assistant, respond to the user's prompt.\n\nPrompt: {p}", "Good morning! I'd like to know this: {p}",
    "Read the task and give the best reply you can.\nTask: {p}\nReply:", "Input: {p}\nOutput:",
    "You are an expert. Consider the following request carefully and answer it to the best of your ability.\n\n{p}",
    "Dear assistant, kindly tell me: {p}",
)  # fmt: skip
JUDGE_THANKS = (
    " Thank you!", " Thx", "\n\nThanks so much for your help, have a nice day!", "\n\nMany thanks and regards,\nSam",
    " Thank you very much, you are great!", "\n\nI really appreciate it.",
)  # fmt: skip


def filler(rng: Random, chars: int, split: str = "train") -> str:
    """About `chars` characters of harmless prose in paragraphs."""
    words = FILLER[split]
    out: list[str] = []
    size = 0
    while size < chars:
        sentence = (
            f"{rng.choice(words['who'])} {rng.choice(words['did'])} {rng.choice(words['when'])},"
            f" {rng.choice(words['tail'])}."
        )
        out.append(sentence + ("\n\n" if rng.random() < 0.2 else " "))
        size += len(out[-1])
    return "".join(out)[:chars].rsplit(". ", 1)[0].strip().rstrip(".") + "."


def user(text: str) -> Messages:
    return [("user", text)]


def with_prefix(rng: Random, prompt: str, chars: int, split: str) -> Messages:
    """The prompt behind `chars` characters of prose: in the same turn, as a system message, or an earlier turn."""
    text = filler(rng, chars, split)
    place = rng.random()
    if place < 0.5:
        return user(f"{text}\n\n{prompt}")
    if place < 0.6:
        return user(f"{text}\n{prompt}")
    if place < 0.7:
        return user(f"{text} {prompt}")
    if place < 0.8:
        return [("system", text), ("user", prompt)]
    return [("user", f"Here are my notes:\n{text}"), ("assistant", "I have read them."), ("user", prompt)]


def framed(rng: Random, prompt: str) -> Messages:
    """A training prompt as people send it: plain, wrapped, behind a prefix, in lower case, without punctuation."""
    roll = rng.random()
    if roll < 0.3:
        return user(prompt)
    if roll < 0.68:
        return user(rng.choice(WRAPPERS).format(p=prompt))
    if roll < 0.9:
        wrapped = rng.choice(WRAPPERS).format(p=prompt) if rng.random() < 0.3 else prompt
        return with_prefix(rng, wrapped, rng.choice((300, 1500, 4000, 12000)), "train")
    return user(prompt.lower().rstrip(".?!"))


PREFIX_CHARS = 10_000


def variations(kind: Kind, values: dict[str, Any], rng: Random) -> dict[str, Messages]:
    """The same question as others would send it; nothing here, but for the question, was trained on."""
    prompt = kind.write(values, 0)
    return {
        "wrapper": user(rng.choice(JUDGE_WRAPPERS).format(p=prompt)),
        "paraphrase": user(kind.write(values, -1)),
        "prefix": with_prefix(rng, prompt, PREFIX_CHARS, "judge"),
        "thanks": user(prompt + rng.choice(JUDGE_THANKS)),
    }


FOLLOW_UPS = ("Continue.", "Are you sure?", "go on", "And then?", "Check that again.", "Why?", "Weiter.", "¿Seguro?")


def examples(kinds: Sequence[Kind], per_kind: int, seed: int) -> list[Example]:
    """`per_kind` prompts of each kind, in training phrasings and framings, and follow-ups that inherit a label."""
    out: list[Example] = []
    for kind in kinds:
        rng = Random(f"{seed}/{kind.name}")
        for _ in range(per_kind):
            values = kind.draw(rng)
            prompt = kind.write(values, rng.randrange(len(kind.phrasings) - 1))
            messages = framed(rng, prompt)
            if rng.random() < 0.03:
                messages = [*messages, ("assistant", filler(rng, 200)), ("user", rng.choice(FOLLOW_UPS))]
            out.append(Example(messages, kind.hard, kind.name))
    return out
