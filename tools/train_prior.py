"""Makes router/flash_router/prior.json from generated prompts; the same bytes' worth of numbers every time.

python tools/train_prior.py            fit, evaluate on kinds never trained on, write the artefact
python tools/train_prior.py --check    fit again and compare with the artefact (1e-6); exit 1 where it differs
python tools/train_prior.py --evaluate only print the evaluation
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import prior_data
from flash_router import classify, features
from prior_kinds_languages import KINDS
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold
from sklearn.preprocessing import StandardScaler

ARTEFACT = Path(__file__).parents[1] / "router" / "flash_router" / "prior.json"
SEED = 20
PER_KIND = 90
PENALTY_C = 0.02
HARD_SHARE = 0.3
"""Share of hard prompts in the reference mix whose quantiles are the controller's first guess."""
QUANTILES = 100
TOLERANCE = 1e-6


def matrix(examples: list[prior_data.Example]) -> np.ndarray:
    """Counts, [examples, features]."""
    return np.array([features.vector(example.messages)[0] for example in examples])


def fit(counts: np.ndarray, labels: np.ndarray) -> tuple[StandardScaler, LogisticRegression]:
    """Scaler and model. The penalty makes the optimum unique, the tolerance finds it on any machine."""
    scaler = StandardScaler().fit(counts)
    scaled = np.clip(scaler.transform(counts), -classify.CLIP, classify.CLIP)
    model = LogisticRegression(
        C=PENALTY_C, class_weight="balanced", tol=1e-12, max_iter=20000, solver="newton-cholesky"
    )
    model.fit(scaled, labels)
    return scaler, model


def log_odds(scaler: StandardScaler, model: LogisticRegression, counts: np.ndarray) -> np.ndarray:
    clipped: np.ndarray = np.clip(scaler.transform(counts), -classify.CLIP, classify.CLIP)
    return np.asarray(model.decision_function(clipped))


def recovered(scores: np.ndarray, labels: np.ndarray) -> float:
    """APGR by construction: mean over all budgets of the share of hard prompts that were sent to standard."""
    order = np.argsort(-scores, kind="stable")
    curve = np.concatenate([[0.0], np.cumsum(labels[order]) / labels.sum()])
    return float(np.trapezoid(curve, dx=1 / (len(curve) - 1)))


def evaluate(examples: list[prior_data.Example], counts: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Figures on kinds never trained on, 5 folds of whole kinds, beside prompt length in characters."""
    groups = [example.kind for example in examples]
    length = np.array([sum(len(content) for _, content in example.messages) for example in examples], dtype=float)
    scores = np.zeros(len(labels))
    for train, test in GroupKFold(5, shuffle=True, random_state=SEED).split(counts, labels, groups):
        scores[test] = log_odds(*fit(counts[train], labels[train]), counts[test])
    plain = np.array([len(example.messages) == 1 and length[i] < 2000 for i, example in enumerate(examples)])
    return {
        "auc": float(roc_auc_score(labels, scores)),
        "auc_length": float(roc_auc_score(labels, length)),
        "apgr": recovered(scores, labels),
        "apgr_length": recovered(length, labels),
        "auc_plain": float(roc_auc_score(labels[plain], scores[plain])),
        "auc_length_plain": float(roc_auc_score(labels[plain], length[plain])),
        "apgr_best": recovered(labels + 0.0, labels),
    }


def reference_quantiles(probabilities: np.ndarray, labels: np.ndarray) -> list[float]:
    """Quantiles of the scores in a mix with HARD_SHARE hard prompts."""
    weights = np.where(labels == 1, HARD_SHARE / labels.sum(), (1 - HARD_SHARE) / (1 - labels).sum())
    order = np.argsort(probabilities, kind="stable")
    ranks = np.cumsum(weights[order]) - weights[order] / 2
    return [float(value) for value in np.interp(np.linspace(0, 1, QUANTILES + 1), ranks, probabilities[order])]


def artefact(figures: dict[str, float], counts: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    scaler, model = fit(counts, labels)
    probabilities = 1 / (1 + np.exp(-log_odds(scaler, model, counts)))
    return {
        "format": classify.FORMAT,
        "features": features.VERSION,
        "version": f"prior-{features.VERSION}.{SEED}",
        "names": list(features.NAMES),
        "means": _rounded(scaler.mean_),
        "scales": _rounded(np.where(scaler.scale_ > 0, scaler.scale_, 1.0)),
        "coefficients": _rounded(model.coef_[0]),
        "intercept": _rounded(model.intercept_)[0],
        "quantiles": _rounded(reference_quantiles(probabilities, labels)),
        "provenance": {
            "what": "A weak prior, fitted to generated prompts with labels by construction. No outcome of any model.",
            "made_by": "tools/train_prior.py",
            "seed": SEED,
            "kinds": len(KINDS),
            "prompts": len(labels),
            "hard_share_of_reference_mix": HARD_SHARE,
            "on_kinds_never_trained_on": {name: round(value, 3) for name, value in figures.items()},
        },
    }


def _rounded(values: Any) -> list[float]:
    return [round(float(value), 9) for value in values]


def differences(made: dict[str, Any], stands: dict[str, Any]) -> list[str]:
    """What differs between two artefacts beyond the tolerance, in sentences."""
    out: list[str] = []
    for name in ("format", "features", "version", "names"):
        if made[name] != stands.get(name):
            out.append(f"{name}: made {made[name]!r}, stands {stands.get(name)!r}"[:200])
    for name in ("means", "scales", "coefficients", "quantiles"):
        there = stands.get(name)
        if not isinstance(there, list) or len(there) != len(made[name]):
            out.append(f"{name}: another number of values")
        elif (gap := float(np.max(np.abs(np.array(made[name]) - np.array(there))))) > TOLERANCE:
            out.append(f"{name}: differ by up to {gap:.2g}")
    if abs(made["intercept"] - stands.get("intercept", float("inf"))) > TOLERANCE:
        out.append(f"intercept: made {made['intercept']}, stands {stands.get('intercept')}")
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the artefact instead of writing it")
    parser.add_argument("--evaluate", action="store_true", help="only print the evaluation")
    options = parser.parse_args()
    examples = prior_data.examples(KINDS, PER_KIND, SEED)
    counts, labels = matrix(examples), np.array([int(example.hard) for example in examples])
    if options.check:
        found = differences(artefact({}, counts, labels), json.loads(ARTEFACT.read_text(encoding="utf-8")))
        print(
            "\n".join([f"{ARTEFACT.name} is stale: run python tools/train_prior.py", *found]) if found else "up to date"
        )
        return 1 if found else 0
    figures = evaluate(examples, counts, labels)
    print(f"{len(KINDS)} kinds, {len(labels)} prompts, {int(labels.sum())} hard; judged on kinds never trained on:")
    for name, value in figures.items():
        print(f"  {name:18} {value:.3f}")
    if not options.evaluate:
        made = artefact(figures, counts, labels)
        text = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
        classify.parse(text, ARTEFACT.name)
        ARTEFACT.write_text(text, encoding="utf-8")
        print(f"wrote {ARTEFACT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
