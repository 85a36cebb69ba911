"""The hard kinds in English. Written for this project from scratch."""

from __future__ import annotations

from random import Random

from prior_kinds import (
    CLAIM,
    COUNTRY,
    HABIT,
    ITEM,
    LIMIT,
    NAME,
    hard,
    n,
    some,
)  # fmt: skip


def claim(rng: Random) -> str:
    return rng.choice(CLAIM).format(rng.choice([2, 3, 5, 7, 11]))


def limits(rng: Random) -> str:
    chosen = rng.sample(LIMIT, rng.randint(3, 5))
    filled = [one.format(a=rng.randint(3, 30) * 50, b=rng.randint(2, 4)) for one in chosen]
    return ", ".join(filled) if rng.random() < 0.5 else "\n" + "\n".join(f"- {one}" for one in filled) + "\n"


def order_clues(rng: Random) -> str:
    people = rng.sample(NAME, rng.randint(4, 6))
    kinds = [
        "{0} is taller than {1}",
        "{0} sits left of {1}",
        "{0} finished before {1}",
        "{0} does not sit next to {1}",
        "if {0} came by bus, {1} walked",
        "exactly one of {0} and {1} lies",
    ]
    return ". ".join(rng.choice(kinds).format(*rng.sample(people, 2)) for _ in range(rng.randint(3, 6))) + "."


def product(rng: Random) -> str:
    return f"{rng.randint(120, 98000)} {rng.choice('*×')} {rng.randint(112, 9900)}"


def expression(rng: Random) -> str:
    parts = [f"({rng.randint(11, 99)} {rng.choice('+-*')} {rng.randint(11, 99)})" for _ in range(rng.randint(2, 4))]
    return f" {rng.choice('*+-/')} ".join(parts)


def code(rng: Random) -> str:
    name = rng.choice(["merge", "walk", "settle", "split", "collect"])
    body = rng.choice([
        "    out = []\n    for i in range(len(xs)):\n        if xs[i] < xs[i + 1]: out.append(i)\n    return out",
        "    if len(xs) == 1:\n        return xs\n    mid = len(xs) / 2\n    return {0}(xs[:mid]) + {0}(xs[mid:])",
        "    total = 0\n    while xs:\n        total += xs.pop()\n        if total > 9: continue\n    return total, xs",
        "    with lock_a:\n        with lock_b:\n            xs.append(len(xs))\n    return xs[-1]",
    ])  # fmt: skip
    return f"```python\ndef {name}(xs):\n{body.format(name)}\n```"


