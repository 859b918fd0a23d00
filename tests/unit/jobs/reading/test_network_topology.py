"""Volcano's networkTopology asks what Kueue's annotations do, by the labels that the configuration has for tiers."""

from typing import Any

import pytest

from webhook.core.model.gang import Nearness, PodPrice, PodSet
from webhook.core.model.policy import HyperNode
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.pricing.context import NetworkTier, ReadContext
from webhook.jobs.reading.gang import read_gang
from webhook.jobs.reading.network_topology import of_group, tiers, wanted

KIND = KINDS["Job.batch.volcano.sh"]
TIERS = ReadContext(
    network_tiers=(NetworkTier(tier=1, nodeLabel="rack"), NetworkTier(tier=2, nodeLabel="block", name="spine"))
)
HARD_1, HARD_2 = {"mode": "hard", "highestTierAllowed": 1}, {"mode": "hard", "highestTierAllowed": 2}
RACK = Nearness("rack", required=True, path=("rack",))
BLOCK = Nearness("block", required=True, path=("block", "rack"))
NEAR = Nearness("rack", required=False, path=("block", "rack"))
HYPER_NODES = (HyperNode("s0", 1), HyperNode("s1", 1), HyperNode("s4", 3, "spine"))
OF_HYPER_NODES = ReadContext(network_tiers=tiers((), HYPER_NODES))


def task(name: str, replicas: int, annotations: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    template = {"metadata": {"annotations": annotations or {}}, "spec": {"containers": containers}}
    return {"name": name, "replicas": replicas, "template": template, **more}


def job(*tasks: dict[str, Any], **spec: Any) -> dict[str, Any]:
    metadata = {"name": "ring", "namespace": "team", "uid": "u", "labels": {"tutti.dev/queue-name": "q"}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"tasks": tasks, **spec},
    }


def near(obj: dict[str, Any], context: ReadContext = TIERS) -> list[tuple[Nearness | None, str]]:
    read = read_gang(KIND, {**obj, "spec": {**obj["spec"], "tasks": list(obj["spec"]["tasks"])}}, context)
    assert read.gang is not None, read.problem
    return [(each.near, each.together) for each in read.gang.pod_sets]


def left(obj: dict[str, Any], context: ReadContext = TIERS) -> dict[str, str]:
    obj = {**obj, "spec": {**obj["spec"], "tasks": list(obj["spec"]["tasks"])}}
    return wanted(KIND, obj, read_gang(KIND, obj, context).sites, context).left


@pytest.mark.parametrize(
    ("stated", "found"),
    [
        (HARD_1, RACK),
        (HARD_2, BLOCK),
        ({"highestTierAllowed": 2}, BLOCK),
        ({"mode": "hard", "highestTierName": "spine"}, BLOCK),
        ({"mode": "hard", "highestTierAllowed": 9}, BLOCK),
        ({"mode": "soft"}, NEAR),
        ({"mode": "soft", "highestTierAllowed": 2}, NEAR),
    ],
    ids=[
        "hard",
        "a wider tier",
        "hard is the default",
        "by its name",
        "above all tiers",
        "soft",
        "soft has no highest",
    ],
)
def test_a_job_of_one_task_is_to_be_in_one_domain_of_the_tier(stated: dict[str, Any], found: Nearness) -> None:
    obj = job(task("w", 4), networkTopology=stated)
    assert near(obj) == [(found, "")]
    assert left(obj) == {}


def test_all_tasks_of_a_job_are_to_be_in_one_domain_together() -> None:
    obj = job(task("lead", 1), task("w", 4), networkTopology=HARD_1)
    assert near(obj) == [(RACK, "network-topology"), (RACK, "network-topology")]


def test_partitions_of_a_task_are_slices() -> None:
    parts = {"totalPartitions": 2, "partitionSize": 4, "networkTopology": HARD_1}
    assert near(job(task("w", 8, partitionPolicy=parts))) == [
        (Nearness("", False, "rack", 4, path=("block", "rack")), "")
    ]
    both = job(task("w", 8, partitionPolicy=parts), networkTopology=HARD_2)
    assert near(both) == [(Nearness("block", True, "rack", 4, path=("block", "rack")), "")]
    assert left(both) == {}


def test_what_the_owner_wrote_on_a_task_counts_instead() -> None:
    own = {"kueue.x-k8s.io/podset-preferred-topology": "row"}
    assert near(job(task("w", 4, own), networkTopology=HARD_1)) == [(Nearness("row", required=False), "")]


