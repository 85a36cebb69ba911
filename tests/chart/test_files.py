"""What needs no helm: generated files are fresh, schema and values name the same things, no metric is invented."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

GENERATORS = ("gen_chart_docs", "gen_crd", "gen_dashboard")


@pytest.mark.parametrize("tool", GENERATORS)
def test_generated_files_are_fresh(root: Path, tool: str) -> None:
    done = subprocess.run([sys.executable, f"tools/{tool}.py", "--check"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_value_has_a_comment_and_a_mistake_is_named(module: Callable[[str], ModuleType], chart: Path) -> None:
    docs = module("tools/gen_chart_docs.py")
    text = (chart / "values.yaml").read_text()
    assert len(docs.values(text)) > 60
    with pytest.raises(ValueError, match=r"no comment above: nameOverride"):
        docs.values(text.replace("# Replaces the chart's name in labels and in the names of objects.\n", "\n"))


def test_the_chart_has_the_projects_version(root: Path, chart: Path) -> None:
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    assert (about["version"], about["appVersion"]) == (version, version)


def _schema_of(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    return schema["definitions"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node


def _differences(schema: dict[str, Any], node: dict[str, Any], values: Any, path: str) -> Iterator[str]:
    """Where schema and values.yaml do not name the same things, and where a typo would pass."""
    node = _schema_of(schema, node)
    if "properties" not in node:
        return
    if node.get("additionalProperties") is not False:
        yield f"{path}: takes any name"
    if not isinstance(values, dict):
        return  # a definition that values.yaml leaves empty
    for name in sorted(set(node["properties"]) ^ set(values)):
        if f"{path}.{name}" != ".global" and not path.endswith(".resources"):
            yield f"{path}.{name}: only in {'values.yaml' if name in values else 'the schema'}"
    for name in sorted(set(node["properties"]) & set(values)):
        yield from _differences(schema, node["properties"][name], values[name], f"{path}.{name}")


def test_schema_and_values_name_the_same_things(chart: Path) -> None:
    schema = json.loads((chart / "values.schema.json").read_text())
    values = yaml.safe_load((chart / "values.yaml").read_text())
    assert list(_differences(schema, schema, values, "")) == []
    assert list(_differences(schema, schema, values | {"new": 1}, "")) == [".new: only in values.yaml"]


SERIES = re.compile(r"\bflashfleet_[a-z0-9_]+")
SUFFIXES = re.compile(r"(_total|_bucket|_sum|_count)$")


def _exposed(module: Callable[[str], ModuleType]) -> set[str]:
    """Names of the metrics that routers, workers and the operator really expose."""
    from flash_router.metrics import Metrics as RouterMetrics
    from flash_worker.kv import Account
    from flash_worker.metrics import Metrics as WorkerMetrics
    from flash_worker.metrics import _engine, _WorkerCollector
    from support.fake_core import FakeCore

    names = {family.name for family in RouterMetrics(FakeCore()).registry.collect()}
    worker = WorkerMetrics()
    names |= {family.name for family in worker.registry.collect()}

    class Anything:
        account = Account(0, 0, 0, 0, 0)

        def __getattr__(self, name: str) -> int:
            return 0

    names |= {family.name for family in _engine(Anything())}  # type: ignore[arg-type]
    source = Path(sys.modules[_WorkerCollector.__module__].__file__ or "").read_text()
    names |= set(SERIES.findall(source))
    from flash_worker.request import Room

    names |= {f"flashfleet_worker_room_{name}" for name in Room.__dataclass_fields__}
    return names


def _operator_names(root: Path) -> set[str]:
    return {
        name
        for path in (root / "operator" / "flash_operator").glob("*.py")
        for name in re.findall(r'"(flashfleet_operator_[a-z0-9_]+)"', path.read_text())
    }


@pytest.mark.parametrize("name", ["files/dashboards/flashfleet.json", "files/alerts.yaml"])
def test_no_metric_is_invented(module: Callable[[str], ModuleType], root: Path, chart: Path, name: str) -> None:
    known = _exposed(module) | _operator_names(root)
    used = set(SERIES.findall((chart / name).read_text()))
    assert len(used) > 6
    assert {series for series in used if SUFFIXES.sub("", series) not in known and series not in known} == set()


def test_the_dashboard_shows_each_of_the_four_numbers(chart: Path) -> None:
    board = json.loads((chart / "files" / "dashboards" / "flashfleet.json").read_text())
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    boxes = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels]
    assert len(set(boxes)) == len(boxes)
    asked = " ".join(target["expr"] for panel in panels for target in panel["targets"])
    for series in ("worker_step_duration", "worker_kv_pages", "queue_seconds", "ttft_seconds"):
        assert series in asked


def test_no_file_of_the_chart_holds_a_secret_or_a_lookup_outside_of_the_upgrade(chart: Path) -> None:
    for path in chart.rglob("*"):
        if path.is_file() and path.suffix in (".yaml", ".tpl"):
            text = path.read_text()
            assert not re.search(r"genCA|genSelfSignedCert|genSignedCert", text), path
            if "lookup" in re.sub(r"{{- /\*.*?\*/ -}}", "", text, flags=re.DOTALL):
                assert path.name == "redis-secret.yaml"


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is missing")
def test_build_sh_says_how_it_is_used_and_refuses_what_it_does_not_know(root: Path) -> None:
    script = str(root / "deploy" / "images" / "build.sh")
    said = subprocess.run(["bash", script, "--help"], capture_output=True, text=True)
    assert said.returncode == 0
    assert "BUILDER" in said.stdout
    wrong = subprocess.run(["bash", script, "operater"], capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "operater is none of" in wrong.stderr
