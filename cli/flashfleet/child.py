"""One child process: started on a leash, restarted with a growing pause, its output kept readable."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

REFUSED = 2
"""Exit code of a child that cannot work with what it was given (a bad setting, a taken port): no restart helps."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_WELL = 10.0
"""Seconds of life after which a child's earlier deaths are forgotten."""


class Child:
    """Keeps one process running until `stop`.

    `on_line(name, line)` gets each line of its output, `on_end(name, sentence)` what becomes of it when it ends by
    itself.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        on_line: Callable[[str, str], None],
        on_end: Callable[[str, str], None],
        *,
        stdin: bytes = b"",
    ) -> None:
        self.name = name
        self._command = [sys.executable, "-m", "flashfleet.leash", str(os.getpid()), *command]
        self._env = dict(env)
        self._on_line = on_line
        self._on_end = on_end
        self._stdin = stdin
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self.restarts = 0
        self.refused = False
        """True when it ended by itself saying that it cannot work; it is not started again."""
        self.served = False
        """Set by whoever sees it work. What it was given was good then, so a refusal later on may pass."""
        self.tail: deque[str] = deque(maxlen=20)
        self._task = asyncio.create_task(self._keep())

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.returncode is None else None

    async def _keep(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopping:
            born = time.monotonic()
            code = await self._run_once()
            if self._stopping:
                return
            if code == REFUSED and not self.served:
                self.refused = True
                self._on_end(self.name, "cannot work with what it was given and is not started again")
                return
            if time.monotonic() - born > _WELL:
                pause = _FIRST_PAUSE
            self.restarts += 1
            self._on_end(self.name, f"ended with {_say(code)}; starting it again in {pause:g} s")
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _run_once(self) -> int:
        # A session of its own: Ctrl-C reaches the supervisor alone, which then stops its children in order.
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command,
            env=self._env,
            start_new_session=True,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=1 << 20,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(ConnectionError):
            process.stdin.write(self._stdin)
            process.stdin.close()
        if self._stopping:
            self._signal(signal.SIGTERM)
        while True:
            try:
                raw = await process.stdout.readline()
            except ValueError:  # a line over the limit: drop it, keep reading
                continue
            if not raw:
                break
            line = raw.decode(errors="replace").rstrip()
            self.tail.append(line)
            self._on_line(self.name, line)
        return await process.wait()

    def _signal(self, number: int) -> None:
        if self._process and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def ask_to_stop(self) -> None:
        self._stopping = True
        self._signal(signal.SIGTERM)
        if self._process is None or self._process.returncode is not None:
            self._task.cancel()  # between two lives

    async def stop(self, within: float) -> None:
        """SIGTERM, and SIGKILL to its process group after `within` seconds."""
        self.ask_to_stop()
        done, _ = await asyncio.wait({self._task}, timeout=within)
        if not done:
            self.kill()
            await asyncio.wait({self._task}, timeout=5)

    def kill(self) -> None:
        self._stopping = True
        if self._process and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _say(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"
