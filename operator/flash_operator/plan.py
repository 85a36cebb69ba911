"""From a FlashDeployment and what is observed to the wanted processes, each with its settings files. Pure.

The operator applies a Plan as Kubernetes objects, `flashfleet up` as child processes. Neither knows anything that the
plan does not: what a process is to read stands here, byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from flash_wire.settings import (
    TIERS,
    Model,
    RouterLive,
    RouterStatic,
    TierName,
    TierRouting,
    WorkerLive,
    WorkerStatic,
    hash_of,
    to_json,
)

from flash_operator.api import FlashDeployment, Tier


@dataclass(frozen=True, slots=True)
class Place:
    """What the applier knows of where processes run."""

    host: str
    """Address that ports listen on: 127.0.0.1 on one machine, 0.0.0.0 in a pod."""
    grpc_port: int
    http_port: int
    fleet_port: int
    worker_http_port: int
    """0 takes a free one, where several workers share a machine."""
    scaler: bool = False
    """Whether somebody moves counts within their bounds. Without one nothing could wake a tier from zero."""


CLUSTER = Place("0.0.0.0", 9000, 8000, 9001, 8001, scaler=True)  # noqa: S104 - in a pod, behind its Service
"""Where pods run: each has its own address, so the ports are the same everywhere."""
CLAIMS = "/claims"
"""Folder under which a volume claim named by pvc:// is mounted."""


@dataclass(frozen=True, slots=True)
class Running:
    """One kind of process as it is found."""

    replicas: int
    static_hash: str
    live_hash: str


@dataclass(frozen=True, slots=True)
class Observed:
    """The world before a plan. `processes` is keyed by Process.name."""

    processes: Mapping[str, Running] = field(default_factory=dict)
    scaled: Mapping[str, int] = field(default_factory=dict)
    """Workers that the scaler wants, by tier; a tier left out keeps what runs."""


@dataclass(frozen=True, slots=True)
class Process:
    """`replicas` processes of one kind. The files are named static.json and live.json."""

    name: str
    role: Literal["router", "worker"]
    tier: TierName | None
    replicas: int
    static: str
    live: str
    drain: float
    """Seconds it may take to stop."""
    external: bool = False
    """Somebody else sets the count: `replicas` is what was found, and the applier leaves it alone."""
    claim: str = ""
    """Volume claim that holds the weights, read-only at CLAIMS/claim; "" for none."""

    @property
    def module(self) -> str:
        """`python -m` this, with --settings FOLDER."""
        return f"flash_{self.role}"

    @property
    def static_hash(self) -> str:
        return hash_of(self.static)

    @property
    def live_hash(self) -> str:
        return hash_of(self.live)


@dataclass(frozen=True, slots=True)
class Plan:
    fleet: str
    processes: tuple[Process, ...]
    sentences: tuple[str, ...]
    """What would change and why, for people; empty when the world is as wanted."""

    @property
    def desired(self) -> dict[str, int]:
        """Wanted workers per tier: goes into the fleet record."""
        return {process.tier: process.replicas for process in self.processes if process.tier}


def plan(deployment: FlashDeployment, observed: Observed, place: Place) -> Plan:
    """The same deployment, world and place give the same plan; a world that is as wanted gives no sentences."""
    processes = [_router(deployment, place)]
    for tier in TIERS:
        processes.append(_worker(deployment, tier, observed, place))
    sentences = [sentence for process in processes for sentence in _changes(process, observed)]
    for name in sorted(set(observed.processes) - {process.name for process in processes}):
        sentences.append(f"{name}: stop, nothing asks for it")
    return Plan(deployment.fleet, tuple(processes), tuple(sentences))


def _router(deployment: FlashDeployment, place: Place) -> Process:
    spec = deployment.spec
    static = RouterStatic(
        fleet=deployment.fleet,
        host=place.host,
        grpc_port=place.grpc_port,
        http_port=place.http_port,
        fleet_port=place.fleet_port,
        drain=spec.drain,
    )
    live = RouterLive(
        routing=spec.routing,
        priorities=spec.priorities,
        limits=spec.limits,
        tiers={name: _tier_routing(deployment.tier(name), place) for name in TIERS},
    )
    return Process(
        f"{deployment.metadata.name}-router",
        "router",
        None,
        spec.router.replicas,
        to_json(static),
        to_json(live),
        spec.drain,
    )


def _worker(deployment: FlashDeployment, name: TierName, observed: Observed, place: Place) -> Process:
    spec, tier = deployment.spec, deployment.tier(name)
    source, claim = _source(tier.model.source)
    static = WorkerStatic(
        fleet=deployment.fleet,
        tier=name,
        model=Model(source=source),
        engine=tier.engine,
        pinned_prefixes=spec.pinned_prefixes,
        drain=spec.drain,
        host=place.host,
        http_port=place.worker_http_port,
    )
    process = f"{deployment.metadata.name}-{name}"
    return Process(
        process,
        "worker",
        name,
        _replicas(tier, observed.processes.get(process), observed.scaled.get(name), place),
        to_json(static),
        to_json(WorkerLive(priorities=spec.priorities)),
        spec.drain,
        external=place.scaler and tier.scaling is not None and tier.scaling.external,
        claim=claim,
    )


def _source(source: str) -> tuple[str, str]:
    """Where a process finds the weights, and the claim they are on: pvc://CLAIM/PATH is a mounted folder."""
    scheme, _, rest = source.partition("://")
    if scheme != "pvc":
        return source, ""
    claim, _, path = rest.partition("/")
    return f"file://{CLAIMS}/{claim}/{path}".rstrip("/"), claim


def _tier_routing(tier: Tier, place: Place) -> TierRouting:
    wakes = place.scaler and tier.scaling is not None and (tier.scaling.external or tier.scaling.min == 0)
    return TierRouting(
        on_tier_down=tier.on_tier_down, wake_wait=tier.scaling.wake_wait if tier.scaling and wakes else 0.0
    )


def _replicas(tier: Tier, running: Running | None, scaled: int | None, place: Place) -> int:
    """A fixed count; or what the scaler wants, else what runs now, within the bounds; or whatever another set."""
    scaling = tier.scaling
    if scaling is None:
        return 1 if tier.replicas is None else tier.replicas
    if scaling.external:
        return running.replicas if running and place.scaler else 1
    low = scaling.min if place.scaler else max(1, scaling.min)
    # The first worker of a tier starts even where it may sleep: so that its model has been seen to work.
    now = running.replicas if running else max(1, low)
    return max(low, min(scaling.max, now if scaled is None else scaled))


def _changes(process: Process, observed: Observed) -> list[str]:
    running = observed.processes.get(process.name)
    if running is None or running.replicas == 0:
        return [f"{process.name}: start {process.replicas}"] if process.replicas else []
    said = []
    if running.replicas != process.replicas:
        said.append(f"{process.name}: from {running.replicas} to {process.replicas}")
    if running.static_hash != process.static_hash:
        said.append(f"{process.name}: roll from settings {running.static_hash} to {process.static_hash}")
    if running.live_hash != process.live_hash:
        said.append(f"{process.name}: reload live settings {process.live_hash}")
    return said
