"""What a request must look like before any work is done for it. Shared by both fronts, so that both refuse the same."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NoReturn

from flash_wire.v1 import inference_pb2 as pb

from flash_router.core import Refused, Why

MAX_TEXT = 4_000_000
"""Characters of all messages together, or of the prompt."""
MAX_IDS = 1_000_000
MAX_MESSAGES = 4096
MAX_STOPS = 16
MAX_STOP_CHARS = 512
MAX_STOP_IDS = 256
MAX_BIASES = 1024
MAX_ALLOWED = 65_536

_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_TENANT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,62}")
_SUFFIXES = {"flash": pb.FLASH, "standard": pb.STANDARD}


def check(request: pb.GenerateRequest) -> pb.GenerateRequest:
    """The request in its canonical form: a tier named in `model` ("chat:flash") moved to `tier`.

    The given message is changed and returned. Raises Refused(INVALID); `field` is the path in the proto.
    """
    _name_tier(request)
    _check_source(request)
    _check_identity(request)
    if request.HasField("sampling"):
        _check_sampling(request.sampling)
    return request


def check_cancel(request: pb.CancelRequest) -> pb.CancelRequest:
    """Raises Refused(INVALID)."""
    if not request.request_id:
        refuse("request_id", "is empty: give the id of the request to cancel")
    _check_request_id(request.request_id)
    _check_tenant(request.tenant)
    return request


def refuse(field: str, message: str) -> NoReturn:
    """The one shape of such a sentence: the field, what is wrong, what to write instead."""
    raise Refused(Why.INVALID, f"{field} {message}", field=field)


def _name_tier(request: pb.GenerateRequest) -> None:
    if request.tier not in (pb.AUTO, pb.FLASH, pb.STANDARD):
        refuse("tier", f"has the unknown value {request.tier}: use AUTO, FLASH or STANDARD")
    if len(request.model) > 253:
        refuse("model", f"has {len(request.model)} characters: a name has at most 253")
    name, colon, suffix = request.model.rpartition(":")
    if not colon or suffix not in _SUFFIXES:
        return
    named = _SUFFIXES[suffix]
    if request.tier not in (pb.AUTO, named):
        refuse("tier", f"says {pb.Tier.Name(request.tier)} and model {request.model!r} says {suffix}: name one of them")
    request.tier = named
    request.model = name


def _check_source(request: pb.GenerateRequest) -> None:
    given = [
        name
        for name, there in (
            ("messages", bool(request.messages)),
            ("prompt", request.HasField("prompt")),
            ("prompt_ids", request.HasField("prompt_ids")),
        )
        if there
    ]
    if not given:
        refuse("messages", "is empty, and so are prompt and prompt_ids: give exactly one of them")
    if len(given) > 1:
        refuse(given[1], f"stands beside {given[0]}: give exactly one of messages, prompt and prompt_ids")
    if given == ["messages"]:
        _check_messages(request)
    elif given == ["prompt"]:
        if not request.prompt:
            refuse("prompt", "is empty: write what the model is to go on from")
        _check_size("prompt", len(request.prompt))
    else:
        _check_prompt_ids(request)


def _check_messages(request: pb.GenerateRequest) -> None:
    if len(request.messages) > MAX_MESSAGES:
        refuse("messages", f"has {len(request.messages)} entries: send at most {MAX_MESSAGES}")
    size = 0
    for index, message in enumerate(request.messages):
        if not _ROLE.fullmatch(message.role):
            what = f"{message.role[:40]!r} is no role" if message.role else "is empty"
            refuse(f"messages[{index}].role", f"{what}: write system, user or assistant")
        size += len(message.content)
    _check_size("messages", size)
    if not request.messages[-1].content.strip():
        last = len(request.messages) - 1
        refuse(f"messages[{last}].content", "is empty: the last message is what the model answers")


def _check_size(field: str, characters: int) -> None:
    if characters > MAX_TEXT:
        refuse(field, f"has {characters} characters: send at most {MAX_TEXT}")


def _check_prompt_ids(request: pb.GenerateRequest) -> None:
    ids = request.prompt_ids.ids
    if not ids:
        refuse("prompt_ids", "is empty: give at least one token id")
    if len(ids) > MAX_IDS:
        refuse("prompt_ids", f"has {len(ids)} ids: send at most {MAX_IDS}")
    if request.tier == pb.AUTO:
        refuse(
            "prompt_ids",
            "needs a named tier, since ids mean nothing to another tokenizer: set tier to FLASH or"
            " STANDARD, or send the text as prompt",
        )


def _check_identity(request: pb.GenerateRequest) -> None:
    if request.priority not in (pb.PRIORITY_UNSPECIFIED, pb.HIGH, pb.LOW):
        refuse("priority", f"has the unknown value {request.priority}: use HIGH or LOW, or leave it out")
    _check_tenant(request.tenant)
    if request.request_id:
        _check_request_id(request.request_id)
    elif request.resume_position:
        refuse("resume_position", "stands without request_id: name the request that is to be resumed")


def _check_request_id(value: str) -> None:
    if not _REQUEST_ID.fullmatch(value):
        refuse(
            "request_id",
            f"{value[:40]!r} is not usable: write 1 to 128 letters, digits, dots, dashes, underscores or colons",
        )


def _check_tenant(value: str) -> None:
    if value and not _TENANT.fullmatch(value):
        refuse(
            "tenant",
            f"{value[:40]!r} is not usable: write 1 to 63 letters, digits, dots, dashes, underscores or @,"
            " the first a letter, digit or underscore",
        )


def _check_sampling(sampling: pb.Sampling) -> None:
    if sampling.HasField("max_tokens") and sampling.max_tokens < 1:
        refuse(
            "sampling.max_tokens",
            f"is {sampling.max_tokens}: write 1 or more, or leave it out for what the model's context allows",
        )
    _check_range(sampling, "temperature", 0, None, "0 for greedy or a positive number")
    _check_range(sampling, "top_p", 0, 1, "a number above 0 and at most 1", above=True)
    if sampling.HasField("top_k") and sampling.top_k < 0:
        refuse("sampling.top_k", f"is {sampling.top_k}: write 0 for off or a positive number")
    for name in ("presence_penalty", "frequency_penalty"):
        _check_range(sampling, name, -2, 2, "a number from -2 to 2")
    # Beyond these the logits of a half-precision model overflow.
    _check_range(sampling, "repetition_penalty", 0.01, 100, "a number from 0.01 to 100, 1 is off")
    _check_stops(sampling)
    _check_biases(sampling)
    if len(sampling.allowed_token_ids) > MAX_ALLOWED:
        refuse("sampling.allowed_token_ids", f"has {len(sampling.allowed_token_ids)} ids: give at most {MAX_ALLOWED}")


def _check_range(
    sampling: pb.Sampling, name: str, low: float, high: float | None, advice: str, *, above: bool = False
) -> None:
    """`above`: the low end itself is refused too. NaN and infinities always are."""
    if not sampling.HasField(name):
        return
    value: float = getattr(sampling, name)
    low -= abs(low) * 1e-6  # the wire's floats are single: 0.01 arrives a little below itself
    if not math.isfinite(value) or value < low or (above and value == low) or (high is not None and value > high):
        refuse(f"sampling.{name}", f"is {value:.6g}: write {advice}")


def _check_stops(sampling: pb.Sampling) -> None:
    if len(sampling.stop) > MAX_STOPS:
        refuse("sampling.stop", f"has {len(sampling.stop)} strings: give at most {MAX_STOPS}")
    for index, stop in enumerate(sampling.stop):
        if not stop:
            refuse(f"sampling.stop[{index}]", "is empty, which every text contains: remove it")
        if len(stop) > MAX_STOP_CHARS:
            refuse(f"sampling.stop[{index}]", f"has {len(stop)} characters: write at most {MAX_STOP_CHARS}")
    if len(sampling.stop_token_ids) > MAX_STOP_IDS:
        refuse("sampling.stop_token_ids", f"has {len(sampling.stop_token_ids)} ids: give at most {MAX_STOP_IDS}")


def _check_biases(sampling: pb.Sampling) -> None:
    if len(sampling.logit_bias) > MAX_BIASES:
        refuse("sampling.logit_bias", f"has {len(sampling.logit_bias)} entries: give at most {MAX_BIASES}")
    items: Iterable[tuple[int, float]] = sampling.logit_bias.items()
    for token, bias in items:
        if not math.isfinite(bias) or not -100 <= bias <= 100:
            refuse(f"sampling.logit_bias[{token}]", f"is {bias:.6g}: write a number from -100 to 100")
