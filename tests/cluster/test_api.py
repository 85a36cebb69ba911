"""What the API server itself takes, refuses and explains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from flash_operator import api
from flash_operator.client import DEPLOYMENT_OF_OURS
from support.kube import Kube, Refused
from support.mistakes import GOOD, MISTAKES, Mistake, patched

pytestmark = pytest.mark.cluster
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


def test_every_field_is_explained(plane: Any) -> None:
    tree = plane.kubectl("explain", "fd.spec", "--recursive").stdout
    assert "standardShare" in tree
    assert "wakeWait" in tree
    told = plane.kubectl("explain", "fd.spec.flash.scaling.targetWait").stdout
    assert "Queue wait that the count aims at" in told


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_taken(plane: Any, kube: Kube, path: Path) -> None:
    plane.kubectl("apply", "-n", kube.namespace, "-f", str(path))
    name = yaml.safe_load(path.read_text())["metadata"]["name"]
    stored = kube.must(DEPLOYMENT_OF_OURS, name)
    given = api.load(path)
    assert api.from_dict(stored).spec == given.spec, "defaults of the API server are those of the API"


def test_the_shortest_one_is_taken(kube: Kube) -> None:
    stored = kube.create(DEPLOYMENT_OF_OURS, GOOD)
    assert api.from_dict(stored).spec == api.from_dict(GOOD).spec


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_refused_with_what_to_write_instead(kube: Kube, mistake: Mistake) -> None:
    with pytest.raises(Refused) as refused:
        kube.create(DEPLOYMENT_OF_OURS, patched(mistake.patch), fieldValidation="Strict")  # as kubectl does
    assert refused.value.status in (400, 422)
    assert mistake.sentence in str(refused.value)


def test_an_unknown_field_is_refused_by_kubectl(plane: Any, kube: Kube) -> None:
    body = patched({"spec": {"flash": {"replica": 2}}})
    answer = plane.kubectl("apply", "-n", kube.namespace, "-f", "-", stdin=yaml.safe_dump(body), check=False)
    assert answer.returncode != 0
    assert "replica" in answer.stderr


def test_columns(plane: Any, kube: Kube) -> None:
    kube.create(DEPLOYMENT_OF_OURS, GOOD)
    head = plane.kubectl("get", "-n", kube.namespace, "fd").stdout.splitlines()[0].split()
    assert head == ["NAME", "READY", "FLASH", "STANDARD", "SHARE", "REASON", "AGE"]
