"""A gang starts where all its pods fit the nodes, not merely where their sum fits the quota."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from tests.e2e.facts import told
from tests.e2e.kubectl import Kubectl, stays, wait_until
from tests.e2e.objects import job, pod_template, pytorchjob
from tests.e2e.own_nodes import BLOCK, KUEUE, ROW, SECONDS, on, own_nodes, running
from tests.e2e.queues import QUEUE, reservations
from webhook.core.notation import names

pytestmark = pytest.mark.usefixtures("tutti")
NODES: Final = 4
WIDE: Final = 50
"""Nodes of the widest gang."""
LOST: Final = 3


@pytest.fixture
def rack(admin: Kubectl) -> Iterator[list[str]]:
    """Four nodes of 8 GPUs that nobody else uses, and a queue with a quota for all of them; return their names."""
    names = own_nodes(admin, NODES)
    yield names
    admin.delete("node", *names)


@pytest.fixture
def hall(admin: Kubectl) -> Iterator[list[str]]:
    """As many nodes as a wide gang takes, and three more."""
    names = own_nodes(admin, WIDE + LOST)
    yield names
    admin("delete", "node", "--ignore-not-found", "--wait=false", *names)


@pytest.fixture
def rows(admin: Kubectl) -> Iterator[list[str]]:
    """Two rows of four nodes, whose flavor names a Topology that is not there yet."""
    names = own_nodes(admin, 2 * NODES, topologyName=admin.namespace)
    yield names
    admin.delete("node", *names)


@pytest.fixture
def halves(admin: Kubectl) -> Iterator[list[str]]:
    """Two rows of four nodes each."""
    names = own_nodes(admin, 2 * NODES)
    yield names
    admin("delete", "node", "--ignore-not-found", "--wait=false", *names)


def test_a_gang_that_fits_the_quota_and_not_the_nodes_waits_and_one_that_fits_passes_it(
    owner: Kubectl, rack: list[str]
) -> None:
    for node in rack:
        owner.apply(on(node, 6))
    wait_until(lambda: len(owner.pods(phase="Running")) == NODES, SECONDS, "two GPUs are left on each node")
    owner.apply(job("wide", 2, pod_template(4), QUEUE))
    wait_until(lambda: told(owner, "wide", "Queued"), SECONDS, "its owner is told why it waits")
    (said,) = told(owner, "wide", "Queued")
    assert "NodesDoNotFit: asks for 2 pods of" in said
    assert "4 nvidia.com/gpu" in said
    assert "0 fit now" in said
    assert "4 lack nvidia.com/gpu (8 free in pieces too small)" in said
    assert owner.pods("job-name=wide") == []
    owner.apply(job("narrow", 2, pod_template(2), QUEUE))
    wait_until(lambda: running(owner, "narrow") == 2, SECONDS, "what fits starts")
    assert owner.pods("job-name=wide") == []
    for node in rack[:2]:
        owner.delete("pod", f"other-{node[-1]}")
    wait_until(lambda: running(owner, "wide") == 2, SECONDS, "it starts when two nodes are free")


def test_a_pod_larger_than_any_node_says_so_and_holds_up_nobody(owner: Kubectl, rack: list[str]) -> None:
    """There is quota for it: without the nodes it would be admitted, and stopped again and again."""
    owner.apply(job("giant", 1, pod_template(16), QUEUE))
    wait_until(lambda: told(owner, "giant", "Queued"), SECONDS, "its owner is told why it waits")
    (said,) = told(owner, "giant", "Queued")
    assert "NodesDoNotFit: no node is large enough: one pod asks for 16 nvidia.com/gpu" in said
    assert "the largest that may take it has 8 nvidia.com/gpu" in said
    assert owner.pods() == []
    owner.apply(job("narrow", 1, pod_template(8), QUEUE))
    wait_until(lambda: running(owner, "narrow") == 1, SECONDS, "what fits starts")
    assert told(owner, "giant", "Evicted") == []


def test_the_node_that_becomes_free_first_is_booked_for_who_came_first_and_smaller_gangs_wait(
    owner: Kubectl, rack: list[str]
) -> None:
    for node in rack[1:]:
        owner.apply(on(node, 8))
    owner.apply(job("first", 1, pod_template(5), QUEUE))
    wait_until(lambda: running(owner, "first") == 1, SECONDS, "three GPUs are left on one node")
    owner.apply(job("wide", 1, pod_template(8), QUEUE))
    booked = f"it has booked {rack[0]}, free when {owner.namespace}/first has ended"
    wait_until(lambda: any(booked in each for each in told(owner, "wide")), SECONDS, "its owner is told")
    owner.apply(job("small", 1, pod_template(3), QUEUE))
    kept = f"booked for {owner.namespace}/wide, which goes before it: {rack[0]}"
    wait_until(lambda: any(kept in each for each in told(owner, "small")), SECONDS, "who came later is told, too")
    owner.delete("job", "first")
    wait_until(lambda: running(owner, "wide") == 1, SECONDS, "it starts")
    assert owner.pods("job-name=small") == []


def test_a_gang_of_higher_priority_that_has_quota_and_no_nodes_stops_as_few_as_leave_it_some(
    owner: Kubectl, admin: Kubectl, rack: list[str]
) -> None:
    queue = admin.get("clusterqueue", f"{admin.namespace}-{QUEUE}")
    quotas = queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    for quota in quotas:
        quota["nominalQuota"] = "100"
    queue["spec"]["preemption"] = {"withinClusterQueue": "LowerPriority"}
    urgent = {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": f"{admin.namespace}-urgent"}}
    admin.apply(
        {key: queue[key] for key in ("apiVersion", "kind", "spec")}
        | {"metadata": {"name": f"{admin.namespace}-{QUEUE}"}}
    )
    admin.apply(urgent | {"value": 100})
    for number in range(NODES):
        owner.apply(job(f"low-{number}", 1, pod_template(8), QUEUE))
    wait_until(lambda: len(owner.pods(phase="Running")) == NODES, SECONDS, "a gang is on each node")
    high = job("high", 2, pod_template(8), QUEUE)
    high["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = f"{admin.namespace}-urgent"
    owner.apply(high)
    wait_until(lambda: running(owner, "high") == 2, 2 * SECONDS, "it starts when two of them are gone")
    stopped = [number for number in range(NODES) if told(owner, f"low-{number}", "Evicted")]
    assert len(stopped) == 2, "the others run on"
    for number in stopped:
        (said,) = told(owner, f"low-{number}", "Evicted")
        assert f"{owner.namespace}/high" in said
    waits = [f"low-{number}" for number in stopped]
    wait_until(
        lambda: all(any("NodesDoNotFit" in each for each in told(owner, name, "Queued")) for name in waits),
        SECONDS,
        "they are told what they wait for",
    )
    owner.delete("job", "high")
    wait_until(lambda: len(owner.pods(phase="Running")) == NODES, 2 * SECONDS, "those that were stopped come back")
    admin.delete("workloadpriorityclass", f"{admin.namespace}-urgent")


def test_a_cordoned_node_is_left_out_until_it_is_uncordoned(owner: Kubectl, admin: Kubectl, rack: list[str]) -> None:
    admin("cordon", rack[0])
    owner.apply(job("all", NODES, pod_template(8), QUEUE))
    wait_until(lambda: any("1 cordoned" in each for each in told(owner, "all")), SECONDS, "its owner is told")
    stays(lambda: owner.pods("job-name=all") == [], 2, "no pod of it is made")
    admin("uncordon", rack[0])
    wait_until(lambda: running(owner, "all") == NODES, SECONDS, "it starts")


def test_gangs_are_packed_so_that_whole_nodes_stay_free_for_wide_ones(owner: Kubectl, rack: list[str]) -> None:
    owner.apply(on(rack[2], 4))
    wait_until(lambda: len(owner.pods(phase="Running")) == 1, SECONDS, "half of one node is taken")
    for name in ("one", "two"):
        owner.apply(job(name, 2, pod_template(1), QUEUE))
    wait_until(lambda: running(owner, "one") == running(owner, "two") == 2, SECONDS, "two small gangs run")
    assert {pod["spec"]["nodeName"] for pod in owner.pods()} == {rack[2]}, "where they leave least behind"
    owner.apply(job("wide", 3, pod_template(8), QUEUE))
    wait_until(lambda: running(owner, "wide") == 3, SECONDS, "three nodes are free as a whole")


def in_one_row(name: str, pods: int, gpus: int) -> dict[str, Any]:
    """Return a job whose pods have to be in one row, as Kueue's users write it; a pod that ends is made again."""
    template = pod_template(gpus)
    template["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] = ROW
    return job(name, pods, template, QUEUE, backoffLimit=4)


def nodes_of(owner: Kubectl, name: str) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in owner.pods(f"job-name={name}", "Running")}


