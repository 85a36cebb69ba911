"""Whether an object holds everything that a manifest says. Pure."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

_QUANTITY = re.compile(r"^([0-9]+(?:\.[0-9]+)?)(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?$")
_FACTOR = {
    None: Decimal(1),
    "m": Decimal("0.001"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
}
_KEYS = ("name", "containerPort", "mountPath", "port", "uid", "topologyKey", "type")
"""Fields by which the API server tells the items of a list apart, the first that all items have."""


def includes(found: Any, wanted: Any) -> bool:
    """True when applying `wanted` would change nothing in `found`: fields that only `found` has do not count, nor does
    the spelling of quantities ("1000m" and 1). An empty mapping that the server left out counts as there."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            includes(found[name], part) if name in found else part in ({}, [], None) for name, part in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and _list_includes(found, wanted)
    if found == wanted and isinstance(found, bool) == isinstance(wanted, bool):
        return True
    one, other = _quantity(found), _quantity(wanted)
    return one is not None and one == other


def _list_includes(found: list[Any], wanted: list[Any]) -> bool:
    items = [*found, *wanted]
    key = next((k for k in _KEYS if all(isinstance(item, dict) and k in item for item in items)), None)
    if key is None or not wanted:
        return len(found) == len(wanted) and all(map(includes, found, wanted))
    return all(any(item[key] == want[key] and includes(item, want) for item in found) for want in wanted)


def _quantity(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    match = _QUANTITY.match(str(value))
    return Decimal(match[1]) * _FACTOR[match[2]] if match else None
