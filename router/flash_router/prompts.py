"""From a request's text to token ids and settled sampling parameters, for one revision."""

from __future__ import annotations

import secrets

from flash_wire.room import footprint, longest_answer
from flash_wire.text import TooLong
from flash_wire.v1 import inference_pb2 as pb

from flash_router.core import Refused, Why
from flash_router.desk import Desk, Room
from flash_router.roster import Revision

AT_ONCE = 8_000
"""Characters that are tokenised on the event loop (about 2 ms); longer texts go to a thread."""
MOST_AT_ONCE = 32_000_000
"""Characters of the longer texts that wait for those threads: eight of the longest, some tens of seconds of work."""
_desk = Desk("tokenise")
_room = Room(MOST_AT_ONCE, "characters of long prompts")


def size_of(request: pb.GenerateRequest) -> int:
    """Tokens, guessed as a quarter of the characters, before a tokenizer is known."""
    if request.HasField("prompt_ids"):
        return len(request.prompt_ids.ids)
    return _characters(request) // 4 + 1


async def tokenise(request: pb.GenerateRequest, revision: Revision) -> list[int]:
    """Raises Refused(INVALID) where the model cannot take such a prompt."""
    if request.HasField("prompt_ids"):
        if len(request.prompt_ids.ids) > _limit(revision):
            raise _too_long("prompt_ids", f"is {len(request.prompt_ids.ids)} tokens long", revision)
        ids = list(request.prompt_ids.ids)
        if (top := max(ids, default=0)) >= revision.text.vocab_size:
            raise Refused(
                Why.INVALID,
                f"prompt_ids has {top}, but the vocabulary of tier {revision.tier} ends at"
                f" {revision.text.vocab_size - 1}: use that tier's tokenizer",
                field="prompt_ids",
            )
        return ids
    if request.messages and not revision.text.has_template:
        raise Refused(
            Why.INVALID,
            f"the model of tier {revision.tier} has no chat template: send the text as prompt instead of messages",
            field="messages",
        )
    source = source_of(request)
    try:
        if (size := _characters(request)) <= AT_ONCE:
            return _encode(request, revision)
        with _room.holding(size):
            return await _desk.do(lambda: _encode(request, revision))
    except TooLong as error:
        what = f"has {error.characters} characters, which are at least {error.at_least} tokens"
        raise _too_long(source, what, revision) from None
    except ValueError as error:
        raise Refused(Why.INVALID, f"{source} cannot be turned into tokens: {error}", field=source) from None


def _limit(revision: Revision) -> int:
    """Tokens of prompt and answer together."""
    return min(revision.max_model_len or revision.kv_tokens, revision.kv_tokens)


def _too_long(source: str, what: str, revision: Revision) -> Refused:
    return Refused(
        Why.INVALID,
        f"{source} {what}, and tier {revision.tier} takes at most {_limit(revision)}, prompt and answer together: send"
        " a shorter one",
        field=source,
    )


def source_of(request: pb.GenerateRequest) -> str:
    """The field that holds the prompt."""
    return "messages" if request.messages else "prompt_ids" if request.HasField("prompt_ids") else "prompt"


def fit(asked: pb.Sampling, prompt_ids: list[int], revision: Revision, source: str = "prompt") -> pb.Sampling:
    """Sampling with every field set. Raises Refused(INVALID) with both numbers where it can never fit.

    `source` is the field that holds the prompt, for the sentences.
    """
    _check_ids(asked, revision)
    prompt = len(prompt_ids)
    size = {"block_size": revision.block_size, "max_model_len": revision.max_model_len}
    most = longest_answer(prompt, kv_tokens=revision.kv_tokens, **size)
    if prompt == 0:
        raise Refused(Why.INVALID, f"{source} has no tokens: write what the model is to go on from", field=source)
    if most < 1:
        raise _too_long(source, f"is {prompt} tokens long", revision)
    max_tokens = asked.max_tokens if asked.HasField("max_tokens") else most
    if max_tokens > most:
        want = footprint(prompt, max_tokens, block_size=revision.block_size)
        raise Refused(
            Why.INVALID,
            f"sampling.max_tokens is {max_tokens}, but after a prompt of {prompt} tokens tier {revision.tier} has room"
            f" for {most} (prompt and answer together would need {want}, its model takes"
            f" {revision.max_model_len or revision.kv_tokens} and its KV cache {revision.kv_tokens}): ask for fewer",
            field="sampling.max_tokens",
        )
    settled = pb.Sampling()
    settled.CopyFrom(asked)
    settled.max_tokens = max_tokens
    for name, default in (
        ("temperature", 1.0),
        ("top_p", 1.0),
        ("top_k", 0),
        ("presence_penalty", 0.0),
        ("frequency_penalty", 0.0),
        ("repetition_penalty", 1.0),
    ):
        if not asked.HasField(name):
            setattr(settled, name, default)
    if not asked.HasField("seed"):
        settled.seed = secrets.randbits(63)
    return settled


def _check_ids(asked: pb.Sampling, revision: Revision) -> None:
    """A worker could only fail on an id that its model does not have."""
    size = revision.text.vocab_size
    for name in ("logit_bias", "allowed_token_ids", "stop_token_ids"):
        # max of a repeated field runs in C: allowed_token_ids may be long.
        if (top := max(getattr(asked, name), default=0)) >= size:
            raise Refused(
                Why.INVALID,
                f"sampling.{name} has {top}, but the vocabulary of tier {revision.tier} has {size} ids, the last one"
                f" {size - 1}: use ids of that tier's tokenizer",
                field=f"sampling.{name}",
            )


def _characters(request: pb.GenerateRequest) -> int:
    return len(request.prompt) + sum(len(message.content) for message in request.messages)


def _encode(request: pb.GenerateRequest, revision: Revision) -> list[int]:
    most = _limit(revision)
    if request.messages:
        return revision.text.encode_chat([(message.role, message.content) for message in request.messages], most)
    return revision.text.encode(request.prompt, most)
