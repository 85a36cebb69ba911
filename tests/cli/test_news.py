"""What `up` tells of workers: each change once, each life on its own."""

from __future__ import annotations

from dataclasses import replace

from flash_wire.fleet import WorkerRecord
from flashfleet.news import News

LOADING = WorkerRecord("i1", "chat-flash-0", "flash", "loading", detail="layer 1 of 30")
READY = replace(LOADING, state="ready", detail="")


def test_a_change_of_state_is_told_once() -> None:
    news = News()
    assert list(news.of([LOADING], 0)) == ["chat-flash-0 loading: layer 1 of 30"]
    assert list(news.of([LOADING], 1)) == []
    assert list(news.of([READY], 1)) == ["chat-flash-0 ready"]
    assert list(news.of([READY], 9)) == []


def test_a_loading_worker_is_not_told_at_every_layer() -> None:
    news = News()
    told = [list(news.of([replace(LOADING, detail=f"layer {n}")], n / 4)) for n in range(20)]
    assert sum(map(len, told)) == 3


def test_the_next_life_is_told_though_it_is_ready_before_the_last_ones_record_lapses() -> None:
    news = News()
    again = replace(READY, incarnation="i2")
    assert list(news.of([READY], 0)) == ["chat-flash-0 ready"]
    assert list(news.of([READY, again], 1)) == ["chat-flash-0 ready"]
    assert list(news.of([again, READY], 2)) == []
    assert list(news.of([again], 3)) == []


def test_it_remembers_a_bounded_number() -> None:
    news = News()
    for n in range(1000):
        list(news.of([replace(READY, incarnation=str(n))], n))
    assert len(news._said) == 256
