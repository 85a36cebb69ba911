"""The HTTP front: OpenAI's API over a Core. `ops_front` adds health, metrics, the fleet and the page."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from flash_wire.units import parse_duration
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from flash_router import openai_out
from flash_router.core import Core, ModelInfo, Refused, Why
from flash_router.http_answer import Answer, error_response
from flash_router.http_body import BODY_WITHIN, MAX_BODY, Bodies, BodyTooLong
from flash_router.json_values import read_json
from flash_router.metrics import Call, Metrics
from flash_router.openai_types import Ask, read_chat, read_completion
from flash_router.ops_front import ReadFleet, ops_routes
from flash_router.said import UNEXPECTED
from flash_router.validate import refuse

MAX_TIMEOUT = 24 * 3600.0
_log = logging.getLogger("flash_router.http")
_Read = Callable[[Mapping[str, Any], Mapping[str, str]], Ask]


def build_app(core: Core, metrics: Metrics, read_fleet: ReadFleet | None = None) -> FastAPI:
    """The ASGI app. `read_fleet` gives the fleet record; without it, /fleet shows this router alone."""
    # No interactive docs: their page loads scripts from elsewhere.
    app = FastAPI(title="FlashFleet", docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(_openai_routes(core, metrics))
    app.include_router(ops_routes(core, metrics, read_fleet))
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)
    return app


def _openai_routes(core: Core, metrics: Metrics) -> APIRouter:
    routes = APIRouter(prefix="/v1")
    bodies = Bodies()
    since = int(time.time())

    @routes.post("/chat/completions")
    async def chat(request: Request) -> Response:
        return await _answer(core, metrics.call("http"), request, bodies, read_chat)

    @routes.post("/completions")
    async def completions(request: Request) -> Response:
        return await _answer(core, metrics.call("http"), request, bodies, read_completion)

    @routes.get("/models")
    async def models() -> Response:
        return _json({"object": "list", "data": [_model(model, since) for model in core.models()]})

    @routes.get("/models/{name:path}")
    async def model(name: str) -> Response:
        known = core.models()
        for one in known:
            if one.id == name:
                return _json(_model(one, since))
        return error_response(
            Refused(
                Why.NOT_FOUND,
                f"the model {name[:100]!r} does not exist here; there are:"
                f" {', '.join(one.id for one in known) or 'none'}",
            )
        )

    return routes


async def _answer(core: Core, call: Call, request: Request, bodies: Bodies, read: _Read) -> Response:
    try:
        _check_content_type(request)
        ask = await bodies.read(request, lambda body: read(read_json(body), request.headers))
        return Answer(core, ask, _deadline(request), call)
    except Refused as refused:
        call.refused(refused)
        return error_response(refused)
    except BodyTooLong:
        why = Refused(Why.INVALID, f"the body has more than {MAX_BODY} bytes: send less text")
        call.refused(why)
        return error_response(why, status=413, code="request_too_large", headers={"connection": "close"})
    except TimeoutError:
        why = Refused(Why.INVALID, f"the body did not arrive within {BODY_WITHIN:.0f} s: send it at once")
        call.refused(why)
        return error_response(why, status=408, code="body_timeout", headers={"connection": "close"})
    except ClientDisconnect:
        call.left()
        return Response(status_code=openai_out.CANCELLED_STATUS)


def _check_content_type(request: Request) -> None:
    """Only JSON: a browser sends other kinds across sites without asking, so a web page could use the fleet."""
    given = request.headers.get("content-type", "")
    kind = given.partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        refuse("content-type", f"is {given[:60]!r}: send the header content-type: application/json")


def _deadline(request: Request) -> float | None:
    """time.monotonic() seconds from x-flashfleet-timeout."""
    name = "x-flashfleet-timeout"
    if (given := request.headers.get(name)) is None:
        return None
    try:
        seconds = parse_duration(given)
    except ValueError as error:
        raise Refused(Why.INVALID, f"{name}: {error}", field=name) from None
    if not 0 < seconds <= MAX_TIMEOUT:
        refuse(name, f"is {given[:40]}: write a time above 0 and at most 24h")
    return time.monotonic() + seconds


def _model(model: ModelInfo, since: int) -> dict[str, Any]:
    return {"id": model.id, "object": "model", "created": since, "owned_by": "flashfleet", "ready": model.ready}


def _json(data: Any) -> Response:
    return Response(openai_out.dumps(data), media_type="application/json")


async def _http_error(request: Request, error: Exception) -> Response:
    """Unknown paths and methods, in OpenAI's shape."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:100]
    sentences = {
        404: f"there is no {path!r} here; the API is at /v1/chat/completions, /v1/completions and /v1/models",
        405: f"{path!r} does not take {request.method}: see the allow header",
    }
    refused = Refused(Why.INVALID, sentences.get(error.status_code, str(error.detail)))
    return error_response(refused, status=error.status_code, code="unknown_url", headers=error.headers)


async def _unexpected(request: Request, error: Exception) -> Response:
    _log.error("an HTTP request failed", exc_info=error)
    return error_response(Refused(Why.INTERNAL, UNEXPECTED))
