"""Why a pod does not run, in a word and a sentence, from what the kubelet and the scheduler wrote. Pure.

A pod is a view in Kubernetes' own shape: metadata, and of the status phase, conditions and containerStatuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Body = dict[str, Any]

LONGEST = 600
"""Characters of a message that go into a condition."""
CREATING_S = 120
"""A container that is made for longer than this is in trouble, though nobody says so in the pod."""
REFUSED = 2
"""Exit code of our processes for settings or a model that no restart makes usable."""
_PATIENT = ("ContainerCreating", "PodInitializing")


@dataclass(frozen=True, slots=True)
class Trouble:
    """`reason` is one of docs' reasons; `message` names the pod and says what was found."""

    reason: str
    message: str


def trouble(pod: Body, now: datetime) -> Trouble | None:
    """What is wrong with a pod; None while all is well, while it may still become so, and when it is to end."""
    if "deletionTimestamp" in pod["metadata"]:
        return None
    status = pod.get("status") or {}
    name = pod["metadata"]["name"]
    if status.get("phase") == "Succeeded" or is_ready(pod):
        return None
    for reason, message in _found(status, name, now):
        return Trouble(reason, shortened(f"pod {name}: {message}"))
    return None


def is_ready(pod: Body) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def first_trouble(pods: list[Body], now: datetime) -> Trouble | None:
    """Of the oldest pod that has one, so that the answer does not jump between pods."""
    for pod in sorted(pods, key=lambda pod: (pod["metadata"].get("creationTimestamp", ""), pod["metadata"]["name"])):
        if found := trouble(pod, now):
            return found
    return None


def shortened(message: str) -> str:
    message = " ".join(message.split())
    return message if len(message) <= LONGEST else message[: LONGEST - 1] + "…"


def _found(status: Body, name: str, now: datetime) -> Iterator[tuple[str, str]]:
    for one in status.get("conditions") or []:
        if one["type"] == "PodScheduled" and one["status"] == "False":
            yield one.get("reason") or "Unschedulable", one.get("message") or "no node was found for it"
    if status.get("phase") == "Failed" and status.get("reason"):
        yield status["reason"], status.get("message") or "the pod failed"
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        if container.get("ready"):
            continue
        state = container.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
        before = (container.get("lastState") or {}).get("terminated") or {}
        reason = waiting.get("reason", "")
        if reason and reason not in _PATIENT and not (reason == "CrashLoopBackOff" and before):
            yield reason, waiting.get("message") or f"container {container['name']} waits"
        for end in (ended, before):
            if end and (end.get("exitCode") or end.get("reason") == "OOMKilled"):
                yield _ended(container, end)
        if reason in _PATIENT and (age := _age(status, now)) > CREATING_S:
            yield (
                reason,
                f"its container has been made for more than {int(age // CREATING_S) * CREATING_S} s;"
                f" kubectl describe pod {name} says why (a volume claim or a Secret that is missing?)",
            )


def _ended(container: Body, end: Body) -> tuple[str, str]:
    """A container that ended badly: (reason, message)."""
    code, restarts = end.get("exitCode", 0), container.get("restartCount", 0)
    words = end.get("message") or ""
    message = f"container {container['name']} ended with exit code {code}"
    if restarts:
        message += f", {restarts} restart{'s' if restarts > 1 else ''}"
    if end.get("reason") == "OOMKilled":
        return "OOMKilled", message + ": it used more memory than resources.limits.memory gives"
    if last := _last_lines(words):
        message += f": {last}"
    if "could not be downloaded" in words:
        return "DownloadFailed", message
    if code == REFUSED:
        return "Refused", message
    return "CrashLoopBackOff" if restarts else "Crashed", message


def _last_lines(words: str) -> str:
    """The last lines of the log, without the time stamps that change at each restart."""
    lines = [line.strip() for line in words.strip().splitlines() if line.strip()]
    return " / ".join(re.sub(r"^\d{4}-\d\d-\d\d[ T][\d:,.]+Z? ", "", line) for line in lines[-2:])


def _age(status: Body, now: datetime) -> float:
    started = status.get("startTime")
    return (now - parse_time(started)).total_seconds() if started else 0.0


def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)
