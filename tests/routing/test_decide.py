"""The decision as a whole: forced, rule, score, and what it says of itself."""

from __future__ import annotations

from random import Random

import pytest
from flash_router.classify import MAX_REASONS, Prior
from flash_router.decide import Decider
from flash_wire.pattern import PatternError
from flash_wire.settings import RouterLive, Routing, Rule, When
from flash_wire.v1 import inference_pb2 as pb

EASY = [
    "What is the capital of France?",
    "Say hello",
    "Hi!",
    "Tell me a joke",
    "Translate good morning to French",
    "Who wrote Hamlet?",
    "List three colors.",
    "what is 2+2",
    "Write a haiku about the sea",
    "Wie heißt die Hauptstadt von Spanien?",
    "你好",
]
HARD = [
    "Prove step by step that the square root of 2 is irrational",
    "Plan a 3-day trip to Rome for 4 people with a budget of 600 euros, at least two museums, no more than 3 hours of"
    " walking a day, and everyone must be free in the evening.",
    "Anna has 12 apples. She gives 3 to Tom and half of the rest to her sister, then buys 5 more. How many apples does"
    " she have?",
    "A shop sells pens at 3 for 2 dollars. Maria buys 15 pens and pays with a 20 dollar bill. How much change does she"
    " get?",
    "Implement a thread-safe LRU cache in Python.",
    "Design a distributed rate limiter for 10 million users.",
    "Compare TCP and UDP in a table and explain the trade-offs.",
    "Beweise Schritt für Schritt, dass es unendlich viele Primzahlen gibt.",
    "请证明根号2是无理数。",
]


def live(share: float = 0.3, *rules: Rule) -> RouterLive:
    return RouterLive(routing=Routing(standard_share=share, rules=rules))


@pytest.mark.parametrize("prompt", EASY)
def test_easy_prompts_go_to_flash_from_the_start(prior: Prior, prompt: str) -> None:
    decision = Decider(live(), prior).decide([("user", prompt)])
    assert decision.tier == pb.FLASH
    assert decision.score < decision.threshold


@pytest.mark.parametrize("prompt", HARD)
def test_hard_prompts_go_to_standard_from_the_start(prior: Prior, prompt: str) -> None:
    decision = Decider(live(), prior).decide([("user", prompt)])
    assert decision.tier == pb.STANDARD
    assert decision.score >= decision.threshold


def test_a_demo_of_both_kinds_in_any_order_is_divided_rightly(prior: Prior) -> None:
    """A handful of requests, nearly half of them hard, moves the threshold little."""
    for seed in range(20):
        decider = Decider(live(), prior)
        asked = [(p, pb.FLASH) for p in EASY[:6]] + [(p, pb.STANDARD) for p in HARD[:3]]
        Random(seed).shuffle(asked)
        for prompt, tier in asked:
            assert decider.decide(prompt).tier == tier, (seed, prompt)


def test_what_a_score_says(prior: Prior) -> None:
    decision = Decider(live(), prior).decide(HARD[0])
    assert decision.how == "score"
    assert 0 < decision.score < 1
    assert 0 < len(decision.reasons) <= MAX_REASONS
    assert decision.rule == ""
    assert not decision.truncated


def test_a_request_is_taken_as_it_is(prior: Prior) -> None:
    decider = Decider(live(0.3, Rule(when=When(tenant="acme"), to="standard")), prior)
    messages = [pb.Message(role="user", content=HARD[0])]
    assert decider.explain(pb.GenerateRequest(messages=messages)).tier == pb.STANDARD
    assert decider.explain(pb.GenerateRequest(prompt=EASY[0])).tier == pb.FLASH
    assert decider.explain(pb.GenerateRequest(prompt=EASY[0], tenant="acme")).rule == "rule 1"
    forced = decider.explain(pb.GenerateRequest(messages=messages, tier=pb.FLASH))
    assert (forced.tier, forced.how) == (pb.FLASH, "forced")


def test_order_forced_then_rule_then_score(prior: Prior) -> None:
    decider = Decider(live(0.3, Rule(name="greet", when=When(contains=("hello",)), to="standard")), prior)
    ruled = decider.decide("Say HELLO")
    assert (ruled.tier, ruled.how, ruled.rule) == (pb.STANDARD, "rule", "greet")
    forced = decider.decide("Say hello", tier_forced=pb.FLASH)
    assert (forced.tier, forced.how, forced.rule) == (pb.FLASH, "forced", "")
    assert decider.decide("Say hi").how == "score"


