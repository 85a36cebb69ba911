"""What the operator sees of one FlashDeployment, as values: a cluster at rest, to be disturbed by a test."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from flash_operator import api
from flash_operator.manifests import manifests
from flash_operator.naming import Images, component
from flash_operator.plan import CLUSTER, Observed, Plan, Running, plan
from flash_operator.status import Seen, status
from flash_wire.broker.types import Depth, Level, Pool
from flash_wire.fleet import Fleet, PoolDepth, RouterRecord, WorkerRecord

Body = dict[str, Any]
NOON = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
IMAGES = Images("example.com/router:1", "example.com/worker:1")


@dataclass
class Cluster:
    """`at_rest`, then change what should be different, then `status`."""

    deployment: api.FlashDeployment
    plan: Plan
    manifests: list[Body]
    deployments: dict[str, Body]
    pods: list[Body]
    workers: list[WorkerRecord]
    routers: list[RouterRecord]
    generation: int = 3
    now: datetime = NOON
    broker_problem: str = ""
    broker_error: str = ""
    fleet_read: bool = True
    previous: Body = field(default_factory=dict)

    def status(self) -> Body:
        fleet = Fleet(self.workers, self.routers, self.plan.desired, [], 0) if self.fleet_read else None
        seen = Seen(self.deployments, self.pods, fleet, self.now, self.broker_problem, self.broker_error)
        self.previous = status(self.deployment, self.generation, self.plan, self.manifests, seen, self.previous)
        return self.previous

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def conditions(self) -> dict[str, tuple[str, str]]:
        """Type -> (status, reason)."""
        return {one["type"]: (one["status"], one["reason"]) for one in self.status()["conditions"]}

    def message(self, kind: str) -> str:
        return next(str(one["message"]) for one in self.status()["conditions"] if one["type"] == kind)

    def pods_of(self, part: str) -> list[Body]:
        return [pod for pod in self.pods if pod["metadata"]["labels"]["app.kubernetes.io/component"] == part]

    def change_worker(self, tier: str, **fields: Any) -> None:
        """The first worker of a tier."""
        at = next(number for number, worker in enumerate(self.workers) if worker.tier == tier)
        self.workers[at] = replace(self.workers[at], **fields)

    def change_routers(self, **fields: Any) -> None:
        self.routers = [replace(router, **fields) for router in self.routers]

    def fail(self, part: str, **status: Any) -> None:
        """The first pod of a part is not ready, and its status is this."""
        pod = self.pods_of(part)[0]
        pod["status"] = {"conditions": [{"type": "Ready", "status": "False"}], **status}
        name = f"{self.deployment.metadata.name}-{part}"
        self.deployments[name]["status"]["readyReplicas"] -= 1

    def edit(self, deployment: api.FlashDeployment) -> None:
        """The spec changes: planned and applied, and nothing has happened yet."""
        running = {p.name: Running(p.replicas, p.static_hash, p.live_hash) for p in self.plan.processes}
        self.deployment, self.generation = deployment, self.generation + 1
        self.plan = plan(deployment, Observed(running), CLUSTER)
        self.manifests = manifests(deployment, self.plan, IMAGES, "uid")
        for body in self.manifests:
            found = self.deployments.get(body["metadata"]["name"])
            if body["kind"] == "Deployment" and found and found["spec"] != _seen_spec(body):
                found["spec"] = _seen_spec(body)
                found["metadata"]["generation"] += 1


def at_rest(deployment: api.FlashDeployment, observed: Observed | None = None) -> Cluster:
    """Everything that is wanted runs, is ready, and is attached to every router."""
    wanted = plan(deployment, observed or Observed(), CLUSTER)
    objects = manifests(deployment, wanted, IMAGES, "uid")
    deployments, pods = {}, []
    for body in objects:
        if body["kind"] != "Deployment":
            continue
        name = body["metadata"]["name"]
        count = next(p.replicas for p in wanted.processes if p.name == name)
        body = copy.deepcopy(body)
        body["spec"].setdefault("replicas", count)
        deployments[name] = {
            "metadata": {"name": name, "generation": 1},
            "spec": _seen_spec(body),
            "status": {
                "observedGeneration": 1,
                "replicas": count,
                "updatedReplicas": count,
                "readyReplicas": count,
                "conditions": [{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}],
            },
        }
        for number in range(count):
            pods.append(
                {
                    "metadata": {
                        "name": f"{name}-{number}",
                        "labels": dict(body["spec"]["template"]["metadata"]["labels"]),
                        "creationTimestamp": f"2030-01-01T11:00:{number:02}Z",
                    },
                    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
                }
            )
    workers = [
        WorkerRecord(
            incarnation=f"{process.name}-{number}-i",
            name=f"{process.name}-{number}",
            tier=str(process.tier),
            state="ready",
            rev="r1",
            slots=8,
            slots_free=8,
            static_hash=process.static_hash,
            live_hash=process.live_hash,
        )
        for process in wanted.processes
        if process.tier
        for number in range(process.replicas)
    ]
    routers = [
        RouterRecord(
            id=f"router-{number}",
            state="ready",
            fleet=f"10.0.0.{number}:9001",
            grpc=f"10.0.0.{number}:9000",
            static_hash=process.static_hash,
            live_hash=process.live_hash,
            share=0.31,
            workers=[worker.incarnation for worker in workers],
        )
        for process in wanted.processes
        if component(process) == "router"
        for number in range(process.replicas)
    ]
    return Cluster(deployment, wanted, objects, deployments, pods, workers, routers)


def _seen_spec(body: Body) -> Body:
    return {
        "replicas": body["spec"].get("replicas", 1),
        "template": {"metadata": copy.deepcopy(body["spec"]["template"]["metadata"])},
    }


def pool(tier: str, *, high: Depth | None = None, low: Depth | None = None, active: int = 0) -> PoolDepth:
    """Depths of one tier's queue."""
    levels: dict[Level, Depth] = {"high": high or Depth(0, 0, 0), "low": low or Depth(0, 0, 0)}
    return PoolDepth(Pool("default/chat", tier, "r1"), levels, active)
