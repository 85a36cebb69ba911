"""Write the Python stubs of proto/flash/v1 into flash_wire.v1 (`make proto`; `--check` fails when they are stale)."""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "proto"
TARGET = SOURCE / "flash_wire" / "v1"


def generate(into: Path) -> dict[str, str]:
    """File name -> text of every stub, with imports rewritten to `flash_wire.v1`."""
    protos = sorted((SOURCE / "flash" / "v1").glob("*.proto"))
    include = str(resources.files("grpc_tools") / "_proto")
    arguments = [
        "protoc",
        f"-I{SOURCE}",
        f"-I{include}",
        f"--python_out={into}",
        f"--pyi_out={into}",
        f"--grpc_python_out={into}",
        *map(str, protos),
    ]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed: see above")
    stubs = {}
    for path in sorted((into / "flash" / "v1").iterdir()):
        stubs[path.name] = path.read_text().replace("from flash.v1 import", "from flash_wire.v1 import")
    return stubs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when a stub is stale")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        stubs = generate(Path(folder))
    stale = [
        name for name, text in stubs.items() if not (TARGET / name).exists() or (TARGET / name).read_text() != text
    ]
    if check:
        for name in stale:
            print(f"stale: proto/flash_wire/v1/{name}; run `make proto`", file=sys.stderr)
        return 1 if stale else 0
    TARGET.mkdir(parents=True, exist_ok=True)
    for name in stale:
        (TARGET / name).write_text(stubs[name])
        print("wrote", name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
