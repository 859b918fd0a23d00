"""Gangs stand in one class, and get one answer, only where nothing tells them apart that an answer may depend on."""

from dataclasses import fields, replace
from typing import Any

import pytest

from webhook.core.model.gang import Gang, Nearness, PodPrice, PodSet, Requirement, Toleration
from webhook.core.pending.pending_queue import class_key

POD_SET = PodSet("main", 2, PodPrice({"cpu": 1000}))
OTHERS: dict[str, Any] = {
    "name": "other",
    "count": 3,
    "price": PodPrice({"cpu": 2000}),
    "min_count": 1,
    "node_selector": {"pool": "a"},
    "node_affinity": ((Requirement("pool", "In", ("a",)),),),
    "tolerations": (Toleration("slow", "Exists"),),
    "added": frozenset(("cpu",)),
    "together": "group",
    "near": Nearness("rack", required=True),
    "host_ports": ("TCP/29500",),
}
SAME = {"job"}
"""Which job of an ensemble a set belongs to decides nothing about the whole."""


def key(pod_set: PodSet) -> object:
    return class_key(Gang("uid", "Job.batch", "team", "name", "q", (pod_set,)))


@pytest.mark.parametrize("field", [each.name for each in fields(PodSet) if each.name not in SAME])
def test_gangs_whose_pod_sets_differ_in_anything_that_is_decided_by_are_of_two_classes(field: str) -> None:
    assert key(POD_SET) == key(replace(POD_SET))
    assert key(POD_SET) != key(replace(POD_SET, **{field: OTHERS[field]}))
