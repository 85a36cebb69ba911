"""What the documents tell a person to type exists."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from flash_operator import api

DOCUMENTS = ("README.md", "CONTRIBUTING.md", "docs/index.md", "docs/architecture.md", "CHANGELOG.md", "SECURITY.md")


def targets(root: Path) -> set[str]:
    return set(re.findall(r"^([a-z]+):", (root / "Makefile").read_text(), re.MULTILINE))


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(root: Path) -> list[list[str]]:
    """Every `flashfleet ...` line of the README's shell blocks, as words."""
    lines = "\n".join(blocks((root / "README.md").read_text(), "sh")).splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith("flashfleet ")]


def test_the_first_two_commands_run_the_fleet_and_the_tests(root: Path) -> None:
    first = blocks((root / "README.md").read_text(), "sh")[0]
    assert [line.split()[:2] for line in first.splitlines()] == [["make", "demo"], ["make", "test"]]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_make_targets_exist(root: Path, name: str) -> None:
    used = set(re.findall(r"(?:`|^ {4}|\n)make ([a-z]+)\b", (root / name).read_text(), re.MULTILINE))
    assert used <= targets(root)


def test_readme_commands_are_understood(root: Path) -> None:
    found = commands(root)
    assert {words[1] for words in found} >= {"up", "ask", "status", "route"}
    for words in found:
        verb = words[1:3] if words[1] == "route" else words[1:2]
        answer = subprocess.run(
            [sys.executable, "-m", "flashfleet", *verb, "--help"], cwd=root, capture_output=True, text=True, timeout=60
        )
        assert answer.returncode == 0, answer.stderr
        for flag in (word for word in words if word.startswith("--")):
            assert re.search(rf"{flag}\b", answer.stdout), f"{verb} knows no {flag}"


def test_readme_example_files_load(root: Path) -> None:
    files = [word for words in commands(root) for word in words if word.endswith(".yaml")]
    assert files
    for name in files:
        assert api.load(root / name).metadata.name == "chat"


def test_readme_python_imports_what_exists(root: Path) -> None:
    found = blocks((root / "README.md").read_text(), "python")
    assert len(found) == 2
    for source in found:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(node.module or "")
                for alias in node.names:
                    if not hasattr(module, alias.name):
                        importlib.import_module(f"{node.module}.{alias.name}")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(root: Path, name: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (root / name).read_text())
    assert [link for link in links if not ((root / name).parent / link).exists()] == []


def test_every_verb_that_the_readme_calls_working_exists(root: Path) -> None:
    row = re.search(r"^\| command line \| (.*?) \| (.*?) \|$", (root / "README.md").read_text(), re.MULTILINE)
    assert row is not None
    answer = subprocess.run(
        [sys.executable, "-m", "flashfleet", "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    for verb in re.findall(r"`([a-z]+)", row[1]):
        assert re.search(rf"^ +{verb}\b", answer.stdout, re.MULTILINE), verb
    for verb in re.findall(r"`([a-z]+)", row[2]):
        assert not re.search(rf"^ +{verb}\b", answer.stdout, re.MULTILINE), f"{verb} works: say so"
