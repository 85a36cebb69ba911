"""Enqueue, claim and cancel against whole key contents: before, the call, its answer, after."""

from __future__ import annotations

from flash_wire.broker.client import Broker
from flash_wire.broker.types import (
    Admission,
    AdmitLimits,
    Cancelled,
    Claim,
    Claimed,
    Dropped,
    Enqueued,
)
from support.broker_rows import GONE_A, KNOWN, RUNNING, WAITING, Row, but, cancel, check, claim, enqueue, rows
from support.broker_state import Contents, ended, fleet, job, sched, tenant, world

ENQUEUE = [
    Row(
        "first job",
        {},
        enqueue(),
        Enqueued(Admission.ADMITTED, 1, 1, 12),
        world(
            job(),
            {"q:high": {"a": 1}, "wake": ["1"]},
            sched(seq=1, tokens_high=12, tokens_low=0),
            tenant(12, 1),
            {"fleet": {"r:R": "alive|", "pool:flash:r1": "alive|"}},
        ),
    ),
    Row(
        "counts its own level",
        WAITING,
        enqueue(id="b", level="low"),
        Enqueued(Admission.ADMITTED, 2, 1, 12),
        world(
            WAITING,
            job("b", level="low", seq=2),
            {"q:low": {"b": 2}, "wake": ["1"]},
            sched(seq=2, tokens_high=12, tokens_low=12),
            tenant(24, 2),
            fleet(**KNOWN),
        ),
    ),
    Row(
        "old work in its old place, and the counter behind it",
        WAITING,
        enqueue(id="b", seq=7, epoch=3, crashes=1),
        Enqueued(Admission.ADMITTED, 7, 2, 24),
        world(
            WAITING,
            job("b", seq=7, epoch=3, crashes=1),
            {"q:high": {"a": 1, "b": 7}, "wake": ["1"]},
            sched(seq=7, tokens_high=24, tokens_low=0),
            tenant(24, 2),
        ),
    ),
    Row(
        "old work does not turn the counter back",
        world(sched(seq=9), fleet()),
        enqueue(seq=4),
        Enqueued(Admission.ADMITTED, 4, 1, 12),
        world(
            job(seq=4),
            {"q:high": {"a": 4}, "wake": ["1"]},
            sched(seq=9, tokens_high=12, tokens_low=0),
            tenant(12, 1),
            fleet(**KNOWN),
        ),
    ),
    Row(
        "sent twice: counted once; epoch and crashes are heard",
        WAITING,
        enqueue(epoch=4, crashes=2),
        Enqueued(Admission.DUPLICATE, 1, 1, 12),
        but(WAITING, "job:a", epoch="4", crashes="2"),
    ),
    Row(
        "duplicate of a running job leaves its holder",
        RUNNING,
        enqueue(),
        Enqueued(Admission.DUPLICATE, 1, 0, 0),
        RUNNING,
    ),
    Row(
        "late, after the end",
        world(ended("a", "done"), fleet()),
        enqueue(),
        Enqueued(Admission.FINISHED, 0, 0, 0),
        world(ended("a", "done"), fleet()),
    ),
    Row(
        "late, after a cancel",
        world(ended("a", "cancelled"), fleet()),
        enqueue(),
        Enqueued(Admission.FINISHED, 0, 0, 0),
        world(ended("a", "cancelled"), fleet()),
    ),
    Row(
        "its owner was thought gone and came back",
        world(ended("a", "lapsed"), fleet("lapsed")),
        enqueue(),
        Enqueued(Admission.ADMITTED, 1, 1, 12),
        world(
            job(),
            {"q:high": {"a": 1}, "wake": ["1"]},
            sched(seq=1, tokens_high=12, tokens_low=0),
            tenant(12, 1),
            fleet("alive", **KNOWN),
        ),
    ),
    Row("deadline passed", WAITING, enqueue(id="b", deadline=1), Enqueued(Admission.EXPIRED, 0, 1, 12), WAITING),
    Row(
        "too many jobs",
        WAITING,
        enqueue(AdmitLimits(100, 1), id="b"),
        Enqueued(Admission.QUEUE_REQUESTS, 0, 1, 12, 1, 2),
        WAITING,
    ),
    Row(
        "too many tokens",
        WAITING,
        enqueue(AdmitLimits(23, 9), id="b"),
        Enqueued(Admission.QUEUE_TOKENS, 0, 1, 12, 23, 24),
        WAITING,
    ),
    Row(
        "just enough tokens",
        WAITING,
        enqueue(AdmitLimits(24, 2, 24), id="b"),
        Enqueued(Admission.ADMITTED, 2, 2, 24),
        world(
            WAITING,
            job("b", seq=2),
            {"q:high": {"a": 1, "b": 2}, "wake": ["1"]},
            sched(seq=2, tokens_high=24, tokens_low=0),
            tenant(24, 2),
        ),
    ),
    Row(
        "a tenant's running jobs count too",
        RUNNING,
        enqueue(AdmitLimits(100, 9, 23), id="b"),
        Enqueued(Admission.TENANT_TOKENS, 0, 0, 0, 23, 24),
        RUNNING,
    ),
    Row(
        "another tenant's do not",
        RUNNING,
        enqueue(AdmitLimits(100, 9, 23), id="b", tenant="u"),
        Enqueued(Admission.ADMITTED, 2, 1, 12),
        world(
            RUNNING,
            job("b", seq=2, tenant="u"),
            {"q:high": {"b": 2}, "wake": ["1"]},
            tenant(12, 1, "u"),
            fleet(**KNOWN),
            {"sched": RUNNING["sched"] | {"seq": "2", "tokens:high": "12"}},
        ),
    ),
    Row(
        "an idle level restarts at the virtual time",
        world(sched(seq=5, vt=90, pass_high=40, pass_low=95), fleet()),
        enqueue(seq=6),
        Enqueued(Admission.ADMITTED, 6, 1, 12),
        world(
            job(seq=6),
            {"q:high": {"a": 6}, "wake": ["1"]},
            tenant(12, 1),
            fleet(**KNOWN),
            sched(seq=6, tokens_high=12, tokens_low=0, vt=90, pass_high=90, pass_low=95),
        ),
    ),
    Row(
        "an idle level starts beside the other where refunds took that below the virtual time",
        world(
            job("b", level="low"),
            {"q:low": {"b": 1}},
            sched(seq=5, tokens_low=12, vt=90, pass_high=10, pass_low=70),
            tenant(12, 1),
            fleet(),
        ),
        enqueue(seq=6),
        Enqueued(Admission.ADMITTED, 6, 1, 12),
        world(
            job("b", level="low"),
            job(seq=6),
            {"q:low": {"b": 1}, "q:high": {"a": 6}, "wake": ["1"]},
            sched(seq=6, tokens_high=12, tokens_low=12, vt=90, pass_high=70, pass_low=70),
            tenant(24, 2),
            fleet(**KNOWN),
        ),
    ),
    Row(
        "but it still owes",
        world(sched(seq=5, vt=90, pass_high=97, pass_low=95), fleet()),
        enqueue(seq=6),
        Enqueued(Admission.ADMITTED, 6, 1, 12),
        world(
            job(seq=6),
            {"q:high": {"a": 6}, "wake": ["1"]},
            tenant(12, 1),
            fleet(**KNOWN),
            sched(seq=6, tokens_high=12, tokens_low=0, vt=90, pass_high=97, pass_low=95),
        ),
    ),
]

