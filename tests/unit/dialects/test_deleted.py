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
IN_TREE = FlavorResource("default", GPU)


def policy(*queues: str) -> Policy:
    head = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    quota = {"name": GPU, "nominalQuota": "8"}
    group = {"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [quota]}]}
    spec = {"namespaceSelector": {}, "cohortName": "all", "resourceGroups": [group]}
    made = [{**head, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec} for name in queues]
    return compile_policy([{**head, "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {}}, *made])


def allocation(queue: str, gpus: int, flavor: str = "any") -> Allocation:
    pods = ReservedPodSet("main", gpus, PodPrice(requests={GPU: 1000}), {GPU: flavor})
    entry = Reservation(f"in-{queue}", "Job.batch", "team-a", "train", queue, (pods,), 1, 0.0)
    return Allocation(entry, entry.usage())


def test_its_cohort_has_no_more_room_than_before() -> None:
    before = policy("one", "two")
    after = with_deleted(policy("two"), before, {"one"}, {})
    allocations = Allocations(QuotaTree(before))
    allocations.put(allocation("one", 8))
    allocations.rebase(QuotaTree(after))
    assert allocations.usage.available(allocations.tree.queues["two"], KEY) == 0
    forgotten = Allocations(QuotaTree(policy("two")))
    forgotten.put(allocation("one", 8))
    assert forgotten.usage.available(forgotten.tree.queues["two"], KEY) == 8000


def test_it_stays_until_it_holds_nothing_or_is_there_again() -> None:
    before, now = policy("one", "two"), policy("two")
    kept = with_deleted(now, before, {"one", "two"}, {})
    assert kept.queues["one"].cohort == "all"
    assert is_deleted(kept.queues["one"])
    assert not outdated(kept, {"one"})
    assert outdated(kept, {"two"})
    assert with_deleted(now, kept, {"two"}, {}) == now
    assert with_deleted(before, kept, {"one"}, {}) == before


def test_its_cohort_stays_though_nobody_else_names_it() -> None:
    kept = with_deleted(policy(), policy("one"), {"one"}, {})
    assert kept.cohorts.keys() == {"all"}
    assert QuotaTree(kept).queues["one"].parent is not None


def test_who_never_saw_it_takes_its_cohort_from_what_its_gangs_were_admitted_below() -> None:
    kept = with_deleted(policy("two"), Policy(), {"one", "alone", "root/team"}, {"one": "all", "root/team": "root"})
    assert {name: queue.cohort for name, queue in kept.queues.items() if is_deleted(queue)} == {
        "one": "all",
        "alone": None,
        "root/team": "root",
    }
    assert not outdated(kept, {"one", "alone", "root/team"})
    again = with_deleted(policy("two"), kept, {"one"}, {"one": "all"})
    assert again.queues["one"] == kept.queues["one"]


def test_who_saw_it_moved_knows_better_than_the_ledger() -> None:
    kept = with_deleted(policy("two"), policy("one"), {"one"}, {"one": "former"})
    assert kept.queues["one"].cohort == "all"


def tree_with(*nodes: str, root_is_leaf: bool = False) -> Policy:
    """An ElasticQuotaTree whose root has 8 GPUs; ``nodes`` are the leaves below it."""
    amounts = {"min": {GPU: "8"}, "max": {GPU: "8"}}
    children = [{"name": name, "min": {GPU: "0"}, "max": {GPU: "8"}, "namespaces": [name]} for name in nodes]
    root = {"name": "root", **amounts} | ({"namespaces": ["all"]} if root_is_leaf else {"children": children})
    metadata = {"name": "elasticquotatree", "namespace": "kube-system"}
    head = {"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree", "metadata": metadata}
    return compile_policy([{**head, "spec": {"root": root}}])


def test_a_leaf_that_was_taken_out_of_a_tree_is_shown_below_what_was_above_it_by_whoever_comes() -> None:
    kept = with_deleted(tree_with("other"), Policy(), {"root/team"}, {})
    assert is_deleted(kept.queues["root/team"])
    assert kept.queues["root/team"].cohort == "root"
    allocations = Allocations(QuotaTree(kept))
    allocations.put(allocation("root/team", 8, "default"))
    assert allocations.usage.available(allocations.tree.queues["root/other"], IN_TREE) == 0


def test_what_ran_in_a_leaf_counts_in_what_became_of_it_or_of_its_parent() -> None:
    for now, holding in ((tree_with("team"), "root/team/was-a-leaf"), (tree_with(root_is_leaf=True), "root/team")):
        assert with_deleted(now, Policy(), {holding}, {}) == now
        assert not outdated(now, {holding})
        (leaf,) = QuotaTree(now).queues.values()
        allocations = Allocations(QuotaTree(now))
        allocations.put(allocation(holding, 8, "default"))
        assert allocations.usage.available(allocations.tree.queues[leaf.name], IN_TREE) == 0
        assert [each.uid for each in allocations.under(allocations.tree.queues[leaf.name])] == [f"in-{holding}"]
    parent = tree_with("team")
    grown = replace(parent, cohorts={**parent.cohorts, "root/old": replace(parent.cohorts["root"], name="root/old")})
    assert with_deleted(grown, parent, {"root/old"}, {}) == grown, "it was given children and is a cohort now"
