"""One pass over one FlashDeployment: read -> scale -> plan -> manifests -> apply -> status -> events.

Level-based: a pass looks at what is, never at what happened. It may be repeated, skipped or cut off at any point; the
next one makes up for it. It reads caches only, so that it takes milliseconds whatever the queue's Redis does.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from datetime import UTC, datetime

from flash_wire.settings import SettingsError

from flash_operator import api, scale, status
from flash_operator.api import FlashDeployment
from flash_operator.apply import Applier
from flash_operator.brokers import Address, Brokers
from flash_operator.client import DEPLOYMENT_OF_OURS, ApiError, Body, Client
from flash_operator.events import Events
from flash_operator.fleets import Fleets, Reading
from flash_operator.manifests import manifests
from flash_operator.metrics import Metrics
from flash_operator.naming import Images
from flash_operator.observe import Family, Key, World, config_maps
from flash_operator.plan import CLUSTER, Observed, Plan, Running, plan

_BLIP_S = 10.0
"""An outage of the queue that is shorter than this is not told: it changes nothing for those who serve."""
_UNREADY_S = 120.0
"""Some troubles show by time alone: a container that is made for minutes."""
_log = logging.getLogger("flash_operator.reconcile")


class Reconciler:
    def __init__(
        self,
        world: World,
        client: Client,
        applier: Applier,
        fleets: Fleets,
        brokers: Brokers,
        events: Events,
        metrics: Metrics,
        images: Images,
    ) -> None:
        self._world, self._client, self._applier = world, client, applier
        self._fleets, self._brokers, self._events = fleets, brokers, events
        self._metrics, self._images = metrics, images
        self._memories: dict[Key, dict[str, scale.Memory]] = {}

    async def reconcile(self, key: Key) -> float | None:
        """Seconds until time alone may ask for another pass, or None. Raises ApiError and NotLeader."""
        family = self._world.family(key)
        body = family.deployment
        if body is None or "deletionTimestamp" in body["metadata"]:
            self._forget(key, family)  # owner references take the children along
            return None
        try:
            deployment = api.from_dict(body)
        except SettingsError as error:
            await self._refuse(body, str(error))
            return None

        broker = deployment.spec.broker
        address = await self._brokers.find(key[0], broker.secret, broker.key)
        reading = self._fleets.reading(key)
        observed = observed_of(family)
        decisions = self._scale(key, deployment, observed, reading)
        observed = replace(observed, scaled={tier: decision.replicas for tier, decision in decisions.items()})
        wanted = plan(deployment, observed, CLUSTER)
        objects = manifests(deployment, wanted, self._images, body["metadata"]["uid"])

        failure: ApiError | None = None
        writes, calmer = 0, None
        try:
            writes, calmer = await self._applier.apply(key, objects)
        except ApiError as error:
            failure = error  # the status has to say what is, all the more
        if failure is not None and failure.reason in ("Invalid", "BadRequest"):
            await self._refuse(body, str(failure))
        elif reading.fleet or reading.error or address.problem or not body.get("status"):
            await self._tell(key, body, deployment, wanted, objects, address, reading)
        if writes:
            self._explain(body, wanted, decisions)
        ready = self._world.family(key).ready[0] == "True"
        self._read_fleet(key, address, wanted, urgent=not ready or _moves(wanted, decisions))
        if failure is not None:
            raise failure
        waits = [calmer, *(decision.again for decision in decisions.values())]
        if not ready:
            waits.append(_UNREADY_S)
        if reading.error and not _told(reading):
            waits.append(_BLIP_S)
        if _share_waits(body, reading):
            waits.append(status.SHARE_EVERY)
        return min((wait for wait in waits if wait is not None), default=None)

    def failed(self, key: Key, error: Exception) -> None:
        """A pass ended by this error; the queue tries again."""
        if isinstance(error, ApiError):
            _log.warning("%s: %s: %s", "/".join(key), error.reason, error)
        else:
            _log.error("%s: a fault in the operator", "/".join(key), exc_info=error)
        body = self._world.family(key).deployment
        if body and not (isinstance(error, ApiError) and error.reason in ("Unreachable", "Conflict")):
            self._events.tell(body, "ReconcileFailed", str(error) or type(error).__name__, "Warning")

    # -- steps ----------------------------------------------------------------------------------------------------

    def _scale(
        self, key: Key, deployment: FlashDeployment, observed: Observed, reading: Reading
    ) -> dict[str, scale.Decision]:
        """Per tier that we scale. Nothing is decided blindly: without a fresh reading the counts rest."""
        if reading.fleet is None or reading.error:
            return {}
        memories = self._memories.setdefault(key, {})
        decisions: dict[str, scale.Decision] = {}
        for tier in ("flash", "standard"):
            scaling = deployment.tier(tier).scaling
            running = observed.processes.get(f"{key[1]}-{tier}")
            if scaling is None or scaling.external or running is None:
                memories.pop(tier, None)
                continue
            load, memory = scale.load(reading.fleet, tier), memories.get(tier, scale.Memory())
            decision = scale.scale(scaling, deployment.spec.priorities, load, running.replicas, memory)
            memories[tier], decisions[tier] = decision.memory, decision
        return decisions

    async def _tell(
        self,
        key: Key,
        body: Body,
        deployment: FlashDeployment,
        wanted: Plan,
        objects: list[Body],
        address: Address,
        reading: Reading,
    ) -> None:
        family = self._world.family(key)  # with the answers of this pass
        seen = status.Seen(
            deployments={view["metadata"]["name"]: view for view in family.views("Deployment")},
            pods=family.views("Pod"),
            fleet=reading.fleet if address.url else None,
            now=datetime.now(UTC),
            broker_problem=address.problem,
            broker_error=reading.error if _told(reading) else "",
        )
        generation = body["metadata"]["generation"]
        await self._write(body, status.status(deployment, generation, wanted, objects, seen, body.get("status")))

    async def _refuse(self, body: Body, message: str) -> None:
        generation = body["metadata"]["generation"]
        self._events.tell(body, "InvalidSpec", message, "Warning")
        await self._write(body, status.refused(message, generation, datetime.now(UTC), body.get("status")))

    async def _write(self, body: Body, made: Body) -> None:
        """Only what differs. The status of an object that was deleted meanwhile is nobody's."""
        if made == body.get("status"):
            return
        meta = body["metadata"]
        self._applier.fence(meta["namespace"])
        identity = {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}
        kind = {"apiVersion": DEPLOYMENT_OF_OURS.api_version, "kind": DEPLOYMENT_OF_OURS.kind}
        try:
            answer = await self._client.apply(
                DEPLOYMENT_OF_OURS, {**kind, "metadata": identity, "status": made}, status=True
            )
        except ApiError as error:
            if error.reason in ("NotFound", "Conflict"):  # gone, or another with the same name
                return
            raise
        self._world.put(DEPLOYMENT_OF_OURS, answer)

    def _explain(self, body: Body, wanted: Plan, decisions: dict[str, scale.Decision]) -> None:
        if wanted.sentences:
            self._events.tell(body, "Planned", "; ".join(wanted.sentences))
        for tier, decision in decisions.items():
            if decision.why:
                self._events.tell(body, "Scaled", f"{tier}: {decision.why}")
                self._metrics.scales.labels(tier).inc()

    def _read_fleet(self, key: Key, address: Address, wanted: Plan, *, urgent: bool) -> None:
        if address.url:
            self._fleets.watch(key, address.url, wanted.desired, urgent=urgent)
        else:
            self._fleets.forget(key)

    def _forget(self, key: Key, family: Family) -> None:
        self._memories.pop(key, None)
        self._fleets.forget(key)
        self._applier.forget(family)


