"""Write the chart's Grafana dashboard (`--check` changes nothing, exit 1 when it is stale).

The rows and the queries stand here in a few lines; the JSON that Grafana wants is made from them.
Variables: the data source, the namespace and the FlashDeployment. The labels `namespace`, `deployment` and `component`
come from the chart's PodMonitor.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "deploy" / "helm" / "flashfleet" / "files" / "dashboards" / "flashfleet.json"
WHICH = 'namespace="$namespace", deployment=~"$deployment"'


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    text: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    """(query, legend)"""


def _quantiles(name: str, by: str = "tier") -> tuple[tuple[str, str], ...]:
    return tuple(
        (
            f"histogram_quantile({q}, sum by (le, {by}) (rate({name}_bucket{{{WHICH}}}[$__rate_interval])))",
            f"p{int(q * 100)} {{{{{by}}}}}",
        )
        for q in (0.5, 0.99)
    )


def _rate(name: str, by: str) -> tuple[str, str]:
    return f"sum by ({by}) (rate({name}{{{WHICH}}}[$__rate_interval]))", f"{{{{{by}}}}}"


def _sum(name: str, by: str) -> tuple[str, str]:
    return f"sum by ({by}) ({name}{{{WHICH}}})", f"{{{{{by}}}}}"


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "What clients see",
        (
            Panel("Requests", "Answered requests a second.", "reqps", (_rate("flashfleet_requests_total", "tier"),)),
            Panel("Refusals", "Requests refused a second, and why.", "reqps",
                  (_rate("flashfleet_refusals_total", "why"),)),
            Panel("Time to first token", "From arrival to the first token.", "s",
                  _quantiles("flashfleet_ttft_seconds")),
            Panel("Time per token", "Mean of each request, after the first token.", "s",
                  _quantiles("flashfleet_tpot_seconds")),
            Panel("Time in the queue", "From arrival to the first worker's Begin.", "s",
                  _quantiles("flashfleet_queue_seconds")),
            Panel("How answers ended", "Answers a second by their end.", "reqps",
                  (_rate("flashfleet_requests_total", "finish"),)),
        ),
    ),
    (
        "Routing",
        (
            Panel("Share of standard", "Observed and wanted share of classified requests.", "percentunit",
                  ((f"avg(flashfleet_standard_share_observed{{{WHICH}}})", "observed"),
                   (f"avg(flashfleet_standard_share_target{{{WHICH}}})", "target"))),
            Panel("Threshold", "Scores from here on go to standard.", "none",
                  ((f"avg(flashfleet_threshold{{{WHICH}}})", "threshold"),)),
            Panel("How the tier was chosen", "Answers a second by what decided.", "reqps",
                  (_rate("flashfleet_requests_total", "how"),)),
        ),
    ),
    (
        "Routers",
        (
            Panel("Ready routers", "Routers that take requests.", "none",
                  ((f"sum(flashfleet_ready{{{WHICH}}})", "ready"),)),
            Panel("Held requests", "Held while a tier or the queue is away.", "none",
                  (_sum("flashfleet_held_requests", "tier"),)),
            Panel("Open streams", "Requests whose stream is open.", "none",
                  ((f"sum(flashfleet_running{{{WHICH}}})", "streams"),)),
            Panel("Resumed answers", "Answers a second that another worker continued.", "reqps",
                  (_rate("flashfleet_resumed_total", "tier"),)),
        ),
    ),
    (
        "Workers",
        (
            Panel("Tokens run", "Tokens a second through the model, prompts included.", "none",
                  (_rate("flashfleet_worker_tokens_total", "component"),)),
            Panel("Batch", "Requests in the running batch.", "none", (_sum("flashfleet_worker_running", "component"),)),
            Panel("Free slots", "Requests that workers could take now.", "none",
                  (_sum("flashfleet_worker_room_slots", "component"),)),
            Panel("KV pages", "Pages of all workers by place; the parts sum to total.", "none",
                  ((f'sum by (part) (flashfleet_worker_kv_pages{{{WHICH}, part!="total"}})', "{{part}}"),)),
            Panel("Prefix cache", "Share of looked-up prompt tokens that were found.", "percentunit",
                  ((f"sum(rate(flashfleet_worker_prefix_hits_total{{{WHICH}}}[$__rate_interval])) / "
                    f"sum(rate(flashfleet_worker_prefix_queries_total{{{WHICH}}}[$__rate_interval]))", "hits"),)),
            Panel("Step", "Duration of an engine step.", "s",
                  _quantiles("flashfleet_worker_step_duration_seconds", "component")),
            Panel("Jobs", "What became of jobs, a second.", "none", (_rate("flashfleet_worker_jobs_total", "event"),)),
            Panel("Preemptions", "Requests a second that lost their pages and were computed again.", "reqps",
                  (_rate("flashfleet_worker_preemptions_total", "component"),)),
        ),
    ),
    (
        "Operator",
        (
            Panel("FlashDeployments", "By the reason of their Ready condition.", "none",
                  (('sum by (state) (flashfleet_operator_objects)', "{{state}}"),)),
            Panel("Reconciles", "A second, by outcome.", "ops",
                  (("sum by (outcome) (rate(flashfleet_operator_reconcile_total[$__rate_interval]))", "{{outcome}}"),)),
            Panel("Reconcile duration", "Calls of the API server included.", "s",
                  (("histogram_quantile(0.99, sum by (le) "
                    "(rate(flashfleet_operator_reconcile_duration_seconds_bucket[$__rate_interval])))", "p99"),)),
            Panel("Queue", "Keys that wait, and how long the oldest has been due.", "none",
                  (("sum(flashfleet_operator_queue_depth)", "keys"),
                   ("max(flashfleet_operator_queue_oldest_seconds)", "oldest, seconds"))),
        ),
    ),
)  # fmt: skip


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    number, top = 0, 0
    for title, row in ROWS:
        number += 1
        panels.append(
            {"id": number, "type": "row", "title": title, "collapsed": False, "panels": [],
             "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}}
        )  # fmt: skip
        top += 1
        for at, panel in enumerate(row):
            number += 1
            panels.append(_panel(panel, number, (at % 3) * 8, top + (at // 3) * 8))
        top += -(-len(row) // 3) * 8
    return {
        "title": "FlashFleet",
        "uid": "flashfleet",
        "tags": ["flashfleet"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source(), _variable("namespace", ""), _variable("deployment", "$namespace")]},
        "panels": panels,
    }


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": source,
        "gridPos": {"x": x, "y": y, "w": 8, "h": 8},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(65 + at), "datasource": source, "expr": query, "legendFormat": legend}
            for at, (query, legend) in enumerate(panel.queries)
        ],
    }


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(name: str, within: str) -> dict[str, Any]:
    which = f'{{namespace="{within}"}}' if within else ""
    return {
        "name": name,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "query": f"label_values(flashfleet_ready{which}, {name})",
        "refresh": 2,
        "includeAll": name == "deployment",
        "multi": name == "deployment",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when the dashboard is stale")
    text = json.dumps(dashboard(), indent=1) + "\n"
    if not parser.parse_args().check:
        TARGET.parent.mkdir(parents=True, exist_ok=True)
        TARGET.write_text(text, encoding="utf-8")
    elif not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        print(f"{TARGET.relative_to(ROOT)} is stale: run `python tools/gen_dashboard.py`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
