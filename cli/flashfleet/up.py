"""`flashfleet up FILE`: serve a FlashDeployment on this machine until Ctrl-C; edits of the file are applied."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
from pathlib import Path

from flash_operator import api
from flash_operator.plan import Observed, Place, plan
from flash_wire.settings import SettingsError

from flashfleet.local import LocalFleet


def show_plan(path: Path, place: Place) -> None:
    """What `up` would start, without starting it."""
    wanted = plan(api.load(path), Observed(), place)
    for sentence in wanted.sentences:
        print(sentence)
    for process in wanted.processes:
        print(f"\n{process.name}: python -m {process.module}  (static {process.static_hash}, live {process.live_hash})")
        print(process.static, process.live, sep="\n", end="")


def _refuse_taken(place: Place) -> None:
    """Before a model is loaded. The router still checks for itself: a port may be taken in between."""
    for flag, port in (("grpc", place.grpc_port), ("http", place.http_port), ("fleet", place.fleet_port)):
        if port:
            family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((place.host, port))
                except OSError as error:
                    taken = error.errno == errno.EADDRINUSE
                    what = "is already taken on" if taken else f"cannot be opened ({error.strerror}) on"
                    raise SettingsError(
                        f"port {port} {what} {place.host}: stop what listens there or choose another with"
                        f" --{flag}-port (0 takes a free one)"
                    ) from None


async def run(path: Path, place: Place, *, verbose: bool) -> int:
    deployment = api.load(path)
    _refuse_taken(place)
    stop, hard = asyncio.Event(), asyncio.Event()
    local = LocalFleet(deployment, place, _say, verbose=verbose)
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            hard.set()
        else:
            stop.set()
            _say("stopping: requests that run are finished first (again to stop at once)")

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    for sentence in api.without_cluster(deployment):
        _say(sentence)
    try:
        if await _or_stop(local.start(), stop) and await _or_stop(local.ready(), stop):
            addresses = await local.first_router()
            _say(f"ready: gRPC {addresses.grpc} · OpenAI http://{addresses.http}/v1 · page http://{addresses.http}/")
            await _until(stop, path, local)
        return 0
    except TimeoutError:
        _say("not every worker is ready in time; `--verbose` shows what they say")
        return 1
    finally:
        ending = asyncio.create_task(local.stop())
        hardly = asyncio.create_task(hard.wait())
        await asyncio.wait({ending, hardly}, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            local.kill()
        hardly.cancel()
        await ending
        _say("stopped")


async def _or_stop(work: object, stop: asyncio.Event) -> bool:
    """Runs `work` unless a stop comes first; True when it was finished."""
    task = asyncio.ensure_future(work)  # type: ignore[call-overload]
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not task.done():
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return False
    task.result()
    return True


async def _until(stop: asyncio.Event, path: Path, local: LocalFleet) -> None:
    """Applies edits of the file; an edit that cannot be used is told and changes nothing."""
    seen = _stamp(path)
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 1)
        now = _stamp(path)
        if now is None or now == seen or stop.is_set():
            continue
        seen = now
        try:
            if await _or_stop(local.apply(api.load(path)), stop):
                _say(f"{path} is applied")
        except SettingsError as error:
            _say(f"{path} is not applied, the fleet runs on as it was:\n{error}")
        except TimeoutError:
            _say("a new worker was not ready in time; the old ones run on")


def _stamp(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        found = path.stat()
        return found.st_mtime_ns, found.st_size
    return None


def _say(line: str) -> None:
    print(line, flush=True)
