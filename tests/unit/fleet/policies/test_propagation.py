"""Which propagation policy applies to a job, and what of it is honoured."""

import gc
import tracemalloc
import weakref
from itertools import product
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fleet.policies.counting import matches
from webhook.fleet.policies.propagation import (
    ANYWHERE,
    POLICIES_MAX,
    SELECTORS_MAX,
    Applying,
    applying,
    by_namespace,
    read,
)

EXAMPLE = Path(__file__).parents[4] / "examples" / "ack-fleet-gang" / "propagationpolicy-queued.yaml"
JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "team-a", "labels": {"tier": "gold"}},
}


def policy(
    name: str, namespace: str = "team-a", selector: dict[str, Any] | None = None, priority: int = 0
) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    chosen = {"apiVersion": "batch/v1", "kind": "Job", **(selector or {})}
    return {"metadata": metadata, "spec": {"resourceSelectors": [chosen], "priority": priority}}


GOLD = {"labelSelector": {"matchLabels": {"tier": "gold"}}}
IRON = {"labelSelector": {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["iron"]}]}}


@pytest.mark.parametrize(
    ("policies", "winner"),
    [
        ([policy("b"), policy("a")], "a"),
        ([policy("a"), policy("b", priority=1)], "b"),
        ([policy("a"), policy("z", selector=GOLD)], "z"),
        ([policy("z", selector={"name": "train"}), policy("a", selector=GOLD)], "z"),
        ([policy("a", "", priority=9), policy("b")], "b"),
        ([policy("a", "")], "a"),
        ([policy("a", "", {"namespace": "team-b"})], ""),
        ([policy("a", "team-b")], ""),
        ([policy("a", "team-b", {"namespace": "team-a"})], ""),
        ([policy("a", selector=IRON)], ""),
        ([policy("a", selector={"kind": "PyTorchJob"})], ""),
        ([policy("a", selector={"name": "other"})], ""),
    ],
)
def test_one_policy_applies(policies: list[dict[str, Any]], winner: str) -> None:
    assert applying(by_namespace(map(read, policies)), JOB).name == winner
    assert applying(by_namespace(map(read, reversed(policies))), JOB).name == winner


def test_the_policy_of_a_job_is_looked_for_once_until_policies_or_its_labels_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_ones = [read(policy(f"p{number}", selector=GOLD)) for number in range(POLICIES_MAX)]
    applies, compared = Applying(), matches(monkeypatch)

    def looks(job: dict[str, Any], *more: dict[str, Any]) -> str:
        applies.look(by_namespace([*read_ones, *map(read, more)]), job)
        return applies.policy.name

    assert [looks(JOB) for _ in range(100)] == ["p0"] * 100
    assert len(compared) == POLICIES_MAX, "policies of which none has changed may come in another list"
    silver = {**JOB, "metadata": {**JOB["metadata"], "labels": {"tier": "silver"}}}
    assert [looks(silver), looks(JOB)] == ["", "p0"]
    assert [looks(JOB, policy("all", "", priority=1)), looks(silver, policy("all", ""))] == ["p0", "all"]
    silver["metadata"]["labels"]["tier"] = "gold"
    assert looks(silver, policy("all", "")) == "p0", "the same object, with other labels"
    compared.clear()
    assert looks(JOB) == "p0"
    read_ones[0] = read(policy("p0", selector=IRON))
    assert looks(JOB) == "p1"
    assert len(compared) == 1, "a policy that has changed has no other one compared again"
    read_ones.clear()
    assert looks(silver, policy("p1", selector=GOLD)) == "p1"
    silver["metadata"]["labels"]["tier"] = "silver"
    assert looks(silver) == "", "the last policy is gone, and the labels are others"


def test_a_policy_that_is_gone_is_not_kept_by_jobs_that_rest() -> None:
    among, applies = [read(policy("p", selector=IRON))], Applying()
    applies.look(by_namespace(among), JOB)
    gone = weakref.ref(among.pop())
    assert gone() is None


def test_a_job_without_a_policy_may_run_anywhere_and_fails_for_good() -> None:
    assert applying({}, JOB) == ANYWHERE
    assert ANYWHERE.why_not("a") == ""
    assert ANYWHERE.toleration_seconds is None


def test_members_are_named_or_left_out() -> None:
    affinity = {"clusterNames": ["a", "b"], "exclude": ["b"]}
    found = read({"metadata": {"name": "p"}, "spec": {"placement": {"clusterAffinity": affinity}}})
    assert [member for member in "abc" if not found.why_not(member)] == ["a"]


