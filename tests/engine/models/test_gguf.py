"""GGUF files: every supported type gives the dequantised weights, in our head order."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from flash_worker.models import ModelError
from flash_worker.models.checkpoint import open_checkpoint, revision
from gguf.constants import GGMLQuantizationType as Kind
from safetensors.torch import save_file
from support.model_steps import feed, open_runner, pages_for, prompt
from support.tiny_gguf import as_config, names_of, write_tiny_gguf
from support.tiny_models import make_tiny_checkpoint, random_weights

KINDS = [Kind.F32, Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q4_1, Kind.Q8_0, Kind.Q5_0]


def as_folder(folder: Path, kind: Kind, **config) -> Path:
    """The same model as safetensors, its matrices rounded as `kind` rounds them."""
    make_tiny_checkpoint(folder, tokenizer=False, **(as_config() | config))
    weights = random_weights(as_config() | config)
    for name, value in weights.items():
        if value.dim() == 2:
            rounded = gguf.quants.dequantize(gguf.quants.quantize(value.numpy(), kind), kind)
            weights[name] = torch.from_numpy(np.array(rounded, dtype=np.float32).reshape(value.shape))
    save_file(weights, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("tied", [False, True])
def test_the_same_logits_as_the_rounded_folder(tmp_path, kind, tied):
    config = {"tie_word_embeddings": tied}
    ours = open_runner(write_tiny_gguf(tmp_path / "m.gguf", kind, **config))
    theirs = open_runner(as_folder(tmp_path / "folder", kind, **config))
    ids, pages = prompt(1, 40, ours.vocab_size), pages_for(ours, 0, 48)
    assert (feed(ours, ids, pages, [30, 1]) - feed(theirs, ids, pages, [30, 1])).abs().max() < 1e-4


def test_types_may_be_mixed(tmp_path):
    path = write_tiny_gguf(tmp_path / "m.gguf", Kind.Q4_1, special={"lm_head.weight": Kind.Q8_0})
    assert open_runner(path).step is not None
    assert "Q4_1" in open_checkpoint(path).description


def test_a_type_that_cannot_be_read_is_named(tmp_path):
    path = write_tiny_gguf(tmp_path / "m.gguf", Kind.F32)
    data = bytearray(path.read_bytes())
    at = data.index(b"blk.0.attn_q.weight") + len(b"blk.0.attn_q.weight") + 4 + 16
    data[at : at + 4] = int(Kind.I32).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(ModelError, match=r"blk\.0\.attn_q\.weight has type I32.*Q4_0, Q4_1, Q8_0, F16 or F32"):
        open_runner(path)


def test_rope_factors(tmp_path):
    """llama.cpp stores llama3's stretched rotation as divisors of the frequencies."""
    config = as_config()
    scaling = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64}  # fmt: skip
    theirs = open_runner(as_folder(tmp_path / "folder", Kind.F32, rope_scaling=scaling))
    width = config["head_dim"]
    frequencies = 1 / config["rope_theta"] ** (np.arange(0, width, 2) / width)
    lengths = 2 * np.pi / frequencies
    share = np.clip((64 / lengths - 1) / 3, 0, 1)
    factors = 1 / ((1 - share) / 4 + share)
    ours = open_runner(write_tiny_gguf(tmp_path / "m.gguf", Kind.F32, rope_factors=factors.astype(np.float32)))
    plain = open_runner(write_tiny_gguf(tmp_path / "plain.gguf", Kind.F32))
    ids, pages = prompt(1, 60, ours.vocab_size), pages_for(ours, 0, 64)
    expected = feed(theirs, ids, pages, [60])
    assert (feed(ours, ids, pages, [60]) - expected).abs().max() < 1e-3
    assert (feed(plain, ids, pages, [60]) - expected).abs().max() > 1e-2


def test_the_revision_is_of_the_content(tmp_path):
    a = write_tiny_gguf(tmp_path / "m.gguf", Kind.F32)
    first = revision(open_checkpoint(a))
    assert len(first) == 12
    assert int(first, 16) >= 0
    assert revision(open_checkpoint(a)) == first
    data = bytearray(a.read_bytes())
    data[-3] ^= 1
    a.write_bytes(data)
    assert revision(open_checkpoint(a)) != first
    folder = make_tiny_checkpoint(tmp_path / "folder")
    first = revision(open_checkpoint(folder))
    (folder / "notes.txt").write_text("not part of the model")
    assert revision(open_checkpoint(folder)) == first
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert revision(open_checkpoint(folder)) != first


def test_every_tensor_name_is_mapped():
    assert set(random_weights(as_config() | {"num_hidden_layers": 1})) == set(names_of(0))
