"""`build.py NAME...`: have the programs of a Kubernetes control plane, and print `NAME=PATH` for each.

A program is taken from the folder that KUBEBUILDER_ASSETS names, as envtest does. Else it is built from the Go modules
beside this file, whose versions go.mod and go.sum pin, into a cache that a second run reuses without asking Go. etcd
comes from PATH or from the distribution. `--find` builds and installs nothing. Exit 1 with a sentence when a program
cannot be had. Needs nothing outside the standard library.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

HERE = Path(__file__).resolve().parent
UNUSED_DAYS = 14
"""A build of other versions is removed when nobody asked for it in this time: they are half a gigabyte each."""


class Missing(Exception):
    """A program cannot be had; the text says what to do."""


@dataclass(frozen=True)
class Module:
    """A folder beside this file with a go.mod, and the programs that its `tool` lines name."""

    name: str
    source: str
    """The Go module that the programs come from."""
    stamps: tuple[str, ...] = ()
    """`-X` values that tell a program its version; {version}, {major}, {minor} and {client} are filled in."""

    @property
    def folder(self) -> Path:
        return HERE / self.name

    @cached_property
    def gomod(self) -> str:
        return (self.folder / "go.mod").read_text()

    def required(self, module: str) -> str:
        """The version of `module` that go.mod pins, such as v1.34.4."""
        found = re.search(rf"^(?:require)?\s*{re.escape(module)} (v\S+)", self.gomod, re.MULTILINE)
        if found is None:
            raise Missing(f"{self.folder / 'go.mod'} names no version of {module}")
        return found[1]

    @cached_property
    def go(self) -> str:
        """The oldest Go that builds it."""
        return str(re.findall(r"^go (\S+)", self.gomod, re.MULTILINE)[0])

    @cached_property
    def packages(self) -> dict[str, str]:
        """Program -> Go package."""
        lines = re.findall(r"^(?:tool|\t)\s*((?:\S+/)[\w-]+(?:/v\d+)?)$", self.gomod, re.MULTILINE)
        return {package.rpartition("/")[2]: package for package in lines if package.startswith(self.source)}

    @cached_property
    def ldflags(self) -> str:
        version = self.required(self.source)
        major, minor = version[1:].split(".")[:2]
        client = self.required("k8s.io/client-go").split(".")[1] if "{client}" in "".join(self.stamps) else ""
        values = {"version": version, "major": major, "minor": minor, "client": client}
        return " ".join(["-s -w", *(f"-X {stamp.format(**values)}" for stamp in self.stamps)])

    @cached_property
    def bin(self) -> Path:
        """Where its programs stand once built: the name says all that they were built from."""
        text = "\n".join([self.gomod, (self.folder / "go.sum").read_text(), self.ldflags, sys.platform, machine()])
        return cache() / f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}" / "bin"


VERSION = "k8s.io/component-base/version"
MODULES = (
    # Without a version the API server calls itself v0.0.0, which clients and helm refuse.
    Module(
        "kubernetes",
        "k8s.io/kubernetes",
        (f"{VERSION}.gitVersion={{version}}", f"{VERSION}.gitMajor={{major}}", f"{VERSION}.gitMinor={{minor}}"),
    ),
    # The version that `helm template` claims without a cluster is that of its own Kubernetes client.
    Module(
        "helm",
        "helm.sh/helm/v3",
        (
            "helm.sh/helm/v3/internal/version.version={version}",
            "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1",
            "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor={client}",
        ),
    ),
    Module("kwok", "sigs.k8s.io/kwok"),
    Module("coredns", "github.com/coredns/coredns"),
)
DEFAULT = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "helm", "kwok")


def machine() -> str:
    return os.environ.get("GOARCH") or platform.machine()


def cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "flashfleet"


def programs() -> dict[str, Module]:
    return {name: module for module in MODULES for name in module.packages}


def find(name: str) -> Path | None:
    """Where a program stands already, or None. Raises Missing for a name that nothing here can build."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and (path := Path(assets) / name).is_file():
        return path.resolve()
    if name == "etcd":
        found = shutil.which("etcd")
        return Path(found) if found else None
    module = programs().get(name)
    if module is None:
        raise Missing(f"no program {name!r}; there are: etcd, {', '.join(sorted(programs()))}")
    path = module.bin / name
    if not path.is_file():
        return None
    with contextlib.suppress(OSError):  # a cache that somebody else owns can still be read
        os.utime(module.bin)
    return path


