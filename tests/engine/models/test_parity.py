"""The same logits as transformers gives, for any head layout, file layout, chunk size and company."""

from __future__ import annotations

import pytest
import torch
from flash_worker.batch import Row
from support.model_steps import feed, greedy, open_runner, pages_for, prompt

BASE = {
    "vocab_size": 97, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "max_position_embeddings": 512, "tie_word_embeddings": False,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}  # fmt: skip
CASES = {
    "one key head each": {},
    "three queries a key head, tied": {
        "num_attention_heads": 6, "num_key_value_heads": 2, "tie_word_embeddings": True, "vocab_size": 131},
    "eight queries a key head, wide heads": {"num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 24},
    "odd sizes": {"hidden_size": 50, "intermediate_size": 77, "num_attention_heads": 5, "num_key_value_heads": 5,
                  "head_dim": 14, "vocab_size": 101},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "llama3 rope": {"rope_parameters": LLAMA3},
    "linear rope": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}},
    "qwen2": {"kind": "Qwen2", "num_key_value_heads": 2},
    "qwen3": {"kind": "Qwen3", "num_key_value_heads": 2, "head_dim": 16},
    "sharded": {"shards": True},
    "bf16": {"dtype": torch.bfloat16},
    "fp16": {"dtype": torch.float16},
}  # fmt: skip


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES.keys())
def pair(request, tmp_path_factory):
    """A transformers model and our runner over the folder that it saved."""
    import transformers

    options = BASE | request.param
    kind, shards = options.pop("kind", "Llama"), options.pop("shards", False)
    dtype = options.pop("dtype", torch.float32)
    torch.manual_seed(3)
    config = getattr(transformers, f"{kind}Config")(**options)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            # Wide enough that a wrong rotation, head order or bias shows.
            weight.copy_(torch.randn_like(weight) * (0.2 if weight.dim() > 1 else 0.5) + ("norm" in name))
    model = model.to(dtype)
    folder = tmp_path_factory.mktemp("saved")
    model.save_pretrained(folder, max_shard_size="40KB" if shards else "1GB")
    assert (folder / "model.safetensors.index.json").exists() == shards
    saved = type(model).from_pretrained(folder, dtype=torch.float32).eval()
    return saved, open_runner(folder)


def reference(model, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0]


@pytest.mark.parametrize("chunks", [[40], [1], [7], [16, 1], [31, 9], [3, 30, 2]])
def test_prefill_and_decode_in_any_chunks(pair, chunks):
    model, runner = pair
    ids = prompt(1, 40, runner.vocab_size)
    expected = reference(model, ids)
    ours = feed(runner, ids, pages_for(runner, 0, 40), chunks)
    sizes = [*chunks, *[chunks[-1]] * 40]
    ends = [min(sum(sizes[: i + 1]), 40) - 1 for i in range(len(ours))]
    assert (ours - expected[ends]).abs().max() < 1e-3


def test_a_mixed_batch_of_chunks_and_decodes(pair):
    model, runner = pair
    lengths = [1, 2, 17, 33, 50, 5]
    requests = [prompt(10 + i, length, runner.vocab_size) for i, length in enumerate(lengths)]
    references = [reference(model, ids) for ids in requests]
    pages = [pages_for(runner, i, 64) for i in range(len(lengths))]
    done = [0] * len(lengths)
    checked = 0
    for step in range(60):
        sizes = [min((1, 3, 16, 7, 1, 2)[(i + step) % 6], len(ids) - at) for i, (ids, at) in
                 enumerate(zip(requests, done, strict=True))]  # fmt: skip
        rows = [Row(str(i), ids[at : at + size], at, pages[i], (i + step) % 3 != 0)
                for i, (ids, at, size) in enumerate(zip(requests, done, sizes, strict=True)) if size]  # fmt: skip
        if not rows:
            break
        logits = runner.step(rows)
        sampled = [row for row in rows if row.sample]
        assert len(logits) == len(sampled)
        for row, got in zip(sampled, logits, strict=True):
            expected = references[int(row.id)][row.start + len(row.tokens) - 1]
            assert (got - expected).abs().max() < 1e-3
            checked += 1
        done = [at + size for at, size in zip(done, sizes, strict=True)]
    assert done == lengths
    assert checked > 12


def test_greedy_text(pair):
    model, runner = pair
    ids = prompt(5, 12, runner.vocab_size)
    known = list(ids)
    for _ in range(16):
        known.append(int(reference(model, known)[-1].argmax()))
    assert greedy(runner, ids, pages_for(runner, 0, 32), 16) == known[12:]
