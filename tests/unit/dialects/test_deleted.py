"""What runs in a queue that was deleted stays charged where it was."""

from dataclasses import replace

from webhook.core.ledger.record import Reservation, ReservedPodSet
from webhook.core.model.gang import PodPrice
from webhook.core.model.policy import FlavorResource, Policy
from webhook.core.quota.allocations import Allocation, Allocations
from webhook.core.quota.tree import QuotaTree
from webhook.dialects.deleted import is_deleted, outdated, with_deleted
from webhook.dialects.merge import compile_policy

GPU = "nvidia.com/gpu"
KEY = FlavorResource("any", GPU)


def policy(*queues: str) -> Policy:
    head = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    quota = {"name": GPU, "nominalQuota": "8"}
    group = {"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [quota]}]}
    spec = {"namespaceSelector": {}, "cohortName": "all", "resourceGroups": [group]}
    made = [{**head, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec} for name in queues]
    return compile_policy([{**head, "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {}}, *made])


def allocation(queue: str, gpus: int) -> Allocation:
    pods = ReservedPodSet("main", gpus, PodPrice(requests={GPU: 1000}), {GPU: "any"})
    entry = Reservation(f"in-{queue}", "Job.batch", "team-a", "train", queue, (pods,), 1, 0.0)
    return Allocation(entry, entry.usage())


def test_its_cohort_has_no_more_room_than_before() -> None:
    before = policy("one", "two")
    after = with_deleted(policy("two"), before, {"one"})
    allocations = Allocations(QuotaTree(before))
    allocations.put(allocation("one", 8))
    allocations.rebase(QuotaTree(after))
    assert allocations.usage.available(allocations.tree.queues["two"], KEY) == 0
    forgotten = Allocations(QuotaTree(policy("two")))
    forgotten.put(allocation("one", 8))
    assert forgotten.usage.available(forgotten.tree.queues["two"], KEY) == 8000


def test_it_stays_until_it_holds_nothing_or_is_there_again() -> None:
    before, now = policy("one", "two"), policy("two")
    kept = with_deleted(now, before, {"one", "two"})
    assert kept.queues["one"].cohort == "all"
    assert is_deleted(kept.queues["one"])
    assert not outdated(kept, {"one"})
    assert outdated(kept, {"two"})
    assert with_deleted(now, kept, {"two"}) == now
    assert with_deleted(before, kept, {"one"}) == before


def test_its_cohort_stays_though_nobody_else_names_it() -> None:
    kept = with_deleted(policy(), policy("one"), {"one"})
    assert kept.cohorts.keys() == {"all"}
    assert QuotaTree(kept).queues["one"].parent is not None


def test_who_never_saw_it_shows_it_and_charges_no_cohort() -> None:
    kept = with_deleted(policy("two"), Policy(), {"one", "root/team"})
    assert kept.queues["one"].cohort is None
    assert "root/team" not in kept.queues


def test_a_leaf_of_a_tree_that_still_has_an_heir_is_left_to_it() -> None:
    tree = replace(policy("two"), cohorts={**policy("two").cohorts, "root": policy("two").cohorts["all"]})
    assert with_deleted(tree, tree, {"root/team"}) == tree
