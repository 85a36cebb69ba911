"""What a FlashDeployment's status says, from what the watches and the fleet record show. Pure.

Ready is never true because pods are: a worker counts when it says, in the fleet record, that it is ready with the
settings of this generation, and a router says that it has that worker attached.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from flash_wire.fleet import Fleet, WorkerRecord

from flash_operator.api import FlashDeployment
from flash_operator.conditions import Verdict, conditions, stamp
from flash_operator.naming import TEMPLATE_LABEL, component
from flash_operator.plan import CLUSTER, Plan, Process
from flash_operator.pods import Trouble, first_trouble, parse_time

Body = dict[str, Any]

SHARE_EVERY = 60.0
"""Seconds between two writes of the share, which moves with every request."""
_ON_THE_WAY = frozenset(
    ("NotCreated", "Scaling", "RollingOut", "Starting", "Loading", "Reloading", "NotAdmitted", "NotAnnounced")
)
_LATE = "ProgressDeadlineExceeded"


@dataclass(frozen=True, slots=True)
class Seen:
    """What is there. Deployments and pods in Kubernetes' own shape: metadata, spec, status."""

    deployments: Mapping[str, Body]
    """By name."""
    pods: Sequence[Body]
    fleet: Fleet | None
    """The last reading of the fleet record; None when there was none."""
    now: datetime
    broker_problem: str = ""
    """Why the queue's address is not known."""
    broker_error: str = ""
    """Why the queue did not answer the last time; then `fleet` is older."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One process as it is found."""

    process: Process
    verdict: Verdict
    trouble: Trouble | None
    late: bool
    ready: int
    admitted: int
    draining: int


def status(
    deployment: FlashDeployment,
    generation: int,
    plan: Plan,
    manifests: Sequence[Body],
    seen: Seen,
    previous: Mapping[str, Any] | None = None,
) -> Body:
    """The whole status. The same world gives the same status, and none of it moves while nothing happens."""
    before = dict(previous or {})
    templates = {
        body["metadata"]["name"]: body["spec"]["template"]["metadata"]["labels"][TEMPLATE_LABEL]
        for body in manifests
        if body["kind"] == "Deployment"
    }
    parts = [_part(process, templates[process.name], seen) for process in plan.processes]
    routers = [part for part in parts if part.process.tier is None]
    tiers = [part for part in parts if part.process.tier is not None]
    broker, router, workers = _broker(seen), _joined(routers, "Serving"), _joined(tiers, "Admitted")
    verdicts = [
        ("Ready", _ready(broker, router, workers, parts)),
        ("BrokerReady", broker),
        ("RouterReady", router),
        ("TiersReady", workers),
        ("Progressing", _progressing(parts)),
        ("Degraded", _degraded(broker, parts)),
        ("ScaledToZero", _asleep(tiers)),
    ]
    made: Body = {
        "observedGeneration": generation,
        "conditions": conditions(verdicts, generation, seen.now, before.get("conditions") or ()),
        "endpoint": _endpoint(deployment),
        "tiers": {
            str(part.process.tier): {
                "desired": part.process.replicas,
                "ready": part.ready,
                "admitted": part.admitted,
                "draining": part.draining,
                "workers": f"{part.admitted}/{part.process.replicas}",
            }
            for part in tiers
        },
    }
    return made | _share(seen, before)


def refused(message: str, generation: int, now: datetime, previous: Mapping[str, Any] | None = None) -> Body:
    """The status of a spec that cannot be used. What ran before runs on, so what was said of it stays."""
    before = dict(previous or {})
    old = before.get("conditions") or []
    changed = [
        ("Ready", Verdict("False", "InvalidSpec", message)),
        ("Progressing", Verdict("False", "InvalidSpec", "the spec cannot be used: what ran before runs on")),
    ]
    made = {one["type"]: one for one in old} | {one["type"]: one for one in conditions(changed, generation, now, old)}
    return before | {"observedGeneration": generation, "conditions": list(made.values())}


# -- one process ----------------------------------------------------------------------------------------------------


def _part(process: Process, template: str, seen: Seen) -> _Part:
    found = seen.deployments.get(process.name)
    pods = [
        pod
        for pod in seen.pods
        if (pod["metadata"].get("labels") or {}).get("app.kubernetes.io/component") == component(process)
    ]
    trouble = _trouble(found, pods, template, seen.now)
    late = found is not None and _condition(found, "Progressing").get("reason") == _LATE
    admitted = _admitted(process, seen.fleet)
    verdict = _rolled(process, found, template)
    if verdict is None and process.replicas == 0:
        verdict = Verdict("True", "ScaledToZero", f"{process.name}: no worker is wanted")
    if verdict is None and admitted >= process.replicas and not _blind(seen):
        verdict = Verdict("True", "Serving" if process.tier is None else "Admitted")
    elif trouble is not None and (verdict is None or verdict.state != "True"):
        verdict = Verdict("False", trouble.reason, trouble.message)
    elif late and (verdict is None or verdict.state != "True"):
        verdict = Verdict("False", _LATE, f"{process.name}: {_condition(found or {}, 'Progressing').get('message')}")
    if verdict is None:
        verdict = _missing(process, found or {}, seen)
    return _Part(
        process=process,
        verdict=verdict,
        trouble=trouble,
        late=late,
        ready=int(((found or {}).get("status") or {}).get("readyReplicas") or 0),
        admitted=min(admitted, process.replicas),
        draining=sum("deletionTimestamp" in pod["metadata"] for pod in pods),
    )