AFTER_CLAIM = world(
    job("a", "active", worker="w2", charged=4.0),
    {"lease": {"a": "leased"}},
    tenant(12, 1),
    fleet(),
    sched(seq=1, tokens_high=0, tokens_low=0, vt=0, pass_high=4, pass_low=0),
)
GOT_A = Claimed("a", 1, "R", "high", 10, 12, 1, 0, 0)
BIG = world(
    WAITING,
    job("a", need=50),
    job("b", seq=2),
    {"q:high": {"a": 1, "b": 2}},
    tenant(24, 2),
    sched(seq=2, tokens_high=24, tokens_low=0),
)
CLAIM = [
    Row("nothing there", fleet() | {"wake": ["1", "1"]}, claim(), Claim(), fleet()),
    Row("one job", WAITING, claim(), Claim([GOT_A]), AFTER_CLAIM),
    Row("no slot", WAITING, claim(slots=0), Claim(), WAITING),
    Row("a head that does not fit is not passed over", BIG, claim(kv_tokens=49), Claim(), BIG),
    Row(
        "room is counted down",
        BIG,
        claim(kv_tokens=59),
        Claim([Claimed("a", 1, "R", "high", 50, 12, 1, 0, 0)]),
        world(
            AFTER_CLAIM,
            job("a", "active", need=50, worker="w2", charged=4.0),
            job("b", seq=2),
            {"q:high": {"b": 2}},
            tenant(24, 2),
            sched(seq=2, tokens_high=12, tokens_low=0, vt=0, pass_high=4, pass_low=0),
        ),
    ),
    Row(
        "epochs go up",
        but(WAITING, "job:a", epoch="6"),
        claim(),
        Claim([Claimed("a", 7, "R", "high", 10, 12, 1, 0, 0)]),
        but(AFTER_CLAIM, "job:a", epoch="7", hold="7"),
    ),
    Row(
        "an expired head is dropped and told",
        but(WAITING, "job:a", deadline="past"),
        claim(),
        Claim([], [Dropped("a", "R", "expired")]),
        world(
            ended("a", "expired", deadline="past"),
            fleet(),
            sched(seq=1, tokens_high=0, tokens_low=0, vt=0, pass_high=0, pass_low=0),
        ),
    ),
    Row(
        "the head of a router that is gone is dropped and told",
        WAITING | fleet("lapsed"),
        claim(),
        Claim([], [Dropped("a", "R", "owner_lapsed")]),
        world(
            ended("a", "lapsed"),
            fleet("lapsed"),
            sched(seq=1, tokens_high=0, tokens_low=0, vt=0, pass_high=0, pass_low=0),
        ),
    ),
    Row(
        "an absent owner is a lapsed one",
        WAITING | fleet("absent"),
        claim(),
        Claim([], [Dropped("a", "R", "owner_lapsed")]),
        world(
            ended("a", "lapsed"),
            fleet("absent"),
            sched(seq=1, tokens_high=0, tokens_low=0, vt=0, pass_high=0, pass_low=0),
        ),
    ),
    Row(
        "after an outage nobody is judged gone",
        WAITING | fleet("lapsed", counting=False),
        claim(),
        Claim([GOT_A]),
        AFTER_CLAIM | fleet("lapsed", counting=False),
    ),
    Row(
        "dead heads are bounded",
        but(WAITING, "job:a", deadline="past"),
        claim(max_skip=0),
        Claim(),
        but(WAITING, "job:a", deadline="past"),
    ),
    Row(
        "a suspect is the only job of its claim",
        world(BIG, job("a", crashes=2)),
        claim(),
        Claim([Claimed("a", 1, "R", "high", 10, 12, 1, 2, 0)]),
        world(
            AFTER_CLAIM,
            job("a", "active", crashes=2, worker="w2", charged=4.0),
            job("b", seq=2),
            {"q:high": {"b": 2}},
            tenant(24, 2),
            sched(seq=2, tokens_high=12, tokens_low=0, vt=0, pass_high=4, pass_low=0),
        ),
    ),
    Row(
        "a claim with jobs stops before a suspect",
        world(BIG, job("a"), job("b", seq=2, crashes=2)),
        claim(),
        Claim([GOT_A]),
        world(
            AFTER_CLAIM,
            job("b", seq=2, crashes=2),
            {"q:high": {"b": 2}},
            tenant(24, 2),
            sched(seq=2, tokens_high=12, tokens_low=0, vt=0, pass_high=4, pass_low=0),
        ),
    ),
    Row(
        "a queued id without a job is cleared away",
        world({"q:high": {"a": 1}}, fleet()),
        claim(),
        Claim(),
        world(sched(tokens_high=0, tokens_low=0, vt=0, pass_high=0, pass_low=0), fleet()),
    ),
    Row(
        "the level that is behind goes first",
        world(
            WAITING,
            job("b", level="low", seq=2),
            {"q:low": {"b": 2}},
            tenant(24, 2),
            sched(seq=2, tokens_high=12, tokens_low=12, vt=5, pass_high=9, pass_low=5),
        ),
        claim(slots=1),
        Claim([Claimed("b", 1, "R", "low", 10, 12, 2, 0, 0)]),
        world(
            WAITING,
            job("b", "active", level="low", seq=2, worker="w2", charged=12.0),
            {"lease": {"b": "leased"}},
            tenant(24, 2),
            sched(seq=2, tokens_high=12, tokens_low=0, vt=5, pass_high=9, pass_low=17),
        ),
    ),
]

