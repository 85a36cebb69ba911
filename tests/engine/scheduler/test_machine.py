"""The scheduler under random orders of everything that can happen to it.

World checks after every step: each page is in one place, nobody overtakes, preemptions are bounded, what was given
out is the start of the answer alone, and something runs while someone waits. FLASHFLEET_SOAK_STEPS sets the length of
the long run (a million takes some minutes).
"""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.fake_runner import World

PREFIXES = [[(i * 11 + j * 3) % 19 + 1 for j in range(24)] for i in range(3)]


def make_prompt(prefix: int, shared: int, own: list[int]) -> list[int]:
    return PREFIXES[prefix][:shared] + own or [1]


class Machine(RuleBasedStateMachine):
    @initialize(
        pages=st.integers(4, 24),
        block_size=st.sampled_from([1, 2, 4]),
        max_seqs=st.integers(1, 6),
        max_step_tokens=st.sampled_from([1, 3, 8, 32]),
        overlap=st.booleans(),
        prefix_cache=st.booleans(),
        collide=st.booleans(),
    )
    def begin(
        self,
        pages: int,
        block_size: int,
        max_seqs: int,
        max_step_tokens: int,
        overlap: bool,
        prefix_cache: bool,
        collide: bool,
    ) -> None:
        self.pins = 0
        self.world = World(
            pages=pages,
            block_size=block_size,
            max_seqs=max_seqs,
            max_step_tokens=max_step_tokens,
            max_model_len=64,
            vocab=20,
            overlap=overlap,
            prefix_cache=prefix_cache,
            digest=(lambda domain, parent, tokens: bytes([(sum(tokens) + len(parent)) % 5])) if collide else None,
        )

    @rule(
        prefix=st.integers(0, 2),
        shared=st.integers(0, 24),
        own=st.lists(st.integers(0, 19), max_size=6),
        max_tokens=st.integers(1, 40),
        deadline=st.none() | st.integers(0, 12),
        domain=st.sampled_from(["", "", "a", "b"]),
        seed=st.integers(0, 3),
        ignore_eos=st.booleans(),
    )
    def add(
        self,
        prefix: int,
        shared: int,
        own: list[int],
        max_tokens: int,
        deadline: int | None,
        domain: str,
        seed: int,
        ignore_eos: bool,
    ) -> None:
        self.world.try_add(
            make_prompt(prefix, shared, own),
            max_tokens,
            deadline=None if deadline is None else self.world.now + deadline,
            domain=domain,
            seed=seed,
            ignore_eos=ignore_eos,
        )

    @rule(pick=st.integers(0, 1000), cut=st.integers(0, 40))
    def resume(self, pick: int, cut: int) -> None:
        """Another worker died at some token of a request like one of ours."""
        if self.world.requests:
            like = list(self.world.requests.values())[pick % len(self.world.requests)]
            whole = self.world.expected(like.id)
            self.world.try_add(
                like.prompt,
                like.sampling.max_tokens,
                committed=whole[: min(cut, len(whole))],
                domain=like.domain,
                seed=like.sampling.seed,
                ignore_eos=like.sampling.ignore_eos,
            )

    @rule(pick=st.integers(0, 1000))
    def abort(self, pick: int) -> None:
        live = list(self.world.scheduler._by_id)
        if live:
            self.world.abort(live[pick % len(live)])

    @rule(prefix=st.integers(0, 2), pages=st.integers(1, 4))
    def pin(self, prefix: int, pages: int) -> None:
        self.pins += 1
        size = self.world.pool.block_size
        try:
            self.world.scheduler.add_pin(f"pin{self.pins}", tuple(PREFIXES[prefix][: pages * size]))
        except ValueError:
            return

    @rule(count=st.integers(1, 12))
    def steps(self, count: int) -> None:
        for _ in range(count):
            self.world.step()

    @rule(seconds=st.integers(1, 6))
    def time_passes(self, seconds: int) -> None:
        self.world.now += seconds

    @invariant()
    def account_sums(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.run()
            self.world.check_empty()


Machine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestMachine = Machine.TestCase


@pytest.mark.parametrize("overlap", [False, True], ids=["in-turn", "overlapped"])
def test_a_long_random_run(overlap: bool):
    wanted = int(os.environ.get("FLASHFLEET_SOAK_STEPS", "12000")) // 2
    rng = random.Random(wanted + overlap)
    steps = preemptions = hits = refused = held_up = worlds = 0
    while steps < wanted:
        worlds += 1
        world = World(
            pages=rng.randint(4, 30),
            block_size=rng.choice([1, 2, 4]),
            max_seqs=rng.randint(1, 8),
            max_step_tokens=rng.choice([1, 4, 16, 64]),
            max_model_len=64,
            vocab=20,
            overlap=overlap,
            prefix_cache=rng.random() < 0.8,
        )
        for _ in range(500):
            for _ in range(rng.choice([0, 0, 0, 1, 1, 3])):
                if world.scheduler.live < 12:
                    own = [rng.randrange(20) for _ in range(rng.randint(0, 6))]
                    prompt = make_prompt(rng.randrange(3), rng.randint(0, 24), own)
                    refused += not world.try_add(
                        prompt,
                        rng.choice([1, 2, 5, 10, 40]),
                        deadline=world.now + rng.randint(0, 60) if rng.random() < 0.1 else None,
                        domain=rng.choice(["", "", "a"]),
                        seed=rng.randrange(4),
                        ignore_eos=rng.random() < 0.5,
                    )
            if world.scheduler.live and rng.random() < 0.05:
                world.abort(rng.choice(list(world.scheduler._by_id)))
            world.now += 1
            world.step()
            if len(world.ends) > 100:
                world.forget_ended()
        world.run()
        world.check_empty()
        steps += world.count
        preemptions += world.scheduler.preemptions
        hits += world.scheduler.prefix_hits
        held_up += world.held_up
    print(f"{steps} steps, {worlds} pools, {preemptions} preemptions, {held_up} times held up")
    print(f"{hits} tokens found, {refused} refused")
    assert preemptions
    assert hits
    assert refused
