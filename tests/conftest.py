"""Fixtures that every area may use."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from support.servers import KINDS, Server, binary_or_skip, running_server


@pytest.fixture(scope="session", params=KINDS)
def shared_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    binary_or_skip(request.param)
    with running_server(request.param) as server:
        yield server


@pytest.fixture
def broker_server(shared_server: Server) -> Server:
    """A running, empty server of each kind, shared by the session: do not stop it, take start_server for that."""
    import redis

    with redis.Redis(port=shared_server.port) as client:
        client.flushall()
        client.script_flush()
    return shared_server


@pytest.fixture
def start_server() -> Iterator[Callable[..., Server]]:
    """Starts servers of the test's own: start_server("redis", appendonly=True). All are ended after it."""
    with contextlib.ExitStack() as stack:

        def start(kind: str = "redis", *, appendonly: bool = False, extra: tuple[str, ...] = ()) -> Server:
            binary_or_skip(kind)
            return stack.enter_context(running_server(kind, appendonly=appendonly, extra=extra))

        yield start
