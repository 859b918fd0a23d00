"""An ElasticQuotaTree of two levels: minimums, maximums, borrowing between siblings and taking back."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.e2e.conftest import AnyCluster, create_namespace, member
from tests.e2e.facts import told
from tests.e2e.kubectl import Kubectl, stays, wait_until
from tests.e2e.objects import GPU, job, pod_template
from tests.e2e.queues import entries
from webhook.core.notation import names

pytestmark = pytest.mark.usefixtures("tutti")

LEAVES: Final = ("vision", "speech", "serving")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf's namespace, as a member of its team and as the administrator see it."""

    owner: Kubectl
    admin: Kubectl

    def runs(self, name: str, pods: int) -> bool:
        """Whether exactly so many pods of a job exist, and all run."""
        found = self.owner.items("pods", f"job-name={name}")
        return [pod["status"].get("phase") for pod in found] == ["Running"] * pods

    def submit(self, name: str, pods: int) -> None:
        """Apply a job of so many GPUs; no queue label, the namespace is its queue."""
        self.owner.apply(job(name, pods, pod_template()))

    def waits(self, name: str) -> str:
        """Return why a job waits, once it says so."""
        return wait_until(lambda: told(self.owner, name, "Queued"), what=f"{name} says why it waits")[-1]


def node(name: str, least: int, most: int, **more: Any) -> dict[str, Any]:
    """Return a node of the tree with its guaranteed and its most GPUs, and ten cores for each."""
    amounts = {"min": {"cpu": 10 * least, GPU: least}, "max": {"cpu": 10 * most, GPU: most}}
    return {"name": name, **amounts, **more}


def tree(namespaces: dict[str, str]) -> dict[str, Any]:
    """Return the tree: eight GPUs, half of them research's, whose two teams have two each by right."""
    vision, speech, serving = ({"namespaces": [namespaces[name]]} for name in LEAVES)
    teams = [node("vision", 2, 6, **vision), node("speech", 2, 6, **speech)]
    root = node("root", 8, 8, children=[node("research", 4, 8, children=teams), node("serving", 4, 8, **serving)])
    metadata = {"name": "elasticquotatree", "namespace": "kube-system"}
    api_version = "scheduling.sigs.k8s.io/v1beta1"
    return {"apiVersion": api_version, "kind": "ElasticQuotaTree", "metadata": metadata, "spec": {"root": root}}


@pytest.fixture
def leaves(cluster: AnyCluster, kubectl: Kubectl) -> Iterator[dict[str, Leaf]]:
    """The tree in force, with a namespace for each leaf."""
    suffix = uuid.uuid4().hex[:6]
    namespaces = {name: f"e2e-{name}-{suffix}" for name in LEAVES}
    made = {}
    for name, namespace in namespaces.items():
        create_namespace(kubectl, namespace)
        user = member(cluster, kubectl, namespace, f"{namespace}-owner")
        made[name] = Leaf(user, kubectl.in_namespace(namespace))
    kubectl.in_namespace("kube-system").apply(tree(namespaces))
    for namespace in namespaces.values():
        gated = f"{namespace} is gated"
        wait_until(lambda n=namespace: names.GATED_NAMESPACE in labels(kubectl, n), what=gated)
        # The API server has read the label a moment later than it is stored.
        wait_until(lambda n=namespace: held_there(kubectl.in_namespace(n)), what=f"jobs of {namespace} are held")
    yield made
    for namespace in namespaces.values():
        kubectl.delete("namespace", namespace)
    system = kubectl.in_namespace("kube-system")
    # A tree that holds gangs is not let go.
    wait_until(lambda: system.delete("elasticquotatree", "elasticquotatree"), 120, "the tree holds no job any more")


def held_there(admin: Kubectl) -> bool:
    """Whether a job without any label would be stored suspended."""
    probe = ("--dry-run=server", "--output=jsonpath={.spec.suspend}")
    return admin.create(job("probe", 1, pod_template()), *probe) == "true"