PARTS = "spec.tasks[].partitionPolicy"


@pytest.mark.parametrize(
    ("obj", "said"),
    [
        (job(task("w", 4), networkTopology={"mode": "hard", "highestTierAllowed": 0}), "spec.networkTopology"),
        (job(task("w", 4), networkTopology={"mode": "hard", "highestTierName": "hall"}), "spec.networkTopology"),
        (job(task("w", 4), networkTopology={"mode": "hard"}), "spec.networkTopology"),
        (job(task("w", 4), networkTopology={"mode": "hard", "highestTierAllowed": True}), "spec.networkTopology"),
        (job(task("w", 4), networkTopology="hard"), "spec.networkTopology"),
        (job(task("w", 4, networkTopology=HARD_1)), "spec.tasks[].networkTopology"),
        (job(task("w", 4, partitionPolicy={"partitionSize": 2})), PARTS),
        (job(task("w", 4, partitionPolicy={"partitionSize": 2, "networkTopology": {"mode": "soft"}})), PARTS),
        (job(task("w", 4, partitionPolicy={"networkTopology": HARD_1})), PARTS),
        (
            job(
                task("lead", 1),
                task("w", 4, partitionPolicy={"partitionSize": 2, "networkTopology": HARD_1}),
                networkTopology=HARD_2,
            ),
            PARTS,
        ),
    ],
    ids=[
        "a tier below all that there are",
        "a name that no tier has",
        "no tier",
        "no number",
        "no mapping",
        "a field of no task",
        "partitions that may be anywhere",
        "partitions that had best be near",
        "partitions of no size",
        "partitions of one of several tasks in one domain",
    ],
)
def test_what_cannot_be_followed_is_named_and_the_rest_is_not(obj: dict[str, Any], said: str) -> None:
    assert list(left(obj)) == [said]
    near(obj)


def test_without_any_tiers_nothing_is_followed_and_all_of_it_is_named() -> None:
    parts = {"totalPartitions": 2, "partitionSize": 4, "networkTopology": HARD_1}
    obj = job(task("w", 8, partitionPolicy=parts), networkTopology={"mode": "soft"})
    assert near(obj, ReadContext()) == [(None, "")]
    assert list(left(obj, ReadContext())) == ["spec.networkTopology", PARTS]


def test_plain_pods_of_a_pod_group_are_to_be_in_one_domain_together() -> None:
    sets = (PodSet("a", 1, PodPrice()), PodSet("b", 2, PodPrice()))
    assert [(each.near, each.together) for each in of_group(sets, HARD_1, TIERS)] == [
        (RACK, "network-topology"),
        (RACK, "network-topology"),
    ]
    assert of_group(sets[:1], {"mode": "soft"}, TIERS)[0].near == NEAR
    for stated in (None, {"mode": "hard", "highestTierAllowed": 0}, "hard"):
        assert of_group(sets, stated, TIERS) == sets


def test_hyper_nodes_make_tiers_where_the_configuration_names_none() -> None:
    one, three = "topology.volcano.sh/tier-1", "topology.volcano.sh/tier-3"
    assert OF_HYPER_NODES.network_tiers == (
        NetworkTier(tier=1, nodeLabel=one),
        NetworkTier(tier=3, nodeLabel=three, name="spine"),
    )
    assert tiers(TIERS.network_tiers, HYPER_NODES) == TIERS.network_tiers
    both = Nearness(three, required=True, path=(three, one))
    for stated, found in (
        (HARD_1, Nearness(one, required=True, path=(one,))),
        (HARD_2, Nearness(one, required=True, path=(one,))),
        ({"mode": "hard", "highestTierAllowed": 3}, both),
        ({"mode": "hard", "highestTierName": "spine"}, both),
        ({"mode": "soft"}, Nearness(one, required=False, path=(three, one))),
    ):
        assert near(job(task("w", 4), networkTopology=stated), OF_HYPER_NODES) == [(found, "")]


def test_who_names_a_tier_of_hyper_nodes_as_a_label_is_told_that_no_node_bears_it() -> None:
    asked = {"kueue.x-k8s.io/podset-required-topology": "topology.volcano.sh/tier-1"}
    read = read_gang(KIND, {**job(), "spec": {"tasks": [task("w", 4, asked)]}}, OF_HYPER_NODES)
    assert "is a tier of HyperNodes and no node bears it" in str(read.problem)
