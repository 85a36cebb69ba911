"""Write the chart's README.md from the comments of its values.yaml (`--check` changes nothing, exit 1 when stale).

A comment that starts with `== ` opens a section. The comment right above a key documents it. A mapping whose keys have
comments is shown key by key, any other value as a whole. Every value must be documented.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "helm" / "flashfleet"
HEAD = """# The FlashFleet chart

<!-- Made by tools/gen_chart_docs.py from Chart.yaml and the comments of values.yaml; do not edit. -->

{description}

```sh
helm install flashfleet deploy/helm/flashfleet --namespace flashfleet --create-namespace
```

It installs the operator, the CustomResourceDefinition `flashdeployments.flashfleet.io` and, for development, one Redis.
[docs/kubernetes.md](../../../docs/kubernetes.md) goes the whole way, from images to an answered prompt.
Needs Kubernetes {kube} and Helm 3.14 or newer. A value that is misspelt or has the wrong type is refused.

"""


@dataclass(frozen=True, slots=True)
class Value:
    section: str
    path: str
    default: str
    """JSON; empty for a group, whose keys follow."""
    text: str


def values(text: str) -> list[Value]:
    """The documented values in the order of the file. Raises ValueError that names what has no comment."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise ValueError("values.yaml is not a mapping")
    found = list(_walk(root, [], text.splitlines()))
    if missing := [value.path for value in found if not value.text and value.default]:
        raise ValueError("no comment above: " + ", ".join(missing))
    return found


def _walk(node: yaml.MappingNode, path: list[str], lines: list[str]) -> Iterator[Value]:
    for key, value in node.value:
        here = [*path, str(key.value)]
        comment = _above(lines, key.start_mark.line)
        text = " ".join(line for line in comment if not line.startswith("== "))
        section = _section(lines, key.start_mark.line)
        if isinstance(value, yaml.MappingNode) and _is_group(value, lines):
            if text:
                yield Value(section, ".".join(here), "", text)
            yield from _walk(value, here, lines)
        else:
            data = yaml.safe_load(yaml.serialize(value))
            yield Value(section, ".".join(here), json.dumps(data, ensure_ascii=False), text)


def _is_group(node: yaml.MappingNode, lines: list[str]) -> bool:
    """Whether any key inside has a comment of its own. A mapping in braces shares its line with the key before it."""
    return not node.flow_style and any(
        _above(lines, key.start_mark.line) or (isinstance(value, yaml.MappingNode) and _is_group(value, lines))
        for key, value in node.value
    )


def _above(lines: list[str], at: int) -> list[str]:
    """The comment lines right above line `at`, without their marks."""
    found: list[str] = []
    while at > 0 and lines[at - 1].lstrip().startswith("#"):
        at -= 1
        found.insert(0, lines[at].lstrip().lstrip("#").strip())
    return found


def _section(lines: list[str], at: int) -> str:
    titles = [line[len("# == ") :] for line in lines[: at + 1] if line.startswith("# == ")]
    return titles[-1] if titles else ""


def render(chart: dict[str, str], documented: list[Value]) -> str:
    parts = [HEAD.format(description=chart["description"], kube=chart["kubeVersion"].removesuffix("-0").lstrip(">="))]
    section = ""
    for value in documented:
        if value.section != section:
            section = value.section
            parts.append(f"\n## {section}\n\n| value | default | what it is |\n|---|---|---|\n")
        default = f"`{value.default}`" if value.default else ""
        cells = [f"`{value.path}`", default, value.text]
        parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return "".join(parts).replace("\n\n\n", "\n\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when README.md is stale")
    given = parser.parse_args()
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    try:
        text = render(chart, values((CHART / "values.yaml").read_text(encoding="utf-8")))
    except ValueError as error:
        print(f"values.yaml: {error}", file=sys.stderr)
        return 1
    target = CHART / "README.md"
    if not given.check:
        target.write_text(text, encoding="utf-8")
    elif not target.exists() or target.read_text(encoding="utf-8") != text:
        print(f"{target.relative_to(ROOT)} is stale: run `python tools/gen_chart_docs.py`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
