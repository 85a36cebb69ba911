"""A FlashDeployment file: what is accepted, and what each mistake is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from flash_operator import api
from flash_wire.settings import SettingsError

EXAMPLE = Path(__file__).parents[2] / "examples" / "chat.yaml"
SHORTEST = """
apiVersion: flashfleet.io/v1alpha1
kind: FlashDeployment
metadata: {name: chat}
spec:
  flash: {model: {source: "file:///models/a"}}
  standard: {model: {source: "file:///models/b"}}
"""


def test_the_example_is_accepted() -> None:
    deployment = api.load(EXAMPLE)
    assert deployment.fleet == "default/chat"
    assert deployment.spec.flash.engine.weights == "int8"
    assert deployment.spec.limits.max_wait == 30.0


def test_everything_but_the_models_has_a_default() -> None:
    spec = api.from_yaml(SHORTEST).spec
    assert spec.flash.replicas is None
    assert spec.drain == 60.0
    assert spec.routing.standard_share == 0.3


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{name: chat}", "{nam: chat}", "metadata.name: must be given"),
        ("{name: chat}", "{name: Chat_1}", "metadata.name: string should match pattern"),
        ("kind: FlashDeployment", "kind: FlashDeploymnt", "kind: this is a FlashDeploymnt, not a FlashDeployment"),
        ("flash: {model:", "flahs: {model:", "spec.flahs: unknown field; did you mean flash?"),
        (
            '/models/a"}}',
            '/models/a"}, engine: {wieghts: int8}}',
            "spec.flash.engine.wieghts: unknown field; did you mean weights?",
        ),
        (
            '/models/a"}}',
            '/models/a"}, engine: {maxSeqs: -1}}',
            "spec.flash.engine.maxSeqs: input should be greater than or equal to 1 (got -1)",
        ),
        ("file:///models/a", "models/a", "spec.flash.model.source: string should match pattern"),
        ('/models/a"}}', '/models/a"}, replicas: 1, scaling: {max: 2}}', "spec.flash: replicas and scaling are both"),
        ('/models/a"}}', '/models/a"}, scaling: {min: 3, max: 2}}', "min 3 is above max 2"),
        ("spec:", "spec:\n  drain: 30", "spec.drain: 30 is not a duration"),
        (
            "spec:",
            "spec:\n  routing: {rules: [{when: {contans: [a]}, to: flash}]}",
            "spec.routing.rules.0.when.contans: unknown field; did you mean contains?",
        ),
        ("spec:", "spec:\n  routing: {rules: [{when: {}, to: flash}]}", "a rule without a condition"),
        ("spec:", "spec:\n  routing: {rules: [{when: {regex: '('}, to: flash}]}", "does not compile"),
        ("spec:", "spec:\n  drain: 5s\n  drain: 6s", "drain is given twice (line 7, column 3)"),
        ("spec:", "spec: {", "not YAML"),
    ],
)
def test_a_mistake_is_named_with_its_place(old: str, new: str, said: str) -> None:
    assert old in SHORTEST
    with pytest.raises(SettingsError) as caught:
        api.from_yaml(SHORTEST.replace(old, new, 1), "chat.yaml")
    assert said in str(caught.value)
    assert str(caught.value).startswith("chat.yaml: ")


def test_every_mistake_is_told_at_once() -> None:
    text = SHORTEST.replace("flash: {model:", "flahs: {model:").replace("{name: chat}", "{name: Chat}")
    with pytest.raises(SettingsError) as caught:
        api.from_yaml(text)
    assert len(str(caught.value).splitlines()) == 3


def test_aliases_cannot_blow_up() -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
    for before, name in zip("abcdef", "bcdefg", strict=True):
        bomb += f"{name}: &{name} [" + ",".join([f"*{before}"] * 10) + "]\n"
    with pytest.raises(SettingsError, match="aliases"):
        api.from_yaml("kind: FlashDeployment\n" + bomb)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(SettingsError, match="deep"):
        api.from_yaml("kind: FlashDeployment\nspec: " + "[" * 5000 + "]" * 5000)


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "chat.yaml"
    path.write_bytes(b"kind: \xff\xfe")
    with pytest.raises(SettingsError, match="not UTF-8 at byte 6"):
        api.load(path)
    with pytest.raises(SettingsError, match="cannot be read"):
        api.load(tmp_path / "none.yaml")


def test_what_the_api_server_adds_is_ignored() -> None:
    import yaml

    data = yaml.safe_load(SHORTEST)
    data["metadata"] |= {"uid": "1", "resourceVersion": "2", "managedFields": []}
    data["status"] = {"conditions": []}
    assert api.from_dict(data).metadata.name == "chat"


def test_one_machine_says_what_it_leaves_out() -> None:
    """`flashfleet up` serves the same file, and hides nothing."""
    assert api.without_cluster(api.from_yaml(SHORTEST)) == []
    said = api.without_cluster(api.load(EXAMPLE.with_name("chat-gpu.yaml")))
    assert said == [
        "flash.scaling: on one machine the count stays at 1; scaling from 0 to 4 needs a cluster",
        "flash.model.secret: is in a cluster; set its variables before `flashfleet up`",
        "flash: resources, tolerations have no meaning without a cluster",
        "standard.model.secret: is in a cluster; set its variables before `flashfleet up`",
        "standard.model.cacheClaim: is in a cluster; here downloads go to your own cache",
        "standard: resources, nodeSelector, tolerations, podOverlay, rollout, startWithin have no meaning without a"
        " cluster",
        "router: resources, service have no meaning without a cluster",
        "broker: its Secret is in a cluster; here FLASHFLEET_BROKER_URL names a queue, or `up` starts one",
    ]


@pytest.mark.parametrize(
    ("tier", "said"),
    [
        ("scaling: {external: true}", "flash.scaling: on one machine nothing else scales; the count stays at 1"),
        ("scaling: {min: 2, max: 4}", "flash.scaling: on one machine the count stays at 2; scaling from 2 to 4"),
        ("image: mine", "flash: image has no meaning without a cluster"),
    ],
)
def test_what_a_tier_asks_for_in_vain(tier: str, said: str) -> None:
    text = SHORTEST.replace('/models/a"}}', f'/models/a"}}, {tier}}}')
    (sentence,) = api.without_cluster(api.from_yaml(text))
    assert sentence.startswith(said)


def test_a_claim_cannot_be_served_here() -> None:
    text = SHORTEST.replace("file:///models/a", "pvc://weights/a")
    (sentence,) = api.without_cluster(api.from_yaml(text))
    assert sentence == "flash.model.source: pvc:// names a volume claim of a cluster; write file:///PATH here"
