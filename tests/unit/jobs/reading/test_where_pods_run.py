"""Where the pods of a set may run, as kube-scheduler reads their template and its RuntimeClass."""

import pytest

from tests.unit.jobs.objects_of_kinds import load, record_of
from webhook.core.model.gang import Requirement
from webhook.core.model.policy import requirement_holds
from webhook.jobs.pricing.context import context_from


def test_pods_run_where_their_runtime_class_lets_them():
    scheduling = {"nodeSelector": {"pool": "kata"}, "tolerations": [{"key": "kata", "operator": "Exists"}]}
    context = context_from(runtime_classes=[{"metadata": {"name": "kata"}, "scheduling": scheduling}])
    obj = load("job")
    obj["spec"]["template"]["spec"] |= {"runtimeClassName": "kata", "tolerations": [{"key": "own"}]}
    (pods,) = record_of(obj, context).gang.pod_sets
    assert pods.node_selector == {"disk": "ssd", "pool": "kata"}
    assert [each.key for each in pods.tolerations] == ["own", "kata"]


def test_a_term_of_node_affinity_that_lists_nothing_means_no_node():
    obj, listed = load("job"), [{"key": "pool", "operator": "In", "values": ["a"]}]
    terms = [{}, {"matchExpressions": []}, {"matchExpressions": listed}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    obj["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": required}
    (pods,) = record_of(obj).gang.pod_sets
    allowed = [all(requirement_holds(r, {"pool": "a"}) for r in term) for term in pods.node_affinity]
    # Those that list nothing are one.
    assert allowed == [False, True]


@pytest.mark.parametrize(
    ("label", "than", "more"),
    [
        ("9", "8", True),
        ("-1", "-2", True),
        ("8", "8", False),
        ("1_000", "8", False),
        (" 9", "8", False),
        ("9", "8_", False),
        (str(2**63 - 1), "8", True),
        (str(2**63), "8", False),
        ("x", "8", False),
    ],
)
def test_numbers_are_compared_where_both_are_such_as_go_reads(label: str, than: str, more: bool) -> None:
    assert requirement_holds(Requirement("disk", "Gt", (than,)), {"disk": label}) is more
