"""The images' parts of the lock, and what their Containerfile promises."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


def part(module: Callable[[str], ModuleType], root: Path, extra: str, *without: str) -> dict[str, str]:
    """{package: its lines of the lock}"""
    subset = module("deploy/images/subset.py")
    locked = subset.blocks((root / "requirements.lock").read_text())
    import tomllib

    project = tomllib.loads((root / "pyproject.toml").read_text())
    lines = subset.subset(locked, subset.direct(project, [extra]), set(without))
    return {re.split("[=;@ ]", block, maxsplit=1)[0].lower(): block for block in lines}


@pytest.mark.parametrize(
    ("extra", "has", "lacks"),
    [
        ("operator", {"kopf", "aiohttp", "redis", "pydantic"}, {"torch", "triton", "fastapi", "pytest", "ruff"}),
        ("router", {"fastapi", "grpcio", "scikit-learn", "uvicorn"}, {"torch", "triton", "kopf", "pytest"}),
        ("worker", {"torch", "safetensors", "gguf", "numpy"}, {"kopf", "fastapi", "transformers", "pytest"}),
    ],
)
def test_an_image_gets_what_its_extra_needs_and_no_more(
    module: Callable[[str], ModuleType], root: Path, extra: str, has: set[str], lacks: set[str]
) -> None:
    packages = part(module, root, extra)
    assert has <= set(packages)
    assert not lacks & set(packages)
    assert all("--hash=sha256:" in block for block in packages.values())


@pytest.mark.parametrize("extra", ["operator", "router", "worker"])
def test_a_part_is_closed(module: Callable[[str], ModuleType], root: Path, extra: str) -> None:
    """Everything that an installed package of the part asks for is in the part too."""
    import importlib.metadata

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    packages = part(module, root, extra)
    missing = set()
    for name in packages:
        try:
            asked = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform
        for line in asked:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                needed = canonicalize_name(requirement.name)
                if needed not in packages and not needed.startswith(("nvidia-", "cuda-")):
                    missing.add((name, needed))
    assert missing == set()


def test_a_package_can_be_left_out_with_all_that_only_it_asks_for(
    module: Callable[[str], ModuleType], root: Path
) -> None:
    assert "kubernetes" in part(module, root, "operator")
    small = part(module, root, "operator", "kubernetes")
    assert not {"kubernetes", "oauthlib", "websocket-client"} & set(small)
    assert "triton" not in part(module, root, "worker", "triton")


def test_a_package_that_is_not_locked_is_named(module: Callable[[str], ModuleType], root: Path) -> None:
    subset = module("deploy/images/subset.py")
    with pytest.raises(SystemExit, match=r"lacks nothing-like-this: run `make lock`"):
        subset.subset(subset.blocks((root / "requirements.lock").read_text()), {"nothing-like-this"}, set())


def test_the_containerfile_installs_by_hash_and_runs_as_nobody(root: Path) -> None:
    text = (root / "deploy" / "images" / "Containerfile").read_text()
    installs = re.findall(r"pip install(.*)", text)
    assert installs
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)
    for target in ("operator", "router", "worker"):
        stage = re.search(rf"^FROM run AS {target}\n(.*?)(?=^FROM|\Z)", text, re.MULTILINE | re.DOTALL)
        assert stage is not None, target
        users = re.findall(r"^USER (\S+)", stage[1], re.MULTILINE)
        assert (users or ["65532:65532"])[-1] == "65532:65532"
        assert f'ENTRYPOINT ["python", "-m", "flash_{target}"]' in stage[1]
    assert re.search(r"^FROM \$\{BASE\} AS run\n(?:.*\n)*?USER 65532:65532$", text, re.MULTILINE)


def test_the_build_sees_only_what_it_needs(root: Path) -> None:
    lines = [line for line in (root / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    allowed = {line[1:] for line in lines if line.startswith("!")}
    assert all((root / path).exists() for path in allowed)
    assert not {".git", ".venv", "tests", "deploy"} & allowed
