"""From settings to a model that runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from flash_wire import settings
from torch import Tensor

from flash_worker.attention import PagePool
from flash_worker.models import memory
from flash_worker.models.checkpoint import Checkpoint, open_checkpoint, revision
from flash_worker.models.config import ModelConfig
from flash_worker.models.errors import ModelError
from flash_worker.models.llama import Layer, LlamaRunner, Weights
from flash_worker.quant import Fp32Linear, Int8Linear, Linear
from flash_worker.source import resolve

if TYPE_CHECKING:
    from flash_wire.text import TextModel

Progress = Callable[[str, float], None]
"""Called with what is being done and the share of the load that is done, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model, ready for its first step."""

    runner: LlamaRunner
    text: TextModel
    revision: str
    """12 hex digits over weights, tokenizer and template."""
    max_model_len: int
    """Longest prompt and answer together, tokens."""
    description: str
    """One line for people."""


def load(model: settings.Model, engine: settings.Engine, *, cores: int | None = None,
         progress: Progress | None = None) -> Loaded:  # fmt: skip
    """Find, check and load a model, and allocate its page pool.

    `cores` is this worker's share of the machine, used when engine.threads is 0. Sets torch's threads for the process.
    Raises ModelError, before anything large is allocated where that can be known.
    """
    say = progress or (lambda what, share: None)
    # One thread while loading: it is many small operations, and on a busy machine threads would wait for each other.
    torch.set_num_threads(1)
    path = resolve(model.source)
    say("reading the header", 0.0)
    checkpoint = open_checkpoint(path)
    config = checkpoint.config
    longest = _longest(config, engine)
    memory.check(config, engine.kv_tokens, engine.max_seqs, engine.weights == "int8", memory.available())
    say("reading the tokenizer", 0.01)
    text = _text(path)
    if text.vocab_size > config.vocab:
        raise ModelError(
            f"{path}: the tokenizer has {text.vocab_size} tokens and the model {config.vocab}: they do not"
            " belong together"
        )
    say("hashing", 0.05)
    name = revision(checkpoint)
    with torch.inference_mode():
        weights = read_weights(checkpoint, engine.weights, say)
        runner = make_runner(config, weights, engine, longest)
    torch.set_num_threads(engine.threads or cores or os.cpu_count() or 1)
    say("loaded", 1.0)
    millions = sum(_parameters(config)) / 1e6
    profile = f"{engine.weights} weights, " + (f"window {engine.window}" if engine.window else "full attention")
    return Loaded(runner, text, name, longest, f"{path.name}: {checkpoint.description}, {millions:.0f}M, {profile}")


def make_runner(config: ModelConfig, weights: Weights, engine: settings.Engine, longest: int) -> LlamaRunner:
    """A runner with a page pool of ceil(kv_tokens / block_size) pages."""
    pages = -(-engine.kv_tokens // engine.block_size)
    pool = PagePool(config.layers, config.kv_heads, config.head_dim, pages, engine.block_size)
    return LlamaRunner(config, weights, pool, window=engine.window, sink=engine.sink_tokens, max_model_len=longest)


def read_weights(checkpoint: Checkpoint, kind: str, progress: Progress = lambda what, share: None) -> Weights:
    """All weights, the linear layers as fp32 or packed int8. One layer is held unpacked at a time."""
    c = checkpoint.config
    make: Callable[[Tensor, Tensor | None], Linear] = Int8Linear if kind == "int8" else Fp32Linear
    embedding = checkpoint.tensor("model.embed_tokens.weight", (c.vocab, c.hidden))
    layers = []
    for number in range(c.layers):
        progress(f"layer {number + 1} of {c.layers}", 0.1 + 0.85 * number / c.layers)
        layers.append(_read_layer(checkpoint, f"model.layers.{number}.", make))
    head = embedding if c.tied else checkpoint.tensor("lm_head.weight", (c.vocab, c.hidden))
    progress("output layer", 0.95)
    norm = checkpoint.tensor("model.norm.weight", (c.hidden,))
    return Weights(embedding, layers, norm, make(head, None), checkpoint.rope_factors())


def _read_layer(checkpoint: Checkpoint, prefix: str, make: Callable[[Tensor, Tensor | None], Linear]) -> Layer:
    c = checkpoint.config

    def read(name: str, *shape: int) -> Tensor:
        return checkpoint.tensor(prefix + name, shape)

    def linear(parts: list[tuple[str, int]], inputs: int, bias: bool) -> Linear:
        weights = [read(f"{name}.weight", outputs, inputs) for name, outputs in parts]
        biases = [read(f"{name}.bias", outputs) for name, outputs in parts] if bias else []
        return make(weights[0] if len(weights) == 1 else torch.cat(weights), torch.cat(biases) if biases else None)

    queries, keys = c.heads * c.head_dim, c.kv_heads * c.head_dim
    qkv = [("self_attn.q_proj", queries), ("self_attn.k_proj", keys), ("self_attn.v_proj", keys)]
    return Layer(
        attention_norm=read("input_layernorm.weight", c.hidden),
        qkv=linear(qkv, c.hidden, c.qkv_bias),
        q_norm=read("self_attn.q_norm.weight", c.head_dim) if c.qk_norm else None,
        k_norm=read("self_attn.k_norm.weight", c.head_dim) if c.qk_norm else None,
        o=linear([("self_attn.o_proj", c.hidden)], queries, c.o_bias),
        mlp_norm=read("post_attention_layernorm.weight", c.hidden),
        gate_up=linear([("mlp.gate_proj", c.intermediate), ("mlp.up_proj", c.intermediate)], c.hidden, c.mlp_bias),
        down=linear([("mlp.down_proj", c.hidden)], c.intermediate, c.mlp_bias),
    )


def _longest(config: ModelConfig, engine: settings.Engine) -> int:
    if engine.max_model_len > config.max_positions:
        raise ModelError(
            f"maxModelLen {engine.max_model_len} is more than the model's own limit"
            f" {config.max_positions}; write at most that, or 0"
        )
    return engine.max_model_len or config.max_positions


def _text(path: Path) -> TextModel:
    from flash_wire.text import TextModel

    try:
        return TextModel.from_folder(path) if path.is_dir() else TextModel.from_gguf(path)
    except (ValueError, OSError, KeyError) as error:
        raise ModelError(f"{path}: its tokenizer cannot be read: {error}") from error


def _parameters(config: ModelConfig) -> tuple[int, int]:
    attention = config.hidden * config.head_dim * 2 * (config.heads + config.kv_heads)
    layers = config.layers * (attention + 3 * config.hidden * config.intermediate)
    return layers, config.vocab * config.hidden * (1 if config.tied else 2)
