"""OpenAI's request bodies as GenerateRequests: each field read by name, none ignored in silence.

Raises Refused(INVALID) with the field as the client wrote it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flash_wire.v1 import inference_pb2 as pb

from flash_router.core import Refused
from flash_router.json_values import UINT32, choice, integer, kind_of, listed, mapping, number, shown, switch, text
from flash_router.validate import MAX_ALLOWED, MAX_BIASES, MAX_STOP_IDS, check, refuse

COMPLETION_MAX_TOKENS = 16
"""What OpenAI's /v1/completions takes when max_tokens is left out."""
_INT32 = 2**31 - 1
_UINT64 = 2**64 - 1


@dataclass(slots=True)
class Ask:
    """One body, read."""

    chat: bool
    request: pb.GenerateRequest = field(default_factory=pb.GenerateRequest)
    stream: bool = False
    include_usage: bool = False
    logprobs: bool = False
    length_field: str = "max_tokens"
    """How the client spelled it, for sentences."""


Reader = Callable[[Ask, str, Any], None]


def read_chat(body: Mapping[str, Any], headers: Mapping[str, str]) -> Ask:
    """A body of /v1/chat/completions."""
    return _read(Ask(chat=True), body, headers, _CHAT, _CHAT_UNSUPPORTED, needs="messages")


def read_completion(body: Mapping[str, Any], headers: Mapping[str, str]) -> Ask:
    """A body of /v1/completions."""
    ask = Ask(chat=False)
    ask.request.sampling.max_tokens = COMPLETION_MAX_TOKENS
    return _read(ask, body, headers, _COMPLETION, _COMPLETION_UNSUPPORTED, needs="prompt")


def _read(
    ask: Ask,
    body: Mapping[str, Any],
    headers: Mapping[str, str],
    readers: Mapping[str, Reader],
    unsupported: Mapping[str, tuple[tuple[Any, ...], str]],
    *,
    needs: str,
) -> Ask:
    for name, value in body.items():
        if name in unsupported:
            harmless, advice = unsupported[name]
            if value is not None and not any(value == fine and type(value) is type(fine) for fine in harmless):
                refuse(name, f"is not supported here: {advice}")
        elif name not in readers:
            known = [*readers, *unsupported]
            near = difflib.get_close_matches(name[:60], known, n=1, cutoff=0.6)
            refuse(
                shown(name),
                f"is an unknown field; did you mean {near[0]}?"
                if near
                else f"is an unknown field; known here: {', '.join(readers)}",
            )
        elif value is not None:
            readers[name](ask, name, value)
    if body.get(needs) is None:
        refuse(needs, "is missing: it must be given")
    _read_headers(ask, headers)
    return _checked(ask)


def _read_headers(ask: Ask, headers: Mapping[str, str]) -> None:
    for name in ("tenant", "request_id"):
        header = f"x-flashfleet-{name.replace('_', '-')}"
        if (value := headers.get(header)) is None:
            continue
        if (said := getattr(ask.request, name)) and said != value:
            refuse(name, f"differs from the header {header}: give one of them")
        setattr(ask.request, name, value)


def _checked(ask: Ask) -> Ask:
    """The shared checks, with this API's names in their sentences."""
    try:
        check(ask.request)
    except Refused as refused:
        raise as_asked(ask, refused) from None
    return ask


def as_asked(ask: Ask, refused: Refused) -> Refused:
    """A refusal of the shared checks or of the core, which name fields of the proto, with the client's own names."""
    theirs = refused.field
    ours = _NAMES.get(theirs) or theirs.removeprefix("sampling.")
    if theirs == "sampling.max_tokens":
        ours = ask.length_field
    if ours == theirs:
        return refused
    message = refused.message
    if message.startswith(theirs):
        message = ours + message.removeprefix(theirs)
    return Refused(refused.why, message, retry_after=refused.retry_after, field=ours)


_NAMES = {"prompt_ids": "prompt"}


# -- fields ----------------------------------------------------------------------------------------------------------


def _sampling_number(target: str = "") -> Reader:
    def read(ask: Ask, name: str, value: Any) -> None:
        setattr(ask.request.sampling, target or name, number(name, value))

    return read


def _sampling_ids(most: int) -> Reader:
    def read(ask: Ask, name: str, value: Any) -> None:
        ids = [integer(f"{name}[{at}]", one, 0, UINT32) for at, one in enumerate(listed(name, value, most))]
        getattr(ask.request.sampling, name).extend(ids)

    return read


def _max_tokens(ask: Ask, name: str, value: Any) -> None:
    most = integer(name, value, -_INT32, _INT32)
    if ask.chat and ask.request.sampling.HasField("max_tokens") and ask.request.sampling.max_tokens != most:
        refuse(name, f"is {most} and {ask.length_field} is {ask.request.sampling.max_tokens}: give one of them")
    ask.request.sampling.max_tokens = most
    ask.length_field = name


