"""What crosses the line between the engine and the rest of the worker. No torch here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Finish = Literal["stop", "length", "deadline", "cancelled", "error"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. Every field is meant: defaults were resolved by the router."""

    max_tokens: int
    """Of the whole answer, committed tokens included."""
    temperature: float = 1.0
    """0 is greedy, whatever top_k and top_p say."""
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    """Noise is a function of (seed, position, token id): the same at any batch size, preempted or resumed."""
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    logit_bias: dict[int, float] = field(default_factory=dict)
    allowed_token_ids: frozenset[int] = frozenset()
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    ignore_eos: bool = False
    logprobs: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    id: str
    prompt: tuple[int, ...]
    committed: tuple[int, ...]
    """Tokens of the answer that the client already has; the next one drawn is at position len(committed)."""
    sampling: Sampling
    deadline: float | None = None
    """time.monotonic() seconds."""
    domain: str = ""
    """Prefix pages are shared only among requests of one domain (and pinned ones with all): a tenant, an adapter."""


@dataclass(frozen=True, slots=True)
class Output:
    """What one step gave one request: tokens, the end, or both."""

    id: str
    position: int
    """Of ids[0] in the answer; with no ids, the number of tokens of the answer."""
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    finish: Finish | None = None
    detail: str = ""
    stop: str = ""
    """The stop string that matched."""
    cached_tokens: int = 0
    """Prompt tokens found in the prefix cache; meant on a request's first output."""


@dataclass(frozen=True, slots=True)
class Room:
    """What the worker can take now, and at most."""

    slots: int
    kv_tokens: int
    max_slots: int
    max_kv_tokens: int


class NeverFits(ValueError):
    """The request could not run even alone. The message has what it needs and what there is."""