def test_a_gang_that_has_to_be_in_one_row_starts_in_the_fullest_that_holds_it_and_waits_where_none_does(
    owner: Kubectl, rack: list[str]
) -> None:
    left, right = set(rack[:2]), set(rack[2:])
    owner.apply(on(rack[3], 4))
    wait_until(lambda: len(owner.pods(phase="Running")) == 1, SECONDS, "the right row has 12 GPUs left")
    owner.apply(in_one_row("near", 2, 4))
    wait_until(lambda: running(owner, "near") == 2, SECONDS, "a gang of 8 starts")
    assert nodes_of(owner, "near") <= right
    owner.apply(in_one_row("wide", 5, 4))
    wait_until(lambda: told(owner, "wide", "Queued"), SECONDS, "a gang of 20 is told why it waits")
    (said,) = told(owner, "wide", "Queued")
    assert "TopologyPlacementFailed: pod set main asks for 5 pods of" in said
    assert f"within one {ROW}; the largest, " in said
    assert "holds 4 when nothing else runs there, 1 too few; it cannot start" in said
    owner.apply(in_one_row("fits", 3, 4))
    wait_until(lambda: running(owner, "fits") == 3, SECONDS, "a gang of 12 starts in the other row")
    assert nodes_of(owner, "fits") <= left
    (first, *_) = owner.pods("job-name=near")
    owner.delete("pod", first["metadata"]["name"])
    gone = first["metadata"]["uid"]
    wait_until(
        lambda: running(owner, "near") == 2 and all(pod["metadata"]["uid"] != gone for pod in owner.pods()),
        3 * SECONDS,
        "the pod that was deleted is made again, after the back-off of the Job controller",
    )
    assert nodes_of(owner, "near") <= right
    assert owner.pods("job-name=wide") == []


