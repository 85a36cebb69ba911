"""The gRPC front: flash.v1.Inference, health and reflection over a Core.

Messages arrive as bytes and are parsed here, since a parse error inside grpcio ends in INTERNAL without a reason.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import NoReturn, Protocol, TypeVar, cast

import grpc
from flash_wire.v1 import inference_pb2 as pb
from google.protobuf.any_pb2 import Any as AnyProto
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

from flash_router import validate
from flash_router.core import Core, Refused, Why
from flash_router.grpc_watch import Watch
from flash_router.listen import CannotListen, address, listen
from flash_router.metrics import Call, Metrics
from flash_router.said import STATUSES, UNEXPECTED, decision_headers, retry_after
from flash_router.undecodable import fault

SERVICE = pb.DESCRIPTOR.services_by_name["Inference"].full_name
MAX_MESSAGE = 16 * 1024 * 1024
"""Bytes of one request; text and ids within it have bounds of their own in `validate`."""
MAX_RPCS = 16_384
"""Calls at once. What waits and what is held is bounded far below this by the settings' limits."""
_log = logging.getLogger("flash_router.grpc")

M = TypeVar("M", bound=Message)
R = TypeVar("R", bound=Message)


class Context(Protocol):
    """The part of grpc.aio.ServicerContext that is used here: grpcio ships no types."""

    async def write(self, message: bytes) -> None: ...
    async def send_initial_metadata(self, metadata: Sequence[tuple[str, str]]) -> None: ...
    async def abort(
        self, code: grpc.StatusCode, details: str, trailing_metadata: Sequence[tuple[str, str | bytes]]
    ) -> NoReturn: ...
    def time_remaining(self) -> float | None: ...
    def cancelled(self) -> bool: ...


class GrpcFront:
    """The server. `start`, then `stop`; `port` is the real one after `start`."""

    def __init__(self, core: Core, metrics: Metrics, *, max_duration: float = 600.0) -> None:
        """`max_duration`: seconds that the longest request may live, which an ageing connection waits for."""
        self._core = core
        self._metrics = metrics
        self._server = aio.server(options=_options(max_duration), maximum_concurrent_rpcs=MAX_RPCS)
        self.port = 0
        self._stopping: asyncio.Future[None] | None = None
        self._server.add_generic_rpc_handlers((self._handlers(),))
        self._watch = Watch(core, SERVICE)
        self._watch.add_to(self._server)

    def bind(self, host: str, port: int) -> int:
        """Takes the port, before anything is served; 0 takes a free one. Raises CannotListen."""
        # grpcio does not say why it cannot listen; a plain socket does.
        listen(host, port, "grpcPort").close()
        try:
            self.port = self._server.add_insecure_port(address(host, port))
        except RuntimeError as error:
            raise CannotListen(f"cannot listen on {address(host, port)} (grpcPort): {error}") from None
        return self.port

    async def start(self) -> None:
        await self._server.start()

    async def stop(self, grace: float) -> None:
        """NOT_SERVING and GOAWAY at once; calls that run have `grace` seconds. A second call waits for the first."""
        if self._stopping is None:
            self._watch.close()
            # Stopping grpcio's server twice can crash the process.
            self._stopping = asyncio.ensure_future(self._server.stop(grace))
        await asyncio.shield(self._stopping)

    def _handlers(self) -> grpc.GenericRpcHandler:
        handlers = {
            "Generate": grpc.unary_stream_rpc_method_handler(self._generate),
            "GenerateOnce": grpc.unary_unary_rpc_method_handler(self._unary(pb.GenerateRequest, self._generate_once)),
            "Cancel": grpc.unary_unary_rpc_method_handler(self._unary(pb.CancelRequest, self._cancel)),
            "Explain": grpc.unary_unary_rpc_method_handler(self._unary(pb.GenerateRequest, self._explain)),
        }
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    async def _generate(self, data: bytes, context: Context) -> None:
        """The hot path: after the first event, each is serialised and written, nothing else."""
        call = self._metrics.call("grpc")
        try:
            request = validate.check(_parse(pb.GenerateRequest, data))
            async with _closing(self._core.generate(request, deadline=_deadline(context))) as events:
                event = await _first(events)
                call.started(event.started)
                await context.send_initial_metadata(decision_headers(event.started))
                write = context.write
                await write(event.SerializeToString())
                async for event in events:
                    await write(event.SerializeToString())
            if not event.HasField("done"):
                raise RuntimeError("the core's events ended without Done")
            call.done(event.done)
        except Refused as refused:
            call.refused(refused)
            await _abort(context, refused)
        except asyncio.CancelledError:
            call.left()
            raise
        except Exception:
            await self._unexpected(call, context)

    def _unary(
        self, kind: type[M], method: Callable[[M, Context, Call], Awaitable[R]]
    ) -> Callable[[bytes, Context], Awaitable[bytes]]:
        async def answer(data: bytes, context: Context) -> bytes:
            call = self._metrics.call("grpc")
            try:
                response = await method(_parse(kind, data), context, call)
                return response.SerializeToString()
            except Refused as refused:
                call.refused(refused)
                await _abort(context, refused)
            except asyncio.CancelledError:
                call.left()
                raise
            except Exception:
                await self._unexpected(call, context)

        return answer

    async def _generate_once(self, request: pb.GenerateRequest, context: Context, call: Call) -> pb.GenerateResponse:
        request = validate.check(request)
        response = pb.GenerateResponse()
        texts: list[str] = []
        async with _closing(self._core.generate(request, deadline=_deadline(context))) as events:
            response.started.CopyFrom((await _first(events)).started)
            call.started(response.started)
            async for event in events:
                if event.HasField("delta"):
                    texts.append(event.delta.text)
                    response.token_ids.extend(event.delta.token_ids)
                    response.logprobs.extend(event.delta.logprobs)
                elif event.HasField("done"):
                    response.done.CopyFrom(event.done)
        if not response.HasField("done"):
            raise RuntimeError("the core's events ended without Done")
        response.text = "".join(texts)
        call.done(response.done)
        await context.send_initial_metadata(decision_headers(response.started))
        return response

    async def _cancel(self, request: pb.CancelRequest, context: Context, call: Call) -> pb.CancelResponse:
        validate.check_cancel(request)
        return pb.CancelResponse(found=await self._core.cancel(request.request_id, request.tenant))

    async def _explain(self, request: pb.GenerateRequest, context: Context, call: Call) -> pb.Decision:
        return await self._core.explain(validate.check(request))

    async def _unexpected(self, call: Call, context: Context) -> NoReturn:
        """A fault of the router itself, unless the client's leaving is what failed the write."""
        if context.cancelled():
            call.left()
            raise asyncio.CancelledError
        call.failed()
        _log.exception("a gRPC request failed")
        await _abort(context, Refused(Why.INTERNAL, UNEXPECTED))


