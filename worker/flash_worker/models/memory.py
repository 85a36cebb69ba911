"""Refuses a model that cannot fit before it is allocated."""

from __future__ import annotations

from pathlib import Path

from flash_worker.models.config import ModelConfig
from flash_worker.models.errors import ModelError

_GIB = 1 << 30


def available() -> int | None:
    """Bytes that this process may still take: the smaller of the machine's and the container's; None if unknown."""
    found = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        if limit != "max":
            used = int(Path("/sys/fs/cgroup/memory.current").read_text())
            reclaimable = sum(
                int(line.split()[1])
                for line in Path("/sys/fs/cgroup/memory.stat").read_text().splitlines()
                if line.startswith("inactive_file ")
            )
            found.append(int(limit) - used + reclaimable)
    except (OSError, ValueError, IndexError):
        pass
    return min(found) if found else None


def kv_bytes_per_token(config: ModelConfig) -> int:
    """Keys and values of one token in all layers, fp32."""
    return 2 * 4 * config.layers * config.kv_heads * config.head_dim


def check(config: ModelConfig, kv_tokens: int, max_seqs: int, int8: bool, room: int | None) -> None:
    """Raises ModelError, with the setting to lower and to what, when weights and caches do not fit into `room`."""
    if room is None:
        return
    attention = config.hidden * config.head_dim * (2 * config.heads + 2 * config.kv_heads)
    linears = config.layers * (attention + 3 * config.hidden * config.intermediate)
    embeddings = config.vocab * config.hidden
    head = 0 if config.tied else embeddings
    weights = 4 * (embeddings + head + linears) if not int8 else 4 * (embeddings + head) + linears
    logits = 3 * 4 * config.vocab * max_seqs  # the logits and the sampler's two working copies
    pages = kv_tokens * kv_bytes_per_token(config)
    if weights + logits + pages <= room:
        return
    left = room - weights - logits
    if left <= 0:
        hint = "; " if int8 else "; write weights: int8, or "
        raise ModelError(
            f"the model needs {weights / _GIB:.2f} GiB for weights and {logits / _GIB:.2f} GiB for logits,"
            f" and {room / _GIB:.2f} GiB are free{hint}give the worker more memory"
        )
    raise ModelError(
        f"a KV cache of kvTokens {kv_tokens} needs {pages / _GIB:.2f} GiB beside"
        f" {weights / _GIB:.2f} GiB of weights, and {room / _GIB:.2f} GiB are free; lower kvTokens to"
        f" {left // kv_bytes_per_token(config)}"
    )
