"""Leader election by a Lease of our own: one operator acts on a scope, a second one stands by with warm caches.

The invariant: an operator acts only between `acquired` and `lost`, and it says `lost` by its own clock at least 5 s
before another may take over, also when it cannot reach the API server. Clocks of different machines are never compared:
a Lease has lapsed when *we* saw it unchanged for its whole duration.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from flash_operator.client import LEASE, ApiError, Body, Client

NAME = "flashfleet-operator"
DURATION_S = 15
RENEW_S = 5.0
GIVE_UP_S = 10.0
"""Unrenewed for this long, the holder stops acting."""
LOOK_S = 2.0
"""How often a standby looks: with the duration this bounds the time without a leader, 17 s after a kill."""
_RELEASE = "flashfleet.io/release"
"""Annotation: a label could not hold a namespace and a name."""
_log = logging.getLogger("flash_operator.lease")


class Refused(Exception):
    """Another installation acts on this scope."""


class Election:
    """Holds the Lease `flashfleet-operator` of a namespace for `identity`, a pod of the installation `release`.

    `run` raises Refused when another installation holds it, and ends only by that or by cancellation.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        identity: str,
        release: str,
        *,
        acquired: Callable[[], None],
        lost: Callable[[], None],
        name: str = NAME,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._namespace, self._name = client, namespace, name
        self._identity, self._release = identity, release
        self._acquired, self._lost, self._clock = acquired, lost, clock
        self._lease: Body = {}
        self._seen: tuple[Any, ...] = ()
        self._seen_at = 0.0
        self._renewed_at = 0.0
        self._busy = asyncio.Lock()
        self._closed = False
        self.leading = False

    async def run(self) -> None:
        try:
            while True:
                began = self._clock()
                try:
                    async with self._busy:
                        if not self._closed:
                            await self._look(began)
                except (ApiError, TimeoutError) as error:
                    self._lease = {}  # read again before anything is written
                    _log.warning("lease %s/%s: %s", self._namespace, self._name, error or "no answer in time")
                if self.leading and self._clock() - self._renewed_at >= GIVE_UP_S:
                    _log.error("not renewed for %.0f s: no longer the leader", GIVE_UP_S)
                    self._become(False)
                # A leader whose renewal failed tries again soon: it has 5 s left of its 10.
                late = self.leading and self._renewed_at < began
                await asyncio.sleep(1.0 if late else RENEW_S if self.leading else LOOK_S)
        finally:
            self._become(False)

    async def release(self) -> None:
        """Stops acting, and lets the next one start at once."""
        async with self._busy:
            self._closed = True
            self._become(False)
            if self._holds(self._lease):
                # The Lease lapses by itself if this does not arrive.
                with contextlib.suppress(ApiError):
                    self._lease = await self._client.replace(LEASE, self._body("", 1))

    async def _look(self, now: float) -> None:
        # A leader's call ends before its time is up, so that `lost` is said in time.
        left = self._renewed_at + GIVE_UP_S - now
        async with asyncio.timeout(min(RENEW_S, max(0.1, left)) if self.leading else None):
            await self._take_or_wait(now)

    async def _take_or_wait(self, now: float) -> None:
        try:
            if not (self.leading and self._lease):
                self._lease = await self._client.get(LEASE, self._namespace, self._name)
            if not self._holds(self._lease) and not self._lapsed(now):
                self._refuse_others()
                self._become(False)
                return
            self._lease = await self._client.replace(LEASE, self._body(self._identity, DURATION_S))
        except ApiError as error:
            if error.reason == "NotFound":
                self._lease = await self._client.create(LEASE, self._body(self._identity, DURATION_S))
            elif error.reason == "Conflict":
                self._lease = {}
                return  # somebody else was faster; the next look says who
            else:
                raise
        self._renewed_at = now  # when the call began: the others count from then or later
        self._become(True)

    def _holds(self, lease: Body) -> bool:
        return bool(lease) and lease["spec"].get("holderIdentity") == self._identity

    def _lapsed(self, now: float) -> bool:
        spec = self._lease["spec"]
        if not spec.get("holderIdentity"):
            return True
        seen = (spec["holderIdentity"], spec.get("renewTime"), self._lease["metadata"]["resourceVersion"])
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        return now - self._seen_at > float(spec.get("leaseDurationSeconds") or DURATION_S)

    def _refuse_others(self) -> None:
        release = self._lease["metadata"].get("annotations", {}).get(_RELEASE, "")
        if release != self._release:
            raise Refused(
                f"namespace {self._namespace} already has a FlashFleet operator: release {release!r},"
                f" pod {self._lease['spec']['holderIdentity']}. Two would undo each other's work."
                f" Uninstall one, or give this one (release {self._release!r}) another namespace to watch"
            )

    def _become(self, leading: bool) -> None:
        if leading == self.leading:
            return
        self.leading = leading
        _log.info("%s is %s", self._identity, "the leader" if leading else "standing by")
        (self._acquired if leading else self._lost)()

    def _body(self, holder: str, duration: int) -> Body:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = dict(self._lease.get("spec", {})) if self._holds(self._lease) else {"acquireTime": now}
        changes = int(self._lease.get("spec", {}).get("leaseTransitions") or 0) + (not self._holds(self._lease))
        spec |= {
            "holderIdentity": holder,
            "leaseDurationSeconds": duration,
            "renewTime": now,
            "leaseTransitions": changes,
        }
        metadata = {
            "name": self._name,
            "namespace": self._namespace,
            "labels": {"app.kubernetes.io/name": "flashfleet"},
            "annotations": {_RELEASE: self._release},
        }
        if version := self._lease.get("metadata", {}).get("resourceVersion"):
            metadata["resourceVersion"] = version
        return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": spec}
