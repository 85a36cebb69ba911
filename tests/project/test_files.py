"""Bars for every tracked file."""

from __future__ import annotations

import re
from pathlib import Path

LIMIT = 400
SOURCE = {".py", ".lua", ".proto", ".sh"}
# Written so that this file does not match itself.
MACHINE = re.compile(r"(?<![\w.$}])/(?:work|root|home/\w+|Users/\w+)/" + r"\w", re.MULTILINE)


def generated(path: Path) -> bool:
    return path.parent.name == "v1" and path.parent.parent.name == "flash_wire"


def test_no_source_file_is_over_the_limit(tracked: list[Path], root: Path) -> None:
    counts = {
        str(path.relative_to(root)): len(path.read_text().splitlines())
        for path in tracked
        if path.suffix in SOURCE and not generated(path)
    }
    assert len(counts) > 20
    assert {name: count for name, count in counts.items() if count > LIMIT} == {}


def test_no_file_names_a_path_of_one_machine(tracked: list[Path], root: Path) -> None:
    found = [
        f"{path.relative_to(root)}:{at}: {line.strip()[:120]}"
        for path in tracked
        for at, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if MACHINE.search(line)
    ]
    assert found == []


def test_the_pattern_finds_such_a_path() -> None:
    assert MACHINE.search("open('/ho" + "me/ann/model.gguf')")
    assert not MACHINE.search("https://example.com/ho" + "me/ann/x")