def test_members_to_which_nothing_is_dispatched_are_left_out() -> None:
    suspension = {"dispatchingOnClusters": {"clusterNames": ["b"]}}
    found = read({"metadata": {"name": "p"}, "spec": {"suspension": suspension}})
    assert [member for member in "abc" if not found.why_not(member)] == ["a", "c"]
    assert not found.problems


@pytest.mark.parametrize(
    ("failover", "seconds"),
    [
        (None, None),
        ({"application": {}}, 300),
        ({"application": {"decisionConditions": {"tolerationSeconds": 0}}}, 0),
        ({"application": {"decisionConditions": {"tolerationSeconds": 30}, "purgeMode": "Immediately"}}, 30),
        ({"application": {"decisionConditions": {"tolerationSeconds": -1}}}, 300),
        ({"application": {"decisionConditions": {"tolerationSeconds": "soon"}}}, 300),
    ],
)
def test_another_try_is_made_where_it_is_asked_for(failover: Any, seconds: float | None) -> None:
    assert read({"metadata": {"name": "p"}, "spec": {"failover": failover}}).toleration_seconds == seconds


@pytest.mark.parametrize("under", ["replicaScheduling", "placement"])
def test_ack_ones_own_policy_is_read_as_it_is_meant_wherever_its_gang_stands(under: str) -> None:
    policy = yaml.safe_load(EXAMPLE.read_text())
    if under == "placement":
        placement = policy["spec"]["placement"]
        placement |= placement.pop("replicaScheduling")
    found = read(policy)
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "j", "namespace": "default"}}
    assert applying(by_namespace([found]), job) == found
    assert (found.toleration_seconds, found.dispatches, found.groups, found.brings) == (30, True, None, True)
    assert found.problems == ()


def test_what_is_not_honoured_is_said_by_name() -> None:
    spec = {
        "resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job", "names": ["a"]}],
        "placement": {
            "clusterTolerations": [],
            "spreadConstraints": [],
            "replicaScheduling": {"replicaSchedulingType": "Duplicated", "weightPreference": {}},
        },
        "dependentOverrides": [],
        "preserveResourcesOnDeletion": True,
        "suspension": {"later": True, "scheduling": True, "dispatchingOnClusters": {"labelSelector": {}}},
        "failover": {
            "cluster": {},
            "application": {"gracePeriodSeconds": 60, "decisionConditions": {"tolerationSeconds": 1, "reasons": []}},
        },
    }
    said = {problem.path for problem in read({"metadata": {"name": "p"}, "spec": spec}).problems}
    assert said == {
        "/spec/resourceSelectors/0/names",
        "/spec/placement/clusterTolerations",
        "/spec/placement/replicaScheduling/weightPreference",
        "/spec/placement/replicaScheduling/replicaSchedulingType",
        "/spec/dependentOverrides",
        "/spec/preserveResourcesOnDeletion",
        "/spec/suspension/later",
        "/spec/suspension/dispatchingOnClusters/labelSelector",
        "/spec/failover/cluster",
        "/spec/failover/application/decisionConditions/reasons",
        "/spec/failover/application/gracePeriodSeconds",
    }


@pytest.mark.parametrize(
    ("mode", "said"),
    [("Immediately", False), ("Directly", False), ("Graciously", True), ("Gracefully", True), ("Never", True)],
)
def test_an_old_copy_that_is_to_stay_until_a_new_one_runs_or_for_good_is_not_honoured(mode: str, said: bool) -> None:
    found = read({"spec": {"failover": {"application": {"purgeMode": mode}}}}).problems
    assert [each.path for each in found] == ["/spec/failover/application/purgeMode"] * said


@pytest.mark.parametrize(
    ("constraint", "said"),
    [
        ({"spreadByField": "cluster", "maxGroups": 1}, ""),
        ({"spreadByLabel": "zone", "maxGroups": 1, "minGroups": 1}, ""),
        ({"spreadByField": "cluster"}, "/spec/placement/spreadConstraints/0"),
        ({"spreadByField": "cluster", "maxGroups": 2}, "/spec/placement/spreadConstraints/0"),
        ({"spreadByField": "cluster", "maxGroups": 1, "minGroups": 2}, "/spec/placement/spreadConstraints/0"),
        ({"maxGroups": 1, "by": "zone"}, "/spec/placement/spreadConstraints/0/by"),
    ],
)
def test_a_gang_is_spread_over_one_group_at_most(constraint: dict[str, Any], said: str) -> None:
    found = read({"spec": {"placement": {"spreadConstraints": [constraint]}}}).problems
    assert [each.path for each in found] == ([said] if said else [])


