"""How both fronts say the same thing: the decision as headers, and each refusal as its statuses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from urllib.parse import quote

import grpc
from flash_wire.v1 import inference_pb2 as pb

from flash_router.core import Refused, Why

TIER_NAMES = {pb.AUTO: "auto", pb.FLASH: "flash", pb.STANDARD: "standard"}
FINISH_NAMES = {
    pb.STOP: "stop",
    pb.LENGTH: "length",
    pb.CANCELLED: "cancelled",
    pb.DEADLINE: "deadline",
    pb.ERROR: "error",
}
_PRINTABLE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


@dataclass(frozen=True, slots=True)
class Status:
    """One Why on both wires."""

    grpc: grpc.StatusCode
    http: int
    type: str
    """`type` and `code` of OpenAI's error object."""
    code: str
    retry: bool
    """Whether the same request may succeed later: only these tell when to come back."""


STATUSES = {
    Why.INVALID: Status(grpc.StatusCode.INVALID_ARGUMENT, 400, "invalid_request_error", "invalid_value", False),
    Why.NOT_FOUND: Status(grpc.StatusCode.NOT_FOUND, 404, "invalid_request_error", "model_not_found", False),
    Why.CONFLICT: Status(grpc.StatusCode.ALREADY_EXISTS, 409, "invalid_request_error", "request_id_in_use", False),
    Why.BUSY: Status(grpc.StatusCode.RESOURCE_EXHAUSTED, 429, "rate_limit_error", "rate_limit_exceeded", True),
    Why.UNAVAILABLE: Status(grpc.StatusCode.UNAVAILABLE, 503, "service_unavailable_error", "unavailable", True),
    Why.DEADLINE: Status(grpc.StatusCode.DEADLINE_EXCEEDED, 504, "timeout_error", "deadline_exceeded", False),
    Why.INTERNAL: Status(grpc.StatusCode.INTERNAL, 500, "server_error", "internal_error", False),
}
DEFAULT_RETRY = 1.0
"""Seconds, where the core measured none."""
UNEXPECTED = "the router failed on this request; its log has the cause. Try again, or report it with the request id"


def retry_after(refused: Refused) -> float | None:
    """Seconds until the same request is worth another try; None when it never is."""
    if not STATUSES[refused.why].retry:
        return None
    seconds = refused.retry_after
    return DEFAULT_RETRY if seconds is None or not math.isfinite(seconds) else max(0.0, seconds)


def decision_headers(started: pb.Started) -> list[tuple[str, str]]:
    """x-flashfleet-*: who answers and why. A rule's name may hold any character, a header may not: it is quoted."""
    decision = started.decision
    return [
        ("x-flashfleet-tier", TIER_NAMES.get(started.tier, "auto")),
        ("x-flashfleet-how", quote(decision.how, safe=_PRINTABLE)),
        ("x-flashfleet-score", f"{decision.score:.4f}"),
        ("x-flashfleet-threshold", f"{decision.threshold:.4f}"),
        ("x-flashfleet-rule", quote(decision.rule, safe=_PRINTABLE)),
        ("x-flashfleet-request-id", quote(started.request_id, safe=_PRINTABLE)),
    ]
