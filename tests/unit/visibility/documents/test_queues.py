"""What queues are listed, where, under which names, and what their documents say."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.core.worlds import cohort, group, policy, queue
from tests.unit.visibility.world import World, two_queues
from webhook.dialects.compiler import compile_policy
from webhook.visibility.documents.watch_cache import Key

pytestmark = pytest.mark.virtual_time
SEED = Path(__file__).parents[4] / "examples" / "ack-fleet-queue" / "elasticquotatree.yaml"


def seeds_tree() -> World:
    tree = yaml.safe_load(SEED.read_text())
    tree["metadata"]["creationTimestamp"] = "2027-01-01T08:00:00Z"
    world = World(compile_policy([tree]))
    world.objects = [tree]
    return world


async def test_every_node_of_an_elastic_quota_tree_is_a_queue_in_kube_queue() -> None:
    found = await seeds_tree().documents("queues")
    assert {d["metadata"]["namespace"] for d in found} == {"kube-queue"}
    assert [d["metadata"]["annotations"]["kube-queue/quota-fullname"] for d in found] == ["root", "root/child-2"]
    assert [d["metadata"]["name"].rsplit("-", 1)[0] for d in found] == ["root", "root-child-2"]
    assert all(d["metadata"]["labels"] == {"create-by-kubequeue": "true"} for d in found)
    assert all(d["metadata"]["creationTimestamp"] == "2027-01-01T08:00:00Z" for d in found)


async def test_queues_of_kueue_are_listed_beside_the_tree_and_not_in_its_namespace() -> None:
    found = await World().documents("queues")
    places = [(d["metadata"]["namespace"], d["metadata"]["name"]) for d in found]
    assert ("tutti-system", "vision") in places
    assert ("team-vision", "jobs") in places
    assert not any(namespace == "kube-queue" for namespace, _ in places)
    cohort = next(d for d in found if "queueingStrategy" not in d["spec"])
    assert cohort["metadata"]["annotations"]["kube-queue/quota-fullname"] == "research"


async def test_a_queue_counts_who_waits_and_runs_and_what_it_borrows() -> None:
    world = World()
    world.admits(world.waits("big", cpu=3, pods=2))
    world.waits("late", cpu=8, pods=1)
    found = {(d["metadata"]["namespace"], d["metadata"]["name"]): d for d in await world.documents("queues")}
    status = found["tutti-system", "vision"]["status"]
    assert (status["pending"], status["admitted"], status["reserving"]) == (1, 1, 1)
    assert (status["usage"], status["nominal"], status["borrowed"]) == ({"cpu": "6"}, {"cpu": "4"}, {"cpu": "2"})
    assert status["limit"] == {"cpu": "8"}
    handle = found["team-vision", "jobs"]
    assert (handle["spec"]["clusterQueue"], handle["status"]["pending"]) == ("vision", 1)
    assert handle["status"]["usage"] == {"cpu": "6"}
    above = next(d for d in found.values() if "queueingStrategy" not in d["spec"])
    assert (above["status"]["nominal"], above["status"]["usage"]) == ({"cpu": "8"}, {"cpu": "6"})
    assert above["status"]["borrowed"] == {}


async def test_a_queue_without_a_borrowing_limit_is_limited_by_its_cohort() -> None:
    tree = policy(queue("free", 4, cohort="c"), queue("keeping", (2, None, 1), cohort="c"), cohort("c"))
    found = {d["metadata"]["name"]: d for d in await World(tree).documents("queues")}
    assert found["free"]["status"]["limit"] == {"cpu": "5"}
    assert found["keeping"]["status"]["limit"] == {"cpu": "6"}


async def test_what_is_free_now_is_what_others_leave_of_the_limit() -> None:
    world = World(two_queues())
    world.admits(world.waits("big", cpu=3, pods=2))
    found = {d["metadata"]["name"]: d["status"] for d in await world.documents("queues")}
    assert (found["vision"]["limit"], found["vision"]["available"]) == ({"cpu": "8"}, {"cpu": "2"})
    assert (found["speech"]["limit"], found["speech"]["available"]) == ({"cpu": "8"}, {"cpu": "2"})
    assert found["jobs"]["available"] == {"cpu": "2"}


async def test_a_cohort_is_charged_no_more_than_its_queues_lend_and_a_root_borrows_nothing() -> None:
    """Quota that is lent to nobody is no part of what the cohort has, and its use no part of what it uses."""
    lends = group(default={"cpu": (10, None, 4)})
    world = World(
        policy(
            cohort("research"),
            *(queue(name, None, lends, cohort="research", dialect="kueue") for name in ("vision", "speech")),
            local_queues=two_queues().local_queues,
        )
    )
    world.admits(world.waits("big", cpu=4, pods=2))
    world.admits(world.waits("other", cpu=5, pods=1, team="speech"))
    full_name = "kube-queue/quota-fullname"

    async def nodes() -> dict[str, Any]:
        found = [d for d in await world.documents("queues") if "clusterQueue" not in d["spec"]]
        return {d["metadata"]["annotations"][full_name]: d["status"] for d in found}

    above = (await nodes())["research"]
    assert (above["usage"], above["nominal"]) == ({"cpu": "2"}, {"cpu": "8"})
    world.admits(world.waits("adopted", cpu=20, pods=1))
    found = await nodes()
    assert found["vision"]["borrowed"] == {"cpu": "18"}
    assert (found["research"]["usage"], found["research"]["borrowed"]) == ({"cpu": "22"}, {})


async def test_a_gang_being_stopped_still_reserves_and_is_not_admitted() -> None:
    world = World()
    world.stops(world.admits(world.waits("train")), "Preempted")
    status = next(d for d in await world.documents("queues") if d["metadata"]["name"] == "vision")["status"]
    assert (status["reserving"], status["admitted"]) == (1, 0)


async def test_queues_of_a_policy_that_is_gone_go_too() -> None:
    world = World()
    await world.documents("queues")
    world.view.policy = compile_policy([])
    assert await world.documents("queues") == []
    assert world.cache.get(Key("queues", "tutti-system", "vision")) is None
