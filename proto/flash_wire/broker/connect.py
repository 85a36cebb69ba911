"""A client for the broker with timeouts that end: nothing here waits for ever or retries behind the caller's back."""

from __future__ import annotations

from typing import cast
from urllib.parse import urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

CONNECT_S = 2.0
OPERATION_S = 5.0
HEALTH_CHECK_S = 15
MAX_CONNECTIONS = 32


class BrokerClient(Redis):
    """Shows its address without the password, wherever it is printed."""

    address: str = ""

    def __repr__(self) -> str:
        return f"<broker at {self.address}>"

    __str__ = __repr__


def address_of(url: str) -> str:
    """The address without its user and password, fit for logs."""
    parts = urlsplit(url)
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = ""
    return f"{parts.scheme}://{parts.hostname or parts.path}{port}"


def connect(url: str) -> BrokerClient:
    """A client of redis://, rediss:// (TLS) or unix://. Connects at the first command.

    Connecting is given 2 s and a command 5 s. One try each: callers know what may be sent twice.
    Raises ValueError, without the password in it, when the address cannot be used.
    """
    scheme = url.partition("://")[0]
    if scheme not in ("redis", "rediss", "unix"):
        raise ValueError(
            "the broker's address must start with redis://, rediss:// (TLS) or unix://,"
            f" not {scheme[:16] if '://' in url else 'something else'!r}"
        )
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=MAX_CONNECTIONS,
            timeout=OPERATION_S,
            decode_responses=True,
            socket_connect_timeout=CONNECT_S,
            socket_timeout=OPERATION_S,
            # A socket file has no keepalive to switch on, and its connections refuse the word.
            **({} if scheme == "unix" else {"socket_keepalive": True}),
            health_check_interval=HEALTH_CHECK_S,
            retry=Retry(NoBackoff(), 0),
        )
    except (ValueError, TypeError):
        raise ValueError(
            f"the broker's address {address_of(url)} cannot be read: write it as redis://[user:password@]host:port/0"
        ) from None
    client = cast(BrokerClient, BrokerClient.from_pool(pool))
    client.address = address_of(url)
    return client
