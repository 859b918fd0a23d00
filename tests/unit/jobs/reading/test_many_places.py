"""What says where pods may run is compared with nodes and flavors, so there is a most of it."""

from typing import Any

import pytest

from tests.fuzz.costs import counted
from tests.unit.jobs.objects_of_kinds import load, record_of
from webhook.core.model.gang import Requirement
from webhook.core.notation.names import NODE_NAME
from webhook.jobs.reading.pod_set import PLACING_MAX

TERM = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}


def with_pod_fields(**fields: Any) -> dict[str, Any]:
    """Return a Job whose pods have these fields."""
    obj = load("job")
    obj["spec"]["template"]["spec"] |= fields
    return obj


def required(terms: list[Any]) -> dict[str, Any]:
    """Return a pod's affinity to nodes."""
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


@pytest.mark.parametrize("number", [PLACING_MAX + 1, 30_000])
def test_more_tolerations_than_anybody_needs_are_refused_unread(number: int) -> None:
    obj = with_pod_fields(tolerations=[{"key": "a", "operator": "Exists"}] * number)
    problem = str(counted(lambda: record_of(obj), 0).problem)
    assert f"spec.tolerations: {number}: is more than 1000 tolerations" in problem


@pytest.mark.parametrize(
    "terms",
    [
        [TERM] * 400,
        [{"matchExpressions": TERM["matchExpressions"] * 600}],
        [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"] * 1_000}]}],
    ],
)
def test_more_of_node_affinity_than_anybody_needs_is_refused(terms: list[Any]) -> None:
    assert "is more than 1000 terms, requirements and values" in str(
        record_of(with_pod_fields(affinity=required(terms))).problem
    )


def test_what_a_large_cluster_asks_is_read() -> None:
    nodes = {"key": "kubernetes.io/hostname", "operator": "In", "values": [f"n{number}" for number in range(998)]}
    obj = with_pod_fields(
        tolerations=[{"key": "a", "operator": "Exists"}] * PLACING_MAX,
        affinity=required([{"matchExpressions": [nodes]}]),
    )
    gang = record_of(obj).gang
    assert gang is not None
    assert len(gang.pod_sets[0].tolerations) == PLACING_MAX
    assert gang.pod_sets[0].node_affinity == ((Requirement(nodes["key"], "In", tuple(nodes["values"])),),)


def listing(*values: str, key: str = "rack", field: str = "matchExpressions") -> dict[str, Any]:
    """Return a term that only lists values."""
    return {field: [{"key": key, "operator": "In", "values": list(values)}]}


def test_terms_that_only_list_values_of_one_label_are_one_list() -> None:
    both = {"matchExpressions": [*listing("r1")["matchExpressions"], {"key": "disk", "operator": "Exists"}]}
    terms = [
        listing("r1"),
        listing("n1", key="metadata.name", field="matchFields"),
        both,
        listing("a", key="pool"),
        {},
        listing("r3", "r1"),
        listing("n2", key="metadata.name", field="matchFields"),
        both,
    ]
    gang = record_of(with_pod_fields(affinity=required(terms))).gang
    assert gang is not None
    assert gang.pod_sets[0].node_affinity == (
        (Requirement("rack", "In", ("r1", "r3")),),
        (Requirement(NODE_NAME, "In", ("n1", "n2")),),
        (Requirement("rack", "In", ("r1",)), Requirement("disk", "Exists")),
        (Requirement("pool", "In", ("a",)),),
        (Requirement("", "In"),),
    )
