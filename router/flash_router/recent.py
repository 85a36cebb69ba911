"""The last answers, for the dashboard. Nothing of a prompt or an answer is kept, and ids are cut short."""

from __future__ import annotations

from collections import deque
from typing import Any

from flash_wire.v1 import inference_pb2 as pb

from flash_router.said import FINISH_NAMES, TIER_NAMES

_ID_SHOWN = 8
"""Characters: enough to recognise one's own request, too few to cancel another's."""


class Recent:
    """A ring of the last `size` answers."""

    def __init__(self, size: int) -> None:
        self._ring: deque[tuple[float, str, pb.Started, pb.Done]] = deque(maxlen=size)

    def add(self, when: float, front: str, started: pb.Started, done: pb.Done) -> None:
        """`when` is Unix time in seconds. Cheap: rows are made when they are looked at."""
        self._ring.append((when, front, started, done))

    def rows(self) -> list[dict[str, Any]]:
        """Newest first, ready for JSON."""
        return [_row(*entry) for entry in reversed(self._ring)]


def _row(when: float, front: str, started: pb.Started, done: pb.Done) -> dict[str, Any]:
    decision = started.decision
    return {
        "time": round(when, 3),
        "front": front,
        "id": started.request_id[: min(_ID_SHOWN, len(started.request_id) // 2)],
        "tier": TIER_NAMES.get(started.tier, "auto"),
        "how": decision.how,
        "rule": decision.rule,
        "score": round(decision.score, 4),
        "threshold": round(decision.threshold, 4),
        "reasons": [{"name": reason.name, "weight": round(reason.weight, 3)} for reason in decision.reasons],
        "note": decision.note,
        "truncated": decision.truncated,
        "queueMs": round(started.queue_ms, 1),
        "ttftMs": round(done.ttft_ms, 1),
        "tpotMs": round(done.tpot_ms, 2),
        "totalMs": round(done.total_ms, 1),
        "promptTokens": done.usage.prompt_tokens,
        "completionTokens": done.usage.completion_tokens,
        "resumed": done.resumed,
        "finish": FINISH_NAMES.get(done.finish, "error"),
    }
