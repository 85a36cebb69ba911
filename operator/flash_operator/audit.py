"""Compares the caches with lists of names and versions: at the start until all is seen, then slowly for ever.

A watch that starts over never says what was deleted meanwhile, and a watch may be dead without an error. Both show
here: what a list lacks is dropped from the cache; what the cache still lacks a while after a list means a dead watch.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence

from flash_operator.client import DEPLOYMENT_OF_OURS, ApiError, Client, Resource
from flash_operator.observe import MANAGED, WATCHED, Entry, Key, World

EVERY_S = 300.0
_LOOK_S = 0.1
_PATIENCE_S = 20.0
"""A watch that is alive shows within this what a list showed."""
_AGAIN_S = 5.0
_log = logging.getLogger("flash_operator.audit")


class Audit:
    """`changed(key, wait)` is called for each key that something was found out about, and slowly for all of them."""

    def __init__(
        self,
        client: Client,
        world: World,
        namespaces: Sequence[str],
        changed: Callable[[Key, float], None],
        *,
        every: float = EVERY_S,
        patience: float = _PATIENCE_S,
    ) -> None:
        self._client, self._world, self._namespaces, self._changed = client, world, namespaces, changed
        self._every, self._patience = every, patience
        self._wanted = asyncio.Event()
        self.synced = asyncio.Event()
        self.stalled: list[str] = []
        """Kinds whose watch does not show what exists."""

    def soon(self) -> None:
        """A watch started over: see what it could not say."""
        self._wanted.set()

    async def run(self) -> None:
        """Until cancelled. Sets `synced` when the watches have shown all that existed at the start."""
        while True:
            if await self._check():
                self.synced.set()
                break
            await asyncio.sleep(_AGAIN_S)
        while True:
            try:
                async with asyncio.timeout(_AGAIN_S if self.stalled else self._every * random.uniform(0.9, 1.1)):  # noqa: S311
                    await self._wanted.wait()
                    await asyncio.sleep(1.0)  # the watch is still listing
            except TimeoutError:
                if not self.stalled:
                    self._resync()
            self._wanted.clear()
            await self._check()

    def _resync(self) -> None:
        """Every key once, spread out: level-based means that a lost event costs time and nothing else."""
        keys = self._world.keys()
        for number, key in enumerate(keys):
            self._changed(key, self._every / 2 * number / len(keys))

    async def _check(self) -> bool:
        """True when the watches of all kinds keep up. False when one does not, or when that could not be seen."""
        stalled, seen = [], True
        for resource in WATCHED:
            for namespace in self._namespaces:
                try:
                    if not await self._keeps_up(resource, namespace):
                        stalled.append(resource.plural)
                except ApiError as error:
                    _log.warning("list of %s: %s", resource.plural, error)
                    seen = False
        if stalled and stalled != self.stalled:
            _log.error("the watches do not show what exists of %s", ", ".join(stalled))
        if seen:
            self.stalled = stalled
        return seen and not stalled

    async def _keeps_up(self, resource: Resource, namespace: str) -> bool:
        known = self._world.versions(resource)
        listed = await self._list(resource, namespace)
        # Only what was known before the list began: what came since may be missing from it.
        for where, name, uid in known.keys() - listed.keys():
            if where == namespace and (key := self._world.drop(resource, where, name, uid)):
                _log.info("%s %s/%s is gone", resource.kind, where, name)
                self._changed(key, 0.0)
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience
        while self._behind(resource, listed):
            if loop.time() < until:
                await asyncio.sleep(_LOOK_S)
                continue
            still = await self._list(resource, namespace)  # what was deleted meanwhile will never be seen
            return not self._behind(resource, {entry: v for entry, v in listed.items() if entry in still})
        return True

    def _behind(self, resource: Resource, listed: dict[Entry, int]) -> bool:
        known = self._world.versions(resource)
        return any(known.get(entry, -1) < version for entry, version in listed.items())

    async def _list(self, resource: Resource, namespace: str) -> dict[Entry, int]:
        labels = "" if resource is DEPLOYMENT_OF_OURS else MANAGED
        listed: dict[Entry, int] = {}
        async for page in self._client.pages(resource, namespace, labels=labels, metadata_only=True):
            for item in page:
                meta = item["metadata"]
                listed[meta["namespace"], meta["name"], meta["uid"]] = int(meta["resourceVersion"])
        return listed
