"""A request's logits are the same bits alone, beside others, in chunks of any size, and resumed: int8 exactly."""

from __future__ import annotations

import random

import pytest
import torch
from flash_worker import quant
from flash_worker.batch import Row
from flash_worker.models import ModelError
from flash_worker.quant import Fp32Linear, Int8Linear
from support.model_steps import feed, greedy, open_runner, pages_for, prompt
from support.tiny_models import make_tiny_checkpoint

SHAPES = {
    "three queries a key head": {"num_attention_heads": 6, "num_key_value_heads": 2},
    "one": {"num_attention_heads": 4, "num_key_value_heads": 4},
    "eight, odd sizes": {"num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 10, "hidden_size": 50,
                         "intermediate_size": 77, "vocab_size": 301},
    "wide": {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 576, "intermediate_size": 1536},
}  # fmt: skip
ENGINES = {"full": {}, "window": {"window": 24, "sink_tokens": 4}, "odd pages": {"block_size": 7, "window": 50}}


@pytest.fixture(scope="module", params=SHAPES.values(), ids=SHAPES.keys())
def checkpoint(request, tmp_path_factory):
    return make_tiny_checkpoint(tmp_path_factory.mktemp("shape"), tokenizer=False, **request.param)


def beside(runner, ids, pages, seed: int) -> torch.Tensor:
    """Decode `ids` token by token from its 20th on, each step beside up to 15 other requests in random chunks."""
    luck = random.Random(seed)
    others = [prompt(100 + i, 60, runner.vocab_size) for i in range(15)]
    homes = [pages_for(runner, 1 + i, 64) for i in range(15)]
    at, done, out = 0, [0] * 15, []
    while at < len(ids):
        size = 20 if at == 0 else 1
        rows = [Row("r", ids[at : at + size], at, pages, True)]
        for i in range(15):
            count = min(luck.choice([0, 1, 1, 1, 5, 11]), 60 - done[i])
            if count:
                rows.append(Row(f"o{i}", others[i][done[i] : done[i] + count], done[i], homes[i], luck.random() < 0.8))
                done[i] += count
        luck.shuffle(rows)
        logits = runner.step(rows)
        out.append(logits[[row.id for row in rows if row.sample].index("r")])
        at += size
    return torch.stack(out)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())
def test_int8_alone_equals_in_company(checkpoint, engine):
    runner = open_runner(checkpoint, weights="int8", **engine)
    ids, pages = prompt(1, 56, runner.vocab_size), pages_for(runner, 0, 64)
    alone = feed(runner, ids, pages, [20, 1])
    assert torch.equal(beside(runner, ids, pages, 1), alone)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())
def test_int8_in_any_chunks_cold_or_resumed(checkpoint, engine):
    runner = open_runner(checkpoint, weights="int8", **engine)
    ids, pages = prompt(2, 150, runner.vocab_size), pages_for(runner, 3, 160)
    decoded = feed(runner, ids, pages, [1])
    for chunks in ([150], [64], [7], [100, 3, 40, 1]):
        got = feed(runner, ids, pages, chunks)
        sizes = [*chunks, *[chunks[-1]] * 150]
        ends = [min(sum(sizes[: i + 1]), 150) - 1 for i in range(len(got))]
        assert torch.equal(got, decoded[ends]), chunks


@pytest.mark.parametrize("threads", [2, 3])
def test_int8_with_threads(tmp_path, threads):
    """Threads share tokens out among them; a cut inside a row would show where steps are large."""
    runner = open_runner(make_tiny_checkpoint(tmp_path, tokenizer=False, **SHAPES["wide"]), weights="int8")
    ids, pages = prompt(2, 71, runner.vocab_size), pages_for(runner, 0, 80)
    alone = feed(runner, ids, pages, [65, 1])
    torch.set_num_threads(threads)
    others = [Row(f"o{i}", prompt(i, 35, runner.vocab_size), 0, pages_for(runner, 1 + i, 80), True) for i in range(3)]
    got = [runner.step([*others, Row("r", ids[:65], 0, pages, True)])[-1]]
    got += [runner.step([Row("r", ids[i : i + 1], i, pages, True)])[0] for i in range(65, 71)]
    assert torch.equal(torch.stack(got), alone)


def test_fp32_alone_equals_in_company(checkpoint):
    runner = open_runner(checkpoint)
    ids, pages = prompt(1, 56, runner.vocab_size), pages_for(runner, 0, 64)
    alone = feed(runner, ids, pages, [20, 1])
    assert (beside(runner, ids, pages, 7) - alone).abs().max() < 1e-4
    text = greedy(runner, ids[:9], pages, 40)
    assert beside(runner, ids[:9] + text, pages, 8).argmax(-1)[:-1].tolist() == text[11:]


