"""The part of requirements.lock that one image needs: `python subset.py operator > operator.lock`.

The lock says for each package who asks for it, so the part is a walk from the direct requirements of the extra.
pip checks the result: with --require-hashes it refuses a requirement that is not locked.
Runs inside the image's build, so only the standard library.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def canonical(name: str) -> str:
    """The one spelling of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def blocks(text: str) -> dict[str, tuple[str, set[str]]]:
    """A lock's text as {package: (its lines, who asks for it)}."""
    found: dict[str, tuple[str, set[str]]] = {}
    for block in re.split(r"\n(?=[A-Za-z0-9])", text):
        name = _NAME.match(block)
        if name is None:
            continue  # the header
        notes = re.findall(r"^    # (?:via )?\s*([A-Za-z0-9][A-Za-z0-9._-]*)$", block, re.MULTILINE)
        askers = {canonical(note) for note in notes if note != "via"}
        found[canonical(name.group())] = (block.rstrip() + "\n", askers)
    return found


def direct(project: dict[str, object], extras: list[str]) -> set[str]:
    """The packages that pyproject.toml names for these extras, and what builds the project itself."""
    table = project["project"]
    build = project["build-system"]
    if not isinstance(table, dict) or not isinstance(build, dict):
        raise SystemExit("pyproject.toml has no [project] or no [build-system]")
    wanted = [*table["dependencies"], *build["requires"]]
    for extra in extras:
        if extra not in table["optional-dependencies"]:
            raise SystemExit(f"pyproject.toml has no extra {extra}")
        wanted += table["optional-dependencies"][extra]
    return {canonical(match.group()) for line in wanted if (match := _NAME.match(line))}


def subset(locked: dict[str, tuple[str, set[str]]], wanted: set[str], without: set[str]) -> list[str]:
    """The blocks of `wanted` and of all that these ask for, in the lock's order, but for `without`."""
    if missing := sorted(wanted - set(locked)):
        raise SystemExit(f"requirements.lock lacks {', '.join(missing)}: run `make lock`")
    taken = wanted - without
    while more := {name for name, (_, askers) in locked.items() if name not in taken | without and askers & taken}:
        taken |= more
    return [text for name, (text, _) in locked.items() if name in taken]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("extra", nargs="+", help="extras of pyproject.toml")
    parser.add_argument("--root", type=Path, default=Path(), help="folder with pyproject.toml and the lock files")
    parser.add_argument("--without", action="append", default=[], metavar="PACKAGE", help="leave this one out")
    parser.add_argument("--cuda", action="store_true", help="add what torch's CUDA build needs")
    given = parser.parse_args()
    lock = (given.root / "requirements.lock").read_text()
    if given.cuda:
        lock += "\n" + (given.root / "requirements-cuda.lock").read_text()
    project = tomllib.loads((given.root / "pyproject.toml").read_text())
    sys.stdout.writelines(subset(blocks(lock), direct(project, given.extra), set(given.without)))


if __name__ == "__main__":
    main()
