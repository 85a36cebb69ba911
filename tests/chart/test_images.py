"""The images' parts of the lock, and what their Containerfile promises."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def part(module: Callable[[str], ModuleType], root: Path, extra: str, *without: str) -> dict[str, str]:
    """{package: its lines of the lock}"""
    subset = module("deploy/images/subset.py")
    locked = subset.blocks((root / "requirements.lock").read_text())
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


@pytest.mark.parametrize(("room", "without"), [("operator", ("kubernetes",)), ("router", ()), ("worker", ("triton",))])
def test_a_part_holds_all_that_its_room_imports(
    module: Callable[[str], ModuleType], root: Path, room: str, without: tuple[str, ...]
) -> None:
    """Imports inside of functions are left out: those are for what may be absent."""
    packages = part(module, root, room, *without)
    owners = importlib.metadata.packages_distributions()
    lacking = set()
    for path in [*(root / room).rglob("*.py"), *(root / "proto" / "flash_wire").rglob("*.py")]:
        for name in _imported(path):
            sellers = {canonicalize_name(owner) for owner in owners.get(name, [])}
            if name not in sys.stdlib_module_names and not name.startswith("flash_") and not sellers & set(packages):
                lacking.add((path.name, name))
    assert lacking == set()


def _imported(path: Path) -> Iterator[str]:
    """Top-level names that the file imports when it is imported itself."""
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Try) and not (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        ):
            waiting += ast.iter_child_nodes(node)


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