def have(name: str) -> Path:
    """The program, installed or built when it is not there yet. Raises Missing."""
    if path := find(name):
        return path
    if name == "etcd":
        return install_etcd()
    module = programs()[name]
    need_go(module, name)
    module.bin.mkdir(parents=True, exist_ok=True)
    with lock(module.bin.parent / "lock"):
        if path := find(name):  # somebody else has built it meanwhile
            return path
        build(module, name)
    forget(module)
    return module.bin / name


def build(module: Module, name: str) -> None:
    version = module.required(module.source)
    print(f"cluster-tools: building {name} {version} (minutes, once)", file=sys.stderr, flush=True)
    start, part = time.monotonic(), module.bin / f".{name}.part"
    # -mod=readonly: what go.sum does not pin is not built.
    command = ["go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", module.ldflags]
    answer = subprocess.run(
        [*command, "-o", str(part), module.packages[name]],
        cwd=module.folder,
        env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"},
        stdout=sys.stderr,
        check=False,
    )
    if answer.returncode:
        raise Missing(f"go could not build {name} {version} in {module.folder}; its words stand above")
    part.replace(module.bin / name)  # at once: a build that was cut off leaves no program
    print(f"cluster-tools: {name} built in {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)


def need_go(module: Module, name: str) -> None:
    """Raises Missing where Go is absent, or too old and not allowed to fetch a newer one of itself."""
    other = f"or set KUBEBUILDER_ASSETS to a folder that holds {name}"
    if shutil.which("go") is None:
        raise Missing(f"{name} has to be built, and Go is not on PATH: install Go {module.go} or newer, {other}")
    answer = subprocess.run(
        ["go", "env", "GOVERSION", "GOTOOLCHAIN"],
        cwd="/",  # in a module's folder Go would speak of that module's Go
        env={**os.environ, "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=True,
    )
    version, toolchain = answer.stdout.split("\n")[:2]
    if numbers(version) < numbers(module.go) and toolchain == "local":
        raise Missing(f"{name} needs Go {module.go} or newer to build, and here is {version}: install it, {other}")


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def install_etcd() -> Path:
    script = HERE.parents[2] / "tools" / "system_package.sh"
    for manager, package in (("apt-get", "etcd-server"), ("dnf", "etcd"), ("zypper", "etcd"), ("brew", "etcd")):
        answer = subprocess.run(["sh", str(script), manager, package], stdout=sys.stderr, check=False)
        if answer.returncode == 0 and (path := find("etcd")):
            return path
    raise Missing(
        "etcd is not on PATH, and there is no right to install it: install etcd (Debian and Ubuntu: etcd-server), "
        "or set KUBEBUILDER_ASSETS to a folder that holds it"
    )


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def forget(module: Module) -> None:
    """Removes this module's builds of other versions that nobody asked for lately."""
    for folder in cache().glob(f"{module.name}-*"):
        with contextlib.suppress(OSError):
            if folder != module.bin.parent and time.time() - (folder / "bin").stat().st_mtime > UNUSED_DAYS * 86400:
                shutil.rmtree(folder)


def stages() -> list[Path]:
    """The files that tell kwok how nodes and pods live: in the cache, copied there from its Go module."""
    wanted = ["node/fast/node-initialize", "node/heartbeat/node-heartbeat"]
    wanted += ["pod/fast/pod-ready", "pod/fast/pod-complete", "pod/fast/pod-delete"]
    module = programs()["kwok"]
    files = [module.bin / "stages" / f"{name.replace('/', '-')}.yaml" for name in wanted]
    if all(file.is_file() for file in files):
        return files
    need_go(module, "kwok")
    answer = subprocess.run(
        ["go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module.source],
        cwd=module.folder,
        env={**os.environ, "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode or not answer.stdout.strip():
        raise Missing(f"the stage files of kwok were not found in its Go module: {answer.stderr.strip()}")
    files[0].parent.mkdir(parents=True, exist_ok=True)
    for name, file in zip(wanted, files, strict=True):
        file.write_bytes((Path(answer.stdout.strip()) / "kustomize" / "stage" / f"{name}.yaml").read_bytes())
    return files


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {' '.join(DEFAULT)}")
    parser.add_argument("--find", action="store_true", help="only say where they are; exit 1 when one is missing")
    options = parser.parse_args()
    try:
        for name in options.names or DEFAULT:
            path = find(name) if options.find else have(name)
            if path is None:
                raise Missing(f"{name} is not there: `make cluster-tools` builds it")
            print(f"{name}={path}", flush=True)
            if name == "kwok":
                print("kwok-stages=" + os.pathsep.join(map(str, stages())), flush=True)
    except Missing as error:
        print(f"cluster-tools: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
