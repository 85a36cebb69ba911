from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from flash_wire.broker.client import Broker
from flash_wire.broker.connect import connect
from support.servers import Server


@pytest.fixture
async def broker(broker_server: Server) -> AsyncIterator[Broker]:
    """A broker of fleet default/chat on an empty server, once on Redis and once on Valkey."""
    client = connect(broker_server.url)
    yield Broker(client, "default/chat")
    await client.aclose()