def labels(kubectl: Kubectl, namespace: str) -> dict[str, str]:
    """Return a namespace's labels."""
    found: dict[str, str] = kubectl.get("namespace", namespace)["metadata"]["labels"]
    return found


def test_siblings_borrow_from_each_other_up_to_their_maximum_and_each_level_takes_its_minimum_back(
    kubectl: Kubectl, leaves: dict[str, Leaf]
) -> None:
    vision, speech, serving = (leaves[name] for name in LEAVES)
    vision.submit("large", 6)
    wait_until(lambda: vision.runs("large", 6), what="a team borrows its sibling's and its parent's sibling's GPUs")
    vision.submit("more", 1)
    beyond = vision.waits("more")
    assert "vision" in beyond
    assert GPU in beyond
    stays(lambda: vision.runs("large", 6) and not vision.runs("more", 1), 1, "its maximum holds, though two are idle")
    vision.owner.delete("job", "more")
    refused = kubectl.in_namespace("kube-system").refused("delete", "elasticquotatree", "elasticquotatree")
    assert "holds a gang" in refused
    assert "large" in refused
    without = '[{"op": "remove", "path": "/spec/root/children/0/children/0"}]'
    system = kubectl.in_namespace("kube-system")
    refused = system.refused("patch", "elasticquotatree", "elasticquotatree", "--type=json", f"--patch={without}")
    assert "leaf root/research/vision of" in refused
    assert "holds a gang" in refused

    serving.submit("serve", 4)
    wait_until(lambda: serving.runs("serve", 4), what="an upper node takes its minimum back")
    assert not vision.owner.items("pods"), "the borrower was stopped whole"
    evicted = wait_until(lambda: told(vision.owner, "large", "Evicted"), what="its owner is told")[-1]
    assert "Preempted" in evicted
    vision.submit("half", 4)
    wait_until(lambda: vision.runs("half", 4), what="a team uses all of its parent's minimum")

    speech.submit("own", 2)
    wait_until(lambda: speech.runs("own", 2), what="its sibling takes its own minimum back")
    assert not vision.owner.pods("job-name=half"), "the borrower was stopped whole"
    stays(lambda: serving.runs("serve", 4) and speech.runs("own", 2), 1, "nobody within a minimum is stopped")

    serving.owner.delete("job", "serve")
    wait_until(lambda: vision.runs("large", 6), what="what was lent out comes back, in the order of the queue")
    held = {entry.name for leaf in leaves.values() for entry in entries(leaf.admin)}
    assert held == {"large", "own"}


def test_every_node_of_the_tree_is_a_queue_where_kube_queues_users_look(
    kubectl: Kubectl, leaves: dict[str, Leaf]
) -> None:
    speech = leaves["speech"]
    speech.submit("own", 2)
    wait_until(lambda: speech.runs("own", 2), what="it runs")
    speech.submit("beyond", 5)
    speech.waits("beyond")
    lines = kubectl("get", "queues", "-n", "kube-queue", "-o", "wide").splitlines()
    shown = {line.split()[0].rpartition("-")[0]: line.split() for line in lines[1:]}
    inner = ["root", "root-research"]
    assert sorted(shown) == sorted([*inner, "root-research-speech", "root-research-vision", "root-serving"])

    def counted() -> tuple[int, int, str]:
        queues = {each["metadata"]["name"]: each for each in kubectl.in_namespace("kube-queue").items("queues")}
        status = queues[shown["root-research-speech"][0]]["status"]
        return status["reserving"], status["pending"], status["usage"][GPU]

    # Any reconciler answers, also one that follows.
    wait_until(lambda: counted() == (1, 1, "2"), what="its numbers are shown")
    stored = kubectl.in_namespace("kube-system").get("elasticquotatree", "elasticquotatree")
    assert stored["spec"]["root"]["children"][0]["children"][1]["max"][GPU] == 6
