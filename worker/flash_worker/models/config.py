"""The shape of a Llama-like model, from config.json or from GGUF metadata."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from flash_worker.models.errors import ModelError

_ARCHITECTURES: Final = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}
_LARGEST: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Stretches the rotary wave lengths: `linear` all by factor, `llama3` the long ones."""

    kind: str
    factor: float
    low: float = 1.0
    high: float = 4.0
    original: float = 8192.0
    """Tokens of the context that the model was trained with before it was stretched."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes in elements. Every value was checked to be finite and possible."""

    architecture: str
    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    max_positions: int
    norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    tied: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool

    @property
    def group(self) -> int:
        """Query heads that share one key and value head."""
        return self.heads // self.kv_heads


class _Reader:
    """Typed look-ups that name the field and the file when a value is missing or absurd."""

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self.data, self.where = data, where

    def size(self, name: str, default: int | None = None) -> int:
        value = self.data.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            value = value[0]  # GGUF may give one value for each layer
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LARGEST:
            raise ModelError(f"{self.where}: {name} is {value!r}; it must be a whole number from 1 to {_LARGEST}")
        return value

    def real(self, name: str, default: float) -> float:
        value = self.data.get(name)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            raise ModelError(f"{self.where}: {name} is {value!r}; it must be a finite number above 0")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.data.get(name, default)
        if not isinstance(value, bool):
            raise ModelError(f"{self.where}: {name} is {value!r}; it must be true or false")
        return value

    def mapping(self, name: str) -> Mapping[str, Any]:
        value = self.data.get(name) or {}
        if not isinstance(value, dict):
            raise ModelError(f"{self.where}: {name} is {value!r}; it must be a mapping")
        return value


def from_hf(data: Mapping[str, Any], where: str) -> ModelConfig:
    """From a parsed config.json. Raises ModelError for an unknown architecture or a value that cannot be."""
    names = data.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    if not isinstance(name, str) or name not in _ARCHITECTURES:
        raise ModelError(f"{where}: architecture {name!r} is not known here; known: {', '.join(_ARCHITECTURES)}")
    kind, read = _ARCHITECTURES[name], _Reader(data, where)
    activation = data.get("hidden_act", "silu")
    if activation != "silu":
        raise ModelError(f"{where}: hidden_act {activation!r} is not known here; known: silu")
    if data.get("use_sliding_window"):
        raise ModelError(f"{where}: use_sliding_window is not supported; set it to false and give engine.window")
    # Newer files keep theta beside the scaling in rope_parameters; older ones have rope_theta and rope_scaling.
    rope = _Reader(read.mapping("rope_parameters") or read.mapping("rope_scaling"), f"{where}: rope_scaling")
    theta = rope.real("rope_theta", read.real("rope_theta", 10000.0))
    if rope.data.get("partial_rotary_factor", data.get("partial_rotary_factor", 1.0)) != 1.0:
        raise ModelError(f"{where}: partial_rotary_factor is not supported")
    attention_bias = read.flag("attention_bias", False)
    heads, hidden = read.size("num_attention_heads"), read.size("hidden_size")
    return _checked(ModelConfig(
        architecture=kind, vocab=read.size("vocab_size"), hidden=hidden, layers=read.size("num_hidden_layers"),
        heads=heads, kv_heads=read.size("num_key_value_heads", heads),
        head_dim=read.size("head_dim", max(1, hidden // heads)),
        intermediate=read.size("intermediate_size"), max_positions=read.size("max_position_embeddings", 2048),
        norm_eps=read.real("rms_norm_eps", 1e-6), rope_theta=theta, rope_scaling=_rope_scaling(rope),
        tied=read.flag("tie_word_embeddings", False), qkv_bias=attention_bias or kind == "qwen2",
        o_bias=attention_bias and kind != "qwen2", mlp_bias=read.flag("mlp_bias", False), qk_norm=kind == "qwen3",
    ), where)  # fmt: skip


def _rope_scaling(rope: _Reader) -> RopeScaling | None:
    kind = rope.data.get("rope_type") or rope.data.get("type") or "default"
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling("linear", rope.real("factor", 1.0))
    if kind != "llama3":
        raise ModelError(f"{rope.where}: type {kind!r} is not known here; known: default, linear, llama3")
    scaling = RopeScaling(
        "llama3",
        rope.real("factor", 1.0),
        rope.real("low_freq_factor", 1.0),
        rope.real("high_freq_factor", 4.0),
        rope.real("original_max_position_embeddings", 8192.0),
    )
    if scaling.high <= scaling.low:
        raise ModelError(f"{rope.where}: high_freq_factor must be above low_freq_factor")
    return scaling


def from_gguf(fields: Mapping[str, Any], tensors: Mapping[str, Any], where: str) -> ModelConfig:
    """From GGUF metadata; what the file does not say (vocabulary, biases, tying) is read from its tensors."""
    kind = fields.get("general.architecture")
    if not isinstance(kind, str) or kind not in _ARCHITECTURES.values():
        raise ModelError(
            f"{where}: architecture {kind!r} is not known here; known: {', '.join(_ARCHITECTURES.values())}"
        )
    read = _Reader({name.removeprefix(f"{kind}."): value for name, value in fields.items()}, where)
    if read.data.get("expert_count"):
        raise ModelError(f"{where}: mixture-of-experts models are not supported")
    if "token_embd.weight" not in tensors:
        raise ModelError(f"{where}: tensor token_embd.weight is missing")
    heads, hidden = read.size("attention.head_count"), read.size("embedding_length")
    head_dim = read.size("attention.key_length", max(1, hidden // heads))
    if read.size("attention.value_length", head_dim) != head_dim:
        raise ModelError(f"{where}: keys and values of different widths are not supported")
    if read.size("rope.dimension_count", head_dim) != head_dim:
        raise ModelError(f"{where}: rope.dimension_count differs from the head width {head_dim}: not supported")
    scaling = read.data.get("rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        raise ModelError(f"{where}: rope.scaling.type {scaling!r} is not known here; known: none, linear")
    return _checked(ModelConfig(
        architecture=kind, vocab=tensors["token_embd.weight"].shape[0], hidden=hidden,
        layers=read.size("block_count"), heads=heads, kv_heads=read.size("attention.head_count_kv", heads),
        head_dim=head_dim, intermediate=read.size("feed_forward_length"),
        max_positions=read.size("context_length"), norm_eps=read.real("attention.layer_norm_rms_epsilon", 1e-6),
        rope_theta=read.real("rope.freq_base", 10000.0),
        rope_scaling=RopeScaling("linear", read.real("rope.scaling.factor", 1.0)) if scaling == "linear" else None,
        tied="output.weight" not in tensors, qkv_bias="blk.0.attn_q.bias" in tensors,
        o_bias="blk.0.attn_output.bias" in tensors, mlp_bias="blk.0.ffn_gate.bias" in tensors,
        qk_norm="blk.0.attn_q_norm.weight" in tensors,
    ), where)  # fmt: skip


def _checked(config: ModelConfig, where: str) -> ModelConfig:
    if config.heads % config.kv_heads:
        raise ModelError(f"{where}: {config.heads} query heads cannot share {config.kv_heads} key heads evenly")
    if config.head_dim % 2:
        raise ModelError(f"{where}: head_dim is {config.head_dim}; rotary positions need an even width")
    if config.layers > 10_000 or config.heads * config.head_dim > _LARGEST:
        raise ModelError(f"{where}: {config.layers} layers of {config.heads} heads of {config.head_dim} is not a model")
    return config
