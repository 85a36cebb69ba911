"""The protocol has no hole under single faults and pairs of them, and each of its rules is needed."""

from __future__ import annotations

import os
from itertools import combinations_with_replacement

import pytest
from broker.model.broker_part import RULES
from broker.model.protocol import FAULTS
from broker.model.search import search

REAL_FAULTS = [fault for fault in FAULTS if fault != "expire"]  # the protocol sees to it that this one cannot happen
FULL = os.environ.get("FLASHFLEET_MODEL") == "full"
QUICK = ("pause", "break", "flush", "outage", "lost_reply", "delay", "cancel", "router_crash")
PAIRS = list(combinations_with_replacement(REAL_FAULTS, 2))

COUNTEREXAMPLES = {
    "incarnation": ["flush"],
    "restore_counts": ["flush"],
    "reap_counts_no_crash": ["pause"],
    "cancel_leaves_a_mark": ["delay", "cancel"],
    "owner_lapse_ends": ["router_crash"],
    "lapse_needs_a_witness": ["outage"],
    "no_expiry_while_live": ["expire"],
    "ack_after_done_ack": ["break"],
    "fence": ["pause"],
    "lost_and_unreachable_drops": ["flush", "router_crash"],
    "unknown_is_done": ["flush", "forget"],
    "cancel_after_unanswered": ["delay", "cancel"],
    "retry_until_answered": ["lost_request"],
    "register_again": ["flush"],
    "identity_read_before": ["flush", "flush"],
}


def counted(faults: list[str] | tuple[str, ...]) -> dict[str, int]:
    return {fault: faults.count(fault) for fault in faults}


def test_without_faults_everything_ends() -> None:
    result = search({})
    assert (result.hole, result.path) == ("", [])


@pytest.mark.parametrize("fault", REAL_FAULTS)
def test_no_hole_under_a_single_fault(fault: str) -> None:
    result = search({fault: 1})
    assert (result.hole, result.path) == ("", [])


@pytest.mark.parametrize("first", REAL_FAULTS)
def test_no_hole_under_pairs_of_faults(first: str) -> None:
    """The quick pairs with an answer of one token; FLASHFLEET_MODEL=full takes all pairs, and two tokens."""
    pairs = [pair for pair in PAIRS if pair[0] == first and (FULL or (first in QUICK and pair[1] in QUICK))]
    if not pairs:
        pytest.skip("only with FLASHFLEET_MODEL=full")
    for pair in pairs:
        result = search(counted(pair), tokens=2 if FULL else 1)
        assert (result.hole, result.path) == ("", []), pair


def test_every_rule_has_its_counterexample() -> None:
    assert set(COUNTEREXAMPLES) == RULES


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_rule_left_out_opens_a_hole(rule: str) -> None:
    faults = counted(COUNTEREXAMPLES[rule])
    assert search(faults, RULES - {rule}, tokens=1).hole
    assert rule == "no_expiry_while_live" or not search(faults, tokens=1).hole
