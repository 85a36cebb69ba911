"""The scheduler by named scenarios. Each public pain of paged engines that it must not have has a test here."""

from __future__ import annotations

import pytest
from flash_worker.batch import FAILED_DRAW
from flash_worker.kv import AccountBroken
from flash_worker.request import NeverFits
from flash_worker.scheduler import Scheduler
from support.fake_runner import EOS, Misuse, World, alone
from support.fake_runner import make_prompt as prompt

OVERLAP = pytest.mark.parametrize("overlap", [False, True], ids=["in-turn", "overlapped"])


# Steps


@OVERLAP
def test_a_request_runs_to_its_length(overlap: bool):
    world = World(overlap=overlap)
    id = world.add(prompt(10), 7)
    world.run()
    assert world.answers[id] == world.expected(id)
    assert len(world.answers[id]) == 7
    assert world.ends[id].finish == "length"
    world.check_empty()


def test_a_long_prompt_is_computed_in_chunks_beside_decodes():
    world = World(pages=64, max_step_tokens=16)
    short = world.add(prompt(5), 30)
    world.step()
    long = world.add(prompt(60, 2), 4)
    for _ in range(4):
        before = len(world.answers[short])
        world.step()
        assert len(world.answers[short]) == before + 1, "a decode never waits for a prompt"
        assert world.steps[-1].tokens == 16, "and the prompt takes all that is left"
    assert [len(row.tokens) for row in world.steps[-1].rows] == [1, 15]
    assert len(world.answers[long]) == 1, "60 tokens are four times 15"
    world.run()


@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 5, 7, 16, 64, 500])
@OVERLAP
def test_the_answer_is_the_same_for_any_budget(chunk: int, overlap: bool):
    world = World(pages=64, max_step_tokens=chunk, overlap=overlap)
    ids = [world.add(prompt(n, n), 9) for n in (1, 4, 15, 33)]
    world.run()
    assert all(world.answers[id] == world.expected(id) for id in ids)
    world.check_empty()


@OVERLAP
def test_answers_end_at_the_models_length(overlap: bool):
    world = World(pages=16, max_model_len=20, overlap=overlap)
    id = world.add(prompt(15), 100)
    world.run()
    assert len(world.answers[id]) == 5
    assert world.ends[id].finish == "length"


@OVERLAP
def test_an_end_of_text_token_ends_the_answer_unless_it_is_ignored(overlap: bool):
    world = World(pages=64, vocab=4, overlap=overlap)
    ids = [world.add([1 + i % 3, 2, 3], 40, seed=i, ignore_eos=False) for i in range(8)]
    kept = world.add([1, 2, 3], 40, ignore_eos=True)
    world.run()
    assert {world.ends[id].finish for id in ids} == {"stop"}
    assert all(world.answers[id][-1] == EOS for id in ids)
    assert len(world.answers[kept]) == 40
    assert EOS in world.answers[kept][:-1]


@OVERLAP
def test_slots_and_budget_bound_a_step(overlap: bool):
    world = World(pages=64, max_seqs=3, max_step_tokens=8, overlap=overlap)
    for i in range(9):
        world.add(prompt(3, i), 5)
    world.run()  # World checks the bounds of every step.
    assert max(len(step.rows) for step in world.steps) == 3
    assert world.order == sorted(world.order), "equal requests end in the order of their arrival"


# Pains 1 and 2: what can never fit, and what waits for ever


def test_an_impossible_request_is_refused_with_both_numbers_and_the_next_one_runs():
    world = World(pages=4, block_size=4)
    with pytest.raises(NeverFits, match=r"needs 20 KV tokens \(prompt 10, max_tokens 8\), the pool has 16"):
        world.add(prompt(10), 8)
    assert world.scheduler.live == 0
    id = world.add(prompt(10), 7)
    world.run()
    assert world.answers[id] == world.expected(id)


