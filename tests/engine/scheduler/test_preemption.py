"""Requests that lose their pages, and answers that go on where another worker stopped."""

from __future__ import annotations

import pytest
from support.fake_runner import EOS, World
from support.fake_runner import make_prompt as prompt

OVERLAP = pytest.mark.parametrize("overlap", [False, True], ids=["in-turn", "overlapped"])


# Pains 6 and 7: preemption


@pytest.mark.parametrize("pages", [11, 13, 16, 20, 28])
@OVERLAP
def test_answers_are_the_same_in_a_tiny_and_in_a_huge_pool(pages: int, overlap: bool):
    answers, preemptions = [], []
    for size in (pages, 4096):
        world = World(pages=size, max_seqs=8, max_step_tokens=24, overlap=overlap)
        ids = [world.add(prompt(3 + 2 * i, i), 25, seed=i) for i in range(8)]
        world.run()
        assert {world.ends[id].finish for id in ids} == {"length"}
        answers.append([world.answers[id] for id in ids])
        preemptions.append(world.scheduler.preemptions)
        world.check_empty()
    assert answers[0] == answers[1]
    assert preemptions[0] > 0, "or this shows nothing"
    assert preemptions[1] == 0


@OVERLAP
def test_preemption_takes_the_youngest_and_keeps_its_place(overlap: bool):
    world = World(pages=10, max_seqs=3, overlap=overlap, prefix_cache=False)
    ids = [world.add(prompt(8, i), 24) for i in range(3)]
    late = world.add(prompt(8, 9), 24)
    world.run()
    assert world.preempted
    assert ids[0] not in world.preempted
    assert world.order == [*ids, late]


def test_growing_answers_do_not_preempt_each_other_in_circles():
    world = World(pages=40, max_seqs=8, max_step_tokens=64, max_model_len=150, prefix_cache=False)
    ids = [world.add(prompt(10, i), 100) for i in range(8)]
    world.run()
    known = sum(len(world.requests[id].prompt) + len(world.answers[id]) for id in ids)
    assert world.scheduler.preemptions <= 16
    assert world.device.tokens_run < 2.5 * known, "recomputing must not be most of the work"


# Resume


@OVERLAP
def test_a_resumed_answer_goes_on_as_the_unbroken_one(overlap: bool):
    world = World(pages=64, overlap=overlap)
    whole = world.add(prompt(9), 20, seed=3)
    world.run()
    for cut in range(1, 20):
        id = world.add(prompt(9), 20, seed=3, committed=world.answers[whole][:cut])
        world.run()
        assert world.answers[id] == world.answers[whole]
        assert world.firsts[id].position == cut


def test_a_resume_that_is_over_ends_at_once_with_no_token():
    world = World()
    length = world.add(prompt(4), 3, committed=[5, 6, 7])
    beyond = world.add(prompt(4), 3, committed=[5, 6, 7, 8])
    stop = world.add(prompt(4), 9, committed=[5, EOS], ignore_eos=False)
    assert [world.ends[id].finish for id in (length, beyond, stop)] == ["length", "length", "stop"]
    assert [world.ends[id].position for id in (length, beyond, stop)] == [3, 4, 2]
    assert not any(world.ends[id].ids for id in (length, beyond, stop))
    assert not world.step()
    world.check_empty()
