"""A damaged or foreign model is a ModelError with a reason, never a crash, a hang or a large allocation."""

from __future__ import annotations

import json
import random
import struct
import tracemalloc

import pytest
import torch
from flash_wire.settings import Engine, Model
from flash_worker.models import ModelError, load, memory
from flash_worker.models.checkpoint import open_checkpoint
from flash_worker.models.loading import read_weights
from gguf.constants import GGMLQuantizationType as Kind
from safetensors.torch import load_file, save_file
from support.tiny_gguf import write_tiny_gguf
from support.tiny_models import make_tiny_checkpoint


def try_to_read(path) -> str:
    """ "" where it loads, else the reason."""
    try:
        with torch.inference_mode():
            read_weights(open_checkpoint(path), "fp32")
    except ModelError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def gguf_bytes(tmp_path_factory):
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "m.gguf", Kind.Q4_1, num_hidden_layers=1).read_bytes()


def header_size(data: bytes) -> int:
    return data.rindex(b"weight") + 64


class TestGGUF:
    @pytest.mark.parametrize("seed", range(20))
    def test_mutations(self, tmp_path, gguf_bytes, seed):
        """Twelve damaged files a seed: bytes and lengths in the header overwritten, cut, repeated."""
        luck, refused = random.Random(seed), 0
        tracemalloc.start()
        for _ in range(12):
            data = bytearray(gguf_bytes)
            end = header_size(gguf_bytes)
            for _ in range(luck.randint(1, 4)):
                at = luck.randrange(end)
                kind = luck.randrange(5)
                if kind == 0:
                    data[at] = luck.randrange(256)
                elif kind == 1:
                    data[at : at + 8] = struct.pack(
                        "<Q", luck.choice([0, 1, 1 << 31, 1 << 40, (1 << 63) + 5, 2**64 - 1])
                    )
                elif kind == 2:
                    data[at : at + 4] = struct.pack("<f", luck.choice([float("nan"), float("inf"), -1.0, 1e30, 0.0]))
                elif kind == 3:
                    del data[at : at + luck.randint(1, 64)]
                else:
                    del data[luck.randrange(len(data)) :]
            path = tmp_path / "m.gguf"
            path.write_bytes(data or b"x")
            refused += bool(try_to_read(path))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert refused >= 4
        assert peak < 50e6

    @pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9, 0.999])
    def test_cut_short(self, tmp_path, gguf_bytes, share):
        path = tmp_path / "m.gguf"
        path.write_bytes(gguf_bytes[: int(len(gguf_bytes) * share)])
        reason = try_to_read(path)
        assert "cut short" in reason or "not a GGUF" in reason or "cannot be read" in reason

    def test_nan_in_a_block_scale(self, tmp_path, gguf_bytes):
        path = tmp_path / "m.gguf"
        path.write_bytes(gguf_bytes[: header_size(gguf_bytes)] + b"\xff" * (len(gguf_bytes) - header_size(gguf_bytes)))
        assert "NaN or infinity" in try_to_read(path)

    def test_a_field_of_billions(self, tmp_path):
        path = tmp_path / "m.gguf"
        path.write_bytes(
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"a" + struct.pack("<IIQ", 9, 4, 1 << 60)
        )
        assert "ends inside its header" in try_to_read(path)

    def test_other_architectures(self, tmp_path, gguf_bytes):
        path = tmp_path / "m.gguf"
        path.write_bytes(gguf_bytes.replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0mamba", 1))
        assert "'mamba' is not known here; known: llama, qwen2, qwen3" in try_to_read(path)


@pytest.fixture
def folder(tmp_path):
    return make_tiny_checkpoint(tmp_path / "model", num_hidden_layers=1)


def edit(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


class TestFolder:
    @pytest.mark.parametrize(
        ("changes", "why"),
        [
            ({"architectures": ["MambaForCausalLM"]}, "'MambaForCausalLM' is not known here; known: LlamaForCausalLM"),
            ({"architectures": None}, "not known here"),
            ({"hidden_size": 0}, "hidden_size is 0"),
            ({"hidden_size": -48}, "hidden_size is -48"),
            ({"hidden_size": 48.5}, "hidden_size is 48.5"),
            ({"hidden_size": "48"}, "hidden_size is '48'"),
            ({"hidden_size": 96}, "tensor model.embed_tokens.weight has shape"),
            ({"num_hidden_layers": 2}, "tensor model.layers.1.*is missing"),
            ({"num_hidden_layers": 10**7}, "is not a model"),
            ({"num_hidden_layers": 10**30}, "whole number"),
            ({"num_attention_heads": 5}, "cannot share"),
            ({"num_key_value_heads": 4}, "cannot share"),
            ({"head_dim": 7}, "even width"),
            ({"rms_norm_eps": float("nan")}, "NaN, which is not JSON"),
            ({"rope_theta": float("inf")}, "Infinity, which is not JSON"),
            ({"rope_theta": -1.0}, "rope_theta is -1.0"),
            ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, "'yarn' is not known here"),
            ({"rope_scaling": {"type": "linear", "factor": 0}}, "factor is 0"),
            ({"rope_scaling": 3}, "must be a mapping"),
            ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
            ({"attention_bias": True}, "q_proj.bias is missing"),
            ({"tie_word_embeddings": "yes"}, "must be true or false"),
        ],
    )
    def test_config(self, folder, changes, why):
        edit(folder, **changes)
        with pytest.raises(ModelError, match=why.replace("(", r"\(")), torch.inference_mode():
            read_weights(open_checkpoint(folder), "fp32")

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"a": ' * 5000, "\xff"])
    def test_config_that_is_no_json(self, folder, text):
        (folder / "config.json").write_bytes(text.encode("latin-1"))
        assert "config.json" in try_to_read(folder)

    def test_missing_files(self, tmp_path, folder):
        (tmp_path / "empty").mkdir()
        assert "config.json: is missing" in try_to_read(tmp_path / "empty")
        (folder / "model.safetensors").unlink()
        assert "no *.safetensors file" in try_to_read(folder)

    def test_missing_shard_and_shard_outside(self, folder):
        index = folder / "model.safetensors.index.json"
        names = load_file(folder / "model.safetensors")
        index.write_text(json.dumps({"weight_map": dict.fromkeys(names, "model-2.safetensors")}))
        assert "model-2.safetensors: cannot be read" in try_to_read(folder)
        index.write_text(json.dumps({"weight_map": dict.fromkeys(names, "../model.safetensors")}))
        assert "outside the folder" in try_to_read(folder)

    def test_tensors(self, folder):
        path = folder / "model.safetensors"
        good = load_file(path)
        for change, why in (
            ({"model.norm.weight": torch.ones(47)}, r"shape \[47\]; the configuration asks for \[48\]"),
            ({"model.norm.weight": torch.ones(48, dtype=torch.int64)}, "type I64"),
            ({"model.norm.weight": torch.full((48,), float("nan"))}, "NaN or infinity"),
        ):
            save_file(good | change, path)
            with pytest.raises(ModelError, match=why):
                read_weights(open_checkpoint(folder), "fp32")

    @pytest.mark.parametrize("seed", range(5))
    def test_mutations(self, folder, seed):
        luck = random.Random(seed)
        path = folder / "model.safetensors"
        good = path.read_bytes()
        header = struct.unpack("<Q", good[:8])[0]
        for _ in range(10):
            data = bytearray(good)
            for _ in range(3):
                data[luck.randrange(header)] = luck.randrange(256)
            path.write_bytes(data[: luck.choice([len(data), luck.randrange(len(data))])])
            try_to_read(folder)  # a ModelError or a model: anything else fails the test


class TestLoad:
    def load(self, folder, **engine):
        return load(Model(source=f"file://{folder}"), Engine(**({"kv_tokens": 256} | engine)), cores=1)

    def test_loads(self, folder):
        seen = []
        loaded = load(Model(source=f"file://{folder}"), Engine(kv_tokens=256, max_model_len=100), cores=1,
                      progress=lambda what, share: seen.append((what, share)))  # fmt: skip
        assert loaded.max_model_len == loaded.runner.max_model_len == 100
        assert loaded.text.vocab_size == loaded.runner.vocab_size == 384
        assert len(loaded.revision) == 12
        assert [share for _, share in seen] == sorted(share for _, share in seen)
        assert seen[-1] == ("loaded", 1.0)

    def test_settings_do_not_change_the_revision(self, folder):
        assert self.load(folder).revision == self.load(folder, weights="int8", window=64).revision

    def test_too_long(self, folder):
        with pytest.raises(ModelError, match="maxModelLen 4096 is more than the model's own limit 2048"):
            self.load(folder, max_model_len=4096)

    def test_a_vocabulary_that_is_too_large(self, tmp_path):
        folder = make_tiny_checkpoint(tmp_path / "a", vocab_size=384)
        make_tiny_checkpoint(folder, vocab_size=300, tokenizer=False)
        with pytest.raises(ModelError, match="384 tokens and the model 300"):
            self.load(folder)

    def test_no_tokenizer(self, tmp_path):
        folder = make_tiny_checkpoint(tmp_path / "a", tokenizer=False)
        with pytest.raises(ModelError, match="tokenizer"):
            self.load(folder)

    def test_a_cache_that_does_not_fit(self, folder, monkeypatch):
        config = open_checkpoint(folder).config
        monkeypatch.setattr(memory, "available", lambda: 10_000_000)
        per_token = memory.kv_bytes_per_token(config)
        with pytest.raises(ModelError, match=r"kvTokens 1000000 needs .* lower kvTokens to (\d+)") as caught:
            self.load(folder, kv_tokens=1_000_000)
        suggested = int(str(caught.value).split()[-1])
        assert 256 < suggested < 10_000_000 / per_token
        self.load(folder, kv_tokens=suggested)

    def test_weights_that_do_not_fit(self, folder, monkeypatch):
        monkeypatch.setattr(memory, "available", lambda: 100_000)
        with pytest.raises(ModelError, match="write weights: int8, or give the worker more memory"):
            self.load(folder)
