"""What the operator tells about itself: /metrics, /healthz (restart it when it fails) and /readyz, on one port."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from flash_operator.client import Resource

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15)


class Metrics:
    """The label sets are closed: kinds, verbs, Kubernetes' reasons and the states of `flash_operator.status`."""

    def __init__(self) -> None:
        disable_created_metrics()
        self.registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self.registry)
        self.reconcile_seconds = Histogram(
            "flashfleet_operator_reconcile_duration_seconds",
            "Time of one reconcile, its calls of the API server included.",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.reconciles = Counter(
            "flashfleet_operator_reconcile", "Reconciles by outcome.", ["outcome"], registry=self.registry
        )
        self.errors = Counter(
            "flashfleet_operator_reconcile_errors",
            "Failed reconciles by the API server's reason, or the kind of error.",
            ["type"],
            registry=self.registry,
        )
        self.calls = Counter(
            "flashfleet_operator_api_calls",
            "Calls of the API server, watches apart.",
            ["verb", "resource", "reason"],
            registry=self.registry,
        )
        self.call_seconds = Histogram(
            "flashfleet_operator_api_call_duration_seconds",
            "Time of one call of the API server.",
            ["verb"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.events = Counter(
            "flashfleet_operator_watch_events", "Events of the watches.", ["resource"], registry=self.registry
        )
        self.scales = Counter(
            "flashfleet_operator_scale_decisions", "Changes of a tier's worker count.", ["tier"],
            registry=self.registry,
        )  # fmt: skip

    def told(self, verb: str, resource: Resource, reason: str, seconds: float) -> None:
        self.call_seconds.labels(verb).observe(seconds)
        self.calls.labels(verb, resource.plural, reason).inc()

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A gauge that is read when it is asked for."""
        self.registry.register(_Read(name, text, "", lambda: [("", read())]))

    def gauges(self, name: str, text: str, label: str, read: Callable[[], Iterable[tuple[str, float]]]) -> None:
        self.registry.register(_Read(name, text, label, read))


class _Read(Collector):
    def __init__(self, name: str, text: str, label: str, read: Callable[[], Iterable[tuple[str, float]]]) -> None:
        self._name, self._text, self._label, self._read = name, text, label, read

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(self._name, self._text, labels=[self._label] if self._label else [])
        for value, number in self._read():
            family.add_metric([value] if self._label else [], number)
        yield family


Check = Callable[[], str]
"""What is wrong, or "" when nothing is."""


@contextlib.asynccontextmanager
async def serve(metrics: Metrics, host: str, port: int, *, live: Check, ready: Check) -> AsyncIterator[int]:
    """Yields the port. `port` 0 takes a free one."""

    async def show(_: web.Request) -> web.Response:
        text = generate_latest(metrics.registry)  # on the loop: the gauges read what only the loop may change
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    def check(of: Check) -> Callable[[web.Request], object]:
        async def answer(_: web.Request) -> web.Response:
            wrong = of()
            return web.Response(text=f"{wrong or 'ok'}\n", status=503 if wrong else 200)

        return answer

    app = web.Application()
    app.add_routes(
        [
            web.get("/metrics", show),
            web.get("/healthz", check(live)),  # type: ignore[arg-type]
            web.get("/readyz", check(ready)),  # type: ignore[arg-type]
        ]
    )
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, shutdown_timeout=1.0)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