hard(
    "prove",
    "Prove that {c}.",
    "Prove step by step that {c}.",
    "Show that {c}.",
    "Give a rigorous proof that {c}.",
    "Can you write down a proof of the fact that {c}?",
    c=claim,
)
hard(
    "explain_why",
    "Explain in detail why {c}.",
    "Why is it true that {c}? Justify every step.",
    "Derive carefully that {c}.",
    "What argument shows that {c}? Do not skip any step.",
    c=claim,
)
hard(
    "multiply",
    "What is {x}?",
    "Calculate {x}.",
    "{x} =",
    "Compute the product {x}",
    "How much does {x} come to?",
    x=product,
)
hard(
    "expression",
    "Evaluate {x}.",
    "What is {x}?",
    "Compute {x} and show the steps.",
    "Work out the value of {x}",
    x=expression,
)
hard(
    "shop",
    "{p} buys {a} {i} at {b} cents each and {c} boxes at {d} dollars. She pays with a {e} dollar note. How much"
    " change does she get?",
    "{a} {i} cost {b} cents each. {p} also takes {c} boxes for {d} dollars each and gives the"
    " clerk {e} dollars. What is the change?",
    "After buying {a} {i} for {b} cents apiece and {c} boxes for {d} dollars"
    " each, how many dollars are left of {e} for {p}?",
    p=NAME,
    i=ITEM,
    a=n(3, 40),
    b=n(15, 95),
    c=n(2, 6),
    d=n(2, 9),
    e=n(50, 100),
)
hard(
    "share_out",
    "{p} has {a} {i}. He gives {b} to {q}, then half of what is left to his sister, and finds {c} more. How"
    " many {i} does {p} have now?",
    "{p} starts with {a} {i}, hands {b} over to {q}, gives half of the rest away and gets"
    " {c} new ones. How many {i} remain?",
    "There are {a} {i} in a bag. {q} takes {b}, {p} takes half of the rest, then"
    " {c} are put back. How many {i} are in the bag at the end?",
    p=NAME,
    q=NAME,
    i=ITEM,
    a=n(20, 90),
    b=n(3, 15),
    c=n(2, 9),
)
hard(
    "trains",
    "A train leaves at {a}:15 at {b} km/h. {c} minutes later another follows at {d} km/h. When does the second"
    " catch up?",
    "Two trains start {c} minutes apart, the first at {a}:15 with {b} km/h, the second with {d} km/h."
    " After how many kilometres do they meet?",
    "At {a}:15 a bus sets off at {b} km/h; {c} minutes after it a car drives"
    " the same road at {d} km/h. At what time are they level?",
    a=n(6, 11),
    b=n(50, 80),
    c=n(10, 50),
    d=n(90, 140),
)
hard(
    "workers",
    "{a} workers build a wall in {b} days. How long do {c} workers need if {d} of them work half days?",
    "If {a} painters need {b} days, and {d} of {c} painters only work half of each day, how many days do they take?",
    "A job takes {a} people {b} days. With {c} people, {d} of whom are half-time, what is the duration?",
    a=n(3, 9),
    b=n(4, 20),
    c=n(5, 12),
    d=n(1, 4),
)
hard(
    "ages",
    "{p} is {a} times as old as {q}. In {b} years {p} will be twice as old as {q}. How old are they?",
    "In {b} years {p} is going to be double {q}'s age; today it is {a} times. Find both ages.",
    "{q}'s age times {a} is {p}'s age, and {b} years from now the factor is two. What are the ages?",
    p=NAME,
    q=NAME,
    a=n(3, 6),
    b=n(4, 20),
)
hard(
    "percent",
    "A coat costs {a} dollars. It is reduced by {b} %, then raised by {c} %, and {d} % tax is added. What is"
    " the final price?",
    "The price of {a} dollars falls {b} percent, rises {c} percent, then {d} percent tax comes on"
    " top. How much must one pay in total?",
    "Starting from {a} dollars, apply a {b} % discount, a {c} % increase and {d} % tax. Which amount results?",
    a=n(40, 400),
    b=n(5, 40),
    c=n(3, 20),
    d=n(4, 22),
)
hard(
    "probability",
    "A box has {a} red and {b} blue balls. {c} are drawn without putting back. What is the probability"
    " that exactly {d} are red?",
    "{c} balls are taken from {a} red and {b} blue ones. How likely is it that exactly {d} of them are red?",
    "Out of {a} red and {b} blue balls, {c} are picked at once. Find the chance of exactly {d} red ones.",
    a=n(4, 9),
    b=n(4, 9),
    c=n(3, 4),
    d=n(1, 3),
)
hard(
    "equations",
    "Solve for x and y: {a}x + {b}y = {c} and {d}x - {b}y = {e}.",
    "Find x, y with {a}x + {b}y = {c}, {d}x - {b}y = {e}",
    "The system {a}x + {b}y = {c}, {d}x - {b}y = {e}: which x and y satisfy it?",
    a=n(2, 9),
    b=n(2, 9),
    c=n(5, 60),
    d=n(2, 9),
    e=n(1, 40),
)
hard(
    "calculus",
    "Find the integral of x^{a} * e^x.",
    "Differentiate x^{a} * sin({b}x) twice.",
    "What is the limit of (1 + {b}/x)^x as x goes to infinity? Justify.",
    "Determine the minimum of x^{a} - {b}x on the positive axis.",
    a=n(2, 5),
    b=n(2, 9),
)
hard(
    "order_puzzle",
    "{c} Who is where? Explain your reasoning.",
    "Solve this puzzle: {c} Give the full order.",
    "{c} Work out the order of all people.",
    "From these clues, find out the complete arrangement: {c}",
    c=order_clues,
)
hard(
    "liars",
    "On an island knights always tell the truth and knaves always lie. {p} says: {q} is a knave. {q} says: we"
    " are both the same. What are they?",
    "{p} says that {q} lies. {q} says that {p} and {q} are alike. Knights tell the truth, knaves lie. Who is what?",
    'Knaves lie and knights don\'t. {p}: "{q} is a knave." {q}: "We are of the same kind." Determine what each one is.',
    p=NAME,
    q=NAME,
)
hard(
    "trip",
    "Plan a {d}-day trip to {c} for {k} people. Conditions: {l}. One of us {h}.",
    "We are {k} friends and want to see {c} in {d} days. {l}. One {h}. Make a day-by-day plan.",
    "Create an itinerary for {d} days in {c} ({k} travellers) that satisfies all of this: {l}. Someone {h}.",
    "Work out how {k} of us can spend {d} days in {c}, keeping to these rules: {l}. A member of the group {h}.",
    d=n(3, 9),
    c=COUNTRY,
    k=n(2, 6),
    l=limits,
    h=HABIT,
)
hard(
    "schedule",
    "Make a weekly schedule for {p}. {l}.",
    "Schedule shifts for {p} over one week such that: {l}.",
    "{p} share the shifts of a week. The rules are: {l}. Give a plan.",
    "Assign the week's shifts to {p}, where {l}.",
    p=some(NAME, 3, 5),
    l=limits,
)
hard(
    "menu",
    "Design a menu for {a} guests: {b} are vegan, {c} cannot eat nuts, the total must stay below {d} euros and"
    " nothing may take more than 40 minutes.",
    "{a} guests come, {b} vegan, {c} with a nut allergy; spend at most {d}"
    " euros and at most 40 minutes per dish. Plan three courses.",
    "I must cook three courses for {a} people ({b} vegan,"
    " {c} no nuts) under {d} euros, each dish within 40 minutes. What do I make?",
    a=n(5, 12),
    b=n(1, 3),
    c=n(1, 3),
    d=n(40, 150),
)