def _rolled(process: Process, found: Body | None, template: str) -> Verdict | None:
    """What the Deployment still has to do; None when every pod it wants has the present template."""
    if found is None:
        return Verdict("False", "NotCreated", f"Deployment {process.name} is not there yet")
    metadata, spec, state = found["metadata"], found["spec"], found.get("status") or {}
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    now = f"{process.name}: {state.get('updatedReplicas') or 0} of {process.replicas} pods have the present template"
    if labels.get(TEMPLATE_LABEL) != template or state.get("observedGeneration", 0) < metadata.get("generation", 0):
        return Verdict("False", "RollingOut", now)
    replicas, updated = state.get("replicas") or 0, state.get("updatedReplicas") or 0
    if replicas > updated:
        return Verdict("False", "RollingOut", f"{now}, {replicas - updated} have an older one")
    if spec.get("replicas", 1) != process.replicas or updated != process.replicas:
        return Verdict("False", "Scaling", f"{process.name}: from {updated} to {process.replicas} pods")
    return None


def _missing(process: Process, found: Body, seen: Seen) -> Verdict:
    """Why a process whose pods all have the present template does not serve as wanted."""
    if (blind := _blind(seen)) is not None:
        return blind
    assert seen.fleet is not None
    records: Sequence[Any] = seen.fleet.routers
    if process.tier is not None:
        records = [worker for worker in seen.fleet.workers if worker.tier == process.tier]
    alive = [record for record in records if record.state != "draining"]
    current = [record for record in alive if record.static_hash == process.static_hash]
    for worker in current:
        if worker.state == "loading":
            assert isinstance(worker, WorkerRecord)
            return Verdict("False", "Loading", f"{worker.name}: {_coarse(worker.detail) or 'loading'}")
    for record in current:
        if record.live_hash != process.live_hash:
            name = record.name if isinstance(record, WorkerRecord) else f"router {record.grpc}"
            return Verdict(
                "False",
                "Reloading",
                f"{name} runs with live settings {record.live_hash}, wanted are {process.live_hash}",
            )
    ready = int((found.get("status") or {}).get("readyReplicas") or 0)
    if ready < process.replicas:
        return Verdict("False", "Starting", f"{process.name}: {ready} of {process.replicas} pods are ready")
    if process.tier is not None and len(current) >= process.replicas:
        reached = _reached(seen.fleet)
        waiting = sorted(worker.name for worker in current if worker.incarnation not in reached)
        return Verdict("False", "NotAdmitted", f"{', '.join(waiting[:3])}: ready, and attached to no router yet")
    return Verdict(
        "False",
        "NotAnnounced",
        f"{process.name}: {len(current)} of {process.replicas} are in the fleet record with settings"
        f" {process.static_hash}: do the pods reach the queue?",
    )


def _admitted(process: Process, fleet: Fleet | None) -> int:
    """How many are ready with the settings of this generation, and, workers, attached to a router that serves."""
    if fleet is None:
        return 0
    records: Sequence[Any] = fleet.routers
    if process.tier is not None:
        reached = _reached(fleet)
        records = [w for w in fleet.workers if w.tier == process.tier and w.incarnation in reached]
    return sum(
        record.state == "ready" and record.static_hash == process.static_hash and record.live_hash == process.live_hash
        for record in records
    )


def _reached(fleet: Fleet) -> set[str]:
    return {worker for router in fleet.routers if router.state == "ready" for worker in router.workers}


def _trouble(found: Body | None, pods: Sequence[Body], template: str, now: datetime) -> Trouble | None:
    """Of a pod with the present template, else of any, else of making pods at all."""
    current = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(TEMPLATE_LABEL) == template]
    other = [pod for pod in pods if pod not in current]
    if trouble := first_trouble(current, now) or first_trouble(other, now):
        return trouble
    failure = _condition(found or {}, "ReplicaFailure")
    if failure.get("status") == "True":
        return Trouble(failure.get("reason") or "FailedCreate", failure.get("message") or "pods cannot be made")
    return None


def _condition(found: Body, kind: str) -> Body:
    conditions = (found.get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == kind), {})


