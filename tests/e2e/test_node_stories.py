"""What users of other schedulers met where a gang fitted the sums and not the nodes: here each story ends well."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from tests.e2e.facts import told
from tests.e2e.kubectl import Kubectl, stays, wait_until
from tests.e2e.objects import job, pod_template, pytorchjob
from tests.e2e.own_nodes import KUEUE, SECONDS, own_node, own_nodes, running
from tests.e2e.queues import QUEUE

pytestmark = pytest.mark.usefixtures("tutti")
URGENT: Final = "kueue.x-k8s.io/priority-class"
HELD: Final = "example.com/volume"
"""A finalizer of somebody who takes his time."""
Nodes = Callable[..., list[str]]


@pytest.fixture
def nodes_of_8(admin: Kubectl) -> Iterator[Nodes]:
    """Make nodes as ``own_nodes`` does; they go with the test."""
    made: list[str] = []

    def make(count: int, **more: Any) -> list[str]:
        made.extend(own_nodes(admin, count, **more))
        return made

    yield make
    admin("delete", "node", "--ignore-not-found", "--wait=false", *made)


def waits_for_nodes(owner: Kubectl, name: str, why: str) -> None:
    """Wait until a job's owner is told that it fits no nodes, and why; no pod of it is there then."""
    wait_until(lambda: any(why in said for said in told(owner, name, "Queued")), SECONDS, f"{name} is told: {why}")
    assert owner.pods(f"job-name={name}") == []


def test_a_gang_larger_than_any_node_is_told_so_and_takes_no_room_from_those_behind_it(
    owner: Kubectl, nodes_of_8: Nodes
) -> None:
    nodes_of_8(3)
    owner.apply(job("huge", 1, pod_template(12), QUEUE))
    waits_for_nodes(owner, "huge", "no node is large enough: one pod asks for 12 nvidia.com/gpu")
    owner.apply(job("all", 3, pod_template(8), QUEUE))
    wait_until(lambda: running(owner, "all") == 3, SECONDS, "who came later has all that the queue has")
    assert owner.pods("job-name=huge") == []


def test_a_gang_larger_than_all_nodes_together_is_told_by_how_much_and_promised_no_start(
    owner: Kubectl, nodes_of_8: Nodes
) -> None:
    """Also while somebody else runs there, whose end would not help. There is quota enough."""
    nodes_of_8(3, queues={QUEUE: 100})
    owner.apply(job("some", 2, pod_template(8), QUEUE))
    wait_until(lambda: running(owner, "some") == 2, SECONDS, "two nodes are taken")
    owner.apply(job("wide", 6, pod_template(6), QUEUE))
    waits_for_nodes(owner, "wide", "the nodes that could take them (3) hold 3 when nothing else runs there, 3 too few")
    assert not any("it starts when" in said for said in told(owner, "wide", "Queued"))


def test_of_two_queues_that_want_one_node_at_the_same_moment_one_has_it_and_no_pod_of_the_other_is_made(
    owner: Kubectl, nodes_of_8: Nodes
) -> None:
    nodes_of_8(1, queues={"one": 8, "two": 8})
    both = [job(name, 2, pod_template(4), name) for name in ("one", "two")]
    owner.apply({"apiVersion": "v1", "kind": "List", "items": both})
    wait_until(lambda: len(owner.pods(phase="Running")) == 2, SECONDS, "one of them runs")
    (first,) = {pod["metadata"]["labels"]["job-name"] for pod in owner.pods()}
    second = "two" if first == "one" else "one"
    waits_for_nodes(owner, second, "NodesDoNotFit: asks for 2 pods of")
    owner.delete("job", first)
    wait_until(lambda: running(owner, second) == 2, SECONDS, "the other follows")


def test_a_node_is_free_when_the_pods_that_are_being_deleted_are_gone_and_not_before(
    owner: Kubectl, nodes_of_8: Nodes
) -> None:
    nodes_of_8(1, queues={QUEUE: 100})
    slow = pod_template(8)
    slow["metadata"]["finalizers"] = [HELD]
    owner.apply(job("old", 1, slow, QUEUE))
    wait_until(lambda: running(owner, "old") == 1, SECONDS, "it has the node")
    owner.delete("job", "old")
    wait_until(lambda: owner.pods() == [], SECONDS, "its pod is being deleted")
    (left,) = owner.items("pods")
    owner.apply(job("next", 1, pod_template(8), QUEUE))
    waits_for_nodes(owner, "next", "1 lacks nvidia.com/gpu")
    stays(lambda: owner.pods("job-name=next") == [], 1, "it waits while the pod is there")
    owner.patch("pod", left["metadata"]["name"], {"metadata": {"finalizers": None}})
    wait_until(lambda: running(owner, "next") == 1, SECONDS, "it has the node")


def test_who_is_stopped_for_an_urgent_gang_leaves_it_its_nodes_also_those_who_hold_none_of_what_its_quota_lacks(
    owner: Kubectl, admin: Kubectl, nodes_of_8: Nodes
) -> None:
    nodes_of_8(1, has={"pods": "2"})
    admin.apply(
        {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": owner.namespace}, "value": 7}
    )
    owner.apply(job("gpus", 1, pod_template(8), QUEUE))
    owner.apply(job("cores", 1, pod_template(0), QUEUE))
    wait_until(lambda: running(owner, "gpus") == running(owner, "cores") == 1, SECONDS, "two pods fill the node")
    urgent = job("urgent", 2, pod_template(4), QUEUE)
    urgent["metadata"]["labels"][URGENT] = owner.namespace
    owner.apply(urgent)
    wait_until(lambda: running(owner, "urgent") == 2, 2 * SECONDS, "it has the node, and both of its pods")
    assert len(owner.pods()) == 2
    admin.delete("workloadpriorityclass", owner.namespace)


def test_pod_sets_of_one_gang_share_the_number_of_pods_that_a_node_takes(
    owner: Kubectl, admin: Kubectl, nodes_of_8: Nodes
) -> None:
    (node,) = nodes_of_8(1, has={"pods": "1"})
    owner.apply(pytorchjob("pair", 1, pod_template(1, container="pytorch"), QUEUE))
    wait_until(lambda: any("NodesDoNotFit" in said for said in told(owner, "pair", "Queued")), SECONDS, "it waits")
    assert owner.pods() == []
    admin.apply(own_node(admin, f"{node}-more", {"pods": "1"}))
    wait_until(lambda: len(owner.pods(phase="Running")) == 2, 2 * SECONDS, "it starts with a second node")
    admin.delete("node", f"{node}-more")


def test_a_tainted_node_counts_for_those_alone_who_tolerate_it(
    owner: Kubectl, admin: Kubectl, nodes_of_8: Nodes
) -> None:
    made = nodes_of_8(2)
    admin("taint", "node", made[0], "example.com/repair=now:NoSchedule")
    owner.apply(job("both", 2, pod_template(8), QUEUE))
    waits_for_nodes(owner, "both", "1 with taint example.com/repair")
    tolerant = pod_template(8)
    tolerant["spec"]["tolerations"] = [{"key": "example.com/repair", "operator": "Exists"}]
    owner.apply(job("tolerant", 2, tolerant, QUEUE))
    wait_until(lambda: running(owner, "tolerant") == 2, SECONDS, "who tolerates it starts there")
    owner.delete("job", "tolerant")
    wait_until(lambda: owner.pods() == [], SECONDS, "it is gone")
    admin("taint", "node", made[0], "example.com/repair-")
    wait_until(lambda: running(owner, "both") == 2, SECONDS, "the other starts when the taint is gone")
