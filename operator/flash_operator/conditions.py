"""The words of a FlashDeployment's status: its conditions, when each is True, and every reason it may have. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from flash_operator.pods import shortened

Body = dict[str, Any]
State = Literal["True", "False", "Unknown"]

CONDITIONS = {
    "Ready": "The present generation serves: broker, routers and tiers are ready. Unknown while the operator cannot"
    " see the queue. Its reason and message are those of what is missing, a failing pod's first.",
    "BrokerReady": "The queue answers the operator. Pods ask for themselves: what serves goes on without the operator.",
    "RouterReady": "Every router pod has the present template and is in the fleet record with the present settings.",
    "TiersReady": "Every worker pod has the present template, says that it is ready with the present settings, and is"
    " attached to a router. A tier that sleeps at zero counts as ready.",
    "Progressing": "Something is on its way: a start, a roll, a reload, a change of count.",
    "Degraded": "Something fails: a pod, a roll that takes too long, or the queue.",
    "ScaledToZero": "A tier has no worker and none is wanted. Its next request is held while one starts.",
}
"""Type -> when it is True. In the order in which they stand in status."""

REASONS = {
    "Serving": "All is as wanted.",
    "Answering": "The queue answers.",
    "Admitted": "All workers are ready and attached to a router.",
    "AsWanted": "Nothing is to be done.",
    "AllWell": "Nothing fails.",
    "Awake": "Every tier has a worker, or one is wanted.",
    "ScaledToZero": "No worker is wanted.",
    "InvalidSpec": "The spec cannot be used; what ran before runs on. The message says what to write instead.",
    "NoAddress": "The queue's address is not known. The message says which Secret or setting is missing.",
    "NotReadYet": "The operator has not asked the queue yet.",
    "BrokerUnreachable": "The queue does not answer the operator.",
    "NotCreated": "A Deployment is not there yet.",
    "Scaling": "The number of pods changes.",
    "RollingOut": "Pods change to the present template.",
    "Starting": "Pods are not ready yet.",
    "Loading": "Workers load their model. The message says how far they are.",
    "Reloading": "A process runs with older settings; mounted files take up to a minute to arrive.",
    "NotAdmitted": "Workers are ready, and no router has them attached yet.",
    "NotAnnounced": "Pods are ready, and are not in the fleet record: they may not reach the queue.",
    "ProgressDeadlineExceeded": "A roll makes no progress for longer than startWithin.",
    "FailedCreate": "Pods cannot be made, for example because of a quota.",
    "Unschedulable": "No node has room for a pod.",
    "SchedulingGated": "Something holds a pod back from being scheduled.",
    "ErrImagePull": "An image cannot be pulled.",
    "ImagePullBackOff": "An image cannot be pulled, and is tried again ever more slowly.",
    "InvalidImageName": "An image's name cannot be used.",
    "CreateContainerConfigError": "A container cannot be made: a Secret or a key in it is missing.",
    "CreateContainerError": "A container cannot be made.",
    "ContainerCreating": "A container has been made for minutes: often a volume that cannot be mounted.",
    "DownloadFailed": "A worker could not fetch its model.",
    "Refused": "A process says that its settings or its model cannot be used: no restart helps.",
    "OOMKilled": "A container used more memory than it may. The message has the exit code.",
    "Crashed": "A container ended. The message has the exit code and its last words.",
    "CrashLoopBackOff": "A container ends again and again. The message has the exit code and its last words.",
    "Evicted": "The node took a pod's place away.",
}
"""Reason -> what it means. A pod's reason that is not here is passed on as the kubelet wrote it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of a part of the whole."""

    state: State
    reason: str
    message: str = ""


def conditions(
    verdicts: Iterable[tuple[str, Verdict]], generation: int, now: datetime, previous: Iterable[Body]
) -> list[Body]:
    """As Kubernetes writes them. lastTransitionTime moves only where the state did."""
    before = {one["type"]: one for one in previous}
    made = []
    for kind, verdict in verdicts:
        old = before.get(kind, {})
        made.append(
            {
                "type": kind,
                "status": verdict.state,
                "reason": _word(verdict.reason),
                "message": shortened(verdict.message),
                "observedGeneration": generation,
                "lastTransitionTime": old["lastTransitionTime"]
                if old.get("status") == verdict.state and old.get("lastTransitionTime")
                else stamp(now),
            }
        )
    return made


def stamp(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def _word(reason: str) -> str:
    """The API server takes one word only."""
    word = re.sub(r"[^A-Za-z0-9_]", "", reason).strip("_")
    return word if word[:1].isalpha() else "Unknown"
