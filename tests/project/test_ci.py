"""The scripts around the tests: what CI runs, and what is said where Redis cannot be had."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

FAKE_MAKE = """#!/bin/sh
echo "fake $1: redis=$FLASHFLEET_REQUIRE_REDIS links=$PIP_FIND_LINKS constraint=$PIP_CONSTRAINT"
[ "$1" != "$FAILS" ]
"""


def run_ci(root: Path, tmp_path: Path, *, fails: str = "", wheels: bool = False) -> subprocess.CompletedProcess[str]:
    checkout, fakes = tmp_path / "a checkout", tmp_path / "bin"
    (checkout / ".ci").mkdir(parents=True)
    fakes.mkdir()
    shutil.copy(root / ".ci" / "run", checkout / ".ci")
    (fakes / "make").write_text(FAKE_MAKE)
    (fakes / "make").chmod(0o755)
    if wheels:
        (tmp_path / "shared" / "wheels").mkdir(parents=True)
        (tmp_path / "shared" / "constraints.txt").touch()
    environment = {"PATH": f"{fakes}:{os.environ['PATH']}", "FAILS": fails, "PIP_FIND_LINKS": "mine"}
    return subprocess.run(
        ["bash", str(checkout / ".ci" / "run")], env=environment, capture_output=True, text=True, timeout=60
    )


def test_ci_runs_every_stage(root: Path, tmp_path: Path) -> None:
    answer = run_ci(root, tmp_path)
    assert answer.returncode == 0
    for stage in ("setup", "lint", "test", "demo"):
        assert f"fake {stage}: redis=1 links=mine constraint=\n" in answer.stdout


def test_ci_takes_the_wheels_beside_the_checkout(root: Path, tmp_path: Path) -> None:
    answer = run_ci(root, tmp_path, wheels=True)
    assert "links=mine ../shared/wheels constraint=../shared/constraints.txt" in answer.stdout


@pytest.mark.parametrize("stage", ["lint", "test", "demo"])
def test_ci_fails_with_any_stage_and_still_runs_the_others(root: Path, tmp_path: Path, stage: str) -> None:
    answer = run_ci(root, tmp_path, fails=stage)
    assert answer.returncode == 1
    assert "fake demo" in answer.stdout
    assert answer.stdout.count("FAILED (exit 1)") == 2  # where it happened, and in the summary


def test_ci_stops_without_a_set_up(root: Path, tmp_path: Path) -> None:
    answer = run_ci(root, tmp_path, fails="setup")
    assert answer.returncode == 1
    assert "fake test" not in answer.stdout


def redis_script(root: Path, tmp_path: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """tools/redis.sh on a machine that has neither redis-server nor a package manager."""
    for name in ("sh", "dirname", "id"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    return subprocess.run(
        [str(tmp_path / "sh"), str(root / "tools" / "redis.sh"), *words],
        env={"PATH": str(tmp_path), **more},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(("words", "said"), [((), "will be left out"), (("left-out",), "LEFT OUT")])
def test_without_redis_it_is_said_and_goes_on(root: Path, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    answer = redis_script(root, tmp_path, *words)
    assert answer.returncode == 0
    assert said in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_without_redis_ci_fails(root: Path, tmp_path: Path) -> None:
    answer = redis_script(root, tmp_path, FLASHFLEET_REQUIRE_REDIS="1")
    assert answer.returncode == 1
    assert "no redis-server" in answer.stderr


def test_every_target_has_a_line_of_help(root: Path) -> None:
    answer = subprocess.run(["make"], cwd=root, capture_output=True, text=True, check=True, timeout=60)
    for target in ("demo", "test", "lint", "proto", "lock", "bench", "clean", "redis", "setup"):
        assert f"make {target} " in answer.stdout


def test_make_test_sets_up_first(root: Path) -> None:
    answer = subprocess.run(["make", "-n", "test"], cwd=root, capture_output=True, text=True, check=True, timeout=60)
    order = [answer.stdout.index(word) for word in ("setup_env.py", "redis.sh", "pytest", "redis.sh left-out")]
    assert order == sorted(order)
