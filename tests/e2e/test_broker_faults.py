"""Redis restarts, loses everything, or is away: no stream breaks, and what is asked meanwhile is answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
import redis
from flash_wire.v1 import inference_pb2 as pb
from support.running import Running, Stream, collect, deployment, greedy, up
from support.servers import Server

pytestmark = pytest.mark.slow
STREAMS = 20
TOKENS = 48


def many(fleet: Running, channel: grpc.Channel, half_way: threading.Event) -> list[Stream]:
    """STREAMS different answers at once; `half_way` is set when every one has some tokens."""
    counts = [0] * STREAMS

    def one(number: int) -> Stream:
        def on_tokens(count: int) -> None:
            counts[number] = count
            if min(counts) >= 3:
                half_way.set()

        request = greedy(f"Write a sentence about the number {number}.", tokens=TOKENS, tier=pb.FLASH)
        return collect(fleet.stub(channel).Generate(request, timeout=180), on_tokens)

    with ThreadPoolExecutor(STREAMS) as pool:
        return list(pool.map(one, range(STREAMS)))


@pytest.mark.parametrize("fault", ["restart_with_data", "restart_without_data", "flushall"])
def test_twenty_running_streams_do_not_notice(fault: str, tmp_path: Path, start_server: Callable[..., Server]) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(deployment(flash=1, standard=0))
    server = start_server("redis", appendonly=True)
    with up(file, broker_url=server.url) as fleet, grpc.insecure_channel(fleet.grpc) as channel:
        quiet = many(fleet, channel, threading.Event())
        half_way = threading.Event()

        def strike() -> None:
            assert half_way.wait(120)
            if fault == "flushall":
                with redis.Redis(port=server.port) as client:
                    client.flushall()
            else:
                server.restart(keep_data=fault == "restart_with_data")

        with ThreadPoolExecutor(1) as pool:
            striking = pool.submit(strike)
            got = many(fleet, channel, half_way)
            striking.result()
        assert [s.ids for s in got] == [s.ids for s in quiet]
        assert [s.text for s in got] == [s.text for s in quiet]
        # The fleet is whole again: a new request is admitted and answered.
        after = collect(fleet.stub(channel).Generate(greedy("Say hello.", tokens=4, tier=pb.FLASH), timeout=60))
        assert len(after.ids) == 4


def test_a_request_sent_while_redis_is_down_is_answered_when_it_is_back(
    tmp_path: Path, start_server: Callable[..., Server]
) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(deployment(flash=1, standard=0))
    server = start_server("redis", appendonly=True)
    with up(file, broker_url=server.url) as fleet, grpc.insecure_channel(fleet.grpc) as channel:
        stub = fleet.stub(channel)
        whole = collect(stub.Generate(greedy("Say hello.", tokens=8, tier=pb.FLASH), timeout=60))
        server.kill()
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(
                lambda: collect(stub.Generate(greedy("Say hello.", tokens=8, tier=pb.FLASH), timeout=60))
            )
            time.sleep(3)
            assert not asked.done()
            server.start()
            assert asked.result(60).ids == whole.ids
