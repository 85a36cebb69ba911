"""How much of a worker's KV pool a request takes: one formula for the router that admits and the worker that claims.

A page belongs to one request (shared prefixes are counted once for each), so all figures are whole pages, in tokens.
"""

from __future__ import annotations

ANSWER_RESERVE = 1024
"""Answer tokens, beyond the committed ones, that are set aside when a worker takes a request.

Answers that may be this long or shorter never preempt each other: their whole length is set aside. Longer ones set
this much aside and take more as they grow, so that `max_tokens = what is left of the context` does not empty a
worker; when several of them do grow that long, the engine preempts the youngest and computes it again.
"""


def pages(tokens: int, block_size: int) -> int:
    """Pages that hold this many tokens."""
    return -(-tokens // block_size)


def footprint(prompt: int, max_tokens: int, *, block_size: int, max_model_len: int = 0) -> int:
    """KV tokens that a request holds at its longest, in whole pages.

    prompt: tokens of the prompt. max_tokens: of the whole answer, committed tokens included. max_model_len: prompt
    and answer together; 0 is no limit. A request whose footprint is above the pool's size can never run.
    """
    total = prompt + max_tokens
    if max_model_len:
        total = min(total, max_model_len)
    # The last token drawn is never run, so it needs no place.
    return pages(max(total - 1, 1), block_size) * block_size


def need(prompt: int, committed: int, max_tokens: int, *, block_size: int, max_model_len: int = 0) -> int:
    """KV tokens that must be free for a worker to take the request: the broker's `Job.need`.

    committed: answer tokens that the client already has; max_tokens counts them too.
    """
    answer = min(max_tokens, committed + ANSWER_RESERVE)
    return footprint(prompt, answer, block_size=block_size, max_model_len=max_model_len)


def longest_answer(prompt: int, *, kv_tokens: int, block_size: int, max_model_len: int = 0) -> int:
    """The largest max_tokens whose footprint a pool of kv_tokens can hold; 0 or less: the prompt itself is too long."""
    fits = kv_tokens // block_size * block_size + 1
    if max_model_len:
        fits = min(fits, max_model_len)
    return fits - prompt
