"""Copy crds/ into the chart (`--check` changes nothing, exit 1 when the copy is not the same).

A chart cannot read files outside of its own folder, so it holds a copy of what flash_operator generates.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "crds"
TARGET = ROOT / "deploy" / "helm" / "flashfleet" / "files" / "crds"


def problems(source: Path = SOURCE, target: Path = TARGET) -> list[str]:
    """How `target` differs from `source`, in sentences; empty when it does not."""
    wanted = {path.name: path.read_bytes() for path in source.glob("*.yaml")}
    have = {path.name: path.read_bytes() for path in target.glob("*.yaml")}
    if not wanted:
        return [f"{source} holds no CRD"]
    found = [f"{target / name} is not what {source} holds" for name in wanted if have.get(name) != wanted[name]]
    return found + [f"{target / name} has no original in {source}" for name in sorted(set(have) - set(wanted))]


def copy(source: Path = SOURCE, target: Path = TARGET) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob("*.yaml"):
        old.unlink()
    for path in source.glob("*.yaml"):
        (target / path.name).write_bytes(path.read_bytes())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when the chart's copy differs")
    if not parser.parse_args().check:
        copy()
    found = problems()
    for line in found:
        print(line + ": run `python tools/gen_chart_crds.py`", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
