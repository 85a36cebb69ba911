"""The core that both fronts call: one request in, one stream of events out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from flash_wire.v1 import inference_pb2 as pb


class Why(Enum):
    """Why a request was refused before its first token. Each maps to one gRPC status and one HTTP status."""

    INVALID = "invalid"
    """INVALID_ARGUMENT, 400."""
    NOT_FOUND = "not_found"
    """NOT_FOUND, 404: no such model or request."""
    CONFLICT = "conflict"
    """ALREADY_EXISTS, 409: the request_id belongs to another request."""
    BUSY = "busy"
    """RESOURCE_EXHAUSTED with RetryInfo, 429 with Retry-After."""
    UNAVAILABLE = "unavailable"
    """UNAVAILABLE, 503: no worker and none to come in time."""
    DEADLINE = "deadline"
    """DEADLINE_EXCEEDED, 504."""
    INTERNAL = "internal"
    """INTERNAL, 500: for example a poison prompt."""


class Refused(Exception):
    """The request ends before its first event. The message says what is wrong and what to do instead."""

    def __init__(self, why: Why, message: str, *, retry_after: float | None = None, field: str = "") -> None:
        super().__init__(message)
        self.why = why
        self.message = message
        self.retry_after = retry_after
        """Seconds, from the measured drain rate; only for BUSY and UNAVAILABLE."""
        self.field = field
        """The request's field at fault, for INVALID."""

    def again(self) -> Refused:
        """The same without a traceback, whose frames would keep the request alive."""
        return Refused(self.why, self.message, retry_after=self.retry_after, field=self.field)


on_parting: ContextVar[Callable[[pb.Done], None] | None] = ContextVar("on_parting", default=None)
"""Who is told what was done so far when the iterator of `Core.generate` is closed before its Done. A front that closes
it cannot be given another event."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One line of /v1/models."""

    id: str
    """The deployment's name, or name:tier."""
    ready: bool


@dataclass(frozen=True, slots=True)
class CoreStats:
    """What this router measures of itself, for /metrics and the dashboard."""

    share: float = 0.0
    """Observed share of the classified requests that standard answered."""
    share_target: float = 0.0
    """routing.standardShare."""
    threshold: float = 0.0
    """The share controller's threshold now."""
    held: dict[str, int] = field(default_factory=dict)
    """Requests held as text, by tier."""
    held_tokens: int = 0
    running: int = 0
    """Requests whose stream is open."""


class Core(Protocol):
    """What a front may ask of the router."""

    def generate(self, request: pb.GenerateRequest, *, deadline: float | None) -> AsyncIterator[pb.GenerateEvent]:
        """Started, Deltas, Done. `deadline` is time.monotonic() seconds.

        Raises Refused before the first event only; later trouble ends in Done with ERROR or DEADLINE.
        Closing the iterator early cancels the request, down to the worker's pages: at once without a request_id, with
        one unless the client is back within some seconds. `on_parting` is told how far it had come.
        """
        ...

    async def explain(self, request: pb.GenerateRequest) -> pb.Decision: ...

    async def cancel(self, request_id: str, tenant: str) -> bool: ...

    def models(self) -> list[ModelInfo]: ...

    def stats(self) -> CoreStats:
        """Cheap: it is called at every scrape."""
        ...

    @property
    def ready(self) -> bool:
        """False before the start is over and while draining."""
        ...
