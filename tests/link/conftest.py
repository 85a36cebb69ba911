"""A fleet of one router and scripted workers over a real queue server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.link_fleet import LinkFleet
from support.servers import Server, binary_or_skip, running_server
from support.tiny_text import make_tiny_tokenizer_folder


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_tokenizer_folder(tmp_path_factory.mktemp("text")).folder


@pytest.fixture(scope="session")
def queue_server() -> Iterator[Server]:
    """Valkey, which the embedded fleet uses; the broker's own tests run on both."""
    binary_or_skip("valkey")
    with running_server("valkey") as server:
        yield server


@pytest.fixture
def own_server() -> Iterator[Server]:
    """One that a test may restart and wipe."""
    binary_or_skip("redis")
    with running_server("redis", appendonly=True) as server:
        yield server


@pytest.fixture
async def fleet(queue_server: Server, tmp_path: Path, text_folder: Path) -> AsyncIterator[LinkFleet]:
    made = LinkFleet(queue_server.url, tmp_path, text_folder)
    await made.broker.redis.flushall()
    yield made
    await made.close()


@pytest.fixture
async def fragile_fleet(own_server: Server, tmp_path: Path, text_folder: Path) -> AsyncIterator[LinkFleet]:
    """As `fleet`, over a server of its own."""
    made = LinkFleet(own_server.url, tmp_path, text_folder)
    yield made
    await made.close()
