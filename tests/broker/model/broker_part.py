"""What Redis holds of one job, and what each script does to it: the part of the model that the real scripts replay."""

from __future__ import annotations

from typing import NamedTuple

RULES = frozenset(
    {
        "incarnation",  # a holder is named by (epoch, incarnation)
        "restore_counts",  # restore adds to the admission counters
        "reap_counts_no_crash",  # crashes are counted by the router alone
        "cancel_leaves_a_mark",  # a late enqueue or restore of a cancelled job is refused
        "owner_lapse_ends",  # claim, beat and reap end the jobs of a router that is gone
        "lapse_needs_a_witness",  # after an outage nobody is judged gone before it could announce
        "no_expiry_while_live",
        "ack_after_done_ack",
        "fence",  # the router takes tokens of the current Begin only, at the committed position only
        "lost_and_unreachable_drops",  # a worker drops what Redis does not know and whose owner it cannot reach
        "unknown_is_done",  # a Begin for an id that the router does not know is answered DONE
        "cancel_after_unanswered",  # one operation at a time, and a cancel behind an unanswered one
        "retry_until_answered",
        "register_again",  # on a new generation
        "identity_read_before",  # the generation recorded is the one read before registering began
    }
)
"""Each of these closes a hole: switched off, the search finds a counterexample."""


class Job(NamedTuple):
    state: str
    """queued, active; done, cancelled, expired, lapsed."""
    epoch: int = 0
    hold: int = 0
    worker: str = ""
    crashes: int = 0
    lease: str = ""
    """"" none, held, lapsed."""


class Redis(NamedTuple):
    job: Job | None = None
    account: int = 0
    """Jobs counted for the tenant."""
    owner: bool = True
    """The router's fleet entry has not lapsed."""
    trusted: bool = True
    """Announcements came without a gap for a ttl."""
    late: bool = False
    """The job's deadline has passed."""

    @property
    def live(self) -> bool:
        return self.job is not None and self.job.state in ("queued", "active")


Rules = frozenset[str]


def _gone(r: Redis, rules: Rules) -> str | None:
    """Why claim, beat and reap end the job instead of serving it."""
    if r.late:
        return "expired"
    believed = r.trusted or "lapse_needs_a_witness" not in rules
    return "lapsed" if not r.owner and believed and "owner_lapse_ends" in rules else None


def _end(r: Redis, state: str) -> Redis:
    assert r.job
    return r._replace(job=r.job._replace(state=state, lease=""), account=r.account - 1)


def _mine(job: Job, epoch: int, worker: str, rules: Rules) -> bool:
    return job.hold == epoch and (job.worker == worker or "incarnation" not in rules)


def enqueue(r: Redis, epoch: int, crashes: int, rules: Rules) -> tuple[Redis, str]:
    r = r._replace(owner=True)
    job = r.job
    if job and r.live:
        return r._replace(job=job._replace(epoch=max(job.epoch, epoch), crashes=crashes)), "duplicate"
    if job and job.state in ("done", "cancelled"):
        return r, "finished"
    if r.late or (job and job.state == "expired"):
        return r, "expired"
    return r._replace(job=Job("queued", epoch, crashes=crashes), account=r.account + 1), "admitted"


def claim(r: Redis, worker: str, rules: Rules) -> tuple[Redis, str]:
    job = r.job
    if job is None or job.state != "queued":
        return r, "nothing"
    if why := _gone(r, rules):
        return _end(r, why), "dropped"
    epoch = job.epoch + 1
    return r._replace(job=Job("active", epoch, epoch, worker, job.crashes, "held")), "claimed"


def beat(r: Redis, epoch: int, worker: str, rules: Rules) -> tuple[Redis, str]:
    job = r.job
    if job is None or job.state == "queued":
        return r, "unknown"
    if job.state != "active":
        return r, "cancelled"
    if not _mine(job, epoch, worker, rules):
        return r, "fenced"
    if why := _gone(r, rules):
        return _end(r, why), "cancelled"
    return r._replace(job=job._replace(lease="held")), "extended"


def ack(r: Redis, epoch: int, worker: str, rules: Rules) -> tuple[Redis, str]:
    job = r.job
    if job and job.state in ("active", "done") and _mine(job, epoch, worker, rules):
        return (_end(r, "done") if job.state == "active" else r), "ok"
    return r, {"active": "fenced", "queued": "not_active"}.get(job.state if job else "", "gone")


def _put_back(r: Redis, job: Job) -> Redis:
    return r._replace(job=job._replace(state="queued", hold=0, worker="", lease=""))


def release(r: Redis, epoch: int, worker: str, crashes: int | None, rules: Rules) -> tuple[Redis, str]:
    job = r.job
    if job is None or not r.live:
        return r, "gone"
    if crashes is not None:
        job = job._replace(crashes=crashes)
        r = r._replace(job=job)
    if job.state == "queued":
        return r, "not_active"
    if not _mine(job, epoch, worker, rules):
        return r, "fenced"
    return _put_back(r, job), "ok"


def reap(r: Redis, rules: Rules) -> tuple[Redis, str]:
    job = r.job
    if job is None or job.lease != "lapsed":
        return r, "nothing"
    if why := _gone(r, rules):
        return _end(r, why), "dropped"
    if "reap_counts_no_crash" not in rules:
        job = job._replace(crashes=job.crashes + 1)
    return _put_back(r, job), "requeued"


def cancel(r: Redis, rules: Rules) -> tuple[Redis, str]:
    job = r.job
    if job and r.live:
        return _end(r, "cancelled"), job.state
    if (job is None or job.state == "lapsed") and "cancel_leaves_a_mark" in rules:
        r = r._replace(job=(job or Job(""))._replace(state="cancelled"))
    return r, "gone"


def restore(r: Redis, epoch: int, worker: str, top: int, crashes: int, rules: Rules) -> tuple[Redis, str]:
    r = r._replace(owner=True)
    job = r.job
    if job and job.state == "active" and not _mine(job, epoch, worker, rules):
        return r, "held_by_another"
    if job and job.state in ("done", "cancelled", "expired"):
        return r, "gone"
    adds = not r.live and "restore_counts" in rules
    highest = max(job.epoch if job else 0, epoch, top)
    return r._replace(job=Job("active", highest, epoch, worker, crashes, "held"), account=r.account + adds), "ok"
