"""What the tests of the operator do in a cluster: objects as people make them, pods as a kubelet would tell of them.

Objects are plain ones, in Kubernetes' own shape.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from flash_operator.client import CONFIG_MAP, DEPLOYMENT, DEPLOYMENT_OF_OURS, POD, Resource
from flash_operator.observe import config_maps
from flash_wire import fleet
from flash_wire.broker.connect import connect
from flash_wire.settings import hash_of
from support.cluster import ControlPlane
from support.cluster_client import message
from support.running import wait_for

Body = dict[str, Any]
_LONG_MS = 3_600_000


class Refused(AssertionError):
    """The API server said no; the text is its message."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class Kube:
    """One namespace, with all rights. An object that is not there is None."""

    def __init__(self, plane: ControlPlane, namespace: str, rights: str = "") -> None:
        self.plane, self.namespace = plane, namespace
        self.rights = rights
        """YAML of the operator's ServiceAccount, Role and RoleBinding."""

    def call(
        self, method: str, path: str, body: Any = None, *, content: str = "application/json", **query: str
    ) -> Body:
        """Raises Refused."""
        answer = self.plane.request(method, f"{path}?{urlencode(query)}", body, content=content)
        if answer.status >= 400:
            raise Refused(answer.status, message(answer))
        return dict(answer.body)

    def get(self, resource: Resource, name: str) -> Body | None:
        try:
            return self.call("GET", resource.path(self.namespace, name))
        except Refused as error:
            if error.status == 404:
                return None
            raise

    def must(self, resource: Resource, name: str) -> Body:
        found = self.get(resource, name)
        assert found is not None, f"no {resource.kind} {name}"
        return found

    def list(self, resource: Resource, labels: str = "") -> list[Body]:
        query = {"labelSelector": labels} if labels else {}
        return list(self.call("GET", resource.path(self.namespace), **query)["items"])

    def names(self, resource: Resource) -> set[str]:
        return {one["metadata"]["name"] for one in self.list(resource)}

    def apply(self, body: Body) -> Body:
        """As `kubectl apply --server-side`."""
        resource = next(r for r in (DEPLOYMENT_OF_OURS, DEPLOYMENT) if r.kind == body["kind"])
        path = resource.path(self.namespace, body["metadata"]["name"])
        content = "application/apply-patch+yaml"
        return self.call("PATCH", path, body, content=content, fieldManager="tests", force="true")

    def create(self, resource: Resource, body: Body, **query: str) -> Body:
        return self.call("POST", resource.path(self.namespace), body, **query)

    def merge(self, resource: Resource, name: str, patch: Body, subresource: str = "") -> Body:
        path = resource.path(self.namespace, name, subresource)
        return self.call("PATCH", path, patch, content="application/merge-patch+json")

    def delete(self, resource: Resource, name: str) -> None:
        self.call("DELETE", resource.path(self.namespace, name))

    # -- a FlashDeployment ----------------------------------------------------------------------------------------

    def condition(self, kind: str, name: str = "chat") -> Body:
        status = (self.get(DEPLOYMENT_OF_OURS, name) or {}).get("status") or {}
        return next((one for one in status.get("conditions") or [] if one["type"] == kind), {})

    def wait_condition(self, kind: str, status: str, reason: str, *, name: str = "chat", within: float = 30) -> Body:
        """The condition, once it has this state and reason."""

        def there() -> Body | None:
            found = self.condition(kind, name)
            return found if (found.get("status"), found.get("reason")) == (status, reason) else None

        try:
            return wait_for(there, within, f"{kind}={status} {reason}")  # type: ignore[return-value]
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {self.condition(kind, name)}") from None

    def deployments(self) -> dict[str, Body]:
        return {one["metadata"]["name"]: one for one in self.list(DEPLOYMENT)}

    def pods(self, component: str) -> list[Body]:
        """Living pods of router, flash or standard, oldest first."""
        found = [
            pod
            for pod in self.list(POD, f"app.kubernetes.io/component={component}")
            if "deletionTimestamp" not in pod["metadata"]
        ]
        return sorted(found, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    def wait_pods(self, component: str, count: int = 1) -> list[Body]:
        def there() -> tuple[list[Body]] | None:
            found = self.pods(component)
            return (found,) if len(found) == count else None

        (found,) = wait_for(there, 30, f"{count} pods of {component}")  # type: ignore[misc]
        return found

    # -- what a kubelet would write -------------------------------------------------------------------------------

    def tell_pod(
        self, pod: Body, *, container: Body | None = None, conditions: Iterable[Body] = (), **status: Any
    ) -> None:
        """Writes a pod's status. `container` is the state of its one container."""
        patch: Body = dict(status)
        patch["conditions"] = list(conditions)
        if container is not None:
            name = pod["spec"]["containers"][0]["name"]
            base = {"name": name, "image": "x", "imageID": "", "ready": False, "restartCount": 0}
            patch["containerStatuses"] = [base | container]
        self.merge(POD, pod["metadata"]["name"], {"status": patch}, "status")

    def run_pod(self, pod: Body) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.tell_pod(
            pod,
            phase="Running",
            startTime=now,
            podIP="10.0.0.1",
            podIPs=[{"ip": "10.0.0.1"}],
            conditions=[
                {"type": kind, "status": "True", "lastTransitionTime": now}
                for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ],
            container={"ready": True, "started": True, "state": {"running": {"startedAt": now}}},
        )


class Pods:
    """Stands in for routers and workers: what they would say of themselves in the fleet record."""

    def __init__(self, kube: Kube, url: str, name: str = "chat") -> None:
        self._kube, self._url, self._name = kube, url, name
        self._fleet = f"{kube.namespace}/{name}"

    def hashes(self, pod: Body) -> tuple[str, str]:
        """(static, live) as the pod's mounted files have them now."""
        static, live = "", ""
        for name in config_maps(pod["spec"]):
            data = self._kube.must(CONFIG_MAP, name)["data"]
            static = hash_of(data["static.json"]) if "static.json" in data else static
            live = hash_of(data["live.json"]) if "live.json" in data else live
        return static, live

    def serve(self, components: Iterable[str] = ("router", "flash", "standard"), **worker: Any) -> None:
        """All pods that there are: running for the kubelet, ready and attached in the fleet record."""
        routers, workers = [], []
        for component in components:
            for pod in self._kube.pods(component):
                self._kube.run_pod(pod)
                static, live = self.hashes(pod)
                name = pod["metadata"]["name"]
                if component == "router":
                    routers.append(
                        fleet.RouterRecord(
                            id=name, state="ready", fleet="10.0.0.1:9001", static_hash=static, live_hash=live
                        )
                    )
                else:
                    record = fleet.WorkerRecord(
                        incarnation=f"i-{name}",
                        name=name,
                        tier=component,
                        state="ready",
                        rev="r1",
                        static_hash=static,
                        live_hash=live,
                        slots=8,
                        slots_free=8,
                        kv_tokens=1000,
                        kv_tokens_free=1000,
                    )
                    workers.append(dataclasses.replace(record, **worker))
        self.announce(routers, workers)

    def announce(self, routers: list[fleet.RouterRecord], workers: list[fleet.WorkerRecord]) -> None:
        attached = [worker.incarnation for worker in workers if worker.state == "ready"]

        async def say(broker: Any) -> None:
            for router in routers:
                record = dataclasses.replace(router, workers=router.workers or attached)
                await fleet.announce_router(broker, self._fleet, record, _LONG_MS)
            for worker in workers:
                await fleet.announce_worker(broker, self._fleet, worker, _LONG_MS)

        self._with_broker(say)

    def snapshot(self) -> fleet.Fleet:
        async def read(broker: Any) -> fleet.Fleet:
            return await fleet.snapshot(broker, self._fleet)

        return self._with_broker(read)

    def _with_broker(self, work: Callable[[Any], Any]) -> Any:
        async def main() -> Any:
            broker = connect(self._url)
            try:
                return await work(broker)
            finally:
                await broker.aclose()

        return asyncio.run(main())