CANCELLED_WAITING = world(ended("a", "cancelled"), sched(seq=1, tokens_high=0, tokens_low=0), fleet())
TOMBSTONE: Contents = {"job:a": {"v": "1", "state": "cancelled", "expires": "yes"}}
CANCEL = [
    Row("queued", WAITING, cancel(), Cancelled.QUEUED, CANCELLED_WAITING),
    Row(
        "active",
        RUNNING,
        cancel(),
        Cancelled.ACTIVE,
        world(GONE_A, ended("a", "cancelled", worker="w1", hold=1, epoch=1, charged=4.0, claimed="now")),
    ),
    Row("unknown leaves a mark", {}, cancel(), Cancelled.GONE, TOMBSTONE),
    Row("ended already", ended("a", "done"), cancel(), Cancelled.GONE, ended("a", "done")),
    Row("dropped with its router", ended("a", "lapsed"), cancel(), Cancelled.GONE, ended("a", "cancelled")),
]


@rows(ENQUEUE)
async def test_enqueue(broker: Broker, row: Row) -> None:
    await check(broker, row)


@rows(CLAIM)
async def test_claim(broker: Broker, row: Row) -> None:
    await check(broker, row)


@rows(CANCEL)
async def test_cancel(broker: Broker, row: Row) -> None:
    await check(broker, row)