def _seed(ask: Ask, name: str, value: Any) -> None:
    # OpenAI's seeds are signed; a negative one is as good a seed as any.
    ask.request.sampling.seed = integer(name, value, -(2**63), _UINT64) & _UINT64


def _stop(ask: Ask, name: str, value: Any) -> None:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list):
        refuse(name, f"is {kind_of(value)}: write a string or a list of strings")
    ask.request.sampling.stop.extend(text(f"{name}[{at}]", one) for at, one in enumerate(stops[:1000]))


def _logit_bias(ask: Ask, name: str, value: Any) -> None:
    entries = mapping(name, value)
    if len(entries) > MAX_BIASES:
        refuse(name, f"has {len(entries)} entries: give at most {MAX_BIASES}")
    for key, bias in entries.items():
        if not re.fullmatch(r"[0-9]{1,10}", key) or int(key) > UINT32:
            refuse(f"{name}[{shown(key)}]", "is no token id: write the id's number as the key")
        ask.request.sampling.logit_bias[int(key)] = number(f"{name}[{key}]", bias)


def _stream_options(ask: Ask, name: str, value: Any) -> None:
    for key, one in mapping(name, value).items():
        if key == "include_usage":
            ask.include_usage = one is not None and switch(f"{name}.{key}", one)
        elif key != "include_obfuscation":
            refuse(f"{name}.{shown(key)}", "is an unknown field; known here: include_usage")


def _metadata(ask: Ask, name: str, value: Any) -> None:
    """Accepted as OpenAI does, and nothing is done with it."""
    entries = mapping(name, value)
    if len(entries) > 16:
        refuse(name, f"has {len(entries)} entries: give at most 16")
    for key, one in entries.items():
        if len(text(name, key)) > 64 or len(text(f"{name}.{shown(key)}", one)) > 512:
            refuse(f"{name}.{shown(key)}", "is too long: keys have at most 64 characters, values at most 512")


def _stream(ask: Ask, name: str, value: Any) -> None:
    ask.stream = switch(name, value)


def _logprobs(ask: Ask, name: str, value: Any) -> None:
    if ask.chat:
        ask.logprobs = switch(name, value)
    else:
        if integer(name, value, 0, _INT32) != 0:
            refuse(name, "above 0 is not supported here: 0 gives each drawn token's own log-probability")
        ask.logprobs = True
    ask.request.sampling.logprobs = ask.logprobs


def _set_text(ask: Ask, name: str, value: Any) -> None:
    setattr(ask.request, name, text(name, value))


def _ignored_text(ask: Ask, name: str, value: Any) -> None:
    text(name, value)


def _priority(ask: Ask, name: str, value: Any) -> None:
    ask.request.priority = choice(name, value, {"high": pb.HIGH, "low": pb.LOW})  # type: ignore[assignment]


def _tier(ask: Ask, name: str, value: Any) -> None:
    ask.request.tier = choice(name, value, {"auto": pb.AUTO, "flash": pb.FLASH, "standard": pb.STANDARD})  # type: ignore[assignment]


def _ignore_eos(ask: Ask, name: str, value: Any) -> None:
    ask.request.sampling.ignore_eos = switch(name, value)


def _top_k(ask: Ask, name: str, value: Any) -> None:
    # -1 is how others write "off".
    ask.request.sampling.top_k = max(0, integer(name, value, -1, _INT32))


def _messages(ask: Ask, name: str, value: Any) -> None:
    entries = listed(name, value, 100_000)
    if not entries:
        refuse(name, "is empty: give at least one message")
    for at, entry in enumerate(entries):
        _message(ask, f"{name}[{at}]", entry)


_ROLES = {"developer": "system"}
"""OpenAI's newer name for what the models' templates call system."""
_EMPTY_IN_MESSAGE = frozenset(
    ("refusal", "annotations", "audio", "function_call", "tool_calls", "tool_call_id", "reasoning_content")
)
"""Fields that come back with OpenAI's own answers: fine while they say nothing."""


def _message(ask: Ask, where: str, value: Any) -> None:
    entry = mapping(where, value)
    for key, one in _beside(entry):
        if key in _EMPTY_IN_MESSAGE:
            if one:
                refuse(f"{where}.{key}", "is not supported here: the models read text and call no tools")
        elif key != "name":
            refuse(f"{where}.{shown(key)}", "is an unknown field; known here: role, content")
    for key in ("role", "content"):
        if entry.get(key) is None:
            refuse(f"{where}.{key}", "is missing: each message has a role and a content")
    role = text(f"{where}.role", entry["role"])
    ask.request.messages.add(role=_ROLES.get(role, role), content=_content(f"{where}.content", entry["content"]))


