"""The operator's process: python -m flash_operator --namespace NAMESPACE …

One loop: kopf watches, a queue of keys reconciles, a Lease per namespace says who may act. The queue's address comes
from FLASHFLEET_BROKER_URL. When its port is open, one JSON line on standard output says where.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import uuid
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from flash_operator import connection
from flash_operator.lease import Refused
from flash_operator.runtime import Options, Runtime

BROKER_URL = "FLASHFLEET_BROKER_URL"
_LAST_WORDS = 10.0
_TERMINATION_LOG = Path("/dev/termination-log")
_log = logging.getLogger("flash_operator")


def main(arguments: list[str] | None = None) -> int:
    """Exit code: 0 after SIGTERM or SIGINT, 1 when a part of it failed, 2 for what a person has to mend first."""
    options, chosen = _parse(arguments)
    logging.basicConfig(
        stream=sys.stderr,
        level=chosen.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        found = connection.find(chosen.kubeconfig, chosen.context)
        return asyncio.run(_run(found, options(found.namespace)))
    except (connection.CannotConnect, Refused) as error:
        _last_words(str(error))
        return 2


def _parse(arguments: list[str] | None) -> tuple[Any, argparse.Namespace]:
    parser = argparse.ArgumentParser(prog="flash_operator", description="FlashDeployment -> running processes.")
    add = parser.add_argument
    add("--namespace", action="append", help="namespace to watch, may be repeated; left out: its own")
    add("--release", default="", help="name of this installation; another one on the same namespace is refused")
    add("--router-image", default=os.environ.get("FLASHFLEET_ROUTER_IMAGE", "flashfleet-router"))
    add("--worker-image", default=os.environ.get("FLASHFLEET_WORKER_IMAGE", "flashfleet-worker"))
    add("--image-pull-policy", default="IfNotPresent", choices=["Always", "IfNotPresent", "Never"])
    add("--broker-secret", default="flashfleet-broker", help=f"Secret that gives pods {BROKER_URL}")
    add("--broker-key", default="url", help="its key")
    add("--http-host", default="0.0.0.0", help="address of /metrics, /healthz and /readyz")  # noqa: S104 - in a pod
    add("--http-port", type=int, default=8080)
    add("--workers", type=int, default=8, help="reconciles at the same time")
    add("--resync", type=float, default=300.0, help="seconds between two looks at everything")
    add("--kubeconfig", help="outside a cluster; else KUBECONFIG or ~/.kube/config")
    add("--context", help="context in it")
    add("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    chosen = parser.parse_args(arguments)

    def options(own_namespace: str) -> Options:
        namespaces = tuple(dict.fromkeys(chosen.namespace or [own_namespace]))
        return Options(
            namespaces=namespaces,
            release=chosen.release or f"{own_namespace}/flashfleet",
            identity=f"{os.environ.get('POD_NAME') or os.uname().nodename}_{uuid.uuid4().hex[:8]}",
            router_image=chosen.router_image,
            worker_image=chosen.worker_image,
            pull_policy=chosen.image_pull_policy,
            broker_url=os.environ.get(BROKER_URL, ""),  # it may hold a password, and a command line is public
            broker_secret=chosen.broker_secret,
            broker_key=chosen.broker_key,
            host=chosen.http_host,
            port=chosen.http_port,
            workers=chosen.workers,
            resync=chosen.resync,
        )

    return options, chosen


async def _run(found: connection.Connection, options: Options) -> int:
    """Until a signal, or until a part ends by itself."""
    stopping = asyncio.Event()
    _catch_signals(stopping)
    runtime = Runtime(found, options)
    async with runtime:
        sys.stdout.write(json.dumps({"http": f"{options.host}:{runtime.port}"}) + "\n")
        sys.stdout.flush()
        parts = [asyncio.create_task(part, name=name) for name, part in runtime.parts().items()]
        waiting = asyncio.create_task(stopping.wait(), name="signals")
        watching = asyncio.create_task(runtime.watch(lambda: _catch_signals(stopping)), name="watches")
        tasks = [*parts, watching, waiting]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        failed = next((task for task in done if task is not waiting), None)
        await _quietly(asyncio.wait_for(runtime.finish(), _LAST_WORDS))
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=_LAST_WORDS)
        if failed is None or stopping.is_set():
            return 0
        error = None if failed.cancelled() else failed.exception()
        if isinstance(error, Refused):
            raise error
        _last_words(f"{failed.get_name()} ended: {error or 'without an error'}")
        if error:
            _log.error("", exc_info=error)
        return 1


def _catch_signals(stopping: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception as error:
        _log.warning("at the end: %s", error or type(error).__name__)


def _last_words(text: str) -> None:
    """Where people look: the log, and the pod's termination message."""
    for line in text.splitlines():
        sys.stderr.write(f"flash_operator: {line}\n")
    if _TERMINATION_LOG.exists():
        with contextlib.suppress(OSError):
            _TERMINATION_LOG.write_text(text[:4000], encoding="utf-8")
