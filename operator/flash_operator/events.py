"""Kubernetes Events for people, posted beside the reconciles: a full or failing event store holds nothing up."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Literal

from flash_operator.client import EVENT, ApiError, Body, Client

_WAITING = 1000
_REMEMBERED = 4096
_REPEAT_S = 300.0
"""The same sentence about the same object is told at most this often; its count goes up."""
_BURST, _REFILL_S = 25, 30.0
_LONGEST = 1000
_log = logging.getLogger("flash_operator.events")

Kind = Literal["Normal", "Warning"]


@dataclass(slots=True)
class _Told:
    name: str
    first: str
    count: int
    at: float


@dataclass(slots=True)
class _Allowance:
    left: float
    at: float


class Events:
    """`tell` never waits and never fails. What waits and what is remembered is bounded; so is each object: 25
    at once, then 2 a minute."""

    def __init__(self, client: Client, pod: str) -> None:
        self._client, self._pod = client, pod
        self._waiting: asyncio.Queue[Body] = asyncio.Queue(_WAITING)
        self._told: OrderedDict[tuple[str, str, str], _Told] = OrderedDict()
        self._allowed: OrderedDict[str, _Allowance] = OrderedDict()

    def tell(self, about: Body, reason: str, message: str, kind: Kind = "Normal") -> None:
        """`about` is the whole object. A sentence that was told less than five minutes ago is only counted."""
        uid, now = about["metadata"]["uid"], time.monotonic()
        message = message[:_LONGEST]
        key = (uid, reason, message)
        told = self._told.pop(key, None)
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if told is None:
            name = blake2b("\0".join((*key, stamp)).encode(), digest_size=8).hexdigest()
            told = _Told(f"{about['metadata']['name']}.{name}", stamp, 0, float("-inf"))
        told.count += 1
        self._told[key] = told
        _trim(self._told)
        if now - told.at < _REPEAT_S or not self._may(uid, now):
            return
        told.at = now
        meta = about["metadata"]
        event = {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"name": told.name, "namespace": meta["namespace"]},
            "involvedObject": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": uid,
            },
            "reason": reason,
            "message": message,
            "type": kind,
            "count": told.count,
            "firstTimestamp": told.first,
            "lastTimestamp": stamp,
            "source": {"component": "flashfleet-operator"},
            "reportingComponent": "flashfleet-operator",
            "reportingInstance": self._pod,
        }
        if self._waiting.full():
            self._waiting.get_nowait()  # the oldest says least about now
        self._waiting.put_nowait(event)

    async def run(self) -> None:
        """Posts until cancelled."""
        while True:
            event = await self._waiting.get()
            try:
                await self._client.apply(EVENT, event)  # makes it, or raises the count of the one that stands
            except ApiError as error:
                _log.warning("event %r was not posted: %s", event["message"], error)

    def _may(self, uid: str, now: float) -> bool:
        allowance = self._allowed.pop(uid, None) or _Allowance(_BURST, now)
        allowance.left = min(_BURST, allowance.left + (now - allowance.at) / _REFILL_S)
        allowance.at = now
        self._allowed[uid] = allowance
        _trim(self._allowed)
        if allowance.left < 1:
            return False
        allowance.left -= 1
        return True


def _trim(memory: OrderedDict[Any, Any]) -> None:
    while len(memory) > _REMEMBERED:
        memory.popitem(last=False)
