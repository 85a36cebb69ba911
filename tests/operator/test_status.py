"""Status: Ready is what it says, the reason is the real one, and nothing is written while nothing happens."""

from __future__ import annotations

from typing import Any

import pytest
from flash_operator import api, crd
from flash_operator.conditions import CONDITIONS, REASONS
from flash_operator.naming import TEMPLATE_LABEL
from flash_operator.plan import Observed, Running
from flash_operator.status import refused
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import NOON, Cluster, at_rest
from support.deployments import DEPLOYMENTS, PURE
from support.mistakes import patched
from support.structural import problems

Body = dict[str, Any]
SCHEMA = crd.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
OOM = {
    "containerStatuses": [
        {
            "name": "worker",
            "ready": False,
            "restartCount": 12,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
        }
    ]
}


def deployment(**spec: Any) -> api.FlashDeployment:
    return api.from_dict(patched({"spec": spec}))


@pytest.fixture
def two() -> Cluster:
    """Two routers, two flash workers, one standard worker."""
    return at_rest(deployment(flash={"replicas": 2}, router={"replicas": 2}))


def test_all_as_wanted(two: Cluster) -> None:
    assert two.conditions() == {
        "Ready": ("True", "Serving"),
        "BrokerReady": ("True", "Answering"),
        "RouterReady": ("True", "Serving"),
        "TiersReady": ("True", "Admitted"),
        "Progressing": ("False", "AsWanted"),
        "Degraded": ("False", "AllWell"),
        "ScaledToZero": ("False", "Awake"),
    }
    status = two.status()
    assert status["tiers"]["flash"] == {"desired": 2, "ready": 2, "admitted": 2, "draining": 0, "workers": "2/2"}
    assert status["endpoint"] == {"grpc": "chat.default.svc:9000", "http": "http://chat.default.svc:8000/v1"}
    assert status["share"] == "31%"
    assert status["observedGeneration"] == 3
    assert all(one["observedGeneration"] == 3 for one in status["conditions"])


def unseen(two: Cluster) -> None:
    two.change_routers(workers=[worker.incarnation for worker in two.workers if worker.name != "chat-flash-0"])


def old_settings(two: Cluster) -> None:
    two.change_worker("flash", static_hash="older")


def old_live_settings(two: Cluster) -> None:
    two.change_worker("flash", live_hash="older")


def loading(two: Cluster) -> None:
    two.change_worker("flash", state="loading", detail="weights (43%)")


def gone(two: Cluster) -> None:
    two.workers = [worker for worker in two.workers if worker.name != "chat-flash-0"]


def not_ready(two: Cluster) -> None:
    gone(two)
    two.fail("flash")


def out_of_memory(two: Cluster) -> None:
    gone(two)
    two.fail("flash", **OOM)


def old_pod_left(two: Cluster) -> None:
    two.deployments["chat-flash"]["status"]["replicas"] = 3


def old_template(two: Cluster) -> None:
    two.deployments["chat-flash"]["spec"]["template"]["metadata"]["labels"][TEMPLATE_LABEL] = "older"


def not_observed(two: Cluster) -> None:
    two.deployments["chat-flash"]["metadata"]["generation"] = 2


def too_few(two: Cluster) -> None:
    two.deployments["chat-flash"]["status"] |= {"replicas": 1, "updatedReplicas": 1}


def not_created(two: Cluster) -> None:
    del two.deployments["chat-flash"]


