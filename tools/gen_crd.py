"""Write crds/flashdeployments.flashfleet.io.yaml from flash_operator.api (`--check` fails when it is stale).

The chart gets the same file: it can read nothing outside of its own folder.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from flash_operator import crd

ROOT = Path(__file__).resolve().parent.parent
TARGETS = [ROOT / "crds" / crd.FILE, ROOT / "deploy" / "helm" / "flashfleet" / "files" / "crds" / crd.FILE]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when the file is stale")
    check = parser.parse_args().check
    text = crd.to_yaml()
    stale = [path for path in TARGETS if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        name = path.relative_to(ROOT)
        if check:
            print(f"stale: {name}; run `python tools/gen_crd.py`", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print("wrote", name)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
