"""What speaks for a job's holder, against whole key contents: before, the call, its answer, after."""

from __future__ import annotations

from flash_wire.broker.client import Broker
from flash_wire.broker.types import (
    Acked,
    Dropped,
    Held,
    Reaped,
    Released,
    Restored,
)
from support.broker_rows import (
    GONE_A,
    KNOWN,
    LAPSED,
    REQUEUED,
    RUNNING,
    WAITING,
    Row,
    ack,
    beat,
    but,
    check,
    reap,
    release,
    restore,
    rows,
    without,
)
from support.broker_state import Contents, ended, fleet, job, sched, tenant, world

FENCED = [({"epoch": 2}, "another epoch"), ({"worker": "w9"}, "the same epoch handed out twice")]
BEAT = [
    Row("extended", RUNNING, beat(), {"a": Held.EXTENDED}, RUNNING),
    Row("extended although it had lapsed", LAPSED, beat(), {"a": Held.EXTENDED}, RUNNING),
    Row("active without a lease gets one", without(RUNNING, "lease"), beat(), {"a": Held.EXTENDED}, RUNNING),
    *[Row(f"fenced: {why}", RUNNING, beat(**other), {"a": Held.FENCED}, RUNNING) for other, why in FENCED],
    Row("lost: keep generating", fleet(), beat(), {"a": Held.UNKNOWN}, fleet()),
    Row("queued: keep generating", WAITING, beat(), {"a": Held.UNKNOWN}, WAITING),
    Row("cancelled", ended("a", "cancelled"), beat(), {"a": Held.CANCELLED}, ended("a", "cancelled")),
    Row(
        "past its deadline",
        but(RUNNING, "job:a", deadline="past"),
        beat(),
        {"a": Held.CANCELLED},
        world(GONE_A, ended("a", "expired", deadline="past", worker="w1", hold=1, epoch=1, charged=4.0, claimed="now")),
    ),
    Row(
        "its router is gone",
        RUNNING | fleet("lapsed"),
        beat(),
        {"a": Held.CANCELLED},
        world(GONE_A, fleet("lapsed"), ended("a", "lapsed", worker="w1", hold=1, epoch=1, charged=4.0, claimed="now")),
    ),
    Row(
        "after an outage its router is not judged gone",
        RUNNING | fleet("lapsed", counting=False),
        beat(),
        {"a": Held.EXTENDED},
        RUNNING | fleet("lapsed", counting=False),
    ),
]

DONE = world(GONE_A, ended("a", "done", worker="w1", hold=1, epoch=1, charged=4.0, claimed="now"))
ACK = [
    Row("ok", RUNNING, ack(), Acked.OK, but(DONE, "sched", used_high="12")),
    Row(
        "ok, and the pass pays for what was used",
        RUNNING,
        ack(used=18),
        Acked.OK,
        but(DONE, "sched", used_high="18", pass_high=6.0),
    ),
    Row(
        "ok, and the pass gets back what was not used",
        RUNNING,
        ack(used=3),
        Acked.OK,
        but(DONE, "sched", used_high="3", pass_high=1.0),
    ),
    Row(
        "a restored job was charged nothing and is corrected by nothing",
        but(RUNNING, "job:a", charged=0.0),
        ack(used=3),
        Acked.OK,
        but(but(DONE, "job:a", charged=0.0), "sched", used_high="3"),
    ),
    Row("sent twice", DONE, ack(), Acked.OK, DONE),
    Row("its lease had lapsed but nobody took it", LAPSED, ack(), Acked.OK, but(DONE, "sched", used_high="12")),
    *[Row(f"fenced: {why}", RUNNING, ack(**other), Acked.FENCED, RUNNING) for other, why in FENCED],
    Row("queued again", WAITING, ack(), Acked.NOT_ACTIVE, WAITING),
    Row("unknown", fleet(), ack(), Acked.GONE, fleet()),
    Row("cancelled meanwhile", ended("a", "cancelled"), ack(), Acked.GONE, ended("a", "cancelled")),
]

