"""Small random checkpoints that the worker loads: real files, made in milliseconds, the same for the same arguments."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from support.tiny_text import make_tiny_tokenizer_folder

_DEFAULTS: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 384, "hidden_size": 48,
    "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "torch_dtype": "float32",
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def make_tiny_checkpoint(path: str | os.PathLike[str], *, seed: int = 0, tokenizer: bool = True, **config: Any) -> Path:
    """Write a Llama folder (config.json, model.safetensors, a toy tokenizer) and return it.

    `config` replaces config.json's fields by name. Weights are wide enough that greedy text wanders instead of
    repeating one token, and `seed` gives another model.
    """
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    values = _DEFAULTS | config
    values.setdefault("head_dim", values["hidden_size"] // values["num_attention_heads"])
    if tokenizer:
        make_tiny_tokenizer_folder(folder, values["vocab_size"])
    (folder / "config.json").write_text(json.dumps(values, indent=1))
    save_file(random_weights(values, seed), folder / "model.safetensors")
    return folder


def random_weights(config: dict[str, Any], seed: int = 0) -> dict[str, torch.Tensor]:
    """All tensors of a Llama of this config.json, by their Hugging Face names."""
    generator = torch.Generator().manual_seed(seed)

    def matrix(outputs: int, inputs: int) -> torch.Tensor:
        return torch.randn(outputs, inputs, generator=generator) * inputs**-0.5

    def around_one(size: int) -> torch.Tensor:
        return 1 + 0.1 * torch.randn(size, generator=generator)

    hidden, inner, width = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    weights = {
        "model.embed_tokens.weight": torch.randn(config["vocab_size"], hidden, generator=generator),
        "model.norm.weight": around_one(hidden),
    }
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = 3 * matrix(config["vocab_size"], hidden)
    for number in range(config["num_hidden_layers"]):
        parts = {
            "self_attn.q_proj": 2 * matrix(heads * width, hidden),
            "self_attn.k_proj": 2 * matrix(kv_heads * width, hidden),
            "self_attn.v_proj": matrix(kv_heads * width, hidden),
            "self_attn.o_proj": matrix(hidden, heads * width),
            "mlp.gate_proj": matrix(inner, hidden),
            "mlp.up_proj": matrix(inner, hidden),
            "mlp.down_proj": matrix(hidden, inner),
            "input_layernorm": around_one(hidden),
            "post_attention_layernorm": around_one(hidden),
        }
        weights |= {f"model.layers.{number}.{name}.weight": value for name, value in parts.items()}
    return weights
