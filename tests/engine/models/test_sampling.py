"""Draws: the right distribution, the same token for the same (seed, position), and no neighbour matters."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from flash_worker import noise
from flash_worker.batch import FAILED_DRAW, Draw
from flash_worker.request import Sampling
from flash_worker.sampling import Sampler
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy import stats


def draw(seed=0, position=0, prompt=(), answer=(), stop_ids=(), **sampling) -> Draw:
    return Draw(Sampling(max_tokens=99, seed=seed, **sampling), position, prompt, answer, frozenset(stop_ids))


def one(logits, **settings) -> int:
    return Sampler().draw(torch.as_tensor(logits, dtype=torch.float32)[None], [draw(**settings)])[0][0]


def counts(logits, vocab, number=8000, **settings) -> np.ndarray:
    row = torch.as_tensor(logits, dtype=torch.float32)[None].expand(number, -1)
    ids, _ = Sampler().draw(row, [draw(seed=i // 40, position=i % 40, **settings) for i in range(number)])
    return np.bincount(ids, minlength=vocab)


class TestNoise:
    def test_uniform(self):
        numbers = noise.uniform(7, 3, np.arange(100_000))
        assert stats.kstest(numbers, "uniform").pvalue > 1e-3
        assert numbers.min() > 0
        assert numbers.max() < 1

    @pytest.mark.parametrize("bit", [0, 1, 5, 31, 63])
    def test_each_bit_of_the_seed_gives_other_numbers(self, bit):
        tokens = np.arange(20_000)
        a, b = noise.uniform(12345, 6, tokens), noise.uniform(12345 ^ (1 << bit), 6, tokens)
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.03

    def test_neighbours_in_position_token_and_seed_are_independent(self):
        table = np.stack([noise.uniform(9, position, np.arange(5000)) for position in range(200)])
        for a, b in ((table[1:], table[:-1]), (table[:, 1:], table[:, :-1]), (table[1:, :-1], table[:-1, 1:])):
            assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.005
        by_seed = np.stack([noise.uniform(seed, 4, np.arange(5000)) for seed in range(100)])
        assert abs(np.corrcoef(by_seed[1:].ravel(), by_seed[:-1].ravel())[0, 1]) < 0.005
        assert stats.kstest(by_seed[:, 17], "uniform").pvalue > 1e-3

    def test_the_numbers_do_not_change_between_releases(self):
        """A stream may go on with a worker of another release: these are SplitMix64's, worked out by hand."""
        mask = (1 << 64) - 1

        def mix(z):
            z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
            z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
            return z ^ z >> 31

        key = mix((mix(42) + 6 * 0x9E3779B97F4A7C15) & mask)
        expected = [((mix((key + (t + 1) * 0x9E3779B97F4A7C15) & mask) >> 11) + 0.5) * 2.0**-53 for t in range(50)]
        assert noise.uniform(42, 5, np.arange(50)).tolist() == expected

    @pytest.mark.parametrize("seed", [-1, 1 << 63, (1 << 64) + 5, 0])
    def test_any_integer_is_a_seed(self, seed):
        assert np.isfinite(noise.gumbel(noise.uniform(seed, 0, np.arange(1000)))).all()


