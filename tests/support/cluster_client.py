"""Asking a test cluster: single HTTP requests, kubectl, helm, and the identity of a ServiceAccount."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.cluster_pki import Authority, Pair
from support.cluster_processes import Failed

BUILD = Path(__file__).parents[1] / "cluster" / "tools" / "build.py"


@functools.cache
def tools(*names: str) -> dict[str, str]:
    """Paths of programs by name, and `kwok-stages` with kwok. Raises Failed when one was not built."""
    answer = subprocess.run(
        [sys.executable, str(BUILD), "--find", *names], capture_output=True, text=True, timeout=120, check=False
    )
    if answer.returncode:
        raise Failed(answer.stderr.strip())
    return dict(line.split("=", 1) for line in answer.stdout.splitlines())


@dataclass(frozen=True)
class Response:
    """What the API server answered; `body` is the parsed JSON, or the text where it is none."""

    status: int
    body: Any


class Client:
    """Speaks to the API server at `address`:`port`, as admin unless said otherwise. Its files stand in `folder`."""

    folder: Path
    address: str
    port: int

    def connect(self, authority: Authority) -> None:
        """Makes the admin's certificate and kubeconfig."""
        self.authority = authority
        """To issue more certificates that this cluster trusts, such as those of kubelets."""
        admin = authority.issue("admin", "admin", groups=["system:masters"])
        self._by_token = _tls(self.ca)
        self._as_admin = _tls(self.ca, admin)
        self._write_kubeconfig(self.kubeconfig, admin)

    @property
    def server(self) -> str:
        return f"https://{self.address}:{self.port}"

    @property
    def ca(self) -> Path:
        return self.authority.pair.cert

    @property
    def kubeconfig(self) -> Path:
        """Of a user who may do everything (group system:masters)."""
        return self.folder / "admin.kubeconfig"

    def component(self, name: str) -> Path:
        """The kubeconfig of a part of the control plane, user system:NAME."""
        path = self.folder / f"{name}.kubeconfig"
        self._write_kubeconfig(path, self.authority.issue(name, f"system:{name}"))
        return path

    def ready(self) -> bool:
        """Whether the API server says so, now."""
        try:
            return self.request("GET", "/readyz", timeout=2).status == 200
        except (OSError, http.client.HTTPException):
            return False

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str = "",
        content: str = "application/json",
        timeout: float = 30,
    ) -> Response:
        """One HTTP request, as admin or by a ServiceAccount's token. Raises OSError when nobody answers."""
        context = self._by_token if token else self._as_admin
        link = http.client.HTTPSConnection(self.address, self.port, timeout=timeout, context=context)
        headers = {"Accept": "application/json", "Content-Type": content}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        with contextlib.closing(link):
            link.request(method, path, None if body is None else json.dumps(body), headers)
            answer = link.getresponse()
            text = answer.read().decode(errors="replace")
        try:
            return Response(answer.status, json.loads(text))
        except ValueError:
            return Response(answer.status, text)

    def kubectl(
        self, *words: str, stdin: str = "", kubeconfig: Path | None = None, check: bool = True, within: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Runs kubectl as admin or by another kubeconfig. Raises Failed with its words, unless check is False."""
        return self._client("kubectl", words, stdin, kubeconfig, check, within)

    def helm(
        self, *words: str, stdin: str = "", kubeconfig: Path | None = None, check: bool = True, within: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Runs helm in the same way, with its own caches in this cluster's folder."""
        return self._client("helm", words, stdin, kubeconfig, check, within)

    def _client(
        self, name: str, words: Sequence[str], stdin: str, kubeconfig: Path | None, check: bool, within: float
    ) -> subprocess.CompletedProcess[str]:
        answer = subprocess.run(
            [tools(name)[name], *words],
            input=stdin,
            env=self.environment(kubeconfig),
            capture_output=True,
            text=True,
            timeout=within,
            check=False,
        )
        if check and answer.returncode:
            raise Failed(f"{name} {' '.join(words)}: exit {answer.returncode}: {answer.stderr.strip()}")
        return answer

    def environment(self, kubeconfig: Path | None = None) -> Mapping[str, str]:
        """Environment for a client of this cluster: nothing of the person's own clusters, caches or proxies."""
        config = str(kubeconfig or self.kubeconfig)
        return {"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder), "KUBECONFIG": config}

    def token_for(self, namespace: str, account: str, *, seconds: int = 3600) -> str:
        """A token of a ServiceAccount, by the API's own TokenRequest."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        answer = self.request("POST", path, body)
        if answer.status != 201:
            raise Failed(f"no token for the ServiceAccount {namespace}/{account}: {message(answer)}")
        return str(answer.body["status"]["token"])

    def kubeconfig_for(self, namespace: str, account: str, *, seconds: int = 3600) -> Path:
        """A kubeconfig that is this ServiceAccount, in its namespace, for so long."""
        path = self.folder / f"{namespace}.{account}.kubeconfig"
        self._write_kubeconfig(path, self.token_for(namespace, account, seconds=seconds), namespace)
        return path

    def _write_kubeconfig(self, path: Path, who: Pair | str, namespace: str = "default") -> None:
        user: dict[str, str] = {"token": who} if isinstance(who, str) else {}
        if isinstance(who, Pair):
            user = {"client-certificate": str(who.cert), "client-key": str(who.key)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "test", "cluster": {"server": self.server, "certificate-authority": str(self.ca)}},
            ],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user", "namespace": namespace}}],
            "current-context": "test",
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(config))


def _tls(ca: Path, pair: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca))
    if pair:
        context.load_cert_chain(pair.cert, pair.key)
    return context


def message(answer: Response) -> str:
    """What the API server said, for a person."""
    return str(answer.body.get("message", answer.body) if isinstance(answer.body, dict) else answer.body)
