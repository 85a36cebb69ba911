"""Mistakes that people make in a FlashDeployment, and what the API server is to say to each.

`MISTAKES` is (name, patch, sentence): a JSON merge patch over `GOOD`, and a part of the refusal. Both doors are tested
with it: the file as `flashfleet up` reads it, and the object as a real API server takes it.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

Body = dict[str, Any]

GOOD: Body = {
    "apiVersion": "flashfleet.io/v1alpha1",
    "kind": "FlashDeployment",
    "metadata": {"name": "chat"},
    "spec": {
        "flash": {"model": {"source": "hf://example/small"}},
        "standard": {"model": {"source": "hf://example/large"}},
    },
}
"""The shortest one."""


class Mistake(NamedTuple):
    name: str
    patch: Body
    sentence: str


def patched(patch: Body, base: Body = GOOD) -> Body:
    """A copy of `base` with an RFC 7386 merge patch on it."""
    made = copy.deepcopy(base)
    _merge(made, patch)
    return made


def _merge(into: Body, patch: Body) -> None:
    for name, value in patch.items():
        if value is None:
            into.pop(name, None)
        elif isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = copy.deepcopy(value)


def _spec(**parts: Any) -> Body:
    return {"spec": parts}


def _flash(**parts: Any) -> Body:
    return _spec(flash=parts)


def _rule(**when: Any) -> Body:
    return _spec(routing={"rules": [{"when": when, "to": "standard"}]})


MISTAKES: tuple[Mistake, ...] = (
    Mistake(
        "replicas and scaling",
        _flash(replicas=1, scaling={"max": 2}),
        "replicas and scaling are both set: keep replicas for a fixed count, scaling for a following one",
    ),
    Mistake("min above max", _flash(scaling={"min": 3, "max": 2}), "above max"),
    Mistake("min alone, above the default max", _flash(scaling={"min": 2}), "raise max or lower min"),
    Mistake(
        "external with bounds of ours",
        _flash(scaling={"external": True, "max": 4}),
        "external is true, so an HPA or KEDA holds the bounds: remove min, max, targetWait and idleAfter, or remove"
        " external",
    ),
    Mistake("a negative count", _flash(replicas=-1), "should be greater than or equal to 0"),
    Mistake("a count beyond reason", _flash(scaling={"max": 5000}), "should be less than or equal to 1000"),
    Mistake("no router", _spec(router={"replicas": 0}), "should be greater than or equal to 1"),
    Mistake(
        "sinks without a window",
        _flash(engine={"sinkTokens": 4}),
        "sinkTokens is set without a window: set window too, or remove sinkTokens",
    ),
    Mistake("a precision that is not there", _flash(engine={"weights": "int4"}), 'supported values: "fp32", "int8"'),
    Mistake("no model", _flash(model=None), "Required value"),
    Mistake("no tier", _spec(standard=None), "Required value"),
    Mistake("a path as source", _flash(model={"source": "/models/a"}), "write where the weights are: package://"),
    Mistake("an unknown scheme", _flash(model={"source": "http://host/a"}), "write where the weights are: package://"),
    Mistake(
        "a rule without a condition",
        _rule(),
        "a rule without a condition would take every request: give contains, regex, minChars, maxChars or tenant",
    ),
    Mistake(
        "an empty text in contains",
        _rule(contains=["prove", " "]),
        "contains has an empty text, which every prompt contains: remove it",
    ),
    Mistake("a rule to nowhere", _spec(routing={"rules": [{"when": {"minChars": 9}, "to": "large"}]}), "standard"),
    Mistake("a share in percent", _spec(routing={"standardShare": 30}), "should be less than or equal to 1"),
    Mistake("a weight of zero", _spec(priorities={"low": 0}), "should be greater than or equal to 1"),
    Mistake(
        "a duration without a unit", _spec(drain="30"), "this is not a duration: write a number with ms, s, m or h"
    ),
    Mistake("a duration as a number", _spec(drain=30), "must be of type string"),
    Mistake("a duration in words", _spec(limits={"maxWait": "half a minute"}), "this is not a duration"),
    Mistake("no time to drain", _spec(drain="0s"), "write a duration of more than 0s and at most 24h"),
    Mistake("days of draining", _spec(drain="48h"), "write a duration of more than 0s and at most 24h"),
    Mistake("no time to load", _flash(startWithin="1s"), "write a duration of at least 10s and at most 24h"),
    Mistake("a target of nothing", _flash(scaling={"targetWait": "0ms"}), "write a duration of more than 0s"),
    Mistake(
        "a broker key without its Secret",
        _spec(broker={"key": "url"}),
        "key is set without a secret: name the secret too, or remove key",
    ),
    Mistake("a Secret's name in capitals", _spec(broker={"secret": "Redis"}), "write a name of Kubernetes"),
    Mistake("a key with a blank", _spec(broker={"secret": "redis", "key": "my url"}), "write a key of the Secret"),
    Mistake("a claim's name in capitals", _flash(model={"source": "hf://a/b", "cacheClaim": "W_1"}), "lower case"),
    Mistake(
        "a toleration of nothing",
        _flash(tolerations=[{"effect": "NoSchedule"}]),
        "a toleration with operator Equal needs a key: give key, or write operator: Exists",
    ),
    Mistake(
        "Exists with a value",
        _flash(tolerations=[{"key": "gpu", "operator": "Exists", "value": "yes"}]),
        "a toleration with operator Exists has no value: remove value, or write operator: Equal",
    ),
    Mistake(
        "tolerationSeconds without NoExecute",
        _flash(tolerations=[{"key": "gpu", "operator": "Exists", "tolerationSeconds": 5}]),
        "tolerationSeconds is set without effect NoExecute: write effect: NoExecute, or remove it",
    ),
    Mistake("a word as quantity", _flash(resources={"limits": {"cpu": "two"}}), "should match"),
    Mistake("a fraction as quantity", _flash(resources={"limits": {"cpu": 0.5}}), "must be of type integer"),
    Mistake("a kind of Service that is not there", _spec(router={"service": {"type": "Ingress"}}), "LoadBalancer"),
    Mistake(
        "a name in capitals",
        {"metadata": {"name": "Chat"}},
        "lower case",
    ),
    Mistake(
        "a name that starts with a digit",
        {"metadata": {"name": "7b"}},
        "metadata.name becomes the name of a Service: start with a letter",
    ),
    Mistake(
        "a name with a dot",
        {"metadata": {"name": "chat.v1"}},
        "metadata.name becomes the name of a Service: start with a letter",
    ),
    Mistake(
        "a name too long for its pods",
        {"metadata": {"name": "c" * 41}},
        "metadata.name is longer than 40 characters",
    ),
    Mistake("a mistyped tier", _spec(flahs={"model": {"source": "hf://a/b"}}), 'unknown field "spec.flahs"'),
    Mistake("a mistyped knob", _flash(engine={"wieghts": "int8"}), 'unknown field "spec.flash.engine.wieghts"'),
    Mistake("too many rules", _spec(routing={"rules": [{"when": {"minChars": 1}, "to": "flash"}] * 101}), "100 items"),
    Mistake("an endless condition", _rule(contains=["x" * 1001]), "1000"),
)
"""Unknown fields are refused by strict field validation, which kubectl asks for and `fieldValidation=Strict` is."""
