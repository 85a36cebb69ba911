"""The small accounts beside a session: crashes, fates, drain rate, holding, what is remembered."""

from __future__ import annotations

import pytest
from flash_router.core import Refused, Why
from flash_router.crashes import Crashes
from flash_router.fates import SETTLE, Fates
from flash_router.holding import Holding
from flash_router.pace import Pace
from flash_router.session import Session
from flash_router.sessions import KEEP_REQUESTS, Sessions
from flash_wire.broker.types import Depth
from flash_wire.fleet import Fleet, WorkerRecord
from flash_wire.settings import Limits
from flash_wire.v1 import inference_pb2 as pb


def test_a_broken_stream_is_no_crash_until_the_worker_is_dead() -> None:
    crashes = Crashes()
    crashes.lost("a", alone=False)
    assert (crashes.count, crashes.suspect) == (0, False)
    assert crashes.died("a")
    assert not crashes.died("a")
    assert crashes.count == 1
    assert crashes.back("a")
    assert crashes.count == 0
    assert not crashes.died("a"), "a worker that came back is not counted by an old message"


def test_two_crashes_make_a_suspect_and_two_alone_a_poison() -> None:
    crashes = Crashes()
    for name in ("a", "b"):
        crashes.lost(name, alone=False)
    assert crashes.suspect, "open fates count: it runs alone while nobody knows"
    assert not crashes.undecided
    crashes.died("a")
    crashes.died("b")
    assert not crashes.poison
    crashes.lost("c", alone=True)
    crashes.lost("d", alone=True)
    assert crashes.undecided
    assert not crashes.poison
    crashes.died("c")
    crashes.died("d")
    assert crashes.poison
    assert not crashes.undecided


def record(incarnation: str, name: str) -> WorkerRecord:
    return WorkerRecord(incarnation=incarnation, name=name, tier="flash", state="ready")


def reading(*workers: WorkerRecord) -> Fleet:
    return Fleet(workers=list(workers), routers=[], desired={}, pools=[], time_ms=0)


def test_fates() -> None:
    fates = Fates()
    fates.lost("a1", "a")
    fates.lost("b1", "b")
    assert fates.hello("a2", "a") == ["a1"]
    assert fates.seen(reading(record("b1", "b")), settled=100) == []
    assert fates.seen(reading(), settled=SETTLE - 1) == [], "after a loss everyone is missing for a while"
    assert fates.seen(reading(record("b2", "b")), settled=0) == ["b1"], "replaced under its name"
    fates.lost("c1", "c")
    assert fates.seen(reading(), settled=SETTLE) == ["c1"]
    fates.lost("d1", "d")
    assert fates.hello("d1", "d") == [], "the same one came back"
    assert fates.seen(reading(), settled=SETTLE) == []


def test_pace_is_the_slope_of_what_was_acked() -> None:
    now = [0.0]
    pace = Pace(clock=lambda: now[0])
    assert pace.rate() == 0.0
    for second in range(60):
        now[0] = float(second)
        pace.see({"high": Depth(0, 0, 0, used=second * 80), "low": Depth(0, 0, 0, used=second * 20)})
    assert pace.rate() == pytest.approx(100.0)
    assert 0.8 * 20 <= pace.retry_after(1000, 0.5) <= 1.2 * 20
    assert pace.retry_after(10**9, 0.5) == 60.0
    assert pace.retry_after(1, 1.0) == 1.0
    now[0] += 1
    pace.see({"high": Depth(0, 0, 0, used=5)})
    assert pace.rate() == 0.0, "the broker lost its count: measured anew"


def test_holding_is_bounded_and_gives_back() -> None:
    holding, limits = Holding(), Limits(held_requests=2, held_tokens=100)
    with holding.hold("flash", 40, limits, "away"), holding.hold("standard", 40, limits, "away"):
        assert holding.by_tier == {"flash": 1, "standard": 1}
        with pytest.raises(Refused, match="heldRequests"), holding.hold("flash", 1, limits, "away"):
            pass
    with holding.hold("flash", 90, limits, "away"):
        with pytest.raises(Refused, match="heldTokens") as refused, holding.hold("flash", 20, limits, "away"):
            pass
        assert refused.value.why is Why.UNAVAILABLE
    assert holding.by_tier == {}
    assert holding.tokens == 0


async def test_ended_requests_are_forgotten_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = Sessions()
    for number in range(KEEP_REQUESTS + 5):
        request = pb.GenerateRequest(request_id=f"r{number}", tenant="t")
        session = Session(f"job{number}", request, level="high", deadline=1e12)
        sessions.add(session)
        session.finish(pb.STOP)
        assert session.request == pb.GenerateRequest()
    assert len(sessions) == 0
    assert sessions.find("t", "r0") is None
    assert sessions.find("t", f"r{KEEP_REQUESTS + 4}") is session
    assert sessions.find("other", f"r{KEEP_REQUESTS + 4}") is None
    monkeypatch.setattr("flash_router.sessions.KEEP_FOR", -1.0)
    assert sessions.find("t", f"r{KEEP_REQUESTS + 4}") is None
    assert sessions.kept_bytes == 0


async def test_ended_requests_are_forgotten_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(name: str, *, tokens: int = 0, text: int = 0) -> Session:
        session = Session(name, pb.GenerateRequest(request_id=name), level="high", deadline=1e12)
        sessions.add(session)
        session.committed, session.pieces = [7] * tokens, ["x" * text]
        session.finish(pb.STOP)
        return session

    sessions = Sessions()
    monkeypatch.setattr("flash_router.sessions.KEEP_BYTES", 1_000_000)
    for number in range(10):
        ended(f"tokens{number}", tokens=10_000)
    assert 700_000 < sessions.kept_bytes <= 1_000_000
    assert sessions.find("", "tokens0") is None
    assert sessions.find("", "tokens9") is not None
    ended("text", text=200_000)
    assert sessions.find("", "tokens8") is None, "text counts as tokens do"
    assert sessions.find("", "text") is not None
    ended("huge", text=2_000_000)
    assert sessions.find("", "huge") is None
    assert sessions.kept_bytes == 0


@pytest.mark.parametrize("end", ["refused", "cancelled", "deadline", "error"])
async def test_an_end_without_tokens_is_not_kept(end: str) -> None:
    sessions = Sessions()
    request = pb.GenerateRequest(request_id="r", prompt="x" * 1_000_000)
    session = Session("job", request, level="high", deadline=1e12)
    sessions.add(session)
    if end == "refused":
        session.refuse(Refused(Why.BUSY, "full"))
    else:
        session.finish({"cancelled": pb.CANCELLED, "deadline": pb.DEADLINE, "error": pb.ERROR}[end])
    assert sessions.find("", "r") is None
    assert sessions.kept_bytes == 0
    assert session.request.ByteSize() == 0


async def test_a_new_start_under_an_id_replaces_what_was_kept() -> None:
    sessions = Sessions()
    made = []
    for job in ("first", "second"):
        made.append(Session(job, pb.GenerateRequest(request_id="r"), level="high", deadline=1e12))
        sessions.add(made[-1])
        made[-1].committed = [1, 2, 3]
        made[-1].finish(pb.CANCELLED)
        if job == "first":
            size = sessions.kept_bytes
    assert sessions.find("", "r") is made[1]
    assert sessions.kept_bytes == size
