"""Each script against whole key contents: what is there before, the call, its answer, what is there after."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from support.broker_state import LEASE_MS, POOL, Contents, contents, ended, fleet, job, sched, seed, tenant, world

from flash_wire.broker.client import Broker
from flash_wire.broker.types import (
    Acked,
    Admission,
    AdmitLimits,
    Cancelled,
    Claim,
    Claimed,
    Dropped,
    Enqueued,
    Held,
    Job,
    Reaped,
    Released,
    Restored,
)

NO_LIMIT = AdmitLimits(0, 0, 0)
WEIGHTS: dict[Any, int] = {"high": 3, "low": 1}
KNOWN = {"pool_flash_r1": "alive|"}


@dataclass(frozen=True)
class Row:
    name: str
    given: Contents
    when: Callable[[Broker], Awaitable[Any]]
    answer: Any
    then: Contents


def a_job(id: str = "a", **fields: Any) -> Job:
    usual: dict[str, Any] = {"level": "high", "need": 10, "cost": 12, "owner": "R", "tenant": "t"}
    return Job(id, **(usual | fields))


def enqueue(limits: AdmitLimits = NO_LIMIT, **fields: Any) -> Callable[[Broker], Awaitable[Any]]:
    return lambda b: b.enqueue(POOL, a_job(**fields), limits)


def claim(slots: int = 8, kv_tokens: int = 1000, **more: Any) -> Callable[[Broker], Awaitable[Any]]:
    return lambda b: b.claim(POOL, "w2", slots, kv_tokens, WEIGHTS, LEASE_MS, **more)


def beat(epoch: int = 1, worker: str = "w1") -> Callable[[Broker], Awaitable[Any]]:
    return lambda b: b.beat(POOL, worker, {"a": epoch}, LEASE_MS)


def ack(epoch: int = 1, worker: str = "w1", used: int = 12) -> Callable[[Broker], Awaitable[Any]]:
    return lambda b: b.ack(POOL, "a", epoch, worker, used)


def release(epoch: int = 1, worker: str = "w1", crashes: int | None = None) -> Callable[[Broker], Awaitable[Any]]:
    return lambda b: b.release(POOL, "a", epoch, worker, crashes)


def reap(limit: int = 10) -> Callable[[Broker], Awaitable[Any]]:
    return lambda b: b.reap(POOL, limit)


def cancel(id: str = "a") -> Callable[[Broker], Awaitable[Any]]:
    return lambda b: b.cancel(POOL, id)


def restore(epoch: int = 1, worker: str = "w1", **fields: Any) -> Callable[[Broker], Awaitable[Any]]:
    return lambda b: b.restore(POOL, a_job(**fields), epoch, worker, LEASE_MS)


WAITING = world(job(), {"q:high": {"a": 1}}, sched(seq=1, tokens_high=12, tokens_low=0), tenant(12, 1), fleet())
RUNNING = world(job("a", "active", charged=4.0), {"lease": {"a": "leased"}},
                sched(seq=1, tokens_high=0, tokens_low=0, vt=0, pass_high=4, pass_low=0), tenant(12, 1), fleet())
LAPSED = RUNNING | {"lease": {"a": "lapsed"}}


def without(contents: Contents, *names: str) -> Contents:
    return {k: v for k, v in contents.items() if k not in names}


def but(contents: Contents, name: str, **fields: Any) -> Contents:
    """`contents` with some fields of one hash changed."""
    named = {k.replace("_", ":") if name != "job:a" else k: v for k, v in fields.items()}
    return contents | {name: contents.get(name, {}) | named}


REQUEUED = world(job("a", epoch=1, claimed="now"), {"q:high": {"a": 1}, "wake": ["1"]},
                 sched(seq=1, tokens_high=12, tokens_low=0, vt=0, pass_high=0, pass_low=0), tenant(12, 1),
                 fleet(**KNOWN))

ENQUEUE = [
    Row("first job", {}, enqueue(), Enqueued(Admission.ADMITTED, 1, 1, 12),
        world(job(), {"q:high": {"a": 1}, "wake": ["1"]}, sched(seq=1, tokens_high=12, tokens_low=0), tenant(12, 1),
              {"fleet": {"r:R": "alive|", **{"pool:flash:r1": "alive|"}}})),
    Row("counts its own level", WAITING, enqueue(id="b", level="low"), Enqueued(Admission.ADMITTED, 2, 1, 12),
        world(WAITING, job("b", level="low", seq=2), {"q:low": {"b": 2}, "wake": ["1"]},
              sched(seq=2, tokens_high=12, tokens_low=12), tenant(24, 2), fleet(**KNOWN))),
    Row("old work in its old place, and the counter behind it", WAITING, enqueue(id="b", seq=7, epoch=3, crashes=1),
        Enqueued(Admission.ADMITTED, 7, 2, 24),
        world(WAITING, job("b", seq=7, epoch=3, crashes=1), {"q:high": {"a": 1, "b": 7}, "wake": ["1"]},
              sched(seq=7, tokens_high=24, tokens_low=0), tenant(24, 2))),
    Row("sent twice: counted once; epoch and crashes are heard", WAITING, enqueue(epoch=4, crashes=2),
        Enqueued(Admission.DUPLICATE, 1, 1, 12), but(WAITING, "job:a", epoch="4", crashes="2")),
    Row("duplicate of a running job leaves its holder", RUNNING, enqueue(),
        Enqueued(Admission.DUPLICATE, 1, 0, 0), RUNNING),
    Row("late, after the end", world(ended("a", "done"), fleet()), enqueue(), Enqueued(Admission.FINISHED, 0, 0, 0),
        world(ended("a", "done"), fleet())),
    Row("late, after a cancel", world(ended("a", "cancelled"), fleet()), enqueue(),
        Enqueued(Admission.FINISHED, 0, 0, 0), world(ended("a", "cancelled"), fleet())),
    Row("its owner was thought gone and came back", world(ended("a", "lapsed"), fleet("lapsed")), enqueue(),
        Enqueued(Admission.ADMITTED, 1, 1, 12),
        world(job(), {"q:high": {"a": 1}, "wake": ["1"]}, sched(seq=1, tokens_high=12, tokens_low=0), tenant(12, 1),
              fleet("alive", **KNOWN))),
    Row("deadline passed", WAITING, enqueue(id="b", deadline=1), Enqueued(Admission.EXPIRED, 0, 1, 12), WAITING),
    Row("too many jobs", WAITING, enqueue(AdmitLimits(100, 1), id="b"),
        Enqueued(Admission.QUEUE_REQUESTS, 0, 1, 12, 1, 2), WAITING),
    Row("too many tokens", WAITING, enqueue(AdmitLimits(23, 9), id="b"),
        Enqueued(Admission.QUEUE_TOKENS, 0, 1, 12, 23, 24), WAITING),
    Row("just enough tokens", WAITING, enqueue(AdmitLimits(24, 2, 24), id="b"), Enqueued(Admission.ADMITTED, 2, 2, 24),
        world(WAITING, job("b", seq=2), {"q:high": {"a": 1, "b": 2}, "wake": ["1"]},
              sched(seq=2, tokens_high=24, tokens_low=0), tenant(24, 2))),
    Row("a tenant's running jobs count too", RUNNING, enqueue(AdmitLimits(100, 9, 23), id="b"),
        Enqueued(Admission.TENANT_TOKENS, 0, 0, 0, 23, 24), RUNNING),
    Row("another tenant's do not", RUNNING, enqueue(AdmitLimits(100, 9, 23), id="b", tenant="u"),
        Enqueued(Admission.ADMITTED, 2, 1, 12),
        world(RUNNING, job("b", seq=2, tenant="u"), {"q:high": {"b": 2}, "wake": ["1"]}, tenant(12, 1, "u"),
              fleet(**KNOWN), {"sched": RUNNING["sched"] | {"seq": "2", "tokens:high": "12"}})),
    Row("an idle level restarts at the virtual time", world(sched(seq=5, vt=90, pass_high=40, pass_low=95), fleet()),
        enqueue(seq=6), Enqueued(Admission.ADMITTED, 6, 1, 12),
        world(job(seq=6), {"q:high": {"a": 6}, "wake": ["1"]}, tenant(12, 1), fleet(**KNOWN),
              sched(seq=6, tokens_high=12, tokens_low=0, vt=90, pass_high=90, pass_low=95))),
    Row("but it still owes", world(sched(seq=5, vt=90, pass_high=97, pass_low=95), fleet()),
        enqueue(seq=6), Enqueued(Admission.ADMITTED, 6, 1, 12),
        world(job(seq=6), {"q:high": {"a": 6}, "wake": ["1"]}, tenant(12, 1), fleet(**KNOWN),
              sched(seq=6, tokens_high=12, tokens_low=0, vt=90, pass_high=97, pass_low=95))),
]

AFTER_CLAIM = world(job("a", "active", worker="w2", charged=4.0), {"lease": {"a": "leased"}}, tenant(12, 1), fleet(),
                    sched(seq=1, tokens_high=0, tokens_low=0, vt=0, pass_high=4, pass_low=0))
GOT_A = Claimed("a", 1, "R", "high", 10, 12, 1, 0, 0)
BIG = world(WAITING, job("a", need=50), job("b", seq=2), {"q:high": {"a": 1, "b": 2}}, tenant(24, 2),
            sched(seq=2, tokens_high=24, tokens_low=0))
CLAIM = [
    Row("nothing there", fleet() | {"wake": ["1", "1"]}, claim(), Claim(), fleet()),
    Row("one job", WAITING, claim(), Claim([GOT_A]), AFTER_CLAIM),
    Row("no slot", WAITING, claim(slots=0), Claim(), WAITING),
    Row("a head that does not fit is not passed over", BIG, claim(kv_tokens=49), Claim(), BIG),
    Row("room is counted down", BIG, claim(kv_tokens=59), Claim([Claimed("a", 1, "R", "high", 50, 12, 1, 0, 0)]),
        world(AFTER_CLAIM, job("a", "active", need=50, worker="w2", charged=4.0), job("b", seq=2),
              {"q:high": {"b": 2}}, tenant(24, 2),
              sched(seq=2, tokens_high=12, tokens_low=0, vt=0, pass_high=4, pass_low=0))),
    Row("epochs go up", but(WAITING, "job:a", epoch="6"), claim(), Claim([Claimed("a", 7, "R", "high", 10, 12, 1, 0, 0)]),
        but(AFTER_CLAIM, "job:a", epoch="7", hold="7")),
    Row("an expired head is dropped and told", but(WAITING, "job:a", deadline="past"), claim(),
        Claim([], [Dropped("a", "R", "expired")]),
        world(ended("a", "expired", deadline="past"), fleet(),
              sched(seq=1, tokens_high=0, tokens_low=0, vt=0, pass_high=0, pass_low=0))),
    Row("the head of a router that is gone is dropped and told", WAITING | fleet("lapsed"), claim(),
        Claim([], [Dropped("a", "R", "owner_lapsed")]),
        world(ended("a", "lapsed"), fleet("lapsed"),
              sched(seq=1, tokens_high=0, tokens_low=0, vt=0, pass_high=0, pass_low=0))),
    Row("an absent owner is a lapsed one", WAITING | fleet("absent"), claim(),
        Claim([], [Dropped("a", "R", "owner_lapsed")]),
        world(ended("a", "lapsed"), fleet("absent"),
              sched(seq=1, tokens_high=0, tokens_low=0, vt=0, pass_high=0, pass_low=0))),
    Row("after an outage nobody is judged gone", WAITING | fleet("lapsed", counting=False), claim(), Claim([GOT_A]),
        AFTER_CLAIM | fleet("lapsed", counting=False)),
    Row("dead heads are bounded", but(WAITING, "job:a", deadline="past"), claim(max_skip=0), Claim(),
        but(WAITING, "job:a", deadline="past")),
    Row("a suspect is the only job of its claim",
        world(BIG, job("a", crashes=2)), claim(), Claim([Claimed("a", 1, "R", "high", 10, 12, 1, 2, 0)]),
        world(AFTER_CLAIM, job("a", "active", crashes=2, worker="w2", charged=4.0), job("b", seq=2),
              {"q:high": {"b": 2}}, tenant(24, 2),
              sched(seq=2, tokens_high=12, tokens_low=0, vt=0, pass_high=4, pass_low=0))),
    Row("a claim with jobs stops before a suspect",
        world(BIG, job("a"), job("b", seq=2, crashes=2)), claim(), Claim([GOT_A]),
        world(AFTER_CLAIM, job("b", seq=2, crashes=2), {"q:high": {"b": 2}}, tenant(24, 2),
              sched(seq=2, tokens_high=12, tokens_low=0, vt=0, pass_high=4, pass_low=0))),
    Row("a queued id without a job is cleared away", world({"q:high": {"a": 1}}, fleet()), claim(), Claim(),
        world(sched(tokens_high=0, tokens_low=0, vt=0, pass_high=0, pass_low=0), fleet())),
    Row("the level that is behind goes first",
        world(WAITING, job("b", level="low", seq=2), {"q:low": {"b": 2}}, tenant(24, 2),
              sched(seq=2, tokens_high=12, tokens_low=12, vt=5, pass_high=9, pass_low=5)),
        claim(slots=1), Claim([Claimed("b", 1, "R", "low", 10, 12, 2, 0, 0)]),
        world(WAITING, job("b", "active", level="low", seq=2, worker="w2", charged=12.0), {"lease": {"b": "leased"}},
              tenant(24, 2), sched(seq=2, tokens_high=12, tokens_low=0, vt=5, pass_high=9, pass_low=17))),
]

FENCED = [({"epoch": 2}, "another epoch"), ({"worker": "w9"}, "the same epoch handed out twice")]
GONE_A = without(RUNNING, "lease", "tenant:t", "job:a")
BEAT = [
    Row("extended", RUNNING, beat(), {"a": Held.EXTENDED}, RUNNING),
    Row("extended although it had lapsed", LAPSED, beat(), {"a": Held.EXTENDED}, RUNNING),
    Row("active without a lease gets one", without(RUNNING, "lease"), beat(), {"a": Held.EXTENDED}, RUNNING),
    *[Row(f"fenced: {why}", RUNNING, beat(**other), {"a": Held.FENCED}, RUNNING) for other, why in FENCED],
    Row("lost: keep generating", fleet(), beat(), {"a": Held.UNKNOWN}, fleet()),
    Row("queued: keep generating", WAITING, beat(), {"a": Held.UNKNOWN}, WAITING),
    Row("cancelled", ended("a", "cancelled"), beat(), {"a": Held.CANCELLED}, ended("a", "cancelled")),
    Row("past its deadline", but(RUNNING, "job:a", deadline="past"), beat(), {"a": Held.CANCELLED},
        world(GONE_A, ended("a", "expired", deadline="past", worker="w1", hold=1, epoch=1, charged=4.0, claimed="now"))),
    Row("its router is gone", RUNNING | fleet("lapsed"), beat(), {"a": Held.CANCELLED},
        world(GONE_A, fleet("lapsed"),
              ended("a", "lapsed", worker="w1", hold=1, epoch=1, charged=4.0, claimed="now"))),
    Row("after an outage its router is not judged gone", RUNNING | fleet("lapsed", counting=False), beat(),
        {"a": Held.EXTENDED}, RUNNING | fleet("lapsed", counting=False)),
]

DONE = world(GONE_A, ended("a", "done", worker="w1", hold=1, epoch=1, charged=4.0, claimed="now"))
ACK = [
    Row("ok", RUNNING, ack(), Acked.OK, but(DONE, "sched", used_high="12")),
    Row("ok, and the pass pays for what was used", RUNNING, ack(used=18), Acked.OK,
        but(DONE, "sched", used_high="18", pass_high=6.0)),
    Row("ok, and the pass gets back what was not used", RUNNING, ack(used=3), Acked.OK,
        but(DONE, "sched", used_high="3", pass_high=1.0)),
    Row("a restored job was charged nothing and is corrected by nothing", but(RUNNING, "job:a", charged=0.0),
        ack(used=3), Acked.OK, but(but(DONE, "job:a", charged=0.0), "sched", used_high="3")),
    Row("sent twice", DONE, ack(), Acked.OK, DONE),
    Row("its lease had lapsed but nobody took it", LAPSED, ack(), Acked.OK, but(DONE, "sched", used_high="12")),
    *[Row(f"fenced: {why}", RUNNING, ack(**other), Acked.FENCED, RUNNING) for other, why in FENCED],
    Row("queued again", WAITING, ack(), Acked.NOT_ACTIVE, WAITING),
    Row("unknown", fleet(), ack(), Acked.GONE, fleet()),
    Row("cancelled meanwhile", ended("a", "cancelled"), ack(), Acked.GONE, ended("a", "cancelled")),
]

RELEASE = [
    Row("back in its old place, refunded", RUNNING, release(), Released.OK, REQUEUED),
    Row("with the router's count of crashes", RUNNING, release(crashes=1), Released.OK,
        but(REQUEUED, "job:a", crashes="1")),
    Row("a count may go down: the worker came back", but(RUNNING, "job:a", crashes="2"), release(crashes=1),
        Released.OK, but(REQUEUED, "job:a", crashes="1")),
    *[Row(f"fenced: {why}", RUNNING, release(**other), Released.FENCED, RUNNING) for other, why in FENCED],
    Row("fenced, but the count is the router's word", RUNNING, release(worker="w9", crashes=1), Released.FENCED,
        but(RUNNING, "job:a", crashes="1")),
    Row("queued already, the count is heard", WAITING, release(crashes=1), Released.NOT_ACTIVE,
        but(WAITING, "job:a", crashes="1")),
    Row("unknown", fleet(), release(crashes=1), Released.GONE, fleet()),
    Row("ended", ended("a", "done"), release(crashes=1), Released.GONE, ended("a", "done")),
]

REAP = [
    Row("nothing lapsed", RUNNING, reap(), Reaped(), RUNNING),
    Row("back in its old place, refunded, no crash counted", LAPSED, reap(), Reaped(["a"]), REQUEUED),
    Row("past its deadline", but(LAPSED, "job:a", deadline="past"), reap(), Reaped([], [Dropped("a", "R", "expired")]),
        world(GONE_A, ended("a", "expired", deadline="past", worker="w1", hold=1, epoch=1, charged=4.0, claimed="now"))),
    Row("its router is gone", LAPSED | fleet("lapsed"), reap(), Reaped([], [Dropped("a", "R", "owner_lapsed")]),
        world(GONE_A, fleet("lapsed"),
              ended("a", "lapsed", worker="w1", hold=1, epoch=1, charged=4.0, claimed="now"))),
    Row("a batch at a time", world(LAPSED, job("b", "active", seq=2), {"lease": {"a": "lapsed", "b": "lapsed"}}),
        reap(1), Reaped(["a"]), world(REQUEUED, job("b", "active", seq=2), {"lease": {"b": "lapsed"}})),
    Row("a lease of nothing", {"lease": {"x": "lapsed"}}, reap(), Reaped(), {}),
]

CANCELLED_WAITING = world(ended("a", "cancelled"), sched(seq=1, tokens_high=0, tokens_low=0), fleet())
TOMBSTONE: Contents = {"job:a": {"v": "1", "state": "cancelled", "expires": "yes"}}
CANCEL = [
    Row("queued", WAITING, cancel(), Cancelled.QUEUED, CANCELLED_WAITING),
    Row("active", RUNNING, cancel(), Cancelled.ACTIVE,
        world(GONE_A, ended("a", "cancelled", worker="w1", hold=1, epoch=1, charged=4.0, claimed="now"))),
    Row("unknown leaves a mark", {}, cancel(), Cancelled.GONE, TOMBSTONE),
    Row("ended already", ended("a", "done"), cancel(), Cancelled.GONE, ended("a", "done")),
    Row("dropped with its router", ended("a", "lapsed"), cancel(), Cancelled.GONE, ended("a", "cancelled")),
]

RESTORED = world(job("a", "active", epoch=5, hold=5, charged=0.0), {"lease": {"a": "leased"}}, sched(seq=1),
                 tenant(12, 1), {"fleet": {"r:R": "alive|"}})
RESTORE = [
    Row("lost: active again, counted, not charged", {}, restore(5, seq=1), Restored.OK, RESTORED),
    Row("sent twice", RESTORED, restore(5, seq=1), Restored.OK, RESTORED),
    Row("never refused for quota", world(tenant(9_999_999, 9), sched(seq=9, tokens_high=9_999_999)),
        restore(5, seq=1), Restored.OK,
        world(RESTORED, tenant(9_999_999 + 12, 10), sched(seq=9, tokens_high=9_999_999))),
    Row("reaped meanwhile: out of the queue", REQUEUED, restore(1, seq=1), Restored.OK,
        world(RUNNING, job("a", "active", charged=0.0), {"wake": ["1"]}, fleet(**KNOWN),
              sched(seq=1, tokens_high=0, tokens_low=0, vt=0, pass_high=0, pass_low=0))),
    Row("an epoch that was handed out since is not handed out again", but(REQUEUED, "job:a", epoch="8"),
        restore(5, seq=1), Restored.OK,
        world(RUNNING, job("a", "active", charged=0.0, hold=5, epoch=8), {"wake": ["1"]}, fleet(**KNOWN),
              sched(seq=1, tokens_high=0, tokens_low=0, vt=0, pass_high=0, pass_low=0))),
    Row("another holds it", RUNNING, restore(1, "w9"), Restored.HELD_BY_ANOTHER, RUNNING),
    Row("acked", world(ended("a", "done"), fleet()), restore(), Restored.GONE, world(ended("a", "done"), fleet())),
    Row("cancelled", world(TOMBSTONE, fleet()), restore(), Restored.GONE, world(TOMBSTONE, fleet())),
    Row("its owner was thought gone and came back", world(ended("a", "lapsed", epoch=5), fleet("lapsed")),
        restore(5, seq=1), Restored.OK, world(RESTORED, fleet())),
]


async def check(broker: Broker, row: Row) -> None:
    await seed(broker.redis, row.given)
    assert await contents(broker.redis) == row.given, "the row's own `given` is not what was seeded"
    assert await row.when(broker) == row.answer
    assert await contents(broker.redis) == row.then


def rows(table: list[Row]) -> pytest.MarkDecorator:
    assert len({row.name for row in table}) == len(table)
    return pytest.mark.parametrize("row", table, ids=lambda row: row.name.replace(" ", "-"))


@rows(ENQUEUE)
async def test_enqueue(broker: Broker, row: Row) -> None:
    await check(broker, row)


@rows(CLAIM)
async def test_claim(broker: Broker, row: Row) -> None:
    await check(broker, row)


@rows(BEAT)
async def test_beat(broker: Broker, row: Row) -> None:
    await check(broker, row)


@rows(ACK)
async def test_ack(broker: Broker, row: Row) -> None:
    await check(broker, row)


@rows(RELEASE)
async def test_release(broker: Broker, row: Row) -> None:
    await check(broker, row)


@rows(REAP)
async def test_reap(broker: Broker, row: Row) -> None:
    await check(broker, row)


@rows(CANCEL)
async def test_cancel(broker: Broker, row: Row) -> None:
    await check(broker, row)


@rows(RESTORE)
async def test_restore(broker: Broker, row: Row) -> None:
    await check(broker, row)
