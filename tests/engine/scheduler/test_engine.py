"""The engine's thread: requests in, numbered outputs out, each ended once."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence

import pytest
from flash_wire.room import ANSWER_RESERVE, footprint, longest_answer, need
from flash_wire.text import StreamDecoder, TextModel
from flash_worker.batch import Row
from flash_worker.engine import Unavailable
from flash_worker.request import NeverFits, Output, Request, Room
from support.engine_bench import PATIENCE, VOCAB, assert_set
from support.engine_bench import EngineBench as Bench


def test_requests_from_many_threads_get_their_answers(make: Callable[..., Bench]):
    bench = make(kv_tokens=256)
    requests: list[Request] = []

    def send(first: int) -> None:
        for i in range(first, first + 10):
            prompt = [(i * j + 3) % VOCAB for j in range(i % 7 + 1)]
            requests.append(bench.submit(f"r{i}", prompt, i % 13 + 1, seed=i))

    threads = [threading.Thread(target=send, args=(n * 10,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for request in requests:
        bench.ends_alone(request)
    assert all(len({output.id for output in batch}) == len(batch) for batch in bench.batches), "once for each step"
    stats = bench.engine.stats()
    assert stats.drawn == sum(i % 13 + 1 for i in range(40))
    assert stats.steps == bench.engine.steps == len(bench.step_stats)
    assert stats.tokens == sum(step.tokens for step in bench.step_stats)
    assert stats.account.held == stats.account.in_flight == stats.running == stats.waiting == stats.waste_tokens == 0
    assert not bench.engine.busy


def test_an_impossible_request_is_refused_and_the_next_one_runs(make: Callable[..., Bench]):
    bench = make(kv_tokens=256)
    with pytest.raises(NeverFits, match=r"needs 304 KV tokens \(prompt 5, max_tokens 300\), the pool has 256"):
        bench.submit("huge", max_tokens=300)
    with pytest.raises(ValueError, match="empty prompt"):
        bench.submit("empty", [])
    bench.ends_alone(bench.submit("next"))
    assert set(bench.outputs) == {"next"}


def test_an_id_twice_is_refused(make: Callable[..., Bench]):
    bench = make()
    gate = threading.Event()
    bench.device.before_step = lambda rows: assert_set(gate)
    request = bench.submit("a")
    with pytest.raises(ValueError, match="'a' is running already"):
        bench.submit("a")
    gate.set()
    bench.ends_alone(request)


def test_abort_ends_a_request_once(make: Callable[..., Bench]):
    bench = make()
    long = bench.submit("long", max_tokens=400)
    bench.until(lambda: len(bench.outputs.get("long", ())) > 3)
    bench.engine.abort("long")
    bench.engine.abort("long")
    bench.engine.abort("nobody")
    end = bench.end_of("long")
    assert end.finish == "cancelled"
    assert end.position == len(bench.answer(long)) < 400
    bench.ends_alone(bench.submit("next"))
    assert len([o for o in bench.outputs["long"] if o.finish]) == 1
    assert bench.engine.room() == Room(4, 512, 4, 512)


def test_a_deadline_has_its_own_finish(make: Callable[..., Bench]):
    bench = make()
    bench.device.before_step = lambda rows: time.sleep(0.005)
    request = bench.submit("late", max_tokens=400, deadline=time.monotonic() + 0.05)
    end = bench.end_of("late")
    assert end.finish == "deadline"
    assert bench.answer(request) == bench.alone(request)[: end.position]


# Stop strings


def test_the_answer_ends_at_a_stop_string(make: Callable[..., Bench], text: TextModel):
    bench = make()
    found = 0
    for seed in range(12):
        free = bench.request("free", max_tokens=24, seed=seed)
        whole = bench.alone(free)
        for length in (1, 2, 3):
            stop = text.decode(whole[10 : 10 + length])
            decoder = StreamDecoder(text, [stop]) if stop and "\ufffd" not in stop else None
            if decoder is None:
                continue
            decoder.push(whole)
            if decoder.stopped is None:
                continue
            found += 1
            request = bench.submit(f"{seed}-{length}", max_tokens=24, seed=seed, stop=(stop,), logprobs=True)
            end = bench.end_of(request.id)
            assert (end.finish, end.stop) == ("stop", stop)
            assert bench.answer(request) == whole[: decoder.tokens_used]
            assert len(end.logprobs) == len(end.ids)
            for cut in range(decoder.tokens_used + 1):
                resumed = bench.submit(
                    f"{seed}-{length}-{cut}", max_tokens=24, seed=seed, stop=(stop,), committed=whole[:cut]
                )
                end = bench.end_of(resumed.id)
                assert (end.finish, end.stop) == ("stop", stop)
                assert bench.answer(resumed) == whole[: decoder.tokens_used]
                if cut == decoder.tokens_used:
                    assert end.ids == ()
                    assert end.position == cut
    assert found >= 10, "or this shows nothing"
    bench.until(lambda: not bench.engine.busy)
    bench.engine.close(drain=PATIENCE)
    given = sum(len(output.ids) for outputs in bench.outputs.values() for output in outputs)
    assert bench.engine.stats().drawn == given, "nothing is computed after a stop string"
    assert not bench.engine._core._stops


def test_stop_strings_need_a_tokenizer(make: Callable[..., Bench]):
    bench = make(text=None)
    with pytest.raises(ValueError, match="stop strings need a tokenizer"):
        bench.submit("a", stop=("x",))
    assert not bench.engine.busy


def test_a_bad_stop_string_is_refused(make: Callable[..., Bench]):
    bench = make()
    with pytest.raises(ValueError, match="stop text 1 is empty"):
        bench.submit("a", stop=("",))
    assert not bench.engine.busy


def test_a_decoder_that_fails_ends_its_request_only(make: Callable[..., Bench]):
    class Broken:
        stopped = None
        tokens_used = 0

        def push(self, ids: Sequence[int], /) -> str:
            raise RuntimeError("no such piece")

    bench = make()
    bench.engine._decoder = lambda stop: Broken()
    other = bench.submit("other")
    bench.submit("bad", stop=("x",))
    end = bench.end_of("bad")
    assert end.finish == "error"
    assert "no such piece" in end.detail
    assert end.ids == ()
    bench.ends_alone(other)


# Resume


def test_resumed_requests_that_are_over_end_at_once_and_the_engine_lives(make: Callable[..., Bench], text: TextModel):
    bench = make()
    stop_id = min(text.stop_ids)
    cases = {
        "length": ("length", bench.request("length", max_tokens=3, committed=[9, 9, 9])),
        "eos": ("stop", bench.request("eos", committed=[9, stop_id], ignore_eos=False)),
        "id": ("stop", bench.request("id", committed=[9, 30], stop_token_ids=frozenset({30}))),
    }
    for _, request in cases.values():
        bench.engine.submit(request)
    for id, (finish, request) in cases.items():
        end = bench.end_of(id)
        assert end == Output(id, len(request.committed), finish=finish)
    assert bench.engine.steps == 0
    bench.ends_alone(bench.submit("next"))


# Closing


def test_close_drains_and_then_cancels(make: Callable[..., Bench]):
    bench = make()
    request = bench.submit("a")
    bench.engine.close(drain=PATIENCE)
    bench.ends_alone(request)
    with pytest.raises(Unavailable, match="closing"):
        bench.submit("b")
    assert bench.engine.room() == Room(0, 0, 4, 512)

    other = make()
    other.device.before_step = lambda rows: time.sleep(0.005)
    other.submit("running", max_tokens=400)
    other.until(lambda: "running" in other.outputs)
    other.engine.close(drain=0.01)
    assert other.end_of("running").finish == "cancelled"
    assert other.engine.stats().account.held == 0
    assert not other.engine._thread.is_alive()
    other.engine.close()


def test_an_engine_that_was_never_started_closes(text: TextModel):
    bench = Bench(text)
    bench.submit("a")
    bench.engine.close(drain=1.0)
    assert bench.end_of("a").finish == "cancelled"


# Pins


def test_a_pinned_prefix_is_found_and_leaves_less_room(make: Callable[..., Bench]):
    bench = make()
    prefix = list(range(40, 73))
    assert bench.engine.pin(prefix) == 32
    assert bench.engine.pin(prefix[:3]) == 0
    assert bench.engine.pin(prefix) == 32, "again is no harm"
    assert bench.engine.stats().pinned_tokens == 32
    assert bench.engine.room() == Room(4, 480, 4, 480)
    request = bench.submit("a", [*prefix, 1])
    bench.ends_alone(request)
    assert bench.outputs["a"][0].cached_tokens == 32
    with pytest.raises(ValueError, match="may take half of the KV pool: 32 tokens are pinned, 240 more"):
        bench.engine.pin([1, 2] * 120)
    with pytest.raises(NeverFits, match="the pool has 480"):
        bench.submit("b", max_tokens=500)
    assert not bench.outputs.keys() - {"a"}, "pins are nobody's outputs"


def test_a_pin_whose_step_fails_says_so(make: Callable[..., Bench]):
    bench = make()

    def fail(rows: Sequence[Row]) -> None:
        raise RuntimeError("device lost")

    bench.device.before_step = fail
    with pytest.raises(RuntimeError, match="device lost"):
        bench.engine.pin(list(range(40, 60)))
    bench.device.before_step = lambda rows: None
    bench.ends_alone(bench.submit("a"))


# Room


def test_what_room_allows_fits_without_preemption(make: Callable[..., Bench]):
    bench = make(kv_tokens=256, max_seqs=6)
    rng = random.Random(7)
    sent: list[Request] = []
    while len(sent) < 120:
        room = bench.engine.room()
        prompt, most = [rng.randrange(VOCAB) for _ in range(rng.randint(1, 60))], rng.randint(1, 90)
        request = bench.request(f"r{len(sent)}", prompt, most, seed=len(sent))
        if room.slots and bench.engine.need(len(prompt), 0, most) <= room.kv_tokens:
            bench.engine.submit(request)
            sent.append(request)
        else:
            time.sleep(0.001)
    for request in sent:
        bench.ends_alone(request)
    assert bench.engine.stats().preemptions == 0
    assert max(step.requests for step in bench.step_stats) > 2
    assert bench.engine.room() == Room(6, 256, 6, 256)


def test_the_formula_of_need():
    assert need(10, 0, 7, block_size=16) == 16, "16 tokens are run, the 17th only drawn"
    assert need(10, 0, 8, block_size=16) == 32
    assert need(10, 5, 8, block_size=16) == need(10, 0, 8, block_size=16), "max_tokens counts committed ones"
    assert need(10, 0, 1000, block_size=16, max_model_len=40) == 48
    assert need(10, 0, 100_000, block_size=1) == 10 + ANSWER_RESERVE - 1
    assert need(10, 3000, 100_000, block_size=1) == 10 + 3000 + ANSWER_RESERVE - 1
    assert footprint(10, 100_000, block_size=1) == 100_009
    assert footprint(10, 100_000, block_size=16, max_model_len=2048) == 2048
    for prompt in (1, 7, 100):
        for tokens in (64, 100, 257):
            most = longest_answer(prompt, kv_tokens=tokens, block_size=16)
            if most > 0:
                assert (
                    footprint(prompt, most, block_size=16) <= tokens < footprint(prompt, most + 1, block_size=16) + 16
                )
    assert longest_answer(90, kv_tokens=256, block_size=16, max_model_len=100) == 10