class TestDistribution:
    LOGITS = torch.linspace(2, -2, 24)[torch.randperm(24, generator=torch.Generator().manual_seed(1))]

    def check(self, expected: torch.Tensor, **settings):
        got = counts(self.LOGITS, 24, **settings)
        inside = expected > 0
        assert not got[~inside].any()
        expected = expected[inside].double()
        assert stats.chisquare(got[inside], (expected / expected.sum() * got.sum()).numpy()).pvalue > 1e-4

    @pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
    def test_softmax(self, temperature):
        self.check((self.LOGITS / temperature).softmax(0), temperature=temperature)

    def test_top_k(self):
        kept = self.LOGITS.topk(5).values[-1] <= self.LOGITS
        self.check(self.LOGITS.softmax(0) * kept, top_k=5)

    @pytest.mark.parametrize("top_p", [0.3, 0.9])
    def test_top_p(self, top_p):
        p, order = self.LOGITS.softmax(0).sort(descending=True)
        kept = order[p.cumsum(0) - p < top_p]
        expected = torch.zeros(24)
        expected[kept] = self.LOGITS.softmax(0)[kept]
        self.check(expected, top_p=top_p)

    def test_a_large_vocabulary(self):
        """Beyond the head, tokens are reached by bounding their noise: the tail must get its share."""
        vocab = 3000
        logits = torch.zeros(vocab)
        logits[:10] = 3.0
        got = counts(logits, vocab, number=6000)
        groups = [got[:10].sum(), got[10:1500].sum(), got[1500:].sum()]
        weights = np.array([10 * math.e**3, 1490, 1500])
        assert stats.chisquare(groups, weights / weights.sum() * 6000).pvalue > 1e-4

    def test_the_bound_gives_the_same_tokens_as_the_whole_vocabulary(self):
        generator = torch.Generator().manual_seed(5)
        for position in range(200):
            logits = torch.randn(2000, generator=generator) * (0.01 if position % 2 else 2.0)
            whole = logits.numpy() - float(logits.max()) + noise.gumbel(noise.uniform(3, position, np.arange(2000)))
            assert one(logits, seed=3, position=position) == whole.argmax()


def support(logits, **settings) -> set[int]:
    return set(np.flatnonzero(counts(logits, len(logits), number=1500, **settings)).tolist())


class TestSupport:
    def test_ties_at_the_last_value_are_all_kept(self):
        assert support([5.0, 4.0, 4.0, 4.0, -9.0], top_k=2) == {0, 1, 2, 3}
        assert support([1.0] * 8, top_p=0.2) == set(range(8))

    def test_top_p_counts_within_top_k(self):
        # Of the two that top-k keeps, the first has 0.73: enough alone for 0.7, though it has less of the whole.
        logits = [2.0, 1.0, 0.9, 0.9, 0.9, 0.9]
        assert support(logits, top_k=2, top_p=0.7) == {0}
        assert support(logits, top_k=2, top_p=0.75) == {0, 1}

    def test_top_p_beyond_the_first_slice(self):
        logits = torch.zeros(700)
        logits[:690] = torch.linspace(0.1, 0.0001, 690)
        assert support(logits, top_p=0.9999, temperature=0.001) >= {0, 1}
        assert len(support(logits, top_p=0.9)) > 500

    @pytest.mark.parametrize("settings", [{"top_p": 1e-9}, {"top_k": 1}, {"temperature": 1e-30}])
    def test_only_the_best(self, settings):
        assert support([0.0, 3.0, 2.9], **settings) == {1}

    @hypothesis_settings(deadline=None)
    @given(st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=200), st.floats(0.01, 0.999),
           st.integers(0, 20), st.integers(0, 1 << 40))  # fmt: skip
    def test_within_the_sorted_reference(self, logits, top_p, top_k, seed):
        values = np.sort(np.array(logits, dtype=np.float32))[::-1].astype(np.float64)
        if top_k:
            values = values[values >= values[min(top_k, len(values)) - 1]]
        shares = np.exp(values - values[0]) / np.exp(values - values[0]).sum()
        reached = np.flatnonzero(np.cumsum(shares) >= top_p * (1 - 1e-6))
        smallest = values[reached[0]] if len(reached) else values[-1]
        got = one(logits, seed=seed, top_p=top_p, top_k=top_k)
        assert np.float32(logits[got]) >= smallest - 1e-5 or top_p > 1 - 1e-6


