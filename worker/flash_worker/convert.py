"""Between the wire's messages and the engine's."""

from __future__ import annotations

import time

from flash_wire.v1 import fleet_pb2 as fp
from flash_wire.v1 import inference_pb2 as pb

from flash_worker.request import Finish, Request, Sampling

FINISHES: dict[Finish, pb.FinishReason] = {
    "stop": pb.STOP,
    "length": pb.LENGTH,
    "deadline": pb.DEADLINE,
    "cancelled": pb.CANCELLED,
    "error": pb.ERROR,
}


def request_of(prompt: fp.Prompt) -> Request:
    """The engine's request. Its id is the nonce, so that no output outlives the Begin it belongs to."""
    deadline = time.monotonic() + prompt.time_left_ms / 1000 if prompt.time_left_ms else None
    return Request(
        id=prompt.nonce,
        prompt=tuple(prompt.prompt_ids),
        committed=tuple(prompt.committed_ids),
        sampling=sampling_of(prompt.sampling),
        deadline=deadline,
    )


def sampling_of(sampling: pb.Sampling) -> Sampling:
    """Every field is taken as it stands: the router resolved the defaults."""
    return Sampling(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        seed=sampling.seed,
        stop=tuple(sampling.stop),
        stop_token_ids=frozenset(sampling.stop_token_ids),
        logit_bias=dict(sampling.logit_bias),
        allowed_token_ids=frozenset(sampling.allowed_token_ids),
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        ignore_eos=sampling.ignore_eos,
        logprobs=sampling.logprobs,
    )