def test_only_classified_requests_count(prior: Prior) -> None:
    decider = Decider(live(0.3, Rule(when=When(contains=("hello",)), to="standard")), prior)
    before = decider.explain(HARD[0])
    for _ in range(500):
        decider.decide("Say hello")
        decider.decide("x", tier_forced=pb.STANDARD)
    assert decider.observed_share == 0.3
    assert decider.explain(HARD[0]) == before


def test_explain_moves_nothing(prior: Prior) -> None:
    decider = Decider(live(), prior)
    first = decider.explain(HARD[0])
    for _ in range(300):
        assert decider.explain(HARD[0]) == first
    assert decider.decide(HARD[0]) == first
    assert decider.share.observed == 1.0


def test_the_share_is_held_over_real_prompts(prior: Prior) -> None:
    import prior_data
    from prior_kinds_languages import KINDS

    decider = Decider(live(), prior)
    rng = Random(8)
    hard = [example.messages for example in prior_data.examples(KINDS, 8, 77) if example.hard]
    standard = [decider.decide(rng.choice(hard)).tier == pb.STANDARD for _ in range(2000)]
    assert abs(sum(standard) / 2000 - 0.3) <= 0.02, "all of them hard, and still three in ten"
    assert abs(decider.share_error) <= 0.02


def test_identical_prompts_are_divided_and_it_is_said(prior: Prior) -> None:
    decider = Decider(live(), prior)
    decisions = [decider.decide(EASY[0]) for _ in range(2000)]
    assert abs(sum(d.tier == pb.STANDARD for d in decisions) / 2000 - 0.3) <= 0.02
    assert "equal scores" in decisions[-1].note
    assert all((d.score >= d.threshold) == (d.tier == pb.STANDARD) for d in decisions)


def test_truncated_and_unsure_goes_to_standard(prior: Prior) -> None:
    """Public pain: silent truncation. It is said, and doubt goes to the careful tier."""
    long = [("user", "The harbour was quiet that morning. " * 400 + "\n\n" + EASY[0])]
    by_doubt = by_score = flash = 0
    for share in range(1, 100):
        decision = Decider(live(share / 100), prior).explain(long)
        assert decision.truncated
        if decision.tier == pb.FLASH:
            flash += 1
            assert by_doubt == by_score == 0, "doubt begins below the threshold"
        elif decision.score < decision.threshold:
            by_doubt += 1
            assert by_score == 0
            assert "not read whole" in decision.note
        else:
            by_score += 1
    assert flash > 20
    assert by_doubt > 0
    assert by_score > 5


@pytest.mark.parametrize(("share", "tier"), [(0.0, pb.FLASH), (1.0, pb.STANDARD)])
def test_bounds_are_exact_also_for_what_was_truncated(prior: Prior, share: float, tier: pb.Tier) -> None:
    decider = Decider(live(share), prior)
    for prompt in [*EASY, *HARD, "word " * 5000, "Prove it. " * 900]:
        assert decider.decide(prompt).tier == tier
    assert decider.observed_share == share


def test_reload_takes_rules_and_share_and_keeps_what_was_learned(prior: Prior) -> None:
    decider = Decider(live(), prior)
    for _ in range(300):
        decider.decide(EASY[0])
    decider.reload(live(0.0, Rule(when=When(contains=("capital",)), to="standard")))
    assert decider.decide(EASY[0]).how == "rule"
    assert decider.decide(HARD[0]).tier == pb.FLASH
    assert len(decider.share._order) == 301


def test_a_bad_reload_changes_nothing(prior: Prior) -> None:
    decider = Decider(live(0.3, Rule(name="a", when=When(contains=("x",)), to="flash")), prior)
    bad = Rule.model_construct(
        name="", when=When.model_construct(**When(regex="a").__dict__ | {"regex": "(?=a)"}), to="flash"
    )
    broken = RouterLive.model_construct(routing=Routing.model_construct(standard_share=0.9, rules=(bad,)))
    with pytest.raises(PatternError):
        decider.reload(broken)
    assert decider.decide("x").rule == "a"
    assert decider.share.target == 0.3


@pytest.mark.parametrize(
    "prompt", ["", [], [("user", "")], [("system", "x")], "\x00\ud800", "?" * 100_000, "\n" * 9000]
)
def test_odd_prompts_get_a_decision(prior: Prior, prompt: object) -> None:
    decision = Decider(live(), prior).decide(prompt)  # type: ignore[arg-type]
    assert decision.tier in (pb.FLASH, pb.STANDARD)
