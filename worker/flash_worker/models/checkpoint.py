"""A model's tensors by their Hugging Face names, whatever the file format."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from flash_worker.models import config as configs
from flash_worker.models.config import ModelConfig
from flash_worker.models.errors import ModelError
from flash_worker.models.gguf_file import GGUFFile

_FLOATS = {"F32", "F16", "BF16"}
_TEXT_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
_GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_GGUF_TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


class Checkpoint(Protocol):
    """An opened model."""

    config: ModelConfig
    description: str

    def tensor(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """fp32, contiguous, finite. Raises ModelError when it is missing or of another shape."""
        ...

    def rope_factors(self) -> torch.Tensor | None:
        """[head_dim/2] divisors of the rotary frequencies, where the file carries them."""
        ...

    def files(self) -> list[Path]:
        """All files that decide what the model answers, in a fixed order."""
        ...


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a .gguf file or a folder with config.json and *.safetensors. Reads headers only."""
    if path.is_dir():
        return SafetensorsFolder(path)
    if path.suffix == ".gguf":
        return GGUFCheckpoint(path)
    raise ModelError(f"{path}: is neither a folder with config.json and *.safetensors nor a .gguf file")


def revision(checkpoint: Checkpoint) -> str:
    """12 hex digits over the bytes of weights, tokenizer and template; engine settings do not change it."""
    digest = hashlib.sha256()
    for path in checkpoint.files():
        with path.open("rb") as file:
            digest.update(path.name.encode() + b"\0" + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:12]


class SafetensorsFolder:
    """config.json beside one model.safetensors, or shards listed in model.safetensors.index.json."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = configs.from_hf(_read_json(path / "config.json"), str(path / "config.json"))
        self._open: dict[str, Any] = {}
        self._shard_of = self._find_shards()
        self.description = f"{self.config.architecture}, safetensors"

    def tensor(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        shard = self._shard_of.get(name)
        if shard is None:
            raise ModelError(f"{self.path}: tensor {name} is missing")
        try:
            view = self._file(shard).get_slice(name)
            found, kind = tuple(view.get_shape()), view.get_dtype()
            _check_shape(self.path / shard, name, found, shape)
            if kind not in _FLOATS:
                raise ModelError(f"{self.path / shard}: tensor {name} has type {kind}; known: F32, F16, BF16")
            values = self._file(shard).get_tensor(name)
        except SafetensorError as error:
            raise ModelError(f"{self.path / shard}: tensor {name} cannot be read: {error}") from None
        return _finite(self.path / shard, name, values.float().contiguous())

    def rope_factors(self) -> torch.Tensor | None:
        return None

    def files(self) -> list[Path]:
        names = ["config.json", *_TEXT_FILES, *sorted(set(self._shard_of.values()))]
        return [self.path / name for name in names if (self.path / name).is_file()]

    def _find_shards(self) -> dict[str, str]:
        index = self.path / "model.safetensors.index.json"
        if index.is_file():
            weights = _read_json(index).get("weight_map")
            if not isinstance(weights, dict) or not all(isinstance(shard, str) for shard in weights.values()):
                raise ModelError(f"{index}: weight_map must map tensor names to file names")
            if any(Path(shard).name != shard for shard in weights.values()):
                raise ModelError(f"{index}: a shard lies outside the folder")
            return weights
        names = sorted(item.name for item in self.path.glob("*.safetensors"))
        if "model.safetensors" in names:
            names = ["model.safetensors"]
        if len(names) != 1:
            have = f"has {len(names)} *.safetensors files and no index" if names else "has no *.safetensors file"
            raise ModelError(
                f"{self.path}: {have}; the folder needs model.safetensors, or its shards with"
                " model.safetensors.index.json"
            )
        return dict.fromkeys(self._file(names[0]).keys(), names[0])

    def _file(self, shard: str) -> Any:
        if shard not in self._open:
            try:
                self._open[shard] = safe_open(self.path / shard, framework="pt")
            except (SafetensorError, OSError, ValueError) as error:
                raise ModelError(f"{self.path / shard}: cannot be read: {error}") from None
        return self._open[shard]


class GGUFCheckpoint:
    """One .gguf file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = GGUFFile(path)
        self.config = configs.from_gguf(self._file.fields, self._file.tensors, str(path))
        kinds = [info.kind.name for name, info in self._file.tensors.items() if name.startswith("blk.")]
        self.description = f"{self.config.architecture}, GGUF {max(set(kinds), key=kinds.count) if kinds else ''}"

    def tensor(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        there = _gguf_name(name)
        info = self._file.tensors.get(there)
        if info is None:
            raise ModelError(f"{self.path}: tensor {there} is missing")
        _check_shape(self.path, there, info.shape, shape)
        values = self._file.array(there)
        if self.config.architecture == "llama" and (".q_proj." in name or ".k_proj." in name):
            values = _halves(values, self.config.heads if ".q_proj." in name else self.config.kv_heads)
        if not values.flags.writeable or not values.flags.c_contiguous:
            values = np.array(values, order="C")
        return _finite(self.path, there, torch.from_numpy(values))

    def rope_factors(self) -> torch.Tensor | None:
        info = self._file.tensors.get("rope_freqs.weight")
        if info is None:
            return None
        _check_shape(self.path, "rope_freqs.weight", info.shape, (self.config.head_dim // 2,))
        values = torch.from_numpy(self._file.array("rope_freqs.weight").copy())
        factors = _finite(self.path, "rope_freqs.weight", values)
        if (factors <= 0).any():
            raise ModelError(f"{self.path}: rope_freqs.weight has values that are not above 0")
        return factors

    def files(self) -> list[Path]:
        return [self.path]


def _halves(values: np.ndarray, heads: int) -> np.ndarray:
    """Undo llama.cpp's row order. It stores the two halves of a head's rotary pairs interleaved; we keep halves."""
    pairs = values.reshape(heads, values.shape[0] // heads // 2, 2, *values.shape[1:])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def _gguf_name(name: str) -> str:
    stem, _, ending = name.rpartition(".")
    if stem.startswith("model.layers."):
        _, _, layer, inner = stem.split(".", 3)
        return f"blk.{layer}.{_GGUF_NAMES[inner]}.{ending}"
    return f"{_GGUF_TOP[stem]}.{ending}"


def _check_shape(where: Path, name: str, found: Iterable[int], wanted: tuple[int, ...]) -> None:
    if tuple(found) != wanted:
        raise ModelError(f"{where}: tensor {name} has shape {list(found)}; the configuration asks for {list(wanted)}")


def _finite(where: Path, name: str, values: torch.Tensor) -> torch.Tensor:
    # A sum meets every value once and keeps NaN and infinity; in fp64 finite values cannot overflow it.
    if not torch.isfinite(values.sum(dtype=torch.float64)):
        raise ModelError(f"{where}: tensor {name} holds NaN or infinity: the file is damaged")
    return values


def _read_json(path: Path) -> dict[str, Any]:
    def refuse(name: str) -> None:
        raise ModelError(f"{path}: holds {name}, which is not JSON")

    constant: Callable[[str], None] = refuse
    try:
        data = json.loads(path.read_text(encoding="utf-8"), parse_constant=constant)
    except FileNotFoundError:
        raise ModelError(f"{path}: is missing") from None
    except ModelError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: is not readable JSON: {error}") from None
    if not isinstance(data, dict):
        raise ModelError(f"{path}: must hold a JSON object")
    return data
