"""The operator as its own process against an API server, and what pods would have done: their status, their records."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from support.running import wait_for


@dataclass
class Operator:
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    http: str = ""

    def get(self, path: str) -> tuple[int, str]:
        """(status, text) of /metrics, /healthz or /readyz."""
        try:
            with urllib.request.urlopen(f"http://{self.http}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples with these labels; 0 where there are none."""
        total = 0.0
        for line in self.get("/metrics")[1].splitlines():
            if match := re.match(rf"^{name}(?:\{{(.*)\}})? (\S+)$", line):
                found = dict(re.findall(r'(\w+)="([^"]*)"', match[1] or ""))
                if all(found.get(key) == value for key, value in labels.items()):
                    total += float(match[2])
        return total

    @property
    def leading(self) -> bool:
        return self.metric("flashfleet_operator_leader") >= 1

    def writes(self) -> float:
        """Calls so far that change something in the cluster, Leases apart."""
        calls = 0.0
        for verb in ("apply", "create", "update", "delete"):
            calls += self.metric("flashfleet_operator_api_calls_total", verb=verb)
            calls -= self.metric("flashfleet_operator_api_calls_total", verb=verb, resource="leases")
        return calls

    def calls(self) -> float:
        """All calls so far, Leases and watches apart."""
        name = "flashfleet_operator_api_calls_total"
        return self.metric(name) - self.metric(name, resource="leases")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def log(self) -> str:
        return "\n".join(self.lines)


@contextlib.contextmanager
def running_operator(
    kubeconfig: Path, namespace: str, *more: str, broker_url: str = "", ready: bool = True
) -> Iterator[Operator]:
    """Started, with full caches unless `ready` is False, and ended in any case."""
    environment = os.environ | {"FLASHFLEET_BROKER_URL": broker_url, "PYTHONUNBUFFERED": "1"}
    environment.pop("KUBERNETES_SERVICE_HOST", None)
    words = ["--kubeconfig", str(kubeconfig), "--namespace", namespace, "--http-host", "127.0.0.1", "--http-port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "flash_operator", *words, *more],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    operator = Operator(process)
    assert process.stdout
    assert process.stderr
    threads = [
        threading.Thread(target=_read, args=(stream, operator), daemon=True)
        for stream in (process.stdout, process.stderr)
    ]
    for thread in threads:
        thread.start()
    try:
        if ready:
            wait_for(lambda: operator.http or process.poll() is not None, 60, "the operator's port")
            assert process.poll() is None, operator.log()
            wait_for(lambda: operator.get("/readyz")[0] == 200 or process.poll() is not None, 60, "full caches")
            assert process.poll() is None, operator.log()
        yield operator
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)
        for thread in threads:
            thread.join(10)
        process.stdout.close()
        process.stderr.close()


def _read(stream, operator: Operator) -> None:  # type: ignore[no-untyped-def]
    for line in stream:
        operator.lines.append(line.rstrip())
        if line.startswith('{"http"'):
            operator.http = json.loads(line)["http"]
