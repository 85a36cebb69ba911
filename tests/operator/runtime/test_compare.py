"""Whether an object holds all that its manifest says."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from flash_operator.compare import includes
from hypothesis import given
from hypothesis import strategies as st

leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
)


@given(values)
def test_everything_holds_itself(value: Any) -> None:
    assert includes(copy.deepcopy(value), value)


@given(st.dictionaries(st.text(max_size=4), values, max_size=4), st.dictionaries(st.text(max_size=4), values))
def test_what_others_added_is_no_difference(wanted: dict[str, Any], others: dict[str, Any]) -> None:
    assert includes({**others, **wanted}, wanted)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ({"replicas": 1}, {"replicas": 2}),
        ({}, {"replicas": 2}),
        ({"immutable": 1}, {"immutable": True}),
        ({"data": {"a": "x "}}, {"data": {"a": "x"}}),
        ({"labels": {"a": "b"}}, {"labels": {"a": "b", "c": "d"}}),
        ([1, 2], [2, 1]),
        ([1, 2, 3], [1, 2]),
        ([{"name": "a", "value": "1"}], [{"name": "a", "value": "2"}]),
        ([{"name": "b"}], [{"name": "a"}]),
        ({"cpu": "500m"}, {"cpu": "501m"}),
        ({"memory": "1G"}, {"memory": "1Gi"}),
        ("a", ["a"]),
        (None, {}),
    ],
)
def test_differences(found: Any, wanted: Any) -> None:
    assert not includes(found, wanted)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ({"cpu": "1"}, {"cpu": "1000m"}),
        ({"cpu": "500m"}, {"cpu": 0.5}),
        ({"memory": "1Gi"}, {"memory": "1024Mi"}),
        ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": 1}),
        ({"other": 1}, {"securityContext": {}}),
        ([{"name": "b", "x": 1}, {"name": "a", "y": 2}], [{"name": "a"}]),
        ([{"containerPort": 1, "protocol": "TCP"}], [{"containerPort": 1}]),
    ],
)
def test_no_differences(found: Any, wanted: Any) -> None:
    assert includes(found, wanted)