def _coarse(detail: str) -> str:
    """Progress in steps of ten, so that a load is not a hundred writes."""
    return re.sub(r"(\d+)%", lambda found: f"{int(found[1]) // 10 * 10}%", detail)


# -- the whole ------------------------------------------------------------------------------------------------------


def _blind(seen: Seen) -> Verdict | None:
    """Why nothing can be said of what is in the fleet record; None when it was read."""
    broker = _broker(seen)
    if broker.state == "True":
        return None
    return Verdict("False" if broker.reason == "NoAddress" else "Unknown", broker.reason, broker.message)


def _broker(seen: Seen) -> Verdict:
    if seen.broker_problem:
        return Verdict("False", "NoAddress", seen.broker_problem)
    if seen.broker_error:
        return Verdict("False", "BrokerUnreachable", f"the queue does not answer the operator: {seen.broker_error}")
    if seen.fleet is None:
        return Verdict("Unknown", "NotReadYet", "the queue has not been asked yet")
    return Verdict("True", "Answering", "the queue answers")


def _joined(parts: Sequence[_Part], good: str) -> Verdict:
    """True when all are; else the first that is not, one with a failing pod before one that only takes its time."""
    bad = [part for part in parts if part.verdict.state != "True"]
    bad.sort(key=lambda part: (part.trouble is None, not part.late, part.verdict.state == "Unknown"))
    if bad:
        return bad[0].verdict
    if all(part.verdict.reason == "ScaledToZero" for part in parts):
        return Verdict("True", "ScaledToZero", "no worker is wanted: the next request starts one")
    return Verdict(
        "True",
        good,
        ", ".join(f"{part.process.name}: {part.admitted}" for part in parts if part.process.replicas),
    )


def _ready(broker: Verdict, router: Verdict, workers: Verdict, parts: Sequence[_Part]) -> Verdict:
    failing = _joined([part for part in parts if part.trouble or part.late], "Serving")
    if failing.state != "True":
        return failing
    for verdict in (router, workers):
        if verdict.state == "False" and verdict.reason != "NoAddress":
            return verdict
    if broker.state != "True":
        return Verdict("False" if broker.reason == "NoAddress" else "Unknown", broker.reason, broker.message)
    if workers.reason == "ScaledToZero":
        return workers
    routers = sum(part.admitted for part in parts if part.process.tier is None)
    count = sum(part.admitted for part in parts if part.process.tier is not None)
    return Verdict("True", "Serving", f"{count} workers are admitted by {routers} routers")


def _progressing(parts: Sequence[_Part]) -> Verdict:
    for part in parts:
        if part.late:
            return Verdict("False", _LATE, part.verdict.message)
    for part in parts:
        if part.verdict.reason in _ON_THE_WAY:
            return Verdict("True", part.verdict.reason, part.verdict.message)
    for part in parts:
        if part.trouble and part.verdict.state != "True":
            return Verdict("True", part.trouble.reason, part.trouble.message)
    return Verdict("False", "AsWanted", "nothing is to be done")


def _degraded(broker: Verdict, parts: Sequence[_Part]) -> Verdict:
    for part in parts:
        if part.trouble:
            return Verdict("True", part.trouble.reason, part.trouble.message)
    for part in parts:
        if part.late:
            return Verdict("True", _LATE, part.verdict.message)
    if broker.state == "False":
        return Verdict("True", broker.reason, broker.message)
    return Verdict("False", "AllWell", "nothing fails")


def _asleep(tiers: Sequence[_Part]) -> Verdict:
    asleep = [str(part.process.tier) for part in tiers if part.process.replicas == 0]
    if asleep:
        return Verdict("True", "ScaledToZero", f"no worker is wanted: {', '.join(asleep)}")
    return Verdict("False", "Awake", "every tier has a worker, or one is wanted")


def _endpoint(deployment: FlashDeployment) -> Body:
    host = f"{deployment.metadata.name}.{deployment.metadata.namespace}.svc"
    return {"grpc": f"{host}:{CLUSTER.grpc_port}", "http": f"http://{host}:{CLUSTER.http_port}/v1"}


def _share(seen: Seen, before: Body) -> Body:
    """The observed share of standard in percent, when it moved by a point, and at most once a minute."""
    kept: Body = {name: before[name] for name in ("share", "shareTime") if name in before}
    routers = [router for router in seen.fleet.routers if router.state == "ready"] if seen.fleet else []
    if not routers:
        return kept
    share = f"{round(100 * sum(router.share for router in routers) / len(routers))}%"
    if share == kept.get("share"):
        return kept
    if "shareTime" in kept and (seen.now - parse_time(kept["shareTime"])).total_seconds() < SHARE_EVERY:
        return kept
    return {"share": share, "shareTime": stamp(seen.now)}
