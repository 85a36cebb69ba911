"""The processes of one test cluster and the folder that they live in.

Three things end them: `close`; the leash, when the test's process dies; and `sweep`, at the next start, for what is
left all the same. Each folder is locked by the process that made it, so a dead owner is known without guessing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

PREFIX = "flashfleet-cluster-"
LEASH = Path(__file__).with_name("leash.py")
LOG_LINES = 15
LINUX = sys.platform == "linux"


class Failed(AssertionError):
    """A part of the cluster did not come up, or ended. The text has the last lines of its log."""


class Processes:
    """Starts named processes in a folder of their own: NAME.log is what it said, NAME.pid who it is.

    Start them from the main thread: the leash's signal comes when the thread that started a process ends.
    """

    def __init__(self) -> None:
        sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = _lock(self.folder)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str | Path], env: Mapping[str, str]) -> None:
        """Runs `command`; one of its words must lie in the folder, which is how `sweep` knows it again."""
        words = [str(word) for word in command]
        assert any(str(self.folder) in word for word in words), f"{name} does not name its folder: {words}"
        with (self.folder / f"{name}.log").open("ab") as log:
            # A session of its own: Ctrl-C reaches the test alone, which then ends these in order.
            process = subprocess.Popen(
                [sys.executable, "-S", str(LEASH), str(os.getpid()), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(env),
                start_new_session=True,
            )
        self._running[name] = process
        (self.folder / f"{name}.pid").write_text(str(process.pid))

    def pid(self, name: str) -> int | None:
        """None when it was not started, or has ended."""
        process = self._running.get(name)
        return process.pid if process and process.poll() is None else None

    def names(self) -> list[str]:
        return [name for name in self._running if self.pid(name)]

    def check(self, name: str) -> None:
        """Raises Failed when it has ended."""
        if self.pid(name) is None:
            raise Failed(f"{name} ended; its log closes with:\n{self.tail(name)}")

    def tail(self, name: str, lines: int = LOG_LINES) -> str:
        with contextlib.suppress(OSError):
            text = (self.folder / f"{name}.log").read_text(errors="replace")
            return "\n".join(line[:500] for line in text.splitlines()[-lines:])
        return "(no log)"

    def send(self, name: str, number: int) -> None:
        if self.pid(name):
            self._running[name].send_signal(number)

    def end(self, name: str, number: int = signal.SIGKILL, within: float = 5.0) -> None:
        """Ends it and waits: with another signal than SIGKILL it has `within` seconds before that one comes."""
        process = self._running.get(name)
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(within)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        (self.folder / f"{name}.pid").unlink(missing_ok=True)

    def close(self) -> None:
        """Ends all of them, last started first, and removes the folder. May be called twice."""
        for name in reversed(list(self._running)):
            self.end(name)
        self._running.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.close()


def sweep(root: Path | None = None) -> list[Path]:
    """Ends and removes what a killed run of the same user left; returns its folders. Living runs are not touched."""
    swept = []
    for folder in sorted((root or Path(tempfile.gettempdir())).glob(PREFIX + "*")):
        try:
            if folder.stat().st_uid != os.getuid():
                continue
            lock = (folder / "owner").open("rb")
        except OSError:  # not locked yet, so just being made; or gone
            continue
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            for file in folder.glob("*.pid"):
                _kill_left(file, folder)
            shutil.rmtree(folder, ignore_errors=True)
            swept.append(folder)
    return swept


def _kill_left(file: Path, folder: Path) -> None:
    with contextlib.suppress(OSError, ValueError):
        pid = int(file.read_text())
        words = subprocess.run(
            ["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        if str(folder) in words.stdout:  # else the number belongs to somebody else by now
            os.kill(pid, signal.SIGKILL)


def _lock(folder: Path) -> IO[bytes]:
    """Locked before it has its name: nobody ever sees it without its lock."""
    new = folder / "owner.new"
    file = new.open("wb")
    fcntl.flock(file, fcntl.LOCK_EX)
    new.rename(folder / "owner")
    return file


class Port:
    """A free loopback port, kept until `close`: others cannot be given it while its server is away.

    A server that shares ports (SO_REUSEPORT) can still listen on it. Nobody is connected to this socket, since it
    does not listen.
    """

    def __init__(self, address: str) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind((address, 0))
        self.number: int = self._socket.getsockname()[1]

    def close(self) -> None:
        self._socket.close()


def free_port(address: str) -> int:
    """A port that is free now; somebody else may take it before it is used."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        number: int = probe.getsockname()[1]
        return number


def resident_mib(pid: int) -> float:
    """Resident memory of a process in MiB; 0 when it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0 if LINUX else int(_ps("rss=", pid).strip() or 0) / 1024


def _command_line(pid: int) -> str:
    if not LINUX:
        return _ps("args=", pid)
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    return ""


def _ps(field: str, pid: int) -> str:
    words = ["ps", "-ww", "-o", field, "-p", str(pid)]
    return subprocess.run(words, capture_output=True, text=True, timeout=30, check=False).stdout
