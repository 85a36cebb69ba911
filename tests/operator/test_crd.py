"""The CRD says what the API's own types say: the same fields, defaults and refusals, and is small and readable."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from flash_operator import api, crd
from flash_wire.settings import SettingsError
from hypothesis import given
from support.deployments import BODIES, PURE
from support.mistakes import GOOD, MISTAKES, Mistake, patched
from support.structural import defaulted, problems

ROOT = Path(__file__).parents[2]
Body = dict[str, Any]
SCHEMA: Body = crd.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def fields(schema: Body, path: str = "") -> Iterator[tuple[str, Body]]:
    """(path, schema) of everything under a schema, items and values of maps included."""
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from fields(part, f"{path}.{name}")
    for word, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if word in schema:
            yield from fields(schema[word], path + mark)


SPEC = dict(fields(SCHEMA["properties"]["spec"], "spec"))


def test_the_file_is_what_the_api_gives() -> None:
    assert (ROOT / "crds" / crd.FILE).read_text(encoding="utf-8") == crd.to_yaml()
    assert yaml.safe_load(crd.to_yaml()) == crd.crd()


def test_a_stale_file_fails_the_check(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    tool = tmp_path / "tools" / "gen_crd.py"
    tool.write_text((ROOT / "tools" / "gen_crd.py").read_text())

    def run(*flags: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, str(tool), *flags], capture_output=True, text=True, timeout=60)

    assert run("--check").returncode == 1
    assert run().returncode == 0
    assert run("--check").returncode == 0
    (tmp_path / "crds" / crd.FILE).write_text("old")
    assert "stale: crds/" in run("--check").stderr


def test_it_is_small_enough_for_kubectl_apply_and_helm() -> None:
    """Pain 10: a CRD that does not fit."""
    assert len(crd.to_yaml().encode()) < 100_000


def test_it_is_structural_and_bounded() -> None:
    for path, part in SPEC.items():
        assert not {"$ref", "allOf", "anyOf", "oneOf", "not"} & part.keys(), path
        if part.get("type") == "string":
            assert "maxLength" in part or "enum" in part, path
        if part.get("type") == "array":
            assert "maxItems" in part, path
        if "additionalProperties" in part:
            assert "maxProperties" in part, path
        assert "type" in part or part.get("x-kubernetes-int-or-string"), path


def test_every_field_is_explained_with_its_default_and_an_example() -> None:
    for path, part in SPEC.items():
        if path == "spec" or path.endswith(("[]", "{}")):
            continue
        said = part["description"]
        assert said[0].isupper(), path
        if not part.get("properties"):
            assert "Example: " in said, path
        if part.get("default") not in (None, "", [], {}) and "properties" not in part:
            assert "Default: " in said, path
        if part.get("type") == "integer" and not path.endswith((".high", ".low")):
            assert any(
                unit in said for unit in ("tokens", "requests", "workers", "routers", "threads", "char", "sec")
            ), path


def test_an_example_is_itself_accepted() -> None:
    for path, part in SPEC.items():
        if "Example: " not in part.get("description", ""):
            continue
        text = part["description"].rpartition("Example: ")[2]
        value = text if part.get("type") == "string" else yaml.safe_load(text)
        assert list(problems(part, value, path)) == [], path
        if part.get("type") == "string" and part.get("default"):
            assert isinstance(value, str)


@PURE
@given(BODIES)
def test_the_api_server_fills_in_what_pydantic_would(body: Body) -> None:
    stored = defaulted(SCHEMA, body)
    assert api.from_dict(stored) == api.from_dict(body)
    assert list(problems(SCHEMA, stored)) == []
    dumped = api.from_dict(body).spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert _plain(dumped) == _plain(stored["spec"])


def _plain(value: Any, name: str = "") -> Any:
    """Durations by their length, so that 60s and 1m are the same."""
    if isinstance(value, dict):
        return {key: _plain(part, key) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, str) and name in DURATIONS:
        return api.Scaling.model_validate({"idleAfter": value}).idle_after
    return value


DURATIONS = {"targetWait", "idleAfter", "wakeWait", "startWithin", "drain", "maxWait", "maxDuration"}


@pytest.mark.parametrize("name", ["chat.yaml", "chat-gpu.yaml"])
def test_the_examples_fit(name: str) -> None:
    body = yaml.safe_load((ROOT / "examples" / name).read_text())
    assert list(problems(SCHEMA, defaulted(SCHEMA, body))) == []


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_refused_before_the_cluster_too(mistake: Mistake) -> None:
    with pytest.raises(SettingsError):
        api.from_dict(patched(mistake.patch))


def test_every_sentence_of_the_schema_is_heard_by_some_mistake() -> None:
    rules = [rule for _, part in fields(SCHEMA) for rule in part.get("x-kubernetes-validations", ())]
    assert len(rules) > 30
    for rule in rules:
        assert any(mistake.sentence in rule["message"] for mistake in MISTAKES), rule["message"]


def test_checks_between_fields_say_the_same_in_both_places() -> None:
    said = []
    for mistake in MISTAKES:
        with pytest.raises(SettingsError) as refused:
            api.from_dict(patched(mistake.patch))
        said.append(str(refused.value))
    for rules in crd.RULES.values():
        for _, message in rules:
            words = message.partition(": ")[2] or message
            assert any(words in one for one in said), message


def test_good_is_good() -> None:
    assert api.from_dict(GOOD).metadata.name == "chat"
    assert list(problems(SCHEMA, defaulted(SCHEMA, GOOD))) == []


def test_the_table_of_kubectl_get() -> None:
    columns = crd.crd()["spec"]["versions"][0]["additionalPrinterColumns"]
    narrow = [column["name"].upper() for column in columns if not column.get("priority")]
    assert narrow == ["READY", "FLASH", "STANDARD", "SHARE", "REASON", "AGE"]
    names = crd.crd()["spec"]["names"]
    assert names["shortNames"] == ["fd"]
