"""Hard kinds in English: code, design, comparison, long texts, and what small models stumble over.

Written for this project from scratch.
"""

from __future__ import annotations

from prior_kinds import CODELANG, NAME, PAIR, STRUCT, SYSTEM, n, prose, text
from prior_kinds_hard import code, hard

hard(
    "implement",
    "Implement {s} in {l}.",
    "Write {s} in {l} with unit tests.",
    "Code {s} in {l} without any library.",
    "Write a thread-safe version of {s} in {l} and explain its complexity.",
    "I need {s} written from scratch in {l}.",
    s=STRUCT,
    l=CODELANG,
)
hard(
    "algorithm",
    "Write a {l} function that {x}.",
    "Give an algorithm that {x} and state its complexity.",
    "In {l}, how would you write code that {x}?",
    "Develop a {l} routine which {x}.",
    l=CODELANG,
    x=[
        "finds the longest palindrome in a string",
        "merges overlapping intervals",
        "solves a sudoku by backtracking",
        "finds the shortest path in a weighted graph",
        "parses arithmetic expressions with brackets",
        "lists all subsets that add up to k",
        "counts inversions in O(n log n)",
    ],
)
hard(
    "debug",
    "What is wrong with this code?\n{c}",
    "Find the bug and fix it:\n\n{c}",
    "{c}\nThis fails sometimes. Why?",
    "Review this function, point out every error and correct it.\n{c}",
    "My test breaks on this, what must change?\n\n{c}",
    c=code,
)
hard(
    "sql",
    "Write a SQL query that lists for each {x} the top {a} {y} by total, without ties.",
    "SQL: per {x}, the {a} best {y} by sum, with their share of the whole in percent.",
    "For every {x}, select the {a} {y} with the largest totals in SQL, ties excluded.",
    x=["region", "month", "customer"],
    y=["products", "shops", "sellers"],
    a=n(2, 5),
)
hard(
    "regex",
    "Write a regex that matches {x} but not {y}, and explain each part.",
    "Regex for {x}, it must reject {y}.",
    "Which regular expression accepts {x} while refusing {y}?",
    x=["ISO dates", "IPv4 addresses", "hex colours"],
    y=["leading zeros", "empty input", "trailing blanks"],
)
hard(
    "system_design",
    "Design {s}.",
    "Design {s} for {a} million users.",
    "How would you architect {s}? Discuss the trade-offs.",
    "Sketch the architecture of {s}, with failure modes and capacity for {a} million users.",
    s=SYSTEM,
    a=n(1, 50),
)
hard(
    "compare",
    "Compare {p}.",
    "Compare {p} in a table with cost, risk and effort.",
    "Analyse the pros and cons of {p}.",
    "Contrast {p} and recommend one for a cautious buyer.",
    "What speaks for and against each of {p}? Weigh them up.",
    p=PAIR,
)
hard(
    "essay",
    "Write a detailed essay on how {x} changed {y}.",
    "Analyse how {x} changed {y}, with arguments on both sides.",
    "Discuss critically whether {x} improved {y}.",
    "Argue for and against the view that {x} was good for {y}.",
    x=["the railway", "printing", "antibiotics", "the shipping container"],
    y=["cities", "trade", "education", "war"],
)
hard(
    "report",
    "{t}\n\nAnalyse the text: list every claim, say which contradict each other and justify it.",
    "Evaluate the argument in this text step by step.\n\n{t}",
    "{t}\n\nWhich conclusions follow from this, and which do not? Explain why.",
    "Assess critically what is said here and derive three conclusions.\n\n{t}",
    t=prose(400, 5000),
)
hard(
    "business",
    "Draft a go-to-market strategy for {x} with a budget of {a},000 euros, three phases and measurable goals.",
    "We sell {x}. Develop a 12-month plan within {a},000 euros: phases, risks, targets.",
    "Outline a launch strategy for {x}; {a},000 euros, milestones, risks and how to measure success.",
    x=["oat milk", "a language app", "used bicycles", "solar lamps"],
    a=n(5, 90),
)
hard(
    "constrained_text",
    "Write a story of exactly {a} words in which no word contains the letter {b} and each sentence starts with {c}.",
    "Write {a} words, never use the letter {b}, and begin every sentence with {c}.",
    "A text of {a} words please: without the letter {b}, all sentences starting with {c}.",
    a=n(40, 120),
    b=list("eaios"),
    c=list("TSMR"),
)
hard(
    "cipher",
    "Shift each letter of '{w}' by {a} and reverse the result.",
    "Reverse '{w}', then move every letter {a} places on.",
    "Take '{w}', apply a Caesar shift of {a}, then write it backwards.",
    w=["lanterns", "compassrose", "windmillers", "gardengate"],
    a=n(2, 9),
)
hard(
    "count_letters",
    "How many times do the letters {a} and {b} occur in '{s}'?",
    "Count every {a} and {b} in: {s}",
    "In '{s}', what is the number of letters {a} and {b} together?",
    a=list("aeio"),
    b=list("nrst"),
    s=text("{x}", x=prose(60, 140)),
)
hard(
    "dates",
    "What day of the week was {d} {m} {y}? Show the calculation.",
    "On which weekday did {d} {m} {y} fall? Derive it.",
    "Work out the weekday of {d} {m} {y}.",
    d=n(1, 28),
    m=["March", "July", "October"],
    y=n(1850, 2090),
)
hard(
    "physics",
    "A ball is thrown at {a} m/s at {b} degrees from a {c} m high roof. Where does it land?",
    "Compute the landing point: speed {a} m/s, angle {b} degrees, height {c} m.",
    "From {c} m up, an object leaves at {a} m/s and {b} degrees. How far away does it hit the ground?",
    a=n(5, 40),
    b=n(20, 70),
    c=n(3, 60),
)
hard(
    "number_theory",
    "Is {a} prime? Give a proof.",
    "Factor {a} and show each step.",
    "Find the last two digits of {b}^{a}.",
    "What remainder does {b}^{a} leave when divided by 13?",
    a=n(1001, 99991),
    b=n(3, 19),
)
hard(
    "invent_rule",
    "The sequence goes {a}, {b}, {c}, {d}. Find the rule and the next three terms.",
    "Which terms come next: {a}, {b}, {c}, {d}? Explain the rule.",
    "Continue {a}, {b}, {c}, {d} and say why.",
    a=n(1, 5),
    b=n(6, 14),
    c=n(15, 40),
    d=n(41, 120),
)
hard(
    "legal",
    "A contract says: rent is due on the 1st, a delay of more than {a} days costs {b} %, unless the landlord was"
    " told {c} days before. {p} told him {a} days before and paid {b} days late. What is owed, and why?",
    "Apply this clause to the case and justify: late by more than {a} days costs {b} % except after notice {c} days"
    " ahead; {p} was {b} days late with {a} days' notice.",
    "Under a clause ({b} % after {a} days, waived by {c} days'"
    " notice), {p} paid {b} days late after {a} days' notice. Decide the case.",
    a=n(3, 9),
    b=n(5, 12),
    c=n(7, 20),
    p=NAME,
)
