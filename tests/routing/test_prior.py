"""The shipped artefact: reproducible, checked on load, and honest about what it is."""

from __future__ import annotations

import json
from importlib import resources
from types import SimpleNamespace
from typing import Any

import pytest
from flash_router import classify, features
from flash_router.classify import PriorError


def shipped() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(resources.files("flash_router").joinpath("prior.json").read_text("utf-8"))
    return data


@pytest.fixture(scope="module")
def trained() -> SimpleNamespace:
    """The training data, its counts and labels, made once."""
    import numpy as np
    import prior_data
    import train_prior

    examples = prior_data.examples(train_prior.KINDS, train_prior.PER_KIND, train_prior.SEED)
    labels = np.array([int(example.hard) for example in examples])
    return SimpleNamespace(examples=examples, labels=labels, counts=train_prior.matrix(examples), tool=train_prior)


def test_artefact_is_what_the_script_makes(trained: SimpleNamespace) -> None:
    made = trained.tool.artefact({}, trained.counts, trained.labels)
    assert trained.tool.differences(made, shipped()) == []
    made["coefficients"][3] += 1e-3
    assert trained.tool.differences(made, shipped()), "a changed coefficient must be noticed"


def test_serving_equals_scikit_learn(trained: SimpleNamespace, prior: classify.Prior) -> None:
    import numpy as np

    scaler, model = trained.tool.fit(trained.counts, trained.labels)
    wanted = 1 / (1 + np.exp(-trained.tool.log_odds(scaler, model, trained.counts[::50])))
    served = [prior.judge(example.messages).score for example in trained.examples[::50]]
    assert np.allclose(wanted, served, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 9}, "format is 9"),
        ({"features": 0}, "version 0 of the counts"),
        ({"names": ["chars"]}, "do not fit the counts"),
        ({"names": list(reversed(features.NAMES))}, "another order"),
        ({"names": None}, "names is missing"),
        ({"coefficients": [1.0]}, "coefficients must be a list of"),
        ({"coefficients": ["x"] * len(features.NAMES)}, r"coefficients\[0\] must be a finite number"),
        ({"means": [float("nan")] * len(features.NAMES)}, r"means\[0\] must be a finite number"),
        ({"scales": [0.0] * len(features.NAMES)}, "scales must be above 0"),
        ({"intercept": True}, "intercept"),
        ({"quantiles": [0.5, 0.1]}, "rising order"),
        ({"quantiles": [0.5]}, "at least two"),
        ({"provenance": "me"}, "provenance"),
    ],
)
def test_a_broken_artefact_is_refused_with_a_sentence(change: dict[str, Any], words: str) -> None:
    with pytest.raises(PriorError, match=words):
        classify.parse(json.dumps({**shipped(), **change}), "some.json")


@pytest.mark.parametrize("text", ["", "{", "[]", "\x80", "null"])
def test_what_is_no_artefact_is_refused(text: str) -> None:
    with pytest.raises(PriorError, match=r"some\.json"):
        classify.parse(text, "some.json")


def test_it_says_that_it_is_a_weak_prior(prior: classify.Prior) -> None:
    assert "weak prior" in prior.provenance["what"]
    held_out = prior.provenance["on_kinds_never_trained_on"]
    assert held_out["auc_plain"] > held_out["auc_length_plain"]


def test_reasons_are_the_largest_parts_in_log_odds(prior: classify.Prior) -> None:
    judged = prior.judge("Prove step by step that the square root of 2 is irrational")
    weights = [abs(weight) for _, weight in judged.reasons]
    assert len(weights) == classify.MAX_REASONS
    assert weights == sorted(weights, reverse=True)
    assert {"cue_reason", "cue_depth"} & {name for name, weight in judged.reasons if weight > 0}
