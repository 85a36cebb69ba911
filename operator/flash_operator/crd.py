"""The CustomResourceDefinition, made from `flash_operator.api`: the same fields, defaults, bounds and refusals. Pure.

It needs no webhook. What pydantic refuses, the API server refuses by the schema or by a CEL rule whose message says
what to write instead. Not sayable in CEL: whether `regex` compiles; the operator tells that in the condition Ready.

There is no scale subresource: a FlashDeployment has two tiers, and the subresource knows one count. An HPA or KEDA
targets the tier's own Deployment (NAME-flash, NAME-standard), whose count `scaling: {external: true}` leaves alone.
"""

from __future__ import annotations

import json
from typing import Any

import yaml
from flash_wire.settings import SOURCE_PATTERN, Engine, Settings, When
from flash_wire.units import format_duration

from flash_operator.api import KIND, Metadata, Scaling, Spec, Tier
from flash_operator.api_cluster import Broker, Toleration
from flash_operator.conditions import CONDITIONS
from flash_operator.knobs import Knob, Shape, knobs

Schema = dict[str, Any]

GROUP = "flashfleet.io"
PLURAL = "flashdeployments"
FILE = f"{PLURAL}.{GROUP}.yaml"
_DURATION = r"^([0-9]{1,9}([.][0-9]{1,6})?(ms|s)|[0-9]{1,6}([.][0-9]{1,6})?(m|h))$"
_NAME_LENGTH = 40


def _unchanged(kind: type[Settings], *attributes: str) -> str:
    """CEL: these fields have their defaults, which the API server has filled in."""
    found = {knob.attribute: knob for knob in knobs(kind)}
    return " && ".join(f"self.{found[name].name} == {_cel(found[name].default)}" for name in attributes)


