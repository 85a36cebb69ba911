"""The queue in plain Python: what the scripts must do, in the fewest words. Time stands still here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flash_wire.broker.types import Level

OTHER: dict[Level, Level] = {"high": "low", "low": "high"}


@dataclass
class ModelJob:
    level: Level
    need: int
    cost: int
    tenant: str
    seq: int
    epoch: int
    crashes: int
    state: str = "queued"
    hold: int = 0
    worker: str = ""
    charged: float = 0.0
    lapsed: bool = False


@dataclass
class QueueModel:
    jobs: dict[str, ModelJob] = field(default_factory=dict)
    seq: int = 0
    vt: float = 0.0
    passes: dict[Level, float] = field(default_factory=lambda: {"high": 0.0, "low": 0.0})

    def queue(self, level: Level) -> list[str]:
        waiting = [(job.seq, id) for id, job in self.jobs.items() if job.level == level and job.state == "queued"]
        return [id for _, id in sorted(waiting)]

    def tokens(self, level: Level) -> int:
        return sum(self.jobs[id].cost for id in self.queue(level))

    def tenant(self, name: str) -> int:
        live = [job for job in self.jobs.values() if job.tenant == name and job.state in ("queued", "active")]
        return sum(job.cost for job in live)

    def _restart(self, level: Level) -> None:
        other = OTHER[level]
        now = min(self.vt, self.passes[other]) if self.queue(other) else self.vt
        self.passes[level] = max(self.passes[level], now)

    def enqueue(self, id: str, job: ModelJob, most_jobs: int, most_tenant: int) -> str:
        if old := self.jobs.get(id):
            if old.state not in ("queued", "active"):
                return "finished"
            old.epoch, old.crashes = max(old.epoch, job.epoch), job.crashes
            return "duplicate"
        if len(self.queue(job.level)) + 1 > most_jobs:
            return "queue_requests"
        if self.tenant(job.tenant) + job.cost > most_tenant:
            return "tenant_tokens"
        job.seq = job.seq or self.seq + 1
        self.seq = max(self.seq, job.seq)
        if not self.queue(job.level):
            self._restart(job.level)
        self.jobs[id] = job
        return "admitted"

    def claim(self, worker: str, slots: int, room: int, weights: dict[Any, int]) -> list[tuple[str, int]]:
        got: list[tuple[str, int]] = []
        while slots > 0 and (levels := [level for level in OTHER if self.queue(level)]):
            level = min(levels, key=lambda one: self.passes[one])
            id = self.queue(level)[0]
            job = self.jobs[id]
            if job.need > room or (job.crashes >= 2 and got):
                break
            job.state, job.worker, job.lapsed, job.epoch = "active", worker, False, job.epoch + 1
            job.hold, job.charged = job.epoch, job.cost / weights[level]
            self.vt = self.passes[level]
            self.passes[level] += job.charged
            slots, room = slots - 1, room - job.need
            got.append((id, job.epoch))
            if job.crashes >= 2:
                break
        return got

    def _holds(self, id: str, epoch: int, worker: str) -> bool:
        return (self.jobs[id].hold, self.jobs[id].worker) == (epoch, worker)

    def beat(self, id: str, epoch: int, worker: str) -> str:
        job = self.jobs.get(id)
        if job is None or job.state == "queued":
            return "unknown"
        if job.state != "active":
            return "cancelled"
        if not self._holds(id, epoch, worker):
            return "fenced"
        job.lapsed = False
        return "extended"

    def ack(self, id: str, epoch: int, worker: str, used: int) -> str:
        job = self.jobs.get(id)
        if job and job.state == "active" and self._holds(id, epoch, worker):
            self.passes[job.level] += job.charged * (used - job.cost) / job.cost
            job.state = "done"
            return "ok"
        if job and job.state == "done" and self._holds(id, epoch, worker):
            return "ok"
        return {"active": "fenced", "queued": "not_active"}.get(job.state if job else "", "gone")

    def _put_back(self, job: ModelJob) -> None:
        self.passes[job.level] -= job.charged
        if not self.queue(job.level):
            self._restart(job.level)
        job.state, job.hold, job.worker, job.charged, job.lapsed = "queued", 0, "", 0.0, False

    def release(self, id: str, epoch: int, worker: str, crashes: int | None) -> str:
        job = self.jobs.get(id)
        if job is None or job.state not in ("queued", "active"):
            return "gone"
        job.crashes = job.crashes if crashes is None else crashes
        if job.state == "queued":
            return "not_active"
        if not self._holds(id, epoch, worker):
            return "fenced"
        self._put_back(job)
        return "ok"

    def reap(self) -> list[str]:
        gone = sorted(id for id, job in self.jobs.items() if job.state == "active" and job.lapsed)
        for id in gone:
            self._put_back(self.jobs[id])
        return gone

    def cancel(self, id: str) -> str:
        if id not in self.jobs:
            self.jobs[id] = ModelJob("high", 0, 0, "", 0, 0, 0, state="cancelled")
            return "gone"
        was = self.jobs[id].state
        if was not in ("queued", "active"):
            return "gone"
        self.jobs[id].state = "cancelled"
        return was

    def restore(self, id: str, job: ModelJob, epoch: int, worker: str) -> str:
        old = self.jobs.get(id)
        if old and old.state == "active" and not self._holds(id, epoch, worker):
            return "held_by_another"
        if old and old.state in ("done", "cancelled"):
            return "gone"
        now = old or job
        now.crashes, now.epoch = job.crashes, max(now.epoch, epoch, job.epoch)
        if old is None:
            now.seq = now.seq or self.seq + 1
            self.seq = max(self.seq, now.seq)
            self.jobs[id] = now
        if now.state == "queued":
            now.charged = 0.0
        now.state, now.hold, now.worker, now.lapsed = "active", epoch, worker, False
        return "ok"