class TestEdits:
    def test_greedy_whatever_top_k_and_top_p_say(self):
        assert one([1.0, 3.0, 2.0], temperature=0, top_k=1, top_p=0.1) == 1

    def test_the_first_of_equals(self):
        assert one([1.0, 3.0, 3.0], temperature=0) == 1
        assert one([1.0, 3.0, 3.0], temperature=0, logit_bias={0: -1.0}) == 1

    def test_bias(self):
        assert one([1.0, 3.0, 2.0], temperature=0, logit_bias={0: 2.5}) == 0
        assert one([1.0, 3.0, 2.0], temperature=0, logit_bias={1: -100.0}) == 2

    def test_allowed(self):
        assert one([1.0, 3.0, 2.0], temperature=0, allowed_token_ids=frozenset({0, 2})) == 2
        assert support([1.0, 3.0, 2.0], allowed_token_ids=frozenset({0, 2})) == {0, 2}

    def test_ignore_eos(self):
        assert one([1.0, 3.0, 2.0], temperature=0, stop_ids={1}, ignore_eos=True) == 2
        assert one([1.0, 3.0, 2.0], temperature=0, stop_ids={1}) == 1

    def test_presence_and_frequency_count_the_answer_only(self):
        greedy = {"temperature": 0, "prompt": (1, 1, 1)}
        assert one([0.0, 3.0, 2.0], presence_penalty=2.0, **greedy) == 1
        assert one([0.0, 3.0, 2.0], answer=[1], presence_penalty=0.9, **greedy) == 1
        assert one([0.0, 3.0, 2.0], answer=[1], presence_penalty=1.1, **greedy) == 2
        assert one([0.0, 3.0, 2.0], answer=[1, 1], presence_penalty=0.9, **greedy) == 1
        assert one([0.0, 3.0, 2.0], answer=[1, 1], frequency_penalty=0.6, **greedy) == 2

    def test_repetition_counts_the_prompt_and_works_on_both_signs(self):
        assert one([0.0, 3.0, 2.0], temperature=0, prompt=(1,), repetition_penalty=2.0) == 2
        assert one([-9.0, -1.0, -1.5], temperature=0, answer=[1], repetition_penalty=2.0) == 2
        assert one([-9.0, -1.0, -1.5], temperature=0, repetition_penalty=2.0) == 1

    def test_the_logits_stay_as_they_are(self):
        logits = torch.randn(2, 50)
        before = logits.clone()
        Sampler().draw(logits, [draw(logit_bias={3: 9.0}, answer=[1], presence_penalty=1.0), draw(top_k=3)])
        assert torch.equal(logits, before)


def test_the_same_draw_at_any_batch_size():
    logits = torch.randn(12, 500, generator=torch.Generator().manual_seed(2))
    kinds = [{}, {"top_p": 0.8}, {"top_k": 7}, {"temperature": 0}, {"temperature": 0.3, "logprobs": True},
             {"presence_penalty": 1.0, "answer": [3, 4]}]  # fmt: skip
    draws = [draw(seed=i, position=i * 3, **kinds[i % 6]) for i in range(12)]
    ids, logprobs = Sampler().draw(logits, draws)
    for i in range(12):
        assert Sampler().draw(logits[i : i + 1], draws[i : i + 1]) == ([ids[i]], [logprobs[i]])
    assert len({one(logits[0], seed=1, position=p) for p in range(20)}) > 5


def test_logprobs_are_the_models():
    logits = torch.randn(2, 50)
    draws = [draw(temperature=0, logprobs=True), draw(temperature=0.5, logit_bias={7: 50.0}, logprobs=True)]
    ids, logprobs = Sampler().draw(logits, draws)
    assert ids[1] == 7
    for i in range(2):
        assert logprobs[i] == pytest.approx(float(logits[i].log_softmax(0)[ids[i]]), abs=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("settings", [{"temperature": 0}, {}, {"top_p": 0.5}, {"temperature": 0, "logit_bias": {1: 1}}])
def test_a_bad_row_fails_alone(bad, settings):
    logits = torch.randn(3, 40)
    expected = Sampler().draw(logits, [draw(**settings)] * 3)[0]
    logits[1, 20] = bad
    assert Sampler().draw(logits, [draw(**settings)] * 3)[0] == [expected[0], FAILED_DRAW, expected[2]]


def test_no_token_left_or_unknown_ids_fail_the_row_only():
    logits = torch.randn(3, 40)
    draws = [draw(allowed_token_ids=frozenset({3}), ignore_eos=True, stop_ids={3}), draw(temperature=0),
             draw(logit_bias={40: 1.0})]  # fmt: skip
    assert Sampler().draw(logits, draws)[0] == [FAILED_DRAW, int(logits[1].argmax()), FAILED_DRAW]


def test_as_many_draws_as_rows():
    with pytest.raises(ValueError, match="3 rows of logits for 1 draws"):
        Sampler().draw(torch.zeros(3, 4), [draw()])
