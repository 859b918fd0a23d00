"""The PriorityClasses that every cluster has: what names them as a PriorityClass has their value, nothing else has."""

import pytest

from tests.unit.jobs.objects_of_kinds import load, record_of
from webhook.core.notation import names
from webhook.jobs.pricing.context import ReadContext

BUILT_IN = [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)]


@pytest.mark.parametrize(("name", "value"), BUILT_IN)
def test_a_label_that_names_one_names_a_workload_priority_class_that_is_missing(name: str, value: int) -> None:
    obj = load("job")
    obj["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = name
    record = record_of(obj, ReadContext({name: value, "usual": 3}, "usual", {"high": 1000}))
    assert record.gang is not None
    assert record.gang.priority == 3
    assert record.missing_class is not None
    assert record.missing_class.label == f"WorkloadPriorityClass {name!r}"
    assert "high" in record.missing_class.help


@pytest.mark.parametrize("known", [{}, dict(BUILT_IN)], ids=["unread", "read"])
@pytest.mark.parametrize(("name", "value"), BUILT_IN)
def test_pods_that_name_one_have_its_value(name: str, value: int, known: dict[str, int]) -> None:
    obj = load("job")
    obj["spec"]["template"]["spec"]["priorityClassName"] = name
    record = record_of(obj, ReadContext(known))
    assert record.gang is not None
    assert record.gang.priority == value
    assert record.missing_class is None


def test_a_workload_priority_class_of_that_name_has_the_value_that_it_states() -> None:
    obj = load("job")
    obj["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = "system-node-critical"
    record = record_of(obj, ReadContext({}, "", {"system-node-critical": 7}))
    assert record.gang is not None
    assert record.gang.priority == 7
    assert record.missing_class is None