@pytest.mark.parametrize("pages", [1, 2, 3, 5])
@pytest.mark.parametrize("block", [1, 3, 4])
@OVERLAP
def test_what_is_accepted_finishes_alone_in_an_empty_pool(pages: int, block: int, overlap: bool):
    refused = 0
    for length in range(1, pages * block + 3):
        for answer in range(1, pages * block + 3):
            world = World(pages=pages, block_size=block, max_step_tokens=5, overlap=overlap)
            if id := world.try_add(prompt(length), answer):
                world.run(200)
                assert len(world.answers[id]) == answer
                assert length + answer - 1 <= pages * block
            else:
                refused += 1
                assert length + answer - 1 > pages * block
    assert refused


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"prompt": []}, "empty prompt"),
        ({"prompt": [1, 50]}, "prompt has token id 50: this model's ids are 0 to 49"),
        ({"prompt": [-1]}, "prompt has token id -1"),
        ({"prompt": [1], "committed": [77]}, "committed has token id 77"),
        ({"prompt": [1], "max_tokens": 0}, "max_tokens is 0: it must be at least 1"),
        ({"prompt": [1], "max_tokens": -3}, "max_tokens is -3"),
        ({"prompt": [1] * 200}, "the prompt has 200 tokens: this worker takes 200"),
    ],
)
def test_bad_requests_are_refused_and_change_nothing(kwargs: dict[str, list[int]], message: str):
    world = World()
    with pytest.raises(ValueError, match=message):
        world.add(**kwargs)  # type: ignore[arg-type]
    assert world.scheduler.live == 0
    assert not world.step()


def test_an_id_that_is_here_already_is_refused():
    world = World()
    world.add(prompt(3), id="a")
    with pytest.raises(ValueError, match="'a' is here already"):
        world.scheduler.add(world.requests["a"])
    world.run()


@OVERLAP
def test_a_small_request_does_not_overtake_a_large_one_for_ever(overlap: bool):
    world = World(pages=8, block_size=4, max_seqs=4, overlap=overlap)
    world.add(prompt(4, 1), 20)
    large = world.add(prompt(28, 2), 4)
    added = 0
    while large not in world.ends:
        if added < 200:
            world.add(prompt(2, added + 3), 3)
            added += 1
        world.step()
    assert added < 60, "small ones kept coming, and the large one had its turn"
    world.run()


# Pains 3 and 5: aborts and steps in flight


@pytest.mark.parametrize("at", range(14))
@OVERLAP
def test_abort_at_every_step(at: int, overlap: bool):
    world = World(pages=24, max_step_tokens=7, overlap=overlap)
    victim = world.add(prompt(18), 8)
    others = [world.add(prompt(18)[:9], 8), world.add(prompt(5, 9), 8)]
    for _ in range(at):
        world.step()
    world.abort(victim)
    late = world.add(prompt(18), 8)  # Finds, or reuses, what the victim left.
    world.run()
    assert world.ends[victim].finish in ("cancelled", "length")
    assert all(world.answers[id] == world.expected(id) for id in [*others, late])
    world.check_empty()


@pytest.mark.parametrize("at", range(1, 12))
@OVERLAP
def test_abort_while_the_end_of_text_is_in_flight(at: int, overlap: bool):
    # vocab 2: half of all tokens end the text, so some `at` is exactly at each place.
    for seed in range(8):
        world = World(pages=8, vocab=2, overlap=overlap, max_step_tokens=4)
        id = world.add([1, 1, 1, 1, 1], 8, seed=seed, ignore_eos=False)
        other = world.add([1, 1, 1], 8, seed=seed)
        for _ in range(at):
            world.step()
        world.abort(id)
        world.abort(id)
        world.run()
        assert world.ends[id].finish in ("cancelled", "stop", "length")
        assert world.answers[other] == world.expected(other)
        world.check_empty()


def test_the_pages_of_an_aborted_request_wait_for_its_step():
    world = World(pages=8, overlap=True, prefix_cache=False)
    id = world.add(prompt(12), 8)
    world.step()
    world.abort(id)
    assert world.pool.account().in_flight == 3
    assert world.pool.available == 5
    world.run()
    world.check_empty()
    assert world.pool.available == 8