def _beside(entry: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in entry.items() if key not in ("role", "content")]


def _content(where: str, value: Any) -> str:
    """Text, or OpenAI's list of parts, whose texts are joined by line ends."""
    if isinstance(value, str):
        return text(where, value)
    if not isinstance(value, list):
        refuse(where, f"is {kind_of(value)}: write a string or a list of text parts")
    texts = []
    for at, part in enumerate(value):
        entry = mapping(f"{where}[{at}]", part)
        kind = entry.get("type")
        if kind != "text":
            said = repr(kind[:40]) if isinstance(kind, str) else "not given"
            refuse(f"{where}[{at}].type", f"is {said}: the models read text only, so write a part of type text")
        texts.append(text(f"{where}[{at}].text", entry.get("text")))
    return "\n".join(texts)


def _prompt(ask: Ask, name: str, value: Any) -> None:
    if isinstance(value, str):
        ask.request.prompt = text(name, value)
        return
    if not isinstance(value, list) or not value:
        refuse(name, f"is {'empty' if value == [] else kind_of(value)}: write a string or a list of token ids")
    if isinstance(value[0], str | list):
        if len(value) > 1:
            refuse(name, f"has {len(value)} prompts: send one in a request, the fleet batches them itself")
        _prompt(ask, name, value[0] if value[0] else "")
        return
    if len(value) > 1_000_000:
        refuse(name, f"has {len(value)} ids: send at most 1000000")
    ask.request.prompt_ids.ids.extend(integer(f"{name}[{at}]", one, 0, UINT32) for at, one in enumerate(value))


_COMMON: dict[str, Reader] = {
    "model": _set_text,
    "max_tokens": _max_tokens,
    "temperature": _sampling_number(),
    "top_p": _sampling_number(),
    "seed": _seed,
    "stop": _stop,
    "stream": _stream,
    "stream_options": _stream_options,
    "logprobs": _logprobs,
    "logit_bias": _logit_bias,
    "presence_penalty": _sampling_number(),
    "frequency_penalty": _sampling_number(),
    "user": _ignored_text,
    # Beyond OpenAI's fields: a client library sends them as extra_body.
    "priority": _priority,
    "metadata": _metadata,
    "tier": _tier,
    "tenant": _set_text,
    "request_id": _set_text,
    "top_k": _top_k,
    "repetition_penalty": _sampling_number(),
    "stop_token_ids": _sampling_ids(MAX_STOP_IDS),
    "allowed_token_ids": _sampling_ids(MAX_ALLOWED),
    "ignore_eos": _ignore_eos,
}
_CHAT: dict[str, Reader] = {
    "messages": _messages,
    "max_completion_tokens": _max_tokens,
    "safety_identifier": _ignored_text,
    "prompt_cache_key": _ignored_text,
    **_COMMON,
}
_COMPLETION: dict[str, Reader] = {"prompt": _prompt, **_COMMON}

_TOOLS = "the models call no tools, leave it out"
_BOTH_UNSUPPORTED: dict[str, tuple[tuple[Any, ...], str]] = {
    # name -> (values that mean "off" and are accepted, advice)
    "n": ((1,), "one answer in a request, leave n out or ask again with another seed"),
    "service_tier": (("auto", "default"), "use priority (high or low)"),
}
_CHAT_UNSUPPORTED: dict[str, tuple[tuple[Any, ...], str]] = {
    **_BOTH_UNSUPPORTED,
    "tools": (([],), _TOOLS),
    "tool_choice": (("none",), _TOOLS),
    "parallel_tool_calls": ((False,), _TOOLS),
    "functions": (([],), _TOOLS),
    "function_call": (("none",), _TOOLS),
    "response_format": (({"type": "text"},), 'only {"type": "text"} is; constrain the answer with allowed_token_ids'),
    "top_logprobs": ((0,), "logprobs gives each drawn token's own log-probability"),
    "modalities": ((["text"],), "the models write text only"),
    "audio": ((), "the models write text only"),
    "prediction": ((), "leave it out"),
    "reasoning_effort": (("none",), "choose the tier instead (auto, flash or standard)"),
    "verbosity": (("medium",), "say in the prompt how long the answer is to be"),
    "web_search_options": ((), "the models search nothing"),
    "store": ((False,), "answers are not stored"),
    "min_p": ((0, 0.0), "use top_p or top_k"),
}
_COMPLETION_UNSUPPORTED: dict[str, tuple[tuple[Any, ...], str]] = {
    **_BOTH_UNSUPPORTED,
    "best_of": ((1,), "one answer in a request"),
    "echo": ((False,), "the answer never repeats the prompt"),
    "suffix": (("",), "the models do not fill gaps"),
}
