"""Every module can be imported on its own, where what the walls keep out of it is not installed at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROBE = """
import importlib, importlib.abc, pkgutil, sys

blocked, names = set(sys.argv[1].split(",")), sys.argv[2].split(",")


class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


sys.meta_path.insert(0, Absent())
count = 0
for name in names:
    package = importlib.import_module(name)
    count += 1
    for found in pkgutil.walk_packages(getattr(package, "__path__", []), name + "."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
            count += 1
loaded = blocked & {name.partition(".")[0] for name in sys.modules}
assert not loaded, f"{loaded} got in"
print(count)
"""


@pytest.mark.parametrize(
    ("names", "blocked", "at_least"),
    [
        ("flash_wire", "torch,triton", 10),
        ("flash_operator", "torch,triton", 3),
        ("flash_router", "torch,triton", 5),
        ("flash_worker", "triton", 5),
        ("flashfleet", "triton", 3),
        ("flash_worker.scheduler,flash_worker.kv", "torch,triton,numpy", 2),
        (
            "flash_operator.crd,flash_operator.manifests,flash_operator.status,flash_operator.scale",
            "torch,triton,kubernetes,kopf,aiohttp",
            4,
        ),
    ],
)
def test_imports_without(names: str, blocked: str, at_least: int, tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", PROBE, blocked, names], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert answer.returncode == 0, answer.stderr[-2000:]
    assert int(answer.stdout) >= at_least


def test_operator_folder_leaves_the_standard_library_alone(root: Path) -> None:
    code = "import operator; assert operator.add(1, 2) == 3; import flash_operator"
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True, timeout=60)
