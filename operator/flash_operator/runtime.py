"""The parts of a running operator, joined: watches -> caches -> queue -> reconcile, under one Lease a namespace."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from flash_operator.apply import Applier, NotLeader
from flash_operator.audit import Audit
from flash_operator.brokers import Brokers
from flash_operator.client import ApiError, Client
from flash_operator.connection import Connection
from flash_operator.events import Events
from flash_operator.fleets import Fleets
from flash_operator.handlers import Watches
from flash_operator.lease import Election
from flash_operator.metrics import Metrics, serve
from flash_operator.naming import Images
from flash_operator.observe import Key, World
from flash_operator.queue import WorkQueue
from flash_operator.reconcile import Reconciler


@dataclass(frozen=True, slots=True)
class Options:
    namespaces: tuple[str, ...]
    release: str
    identity: str
    router_image: str
    worker_image: str
    pull_policy: str
    broker_url: str
    broker_secret: str
    broker_key: str
    host: str
    port: int
    workers: int
    resync: float


class Runtime:
    """`async with` it, then run all of `parts` and `watch`; `finish` before they are cancelled."""

    def __init__(self, connection: Connection, options: Options) -> None:
        self._options = options
        self._stack = contextlib.AsyncExitStack()
        self.metrics = Metrics()
        self.world = World()
        self._client = Client(connection, self.metrics.told)
        self._lease_client = Client(connection, self.metrics.told)  # its own connections: renewing never queues up
        self._events = Events(self._client, options.identity)
        self._queue: WorkQueue[Key] = WorkQueue(self._work, workers=options.workers, failed=self._failed)
        self._fleets = Fleets(self._changed)
        self._reconciler = Reconciler(
            self.world,
            self._client,
            Applier(self._client, self.world, self._leads),
            self._fleets,
            Brokers(self._client, options.broker_url, options.broker_secret, options.broker_key),
            self._events,
            self.metrics,
            Images(
                options.router_image,
                options.worker_image,
                options.pull_policy,
                broker_secret=options.broker_secret,
                broker_key=options.broker_key,
            ),
        )
        self._audit = Audit(self._client, self.world, options.namespaces, self._changed, every=options.resync)
        self._watches = Watches(
            connection,
            self.world,
            options.namespaces,
            changed=self._noticed,
            restarted=self._audit.soon,
            counted=lambda resource: self.metrics.events.labels(resource.plural).inc(),
        )
        self._elections = {
            namespace: Election(
                self._lease_client,
                namespace,
                options.identity,
                options.release,
                acquired=lambda namespace=namespace: self._acquired(namespace),  # type: ignore[misc]
                lost=self._lost,
            )
            for namespace in options.namespaces
        }
        self._gauges()
        self.port = 0

    async def __aenter__(self) -> Runtime:
        await self._stack.enter_async_context(self._client)
        await self._stack.enter_async_context(self._lease_client)
        self._stack.push_async_callback(self._fleets.close)
        self.port = await self._stack.enter_async_context(
            serve(self.metrics, self._options.host, self._options.port, live=self._live, ready=self._ready)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def parts(self) -> dict[str, Coroutine[Any, Any, None]]:
        """Each runs until cancelled; one that ends by itself ends the operator."""
        return {
            "queue": self._queue.run(),
            "fleets": self._fleets.queue.run(),
            "events": self._events.run(),
            "audit": self._start(),
            **{f"lease of {namespace}": self._elect(namespace) for namespace in self._elections},
        }

    async def watch(self, started: Callable[[], None]) -> None:
        await self._watches.run(started)

    async def finish(self) -> None:
        """Ends what runs, then lets the next leader begin."""
        self._queue.pause()
        self._fleets.queue.pause()
        await self._queue.idle()
        await asyncio.gather(*(election.release() for election in self._elections.values()))

    # -- keys -----------------------------------------------------------------------------------------------------

    def _changed(self, key: Key, wait: float = 0.0) -> None:
        self._queue.add(key, wait)

    def _noticed(self, key: Key, wait: float) -> None:
        """A watch saw something of this key: its fleet record will move too."""
        self._fleets.hurry(key)
        self._queue.add(key, wait)

    async def _work(self, key: Key) -> float | None:
        if not self._leads(key[0]):
            return None
        with self.metrics.reconcile_seconds.time():
            try:
                again = await self._reconciler.reconcile(key)
            except NotLeader:
                return None
        self.metrics.reconciles.labels("ok").inc()
        return again

    def _failed(self, key: Key, error: Exception) -> None:
        self.metrics.reconciles.labels("error").inc()
        kind = error.reason if isinstance(error, ApiError) else type(error).__name__
        self.metrics.errors.labels(kind).inc()
        self._reconciler.failed(key, error)

    # -- leading --------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        async def settle() -> None:
            await self._audit.synced.wait()
            self._watches.settled = True
            self._open()

        async with asyncio.TaskGroup() as group:
            group.create_task(settle())
            group.create_task(self._audit.run())

    async def _elect(self, namespace: str) -> None:
        """Only an operator that has seen everything may lead: it would act on half a world otherwise."""
        await self._audit.synced.wait()
        await self._elections[namespace].run()

    def _leads(self, namespace: str) -> bool:
        return namespace in self._elections and self._elections[namespace].leading

    def _leading(self) -> bool:
        return any(election.leading for election in self._elections.values())

    def _acquired(self, namespace: str) -> None:
        for key in self.world.keys():  # noqa: SIM118 - not a mapping
            if key[0] == namespace:
                self._queue.add(key)
        self._open()

    def _lost(self) -> None:
        if not self._leading():
            self._queue.pause()
            self._fleets.queue.pause()

    def _open(self) -> None:
        if self._leading() and self._audit.synced.is_set():
            self._queue.resume()
            self._fleets.queue.resume()

    # -- what is told ---------------------------------------------------------------------------------------------

    def _live(self) -> str:
        """A restart would help: a watch that is dead, or keys that nobody works on."""
        if self._watches.silent:
            return f"no watch of {', '.join(self._watches.silent)} for minutes"
        if self._audit.stalled:
            return f"the watch of {', '.join(self._audit.stalled)} shows nothing new"
        return ""

    def _ready(self) -> str:
        return "" if self._audit.synced.is_set() else "the caches are not full yet"

    def _gauges(self) -> None:
        metrics = self.metrics
        metrics.gauge("flashfleet_operator_queue_depth", "Keys that wait for a reconcile.", lambda: self._queue.depth)
        metrics.gauge(
            "flashfleet_operator_queue_oldest_seconds",
            "Time since the oldest key that waits or runs became due.",
            lambda: self._queue.oldest,
        )
        metrics.gauge(
            "flashfleet_operator_failing", "Keys whose last reconcile failed.", lambda: float(self._queue.failing)
        )
        metrics.gauges(
            "flashfleet_operator_leader",
            "1 for the namespaces that this operator acts on.",
            "namespace",
            lambda: [(namespace, float(election.leading)) for namespace, election in self._elections.items()],
        )
        metrics.gauges(
            "flashfleet_operator_objects",
            "FlashDeployments by the reason of their Ready condition.",
            "state",
            lambda: Counter(self._states()).items(),
        )

    def _states(self) -> list[str]:
        return [self.world.family(key).ready[1] or "Unknown" for key in self.world.keys()]  # noqa: SIM118
