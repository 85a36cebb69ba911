"""The routing decision in numbers: time, robustness, share. No fleet and no model is needed.

    python bench/routing.py [--quick]

Times are CPU time of the deciding thread, so that a busy machine measures the same; wall time is printed beside.
The last line is one JSON object with the figures, the targets and whether they are met.
"""

from __future__ import annotations

import argparse
import json
import operator
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import prior_data
from flash_router import classify
from flash_router.decide import Decider
from flash_router.reading import Prompt
from flash_router.share import ShareController
from flash_wire.settings import RouterLive, Routing, Rule, When
from prior_kinds_languages import KINDS

LONG = 6000
TARGETS: dict[str, tuple[str, float]] = {
    "decision_p99_ms": ("<=", 1.0),
    "robust_share": (">=", 0.95),
    "share_error_points": ("<=", 2.0),
}
COMPARE = {"<=": operator.le, ">=": operator.ge}
RULES = (
    Rule(when=When(contains=("step by step", "legal advice")), to="standard"),
    Rule(when=When(regex=r"\b(urgent|asap)\b"), to="flash"),
    Rule(when=When(min_chars=50_000), to="standard"),
)
SCORES: dict[str, Callable[[Random], float]] = {
    "uniform": lambda rng: rng.random(),
    "low": lambda rng: rng.betavariate(1, 20),
    "high": lambda rng: rng.betavariate(20, 1),
    "constant": lambda rng: 0.3,
    "two values": lambda rng: rng.choice([0.1, 0.9]),
}


def prompts() -> dict[str, list[Prompt]]:
    """Sets to time. The long ones have LONG characters in all shapes that the reader treats differently."""
    rng = Random(1)
    usual: list[Prompt] = [example.messages for example in prior_data.examples(KINDS, 5, 301)]
    long: list[Prompt] = []
    for kind in KINDS:
        question = kind.write(kind.draw(rng), 0)
        long.append(prior_data.filler(rng, LONG - len(question) - 2) + "\n\n" + question)
        long.append((question + " ") * (LONG // (len(question) + 1)))
        turn = (question + "\n") * 40
        long.append([("system", turn[:2000]), ("user", turn[:1500]), ("assistant", turn[:1000]), ("user", turn[:1500])])
    return {"usual": usual, "6,000 characters": long}


def times(decider: Decider, sample: list[Prompt], rounds: int) -> tuple[list[float], list[float]]:
    """CPU and wall milliseconds of each decision, sorted."""
    for prompt in sample:
        decider.decide(prompt)
    cpu: list[float] = []
    wall: list[float] = []
    for _ in range(rounds):
        for prompt in sample:
            began, cpu_began = time.perf_counter_ns(), time.thread_time_ns()
            decider.decide(prompt)
            cpu.append((time.thread_time_ns() - cpu_began) / 1e6)
            wall.append((time.perf_counter_ns() - began) / 1e6)
    return sorted(cpu), sorted(wall)


def at(values: list[float], share: float) -> float:
    return values[min(int(len(values) * share), len(values) - 1)]


def robustness(prior: classify.Prior, per_kind: int) -> dict[str, float]:
    """Share of decisions unchanged, for each framing and in all; framings and phrasings were never trained on."""
    decider = Decider(RouterLive(), prior)
    asked: Counter[str] = Counter()
    same: Counter[str] = Counter()
    for kind in KINDS:
        rng = Random(f"bench/{kind.name}")
        for _ in range(per_kind):
            values = kind.draw(rng)
            plain = decider.explain(kind.write(values, 0)).tier
            for name, messages in prior_data.variations(kind, values, rng).items():
                asked[name] += 1
                same[name] += decider.explain(messages).tier == plain
    return {"all": same.total() / asked.total(), **{name: same[name] / asked[name] for name in asked}}


def prefixes(prior: classify.Prior, per_kind: int) -> dict[str, float]:
    """Share of decisions unchanged by 10,000 characters before the question, by how they are joined to it."""
    decider = Decider(RouterLive(), prior)
    same: Counter[str] = Counter()
    count = 0
    for kind in KINDS:
        rng = Random(f"prefix/{kind.name}")
        for _ in range(per_kind):
            question = kind.write(kind.draw(rng), 0)
            text = prior_data.filler(rng, prior_data.PREFIX_CHARS, "judge")
            plain = decider.explain(question).tier
            joined: dict[str, Prompt] = {
                "system prompt": [("system", text), ("user", question)],
                "earlier turn": [("user", text), ("assistant", "I have read it."), ("user", question)],
                "blank line": f"{text}\n\n{question}",
                "new line": f"{text}\n{question}",
                "blank": f"{text} {question}",
            }
            count += 1
            for name, prompt in joined.items():
                same[name] += decider.explain(prompt).tier == plain
    return {name: value / count for name, value in same.items()}


def share_errors(quantiles: tuple[float, ...]) -> dict[str, float]:
    """Largest error in points over the first 2,000 requests after each step between distributions, by target."""
    worst: dict[str, float] = {}
    for target in (0.1, 0.3, 0.5, 0.9):
        largest = 0.0
        for first in SCORES:
            for second in SCORES:
                rng = Random(f"{target} {first} {second}")
                controller = ShareController(target, quantiles)
                for name in (first, second):
                    standard = 0
                    for _ in range(2000):
                        score = SCORES[name](rng)
                        verdict = controller.verdict(score)
                        controller.record(score, verdict.standard)
                        standard += verdict.standard
                    largest = max(largest, abs(standard / 2000 - target) * 100)
        worst[f"{target:g}"] = largest
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, the same figures less exactly")
    options = parser.parse_args()
    prior = classify.load()
    decider = Decider(RouterLive(routing=Routing(rules=RULES)), prior)
    print(f"Python {platform.python_version()}, {platform.machine()}; rules, reading, counts, model and share control")
    p99 = 0.0
    for name, sample in prompts().items():
        cpu, wall = times(decider, sample, 2 if options.quick else 15)
        p99 = at(cpu, 0.99)  # the long ones are timed last and count
        print(
            f"  {name}: {len(sample)} prompts, CPU p50 {at(cpu, 0.5):.3f} p99 {p99:.3f} max {cpu[-1]:.3f} ms;"
            f" wall p50 {at(wall, 0.5):.3f} p99 {at(wall, 0.99):.3f} ms"
        )
    robust = robustness(prior, 4 if options.quick else 20)
    print("  decisions unchanged: " + ", ".join(f"{name} {value:.3f}" for name, value in robust.items()))
    joints = prefixes(prior, 2 if options.quick else 10)
    print("  unchanged by a prefix, by joint: " + ", ".join(f"{name} {value:.3f}" for name, value in joints.items()))
    errors = share_errors(prior.quantiles)
    print("  share, points off: " + ", ".join(f"target {target} {value:.2f}" for target, value in errors.items()))
    figures = {
        "decision_p99_ms": round(p99, 3),
        "robust_share": round(robust["all"], 4),
        "share_error_points": round(max(errors.values()), 2),
    }
    met = all(COMPARE[sign](figures[name], bound) for name, (sign, bound) in TARGETS.items())
    print(json.dumps({"bench": "routing", "figures": figures, "targets": TARGETS, "met": met}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