def test_what_tutti_does_anyway_is_not_warned_of() -> None:
    spec = {"preserveResourcesOnDeletion": False, "propagateDeps": False, "suspension": {"scheduling": True}}
    assert not read({"spec": spec}).problems


def test_a_tenant_of_many_policies_and_selectors_is_looked_at_in_part() -> None:
    selectors = [{"apiVersion": "batch/v1", "kind": "Job", "name": f"job-{number}"} for number in range(1000)]
    found = read({"metadata": {"name": "p", "namespace": "team-a"}, "spec": {"resourceSelectors": selectors}})
    assert len(found.selectors) == SELECTORS_MAX
    assert [problem.path for problem in found.problems] == ["/spec/resourceSelectors"]
    many = by_namespace(read(policy(f"p-{number}")) for number in range(1000))
    assert len(many["team-a"]) == POLICIES_MAX


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                sorted(
                    {
                        "metadata",
                        "name",
                        "namespace",
                        "spec",
                        "resourceSelectors",
                        "labelSelector",
                        "matchLabels",
                        "placement",
                        "clusterAffinity",
                        "clusterAffinities",
                        "spreadConstraints",
                        "maxGroups",
                        "purgeMode",
                        "matchExpressions",
                        "clusterNames",
                        "exclude",
                        "failover",
                        "application",
                        "decisionConditions",
                        "kind",
                        "tolerationSeconds",
                        "suspension",
                        "dispatching",
                        "dispatchingOnClusters",
                        "priority",
                        "apiVersion",
                        "replicaScheduling",
                    }
                )
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(ANY, ANY)
def test_whatever_is_written_is_read(written: Any, job: Any) -> None:
    found = read({"spec": written, "metadata": {"name": "p"}})
    found.why_not("a")
    found.why_not("a", {"zone": "east"})
    found.rank("a")
    applying(
        by_namespace([found, read(written if isinstance(written, dict) else {})]), job if isinstance(job, dict) else {}
    )


@pytest.mark.parametrize("entries", [[1] * 30_000, [{}] * 20_000])
def test_what_is_wrong_many_times_is_said_some_times(entries: list[object]) -> None:
    """A hub's loop was blocked for an eighth of a second by each policy of a tenant."""
    found = read({"spec": {"placement": {"clusterAffinity": {"clusterNames": [*entries, "m1"]}}}})
    assert found.groups is not None
    assert found.groups[0].only == {"", "m1"}
    assert 0 < len(found.problems) < 1_000


def test_many_warnings_hide_no_error() -> None:
    selectors = [{"labelSelector": dict.fromkeys(map(str, range(5_000)))}]
    found = read({"spec": {"resourceSelectors": selectors, "priority": "high"}})
    assert any(problem.path == "/spec/priority" for problem in found.problems)
    assert len(found.problems) < 1_000


@pytest.mark.parametrize(
    ("namespace", "named"),
    [("team-a", "PropagationPolicy team-a/one"), ("", "ClusterPropagationPolicy one")],
)
def test_what_leaves_a_member_out_is_named_by_its_kind(namespace: str, named: str) -> None:
    written = policy("one", namespace)
    written["spec"]["placement"] = {"clusterAffinity": {"clusterNames": ["left"]}}
    assert read(written).why_not("right") == f"is left out by {named}"


LETTERS = ["".join(letters) for letters in product("abcdefghijklm", repeat=3)]
SHORT = [
    {"placement": {"clusterAffinity": {"clusterNames": LETTERS[:400], "exclude": LETTERS}}},
    {"placement": {"clusterAffinities": [{"clusterNames": LETTERS[:90], "affinityName": "a"}] * 16}},
    {"suspension": {"dispatchingOnClusters": {"clusterNames": LETTERS}}},
    {"resourceSelectors": [{"labelSelector": {"matchLabels": dict.fromkeys(LETTERS, "a")}}]},
    {"resourceSelectors": [{"labelSelector": {"matchExpressions": [{}] * 9000}}]},
    {"resourceSelectors": [{}] * 32},
    {"placement": {"clusterAffinity": {"clusterNames": [1] * 9000}}},
    {letters: {"some": "thing"} for letters in LETTERS},
]


@pytest.mark.parametrize("spec", SHORT)
def test_a_policy_takes_no_more_memory_than_it_says(spec: dict[str, Any]) -> None:
    written = orjson.dumps({"metadata": {"name": "p", "namespace": "team-a"}, "spec": spec})
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        found = [read(orjson.loads(written)) for _ in range(10)]
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / len(found) < 10_000 + 2 * found[0].size_bytes
