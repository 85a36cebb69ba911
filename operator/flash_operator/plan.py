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
        tiers={name: TierRouting(on_tier_down=_tier(deployment, name).on_tier_down) for name in TIERS},
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
    spec, tier = deployment.spec, _tier(deployment, name)
    static = WorkerStatic(
        fleet=deployment.fleet,
        tier=name,
        model=tier.model,
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
        _replicas(tier, observed.processes.get(process)),
        to_json(static),
        to_json(WorkerLive(priorities=spec.priorities)),
        spec.drain,
    )


def _tier(deployment: FlashDeployment, name: TierName) -> Tier:
    return deployment.spec.flash if name == "flash" else deployment.spec.standard


def _replicas(tier: Tier, running: Running | None) -> int:
    """A fixed count, or what runs now kept within the bounds: moving within them is the scaler's work."""
    if tier.scaling is None:
        return 1 if tier.replicas is None else tier.replicas
    now = running.replicas if running else tier.scaling.min
    return max(tier.scaling.min, min(tier.scaling.max, now))


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
