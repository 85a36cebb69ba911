"""Where a FlashDeployment's queue is: the operator's own address, or the Secret that the FlashDeployment points at."""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass

from flash_operator.client import SECRET, ApiError, Client

_FRESH_S = 300.0
_FAILED_FRESH_S = 30.0
_MOST = 256


@dataclass(frozen=True, slots=True)
class Address:
    """`url` may hold a password. `problem` says why there is none."""

    url: str = ""
    problem: str = ""


class Brokers:
    """Reads only Secrets that a FlashDeployment names, one at a time, and keeps each for five minutes."""

    def __init__(self, client: Client, default_url: str, default_secret: str, default_key: str) -> None:
        self._client = client
        self._default_url, self._default = default_url, (default_secret, default_key)
        self._kept: dict[tuple[str, str, str], tuple[float, Address]] = {}

    async def find(self, namespace: str, secret: str, key: str) -> Address:
        """`secret` and `key` may be empty: then the operator's own. Raises nothing: a reconcile has more to do."""
        secret, key = secret or self._default[0], key or self._default[1]
        if (secret, key) == self._default:
            if self._default_url:
                return Address(self._default_url)
            return Address(problem="the operator has no address of a queue: set FLASHFLEET_BROKER_URL for it")
        name, now = (namespace, secret, key), time.monotonic()
        until, found = self._kept.get(name, (0.0, Address()))
        if now < until:
            return found
        found = await self._read(*name)
        while len(self._kept) >= _MOST:
            del self._kept[next(iter(self._kept))]
        self._kept[name] = (now + (_FAILED_FRESH_S if found.problem else _FRESH_S), found)
        return found

    async def _read(self, namespace: str, secret: str, key: str) -> Address:
        where = f"Secret {namespace}/{secret}"
        try:
            data = (await self._client.get(SECRET, namespace, secret)).get("data") or {}
        except ApiError as error:
            if error.reason == "NotFound":
                return Address(problem=f"{where} does not exist: make it, with the queue's address under the key {key}")
            if error.reason == "Forbidden":
                return Address(
                    problem=f"the operator may not read {where}: name it in the chart's broker.readableSecrets"
                )
            return Address(problem=f"{where} cannot be read: {error.reason}")
        try:
            return Address(base64.b64decode(data[key], validate=True).decode().strip())
        except KeyError:
            return Address(problem=f"{where} has no key {key}; it has {', '.join(sorted(data)) or 'none'}")
        except ValueError:
            return Address(problem=f"{where}: the value of {key} is not text")
