"""Every check of a request, by table: what is refused, which field is named, and that nothing else happens."""

from __future__ import annotations

import math

import pytest
from flash_router import validate
from flash_router.core import Refused, Why
from flash_wire.v1 import inference_pb2 as pb

USER = pb.Message(role="user", content="hi")


def ask(**fields) -> pb.GenerateRequest:
    return pb.GenerateRequest(**{"messages": [USER]} | fields)


def sampled(**fields) -> pb.GenerateRequest:
    return ask(sampling=pb.Sampling(**fields))


REFUSED = {
    "nothing": (pb.GenerateRequest(), "messages", "exactly one"),
    "two sources": (ask(prompt="x"), "prompt", "stands beside messages"),
    "three sources": (ask(prompt="x", prompt_ids=pb.TokenIds(ids=[1])), "prompt", "exactly one"),
    "empty prompt": (pb.GenerateRequest(prompt=""), "prompt", "is empty"),
    "empty content": (ask(messages=[USER, pb.Message(role="user")]), "messages[1].content", "is empty"),
    "blank content": (ask(messages=[pb.Message(role="user", content=" \n")]), "messages[0].content", "is empty"),
    "empty role": (ask(messages=[pb.Message(content="x")]), "messages[0].role", "write system, user or assistant"),
    "odd role": (ask(messages=[pb.Message(role="us er", content="x")]), "messages[0].role", "'us er' is no role"),
    "ids without tier": (pb.GenerateRequest(prompt_ids=pb.TokenIds(ids=[1])), "prompt_ids", "named tier"),
    "no ids": (pb.GenerateRequest(prompt_ids=pb.TokenIds(), tier=pb.FLASH), "prompt_ids", "is empty"),
    "tier and model": (ask(model="chat:flash", tier=pb.STANDARD), "tier", "name one of them"),
    "unknown tier": (ask(tier=9), "tier", "9"),
    "unknown priority": (ask(priority=9), "priority", "HIGH or LOW"),
    "long model": (ask(model="m" * 300), "model", "at most 253"),
    "request id shape": (ask(request_id="a b"), "request_id", "'a b'"),
    "request id length": (ask(request_id="a" * 129), "request_id", "1 to 128"),
    "tenant shape": (ask(tenant="a/{b}"), "tenant", "1 to 63"),
    "tenant length": (ask(tenant="a" * 64), "tenant", "1 to 63"),
    "tenant with a line end": (ask(tenant="a\n"), "tenant", "1 to 63"),
    "resume without id": (ask(resume_position=3), "resume_position", "request_id"),
    "many messages": (ask(messages=[USER] * (validate.MAX_MESSAGES + 1)), "messages", "at most"),
    "long text": (
        ask(messages=[pb.Message(role="user", content="x" * (validate.MAX_TEXT + 1))]),
        "messages",
        "4000001",
    ),
    "long prompt": (pb.GenerateRequest(prompt="x" * (validate.MAX_TEXT + 1)), "prompt", "4000001"),
    "max_tokens 0": (sampled(max_tokens=0), "sampling.max_tokens", "is 0"),
    "max_tokens -1": (sampled(max_tokens=-1), "sampling.max_tokens", "is -1"),
    "temperature -1": (sampled(temperature=-1), "sampling.temperature", "is -1"),
    "temperature nan": (sampled(temperature=math.nan), "sampling.temperature", "is nan"),
    "temperature inf": (sampled(temperature=math.inf), "sampling.temperature", "is inf"),
    "top_p 0": (sampled(top_p=0), "sampling.top_p", "is 0"),
    "top_p 1.1": (sampled(top_p=1.1), "sampling.top_p", "is 1.1"),
    "top_p nan": (sampled(top_p=math.nan), "sampling.top_p", "is nan"),
    "top_k -1": (sampled(top_k=-1), "sampling.top_k", "is -1"),
    "presence 2.1": (sampled(presence_penalty=2.1), "sampling.presence_penalty", "is 2.1"),
    "frequency -3": (sampled(frequency_penalty=-3), "sampling.frequency_penalty", "is -3"),
    "repetition 0": (sampled(repetition_penalty=0), "sampling.repetition_penalty", "is 0"),
    "repetition 0.009": (sampled(repetition_penalty=0.009), "sampling.repetition_penalty", "from 0.01 to 100"),
    "repetition 101": (sampled(repetition_penalty=101), "sampling.repetition_penalty", "is 101"),
    "repetition inf": (sampled(repetition_penalty=math.inf), "sampling.repetition_penalty", "is inf"),
    "17 stops": (sampled(stop=["x"] * 17), "sampling.stop", "at most 16"),
    "empty stop": (sampled(stop=["x", ""]), "sampling.stop[1]", "is empty"),
    "long stop": (sampled(stop=["x" * 513]), "sampling.stop[0]", "at most 512"),
    "stop ids": (sampled(stop_token_ids=[1] * 257), "sampling.stop_token_ids", "at most 256"),
    "bias 101": (sampled(logit_bias={7: 101}), "sampling.logit_bias[7]", "from -100 to 100"),
    "bias nan": (sampled(logit_bias={7: math.nan}), "sampling.logit_bias[7]", "is nan"),
    "biases": (sampled(logit_bias=dict.fromkeys(range(1025), 1.0)), "sampling.logit_bias", "at most 1024"),
    "allowed": (sampled(allowed_token_ids=range(65537)), "sampling.allowed_token_ids", "at most 65536"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    request, field, said = REFUSED[name]
    with pytest.raises(Refused) as caught:
        validate.check(request)
    assert (caught.value.why, caught.value.field) == (Why.INVALID, field)
    assert said in caught.value.message
    assert caught.value.message.startswith(field)
    assert len(caught.value.message) < 400


ACCEPTED = {
    "least": ask(),
    "prompt": pb.GenerateRequest(prompt=" "),
    "ids": pb.GenerateRequest(prompt_ids=pb.TokenIds(ids=[0, 2**32 - 1]), tier=pb.FLASH),
    "a role of the template": ask(messages=[pb.Message(role="tool", content="x")]),
    "an empty system prompt": ask(messages=[pb.Message(role="system"), USER]),
    "identity": ask(request_id="A.b-c_d:1", tenant="team@a.b", resume_position=3, priority=pb.LOW),
    "edges": sampled(
        max_tokens=1, temperature=0, top_p=1, top_k=0, presence_penalty=2, frequency_penalty=-2,
        repetition_penalty=0.01, stop=["x" * 512] * 16, logit_bias={1: 100, 2: -100}, seed=2**64 - 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_unchanged(name: str) -> None:
    before = pb.GenerateRequest()
    before.CopyFrom(ACCEPTED[name])
    assert validate.check(ACCEPTED[name]) == before


@pytest.mark.parametrize(
    ("model", "tier", "canonical"),
    [
        ("chat:flash", pb.AUTO, ("chat", pb.FLASH)),
        ("chat:standard", pb.STANDARD, ("chat", pb.STANDARD)),
        (":flash", pb.AUTO, ("", pb.FLASH)),
        ("chat:fast", pb.AUTO, ("chat:fast", pb.AUTO)),
        ("chat", pb.FLASH, ("chat", pb.FLASH)),
    ],
)
def test_a_models_suffix_names_the_tier(model, tier, canonical) -> None:
    request = validate.check(ask(model=model, tier=tier))
    assert (request.model, request.tier) == canonical


def test_ids_may_be_forced_by_the_models_name() -> None:
    validate.check(pb.GenerateRequest(model="chat:flash", prompt_ids=pb.TokenIds(ids=[1])))
