"""Why a pod does not run: the real reason, in a word and a sentence, gone when it recovers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from flash_operator.conditions import REASONS
from flash_operator.pods import LONGEST, first_trouble, trouble

NOW = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
Body = dict[str, Any]


def pod(name: str = "chat-flash-1", created: str = "2030-01-01T11:00:00Z", **status: Any) -> Body:
    return {"metadata": {"name": name, "creationTimestamp": created}, "status": status}


def waiting(reason: str, message: str = "", **more: Any) -> Body:
    state = {"waiting": {"reason": reason} | ({"message": message} if message else {})}
    return {"containerStatuses": [{"name": "worker", "ready": False, "state": state} | more]}


def ended(code: int, reason: str = "Error", message: str = "") -> Body:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


READY = {"conditions": [{"type": "Ready", "status": "True"}]}


@pytest.mark.parametrize(
    ("status", "reason", "said"),
    [
        (
            {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
                    }
                ],
            },
            "Unschedulable",
            "pod chat-flash-1: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        ),
        (
            waiting("ImagePullBackOff", 'Back-off pulling image "nowhere"'),
            "ImagePullBackOff",
            'pod chat-flash-1: Back-off pulling image "nowhere"',
        ),
        (waiting("ErrImagePull", "not found"), "ErrImagePull", "not found"),
        (
            waiting("CreateContainerConfigError", 'secret "flashfleet-broker" not found'),
            "CreateContainerConfigError",
            'secret "flashfleet-broker" not found',
        ),
        (
            waiting("CrashLoopBackOff", "back-off 5m0s", restartCount=12, lastState=ended(137, "OOMKilled")),
            "OOMKilled",
            "ended with exit code 137, 12 restarts: it used more memory than resources.limits.memory gives",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "name": "worker",
                        "ready": False,
                        "state": {"running": {}},
                        "restartCount": 1,
                        "lastState": ended(137, "OOMKilled"),
                    }
                ]
            },
            "OOMKilled",
            "exit code 137, 1 restart:",
        ),
        (
            waiting("CrashLoopBackOff", "back-off", restartCount=3, lastState=ended(1, message="a\nTraceback\nboom")),
            "CrashLoopBackOff",
            "ended with exit code 1, 3 restarts: Traceback / boom",
        ),
        (
            waiting(
                "CrashLoopBackOff",
                restartCount=2,
                lastState=ended(
                    2, message="2030-01-01 11:59:00,123 E flash_worker: hf://a/b: could not be downloaded: 404"
                ),
            ),
            "DownloadFailed",
            "hf://a/b: could not be downloaded: 404",
        ),
        (
            waiting("CrashLoopBackOff", restartCount=2, lastState=ended(2, message="static.json: maxSeqs is too much")),
            "Refused",
            "static.json: maxSeqs is too much",
        ),
        (
            {"containerStatuses": [{"name": "worker", "ready": False, "state": ended(1, message="boom")}]},
            "Crashed",
            "container worker ended with exit code 1: boom",
        ),
        (
            {"initContainerStatuses": waiting("ErrImagePull")["containerStatuses"]},
            "ErrImagePull",
            "container worker waits",
        ),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, "Evicted", "low on memory"),
        (
            waiting("ContainerCreating") | {"startTime": "2030-01-01T11:55:00Z"},
            "ContainerCreating",
            "for more than 240 s; kubectl describe pod chat-flash-1 says why",
        ),
    ],
)
def test_the_real_reason(status: Body, reason: str, said: str) -> None:
    """Pain 4, and the KAITO half of pain 1."""
    found = trouble(pod(**status), NOW)
    assert found is not None
    assert found.reason == reason
    assert said in found.message
    assert reason in REASONS


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
        waiting("ContainerCreating") | {"startTime": "2030-01-01T11:59:30Z"},
        {"containerStatuses": [{"name": "worker", "ready": False, "state": {"running": {}}, "restartCount": 0}]},
        # A container that ended well and starts again is no trouble.
        {"containerStatuses": [{"name": "worker", "ready": False, "state": {"running": {}}, "lastState": ended(0)}]},
        READY,
        {"phase": "Succeeded"},
    ],
)
def test_no_reason_while_all_is_well_or_may_become_so(status: Body) -> None:
    assert trouble(pod(**status), NOW) is None


def test_it_goes_when_the_pod_recovers() -> None:
    crashed = {"name": "worker", "ready": True, "restartCount": 4, "lastState": ended(1), "state": {"running": {}}}
    assert trouble(pod(containerStatuses=[crashed], **READY), NOW) is None


def test_a_pod_that_ends_is_left_out() -> None:
    ending = pod(**waiting("CrashLoopBackOff", lastState=ended(1)))
    ending["metadata"]["deletionTimestamp"] = "2030-01-01T11:59:00Z"
    assert trouble(ending, NOW) is None


def test_the_oldest_speaks_whatever_the_order() -> None:
    old, new = pod("b", "2030-01-01T10:00:00Z", **waiting("ErrImagePull")), pod("a", **waiting("InvalidImageName"))
    for order in ([old, new], [new, old]):
        found = first_trouble(order, NOW)
        assert found is not None
        assert found.reason == "ErrImagePull"


def test_a_message_is_one_short_line() -> None:
    found = trouble(pod(**waiting("ErrImagePull", "x \n" * 5000)), NOW)
    assert found is not None
    assert len(found.message) == LONGEST
    assert "\n" not in found.message


def test_a_message_stands_still_between_restarts() -> None:
    """Back-off times and time stamps move by themselves: each would be a write of status."""
    said = set()
    for back_off, stamp in (("10s", "11:58:00,001"), ("5m0s", "11:59:00,555")):
        last = ended(1, message=f"2030-01-01 {stamp} E worker: no space left")
        found = trouble(pod(**waiting("CrashLoopBackOff", f"back-off {back_off}", restartCount=3, lastState=last)), NOW)
        assert found is not None
        said.add(found.message)
    assert len(said) == 1
