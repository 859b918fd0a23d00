"""What runs in a queue that was deleted stays charged where it was."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from webhook.core.ledger.record import Reservation, ReservedPodSet
from webhook.core.model.gang import PodPrice
from webhook.core.model.policy import FlavorQuotas, Policy, Quota, ResourceGroup
from webhook.core.notation.amounts import FlavorResource
from webhook.core.quota.allocations import Allocation, Allocations
from webhook.core.quota.tree import QuotaTree
from webhook.dialects.compiler import compile_policy
from webhook.dialects.deleted import Known, is_deleted, outdated, with_deleted

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


def admitted(queue: str, *cohorts: str, since: float = 0.0) -> Reservation:
    return Reservation(f"in-{queue}", "Job.batch", "team-a", "train", queue, (), 1, since, cohorts=cohorts)


def known(of: Policy) -> Known:
    return Known(of.queues, of.cohorts)


def left_of(now: Policy, before: Policy, holding: set[str], entries: Iterable[Reservation] = ()) -> Policy:
    return with_deleted(now, known(before), holding, entries)[0]


def test_its_cohort_has_no_more_room_than_before() -> None:
    before = policy("one", "two")
    after = left_of(policy("two"), before, {"one"})
    allocations = Allocations(QuotaTree(before))
    allocations.put(allocation("one", 8))
    allocations.rebase(QuotaTree(after))
    assert allocations.usage.available(allocations.tree.queues["two"], KEY) == 0
    forgotten = Allocations(QuotaTree(policy("two")))
    forgotten.put(allocation("one", 8))
    assert forgotten.usage.available(forgotten.tree.queues["two"], KEY) == 8000


def test_it_stays_until_it_holds_nothing_or_is_there_again() -> None:
    before, now = policy("one", "two"), policy("two")
    kept = left_of(now, before, {"one", "two"})
    assert kept.queues["one"].cohort == "all"
    assert is_deleted(kept.queues["one"])
    assert not outdated(kept, known(kept), {"one"})
    assert outdated(kept, known(kept), {"two"})
    assert left_of(now, before, {"two"}) == now
    assert left_of(before, before, {"one"}) == before


def test_its_cohort_stays_though_nobody_else_names_it() -> None:
    kept = left_of(policy(), policy("one"), {"one"})
    assert kept.cohorts.keys() == {"all"}
    assert QuotaTree(kept).queues["one"].parent is not None


def test_who_never_saw_it_takes_its_cohort_from_what_its_gangs_were_admitted_below() -> None:
    entries = [admitted("one", "all"), admitted("alone"), admitted("root/team", "root")]
    kept = left_of(policy("two"), Policy(), {"one", "alone", "root/team"}, entries)
    assert {name: queue.cohort for name, queue in kept.queues.items() if is_deleted(queue)} == {
        "one": "all",
        "alone": None,
        "root/team": "root",
    }
    assert not outdated(kept, known(kept), {"one", "alone", "root/team"})


@given(st.permutations([("former", 1.0), ("", 4.0), ("all", 3.0), ("between", 2.0)]))
def test_who_never_saw_it_takes_the_youngest_admission_whatever_is_read_first(
    admissions: list[tuple[str, float]],
) -> None:
    entries = [admitted("one", *filter(None, [cohort]), since=since) for cohort, since in admissions]
    assert left_of(policy("two"), Policy(), {"one"}, entries).queues["one"].cohort == "all"


def test_who_saw_it_moved_knows_better_than_the_ledger_at_each_later_policy_too() -> None:
    entries, seen = [admitted("one", "former")], Known()
    for now in (policy("one"), policy("two"), policy("two", "three"), policy()):
        after, seen = with_deleted(now, seen, {"one"}, entries)
        assert after.queues["one"].cohort == "all"
    assert with_deleted(policy(), seen, set(), entries) == (policy(), Known())


COHORTS = ("top", "left", "right", "low")
PARENTS = st.tuples(
    st.none(),
    st.sampled_from(["top", None]),
    st.sampled_from(["top", "left", None]),
    st.sampled_from(["left", "right"]),
)


def nested(parents: Mapping[str, str | None], below: Mapping[str, str], gone: Set[str] = frozenset()) -> Policy:
    """Cohorts of which those without a parent have 8 GPUs, and queues (to their cohorts) that have none."""
    head = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    made: list[dict[str, Any]] = [{**head, "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {}}]
    for cohort, parent in parents.items():
        above = {} if parent is None else {"parentName": parent}
        spec = {"resourceGroups": gpus(8 if parent is None else 0), **above}
        made.append({**head, "kind": "Cohort", "metadata": {"name": cohort}, "spec": spec})
    for queue, cohort in below.items():
        spec = {"namespaceSelector": {}, "cohortName": cohort, "resourceGroups": gpus(0)}
        made.append({**head, "kind": "ClusterQueue", "metadata": {"name": queue}, "spec": spec})
    return compile_policy([each for each in made if each["metadata"]["name"] not in gone])


def gpus(nominal: int) -> list[dict[str, Any]]:
    quota = {"name": GPU, "nominalQuota": f"{nominal}"}
    return [{"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [quota]}]}]


def room(policy: Policy, held: Mapping[str, int]) -> dict[str, int]:
    """Return how much each queue can take."""
    allocations = Allocations(QuotaTree(policy))
    for queue, number in held.items():
        allocations.put(allocation(queue, number))
    queues = allocations.tree.queues
    return {queue: max(0, allocations.usage.available(queues[queue], KEY)) for queue in queues}


@given(
    PARENTS,
    st.fixed_dictionaries(dict.fromkeys("abc", st.sampled_from(COHORTS))),
    st.dictionaries(st.sampled_from("abc"), st.integers(1, 8), min_size=1),
    st.sets(st.sampled_from([*COHORTS, *"abc"])),
)
def test_whatever_is_deleted_makes_no_room_for_anybody_who_saw_it_or_who_did_not(
    above: Sequence[str | None], below: dict[str, str], held: dict[str, int], gone: set[str]
) -> None:
    parents = dict(zip(COHORTS, above, strict=True))
    before, now = nested(parents, below), nested(parents, below, gone)
    entries = [admitted(queue, *before.cohorts_above(below[queue])) for queue in held]
    seen, read = left_of(now, before, set(held)), left_of(now, Policy(), set(held), entries)
    for left in (seen, read):
        has = room(left, held)
        assert all(has[queue] <= has_had for queue, has_had in room(before, held).items() if queue in has)
        after, now_known = with_deleted(now, known(before), set(held), entries)
        assert not outdated(after, now_known, set(held))
        assert with_deleted(now, now_known, set(), ())[0] == now, "nothing is left of it once nothing is held"
    assert seen == read


def test_below_a_deleted_cohort_runs_what_ran_and_no_more() -> None:
    before = nested({"top": None, "mid": "top"}, {"a": "mid", "b": "top"})
    now = nested({"top": None, "mid": "top"}, {"a": "mid", "b": "top"}, {"mid"})
    assert room(before, {"a": 6}) == {"a": 2000, "b": 2000}
    assert room(now, {"a": 6}) == {"a": 0, "b": 8000}, "as it would be"
    assert room(left_of(now, before, {"a"}), {"a": 6}) == {"a": 0, "b": 2000}


def test_what_is_owned_below_a_deleted_cohort_is_lent_no_more() -> None:
    """By policy it belongs to a tree of its own now: nobody above may spend it."""
    parents, below = {"top": None, "mid": "top"}, {"a": "mid", "b": "top"}
    before, now = (with_own(nested(parents, below, gone), "a", 4) for gone in ({"nothing"}, {"mid"}))
    assert room(before, {"a": 2}) == {"a": 10000, "b": 10000}
    assert room(left_of(now, before, {"a"}), {"a": 2}) == {"a": 2000, "b": 8000}
    assert room(left_of(now, before, {"a"}), {"a": 6}) == {"a": 0, "b": 6000}


def with_own(policy: Policy, queue: str, number: int) -> Policy:
    """Give a queue ``number`` GPUs of its own."""
    groups = (ResourceGroup((GPU,), (FlavorQuotas("any", {GPU: Quota(nominal=number * 1000)}),)),)
    return replace(policy, queues={**policy.queues, queue: replace(policy.queues[queue], resource_groups=groups)})


def tree_with(*nodes: str, root_is_leaf: bool = False) -> Policy:
    """An ElasticQuotaTree whose root has 8 GPUs; ``nodes`` are the leaves below it."""
    amounts = {"min": {GPU: "8"}, "max": {GPU: "8"}}
    children = [{"name": name, "min": {GPU: "0"}, "max": {GPU: "8"}, "namespaces": [name]} for name in nodes]
    root = {"name": "root", **amounts} | ({"namespaces": ["all"]} if root_is_leaf else {"children": children})
    metadata = {"name": "elasticquotatree", "namespace": "kube-system"}
    head = {"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree", "metadata": metadata}
    return compile_policy([{**head, "spec": {"root": root}}])


def test_a_leaf_that_was_taken_out_of_a_tree_is_shown_below_what_was_above_it_by_whoever_comes() -> None:
    kept = left_of(tree_with("other"), Policy(), {"root/team"})
    assert is_deleted(kept.queues["root/team"])
    assert kept.queues["root/team"].cohort == "root"
    allocations = Allocations(QuotaTree(kept))
    allocations.put(allocation("root/team", 8, "default"))
    assert allocations.usage.available(allocations.tree.queues["root/other"], IN_TREE) == 0


def test_what_ran_in_a_leaf_counts_in_what_became_of_it_or_of_its_parent() -> None:
    for now, holding in ((tree_with("team"), "root/team/was-a-leaf"), (tree_with(root_is_leaf=True), "root/team")):
        assert left_of(now, Policy(), {holding}) == now
        assert not outdated(now, known(now), {holding})
        (leaf,) = QuotaTree(now).queues.values()
        allocations = Allocations(QuotaTree(now))
        allocations.put(allocation(holding, 8, "default"))
        assert allocations.usage.available(allocations.tree.queues[leaf.name], IN_TREE) == 0
        assert [each.uid for each in allocations.under(allocations.tree.queues[leaf.name])] == [f"in-{holding}"]
    parent = tree_with("team")
    grown = replace(parent, cohorts={**parent.cohorts, "root/old": replace(parent.cohorts["root"], name="root/old")})
    assert left_of(grown, parent, {"root/old"}) == grown, "it was given children and is a cohort now"
