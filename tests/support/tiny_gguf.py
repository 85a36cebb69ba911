"""Tiny GGUF files of random weights, laid out as llama.cpp's converter lays them out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.constants import GGMLQuantizationType as Kind
from support.tiny_models import random_weights

_LAYER = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def names_of(layer: int) -> dict[str, str]:
    """Hugging Face names to GGUF names: those of one layer and those of no layer."""
    inside = {f"model.layers.{layer}.{name}.weight": f"blk.{layer}.{short}.weight" for name, short in _LAYER.items()}
    return inside | {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
                     "lm_head.weight": "output.weight"}  # fmt: skip


def as_config() -> dict[str, Any]:
    """config.json's fields of the model that `write_tiny_gguf` writes; all widths are multiples of a quant block."""
    return {
        "vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "head_dim": 16,
        "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "tie_word_embeddings": False,
    }  # fmt: skip


def write_tiny_gguf(path: Path, kind: Kind, *, special: dict[str, Kind] | None = None,
                    rope_factors: np.ndarray | None = None, **config: Any) -> Path:  # fmt: skip
    """A Llama of random weights (those of `random_weights`), matrices of type `kind` or as `special` says by name."""
    values = as_config() | config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(values["max_position_embeddings"])
    writer.add_embedding_length(values["hidden_size"])
    writer.add_block_count(values["num_hidden_layers"])
    writer.add_feed_forward_length(values["intermediate_size"])
    writer.add_head_count(values["num_attention_heads"])
    writer.add_head_count_kv(values["num_key_value_heads"])
    writer.add_key_length(values["head_dim"])
    writer.add_value_length(values["head_dim"])
    writer.add_layer_norm_rms_eps(values["rms_norm_eps"])
    writer.add_rope_freq_base(values["rope_theta"])
    writer.add_rope_dimension_count(values["head_dim"])
    writer.add_array("tokenizer.ggml.tokens", [f"t{i}" for i in range(values["vocab_size"])])
    if rope_factors is not None:
        writer.add_tensor("rope_freqs.weight", rope_factors)
    names = {k: v for layer in range(values["num_hidden_layers"]) for k, v in names_of(layer).items()}
    for name, weight in random_weights(values).items():
        data = weight.numpy()
        heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
        if heads:
            # The converter's order for ggml's rotation of neighbouring pairs.
            data = data.reshape(values[heads], 2, -1, data.shape[1]).swapaxes(1, 2).reshape(data.shape)
        of = (special or {}).get(name, kind) if data.ndim == 2 else Kind.F32
        writer.add_tensor(names[name], gguf.quants.quantize(np.ascontiguousarray(data), of), raw_dtype=of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
