"""FlashDeployments for property tests: anything that is valid, from the shortest to every field."""

from __future__ import annotations

from typing import Any

from flash_operator import api
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

Body = dict[str, Any]

PURE = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For property tests of pure functions: no clock decides, however busy the machine is."""

NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,10}[a-z0-9])?", fullmatch=True)
DURATIONS = st.sampled_from(["1500ms", "30s", "10m", "1h"])
WORDS = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_categories=["Cs"]), min_size=1, max_size=12
)
LABELS = st.dictionaries(NAMES, NAMES, max_size=3)
QUANTITIES = st.sampled_from([1, 2, "500m", "8Gi"])


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Body]:
    """A mapping with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


RESOURCES = some(
    requests=st.dictionaries(st.sampled_from(["cpu", "memory"]), QUANTITIES),
    limits=st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), QUANTITIES),
)
TOLERATIONS = st.lists(
    st.sampled_from(
        [
            {"operator": "Exists"},
            {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
            {"key": "gone", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
        ]
    ),
    max_size=2,
)
POD: dict[str, st.SearchStrategy[Any]] = {
    "image": NAMES,
    "resources": RESOURCES,
    "nodeSelector": LABELS,
    "tolerations": TOLERATIONS,
    "podOverlay": some(
        metadata=some(labels=LABELS, annotations=LABELS),
        spec=st.sampled_from(
            [{}, {"priorityClassName": "high"}, {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}]}]
        ),
    ),
}
SCALING = st.one_of(
    st.builds(
        lambda low, more, rest: {"min": low, "max": max(1, low + more), **rest},
        st.integers(0, 5),
        st.integers(0, 5),
        some(targetWait=DURATIONS, idleAfter=DURATIONS, wakeWait=DURATIONS),
    ),
    some(wakeWait=DURATIONS).map(lambda rest: {"external": True, **rest}),
)
MODELS = st.builds(
    lambda source, rest: {"source": source, **rest},
    st.sampled_from(["hf://example/a", "file:///models/a", "pvc://claim/a/b", "pvc://claim", "package://a/b.gguf"]),
    some(secret=NAMES, cacheClaim=NAMES),
)
ENGINE = st.sampled_from([{}, {"window": 1024, "sinkTokens": 4}, {"weights": "int8", "maxSeqs": 4}])
TIERS = st.builds(
    lambda model, count, rest: {"model": model, **count, **rest},
    MODELS,
    st.one_of(st.just({}), st.integers(0, 5).map(lambda n: {"replicas": n}), SCALING.map(lambda s: {"scaling": s})),
    some(
        engine=ENGINE,
        onTierDown=st.sampled_from(["wait", "fallback"]),
        rollout=st.sampled_from(["surge", "replace"]),
        startWithin=st.sampled_from(["10s", "1h"]),
        **POD,
    ),
)
RULES = st.lists(
    st.builds(lambda text, to: {"when": {"contains": [text]}, "to": to}, WORDS, st.sampled_from(["flash", "standard"])),
    max_size=3,
)
SPECS = st.builds(
    lambda flash, standard, rest: {"flash": flash, "standard": standard, **rest},
    TIERS,
    TIERS,
    some(
        router=some(
            replicas=st.integers(1, 3),
            service=some(type=st.sampled_from(["ClusterIP", "LoadBalancer"]), annotations=LABELS),
            **POD,
        ),
        routing=some(standardShare=st.floats(0, 1), rules=RULES),
        priorities=some(high=st.integers(1, 9), low=st.integers(1, 9)),
        pinnedPrefixes=st.lists(WORDS, max_size=2),
        broker=NAMES.map(lambda name: {"secret": name}),
        drain=DURATIONS,
    ),
)
BODIES = st.builds(
    lambda name, namespace, spec: {
        "apiVersion": api.API_VERSION,
        "kind": api.KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    },
    NAMES,
    NAMES,
    SPECS,
)
"""As a person writes them."""
DEPLOYMENTS = BODIES.map(api.from_dict)
