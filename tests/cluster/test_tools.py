"""What finds or builds the cluster's programs: where it looks, what it hands to Go, what it says when it cannot."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.cluster_client import tools
from support.cluster_processes import Failed

TOOLS = Path(__file__).parent / "tools"
FAKE_GO = """#!/bin/sh
if [ "$1" = env ]; then printf '%s\\n' "$FAKE_VERSION" local; exit 0; fi
echo "CGO_ENABLED=$CGO_ENABLED $*" >> "$FAKE_LOG"
while [ $# -gt 0 ]; do
    if [ "$1" = -o ]; then echo program > "$2"; fi
    shift
done
exit "${FAKE_EXIT:-0}"
"""


class Builder:
    """build.py on a machine that has an empty cache and no program but `sh` and, maybe, a pretended Go."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.cache, self.log = folder / "bin", folder / "cache", folder / "go.log"
        self.bin.mkdir()
        for name in ("sh", "id"):
            (self.bin / name).symlink_to(shutil.which(name) or name)

    def with_go(self) -> Builder:
        (self.bin / "go").write_text(FAKE_GO)
        (self.bin / "go").chmod(0o755)
        return self

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": str(self.bin),
            "HOME": str(self.cache),
            "XDG_CACHE_HOME": str(self.cache),
            "FAKE_LOG": str(self.log),
            "FAKE_VERSION": "go1.99.1",
            **more,
        }
        return subprocess.run(
            [sys.executable, str(TOOLS / "build.py"), *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def built(self) -> list[str]:
        """What Go was asked for so far, a line each."""
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(tmp_path)


def test_assets_come_first(builder: Builder, tmp_path: Path) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    for name in ("etcd", "kube-apiserver"):
        (assets / name).touch()
    answer = builder.run("etcd", "kube-apiserver", KUBEBUILDER_ASSETS=str(assets))
    assert answer.stdout == f"etcd={assets}/etcd\nkube-apiserver={assets}/kube-apiserver\n"
    assert builder.built() == []


def test_a_program_is_built_once(builder: Builder) -> None:
    first = builder.with_go().run("kubectl")
    assert first.returncode == 0, first.stderr
    path = Path(first.stdout.removeprefix("kubectl=").strip())
    assert path.is_file()
    assert path.is_relative_to(builder.cache / "flashfleet")
    assert builder.run("kubectl").stdout == first.stdout
    assert len(builder.built()) == 1
    (builder.bin / "go").unlink()
    assert builder.run("--find", "kubectl").stdout == first.stdout  # and needs no Go any more


def test_a_program_knows_its_version(builder: Builder) -> None:
    assert builder.with_go().run("kube-apiserver", "helm").returncode == 0
    server, helm = builder.built()
    assert server.startswith("CGO_ENABLED=0 build -mod=readonly -trimpath ")
    (version,) = re.findall(r"^\tk8s.io/kubernetes (\S+)", (TOOLS / "kubernetes" / "go.mod").read_text(), re.MULTILINE)
    assert f"version.gitVersion={version} " in server
    assert f"version.gitMinor={version.split('.')[1]} " in server
    assert re.search(r"chartutil.k8sVersionMinor=[2-9]\d ", helm)


def test_a_build_that_fails_leaves_no_program(builder: Builder) -> None:
    answer = builder.with_go().run("kwok", FAKE_EXIT="1")
    assert answer.returncode == 1
    assert "go could not build kwok" in answer.stderr
    assert builder.run("--find", "kwok").returncode == 1


def test_without_go_it_says_which_one(builder: Builder) -> None:
    answer = builder.run("helm")
    (version,) = re.findall(r"^go (\S+)", (TOOLS / "helm" / "go.mod").read_text(), re.MULTILINE)
    assert answer.returncode == 1
    assert f"install Go {version} or newer" in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
    assert not builder.cache.exists()


def test_an_old_go_is_named(builder: Builder) -> None:
    answer = builder.with_go().run("kubectl", FAKE_VERSION="go1.19.8")
    assert answer.returncode == 1
    assert "here is go1.19.8" in answer.stderr
    assert builder.built() == []


def test_without_etcd_it_says_what_to_install(builder: Builder) -> None:
    answer = builder.run("etcd")
    assert answer.returncode == 1
    assert "etcd-server" in answer.stderr


def test_a_program_that_nobody_makes(builder: Builder) -> None:
    answer = builder.run("kubeadm")
    assert answer.returncode == 1
    assert "no program 'kubeadm'; there are: etcd, " in answer.stderr


def test_what_is_missing_is_a_failure_and_never_a_skip(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(builder.cache))
    with pytest.raises(Failed, match="`make cluster-tools` builds it"):
        tools.__wrapped__("kube-apiserver")
