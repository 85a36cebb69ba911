"""Manifests -> the cluster: server-side apply of what differs, delete of what nobody wants. Nothing else writes them.

An object is left alone when the manifest's hash stands on it and everything in the manifest stands in it. What others
added (an HPA's replica count, a restart's annotation) does not count as a difference; what they changed does.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Iterable
from hashlib import blake2b
from typing import Any

from flash_operator.client import APPLIED, CONFIG_MAP, DEPLOYMENT, FIELD_MANAGER, REPLICA_SET, Body, Client
from flash_operator.compare import includes
from flash_operator.naming import OWNER_LABEL
from flash_operator.observe import APPLIED_HASH, Family, Key, Seen, World, config_maps

_CALM_S = 60.0
_LONGEST_S = 300.0
_HANDED_OVER = f"{FIELD_MANAGER}-handed-over"


class NotLeader(Exception):
    """The Lease was lost while a pass ran: nothing more may be written."""


class Applier:
    """`leads(namespace)` is asked before each write."""

    def __init__(self, client: Client, world: World, leads: Callable[[str], bool]) -> None:
        self._client, self._world, self._leads = client, world, leads
        self._same: dict[str, tuple[str, bytes]] = {}
        """uid -> (manifest hash, digest) that the API server itself answered with: equal, however it spells things."""
        self._fights: dict[str, tuple[float, int]] = {}
        """uid -> (time, times): somebody keeps changing what we apply."""

    async def apply(self, key: Key, manifests: Iterable[Body]) -> tuple[int, float | None]:
        """Makes the children of `key` those of `manifests`. Returns (writes, seconds until a fight goes on)."""
        family = self._world.family(key)
        wanted: set[tuple[str, str]] = set()
        again = None
        before: list[tuple[Body, Seen | None]] = []
        deployments: list[tuple[Body, Seen | None]] = []
        for manifest in manifests:
            name = (manifest["kind"], manifest["metadata"]["name"])
            wanted.add(name)
            signed = sign(manifest)
            seen = family.children.get(name)
            if seen and self._as_wanted(signed, seen):
                continue
            if seen and (wait := self._calm_down(signed, seen)):
                again = min(wait, again or wait)
                continue
            (deployments if manifest["kind"] == DEPLOYMENT.kind else before).append((signed, seen))
        # What pods read stands before the pods do; within each wave the order says nothing.
        for wave in (before, deployments):
            await _all([self._write(signed, seen) for signed, seen in wave])
        deleted = await self._delete(key, family, wanted)
        return len(before) + len(deployments) + deleted, again

    def forget(self, family: Family) -> None:
        for seen in family.children.values():
            self._same.pop(seen.uid, None)
            self._fights.pop(seen.uid, None)

    async def _write(self, signed: Body, known: Seen | None) -> None:
        self.fence(signed["metadata"]["namespace"])
        if known and known.owns_replicas and "replicas" not in signed["spec"]:
            await self._hand_over(signed, known)
        resource = APPLIED[signed["kind"]]
        answer = await self._client.apply(resource, signed)
        self._world.put(resource, answer)
        key = (signed["metadata"]["namespace"], signed["metadata"]["labels"][OWNER_LABEL])
        seen = self._world.family(key).children.get((signed["kind"], signed["metadata"]["name"]))
        if seen and seen.uid == answer["metadata"]["uid"]:
            self._same[seen.uid] = (seen.applied_hash, seen.digest)
            seen.packed = None

    async def _hand_over(self, signed: Body, seen: Seen) -> None:
        """The count becomes somebody else's. An apply that leaves out a field of ours removes it, and the API server
        would put its default of 1 there; with a second owner it stays what it is."""
        self.fence(signed["metadata"]["namespace"])
        meta = {name: signed["metadata"][name] for name in ("name", "namespace")}
        body = {
            "apiVersion": signed["apiVersion"],
            "kind": signed["kind"],
            "metadata": meta,
            "spec": {"replicas": seen.view["spec"]["replicas"]},
        }
        await self._client.apply(APPLIED[signed["kind"]], body, manager=_HANDED_OVER)

    def _as_wanted(self, signed: Body, seen: Seen) -> bool:
        if seen.applied_hash != signed["metadata"]["annotations"][APPLIED_HASH]:
            return False
        if self._same.get(seen.uid) == (seen.applied_hash, seen.digest):
            return True
        content = seen.content()
        if content is None or not includes(content, _content(signed)):
            return False
        self._same[seen.uid] = (seen.applied_hash, seen.digest)
        seen.packed = None
        return True

    def _calm_down(self, signed: Body, seen: Seen) -> float | None:
        """Drift is repaired at once; the same drift again and again ever more slowly, so that two writers who disagree
        do not keep the API server busy."""
        if self._same.get(seen.uid, ("",))[0] != signed["metadata"]["annotations"][APPLIED_HASH]:
            return None  # a new manifest, not drift
        now = time.monotonic()
        at, times = self._fights.get(seen.uid, (0.0, 0))
        if now - at > max(_CALM_S, 2 * _pause(times)):
            times = 0
        elif (left := at + _pause(times) - now) > 0:
            return left
        self._fights[seen.uid] = (now, times + 1)
        return None

    async def _delete(self, key: Key, family: Family, wanted: set[tuple[str, str]]) -> int:
        """Only what carries our labels and has this FlashDeployment as its controller."""
        unwanted = [
            (kind, name, seen)
            for (kind, name), seen in family.children.items()
            if kind in APPLIED and (kind, name) not in wanted and seen.owner_uid == family.uid
        ]
        used: set[str] = set()
        if any(kind == CONFIG_MAP.kind for kind, _, _ in unwanted):
            used = await self._config_maps_in_use(key, family)
        deleted = 0
        for kind, name, seen in unwanted:
            if kind == CONFIG_MAP.kind and name in used:
                continue
            self.fence(key[0])
            await self._client.delete(APPLIED[kind], key[0], name, seen.uid)
            self._world.drop(APPLIED[kind], key[0], name, seen.uid)
            self._same.pop(seen.uid, None)
            self._fights.pop(seen.uid, None)
            deleted += 1
        return deleted

    async def _config_maps_in_use(self, key: Key, family: Family) -> set[str]:
        """By a pod, or by a ReplicaSet that may make one again. Asked only while an old ConfigMap stands."""
        used: set[str] = set()
        templates = [deployment["spec"]["template"] for deployment in family.views("Deployment")]
        for pod in family.views("Pod") + templates:
            used |= config_maps(pod["spec"])
        async for page in self._client.pages(REPLICA_SET, key[0], labels=f"{OWNER_LABEL}={key[1]}"):
            for item in page:
                if (item["spec"].get("replicas") or 0) or (item.get("status") or {}).get("replicas"):
                    used |= config_maps(item["spec"]["template"]["spec"])
        return used

    def fence(self, namespace: str) -> None:
        """Raises NotLeader."""
        if not self._leads(namespace):
            raise NotLeader("another operator leads now")


async def _all(writes: list[Coroutine[Any, Any, None]]) -> None:
    """All are tried and ended, then the first error is raised."""
    for result in await asyncio.gather(*writes, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _content(signed: Body) -> Body:
    """What of a manifest can differ: its identity cannot."""
    meta = {name: part for name, part in signed["metadata"].items() if name not in ("name", "namespace")}
    return {name: part for name, part in signed.items() if name not in ("apiVersion", "kind")} | {"metadata": meta}


def sign(manifest: Body) -> Body:
    """The manifest with its own hash as an annotation."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    meta: dict[str, Any] = dict(manifest["metadata"])
    meta["annotations"] = {
        **(meta.get("annotations") or {}),
        APPLIED_HASH: blake2b(text, digest_size=8).hexdigest(),
    }
    return manifest | {"metadata": meta}


def _pause(times: int) -> float:
    return 0.0 if times < 2 else float(min(_LONGEST_S, 2.0**times))