def _cel(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else json.dumps(value)


RULES: dict[type[Settings], tuple[tuple[str, str], ...]] = {
    Tier: (
        (
            "!has(self.replicas) || !has(self.scaling)",
            "replicas and scaling are both set: keep replicas for a fixed count, scaling for a following one",
        ),
    ),
    Scaling: (
        ("self.min <= self.max", "min is above max: raise max or lower min"),
        (
            f"!self.external || ({_unchanged(Scaling, 'min', 'max', 'target_wait', 'idle_after')})",
            "external is true, so an HPA or KEDA holds the bounds: remove min, max, targetWait and idleAfter, or remove"
            " external",
        ),
    ),
    Engine: (
        (
            "self.sinkTokens == 0 || self.window > 0",
            "sinkTokens is set without a window: set window too, or remove sinkTokens",
        ),
    ),
    When: (
        (
            "size(self.contains) > 0 || self.regex != '' || self.minChars > 0 || self.maxChars > 0"
            " || self.tenant != ''",
            "a rule without a condition would take every request: give contains, regex, minChars, maxChars or tenant",
        ),
        (
            "self.contains.all(text, text.matches(r'\\S'))",
            "contains has an empty text, which every prompt contains: remove it",
        ),
    ),
    Toleration: (
        (
            "self.key != '' || self.operator == 'Exists'",
            "a toleration with operator Equal needs a key: give key, or write operator: Exists",
        ),
        (
            "self.operator != 'Exists' || self.value == ''",
            "a toleration with operator Exists has no value: remove value, or write operator: Equal",
        ),
        (
            "!has(self.tolerationSeconds) || self.effect == 'NoExecute'",
            "tolerationSeconds is set without effect NoExecute: write effect: NoExecute, or remove it",
        ),
    ),
    Broker: (
        ("self.key == '' || self.secret != ''", "key is set without a secret: name the secret too, or remove key"),
    ),
}
"""Checks between fields: (CEL, what to write instead). Each has its twin in the class' own validators."""

SENTENCES = {
    SOURCE_PATTERN: "write where the weights are: package://PACKAGE/FILE, file:///PATH, hf://ORG/NAME, pvc://CLAIM/PATH,"
    " s3://BUCKET/PATH or oci://IMAGE",
    "name": "write a name of Kubernetes: lower case letters, digits, '-' and '.'",
    "key": "write a key of the Secret: letters, digits, '-', '_' and '.'",
}
"""What is said where a pattern does not match: by the pattern, or by what its field holds."""


def crd() -> Schema:
    """The whole object."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["fd"],
                "categories": ["all", "flashfleet"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1alpha1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": _columns(),
                    "schema": {"openAPIV3Schema": _root()},
                }
            ],
        },
    }


def to_yaml() -> str:
    """The file that is applied."""
    head = "# Made by tools/gen_crd.py from flash_operator.api: change it there.\n"
    return head + yaml.dump(crd(), Dumper=_Plain, sort_keys=False, width=120, allow_unicode=True)


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _columns() -> list[Schema]:
    def ready(what: str) -> str:
        return f'.status.conditions[?(@.type=="Ready")].{what}'

    wide = {"priority": 1}
    return [
        {"name": "Ready", "type": "string", "jsonPath": ready("status")},
        {"name": "Flash", "type": "string", "jsonPath": ".status.tiers.flash.workers"},
        {"name": "Standard", "type": "string", "jsonPath": ".status.tiers.standard.workers"},
        {"name": "Share", "type": "string", "jsonPath": ".status.share"},
        {"name": "Reason", "type": "string", "jsonPath": ready("reason")},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "Endpoint", "type": "string", "jsonPath": ".status.endpoint.http"} | wide,
        {"name": "Message", "type": "string", "jsonPath": ready("message")} | wide,
    ]


def _root() -> Schema:
    name = next(knob for knob in knobs(Metadata) if knob.name == "name")
    assert name.shape.longest == _NAME_LENGTH
    return {
        "type": "object",
        "description": "Two models served as one: easy prompts go to Flash workers, hard ones to standard workers.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _object(Spec) | {"description": _first_sentence(Spec)},
            "status": _status(),
        },
        "x-kubernetes-validations": [
            {
                "rule": f"size(self.metadata.name) <= {_NAME_LENGTH}",
                "message": f"metadata.name is longer than {_NAME_LENGTH} characters: names of pods are made from it, so"
                " write a shorter one",
            },
            {
                "rule": f"self.metadata.name.matches(r'{name.shape.pattern}')",
                "message": "metadata.name becomes the name of a Service: start with a letter, then lower case letters,"
                " digits and '-'",
            },
        ],
    }


def _object(kind: type[Settings]) -> Schema:
    made: Schema = {"type": "object", "properties": {}}
    required = []
    for knob in knobs(kind):
        made["properties"][knob.name] = _property(knob)
        if knob.required:
            required.append(knob.name)
    if required:
        made["required"] = required
    if rules := RULES.get(kind):
        made["x-kubernetes-validations"] = [{"rule": rule, "message": message} for rule, message in rules]
    return made


def _property(knob: Knob) -> Schema:
    schema = _typed(knob.shape, knob.name)
    said = [knob.doc]
    if knob.unit and knob.unit not in knob.doc:
        said.append(f"In {knob.unit}.")
    if knob.default not in (None, "", [], {}):
        said.append(f"Default: {_said(knob.default)}.")
    if knob.example:
        said.append(f"Example: {knob.example}")
    made: Schema = {"description": " ".join(said)} | schema
    if knob.default is not None:
        made["default"] = knob.default
        if knob.shape.of in RULES:
            # The API server checks a default by the rules before it fills in what the default leaves out.
            made["default"] = {inner.name: inner.default for inner in knobs(knob.shape.of) if inner.default is not None}
    return made


def _typed(shape: Shape, name: str) -> Schema:
    if shape.kind == "object":
        assert shape.of is not None
        return _object(shape.of)
    if shape.kind == "any":
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if shape.kind in ("list", "map"):
        assert shape.items is not None
        assert shape.longest, f"{name} needs max_length: the API server bounds the cost of rules by it"
        items = _typed(shape.items, name)
        if shape.kind == "list":
            return {"type": "array", "items": items, "maxItems": shape.longest, "x-kubernetes-list-type": "atomic"}
        return {"type": "object", "additionalProperties": items, "maxProperties": shape.longest}
    if shape.kind == "enum":
        return {"type": "string", "enum": list(shape.values)}
    if shape.kind == "quantity":
        return {"x-kubernetes-int-or-string": True, "pattern": shape.pattern}
    if shape.kind == "duration":
        return {"type": "string", "maxLength": 20, "x-kubernetes-validations": list(_duration_rules(shape))}
    if shape.kind == "string":
        assert shape.longest, f"{name} needs max_length"
        made: Schema = {"type": "string", "maxLength": shape.longest}
        if shape.pattern:
            sentence = SENTENCES.get(shape.pattern) or SENTENCES["key" if name == "key" else "name"]
            made["x-kubernetes-validations"] = [{"rule": f"self.matches(r'{shape.pattern}')", "message": sentence}]
        return made
    bounds = {"minimum": shape.least, "maximum": shape.most}
    return {"type": shape.kind} | {word: bound for word, bound in bounds.items() if bound is not None}


def _duration_rules(shape: Shape) -> list[Schema]:
    rules = [
        {
            "rule": f"self.matches(r'{_DURATION}')",
            "message": "this is not a duration: write a number with ms, s, m or h, for example 30s",
        }
    ]
    tests, says = [], []
    for bound, sign, word in (
        (shape.above, ">", "more than"),
        (shape.least, ">=", "at least"),
        (shape.most, "<=", "at most"),
    ):
        if bound is not None and not (bound == 0 and sign == ">="):
            tests.append(f"duration(self) {sign} duration('{bound:g}s')")
            says.append(f"{word} {format_duration(bound) if bound else '0s'}")
    if tests:
        rules.append(
            {
                "rule": f"!self.matches(r'{_DURATION}') || ({' && '.join(tests)})",
                "message": f"write a duration of {' and '.join(says)}",
            }
        )
    return rules


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _first_sentence(kind: type[Settings]) -> str:
    return (kind.__doc__ or "").strip().split("\n")[0]


def _status() -> Schema:
    def text(doc: str) -> Schema:
        return {"type": "string", "description": doc}

    def count(doc: str) -> Schema:
        return {"type": "integer", "format": "int32", "description": doc}

    tier = {
        "type": "object",
        "properties": {
            "desired": count("Workers that are wanted."),
            "ready": count("Pods that are ready to the kubelet."),
            "admitted": count("Workers that are ready with the settings of this generation and attached to a router."),
            "draining": count("Pods that end, and finish what they run."),
            "workers": text("admitted/desired, for the table of kubectl get."),
        },
    }
    condition = {
        "type": "object",
        "required": ["type", "status", "reason", "lastTransitionTime"],
        "properties": {
            "type": text("What is said: " + " ".join(f"{name}: {doc}" for name, doc in CONDITIONS.items())),
            "status": text("True, False or Unknown.") | {"enum": ["True", "False", "Unknown"]},
            "reason": text("One word, for programs."),
            "message": text("A sentence, for people."),
            "observedGeneration": {"type": "integer", "format": "int64", "description": "Generation that it is about."},
            "lastTransitionTime": text("When status last changed.") | {"format": "date-time"},
        },
    }
    return {
        "type": "object",
        "description": "What is there, as the operator sees it.",
        "properties": {
            "observedGeneration": {
                "type": "integer",
                "format": "int64",
                "description": "Generation that this status is about.",
            },
            "conditions": {
                "type": "array",
                "description": "Each is about the generation that it names.",
                "items": condition,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
            "tiers": {
                "type": "object",
                "description": "Counts of each tier.",
                "properties": {
                    "flash": tier | {"description": "The fast tier."},
                    "standard": tier | {"description": "The careful tier."},
                },
            },
            "endpoint": {
                "type": "object",
                "description": "Where clients ask.",
                "properties": {
                    "grpc": text("host:port of the gRPC API."),
                    "http": text("Base address for OpenAI clients."),
                },
            },
            "share": text("Share of the classified requests that standard answered; at most one change a minute."),
            "shareTime": text("When share was written.") | {"format": "date-time"},
        },
    }
