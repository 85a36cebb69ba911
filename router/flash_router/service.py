"""The router's core: one request in, one stream of events out. Both fronts call it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from flash_router.core import ModelInfo
from flash_wire.settings import RouterLive, RouterStatic
from flash_wire.v1 import inference_pb2 as pb


class Decides(Protocol):
    """Chooses a tier for a request that names none (flash_router.decide.Decider)."""

    def decide(self, request: pb.GenerateRequest) -> pb.Decision: ...


class RouterCore:
    """Implements flash_router.core.Core."""

    def generate(self, request: pb.GenerateRequest, *, deadline: float | None) -> AsyncIterator[pb.GenerateEvent]:
        raise NotImplementedError

    async def explain(self, request: pb.GenerateRequest) -> pb.Decision:
        raise NotImplementedError

    async def cancel(self, request_id: str, tenant: str) -> bool:
        raise NotImplementedError

    def models(self) -> list[ModelInfo]:
        raise NotImplementedError

    @property
    def ready(self) -> bool:
        raise NotImplementedError

    @property
    def fleet_address(self) -> str:
        """host:port that workers dial: what grpc_port 0 and the like became."""
        raise NotImplementedError

    def announce(self, *, grpc: str, http: str) -> None:
        """The fronts' addresses (host:port), for the fleet record: people and `flashfleet status` read them there."""
        raise NotImplementedError

    def reload(self, live: RouterLive) -> None:
        """Takes new live settings for requests from now on."""
        raise NotImplementedError

    async def stop(self, drain: float) -> None:
        """Not ready at once; refuses new requests; serves the rest up to `drain` seconds, then ends them."""
        raise NotImplementedError


async def start(static: RouterStatic, live: RouterLive, broker_url: str, decider: Decides) -> RouterCore:
    """Opens the workers' port (static.fleet_port, 0 takes a free one) and starts the loops.

    Returns before the broker or any worker can be reached: both may come later. Raises OSError when the port is taken.
    """
    raise NotImplementedError
