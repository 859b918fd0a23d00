"""Gangs whose owner rules preemption out: ElasticQuotaTree holds them to the minimums and leaves them alone."""

from typing import Any

import pytest

from tests.unit.core.worlds import World, gang, queue
from webhook.core.model.gang import Gang
from webhook.core.model.policy import Policy
from webhook.core.quota.fences import Fences
from webhook.core.reasons.reasons import Code
from webhook.core.scheduler.engine import Engine
from webhook.dialects.compiler import compile_policy


def tree(labels: dict[str, str] | None = None, **nodes: dict[str, Any]) -> Policy:
    """A root of 10 cpu in both limits with ``nodes`` below, each serving the namespace of its name."""
    children = [{"name": name, "namespaces": [name], **node} for name, node in nodes.items()]
    root = {"name": "root", "min": {"cpu": 10}, "max": {"cpu": 10}, "children": children}
    metadata = {"name": "elasticquotatree", "namespace": "kube-system", "labels": labels or {}}
    obj = {
        "apiVersion": "scheduling.sigs.k8s.io/v1beta1",
        "kind": "ElasticQuotaTree",
        "metadata": metadata,
        "spec": {"root": root},
    }
    policy = compile_policy([obj])
    assert not policy.problems
    return policy


class Cluster(World):
    def __init__(self, policy: Policy) -> None:
        self.engine, self.fences, self.now, self.policy = Engine(), Fences(), 0.0, policy
        self.engine.set_policy(policy, {}, 0.0)


def fixed(name: str, cpu: int, **settings: Any) -> Gang:
    return gang(name, None, cpu, namespace=name[0], preemptible=False, **settings)


def loose(name: str, cpu: int, **settings: Any) -> Gang:
    return gang(name, None, cpu, namespace=name[0], **settings)


def test_it_may_use_the_minimum_and_nothing_borrowed() -> None:
    cluster = Cluster(tree(a={"min": {"cpu": 4}, "max": {"cpu": 10}}, b={"min": {"cpu": 6}}))
    cluster.submit(fixed("a1", 3), fixed("a2", 2), loose("a3", 4))
    assert cluster.cycle() == ["a1", "a3"]
    reason = cluster.engine.reason("a2")
    assert reason is not None
    assert (reason.code, reason.resource) == (Code.WAITING_FOR_QUOTA, "guaranteed cpu")
    assert "asks for 2 guaranteed cpu; queue root/a has 4, 3 used" in str(reason)
    assert cluster.end("a1", "a3").cycle() == ["a2"]


def test_one_that_asks_more_than_the_minimum_never_starts() -> None:
    cluster = Cluster(tree(a={"min": {"cpu": 4}, "max": {"cpu": 10}}))
    assert cluster.submit(fixed("a1", 5)).cycle() == []
    assert cluster.engine.reason("a1").code is Code.EXCEEDS_MAX_QUOTA


def test_a_resource_that_nobody_limits_is_not_checked() -> None:
    cluster = Cluster(tree(a={"min": {"cpu": 4}}))
    assert cluster.submit(fixed("a1", 4, also={"nvidia.com/gpu": 8})).cycle() == ["a1"]


def test_a_leaf_guarantees_nothing_of_what_its_minimum_leaves_out() -> None:
    cluster = Cluster(tree(a={}, b={"min": {"cpu": 4}, "max": {"cpu": 8, "memory": 2}}))
    cluster.submit(fixed("a1", 1), loose("a2", 1), fixed("b1", 4, also={"memory": 1}), fixed("b2", 4))
    assert cluster.cycle() == ["b2", "a2"]
    assert "asks for 1 guaranteed cpu; queue root/a has 0" in str(cluster.engine.reason("a1"))
    assert "guaranteed memory" in str(cluster.engine.reason("b1"))


def test_the_number_of_jobs_is_guaranteed_where_it_is_listed_only() -> None:
    cluster = Cluster(tree(a={"min": {"cpu": 4}, "max": {"cpu": 4, "kube-queue/max-jobs": 2}}))
    assert cluster.submit(fixed("a1", 1), fixed("a2", 1), fixed("a3", 1)).cycle() == ["a1", "a2"]


def test_it_is_not_stopped_when_an_owner_takes_quota_back() -> None:
    cluster = Cluster(tree(a={"min": {"cpu": 4}}, b={"min": {"cpu": 6}}))
    cluster.submit(fixed("a1", 4), loose("a2", 3), loose("a3", 3)).cycle()
    plan = cluster.submit(loose("b1", 6)).plan()
    assert {p.uid for p in plan.preempted} == {"a2", "a3"}


def test_it_takes_its_minimum_back_from_those_that_borrow() -> None:
    cluster = Cluster(tree(a={"min": {"cpu": 4}}, b={"min": {"cpu": 6}}))
    cluster.submit(*(loose(f"b{i}", 2) for i in range(5))).cycle()
    plan = cluster.submit(fixed("a1", 4)).plan()
    assert len(plan.preempted) == 2
    assert cluster.end(*(p.uid for p in plan.preempted)).cycle() == ["a1"]


def test_what_it_holds_of_the_minimum_survives_the_ledger() -> None:
    cluster = Cluster(tree(a={"min": {"cpu": 4}}))
    (reservation,) = cluster.submit(fixed("a1", 3, pods=1)).plan().admitted
    assert not reservation.preemptible
    other = Cluster(cluster.policy)
    other.engine.restore(reservation)
    assert other.submit(fixed("a2", 2)).cycle() == []
    assert other.submit(loose("a3", 2)).cycle() == ["a3"]


@pytest.mark.parametrize("most", [1, 2])
def test_the_tree_caps_the_number_of_preemptible_jobs(most: int) -> None:
    labels = {"kube-queue/max-preempible-jobs": str(most)}
    cluster = Cluster(tree(labels, a={"min": {"cpu": 4}}, b={"min": {"cpu": 6}}))
    cluster.submit(*(loose(name, 1) for name in ("a1", "b1", "a2")), fixed("b2", 1))
    assert cluster.cycle() == [*["a1", "a2"][:most], "b2"]


def test_a_cap_on_jobs_borrows_nothing_so_that_owners_still_go_first() -> None:
    policy = tree({"kube-queue/max-preempible-jobs": "2"}, a={"min": {"cpu": 2}}, b={"min": {"cpu": 8}})
    cluster = Cluster(policy)
    cluster.submit(loose("a1", 4, created=0), loose("b1", 8, created=1))
    assert cluster.cycle() == ["b1"]


def test_other_dialects_do_not_ask() -> None:
    world = World(queue("a", 4))
    (reservation,) = world.submit(gang("x", "a", 4, preemptible=False)).plan().admitted
    assert reservation.preemptible
