"""The hard kinds; and HELD_OUT names what the evaluation groups by. Written for this project from scratch."""

from __future__ import annotations

from random import Random

from prior_kinds import (
    CLAIM, CODELANG, COUNTRY, HABIT, ITEM, KINDS, LIMIT, NAME, PAIR, STRUCT, SYSTEM, hard, n, prose, some, text,
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
        "    out = []\n    for i in range(len(xs)):\n        if xs[i] < xs[i + 1]:\n            out.append(xs[i])\n    return out",
        "    if len(xs) == 1:\n        return xs\n    mid = len(xs) / 2\n    return {0}(xs[:mid]) + {0}(xs[mid:])",
        "    total = 0\n    while xs:\n        total += xs.pop()\n        if total > 10: continue\n    return total, xs",
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
hard(
    "de_prove",
    "Beweise, dass {c}.",
    "Zeige Schritt für Schritt, dass {c}.",
    "Warum gilt, dass {c}? Begründe genau.",
    lang="de",
    c=[
        "die Wurzel aus 2 irrational ist",
        "es unendlich viele Primzahlen gibt",
        "die Summe der ersten n ungeraden Zahlen n Quadrat ist",
    ],
)
hard(
    "de_word",
    "{p} kauft {a} Hefte zu je {b} Cent und {c} Stifte zu je {d} Cent. Wie viel bekommt er auf {e} Euro zurück?",
    "{a} Hefte kosten je {b} Cent, {c} Stifte je {d} Cent. {p} zahlt mit {e} Euro. Berechne das Rückgeld.",
    "Wie viel Geld bleibt {p} von {e} Euro, wenn {a} Hefte ({b} Cent) und {c} Stifte ({d} Cent) gekauft werden?",
    lang="de",
    p=NAME,
    a=n(3, 12),
    b=n(40, 99),
    c=n(2, 9),
    d=n(30, 150),
    e=n(20, 50),
)
hard(
    "de_plan",
    "Plane eine Woche für {k} Personen: höchstens {a} Euro, genau zwei Ruhetage, niemand fährt allein, und"
    " mindestens drei Museen.",
    "Entwirf einen Plan für {k} Leute und 7 Tage. Es müssen drei Museen dabei sein, genau zwei"
    " Tage ohne Programm, maximal {a} Euro.",
    "Wie können {k} Personen eine Woche verbringen, ohne mehr als {a} Euro"
    " auszugeben, mit drei Museen und genau zwei freien Tagen?",
    lang="de",
    k=n(2, 6),
    a=n(200, 900),
)
hard(
    "fr_prove",
    "Démontre que {c}.",
    "Prouvez étape par étape que {c}.",
    "Pourquoi est-il vrai que {c} ? Justifie.",
    lang="fr",
    c=[
        "la racine de 2 est irrationnelle",
        "il existe une infinité de nombres premiers",
        "la somme des angles d'un triangle vaut 180 degrés",
    ],
)
hard(
    "fr_word",
    "{p} achète {a} cahiers à {b} euros et {c} stylos à {d} euros, avec une remise de {e} %. Combien paie-t-elle"
    " au total ?",
    "{a} cahiers coûtent {b} euros chacun, {c} stylos {d} euros chacun ; la remise est de {e} %. Calcule le"
    " prix total pour {p}.",
    "Quel est le montant final pour {p} : {a} cahiers à {b} euros, {c} stylos à {d} euros, moins {e} % ?",
    lang="fr",
    p=NAME,
    a=n(3, 12),
    b=n(2, 5),
    c=n(2, 9),
    d=n(1, 4),
    e=n(5, 30),
)
hard(
    "es_prove",
    "Demuestra que {c}.",
    "Demuestra paso a paso que {c}.",
    "¿Por qué {c}? Justifica cada paso.",
    lang="es",
    c=["la raíz de 2 es irracional", "hay infinitos números primos", "n al cubo menos n es divisible por 6"],
)
hard(
    "es_compare",
    "Compara {p} y analiza sus ventajas y desventajas.",
    "Analiza las diferencias entre {p} con una tabla de criterios.",
    "¿Qué ventajas y desventajas tienen {p}? Evalúa ambas opciones.",
    lang="es",
    p=["alquilar y comprar", "el tren y el avión", "la energía solar y la eólica"],
)
hard(
    "zh_prove",
    "证明{c}。",
    "请一步一步证明{c}。",
    "为什么{c}？请严格论证。",
    lang="zh",
    c=["根号2是无理数", "素数有无穷多个", "前n个奇数之和等于n的平方"],
)
hard(
    "zh_word",
    "{p}买了{a}本书，每本{b}元，又买了{c}支笔，每支{d}元，付了{e}元，应该找回多少元？",
    "一本书{b}元，一支笔{d}元。{p}买{a}本书和{c}支笔，给了{e}元。请计算找零。",
    "{p}带了{e}元，买{a}本书（每本{b}元）和{c}支笔（每支{d}元），还剩多少元？",
    lang="zh",
    p=["小明", "小红", "老王"],
    a=n(2, 9),
    b=n(12, 35),
    c=n(3, 12),
    d=n(2, 8),
    e=n(300, 500),
)
hard(
    "zh_design",
    "设计一个支持{a}万用户的{s}，并分析优缺点。",
    "请制定{s}的实现方案，必须支持{a}万用户，不能有单点故障。",
    "如何实现{s}？至少支持{a}万用户，请详细说明架构。",
    lang="zh",
    a=n(10, 900),
    s=["聊天系统", "订单系统", "短链接服务", "消息队列"],
)
hard(
    "ru_prove",
    "Докажите, что {c}.",
    "Докажите по шагам, что {c}.",
    "Почему верно, что {c}? Обоснуйте.",
    lang="ru",
    c=["корень из 2 иррационален", "простых чисел бесконечно много", "сумма углов треугольника равна 180 градусам"],
)

__all__ = ["KINDS"]
