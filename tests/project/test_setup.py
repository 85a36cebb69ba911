"""The set-up that every make target does first: only when it is needed, and again when it was cut short."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest


class Checkout:
    """A copy of what the set-up reads, with installs that are counted instead of done."""

    def __init__(self, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.module = module
        self.venvs = 0
        self.installs = 0
        self.breaks = False
        monkeypatch.setattr(module, "install", self._install)
        monkeypatch.setattr(module, "make_venv", self._make_venv)
        monkeypatch.setattr(module, "venv_version", lambda: self.version)
        self.version: tuple[int, int] | None = None

    def _install(self, asked: str) -> str:
        self.installs += 1
        if self.breaks:
            raise KeyboardInterrupt
        return asked or "cpu"

    def _make_venv(self) -> None:
        self.venvs += 1
        self.version = sys.version_info[:2]
        self.module.VENV.mkdir(exist_ok=True)

    def run(self, asked: str = "", named: bool = False) -> bool:
        did: bool = self.module.set_up(asked, named)
        return did


@pytest.fixture
def setup_env(tool: Callable[[str], ModuleType]) -> ModuleType:
    return tool("setup_env")


@pytest.fixture
def checkout(setup_env: ModuleType, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    for name in setup_env.INPUTS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(root / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(setup_env, "ROOT", tmp_path)
    return Checkout(setup_env, monkeypatch)


def test_the_second_run_does_nothing(checkout: Checkout) -> None:
    assert checkout.run()
    assert not checkout.run()
    assert (checkout.venvs, checkout.installs) == (1, 1)


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-cuda.lock", "pyproject.toml"])
def test_a_changed_input_installs_into_the_same_venv(checkout: Checkout, name: str) -> None:
    checkout.run()
    with Path(name).open("a") as file:
        file.write("# changed\n")
    assert checkout.run()
    assert not checkout.run()
    assert (checkout.venvs, checkout.installs) == (1, 2)


def test_an_interrupted_install_is_done_again(checkout: Checkout) -> None:
    checkout.run()
    with Path("requirements.lock").open("a") as file:
        file.write("# changed\n")
    checkout.breaks = True
    with pytest.raises(KeyboardInterrupt):
        checkout.run()
    checkout.breaks = False
    assert checkout.run()
    assert checkout.installs == 3


def test_a_moved_checkout_gets_a_new_venv(checkout: Checkout) -> None:
    """Scripts in a venv name its path."""
    checkout.run()
    stamp = json.loads(checkout.module.STAMP.read_text())
    checkout.module.STAMP.write_text(json.dumps({**stamp, "at": "elsewhere"}))
    assert checkout.run()
    assert checkout.venvs == 2


def test_a_broken_venv_is_made_again(checkout: Checkout) -> None:
    checkout.run()
    checkout.version = None
    assert checkout.run()
    assert checkout.venvs == 2


def test_only_a_named_python_replaces_a_venv_that_works(checkout: Checkout) -> None:
    checkout.run()
    checkout.version = (3, 99)
    assert not checkout.run()
    assert checkout.run(named=True)
    assert checkout.venvs == 2


def test_a_chosen_torch_stays_until_another_is_asked_for(checkout: Checkout) -> None:
    checkout.run("cuda")
    assert not checkout.run()
    assert checkout.run("cpu")
    assert not checkout.run("cpu")


def test_an_old_python_is_told_what_to_do(
    setup_env: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(setup_env, "sys", SimpleNamespace(version_info=(3, 9, 1), executable="python3.9"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"3\.11 or newer is needed, and python3\.9 is 3\.9.*make PYTHON="):
        setup_env.check_python()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="torch has one build on macOS")
@pytest.mark.parametrize(
    ("asked", "installed", "offered", "chosen"),
    [
        ("", "", True, "cpu"),
        ("", "", False, "cuda"),
        ("", "cpu", False, "cpu"),
        ("", "cuda", True, "cuda"),
        ("cpu", "cuda", True, "cpu"),
        ("cpu", "cpu", False, "cpu"),
        ("cuda", "cpu", True, "cuda"),
    ],
)
def test_which_torch(
    setup_env: ModuleType, monkeypatch: pytest.MonkeyPatch, asked: str, installed: str, offered: bool, chosen: str
) -> None:
    monkeypatch.setattr(setup_env, "torch_installed", lambda: installed)
    monkeypatch.setattr(setup_env, "cpu_build_offered", lambda: offered)
    assert setup_env.choose_torch(asked) == chosen


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="torch has one build on macOS")
def test_a_torch_that_cannot_be_had_is_refused(
    setup_env: ModuleType, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    monkeypatch.chdir(root)
    monkeypatch.setattr(setup_env, "torch_installed", lambda: "")
    monkeypatch.setattr(setup_env, "cpu_build_offered", lambda: False)
    with pytest.raises(SystemExit, match="PIP_FIND_LINKS"):
        setup_env.choose_torch("cpu")
    with pytest.raises(SystemExit, match="neither cpu nor cuda"):
        setup_env.choose_torch("rocm")
