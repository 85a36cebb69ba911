"""Child processes: started again when they die, stopped in time, never outliving their supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest
from flashfleet import child
from flashfleet.child import Child
from support.running import wait_for


def command(code: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code)]


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def until(condition: Callable[[], object], within: float = 20.0) -> None:
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110  any condition, not one that somebody sets
            await asyncio.sleep(0.02)


@pytest.fixture
def lines() -> list[str]:
    return []


def make(code: str, lines: list[str], stdin: bytes = b"") -> Child:
    def on(name: str, line: str) -> None:
        lines.append(line)

    return Child("it", command(code), dict(os.environ), on, on, stdin=stdin)


async def test_a_child_that_dies_is_started_again(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_FIRST_PAUSE", 0.01)
    kept = make("import os; print('pid', os.getpid(), flush=True); import time; time.sleep(60)", lines)
    await until(lambda: any(line.startswith("pid") for line in lines))
    first = kept.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await until(lambda: sum(line.startswith("pid") for line in lines) == 2)
    assert kept.pid != first
    assert kept.restarts == 1
    assert any("SIGKILL" in line for line in lines)
    await kept.stop(5)
    assert kept.pid is None


async def test_the_pause_grows_while_it_keeps_dying(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_FIRST_PAUSE", 0.01)
    kept = make("raise SystemExit(3)", lines)
    await until(lambda: kept.restarts >= 4)
    pauses = [line.rpartition("in ")[2] for line in lines if "starting it again" in line]
    assert pauses[:4] == ["0.01 s", "0.02 s", "0.04 s", "0.08 s"]
    await kept.stop(5)


async def test_one_that_refuses_is_left_alone_with_its_last_words(lines: list[str]) -> None:
    kept = make("print('port 8000 is already taken'); raise SystemExit(2)", lines)
    await until(lambda: kept.refused)
    assert "cannot work with what it was given and is not started again" in lines
    assert kept.restarts == 0
    assert list(kept.tail) == ["port 8000 is already taken"]


async def test_one_that_served_before_is_tried_again(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_FIRST_PAUSE", 0.01)
    kept = make("raise SystemExit(2)", lines)
    kept.served = True
    await until(lambda: kept.restarts >= 2)
    assert not kept.refused
    await kept.stop(5)


async def test_one_that_ignores_sigterm_is_killed_in_time(lines: list[str]) -> None:
    kept = make("import signal, time; signal.signal(15, 1); print('up', flush=True); time.sleep(60)", lines)
    await until(lambda: "up" in lines)
    pid = kept.pid
    await kept.stop(0.2)
    assert pid is not None
    await until(lambda: gone(pid))


async def test_a_stop_between_two_lives_starts_nothing(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_FIRST_PAUSE", 30.0)
    kept = make("raise SystemExit(1)", lines)
    await until(lambda: kept.restarts == 1)
    await asyncio.wait_for(kept.stop(1), 5)
    assert kept.pid is None


async def test_it_reads_what_it_is_given(lines: list[str]) -> None:
    kept = make("import sys; print(sys.stdin.read())", lines, stdin=b"port 0")
    await until(lambda: "port 0" in lines)
    await kept.stop(5)


async def test_a_line_without_end_does_not_stop_the_reading(lines: list[str]) -> None:
    kept = make("import time; print('x' * 3_000_000); print('after', flush=True); time.sleep(60)", lines)
    await until(lambda: "after" in lines)
    assert all(len(line) <= 1 << 20 for line in kept.tail)
    await kept.stop(5)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_children_end_with_a_supervisor_that_is_killed() -> None:
    supervisor = subprocess.Popen(
        command("""
            import asyncio, os, sys
            from flashfleet.child import Child
            async def main():
                code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
                def on(name, line):
                    print(line, flush=True)
                Child("it", [sys.executable, "-c", code], dict(os.environ), on, on)
                await asyncio.sleep(60)
            asyncio.run(main())
        """),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert supervisor.stdout is not None
    pid = int(supervisor.stdout.readline())
    assert not gone(pid)
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()
    wait_for(lambda: gone(pid), 10, "the child's end")
