"""Whatever stands in a job, it is refused by name or makes a gang that the engine can take."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.jobs.objects_of_kinds import NAMES, load, record_of
from webhook.core.nodes.shape import shape_of
from webhook.core.pending.pending_queue import class_key

ODD = (None, -5, 1.5, True, "x", [], ["a"], [{}], {}, {"a": 1}, {"a": []})
Place = tuple[str | int, ...]


def places(value: object, at: Place = ()) -> Iterator[Place]:
    """Yield where each value of a document stands."""
    yield at
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, member in members:
        yield from places(member, (*at, step))


@pytest.mark.parametrize("name", NAMES)
def test_a_job_with_one_odd_value_is_refused_or_is_a_gang_like_any_other(name: str) -> None:
    whole = load(name)
    for spec in (each for each in pod_specs(whole) if "nodeSelector" not in each):
        spec["nodeSelector"] = {"pool": "a"}
    for *steps, last in (place for place in places(whole["spec"], ("spec",)) if len(place) > 1):
        for odd in ODD:
            obj = copy.deepcopy(whole)
            at: Any = obj
            for step in steps:
                at = at[step]
            at[last] = odd
            record = record_of(obj)
            assert (record.gang is None) == (record.problem is not None)
            if record.gang is not None:
                hash(class_key(record.gang))
                hash(tuple(map(shape_of, record.gang.pod_sets)))


def pod_specs(value: object) -> Iterator[dict[str, Any]]:
    """Yield the specs of pods in a document."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for member in value.values():
            yield from pod_specs(member)
    for member in value if isinstance(value, list) else ():
        yield from pod_specs(member)