def test_a_gang_waits_for_the_topology_of_its_flavor_and_takes_two_of_its_rows_in_the_order_of_its_ranks_and_slices(
    owner: Kubectl, admin: Kubectl, rows: list[str]
) -> None:
    template, ranks = pod_template(1), 8 * len(rows)
    template["metadata"]["annotations"]["kueue.x-k8s.io/podset-preferred-topology"] = ROW
    owner.apply(job("ranked", ranks, template, QUEUE, completionMode="Indexed"))
    missing = f"there is no Topology '{admin.namespace}'"
    wait_until(lambda: any(missing in said for said in told(owner, "ranked", "Queued")), SECONDS, "it is told why")
    levels = [{"nodeLabel": label} for label in (BLOCK, ROW, "kubernetes.io/hostname")]
    topology = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Topology", "metadata": {"name": admin.namespace}}
    admin.apply(topology | {"spec": {"levels": levels}})
    wait_until(lambda: running(owner, "ranked") == ranks, 3 * SECONDS, "all run")
    found = ranks_of(owner, "ranked")
    assert [found[rank] for rank in range(ranks)] == [node for node in rows for _ in range(8)]
    refused = admin.refused("delete", "topology", admin.namespace)
    assert "ranked" in refused
    owner.delete("job", "ranked")
    # While some are being deleted, they hold quota, and who comes is told of that.
    wait_until(lambda: not owner.items("pods") and not reservations(admin), 3 * SECONDS, "both rows are free again")
    owner.apply(on(rows[0], 4))
    wait_until(lambda: len(owner.pods(phase="Running")) == 1, SECONDS, "the left row has 28 GPUs left")
    owner.apply(in_slices("three", 3, 20))
    wait_until(lambda: told(owner, "three", "Queued"), SECONDS, "three slices of 20 do not fit, though 60 pods do")
    (said,) = told(owner, "three", "Queued")
    assert f", 20 and 20 within one {ROW}; 40 fit now; it starts when 20 more fit" in said
    owner.apply(in_slices("two", 2, 20))
    wait_until(lambda: running(owner, "two") == 40, 3 * SECONDS, "two slices run")
    found = ranks_of(owner, "two")
    left, right = rows[:NODES], rows[NODES:]
    assert {found[rank] for rank in range(20)} <= set(left)
    assert {found[rank] for rank in range(20, 40)} <= set(right)


def in_slices(name: str, slices: int, size: int) -> dict[str, Any]:
    """Return an indexed job of pods of one GPU, of which each slice has to be in one row."""
    template = pod_template(1)
    annotations = {"podset-slice-required-topology": ROW, "podset-slice-size": str(size)}
    template["metadata"]["annotations"] |= {f"kueue.x-k8s.io/{key}": value for key, value in annotations.items()}
    return job(name, slices * size, template, QUEUE, completionMode="Indexed")


def ranks_of(owner: Kubectl, name: str) -> dict[int, str]:
    """Return on which node the pod of each rank runs."""
    index = "batch.kubernetes.io/job-completion-index"
    found = owner.pods(f"job-name={name}", "Running")
    return {int(pod["metadata"]["labels"][index]): pod["spec"]["nodeName"] for pod in found}


def wide_job() -> dict[str, Any]:
    """Return an indexed Job; with one limit for all indices its controller waits longer after each pod that it lost."""
    limits: dict[str, Any] = {"backoffLimit": None, "backoffLimitPerIndex": 1}
    return job("wide", WIDE, pod_template(8), QUEUE, completionMode="Indexed", **limits)


