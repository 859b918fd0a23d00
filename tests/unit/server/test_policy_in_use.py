"""Policy that holds gangs is not deleted, with who holds it and what to do."""

from dataclasses import replace
from typing import Any

import pytest
import yaml

from tests.unit.server.reviews import ALICE, ask, job, reservation, review, view, with_ledger
from webhook.cluster.view import View
from webhook.dialects.compiler import compile_policy
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.reading.job import read
from webhook.server.handler import ReviewHandler

KUEUE = "kueue.x-k8s.io/v1beta2"
FLAVOR = {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {}}
GROUP = {"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "any", "resources": []}]}


def named(kind: str, name: str, spec: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": spec}


QUEUE = named("ClusterQueue", "research-cq", {"cohortName": "all", "namespaceSelector": {}})
IDLE = named("ClusterQueue", "idle-cq", {"cohortName": "rest", "namespaceSelector": {}})
COHORT = named("Cohort", "all", {"parentName": "everything"})
LOCAL = named("LocalQueue", "research", {"clusterQueue": "research-cq"}, "team-a")
OTHER = named("LocalQueue", "other", {"clusterQueue": "research-cq"}, "team-a")
VOLCANO = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "v"}, "spec": {}}
TREE = {
    "apiVersion": "scheduling.sigs.k8s.io/v1beta1",
    "kind": "ElasticQuotaTree",
    "metadata": {"name": "elasticquotatree", "namespace": "kube-system"},
    "spec": {"root": {"name": "root", "children": [{"name": "leaf", "namespaces": ["team-a"]}]}},
}
STORED = (QUEUE, IDLE, COHORT, named("Cohort", "rest", {}), LOCAL, OTHER, VOLCANO, TREE, FLAVOR)


def world(queue: str | None) -> View:
    seen = view()
    seen.policy = compile_policy(STORED)
    entry = reservation()
    flavored = tuple(replace(pod_set, flavors={"nvidia.com/gpu": "any"}) for pod_set in entry.pod_sets)
    document = job() | {"metadata": {**job()["metadata"], "uid": entry.uid, "resourceVersion": "1"}}
    record = read(KINDS["Job.batch"], document, ReadContext())
    seen.put_job(record)
    return with_ledger(seen, replace(entry, queue=queue, pod_sets=flavored))


async def deleted(obj: dict[str, Any], seen: View, user: str = ALICE) -> Any:
    body = review(
        None,
        old=obj,
        operation="DELETE",
        resource=f"{obj['kind'].lower()}s",
        namespace=obj["metadata"].get("namespace", ""),
        user=user,
    )
    return await ask(ReviewHandler(seen, policy_objects=lambda plural: STORED), "/validate/policy", body)


@pytest.mark.parametrize(
    ("obj", "queue"),
    [
        (QUEUE, "research-cq"),
        (COHORT, "research-cq"),
        (named("Cohort", "everything", {}), "research-cq"),
        (LOCAL, "research-cq"),
        (FLAVOR, "research-cq"),
        (VOLCANO, "v"),
        (TREE, "root/leaf"),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else None,
)
async def test_what_holds_a_gang_stays(obj: dict[str, Any], queue: str) -> None:
    answer = await deleted(obj, world(queue))
    assert answer.code == 403
    assert "team-a/train" in answer.message
    assert "wait until" in answer.message
    assert (await deleted(obj, view())).allowed


@pytest.mark.parametrize(
    "obj", [IDLE, named("Cohort", "rest", {}), OTHER, TREE, VOLCANO, named("Topology", "unused", {})]
)
async def test_what_holds_nothing_goes(obj: dict[str, Any]) -> None:
    assert (await deleted(obj, world("research-cq"))).allowed


async def test_a_topology_stays_while_a_gang_runs_on_a_flavor_of_it() -> None:
    seen = world("research-cq")
    flavors = {"any": replace(seen.policy.flavors["any"], topology="racks")}
    seen.policy = replace(seen.policy, flavors=flavors)
    answer = await deleted(named("Topology", "racks", {}), seen)
    assert answer.code == 403
    assert "Topology racks holds a gang (team-a/train)" in answer.message
    assert (await deleted(named("Topology", "other", {}), seen)).allowed


async def test_a_local_queue_goes_with_its_namespace() -> None:
    controller = "system:serviceaccount:kube-system:namespace-controller"
    assert (await deleted(LOCAL, world("research-cq"), controller)).allowed


async def test_what_the_config_map_defines_does_not_vanish_from_it_either() -> None:
    def config_map(*objects: dict[str, Any]) -> dict[str, Any]:
        metadata = {"name": "tutti-policy", "namespace": "tutti-system"}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": yaml.dump_all(objects)}}

    whole = config_map(QUEUE, IDLE, FLAVOR)
    handler = ReviewHandler(world("research-cq"), policy_objects=lambda plural: (QUEUE, IDLE, FLAVOR))
    for after, allowed in ((config_map(QUEUE, FLAVOR), True), (config_map(IDLE, FLAVOR), False), (None, False)):
        operation = "DELETE" if after is None else "UPDATE"
        body = review(after, old=whole, operation=operation, namespace="tutti-system", resource="configmaps")
        assert (await ask(handler, "/validate/policy", body)).allowed is allowed


def tree(*leaves: str) -> dict[str, Any]:
    children = [{"name": leaf, "namespaces": [f"team-{leaf}"]} for leaf in leaves]
    return TREE | {"spec": {"root": {"name": "root", "children": children}}}


@pytest.mark.parametrize(
    ("queue", "after", "allowed"),
    [
        ("root/leaf", tree("leaf"), True),
        ("root/other", tree("leaf"), False),
        ("root/leaf", tree("renamed", "other"), False),
        ("research-cq", tree("leaf"), True),
        ("root/other", tree("leaf", "other", "third"), True),
    ],
)
async def test_a_leaf_that_holds_a_gang_is_not_taken_out_of_the_tree(
    queue: str, after: dict[str, Any], allowed: bool
) -> None:
    before = tree("leaf", "other")
    handler = ReviewHandler(world(queue), policy_objects=lambda plural: (*STORED[:-2], before, FLAVOR))
    body = review(after, old=before, operation="UPDATE", resource="elasticquotatrees", namespace="kube-system")
    answer = await ask(handler, "/validate/policy", body)
    assert answer.allowed is allowed, answer.message
    if not allowed:
        assert f"leaf {queue} of" in answer.message
        assert "holds a gang (team-a/train): wait until it has ended, or delete it" in answer.message