def test_the_world_sees_a_page_that_was_given_away_too_early(monkeypatch: pytest.MonkeyPatch):
    """The inverse: with the rule broken, the tests above would fail."""
    monkeypatch.setattr(Scheduler, "_release", lambda self, p: self.pool.release(p.lose_pages()))
    world = World(pages=8, overlap=True, prefix_cache=False)
    id = world.add(prompt(12), 8)
    world.step()
    world.abort(id)
    with pytest.raises(Misuse, match="free while a step in flight uses it"):
        world.step()


def test_the_world_sees_a_wrong_page():
    world = World(prefix_cache=False)
    world.add(prompt(12), 8)
    other = world.add(prompt(12, 5), 8)
    world.step()
    world.step()
    first, second = world.scheduler.running
    first.pages[0], second.pages[0] = second.pages[0], first.pages[0]
    with pytest.raises(AssertionError, match="wrong tokens"):
        world.run()
    assert other


def test_an_unknown_id_is_aborted_in_peace():
    world = World()
    assert not world.scheduler.abort("nobody")
    assert not world.scheduler.take()


@OVERLAP
def test_a_failed_step_ends_its_requests_only_and_leaves_nothing_to_read(overlap: bool):
    world = World(pages=32, max_seqs=2)
    victims = [world.add(prompt(10), 8), world.add(prompt(11, 3), 8)]
    bystander = world.add(prompt(10), 8)
    step = world.scheduler.schedule(0.0)
    assert step is not None
    if overlap:
        later = world.scheduler.schedule(0.0)
        assert later is not None
    world._hear(world.scheduler.fail(step, "the device said no"))
    world.check()
    if overlap:
        world._hear(world.scheduler.settle(later, [1] * len(later.draws), [0.0] * len(later.draws)))
    assert [world.ends[id].finish for id in victims] == ["error", "error"]
    assert world.ends[victims[0]].detail == "the device said no"
    assert not world.pool.match(prompt(10), ""), "what it wrote is not offered to others"
    world.run()
    assert world.answers[bystander] == world.expected(bystander)
    world.check_empty()


def test_a_draw_that_fails_ends_its_request_only_and_its_pages_are_not_offered():
    world = World(pages=32)
    bad, good = world.add(prompt(9), 8), world.add(prompt(7, 3), 8)
    world.step()
    assert world.pool.match(prompt(9), "")
    step = world.scheduler.schedule(0.0)
    assert step is not None
    ids, logprobs = world.device.draw(world.device.step(step.rows), step.draws)
    world._hear(world.scheduler.settle(step, [FAILED_DRAW, ids[1]], logprobs))
    world.check()
    assert world.ends[bad].finish == "error"
    assert "no token can be drawn" in world.ends[bad].detail
    assert not world.pool.match(prompt(9), "")
    assert world.pool.match(prompt(7, 3), "")
    world.run()
    assert world.answers[good] == world.expected(good)
    world.check_empty()


# Deadlines


@OVERLAP
def test_a_deadline_ends_a_request_running_or_waiting(overlap: bool):
    world = World(pages=16, max_seqs=1, overlap=overlap)
    running = world.add(prompt(6), 40, deadline=5.0)
    waiting = world.add(prompt(6, 2), 40, deadline=3.0)
    last = world.add(prompt(6, 3), 4)
    while world.scheduler.live:
        world.step()
        world.now += 1.0
    assert world.ends[waiting].finish == "deadline"
    assert not world.answers[waiting]
    assert world.ends[running].finish == "deadline"
    assert 0 < len(world.answers[running]) <= 5
    assert world.ends[last].finish == "length"
    world.run()
    world.check_empty()


def test_a_broken_account_is_found():
    world = World()
    world.add(prompt(9), 4)
    world.step()
    world.scheduler.running[0].pages.pop()
    with pytest.raises(AccountBroken):
        world.check()


def test_the_reference_itself_depends_on_every_token():
    world = World()
    id = world.add(prompt(12), 12)
    base = alone(world.requests[id], 50, 200)
    for i in range(12):
        other = prompt(12)
        other[i] = other[i] % 49 + 1 if other[i] != 49 else 1
        changed = world.add(other, 12)
        assert alone(world.requests[changed], 50, 200) != base
