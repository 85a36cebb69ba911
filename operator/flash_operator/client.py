"""A thin client of the API server: server-side apply, status, lists, deletes. No retries: the work queue has those."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from flash_operator.connection import Connection

FIELD_MANAGER = "flashfleet-operator"
_CALL_S = 15.0
_CONNECTIONS = 16
_PAGE = 1000
_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    api_version: str
    kind: str
    plural: str

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """`namespace` None is all namespaces."""
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        parts = [root, *(("namespaces", namespace) if namespace else ()), self.plural, name, subresource]
        return "/".join(part for part in parts if part)


DEPLOYMENT_OF_OURS = Resource("flashfleet.io/v1alpha1", "FlashDeployment", "flashdeployments")
DEPLOYMENT = Resource("apps/v1", "Deployment", "deployments")
REPLICA_SET = Resource("apps/v1", "ReplicaSet", "replicasets")
POD = Resource("v1", "Pod", "pods")
SERVICE = Resource("v1", "Service", "services")
CONFIG_MAP = Resource("v1", "ConfigMap", "configmaps")
SECRET = Resource("v1", "Secret", "secrets")
EVENT = Resource("v1", "Event", "events")
PDB = Resource("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
LEASE = Resource("coordination.k8s.io/v1", "Lease", "leases")

APPLIED = {resource.kind: resource for resource in (DEPLOYMENT, SERVICE, CONFIG_MAP, PDB)}
"""What `flash_operator.manifests` may make."""


class ApiError(Exception):
    """The API server said no. `reason` is Kubernetes' word for it (NotFound, Conflict, Forbidden, Invalid, …)."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status, self.reason, self.retry_after = status, reason, retry_after


class Unreachable(ApiError):
    """No answer: refused, cut or too slow."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "Unreachable", message)


Told = Callable[[str, Resource, str, float], None]
"""(verb, resource, reason or "OK", seconds): one line per call, for metrics."""


class Client:
    """Every call ends within 15 s. Raises ApiError."""

    def __init__(self, connection: Connection, told: Told | None = None) -> None:
        self._connection = connection
        self._told = told
        self._session: aiohttp.ClientSession | None = None

    @property
    def connection(self) -> Connection:
        return self._connection

    async def __aenter__(self) -> Client:
        self._session = self._connection.session(limit=_CONNECTIONS)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, resource: Resource, namespace: str, name: str) -> Body:
        return await self._call("get", resource, "GET", resource.path(namespace, name))

    async def pages(
        self, resource: Resource, namespace: str | None, *, labels: str = "", metadata_only: bool = False
    ) -> AsyncIterator[list[Body]]:
        """All objects, at most 1000 at a time. The items of a list carry no kind; `metadata_only` spares the rest."""
        query = {"limit": str(_PAGE)} | ({"labelSelector": labels} if labels else {})
        while True:
            answer = await self._call(
                "list",
                resource,
                "GET",
                resource.path(namespace),
                query=query,
                headers={"Accept": _METADATA_ONLY} if metadata_only else None,
            )
            yield answer.get("items") or []
            if not (following := answer.get("metadata", {}).get("continue")):
                return
            query["continue"] = following

    async def apply(
        self, resource: Resource, body: Body, *, status: bool = False, manager: str = FIELD_MANAGER
    ) -> Body:
        """Server-side apply by `manager`, who wins conflicts. Returns the object as it stands then."""
        meta = body["metadata"]
        path = resource.path(meta["namespace"], meta["name"], "status" if status else "")
        return await self._call(
            "apply",
            resource,
            "PATCH",
            path,
            query={"fieldManager": manager, "force": "true"},
            body=body,  # JSON is YAML
            headers={"Content-Type": "application/apply-patch+yaml"},
        )

    async def create(self, resource: Resource, body: Body) -> Body:
        path = resource.path(body["metadata"]["namespace"])
        return await self._call("create", resource, "POST", path, body=body)

    async def replace(self, resource: Resource, body: Body) -> Body:
        """Refused with Conflict when `metadata.resourceVersion` is no longer the current one."""
        path = resource.path(body["metadata"]["namespace"], body["metadata"]["name"])
        return await self._call("update", resource, "PUT", path, body=body)

    async def delete(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        """Only the object with this uid; one that is gone already is no error."""
        options = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        try:
            await self._call("delete", resource, "DELETE", resource.path(namespace, name), body=options)
        except ApiError as error:
            if error.reason not in ("NotFound", "Conflict"):
                raise

    async def _call(
        self,
        verb: str,
        resource: Resource,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: Body | None = None,
        headers: dict[str, str] | None = None,
    ) -> Body:
        assert self._session is not None, "use `async with Client(…)`"
        began, reason = time.monotonic(), "OK"
        headers = {"Accept": "application/json", "Content-Type": "application/json"} | (headers or {})
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        try:
            async with (
                asyncio.timeout(_CALL_S),
                self._session.request(
                    method, self._connection.server + path, params=query, data=data, headers=headers
                ) as answer,
            ):
                text = await answer.read()
                if answer.status >= 400:
                    raise _refused(answer.status, text, answer.headers.get("Retry-After", ""))
                return dict(json.loads(text))
        except ApiError as error:
            reason = error.reason
            raise
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            reason = "Unreachable"
            raise Unreachable(f"{method} {path}: {error or type(error).__name__}") from None
        finally:
            if self._told:
                self._told(verb, resource, reason, time.monotonic() - began)


def _refused(status: int, text: bytes, retry_after: str) -> ApiError:
    reason, message = "", text[:500].decode(errors="replace")
    try:
        answer = json.loads(text)
        reason, message = answer.get("reason") or "", answer.get("message") or message
    except (ValueError, AttributeError):
        pass
    wait = float(retry_after) if retry_after.isdigit() else 0.0
    return ApiError(status, reason or f"Http{status}", message, wait)
