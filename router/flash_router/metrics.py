"""What the router counts. Every label has a fixed set of values: nothing a client writes becomes a label."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Literal

from flash_wire.settings import TIERS
from flash_wire.v1 import inference_pb2 as pb
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from flash_router.core import Core, Refused, Why, on_parting
from flash_router.recent import Recent
from flash_router.said import FINISH_NAMES, TIER_NAMES

Front = Literal["grpc", "http"]
HOWS = frozenset(("forced", "rule", "score", "fallback"))
_WAITS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_PER_TOKEN = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5)


class Metrics:
    """One router's counters, in a registry of their own so that two routers fit in one process."""

    def __init__(self, core: Core, *, recent: int = 50) -> None:
        self.registry = CollectorRegistry()
        self.recent = Recent(recent)
        self.requests = Counter(
            "flashfleet_requests", "Answered requests.", ("front", "tier", "finish", "how"), registry=self.registry
        )
        self.refusals = Counter(
            "flashfleet_refusals",
            "Requests refused before their first event.",
            ("front", "why"),
            registry=self.registry,
        )
        self.gone = Counter(
            "flashfleet_clients_gone",
            "Clients that left before their answer was over.",
            ("front",),
            registry=self.registry,
        )
        self.tokens = Counter(
            "flashfleet_tokens", "Tokens of answered requests.", ("tier", "kind"), registry=self.registry
        )
        self.resumed = Counter(
            "flashfleet_resumed", "Times that another worker continued an answer.", ("tier",), registry=self.registry
        )
        self.ttft = Histogram(
            "flashfleet_ttft_seconds", "Arrival to first token.", ("tier",), buckets=_WAITS, registry=self.registry
        )
        self.tpot = Histogram(
            "flashfleet_tpot_seconds",
            "Mean time per token after the first, per request.",
            ("tier",),
            buckets=_PER_TOKEN,
            registry=self.registry,
        )
        self.queue = Histogram(
            "flashfleet_queue_seconds",
            "Arrival to the first worker's Begin.",
            ("tier",),
            buckets=_WAITS,
            registry=self.registry,
        )
        self.total = Histogram(
            "flashfleet_request_seconds",
            "Arrival to the end of the answer.",
            ("tier",),
            buckets=_WAITS,
            registry=self.registry,
        )
        self.registry.register(_CoreCollector(core))

    def call(self, front: Front) -> Call:
        """The account of the request that this task serves: tell it what happens.

        What the core says when its iterator is closed early reaches it too.
        """
        call = Call(self, front)
        on_parting.set(call.parted)
        return call


class Call:
    """Follows one request. Exactly one of `refused`, `done` and `left` counts, the first that is called."""

    __slots__ = ("_front", "_metrics", "_over", "_parted", "_started")

    def __init__(self, metrics: Metrics, front: Front) -> None:
        self._metrics = metrics
        self._front = front
        self._started: pb.Started | None = None
        self._parted = pb.Done(finish=pb.CANCELLED)
        self._over = False

    def refused(self, refused: Refused) -> None:
        if not self._end():
            return
        self._metrics.refusals.labels(self._front, refused.why.value).inc()

    def failed(self) -> None:
        """An error of the router itself."""
        self.refused(Refused(Why.INTERNAL, ""))

    def started(self, started: pb.Started) -> None:
        self._started = started
        self._metrics.queue.labels(_tier(started)).observe(max(0.0, started.queue_ms) / 1000)

    def done(self, done: pb.Done) -> None:
        if self._started is None or not self._end():
            return
        metrics, tier = self._metrics, _tier(self._started)
        how = self._started.decision.how
        finish = FINISH_NAMES.get(done.finish, "error")
        metrics.requests.labels(self._front, tier, finish, how if how in HOWS else "other").inc()
        for kind, count in (
            ("prompt", done.usage.prompt_tokens),
            ("completion", done.usage.completion_tokens),
            ("cached", done.usage.cached_tokens),
        ):
            metrics.tokens.labels(tier, kind).inc(count)
        metrics.resumed.labels(tier).inc(done.resumed)
        metrics.total.labels(tier).observe(max(0.0, done.total_ms) / 1000)
        if done.usage.completion_tokens:
            metrics.ttft.labels(tier).observe(max(0.0, done.ttft_ms) / 1000)
        if done.usage.completion_tokens > 1:
            metrics.tpot.labels(tier).observe(max(0.0, done.tpot_ms) / 1000)
        metrics.recent.add(time.time(), self._front, self._started, done)

    def parted(self, done: pb.Done) -> None:
        """How far the answer had come when the core's iterator was closed. Counts nothing: `left` follows."""
        self._parted = done

    def left(self) -> None:
        """The client went away."""
        if self._end():
            self._metrics.gone.labels(self._front).inc()
            if self._started is not None:
                self._metrics.recent.add(time.time(), self._front, self._started, self._left_with())

    def _left_with(self) -> pb.Done:
        """As this client had it: its end is its going, though the core may go on for a while."""
        done = pb.Done()
        done.CopyFrom(self._parted)
        done.finish = pb.CANCELLED
        return done

    def _end(self) -> bool:
        first = not self._over
        self._over = True
        return first


def _tier(started: pb.Started) -> str:
    return TIER_NAMES.get(started.tier, "auto")


class _CoreCollector(Collector):
    """Reads the core at scrape time, so that these figures cannot be stale."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def collect(self) -> Iterator[GaugeMetricFamily]:
        stats = self._core.stats()
        for name, doc, value in (
            ("flashfleet_ready", "1 when the router takes requests.", float(self._core.ready)),
            ("flashfleet_standard_share_observed", "Share of classified requests that standard answered.", stats.share),
            ("flashfleet_standard_share_target", "routing.standardShare.", stats.share_target),
            ("flashfleet_threshold", "Scores from here on go to standard.", stats.threshold),
            ("flashfleet_held_tokens", "Estimated tokens in held requests.", stats.held_tokens),
            ("flashfleet_running", "Requests whose stream is open.", stats.running),
        ):
            yield GaugeMetricFamily(name, doc, value=value)
        held = GaugeMetricFamily(
            "flashfleet_held_requests", "Requests held while a tier or the broker is away.", labels=("tier",)
        )
        for tier in TIERS:
            held.add_metric([tier], stats.held.get(tier, 0))
        yield held
