"""Certificates for a test cluster by the openssl program: one authority, one key for ServiceAccount tokens.

Keys stay in files that only their owner can read; none is on a command line.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

DAYS = "3"
"""A test cluster lives for minutes. A leaked certificate is worth nothing soon after."""


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, both PEM."""

    cert: Path
    key: Path


class Authority:
    """The one certificate authority of a cluster. Its files stand in `folder`, which is made readable by us alone."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            raise RuntimeError("openssl is not on PATH: install it (apt-get install openssl)")
        self._folder = folder
        folder.mkdir(mode=0o700)
        self.pair = Pair(folder / "ca.crt", folder / "ca.key")
        self._key(self.pair.key)
        self._openssl(
            *("req", "-x509", "-new", "-key", str(self.pair.key), "-out", str(self.pair.cert), "-days", DAYS),
            *("-subj", "/CN=flashfleet-test-ca", "-sha256"),
        )

    def signing_key(self, name: str) -> Path:
        """A private key alone, for ServiceAccount tokens."""
        path = self._folder / f"{name}.key"
        self._key(path)
        return path

    def issue(self, name: str, user: str, groups: Iterable[str] = (), addresses: Iterable[str] = ()) -> Pair:
        """A certificate for `user` in `groups`. With addresses (IPs and host names) it serves them too."""
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        self._key(pair.key)
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
        self._openssl("req", "-new", "-key", str(pair.key), "-subj", subject, "-out", str(request))
        lines = ["basicConstraints=CA:FALSE", "keyUsage=digitalSignature,keyEncipherment"]
        names = [("IP:" if _is_ip(address) else "DNS:") + address for address in addresses]
        lines.append("extendedKeyUsage=clientAuth" + (",serverAuth" if names else ""))
        lines += ["subjectAltName=" + ",".join(names)] if names else []
        extensions.write_text("\n".join(lines) + "\n")
        self._openssl(
            *("x509", "-req", "-in", str(request), "-CA", str(self.pair.cert), "-CAkey", str(self.pair.key)),
            *("-set_serial", "0x" + os.urandom(8).hex(), "-days", DAYS, "-sha256"),
            *("-extfile", str(extensions), "-out", str(pair.cert)),
        )
        return pair

    def _key(self, path: Path) -> None:
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(path))
        path.chmod(0o600)

    def _openssl(self, *words: str) -> None:
        answer = subprocess.run(["openssl", *words], capture_output=True, text=True, timeout=60, check=False)
        if answer.returncode:
            raise RuntimeError(f"openssl {words[0]} failed: {answer.stderr.strip()}")


def _is_ip(address: str) -> bool:
    return address.replace(".", "").isdigit() or ":" in address