def observed_of(family: Family) -> Observed:
    """The processes as the Deployments and ConfigMaps show them."""
    live = {view["metadata"]["name"]: view["hashes"].get("live.json", "") for view in family.views("ConfigMap")}
    processes = {}
    for view in family.views("Deployment"):
        name = view["metadata"]["name"]
        mounted = config_maps(view["spec"]["template"]["spec"])
        static = next((one for one in sorted(mounted) if one.startswith(f"{name}-static-")), "")
        processes[name] = Running(
            view["spec"]["replicas"], static.removeprefix(f"{name}-static-"), live.get(f"{name}-live", "")
        )
    return Observed(processes)


def _told(reading: Reading) -> bool:
    return bool(reading.error) and time.monotonic() - reading.at > _BLIP_S


def _moves(wanted: Plan, decisions: dict[str, scale.Decision]) -> bool:
    """Whether the fleet record is to be read every second: a tier that sleeps, or one with work that it scales by."""
    asleep = any(wanted.desired.get(tier) == 0 for tier in decisions)
    return asleep or any(decision.again is not None and decision.again <= 1.0 for decision in decisions.values())


def _share_waits(body: Body, reading: Reading) -> bool:
    """The share moved, and will be written when the last time is a minute ago."""
    before = (body.get("status") or {}).get("share")
    ready = [router for router in reading.fleet.routers if router.state == "ready"] if reading.fleet else []
    return bool(ready) and before != f"{round(100 * sum(router.share for router in ready) / len(ready))}%"
