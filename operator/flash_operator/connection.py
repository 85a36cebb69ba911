"""Where the API server is and who we are there: a pod's service account, or a kubeconfig on a developer's machine."""

from __future__ import annotations

import base64
import contextlib
import importlib
import os
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TOKEN_FRESH_S = 30.0
_CONNECT_S = 5.0


class CannotConnect(Exception):
    """There is no usable way to the API server; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Connection:
    server: str
    """https://host:port"""
    namespace: str
    """Where the operator itself lives."""
    tls: ssl.SSLContext
    token: Callable[[], str] | None = None
    """Read at each request, since a service account's token is replaced about once an hour."""

    def session(self, *, limit: int, traces: list[aiohttp.TraceConfig] | None = None) -> aiohttp.ClientSession:
        """A session that signs each request. `limit` bounds its connections (0: no bound, for watches)."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self.tls, limit=limit),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            headers={"User-Agent": "flashfleet-operator"},
            middlewares=(self._sign,) if self.token else (),
            trace_configs=traces,
        )

    async def _sign(
        self, request: aiohttp.ClientRequest, handler: Callable[[aiohttp.ClientRequest], Awaitable[Any]]
    ) -> Any:
        assert self.token is not None
        request.headers["Authorization"] = f"Bearer {self.token()}"
        return await handler(request)


def find(kubeconfig: str | None = None, context: str | None = None) -> Connection:
    """The service account in a pod; else --kubeconfig, $KUBECONFIG or ~/.kube/config. Raises CannotConnect."""
    if not kubeconfig and "KUBERNETES_SERVICE_HOST" in os.environ:
        return in_cluster()
    path = Path(kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config").expanduser()
    return from_kubeconfig(path, context)


def in_cluster(folder: Path = SERVICE_ACCOUNT) -> Connection:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        namespace = (folder / "namespace").read_text(encoding="utf-8").strip()
        token = _file_token(folder / "token")
        token()
    except OSError as error:
        raise CannotConnect(
            f"{folder}: {error.strerror}: the pod needs a service account, with automountServiceAccountToken not false"
        ) from None
    return Connection(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}", namespace, tls, token)


def from_kubeconfig(path: Path, context: str | None = None) -> Connection:
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except OSError as error:
        raise CannotConnect(f"{path}: {error.strerror}: give --kubeconfig or set KUBECONFIG") from None
    except yaml.YAMLError:
        raise CannotConnect(f"{path}: not YAML") from None
    try:
        chosen = _named(config, "contexts", context or config.get("current-context", ""))["context"]
        cluster = _named(config, "clusters", chosen["cluster"])["cluster"]
        user = _named(config, "users", chosen["user"])["user"]
        server = cluster["server"].rstrip("/")
    except (KeyError, TypeError, AttributeError) as error:
        raise CannotConnect(f"{path}: {error.args[0] if error.args else error} is missing") from None
    if "exec" in user or "auth-provider" in user:
        return _by_plugin(path, context, chosen.get("namespace", "default"))
    tls = _tls(path.parent, cluster, user)
    token = None
    if file := user.get("tokenFile"):
        token = _file_token(path.parent / file)
    elif text := user.get("token"):
        token = _fixed(text)
    return Connection(server, chosen.get("namespace", "default"), tls, token)


def _by_plugin(path: Path, context: str | None, namespace: str) -> Connection:
    """Logins by a cloud's own program. The official client knows them all; it is imported only here, because it would
    double the memory of an operator that runs in a pod and never needs it."""
    official: Any = importlib.import_module("kubernetes")
    loaded = official.client.Configuration()
    official.config.load_kube_config(str(path), context, client_configuration=loaded)
    tls = ssl.create_default_context(cafile=loaded.ssl_ca_cert)
    if loaded.cert_file:
        tls.load_cert_chain(loaded.cert_file, loaded.key_file)

    def token() -> str:
        return str(loaded.get_api_key_with_prefix("authorization") or "").removeprefix("Bearer ")

    return Connection(str(loaded.host).rstrip("/"), namespace, tls, token if token() else None)


def _tls(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
    tls = ssl.create_default_context()
    if cluster.get("insecure-skip-tls-verify"):
        raise CannotConnect("insecure-skip-tls-verify is not supported: give certificate-authority-data instead")
    if data := cluster.get("certificate-authority-data"):
        tls = ssl.create_default_context(cadata=base64.b64decode(data).decode())
    elif file := cluster.get("certificate-authority"):
        tls = ssl.create_default_context(cafile=str(folder / file))
    if "client-certificate-data" in user or "client-certificate" in user:
        with (
            _as_file(folder, user, "client-certificate") as certificate,
            _as_file(folder, user, "client-key") as key,
        ):
            tls.load_cert_chain(certificate, key)
    return tls


@contextlib.contextmanager
def _as_file(folder: Path, user: dict[str, Any], field: str) -> Iterator[str]:
    """`ssl` reads keys from files only: what stands inline lies in a private file for that moment."""
    if data := user.get(f"{field}-data"):
        with tempfile.NamedTemporaryFile() as file:
            file.write(base64.b64decode(data))
            file.flush()
            yield file.name
    else:
        yield str(folder / user[field])


def _named(config: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    for item in config.get(kind) or []:
        if item.get("name") == name:
            return dict(item)
    raise KeyError(f"{kind}: {name!r}")


def _fixed(text: str) -> Callable[[], str]:
    return lambda: text


def _file_token(path: Path) -> Callable[[], str]:
    read_at, text = float("-inf"), ""

    def token() -> str:
        nonlocal read_at, text
        now = time.monotonic()
        if now - read_at > _TOKEN_FRESH_S:
            text, read_at = path.read_text(encoding="utf-8").strip(), now
        return text

    return token
