"""Write docs/reference.md, every knob and every word of status, from the code (`--check` fails when it is stale)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from flash_operator.api import Spec
from flash_operator.conditions import CONDITIONS, REASONS
from flash_operator.knobs import Knob, Shape, knobs
from flash_wire.settings import RouterLive, RouterStatic, Settings, WorkerLive, WorkerStatic
from flash_wire.units import format_duration

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "reference.md"
FILES = (
    (RouterStatic, "A router's static.json"),
    (RouterLive, "A router's live.json"),
    (WorkerStatic, "A worker's static.json"),
    (WorkerLive, "A worker's live.json"),
)
HEAD = """# Reference

Made by tools/gen_reference.py from the code: change it there.

A FlashDeployment has `apiVersion: flashfleet.io/v1alpha1`, `kind: FlashDeployment`, `metadata` and `spec`. Everything
in `spec` has a default except the two models. `kubectl explain fd.spec --recursive` says the same on a cluster.
Durations are written as `500ms`, `30s`, `10m` or `2h`.

The count of a tier with `scaling: {external: true}` is left to an HPA or to KEDA. It targets the tier's own
Deployment, `NAME-flash` or `NAME-standard`: a FlashDeployment has two counts, so it has no scale subresource.
"""


def page() -> str:
    seen: set[type[Settings]] = set()
    lines = [HEAD, "## spec", "", *_table(Spec)]
    for kind in _inside(Spec, seen):
        lines += ["", f"### {kind.__name__}", "", (kind.__doc__ or "").strip().splitlines()[0], "", *_table(kind)]
    lines += ["", "## status", "", "| condition | is True when |", "|---|---|"]
    lines += [f"| `{name}` | {doc} |" for name, doc in CONDITIONS.items()]
    lines += ["", "| reason | means |", "|---|---|"]
    lines += [f"| `{name}` | {doc} |" for name, doc in REASONS.items()]
    lines += ["", "## The files that processes read", ""]
    lines += ["The plan writes them from the FlashDeployment; nobody edits them. A change of a static file rolls the"]
    lines += ["process that reads it, a live one is reloaded in place.", ""]
    for kind, title in FILES:
        lines += [f"### {title}", "", *_table(kind), ""]
        for inner in _inside(kind, seen):
            lines += [f"### {inner.__name__}", "", *_table(inner), ""]
    return "\n".join(lines).rstrip() + "\n"


def _inside(kind: type[Settings], seen: set[type[Settings]]) -> Iterator[type[Settings]]:
    """The classes of a class' fields, each once, outer ones first."""
    for knob in knobs(kind):
        inner = _class_in(knob.shape)
        if inner is not None and inner not in seen:
            seen.add(inner)
            yield inner
            yield from _inside(inner, seen)


def _class_in(shape: Shape) -> type[Settings] | None:
    return shape.of or (_class_in(shape.items) if shape.items else None)


def _table(kind: type[Settings]) -> list[str]:
    return ["| field | type | default | |", "|---|---|---|---|", *(_row(knob) for knob in knobs(kind))]


def _row(knob: Knob) -> str:
    default = "" if knob.default in (None, "", [], {}) else f"`{_json(knob.default)}`"
    said = knob.doc
    if knob.unit and knob.unit not in knob.doc:
        said += f" In {knob.unit}."
    if knob.example and knob.example != _json(knob.default):
        said += f" Example: `{knob.example}`"
    cells = (f"`{knob.name}`", _type(knob.shape), "must be given" if knob.required else default, said)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _json(value: object) -> str:
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


def _type(shape: Shape) -> str:
    if shape.of is not None:
        return f"[{shape.of.__name__}](#{shape.of.__name__.lower()})"
    if shape.kind == "enum":
        return ", ".join(f"`{value}`" for value in shape.values if value)
    if shape.kind in ("list", "map"):
        assert shape.items is not None
        return f"{shape.kind} of {_type(shape.items)}"
    if shape.kind == "any":
        return "any mapping"
    bounds = [
        f"{sign} {format_duration(bound) if shape.kind == 'duration' and bound else f'{bound:g}'}"
        for sign, bound in (("≥", shape.least), (">", shape.above), ("≤", shape.most))
        if bound is not None and not (sign == "≥" and bound == 0)
    ]
    return shape.kind + (f", {' and '.join(bounds)}" if bounds else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when the page is stale")
    check = parser.parse_args().check
    text = page()
    if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text:
        return 0
    if check:
        print(f"stale: {TARGET.relative_to(ROOT)}; run `python tools/gen_reference.py`", file=sys.stderr)
        return 1
    TARGET.write_text(text, encoding="utf-8")
    print("wrote", TARGET.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