def wide_training_job() -> dict[str, Any]:
    """Return a training job of as many pods, whose operator makes a pod again at once."""
    made = pytorchjob("wide", WIDE - 1, pod_template(8, container="pytorch"), QUEUE)
    for replica in made["spec"]["pytorchReplicaSpecs"].values():
        # With Never the operator fails the whole job, if it sees the pod as failed before that is gone.
        replica["restartPolicy"] = "OnFailure"
    return made


@pytest.mark.parametrize("wide", [wide_job, wide_training_job])
def test_a_wide_gang_that_loses_three_nodes_is_whole_again_without_a_stop(
    owner: Kubectl, admin: Kubectl, hall: list[str], wide: Callable[[], dict[str, Any]]
) -> None:
    made = wide()
    owner.apply(made)
    wait_until(lambda: len(owner.pods(phase="Running")) == WIDE, 6 * SECONDS, "all fifty run")
    where = {pod["spec"]["nodeName"]: pod["metadata"] for pod in owner.pods(phase="Running")}
    assert len(where) == WIDE, "each has a node for itself"
    lost = sorted(where)[:LOST]
    admin("delete", "node", "--wait=false", *lost)
    began = time.monotonic()
    owner("delete", "pod", "--force", "--grace-period=0", *(where[node]["name"] for node in lost))
    old = {pod["uid"] for pod in where.values()}
    wait_until(lambda: sum(uid in old for uid in uids(owner)) == WIDE - LOST, 6 * SECONDS, "its pods are gone")
    gone = time.monotonic() - began
    wait_until(lambda: len(uids(owner)) == WIDE, 6 * SECONDS, "its controller has made them again")
    again = time.monotonic() - began
    wait_until(lambda: len(owner.pods(phase="Running")) == WIDE, 6 * SECONDS, "it is whole again")
    whole = time.monotonic() - began
    print(
        f"\n{made['kind']} of {WIDE} pods: {LOST} are deleted, gone after {gone:.1f} s, made again after {again:.1f} s,"
        f" it is whole after {whole:.1f} s"
    )
    now = {pod["spec"]["nodeName"]: pod["metadata"]["uid"] for pod in owner.pods(phase="Running")}
    kept = {node: pod["uid"] for node, pod in where.items() if node not in lost}
    assert kept.items() <= now.items(), "the others were not touched"
    assert now.keys() - kept.keys() == set(hall) - where.keys(), "it took the nodes that were left"
    assert told(owner, "wide", "Evicted") == [], "nobody stopped it"


def uids(owner: Kubectl) -> list[str]:
    """Return the uids of all pods that there are, also of those that are being deleted."""
    return [pod["metadata"]["uid"] for pod in owner.items("pods")]


def test_a_training_job_that_loses_a_node_is_whole_again_in_the_same_row_without_a_stop(
    owner: Kubectl, admin: Kubectl, halves: list[str]
) -> None:
    template = pod_template(8, container="pytorch")
    annotations = {"podset-required-topology": ROW, "podset-group-name": "all"}
    template["metadata"]["annotations"] |= {f"kueue.x-k8s.io/{key}": value for key, value in annotations.items()}
    train = pytorchjob("train", 2, template, QUEUE)
    for replica in train["spec"]["pytorchReplicaSpecs"].values():
        # With Never the operator fails the whole job, if it sees the pod as failed before that is gone.
        replica["restartPolicy"] = "OnFailure"
    owner.apply(train)

    def pods() -> dict[str, dict[str, Any]]:
        found = owner.items("pods", "training.kubeflow.org/job-name=train")
        return {pod["spec"]["nodeName"]: pod["metadata"] for pod in found if pod["status"].get("phase") == "Running"}

    wait_until(lambda: len(pods()) == 3, 3 * SECONDS, "master and workers run, each on a node of its own")
    before = pods()
    row = set(halves[:NODES] if before.keys() & set(halves[:NODES]) else halves[NODES:])
    assert before.keys() < row, "all are in one row"
    lost = next(node for node, metadata in before.items() if "-worker-" in metadata["name"])
    admin("delete", "node", "--wait=false", lost)
    owner("delete", "pod", "--force", "--grace-period=0", before[lost]["name"])
    wait_until(lambda: len(pods()) == 3, SECONDS, "it is whole again")
    now = pods()
    assert now.keys() == row - {lost}, "the new pod took the node that was left in the row"
    assert all(now[node]["uid"] == before[node]["uid"] for node in before if node != lost), (
        "the others were not touched"
    )
    failed = [each for each in owner.get("pytorchjob", "train")["status"]["conditions"] if each["type"] == "Failed"]
    assert not failed, "its operator goes on with it"