def quota(two: Cluster) -> None:
    two.deployments["chat-flash"]["status"] = {
        "observedGeneration": 1,
        "conditions": [
            {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota: pods=2"}
        ],
    }


def too_slow(two: Cluster) -> None:
    not_ready(two)
    two.deployments["chat-flash"]["status"]["conditions"] = [
        {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
    ]


@pytest.mark.parametrize(
    ("disturb", "reason", "said", "degraded"),
    [
        (unseen, "NotAdmitted", "chat-flash-0: ready, and attached to no router yet", False),
        (old_settings, "NotAnnounced", "1 of 2 are in the fleet record", False),
        (old_live_settings, "Reloading", "chat-flash-0 runs with live settings older", False),
        (loading, "Loading", "chat-flash-0: weights (40%)", False),
        (gone, "NotAnnounced", "do the pods reach the queue?", False),
        (not_ready, "Starting", "1 of 2 pods are ready", False),
        (out_of_memory, "OOMKilled", "pod chat-flash-0: container worker ended with exit code 137, 12 restarts", True),
        (old_pod_left, "RollingOut", "1 have an older one", False),
        (old_template, "RollingOut", "have the present template", False),
        (not_observed, "RollingOut", "have the present template", False),
        (too_few, "Scaling", "from 1 to 2 pods", False),
        (not_created, "NotCreated", "Deployment chat-flash is not there yet", False),
        (quota, "FailedCreate", "exceeded quota: pods=2", True),
        (too_slow, "ProgressDeadlineExceeded", "timed out", True),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_ready_means_ready(two: Cluster, disturb: Any, reason: str, said: str, degraded: bool) -> None:
    """Pains 1 and 2: pods that are there, or ready to the kubelet, are not workers that a router can reach."""
    disturb(two)
    found = two.conditions()
    assert found["Ready"] == ("False", reason)
    assert found["TiersReady"] == ("False", reason)
    assert found["RouterReady"] == ("True", "Serving")
    assert (found["Degraded"][0] == "True") is degraded
    assert said in two.message("Ready")
    if not degraded:
        assert found["Progressing"] == ("True", reason)


def test_a_router_with_older_settings_is_not_ready(two: Cluster) -> None:
    two.change_routers(live_hash="older")
    found = two.conditions()
    assert found["Ready"] == found["RouterReady"] == ("False", "Reloading")
    assert "router 10.0.0.0:9000 runs with live settings older" in two.message("Ready")


def test_a_draining_router_admits_nobody(two: Cluster) -> None:
    two.change_routers(state="draining")
    found = two.conditions()
    assert found["RouterReady"][0] == found["TiersReady"][0] == found["Ready"][0] == "False"


def test_a_failing_pod_is_told_before_what_only_takes_its_time(two: Cluster) -> None:
    two.change_routers(live_hash="older")
    out_of_memory(two)
    assert two.conditions()["Ready"] == ("False", "OOMKilled")


def test_a_reason_goes_when_the_pod_recovers(two: Cluster) -> None:
    """Pain 4."""
    workers, pods = list(two.workers), [dict(pod) for pod in two.pods]
    out_of_memory(two)
    assert two.conditions()["Ready"] == ("False", "OOMKilled")
    two.workers, two.pods = workers, pods
    two.deployments["chat-flash"]["status"]["readyReplicas"] = 2
    assert two.conditions()["Ready"] == ("True", "Serving")
    assert two.conditions()["Degraded"] == ("False", "AllWell")


def test_old_pods_do_not_make_a_new_generation_ready(two: Cluster) -> None:
    """Pain 1: the old pods serve well, and the count is right."""
    assert two.conditions()["Ready"][0] == "True"
    two.edit(deployment(flash={"replicas": 2, "engine": {"maxSeqs": 8}}, router={"replicas": 2}))
    assert two.conditions()["Ready"] == ("False", "RollingOut")
    assert two.status()["tiers"]["flash"]["admitted"] == 0
    assert two.status()["tiers"]["standard"]["admitted"] == 1


def test_a_live_edit_is_ready_once_everybody_runs_with_it(two: Cluster) -> None:
    two.edit(deployment(flash={"replicas": 2}, router={"replicas": 2}, priorities={"high": 9}))
    assert two.conditions()["Ready"] == ("False", "Reloading")
    hashes = {process.name: process.live_hash for process in two.plan.processes}
    two.change_routers(live_hash=hashes["chat-router"])
    for tier in ("flash", "standard"):
        assert two.conditions()["Ready"] == ("False", "Reloading")
        two.workers = [
            type(w)(**{f: getattr(w, f) for f in w.__slots__} | {"live_hash": hashes[f"chat-{tier}"]})
            if w.tier == tier
            else w
            for w in two.workers
        ]
    assert two.conditions()["Ready"] == ("True", "Serving")


def test_an_outage_of_the_queue_is_not_called_an_outage_of_the_fleet(two: Cluster) -> None:
    assert two.conditions()["Ready"][0] == "True"
    two.broker_error = "ConnectionError: refused"
    assert two.conditions() == {
        "Ready": ("Unknown", "BrokerUnreachable"),
        "BrokerReady": ("False", "BrokerUnreachable"),
        "RouterReady": ("Unknown", "BrokerUnreachable"),
        "TiersReady": ("Unknown", "BrokerUnreachable"),
        "Progressing": ("False", "AsWanted"),
        "Degraded": ("True", "BrokerUnreachable"),
        "ScaledToZero": ("False", "Awake"),
    }
    assert two.status()["tiers"]["flash"]["admitted"] == 2, "as it was last seen"


def test_before_the_first_reading_nothing_is_claimed(two: Cluster) -> None:
    two.fleet_read = False
    found = two.conditions()
    assert found["Ready"] == ("Unknown", "NotReadYet")
    assert found["Degraded"] == ("False", "AllWell")


def test_a_queue_without_an_address(two: Cluster) -> None:
    two.fleet_read, two.broker_problem = False, "Secret default/x does not exist: make it"
    found = two.conditions()
    assert found["Ready"] == found["BrokerReady"] == ("False", "NoAddress")
    assert two.message("Ready") == "Secret default/x does not exist: make it"


def test_a_tier_that_sleeps() -> None:
    asleep = at_rest(deployment(flash={"scaling": {"min": 0}}), Observed({"chat-flash": Running(0, "", "")}))
    found = asleep.conditions()
    assert found["ScaledToZero"] == ("True", "ScaledToZero")
    assert found["Ready"] == ("True", "Serving")
    assert asleep.message("ScaledToZero") == "no worker is wanted: flash"
    assert asleep.status()["tiers"]["flash"]["workers"] == "0/0"


def test_ending_pods_are_counted(two: Cluster) -> None:
    pod = two.pods_of("flash")[0]
    two.pods.append({"metadata": {**pod["metadata"], "name": "old", "deletionTimestamp": "2030-01-01T11:59:00Z"}})
    assert two.status()["tiers"]["flash"]["draining"] == 1
    assert two.conditions()["Ready"][0] == "True"


def test_the_time_of_a_transition_moves_only_with_the_state(two: Cluster) -> None:
    def times() -> dict[str, str]:
        return {one["type"]: one["lastTransitionTime"] for one in two.status()["conditions"]}

    start = times()
    two.later(60)
    loading(two)
    changed = times()
    assert {kind for kind in start if changed[kind] != start[kind]} == {"Ready", "TiersReady", "Progressing"}
    two.later(60)
    two.change_worker("flash", state="ready", live_hash="older")  # still not ready, for another reason
    assert times() == changed


def test_progress_is_written_in_steps_of_ten(two: Cluster) -> None:
    said = set()
    for percent in range(40, 60):
        two.change_worker("flash", state="loading", detail=f"weights ({percent}%)")
        said.add(two.message("Ready"))
    assert len(said) == 2


def test_the_share_is_written_when_it_moved_by_a_point_and_once_a_minute(two: Cluster) -> None:
    assert two.status()["share"] == "31%"
    two.later(3600)
    two.change_routers(share=0.3149)
    quiet = two.status()
    assert quiet["shareTime"] == "2030-01-01T12:00:00Z", "less than a point"
    two.change_routers(share=0.40)
    assert two.status()["share"] == "40%"
    two.later(59)
    two.change_routers(share=0.50)
    assert two.status()["share"] == "40%"
    two.later(1)
    assert two.status()["share"] == "50%"
    two.routers = []
    assert two.status()["share"] == "50%"


def test_a_spec_that_cannot_be_used_leaves_what_is_said_of_the_rest(two: Cluster) -> None:
    before = two.status()
    after = refused("spec.routing.rules.0.when.regex: does not compile", 4, NOON, before)
    found = {one["type"]: one for one in after["conditions"]}
    assert (found["Ready"]["status"], found["Ready"]["reason"]) == ("False", "InvalidSpec")
    assert found["Ready"]["observedGeneration"] == 4
    assert "does not compile" in found["Ready"]["message"]
    assert found["TiersReady"] == next(one for one in before["conditions"] if one["type"] == "TiersReady")
    assert after["tiers"] == before["tiers"]
    assert refused("spec.routing.rules.0.when.regex: does not compile", 4, NOON, after) == after
    assert list(problems(SCHEMA, refused("x", 1, NOON))) == []


HASHES = st.sampled_from(["right", "right", "older"])
STATES = st.sampled_from(["ready", "ready", "loading", "draining"])
POD_STATES = st.sampled_from(
    [{}, OOM, {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}]
)


@st.composite
def disturbed(draw: st.DrawFn) -> Cluster:
    """Any FlashDeployment in any state."""
    cluster = at_rest(draw(DEPLOYMENTS))
    for tier in ("flash", "standard"):
        if any(worker.tier == tier for worker in cluster.workers):
            fields: Body = {"state": draw(STATES)}
            for name in ("static_hash", "live_hash"):
                if draw(HASHES) == "older":
                    fields[name] = "older"
            cluster.change_worker(tier, **fields)
    if draw(st.booleans()):
        reached = draw(st.sets(st.sampled_from(cluster.workers))) if cluster.workers else set()
        cluster.change_routers(workers=[worker.incarnation for worker in reached])
    for part in ("router", "flash", "standard"):
        if cluster.pods_of(part) and draw(st.booleans()):
            cluster.fail(part, **draw(POD_STATES))
    for found in cluster.deployments.values():
        found["status"] |= draw(
            st.sampled_from([{}, {}, {"updatedReplicas": 0}, {"replicas": 9}, {"observedGeneration": 0}])
        )
    cluster.broker_error = draw(st.sampled_from(["", "", "refused"]))
    cluster.fleet_read = draw(st.sampled_from([True, True, False]))
    return cluster


@PURE
@given(disturbed())
def test_any_world_has_a_status_that_the_api_server_takes_and_that_rests(cluster: Cluster) -> None:
    status = cluster.status()
    assert list(problems(SCHEMA, status)) == []
    assert [one["type"] for one in status["conditions"]] == list(CONDITIONS)
    for one in status["conditions"]:
        assert one["reason"] in REASONS
    cluster.later(1)
    assert cluster.status() == status, "nothing happened"


@PURE
@given(disturbed())
def test_ready_is_never_claimed(cluster: Cluster) -> None:
    """Said again in other words: each worker wanted is in the record, as it should be, and a serving router has it."""
    if cluster.conditions()["Ready"][0] != "True":
        return
    assert not cluster.broker_error
    assert cluster.fleet_read
    serving = [router for router in cluster.routers if router.state == "ready"]
    for process in cluster.plan.processes:
        found = cluster.deployments[process.name]
        assert found["status"]["updatedReplicas"] == found["status"]["replicas"] == process.replicas
        if process.tier is None:
            good = [router for router in serving if router.static_hash == process.static_hash]
        else:
            good = [
                worker
                for worker in cluster.workers
                if (worker.tier, worker.state) == (process.tier, "ready")
                and (worker.static_hash, worker.live_hash) == (process.static_hash, process.live_hash)
                and any(worker.incarnation in router.workers for router in serving)
            ]
        assert len(good) >= process.replicas
