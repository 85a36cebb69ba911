"""What a worker counts. No label comes from a request, so there is a fixed number of series."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from flash_worker.lease import Leases
from flash_worker.request import Room
from flash_worker.stats import Stats, StepStats

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)

_COUNTERS = {
    "steps": "Steps that the engine ran.",
    "failed_steps": "Steps that raised an error.",
    "step_seconds": "Seconds spent in steps.",
    "tokens": "Tokens run by the model.",
    "drawn": "Tokens drawn.",
    "preemptions": "Requests that lost their pages to others and were computed again.",
    "prefix_queries": "Prompt tokens looked up in the prefix cache.",
    "prefix_hits": "Prompt tokens found in the prefix cache.",
}
_GAUGES = {
    "running": "Requests in the running batch.",
    "waiting": "Requests in the engine that wait for pages.",
    "waste_tokens": "Places in requests' last pages that hold nothing.",
    "pinned_tokens": "Tokens of pinned prefixes.",
}


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._step = Histogram("flashfleet_worker_step_duration_seconds", "Duration of a step.", buckets=_SECONDS,
                               registry=self.registry)  # fmt: skip
        self._size = Histogram("flashfleet_worker_step_size_tokens", "Tokens in a step.", buckets=_TOKENS,
                               registry=self.registry)  # fmt: skip

    def step(self, stats: StepStats) -> None:
        """Called by the engine's thread."""
        self._step.observe(stats.seconds)
        self._size.observe(stats.tokens)

    def watch(
        self,
        leases: Leases,
        room: Callable[[], Room],
        stats: Callable[[], Stats] | None,
        broker_failures: Callable[[], int],
    ) -> None:
        """From now on these are read at each scrape."""
        self.registry.register(_WorkerCollector(leases, room, stats, broker_failures))

    def page(self) -> tuple[str, bytes]:
        return CONTENT_TYPE_LATEST, generate_latest(self.registry)


class _WorkerCollector(Collector):
    def __init__(
        self,
        leases: Leases,
        room: Callable[[], Room],
        stats: Callable[[], Stats] | None,
        broker_failures: Callable[[], int],
    ) -> None:
        self._leases = leases
        self._room = room
        self._stats = stats
        self._broker_failures = broker_failures

    def collect(self) -> Iterator[Metric]:
        jobs = CounterMetricFamily("flashfleet_worker_jobs", "What became of jobs.", labels=["event"])
        for event, count in dataclasses.asdict(self._leases.counts).items():
            jobs.add_metric([event], count)
        yield jobs
        yield CounterMetricFamily(
            "flashfleet_worker_broker_failures", "Operations that the broker did not answer.",
            value=self._broker_failures(),
        )  # fmt: skip
        yield GaugeMetricFamily("flashfleet_worker_held_jobs", "Jobs that this worker holds.", value=len(self._leases))
        room = self._room()
        for name, value in dataclasses.asdict(room).items():
            yield GaugeMetricFamily(
                f"flashfleet_worker_room_{name}", "Room for requests, free and in all.", value=value
            )
        if self._stats is not None:
            yield from _engine(self._stats())


def _engine(stats: Stats) -> Iterator[Metric]:
    for name, text in _COUNTERS.items():
        yield CounterMetricFamily(f"flashfleet_worker_{name}", text, value=getattr(stats, name))
    for name, text in _GAUGES.items():
        yield GaugeMetricFamily(f"flashfleet_worker_{name}", text, value=getattr(stats, name))
    pages = GaugeMetricFamily("flashfleet_worker_kv_pages", "Pages of the KV pool; the parts sum to total.",
                              labels=["part"])  # fmt: skip
    for part, count in dataclasses.asdict(stats.account).items():
        pages.add_metric([part], count)
    yield pages
