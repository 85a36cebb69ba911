"""A real Kubernetes control plane for tests: etcd, API server with RBAC, controllers, scheduler, on loopback.

`make cluster-tools` builds what it needs; `python tests/cluster/run.py` runs one for a person. Pods are objects only:
without nodes they stay Pending, and the nodes of `add_kwok_nodes` claim to run them but run nothing.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from support.cluster_client import Client, message, tools
from support.cluster_kwok import add_nodes
from support.cluster_pki import Authority
from support.cluster_processes import Failed, Port, Processes, free_port, resident_mib

SERVICES = "10.96.0.0/16"
START_S = 120.0
"""Long, since the cores may be busy; on free ones it takes about five seconds."""
FAST = ("--kube-api-qps=300", "--kube-api-burst=600")
"""The default of 20 requests a second is meant to spare a shared API server, and makes 40 controllers slow to start."""


class ControlPlane(Client):
    """One control plane. As a context manager it starts at the beginning and leaves nothing behind at the end.

    `controllers` is kube-controller-manager: without it there are no ReplicaSets, no garbage collection, no end of a
    namespace and no default ServiceAccount. `audit` writes down every request (`audit_events`). `address` is the one
    that everything listens on; the flags are added to the command lines. Start it from the main thread.
    """

    def __init__(
        self,
        *,
        controllers: bool = True,
        scheduler: bool = False,
        audit: bool = False,
        address: str = "127.0.0.1",
        names: Sequence[str] = (),
        api_flags: Sequence[str] = (),
        controller_flags: Sequence[str] = (),
        scheduler_flags: Sequence[str] = (),
    ) -> None:
        wanted = ["etcd", "kube-apiserver", "kubectl"]
        wanted += ["kube-controller-manager"] * controllers + ["kube-scheduler"] * scheduler
        self._tools = tools(*wanted)
        self._controllers, self._scheduler, self._audit = controllers, scheduler, audit
        self.address = address
        self._names = names
        self._flags = {"api": api_flags, "controllers": controller_flags, "scheduler": scheduler_flags}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- life

    def start(self) -> None:
        """Returns when the API server is ready and, with controllers, these work. Raises Failed, and ends all."""
        self._port = Port(self.address)
        self.port = self._port.number
        self._processes = Processes()
        self.folder = self._processes.folder
        try:
            self._certificates()
            self._start_etcd()
            self.start_api()
            if self._controllers:
                self._start_controllers()
            if self._scheduler:
                self.start_scheduler()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends all its processes at once and removes its folder: nothing in it is worth a goodbye.

        The logs are copied first to the folder that FLASHFLEET_CLUSTER_LOGS names, if it does.
        """
        try:
            if keep := os.environ.get("FLASHFLEET_CLUSTER_LOGS"):
                kept = Path(keep) / self.folder.name
                kept.mkdir(parents=True, exist_ok=True)
                for log in self.folder.glob("*.log"):
                    shutil.copy(log, kept)
        finally:
            self._processes.close()
            self._port.close()

    def log(self, name: str, lines: int = 200) -> str:
        """The last lines of what a process said: etcd, kube-apiserver, kube-controller-manager, kwok, …"""
        return self._processes.tail(name, lines)

    def memory(self) -> dict[str, float]:
        """Process -> resident MiB."""
        return {name: resident_mib(self.pid(name) or 0) for name in self._processes.names()}

    def _certificates(self) -> None:
        authority = Authority(self.folder / "pki")
        self.connect(authority)
        self._token_key = authority.signing_key("service-accounts")
        service = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
        names = ["localhost", "127.0.0.1", self.address, "10.96.0.1", *service, *self._names]
        self._serving = authority.issue("kube-apiserver", "kube-apiserver", addresses=dict.fromkeys(names))
        self._etcd_client = authority.issue("etcd-client", "kube-apiserver")

    def _start_etcd(self) -> None:
        pair = self.authority.issue("etcd", "etcd", addresses=["127.0.0.1", "localhost"])
        for _ in range(5):  # etcd shares no port, so somebody may have taken the free one
            port = free_port("127.0.0.1")
            self._etcd = f"https://127.0.0.1:{port}"
            self.run(
                "etcd",
                [
                    *(self._tools["etcd"], f"--data-dir={self.folder}/etcd", "--unsafe-no-fsync", "--log-level=warn"),
                    *(f"--listen-client-urls={self._etcd}", f"--advertise-client-urls={self._etcd}"),
                    *("--listen-peer-urls=http://127.0.0.1:0", f"--cert-file={pair.cert}", f"--key-file={pair.key}"),
                    *("--client-cert-auth", f"--trusted-ca-file={self.ca}"),
                ],
            )
            end = time.monotonic() + START_S
            while self._processes.pid("etcd") and time.monotonic() < end:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                    return
                time.sleep(0.02)
            self._processes.end("etcd")
        raise Failed(f"etcd did not start; its log closes with:\n{self.log('etcd')}")

    def _start_controllers(self) -> None:
        name = "kube-controller-manager"
        config = self.component(name)
        self.run(
            name,
            [
                *(self._tools[name], f"--kubeconfig={config}", "--leader-elect=false", "--secure-port=0"),
                *("--use-service-account-credentials", f"--root-ca-file={self.ca}", "--profiling=false"),
                *(f"--service-account-private-key-file={self._token_key}", *FAST, *self._flags["controllers"]),
            ],
        )
        self.until(lambda: self._has_account("default"), name, "made no ServiceAccount in the namespace default")

    def start_scheduler(self) -> None:
        name = "kube-scheduler"
        if self.pid(name):
            return
        self._tools |= tools(name)
        config = self.component(name)
        command = [self._tools[name], f"--kubeconfig={config}", "--leader-elect=false", "--secure-port=0"]
        self.run(name, [*command, *FAST, *self._flags["scheduler"]])

    def run(self, name: str, command: Sequence[str]) -> None:
        """Starts a process that lives as long as this cluster; one of its words lies in `folder`."""
        # etcd takes any ETCD_* for a flag, and its 3.4 has to be told that it may run on this machine.
        self._processes.start(name, command, {**self.environment(), "ETCD_UNSUPPORTED_ARCH": "arm64"})

    def pid(self, name: str) -> int | None:
        return self._processes.pid(name)

    def until(self, condition: Callable[[], object], name: str, what: str) -> None:
        """Waits for it while the process `name` lives. Raises Failed: "NAME WHAT", and its log."""
        end = time.monotonic() + START_S

        def true() -> object:
            try:
                return condition()
            except (OSError, http.client.HTTPException):  # nobody answers: is it still there?
                self._processes.check("kube-apiserver")
                return False

        while not true():
            self._processes.check(name)
            if time.monotonic() > end:
                raise Failed(f"{name} {what} within {START_S:g} s; its log closes with:\n{self.log(name, 15)}")
            time.sleep(0.05)

    def _has_account(self, namespace: str) -> bool:
        return self.request("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/default").status == 200

    # --- the API server, and its absence

    def start_api(self) -> None:
        """Starts the API server, at first or after `stop_api`: on the same port, with the same data."""
        folder, keys = self.folder, self._token_key
        flags = [
            *(f"--etcd-servers={self._etcd}", f"--etcd-cafile={self.ca}"),
            *(f"--etcd-certfile={self._etcd_client.cert}", f"--etcd-keyfile={self._etcd_client.key}"),
            *(f"--bind-address={self.address}", f"--advertise-address={self.address}"),
            *(f"--secure-port={self.port}", "--permit-port-sharing"),  # the port stays ours while it is away
            *(f"--tls-cert-file={self._serving.cert}", f"--tls-private-key-file={self._serving.key}"),
            *(f"--client-ca-file={self.ca}", "--authorization-mode=Node,RBAC", "--allow-privileged"),
            *("--enable-admission-plugins=NodeRestriction", f"--service-cluster-ip-range={SERVICES}"),
            *("--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={keys}"),
            *(f"--service-account-signing-key-file={keys}", "--profiling=false"),
        ]
        if self.address.startswith("127."):  # a loopback address may not be an endpoint of the Service `kubernetes`
            flags.append("--endpoint-reconciler-type=none")
        if self._audit:
            policy = folder / "audit-policy.json"
            rules = [{"level": "Metadata", "omitStages": ["RequestReceived"]}]
            policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))
            flags += [f"--audit-policy-file={policy}", f"--audit-log-path={folder}/audit.log"]
        self.run("kube-apiserver", [self._tools["kube-apiserver"], *flags, *self._flags["api"]])
        self.until(self.ready, "kube-apiserver", "was not ready")

    def stop_api(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Takes the API server away: SIGKILL as a crash, SIGSTOP so that it hangs, SIGTERM in good order.

        In good order it would wait a minute for open watches, so after five seconds it is killed all the same.
        """
        if how == signal.SIGSTOP:
            self._processes.send("kube-apiserver", how)
        else:
            self._processes.end("kube-apiserver", how)

    @contextlib.contextmanager
    def outage(self, how: signal.Signals = signal.SIGKILL) -> Iterator[None]:
        """`with outage():` the API server is away (see `stop_api`); afterwards it is there again, and ready."""
        self.stop_api(how)
        try:
            yield
        finally:
            if how == signal.SIGSTOP:
                self._processes.send("kube-apiserver", signal.SIGCONT)
                self.until(self.ready, "kube-apiserver", "was not ready")
            else:
                self.start_api()

    @contextlib.contextmanager
    def namespace(self, prefix: str = "test") -> Iterator[str]:
        """A new namespace, usable at once; deleted afterwards without waiting for its end."""
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        answer = self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        if answer.status != 201:
            raise Failed(f"no namespace {name}: {message(answer)}")
        if self._controllers:
            self.until(lambda: self._has_account(name), "kube-controller-manager", f"did not furnish {name}")
        try:
            yield name
        finally:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.request("DELETE", f"/api/v1/namespaces/{name}")

    def audit_events(self) -> list[dict[str, Any]]:
        """Every request so far (audit.k8s.io Event, level Metadata), watches when they end; a 401 has an empty user."""
        if not self._audit:
            raise Failed("nothing was written down: ControlPlane(audit=True)")
        text = (self.folder / "audit.log").read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]  # the last may be half written

    def add_kwok_nodes(self, count: int, *, gpus: int = 0) -> list[str]:
        """Adds pretended nodes with so many `nvidia.com/gpu` each; see cluster_kwok. Returns their names when Ready."""
        return add_nodes(self, count, gpus=gpus)
