"""A Spark driver makes its executors: they take the places of its gang, and nobody else does by claiming a pod."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.server.reviews import ALICE, ask, pod, price, record, reservation, review, view, with_ledger
from webhook.core.ledger.record import ReservedPodSet
from webhook.server.handler import ReviewHandler

pytestmark = pytest.mark.virtual_time
SETS = {"driver": 1, "executor": 2}
SPARK = "SparkApplication.sparkoperator.k8s.io"
DRIVER = "system:serviceaccount:team-a:spark"


def gate_of(kind: str, gang_of_owner: str | None = "app-1") -> ReviewHandler:
    sets = tuple(ReservedPodSet(name, count, price(cpu=4, memory=16 * 2**30)) for name, count in SETS.items())
    held = replace(reservation("app-1", kind=kind), pod_sets=sets)
    seen = with_ledger(view(), held)
    seen.put_pod(record("driver-1", gang=gang_of_owner))
    return ReviewHandler(seen)


def executor(owner: str = "driver-1", owner_kind: str = "Pod") -> dict[str, Any]:
    made = pod("exec", uid="exec", gang="app-1", pod_set="executor")
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": owner_kind, "name": "driver", "uid": owner, "controller": True}
    ]
    return made


async def test_a_driver_makes_its_executors() -> None:
    answer = await ask(gate_of(SPARK), "/validate/pods", review(executor(), user=DRIVER))
    assert answer.allowed, answer.message


@pytest.mark.parametrize(
    ("kind", "user", "obj", "gang"),
    [
        ("Job.batch", DRIVER, executor(), "app-1"),
        (SPARK, ALICE, executor(), "app-1"),
        (SPARK, "system:serviceaccount:team-b:spark", executor(), "app-1"),
        (SPARK, DRIVER, executor("nobody"), "app-1"),
        (SPARK, DRIVER, executor(owner_kind="Node"), "app-1"),
        (SPARK, DRIVER, executor(), None),
        (SPARK, DRIVER, executor(), "other"),
    ],
)
async def test_nobody_else_takes_a_place_by_claiming_a_pod_for_owner(
    kind: str, user: str, obj: dict[str, Any], gang: str | None
) -> None:
    answer = await ask(gate_of(kind, gang), "/validate/pods", review(obj, user=user))
    assert not answer.allowed
