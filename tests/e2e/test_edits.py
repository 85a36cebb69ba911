"""Edits of the file while the fleet runs, and a router that dies: told in words, and nobody's answer is lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from flash_wire.v1 import inference_pb2 as pb
from support.running import SMOLLM2, collect, deployment, greedy, up, wait_for

pytestmark = pytest.mark.slow


def write(file: Path, text: str) -> None:
    part = file.with_suffix(".part")
    part.write_text(text)
    part.replace(file)


def test_a_bad_edit_changes_nothing_and_the_next_good_one_is_applied(tmp_path: Path) -> None:
    file, cut = tmp_path / "chat.yaml", tmp_path / "cut.gguf"
    cut.write_bytes(b"GGUF\x03\x00\x00\x00")
    good = deployment(standard=0)
    write(file, good)
    with up(file) as fleet, grpc.insecure_channel(fleet.grpc) as channel:
        stub, before = fleet.stub(channel), fleet.workers()
        write(file, good.replace(SMOLLM2, f"file://{cut}", 1))
        wait_for(lambda: fleet.said("is not applied"), 60, "the refusal")
        assert fleet.said("cut.gguf")
        assert fleet.workers() == before

        # A static edit rolls the worker under traffic: no request fails and no token is lost.
        stop, failed, done = threading.Event(), list[Exception](), list[int]()

        def ask() -> None:
            while not stop.is_set():
                try:
                    done.append(
                        len(collect(stub.Generate(greedy("Say hello.", tokens=8, tier=pb.FLASH), timeout=60)).ids)
                    )
                except (grpc.RpcError, AssertionError) as error:
                    failed.append(error)

        with ThreadPoolExecutor(2) as pool:
            asking = [pool.submit(ask) for _ in range(2)]
            write(file, good.replace("window: 1024", "window: 512"))
            wait_for(lambda: fleet.said("is applied"), 120, "the roll")
            stop.set()
            for task in asking:
                task.result(60)
        assert failed == []
        assert done
        assert set(done) == {8}
        assert len(fleet.workers()) == 1
        assert set(fleet.workers()).isdisjoint(before)

        write(file, good.replace("name: chat", "name: talk"))
        wait_for(lambda: fleet.said("default/chat cannot become default/talk while it runs"), 20, "the refusal")


def test_a_router_that_dies_is_back_and_workers_find_it(tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(deployment(standard=0))
    with up(file) as fleet:
        fleet.kill_router()
        wait_for(lambda: fleet.said("chat-router-0 ended with SIGKILL"), 10, "the word of its end")

        def answered() -> bool:
            with grpc.insecure_channel(fleet.fronts()[-1]) as channel:
                request = greedy("Say hello.", tokens=4, tier=pb.FLASH)
                try:
                    return len(collect(fleet.stub(channel).Generate(request, timeout=10)).ids) == 4
                except grpc.RpcError:
                    return False

        wait_for(answered, 30, "an answer through the new router")
