"""Volcano's HyperNodes keep jobs together: kube-scheduler is told their nodes, whoever waits is told why."""

from collections.abc import Iterator
from itertools import count
from typing import Any, Final

import pytest

from tests.e2e.conftest import AnyCluster
from tests.e2e.facts import told
from tests.e2e.kubectl import Kubectl, stays, wait_until
from tests.e2e.objects import pod, pod_template
from tests.e2e.own_nodes import SECONDS, on, own_nodes
from tests.e2e.queues import QUEUE
from tests.e2e.test_pod_groups import VOLCANO, made_by_volcano, volcano_job
from webhook.core.notation import names

pytestmark = pytest.mark.usefixtures("tutti")
NODES: Final = 4


@pytest.fixture
def halves(cluster: AnyCluster, admin: Kubectl) -> Iterator[list[str]]:
    """Two HyperNodes of two nodes each, one by names and one by a pattern, and one above both; return the nodes."""
    cluster.install_kinds("volcano")
    admin("create", "rolebinding", "volcano", "--clusterrole=edit", f"--user={VOLCANO}")
    made, space = own_nodes(admin, NODES), admin.namespace
    left = [{"type": "Node", "selector": {"exactMatch": {"name": each}}} for each in made[:2]]
    right = [{"type": "Node", "selector": {"regexMatch": {"pattern": f"^{space}-[23]$"}}}]
    hyper_nodes = {
        f"{space}-left": (1, left),
        f"{space}-right": (1, right),
        f"{space}-all": (
            2,
            [{"type": "HyperNode", "selector": {"exactMatch": {"name": f"{space}-{e}"}}} for e in ("left", "right")],
        ),
    }
    for name, (tier, members) in hyper_nodes.items():
        admin.apply(
            {
                "apiVersion": "topology.volcano.sh/v1alpha1",
                "kind": "HyperNode",
                "metadata": {"name": name},
                "spec": {"tier": tier, "members": members},
            }
        )
    numbers = count()
    wait_until(lambda: is_read(admin, f"canary-{next(numbers)}"), 12 * SECONDS, "HyperNodes are read, though new")
    yield made
    admin.delete("hypernodes", *hyper_nodes)
    admin("delete", "node", "--ignore-not-found", "--wait=false", *made)


def is_read(admin: Kubectl, name: str) -> bool:
    """Return whether a job that fits all nodes and no half of them waits; one that need not is gone again."""
    admin.create(near(name, 5, 1))
    try:
        wait_until(lambda: told(admin, name, "Queued") or told(admin, name, "Admitted"), SECONDS, "it is judged")
        return any("TopologyPlacementFailed" in said for said in told(admin, name, "Queued"))
    finally:
        admin.delete("jobs.batch.volcano.sh", name)


def near(name: str, pods: int, tier: int) -> dict[str, Any]:
    """Return a Volcano Job of pods of 4 GPUs, of which half a node holds one, within one HyperNode of a tier."""
    job = volcano_job(name, pods)
    job["spec"] |= {"networkTopology": {"mode": "hard", "highestTierAllowed": tier}}
    job["spec"]["tasks"][0]["template"] = pod_template(4)
    return job


def submit(admin: Kubectl, job: dict[str, Any]) -> None:
    """Create a job, and its pods as Volcano's controller would."""
    admin.create(job)
    stored = admin.get("jobs.batch.volcano.sh", job["metadata"]["name"])
    assert "networkTopology" in stored["spec"], "the API server keeps it"
    for number in range(job["spec"]["minAvailable"]):
        made_by_volcano(admin, stored, number)


def nodes_of(owner: Kubectl, name: str) -> list[str]:
    """Return where the pods of a job run."""
    found = [each for each in owner.pods(phase="Running") if each["metadata"]["name"].startswith(f"{name}-")]
    return sorted(each["spec"]["nodeName"] for each in found)


def asked(owner: Kubectl, name: str) -> list[str]:
    """Return the nodes to which the first pod of a job is held."""
    affinity = owner.get("pod", f"{name}-worker-0")["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    values: list[str] = term["matchExpressions"][0]["values"]
    return values


def test_a_volcano_job_runs_in_the_narrowest_hyper_node_that_holds_it_and_waits_where_none_of_its_tier_does(
    owner: Kubectl, admin: Kubectl, halves: list[str]
) -> None:
    left, right = halves[:2], halves[2:]
    owner.apply(on(left[0], 4))
    wait_until(lambda: len(owner.pods(phase="Running")) == 1, SECONDS, "the left half has 12 GPUs left")
    submit(admin, near("four", 4, 1))
    wait_until(lambda: nodes_of(owner, "four") == [*right[:1] * 2, *right[1:] * 2], 6 * SECONDS, "16 GPUs are right")
    assert asked(owner, "four") == right
    submit(admin, near("wide", 4, 1))

    def why() -> list[str]:
        return [said for said in told(owner, "wide", "Queued") if "TopologyPlacementFailed" in said]

    said = wait_until(why, 3 * SECONDS, "one for which neither half has room is told why")[0]
    assert "within one topology.volcano.sh/tier-1" in said
    submit(admin, near("two", 2, 2))
    wait_until(lambda: len(nodes_of(owner, "two")) == 2, 3 * SECONDS, "one that may be anywhere starts on the left")
    assert set(nodes_of(owner, "two")) <= set(left)
    assert asked(owner, "two") == halves, "its tier has all"
    stays(lambda: nodes_of(owner, "wide") == [], 2, "the other still waits")


def test_plain_pods_of_a_volcano_pod_group_run_in_one_hyper_node(
    owner: Kubectl, admin: Kubectl, halves: list[str]
) -> None:
    left, right = halves[:2], halves[2:]
    owner.apply(on(left[0], 4))
    wait_until(lambda: len(owner.pods(phase="Running")) == 1, SECONDS, "the left half has 12 GPUs left")
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "crew"}}
    owner.apply(group | {"spec": {"minMember": 4, "networkTopology": {"mode": "hard", "highestTierAllowed": 1}}})
    template = pod_template(4, labels={"tutti.dev/queue-name": QUEUE})
    template["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "crew"}
    exists = {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}, exists]}}
    template["spec"]["affinity"] = {"nodeAffinity": required}
    for number in range(4):
        owner.create(pod(f"crew-{number}", template))
    wait_until(lambda: nodes_of(owner, "crew") == [*right[:1] * 2, *right[1:] * 2], 6 * SECONDS, "all are right")
    affinity = owner.get("pod", "crew-0")["spec"]["affinity"]["nodeAffinity"]
    none, some = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert none == {}, "it means no node, and Kubernetes lets nobody make it mean some"
    assert [each["key"] for each in some["matchExpressions"]] == ["rack", names.HOSTNAME]