class TestInt8Linear:
    @pytest.fixture
    def linear(self):
        torch.manual_seed(0)
        return Int8Linear(torch.randn(96, 50) * 0.1, torch.randn(96))

    @pytest.mark.parametrize("beside", [1, 2, 15, 300])
    def test_a_neighbour_changes_nothing(self, linear, beside):
        row = torch.randn(1, 50)
        alone = linear(row)
        for scale in (1e-6, 1.0, 1e6):
            others = torch.randn(beside, 50) * scale
            others[0, 3] = 1000 * scale
            for at in (0, beside // 2, beside):
                got = linear(torch.cat((others[:at], row, others[at:])))
                assert torch.equal(got[at], alone[0])

    def test_without_the_guard_a_neighbour_would_change_it(self, linear):
        """The test above can fail: the packed kernel alone is not independent of the neighbours."""
        rows = torch.randn(2, 50)
        rows[1] *= 100
        run = torch.ops.quantized.linear_dynamic
        both, alone = run(rows, linear._packed, False), run(rows[:1], linear._packed, False)
        assert (both[0] - alone[0]).abs().max() > 1e-2

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
    def test_a_row_that_is_not_finite_spoils_only_itself(self, linear, bad):
        rows = torch.randn(4, 50)
        good = linear(rows)
        rows[2, 7] = bad
        got = linear(rows)
        assert torch.equal(got[[0, 1, 3]], good[[0, 1, 3]])
        assert not got[2].isfinite().any()

    def test_close_to_full_precision(self):
        torch.manual_seed(1)
        weight, bias = torch.randn(300, 256) * 0.05, torch.randn(300)
        rows = torch.randn(40, 256) * torch.logspace(-4, 4, 40)[:, None]
        rows[5] = 0
        exact, got = Fp32Linear(weight, bias)(rows), Int8Linear(weight, bias)(rows)
        error = (got - exact).norm(dim=1) / exact.norm(dim=1)
        assert error.max() < 0.012
        assert torch.equal(got[5], bias)

    def test_the_largest_products_do_not_saturate(self):
        rows = torch.ones(3, 512)
        rows[1] = -1
        got = Int8Linear(torch.ones(16, 512))(rows)
        assert torch.allclose(got, 512 * torch.tensor([1.0, -1.0, 1.0])[:, None].expand(3, 16), rtol=1e-4)

    def test_an_outlier_does_not_drown_its_row(self):
        """One activation a thousand times the others: one digit alone would round those to nothing."""
        torch.manual_seed(2)
        weight = torch.randn(64, 256) * 0.05
        weight[:, 9] = 0
        rows = torch.randn(8, 256)
        rows[:, 9] = 1000
        exact, got = Fp32Linear(weight)(rows), Int8Linear(weight)(rows)
        assert (got - exact).norm() / exact.norm() < 0.05

    @pytest.mark.parametrize("narrow", [False, True])
    def test_processors_with_a_narrow_product(self, monkeypatch, narrow):
        monkeypatch.setattr(quant, "_saturates", lambda: narrow)
        torch.manual_seed(3)
        weight, rows = torch.randn(40, 128), torch.randn(5, 128)
        linear = Int8Linear(weight)
        assert linear._reduce_range == narrow
        assert ((linear(rows) - rows @ weight.T).norm() / (rows @ weight.T).norm()) < 0.012
        assert torch.equal(linear(rows[2:3])[0], linear(rows)[2])

    def test_no_kernel(self, monkeypatch):
        monkeypatch.setattr(quant, "_ENGINES", ("none of these",))
        quant._choose_engine.cache_clear()
        with pytest.raises(ModelError, match=r"int8 needs torch with one of .* write weights: fp32"):
            Int8Linear(torch.ones(4, 4))
        monkeypatch.undo()
        quant._choose_engine.cache_clear()
        Int8Linear(torch.ones(4, 4))


@pytest.mark.parametrize("kind", ["fp32", "int8"])
def test_a_request_that_overflows_spoils_no_page(tmp_path, kind):
    """Its NaN must reach neither its neighbours nor who gets its pages next."""
    runner = open_runner(make_tiny_checkpoint(tmp_path, tokenizer=False), weights=kind)
    with torch.inference_mode():
        runner._weights.embedding[5] = float("nan")
    ids = [token if token != 5 else 6 for token in prompt(1, 20, runner.vocab_size)]
    pages, other = pages_for(runner, 0, 32), pages_for(runner, 1, 32)
    clean = runner.step([Row("r", ids, 0, pages, True)])[0]
    both = runner.step([Row("bad", [5] * 20, 0, other, True), Row("r", ids, 0, pages, True)])
    assert not both[0].isfinite().any()
    assert torch.allclose(both[1], clean, atol=1e-4)
    # Positions beyond 3 of those pages still hold what the bad request left.
    again = runner.step([Row("r", ids[:3], 0, other, True)])
    assert again.isfinite().all()
