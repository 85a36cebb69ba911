"""Llama, Qwen2 and Qwen3 (dense) on the CPU: one pass over all tokens of a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from flash_worker.attention import Attention, PagePool, Plan
from flash_worker.batch import Row
from flash_worker.models.config import ModelConfig
from flash_worker.quant import Linear

_GRAIN = 32768
"""torch gives a further thread work from this many elements on."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one layer. `qkv` gives queries, keys and values in this order, `gate_up` gate and up."""

    attention_norm: Tensor
    qkv: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None
    o: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights. `embedding` [vocab, hidden] fp32; `head` gives logits from hidden states."""

    embedding: Tensor
    layers: list[Layer]
    norm: Tensor
    head: Linear
    rope_factors: Tensor | None


class LlamaRunner:
    """A Runner (flash_worker.batch) with fp32 activations and an fp32 page pool."""

    def __init__(self, config: ModelConfig, weights: Weights, pool: PagePool, *, window: int, sink: int,
                 max_model_len: int) -> None:  # fmt: skip
        """`max_model_len` tokens at most, prompt and answer together; positions beyond it are refused."""
        self.config, self.pool = config, pool
        self.vocab_size, self.max_model_len = config.vocab, max_model_len
        self._weights = weights
        self._attention = Attention(pool, config.heads, window, sink)
        self._positions = min(max_model_len, pool.pages * pool.block)
        self._cos, self._sin = rope_tables(config, weights.rope_factors, self._positions)

    @torch.inference_mode()
    def step(self, rows: Sequence[Row]) -> Tensor:
        """See Runner.step. Raises ValueError, before anything is written, for a row that does not fit the model."""
        if not rows:
            return torch.empty(0, self.vocab_size)
        tokens, positions = self._flatten(rows)
        plan = self._attention.plan(rows)
        cos, sin = self._cos.index_select(0, positions)[:, None], self._sin.index_select(0, positions)[:, None]
        x = self._weights.embedding.index_select(0, tokens)
        for number, layer in enumerate(self._weights.layers):
            self._attend(number, layer, x, cos, sin, plan)
            self._feed_forward(layer, x)
        last = [end - 1 for end, row in zip(_ends(rows), rows, strict=True) if row.sample]
        if not last:
            return torch.empty(0, self.vocab_size)
        x = x.index_select(0, torch.tensor(last))
        return self._weights.head(rms_norm(x, self._weights.norm, self.config.norm_eps))

    @torch.inference_mode()
    def copy_page(self, source: int, target: int) -> None:
        """See Runner.copy_page."""
        self.pool.copy(source, target)

    def _flatten(self, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
        flat: list[int] = []
        positions: list[int] = []
        for row in rows:
            end = row.start + len(row.tokens)
            if end > self._positions:
                raise ValueError(f"request {row.id}: position {end - 1} is beyond the longest, {self._positions - 1}")
            flat.extend(row.tokens)
            positions.extend(range(row.start, end))
        tokens = torch.tensor(flat, dtype=torch.int64)
        if min(flat, default=0) < 0 or max(flat, default=0) >= self.vocab_size:
            raise ValueError(f"a token id lies outside the vocabulary of {self.vocab_size}")
        return tokens, torch.tensor(positions, dtype=torch.int64)

    def _attend(self, number: int, layer: Layer, x: Tensor, cos: Tensor, sin: Tensor, plan: Plan) -> None:
        c = self.config
        tokens, rotated = x.shape[0], c.heads + c.kv_heads
        qkv = layer.qkv(rms_norm(x, layer.attention_norm, c.norm_eps)).view(tokens, rotated + c.kv_heads, c.head_dim)
        if layer.q_norm is not None and layer.k_norm is not None:
            qkv[:, : c.heads] = rms_norm(qkv[:, : c.heads], layer.q_norm, c.norm_eps)
            qkv[:, c.heads : rotated] = rms_norm(qkv[:, c.heads : rotated], layer.k_norm, c.norm_eps)
        rotate(qkv[:, :rotated], cos, sin)
        self.pool.write(number, plan.slots, qkv[:, c.heads :])
        mixed = torch.empty(tokens, c.heads, c.head_dim)
        self._attention(number, qkv[:, : c.heads], plan, mixed)
        x.add_(layer.o(mixed.view(tokens, -1)))

    def _feed_forward(self, layer: Layer, x: Tensor) -> None:
        gate_up = layer.gate_up(rms_norm(x, layer.mlp_norm, self.config.norm_eps))
        gate, up = gate_up.chunk(2, dim=1)
        for part in whole_rows(gate):
            torch.nn.functional.silu(part, inplace=True)
        x.add_(layer.down(gate.mul(up)))


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Over the last dimension."""
    return x.mul(x.square().mean(-1, keepdim=True).add_(eps).rsqrt_()).mul_(weight)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rotary positions in place: x [tokens, heads, width], tables [tokens, 1, width], sin negative in the first half.

    Separate products and a sum, so that no fused multiply-add rounds an element by where it lies.
    """
    half = x.shape[-1] // 2
    turned = torch.cat((x[..., half:], x[..., :half]), dim=-1).mul_(sin)
    x.mul_(cos).add_(turned)


def rope_tables(config: ModelConfig, factors: Tensor | None, positions: int) -> tuple[Tensor, Tensor]:
    """cos and sin, each [positions, head_dim]; sin is negated in the first half."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    frequencies = 1.0 / (config.rope_theta**exponents)
    if factors is not None:
        frequencies = frequencies / factors
    scaling = config.rope_scaling
    if scaling is not None and scaling.kind == "linear":
        frequencies = frequencies / scaling.factor
    elif scaling is not None:
        length = 2 * math.pi / frequencies
        # Wave lengths that fit the trained context often stay, long ones are stretched, between them a blend.
        share = ((scaling.original / length - scaling.low) / (scaling.high - scaling.low)).clamp(0, 1)
        frequencies = (1 - share) * frequencies / scaling.factor + share * frequencies
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), dim=1), torch.cat((-sin, sin), dim=1)


def whole_rows(x: Tensor) -> list[Tensor]:
    """Cut [tokens, width] so that torch's threads split each part between rows only.

    The exponential of an element at the ragged end of a thread's share is computed by other code than in its middle,
    so a cut inside a row would make that row's bits depend on how many rows there are.
    """
    tokens, width = x.shape
    threads = torch.get_num_threads()
    if threads == 1 or tokens * width <= _GRAIN:
        return [x]
    each = -(-_GRAIN // width)
    shared = tokens // threads * threads if tokens >= threads * each else 0
    parts = [x[:shared]] if shared else []
    small = max(1, _GRAIN // width)
    return parts + [x[at : min(at + small, tokens)] for at in range(shared, tokens, small)]


def _ends(rows: Sequence[Row]) -> list[int]:
    ends, at = [], 0
    for row in rows:
        at += len(row.tokens)
        ends.append(at)
    return ends
