"""The kinds of generated prompts: easy ones that a small model answers well, hard ones that want the careful tier.

Written for this project from scratch. The last phrasing of each kind is never trained on.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from prior_data import Kind, Slot, filler

KINDS: list[Kind] = []


def easy(name: str, *phrasings: str, lang: str = "en", **slots: Slot) -> None:
    KINDS.append(Kind(name, False, lang, phrasings, slots))


def hard(name: str, *phrasings: str, lang: str = "en", **slots: Slot) -> None:
    KINDS.append(Kind(name, True, lang, phrasings, slots))


def n(low: int, high: int) -> Callable[[Random], int]:
    return lambda rng: rng.randint(low, high)


def some(values: list[str], low: int, high: int, joint: str = ", ") -> Callable[[Random], str]:
    return lambda rng: joint.join(rng.sample(values, rng.randint(low, high)))


def prose(low: int, high: int) -> Callable[[Random], str]:
    return lambda rng: filler(rng, rng.randint(low, high))


def text(template: str, **slots: Slot) -> Callable[[Random], Any]:
    return lambda rng: template.format(**{k: v(rng) if callable(v) else rng.choice(v) for k, v in slots.items()})


COUNTRY = ["Norway", "Peru", "Kenya", "Portugal", "Japan", "Canada", "Egypt", "Poland", "Chile", "Greece", "Vietnam"]
THING = ["lantern", "compass", "ladder", "teapot", "bridge", "anchor", "violin", "glacier", "lighthouse", "meadow"]
TERM = [
    "inflation",
    "gravity",
    "an isotope",
    "a metaphor",
    "evaporation",
    "a verb",
    "a peninsula",
    "democracy",
    "a mammal",
    "an adjective",
    "photosynthesis",
    "an index fund",
    "latitude",
]
WORD = ["happy", "quickly", "ancient", "bright", "kind", "begin", "strong", "calm", "narrow", "child", "mouse", "leaf"]
PHRASE = [
    "good night",
    "where is the station",
    "I am hungry",
    "see you tomorrow",
    "the book is on the table",
    "how much does it cost",
    "my name is Ana",
    "it is raining",
    "we like music",
    "two coffees",
]
LANG = ["French", "German", "Spanish", "Italian", "Portuguese", "Dutch"]
NAME = ["Mara", "Tom", "Lena", "Omar", "Ines", "Paul", "Yuki", "Nadia", "Ravi", "Clara", "Joao", "Sven"]
ITEM = ["pencils", "apples", "tickets", "stamps", "marbles", "loaves", "books", "candles", "shells", "cards"]
TOPIC = ["autumn", "the sea", "a lost umbrella", "friendship", "a train ride", "coffee", "an old clock", "snow"]
PERSON = [
    "invented the telephone",
    "painted the Mona Lisa",
    "wrote Don Quixote",
    "discovered penicillin",
    "was the first person on the Moon",
    "composed the Moonlight Sonata",
    "founded the Red Cross",
]
ANIMAL = ["a spider", "an octopus", "a horse", "a beetle", "an ant", "a whale", "a penguin"]
SYSTEM = [
    "a rate limiter",
    "a URL shortener",
    "a chat service",
    "a job queue",
    "a ticket shop",
    "a metrics store",
    "an offline-first notes app",
    "a payment ledger",
    "a photo backup",
    "a feature-flag service",
]
CLAIM = [
    "the square root of {0} is irrational",
    "there are infinitely many primes of the form 4k + 3",
    "the sum of the first n odd numbers is n squared",
    "every integer above 1 has a prime divisor",
    "n^3 - n is divisible by 6 for every integer n",
    "a tree with n vertices has n - 1 edges",
    "log base 2 of {0} is irrational",
    "the harmonic series diverges",
    "a bounded monotone sequence converges",
]
STRUCT = ["a binary search tree", "an LRU cache", "a priority queue", "a trie", "an interval tree", "a ring buffer"]
CODELANG = ["Python", "Rust", "Go", "TypeScript", "Java", "C++"]
PAIR = [
    "solar and wind power",
    "a fixed and a variable mortgage",
    "SQL and document databases",
    "renting and buying",
    "microservices and a monolith",
    "trams and buses for a town of 200,000",
    "TCP and QUIC",
    "gold and bonds",
]
HABIT = ["does not eat fish", "hates museums", "needs a nap at 2 pm", "travels with a dog", "walks with a stick"]
LIMIT = [
    "the budget is {a} euros",
    "no day may have more than {b} hours of walking",
    "every evening must be free",
    "lunch must be before 1 pm",
    "two of the days must be without a car",
    "nobody may work two nights in a row",
    "each place is visited exactly once",
    "at least {b} of the stops must be indoors",
    "the last day ends by noon",
]

# ---- easy -----------------------------------------------------------------------------------------------------
easy(
    "capital",
    "What is the capital of {c}?",
    "capital of {c}",
    "Tell me the capital city of {c}.",
    "Which city is the capital of {c}?",
    "Do you know what {c}'s capital is?",
    c=COUNTRY,
)
easy("who", "Who {x}?", "Tell me who {x}.", "Name the person who {x}.", "Which person {x}?", x=PERSON)
easy(
    "define",
    "What is {t}?",
    "Define {t}.",
    "What does {t} mean?",
    "Give me a short definition of {t}.",
    "In plain words, what is {t}?",
    t=TERM,
)
easy(
    "greeting",
    "{g}",
    "{g}!",
    "{g}, how are you?",
    "{g} there",
    g=["Hello", "Hi", "Good morning", "Hey", "Good evening"],
)
easy("say", "Say {w}.", "Just say {w}", "Write the word {w}.", "Reply with {w}.", "Only output the word {w}", w=WORD)
easy("sayhello", "Say hello", "Say hello to {x}.", "Greet {x}.", "Write a greeting for {x}.", x=NAME)
easy(
    "translate",
    'Translate "{p}" into {l}.',
    "How do you say {p} in {l}?",
    "{p} in {l}",
    "What is the {l} for '{p}'?",
    "Give me the {l} translation of: {p}",
    p=PHRASE,
    l=LANG,
)
easy(
    "synonym",
    "Give a synonym for {w}.",
    "What is another word for {w}?",
    "Synonym of {w}?",
    "Name one word that means the same as {w}.",
    w=WORD,
)
easy("antonym", "What is the opposite of {w}?", "Antonym of {w}", "Give me the opposite of the word {w}.", w=WORD)
easy("plural", "What is the plural of {w}?", "Plural of {w}?", "Write {w} in the plural.", w=WORD)
easy("spell", "How do you spell {w}?", "Spell {w}.", "Spell the word {w} for me", w=THING)
easy(
    "add_small",
    "What is {a} + {b}?",
    "{a} plus {b}",
    "Add {a} and {b}.",
    "{a}+{b}=",
    "How much is {a} and {b}?",
    a=n(1, 20),
    b=n(1, 20),
)
easy("sub_small", "What is {a} - {b}?", "{a} minus {b}?", "Subtract {b} from {a}.", a=n(10, 30), b=n(1, 9))
easy("legs", "How many legs does {x} have?", "Number of legs of {x}?", "{x}: how many legs?", x=ANIMAL)
easy(
    "colour",
    "What colour is {x}?",
    "Which colour does {x} have?",
    "Tell me the colour of {x}.",
    x=["the sky", "grass", "a ripe banana", "snow", "a ruby", "coal"],
)
easy(
    "days",
    "How many {u} are in {v}?",
    "Number of {u} in {v}?",
    "{v} has how many {u}?",
    u=["days", "hours", "minutes"],
    v=["a week", "a day", "a leap year", "an hour", "January"],
)
easy(
    "after",
    "Which day comes after {d}?",
    "What is the day after {d}?",
    "{d} is followed by which day?",
    d=["Monday", "Tuesday", "Friday", "Sunday"],
)
easy(
    "grammar",
    "Correct the grammar: {s}",
    "Fix this sentence: {s}",
    "Please correct: {s}",
    "Is this right? {s}",
    "Repair the mistakes in: {s}",
    s=text("{a} {b} to the {c} yesterday", a=NAME, b=["go", "walk", "runned"], c=["school", "market", "lake"]),
)
easy(
    "rewrite",
    "Rewrite this more politely: {s}",
    "Make this sound friendlier: {s}",
    "Rephrase in a polite way: {s}",
    "Give me a kinder version of: {s}",
    s=["Send me the file.", "You are late again.", "I don't want this.", "Call me now.", "This is wrong."],
)
easy("upper", "Write {s} in capital letters.", "Put this in uppercase: {s}", "Uppercase: {s}", s=PHRASE)
easy(
    "summary_short",
    "Summarise this in one sentence: {t}",
    "Shorten this text:\n\n{t}",
    "TL;DR of this: {t}",
    "{t}\n\nSummarise the text above briefly.",
    "Give the gist of this text.\n\n{t}",
    t=prose(200, 900),
)
easy(
    "summary_long",
    "Summarise the following text.\n\n{t}",
    "{t}\n\nWhat is this text about?",
    "Give me a short summary of this:\n{t}",
    "Condense this into two lines.\n\n{t}",
    t=prose(1200, 6000),
)
easy(
    "find_in_text",
    "{t}\n\nWho is named first in the text?",
    "Which month is named here? {t}",
    "Look for a year in this text: {t}",
    "{t}\nWhich building is mentioned?",
    t=prose(200, 1200),
)
easy(
    "title",
    "Suggest a title for this: {t}",
    "Give this note a title.\n\n{t}",
    "{t}\n\nPropose a headline.",
    t=prose(150, 600),
)
easy(
    "translate_long",
    "Translate into {l}:\n\n{t}",
    "Please translate this to {l}. {t}",
    "{l} version, please: {t}",
    l=LANG,
    t=prose(150, 900),
)
easy(
    "list_short",
    "Name three {x}.",
    "List 3 {x}.",
    "Give me three examples of {x}.",
    "What are some {x}?",
    "Tell me a few {x}",
    x=["fruits", "rivers in Europe", "colours", "kitchen tools", "card games", "birds"],
)
easy(
    "poem",
    "Write a short poem about {t}.",
    "A haiku about {t}",
    "Write two lines about {t}.",
    "Compose four lines on {t}.",
    t=TOPIC,
)
easy("joke", "Tell me a joke about {t}.", "joke about {t}", "Do you know a joke on {t}?", t=TOPIC)
easy(
    "email_short",
    "Write a short thank-you note to {x}.",
    "Write a birthday message for {x}.",
    "A two-line invitation for {x}",
    "Compose a brief get-well card for {x}.",
    x=NAME,
)
easy(
    "sentiment",
    "Is this review positive or negative? {s}",
    "Label the sentiment: {s}",
    "Positive or negative: {s}",
    "What is the mood of this review? {s}",
    s=[
        "I loved every minute.",
        "Cold food and rude staff.",
        "It broke at once.",
        "Works like a charm.",
        "Never again.",
        "A pleasant surprise.",
    ],
)
easy(
    "unit",
    "How many {u} are in {a} {v}?",
    "Convert {a} {v} to {u}.",
    "{a} {v} in {u}",
    a=[1, 2, 3, 5, 10],
    u=["metres", "centimetres"],
    v=["kilometres", "metres"],
)
easy(
    "yesno",
    "Is {x} {y}?",
    "True or false: {x} is {y}.",
    "{x} is {y}, right?",
    x=["a tomato", "a bat", "a whale", "ice"],
    y=["a fruit", "a mammal", "a bird", "a metal"],
)
easy("weather_chat", "I had a {x} day.", "Today was {x}.", "My day was rather {x}.", x=["long", "good", "bad", "busy"])
easy(
    "recipe_simple",
    "How do I boil {x}?",
    "What is the easiest way to cook {x}?",
    "cooking {x}",
    x=["an egg", "rice", "pasta", "potatoes"],
)
easy(
    "code_tiny",
    "How do I print {w} in {l}?",
    "{l}: print {w}",
    "Show a line of {l} that prints {w}.",
    w=WORD,
    l=CODELANG,
)
easy(
    "code_word",
    "What is {x} in programming?",
    "What does {x} mean in code?",
    "In programming, what is {x}?",
    x=["a variable", "a loop", "a string", "a comment", "a list"],
)
easy(
    "extract_mail",
    "Get the e-mail address from: {t} Write to {x}@mail.test.",
    "Which address is in here? {t} {x}@mail.test",
    "Find the mail address: {t} Mail: {x}@mail.test",
    t=prose(100, 400),
    x=["anna", "office", "info", "tom"],
)
