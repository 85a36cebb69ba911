"""`flashfleet status`: the fleet record as tables."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

from flash_wire.settings import TIERS

from flashfleet.client import AskFailed

_MOST = 16 << 20


def fetch(url: str) -> dict[str, Any]:
    """The record behind the router's HTTP address. Raises AskFailed with what to do."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise AskFailed(f"{url}: give an address that starts with http://, for example http://127.0.0.1:8000")
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/fleet", timeout=10) as answer:  # noqa: S310  checked above
            record = json.loads(answer.read(_MOST))
    except urllib.error.HTTPError as error:
        raise AskFailed(f"{url}/fleet answers {error.code}: {error.read(300).decode(errors='replace')}") from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise AskFailed(
            f"nothing answers at {url} ({reason}): start a fleet with `flashfleet up FILE`, or name its"
            " HTTP address with --url"
        ) from None
    except ValueError:
        raise AskFailed(f"{url}/fleet is not a router's: its answer is not JSON") from None
    if not isinstance(record, dict):
        raise AskFailed(f"{url}/fleet is not a router's: its answer has no fields")
    return record


def render(record: dict[str, Any]) -> str:
    """Tables of tiers with their queues, workers and routers."""
    workers, routers = record.get("workers", []), record.get("routers", [])
    tiers = [_tier(record, tier) for tier in TIERS]
    parts = [
        _table(("TIER", "WANTED", "READY", "RUNNING", "HIGH QUEUE", "LOW QUEUE", "OLDEST", "HELD"), tiers),
        _table(
            ("WORKER", "TIER", "STATE", "SLOTS FREE", "KV FREE", "REVISION", "LAST STEP"),
            [_worker(worker) for worker in sorted(workers, key=lambda w: str(w["name"]))],
        ),
        _table(
            ("ROUTER", "STATE", "GRPC", "HTTP", "STANDARD SHARE"),
            [
                (router["id"], router["state"], router["grpc"], router["http"], f"{router['share']:.0%}")
                for router in routers
            ],
        ),
    ]
    if record.get("error"):
        parts.append(f"{record['error']}; this reading is {record.get('age_s')} s old")
    return "\n\n".join(parts)


def _tier(record: dict[str, Any], tier: str) -> tuple[str, ...]:
    pools = [pool for pool in record.get("pools", []) if pool["pool"]["tier"] == tier]
    queues, oldest = [], 0
    for name in ("high", "low"):
        found = [pool["levels"][name] for pool in pools if name in pool["levels"]]
        queues.append(f"{sum(d['queued'] for d in found)} ({sum(d['tokens'] for d in found)} tokens)")
        oldest = max([oldest, *(d["oldest_ms"] for d in found)])
    ready = sum(worker["tier"] == tier and worker["state"] == "ready" for worker in record.get("workers", []))
    held = sum(router["held"].get(tier, 0) for router in record.get("routers", []))
    running = sum(pool["active"] for pool in pools)
    return (
        tier,
        str(record.get("desired", {}).get(tier, "?")),
        str(ready),
        str(running),
        *queues,
        f"{oldest / 1000:.1f} s",
        str(held),
    )


def _worker(worker: dict[str, Any]) -> tuple[str, ...]:
    state = worker["state"] + (f": {worker['detail']}" if worker["detail"] else "")
    return (
        worker["name"],
        worker["tier"],
        state,
        f"{worker['slots_free']}/{worker['slots']}",
        f"{worker['kv_tokens_free']}/{worker['kv_tokens']}",
        worker["rev"] or "-",
        f"{worker['last_step_ms'] / 1000:.1f} s ago",
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, *rows]
    if len(lines) == 1:
        return f"no {head[0].lower()} is alive"
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
