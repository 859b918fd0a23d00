"""How many pod sets of a job are read, whatever its kind: no more than a reservation could hold."""

from typing import Any

import pytest

from tests.fuzz.costs import counted
from tests.unit.jobs.objects_of_kinds import kind_of, load, record_of, special
from webhook.core.ledger import bounds
from webhook.jobs.pod_sets.find import find_pod_sets
from webhook.untyped import paths

MANY = 20_000
"""Pod sets in less than a megabyte."""


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("jobset", ("spec", "replicatedJobs")),
        ("raycluster", ("spec", "workerGroupSpecs")),
        ("rayjob", ("spec", "rayClusterSpec", "workerGroupSpecs")),
        ("volcanojob", ("spec", "tasks")),
        ("appwrapper", ("spec", "components")),
        ("appwrapper", ("spec", "components", 0, "podSets")),
    ],
)
def test_more_pod_sets_than_a_reservation_holds_are_not_even_looked_at(name: str, path: tuple[Any, ...]) -> None:
    """Of an AppWrapper each cost room for all: 4,000 took a second and a gigabyte, in every process."""
    obj = special(name) if name == "volcanojob" else load(name)
    items = paths.find(obj, path[:2])[0]["podSets"] if len(path) > 2 and name == "appwrapper" else paths.find(obj, path)
    items *= MANY
    problem = str(counted(lambda: record_of(obj), 0).problem)
    assert "are more than 512 pod sets, which no reservation holds" in problem


def test_components_of_an_app_wrapper_have_no_more_pod_sets_together() -> None:
    obj = load("appwrapper")
    obj["spec"]["components"][0]["podSets"] *= 300
    obj["spec"]["components"] = [obj["spec"]["components"][0]] * 2
    assert "are more than 512 pod sets" in str(record_of(obj).problem)


def test_the_room_of_a_wrapped_component_is_described_once() -> None:
    obj = load("appwrapper")
    obj["spec"]["components"][0]["podSets"] *= 400
    scaffolds = [site.scaffold for site in find_pod_sets(kind_of(obj), obj)[:400]]
    assert len({id(each) for each in scaffolds}) == 1


def test_as_many_pod_sets_as_may_be_read_fill_more_than_one_reservation() -> None:
    template = {"spec": {"containers": [{"name": "m", "image": "i"}]}}
    obj = special("volcanojob")
    obj["spec"] = {"tasks": [{"name": f"{n}", "replicas": 1, "template": template} for n in range(512)]}
    gang = record_of(obj).gang
    assert gang is not None
    assert "use fewer pod sets" in str(bounds.too_large(gang))
