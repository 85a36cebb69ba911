"""The scheduler's use of the prefix cache, and pinned prefixes."""

from __future__ import annotations

import pytest
from support.fake_runner import World
from support.fake_runner import make_prompt as prompt

OVERLAP = pytest.mark.parametrize("overlap", [False, True], ids=["in-turn", "overlapped"])


# Pain 9: the prefix cache


@OVERLAP
def test_a_second_request_finds_the_prefix_of_the_first(overlap: bool):
    world = World(pages=32, overlap=overlap)
    shared = prompt(16)
    cold = world.add([*shared, 1, 2], 4)
    world.run()
    warm = world.add([*shared, 3, 4], 4)
    world.run()
    again = world.add([*shared, 1, 2], 4)
    world.run()
    assert [world.firsts[id].cached_tokens for id in (cold, warm, again)] == [0, 16, 16]
    assert world.answers[again] == world.answers[cold]
    assert world.scheduler.prefix_hits == 32
    assert world.scheduler.prefix_queries == 3 * 18


def test_an_answer_is_found_as_the_start_of_the_next_prompt():
    world = World(pages=32)
    first = world.add(prompt(10), 10)
    world.run()
    second = world.add([*prompt(10), *world.answers[first], 5], 4)
    world.run()
    assert world.firsts[second].cached_tokens == 16, "19 tokens were computed: 4 pages of 4 are full"


def test_a_page_is_offered_only_when_the_step_that_fills_it_has_settled():
    world = World(pages=32, max_step_tokens=8)
    world.add(prompt(20), 4)
    first, second = world.scheduler.schedule(0.0), world.scheduler.schedule(0.0)
    assert first is not None
    assert second is not None
    assert not world.pool.match(prompt(20), "")
    world.scheduler.settle(first, [], [])
    assert len(world.pool.match(prompt(20), "")) == 2
    world.scheduler.settle(second, [], [])
    assert len(world.pool.match(prompt(20), "")) == 4


def test_requests_of_another_domain_find_nothing():
    world = World(pages=64)
    shared = prompt(17)
    found = {}
    for domain in ("a", "a", "b", "b", ""):
        id = world.add(shared, 4, domain=domain)
        world.run()
        found.setdefault(domain, []).append(world.firsts[id].cached_tokens)
    assert found == {"a": [0, 16], "b": [0, 16], "": [0]}


@OVERLAP
def test_forced_collisions_give_right_answers(overlap: bool):
    world = World(pages=24, overlap=overlap, digest=lambda domain, parent, tokens: bytes([sum(tokens) % 3]))
    for round in range(3):
        for i in range(6):
            world.add(prompt(13, i), 5, domain="ab"[round % 2])
    world.run()
    world.check_empty()
    assert world.scheduler.prefix_hits > 0, "or this shows nothing"


def test_without_the_cache_nothing_is_found_or_kept():
    world = World(prefix_cache=False)
    for _ in range(2):
        id = world.add(prompt(16), 4)
        world.run()
        assert world.firsts[id].cached_tokens == 0
    assert world.pool.account().cached == 0


# Pins


@OVERLAP
def test_a_pinned_prefix_survives_everything_and_is_found_by_all(overlap: bool):
    world = World(pages=24, overlap=overlap)
    shared = prompt(16)
    world.scheduler.add_pin("pin", tuple(shared))
    world.run()
    assert world.pool.pinned == 4
    for i in range(6):
        world.add(prompt(70, i + 2), 8)  # Takes all the rest of the pool.
        world.run()
    for domain in ("a", "b"):
        id = world.add([*shared, 1], 4, domain=domain)
        world.run()
        assert world.firsts[id].cached_tokens == 16
    id = world.add([*shared, *prompt(8, 5), 1], 4, domain="a")
    world.run()
    id = world.add([*shared, *prompt(8, 5), 2], 4, domain="a")
    world.run()
    assert world.firsts[id].cached_tokens == 24, "a domain's own pages go on where the pinned ones end"
    id = world.add([*shared, *prompt(8, 5), 2], 4, domain="b")
    world.run()
    assert world.firsts[id].cached_tokens == 16
    world.check_empty()


def test_pins_take_half_of_the_pool_at_most_and_leave_what_is_running_its_room():
    world = World(pages=16)
    with pytest.raises(ValueError, match="pinned prefixes may take half of the KV pool"):
        world.scheduler.add_pin("pin", tuple(prompt(36)))
    id = world.add(prompt(50), 8)
    with pytest.raises(ValueError, match="a request that needs 15 pages is running"):
        world.scheduler.add_pin("pin", tuple(prompt(8)))
    world.scheduler.abort(id)
    world._hear(world.scheduler.take())
    world.scheduler.add_pin("pin", tuple(prompt(8)))
    late = world.add(prompt(50), 8)  # Comes between: it was promised the whole pool.
    outputs = []
    while world.scheduler.live:
        step = world.scheduler.schedule(0.0)
        assert step is not None
        ids, logprobs = world.device.draw(world.device.step(step.rows), step.draws)
        outputs += world.scheduler.settle(step, ids, logprobs)
        world.check()
    ends = {output.id: output for output in outputs if output.finish}
    assert ends["pin"].finish == "error"
    assert ends[late].finish == "length"
    assert world.pool.pinned == 0
