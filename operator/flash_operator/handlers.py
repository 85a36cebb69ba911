"""kopf watches; what it sees goes into the caches, and the key that it concerns into the queue. Nothing else.

No change handlers, daemons or timers: kopf then adds no finalizer and no annotation, and it writes nothing at all.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import aiohttp
import kopf

from flash_operator.client import DEPLOYMENT_OF_OURS, Resource
from flash_operator.connection import Connection
from flash_operator.observe import MANAGED, WATCHED, Key, World

_WATCH_S = 120
"""A watch is asked again this often; kopf drops one that is silent for 70 s before that."""
SILENT_S = 300.0
"""No watch asked for this long: its task is dead."""
_CHILD_S = 0.5
"""Children change in bursts: one reconcile for all of a burst."""
_CHUNK = 250


class Watches:
    """kopf's registry and settings for our kinds, and whether its streams are alive."""

    def __init__(
        self,
        connection: Connection,
        world: World,
        namespaces: Sequence[str],
        *,
        changed: Callable[[Key, float], None],
        restarted: Callable[[], None],
        counted: Callable[[Resource], None],
    ) -> None:
        self._connection, self._world = connection, world
        self._changed, self._restarted, self._counted = changed, restarted, counted
        self._namespaces = namespaces
        self._asked = {resource.path(namespace): time.monotonic() for resource in WATCHED for namespace in namespaces}
        self.settled = False
        """Set once the caches are full: what a watch lists after that is a restart of the watch."""

    @property
    def silent(self) -> list[str]:
        """Paths whose watch has not even been asked for lately."""
        now = time.monotonic()
        return [path for path, at in self._asked.items() if now - at > SILENT_S]

    async def run(self, started: Callable[[], None]) -> None:
        """Watches until cancelled, or until kopf gives up. `started` is called when kopf has taken the loop's signals,
        so that they can be taken back. On its way out kopf cancels every task that is younger than itself."""
        older = asyncio.all_tasks()
        tasks = await kopf.spawn_tasks(
            registry=self._registry(), settings=_settings(), standalone=True, namespaces=self._namespaces
        )
        started()
        await kopf.run_tasks(tasks, ignored=older)

    def _registry(self) -> kopf.OperatorRegistry:
        # Not kopf's default registry: that one imports the official client, if there is one, for its login.
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.AiohttpSession:
            return kopf.AiohttpSession(
                server=self._connection.server,
                aiohttp_session=self._connection.session(limit=0, traces=[self._trace()]),
                default_namespace=self._connection.namespace,
            )

        for resource in WATCHED:
            version = resource.api_version.rpartition("/")[2]
            kopf.on.event(resource.group, version, resource.plural, id=resource.plural, registry=registry)(
                self._handler(resource)
            )
        return registry

    def _handler(self, resource: Resource) -> Callable[..., Any]:
        wait = 0.0 if resource is DEPLOYMENT_OF_OURS else _CHILD_S

        async def seen(event: Any, **_: Any) -> None:
            kind, body = event["type"], event["object"]
            self._counted(resource)
            if kind == "DELETED":
                meta = body["metadata"]
                key = self._world.drop(resource, meta["namespace"], meta["name"], meta["uid"])
            else:
                key = self._world.put(resource, body)
            if kind is None and self.settled:
                self._restarted()
            if key:
                self._changed(key, wait)

        return seen

    def _trace(self) -> aiohttp.TraceConfig:
        trace = aiohttp.TraceConfig()

        async def began(_session: Any, _context: Any, params: aiohttp.TraceRequestStartParams) -> None:
            if params.url.path in self._asked:
                self._asked[params.url.path] = time.monotonic()

        trace.on_request_start.append(began)
        return trace


class _Patience:
    """Waits between tries of kopf's calls: soon, then every ten seconds, for as long as the API server is away."""

    def __iter__(self) -> Iterator[float]:
        for wait in itertools.chain((0.5, 1.0, 2.0, 4.0), itertools.repeat(10.0)):
            yield wait * random.uniform(0.8, 1.2)  # noqa: S311


class _NoMemory(kopf.DiffBaseStorage, kopf.ProgressStorage):
    """kopf would copy each object at each event to find differences that nobody here asks for."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> Any:
        return None

    def store(self, **_: Any) -> None:
        return None

    def purge(self, **_: Any) -> None:
        return None

    def touch(self, **_: Any) -> None:
        return None

    def clear(self, *, essence: Any) -> Any:
        return essence


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True  # no list of namespaces or CRDs: a Role is enough
    settings.watching.server_timeout = _WATCH_S
    settings.watching.client_timeout = _WATCH_S + 10
    settings.watching.connect_timeout = 10
    settings.watching.chunk_size = _CHUNK
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = _Patience()
    settings.queueing.idle_timeout = 1.0
    settings.persistence.finalizer = "flashfleet.io/none"
    settings.persistence.diffbase_storage = _NoMemory()
    settings.persistence.progress_storage = _NoMemory()
    for resource in WATCHED:
        if resource is not DEPLOYMENT_OF_OURS:
            version = resource.api_version.rpartition("/")[2]
            settings.watching.label_selectors[resource.group, version, resource.plural] = MANAGED
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    return settings
