"""python -m support.fake_router --settings FOLDER: the router's process over a fake core.

FAKE_PAUSE is the seconds before each word.
"""

from __future__ import annotations

import os
import sys

from flash_router.main import main
from flash_wire.settings import RouterLive, RouterStatic, SettingsError
from support.fake_core import FakeCore


async def start(static: RouterStatic, live: RouterLive, broker_url: str):
    core = FakeCore(pause=float(os.environ.get("FAKE_PAUSE", "0")), model=static.fleet.partition("/")[2])

    def reload(new: RouterLive) -> None:
        if new.routing.standard_share == 0.99:
            raise SettingsError("routing.standardShare: the fake core takes no 0.99")
        core.reload(new)
        # Shown to the test through /v1/models.
        core.model = f"share-{new.routing.standard_share}"

    return core, reload


if __name__ == "__main__":
    sys.exit(main(start=start))
