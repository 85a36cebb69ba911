"""The chart, its tools as modules, and helm."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "flashfleet"
NAMESPACE = "serving"
_RANDOM = re.compile(r"(requirepass |password: |redis://:)[A-Za-z0-9]{40}")


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def chart() -> Path:
    return CHART


@pytest.fixture(scope="session")
def module() -> Callable[[str], ModuleType]:
    """module("tools/gen_chart_docs.py") is that file, imported."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location("chart_" + Path(name).stem, ROOT / name)
        assert spec is not None
        assert spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = loaded  # dataclasses look their module up
        spec.loader.exec_module(loaded)
        return loaded

    return load


@dataclass(frozen=True)
class Rendered:
    code: int
    text: str
    """The manifests, or helm's error. A password is the same in every render: PASSWORD."""

    @property
    def objects(self) -> list[dict[str, Any]]:
        assert self.code == 0, self.text
        return [body for body in yaml.safe_load_all(self.text) if body]

    def of(self, kind: str, suffix: str = "") -> list[dict[str, Any]]:
        return [b for b in self.objects if b["kind"] == kind and b["metadata"]["name"].endswith(suffix)]

    def one(self, kind: str, suffix: str = "") -> dict[str, Any]:
        found = self.of(kind, suffix)
        assert len(found) == 1, [b["metadata"]["name"] for b in found]
        return found[0]

    @property
    def pods(self) -> dict[str, dict[str, Any]]:
        """name -> pod spec, of every object that makes pods."""
        return {
            body["metadata"]["name"]: body["spec"] if body["kind"] == "Pod" else body["spec"]["template"]["spec"]
            for body in self.objects
            if body["kind"] in ("Pod", "Deployment", "StatefulSet", "DaemonSet", "Job")
        }


Helm = Callable[..., Rendered]


def _find_helm() -> str:
    """HELM, or what `make cluster-tools` built."""
    if found := os.environ.get("HELM"):
        return found
    from support.cluster_client import tools
    from support.cluster_processes import Failed

    try:
        return tools("helm")["helm"]
    except Failed as error:
        pytest.fail(f"{error}; or name one in HELM", pytrace=False)


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """helm({"redis": {"enabled": False}}, "--flag") renders the chart as release ff in namespace serving."""
    program = _find_helm()
    home = tmp_path_factory.mktemp("helm")  # no plugin or setting of this machine's user takes part
    environment = os.environ | {f"HELM_{name}_HOME": str(home) for name in ("CACHE", "CONFIG", "DATA")}
    # A render asks no cluster; were one asked by mistake, this could not be reached.
    environment["KUBECONFIG"] = str(home / "none")

    def render(
        values: dict[str, Any] | None = None, *flags: str, verb: str = "template", chart: Path = CHART
    ) -> Rendered:
        path = home / "values.yaml"
        path.write_text(json.dumps(values or {}))
        name = ["ff", "--kube-version", "1.34.4"] if verb == "template" else []
        command = [program, verb, *name, str(chart), "--namespace", NAMESPACE, "--values", str(path), *flags]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        text = done.stdout if done.returncode == 0 else done.stdout + done.stderr
        return Rendered(
            done.returncode, re.sub(r"(requirepass |password: |redis://:)[A-Za-z0-9]{40}", r"\1PASSWORD", text)
        )

    return render
