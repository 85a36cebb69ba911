"""Taking ports, and saying plainly why one cannot be had."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator

ADVERTISE = "FLASHFLEET_ADVERTISE"
"""Environment variable: the host that others dial, where it is not what is listened on."""
_WILDCARDS = frozenset(("0.0.0.0", "::", ""))  # noqa: S104


class CannotListen(OSError):
    """The message names the port, the address and the setting to change."""


@contextlib.contextmanager
def explained(setting: str, host: str, port: int) -> Iterator[None]:
    """Turns an OSError of listening into CannotListen."""
    try:
        yield
    except OSError as error:
        if isinstance(error, CannotListen):
            raise
        if error.errno == errno.EADDRINUSE:
            raise CannotListen(
                f"port {port} is already taken on {host}: stop what listens there or choose another with {setting}"
            ) from None
        reason = error.strerror or str(error)
        advice = "use a port above 1023" if error.errno == errno.EACCES else "choose another with host"
        where = f"port {port}" if error.errno == errno.EACCES else f"address {host}"
        raise CannotListen(f"cannot listen on {host}:{port}: {reason} ({where}; {advice})") from None


def listen(host: str, port: int, setting: str) -> socket.socket:
    """A listening TCP socket; port 0 takes a free one. Raises CannotListen."""
    with explained(setting, host, port):
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        taken = socket.socket(family, kind, proto)
        try:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(address)
            taken.listen(1024)
        except BaseException:
            taken.close()
            raise
        taken.setblocking(False)
        return taken


def address(host: str, port: int) -> str:
    """host:port, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reachable(host: str, advertise: str) -> str:
    """The host that others dial: `advertise`, or what is listened on; for all addresses, this machine's name."""
    if advertise:
        return advertise
    return socket.gethostname() if host in _WILDCARDS else host
