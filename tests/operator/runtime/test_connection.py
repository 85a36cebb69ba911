"""Where the API server is: kubeconfigs as people have them, a service account, and what is said without either."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml
from flash_operator import connection
from flash_operator.connection import CannotConnect


def authority() -> str:
    """Any certificate that OpenSSL takes: the first of the system's own, so that none has to be made."""
    certificate = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not certificate:
        pytest.skip("this system has no certificates")
    return ssl.DER_cert_to_PEM_cert(certificate[0])


def written(folder: Path, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> Path:
    config = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    return path


def test_a_token_and_an_authority(tmp_path: Path) -> None:
    data = base64.b64encode(authority().encode()).decode()
    found = connection.from_kubeconfig(written(tmp_path, {"certificate-authority-data": data}, {"token": "secret"}))
    assert (found.server, found.namespace) == ("https://127.0.0.1:6443", "team")
    assert found.token is not None
    assert found.token() == "secret"
    assert "secret" not in repr(found)
    assert len(found.tls.get_ca_certs()) == 1, "and no other authority is trusted"


def test_a_token_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(connection.time, "monotonic", lambda: now)
    (tmp_path / "token").write_text("first\n")
    found = connection.from_kubeconfig(written(tmp_path, user={"tokenFile": "token"}))
    assert found.token is not None
    assert found.token() == "first"
    (tmp_path / "token").write_text("second\n")
    now += 31
    assert found.token() == "second"


def test_a_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(CannotConnect, match="automountServiceAccountToken"):
        connection.in_cluster(tmp_path)
    for name, text in (("ca.crt", authority()), ("namespace", "team"), ("token", "t")):
        (tmp_path / name).write_text(text)
    found = connection.in_cluster(tmp_path)
    assert (found.server, found.namespace) == ("https://[fd00::1]:443", "team")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "not YAML"),
        ("{}", "contexts: ''"),
        ("current-context: x\ncontexts: [{name: x, context: {cluster: c}}]", "clusters: 'c'"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(CannotConnect, match=says):
        connection.from_kubeconfig(path)


def test_no_kubeconfig(tmp_path: Path) -> None:
    with pytest.raises(CannotConnect, match="give --kubeconfig or set KUBECONFIG"):
        connection.from_kubeconfig(tmp_path / "none")


def test_certificates_that_nobody_checks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotConnect, match="certificate-authority-data"):
        connection.from_kubeconfig(written(tmp_path, {"insecure-skip-tls-verify": True}))