def _parse(kind: type[M], data: bytes) -> M:
    try:
        return kind.FromString(data)
    except DecodeError:
        sentence = fault(kind.DESCRIPTOR, data)
        raise Refused(Why.INVALID, sentence, field=kind.DESCRIPTOR.full_name) from None


def _deadline(context: Context) -> float | None:
    remaining = context.time_remaining()
    return None if remaining is None else time.monotonic() + remaining


def _closing(events: AsyncIterator[pb.GenerateEvent]) -> aclosing[AsyncGenerator[pb.GenerateEvent, None]]:
    """Leaving the block closes the iterator, which cancels what is not finished, down to the worker's pages."""
    return aclosing(cast("AsyncGenerator[pb.GenerateEvent, None]", events))


async def _first(events: AsyncIterator[pb.GenerateEvent]) -> pb.GenerateEvent:
    try:
        event = await anext(events)
    except StopAsyncIteration:
        raise RuntimeError("the core's events ended without Started") from None
    if not event.HasField("started"):
        raise RuntimeError("the core's first event is not Started")
    return event


async def _abort(context: Context, refused: Refused) -> NoReturn:
    """Ends the call with the status, and with google.rpc details that a client's library can act on."""
    code = STATUSES[refused.why].grpc
    number: int = code.value[0]
    status = status_pb2.Status(code=number, message=refused.message)
    trailing: list[tuple[str, str | bytes]] = []
    if (seconds := retry_after(refused)) is not None:
        milliseconds = math.ceil(seconds * 1000)
        info = error_details_pb2.RetryInfo()
        info.retry_delay.FromMilliseconds(milliseconds)
        _add(status, info)
        # The one hint that gRPC's own retry policies obey.
        trailing.append(("grpc-retry-pushback-ms", str(milliseconds)))
    if refused.field:
        violation = error_details_pb2.BadRequest.FieldViolation(field=refused.field, description=refused.message)
        _add(status, error_details_pb2.BadRequest(field_violations=[violation]))
    trailing.append(("grpc-status-details-bin", status.SerializeToString()))
    await context.abort(code, refused.message, trailing_metadata=tuple(trailing))


def _add(status: status_pb2.Status, detail: Message) -> None:
    packed = AnyProto()
    packed.Pack(detail)
    status.details.append(packed)


def _options(max_duration: float) -> list[tuple[str, int]]:
    return [
        # Without this, two servers could share a port and each get half of the calls.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", MAX_MESSAGE),
        ("grpc.max_metadata_size", 16 * 1024),
        ("grpc.max_concurrent_streams", MAX_RPCS),
        # Old connections end, so that clients spread over new replicas; a stream on one may live out its life.
        ("grpc.max_connection_age_ms", 300_000),
        ("grpc.max_connection_age_grace_ms", int(max_duration * 1000) + 60_000),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ]
