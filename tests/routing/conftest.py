"""What the routing tests share: the shipped prior, and the generator that it was fitted to."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from flash_router import classify
from flash_router.classify import Prior

TOOLS = str(Path(__file__).parents[2] / "tools")
if TOOLS not in sys.path:
    sys.path.insert(0, TOOLS)


@pytest.fixture(scope="session")
def prior() -> Prior:
    return classify.load()
