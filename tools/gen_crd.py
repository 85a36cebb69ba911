"""Write crds/flashdeployments.flashfleet.io.yaml from flash_operator.api (`--check` fails when it is stale)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from flash_operator import crd

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "crds" / crd.FILE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when the file is stale")
    check = parser.parse_args().check
    text = crd.to_yaml()
    if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text:
        return 0
    if check:
        print(f"stale: {TARGET.relative_to(ROOT)}; run `python tools/gen_crd.py`", file=sys.stderr)
        return 1
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text, encoding="utf-8")
    print("wrote", TARGET.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