RELEASE = [
    Row("back in its old place, refunded", RUNNING, release(), Released.OK, REQUEUED),
    Row(
        "with the router's count of crashes",
        RUNNING,
        release(crashes=1),
        Released.OK,
        but(REQUEUED, "job:a", crashes="1"),
    ),
    Row(
        "a count may go down: the worker came back",
        but(RUNNING, "job:a", crashes="2"),
        release(crashes=1),
        Released.OK,
        but(REQUEUED, "job:a", crashes="1"),
    ),
    *[Row(f"fenced: {why}", RUNNING, release(**other), Released.FENCED, RUNNING) for other, why in FENCED],
    Row(
        "fenced, but the count is the router's word",
        RUNNING,
        release(worker="w9", crashes=1),
        Released.FENCED,
        but(RUNNING, "job:a", crashes="1"),
    ),
    Row(
        "queued already, the count is heard",
        WAITING,
        release(crashes=1),
        Released.NOT_ACTIVE,
        but(WAITING, "job:a", crashes="1"),
    ),
    Row("unknown", fleet(), release(crashes=1), Released.GONE, fleet()),
    Row("ended", ended("a", "done"), release(crashes=1), Released.GONE, ended("a", "done")),
]

REAP = [
    Row("nothing lapsed", RUNNING, reap(), Reaped(), RUNNING),
    Row("back in its old place, refunded, no crash counted", LAPSED, reap(), Reaped(["a"]), REQUEUED),
    Row(
        "past its deadline",
        but(LAPSED, "job:a", deadline="past"),
        reap(),
        Reaped([], [Dropped("a", "R", "expired")]),
        world(GONE_A, ended("a", "expired", deadline="past", worker="w1", hold=1, epoch=1, charged=4.0, claimed="now")),
    ),
    Row(
        "its router is gone",
        LAPSED | fleet("lapsed"),
        reap(),
        Reaped([], [Dropped("a", "R", "owner_lapsed")]),
        world(GONE_A, fleet("lapsed"), ended("a", "lapsed", worker="w1", hold=1, epoch=1, charged=4.0, claimed="now")),
    ),
    Row(
        "a batch at a time",
        world(LAPSED, job("b", "active", seq=2), {"lease": {"a": "lapsed", "b": "lapsed"}}),
        reap(1),
        Reaped(["a"]),
        world(REQUEUED, job("b", "active", seq=2), {"lease": {"b": "lapsed"}}),
    ),
    Row("a lease of nothing", {"lease": {"x": "lapsed"}}, reap(), Reaped(), {}),
]

TOMBSTONE: Contents = {"job:a": {"v": "1", "state": "cancelled", "expires": "yes"}}
RESTORED = world(
    job("a", "active", epoch=5, hold=5, charged=0.0),
    {"lease": {"a": "leased"}},
    sched(seq=1),
    tenant(12, 1),
    {"fleet": {"r:R": "alive|"}},
)
RESTORE = [
    Row("lost: active again, counted, not charged", {}, restore(5, seq=1), Restored.OK, RESTORED),
    Row("sent twice", RESTORED, restore(5, seq=1), Restored.OK, RESTORED),
    Row(
        "never refused for quota",
        world(tenant(9_999_999, 9), sched(seq=9, tokens_high=9_999_999)),
        restore(5, seq=1),
        Restored.OK,
        world(RESTORED, tenant(9_999_999 + 12, 10), sched(seq=9, tokens_high=9_999_999)),
    ),
    Row(
        "reaped meanwhile: out of the queue",
        REQUEUED,
        restore(1, seq=1),
        Restored.OK,
        world(
            RUNNING,
            job("a", "active", charged=0.0),
            {"wake": ["1"]},
            fleet(**KNOWN),
            sched(seq=1, tokens_high=0, tokens_low=0, vt=0, pass_high=0, pass_low=0),
        ),
    ),
    Row(
        "an epoch that was handed out since is not handed out again",
        but(REQUEUED, "job:a", epoch="8"),
        restore(5, seq=1),
        Restored.OK,
        world(
            RUNNING,
            job("a", "active", charged=0.0, hold=5, epoch=8),
            {"wake": ["1"]},
            fleet(**KNOWN),
            sched(seq=1, tokens_high=0, tokens_low=0, vt=0, pass_high=0, pass_low=0),
        ),
    ),
    Row("another holds it", RUNNING, restore(1, "w9"), Restored.HELD_BY_ANOTHER, RUNNING),
    Row("acked", world(ended("a", "done"), fleet()), restore(), Restored.GONE, world(ended("a", "done"), fleet())),
    Row("cancelled", world(TOMBSTONE, fleet()), restore(), Restored.GONE, world(TOMBSTONE, fleet())),
    Row(
        "its owner was thought gone and came back",
        world(ended("a", "lapsed", epoch=5), fleet("lapsed")),
        restore(5, seq=1),
        Restored.OK,
        world(RESTORED, fleet()),
    ),
]


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


@rows(RESTORE)
async def test_restore(broker: Broker, row: Row) -> None:
    await check(broker, row)
