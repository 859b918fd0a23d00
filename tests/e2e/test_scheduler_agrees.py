"""What node fit says, held against the real kube-scheduler in worlds that are drawn at random.

A gang that is started is bound whole; one of equal pods that is told that it fits no nodes could not have been.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import pytest
import yaml

from tests.e2e.controlplane import nodes
from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.objects import job, pod, pod_template, pytorchjob
from tests.e2e.queues import cluster_queue_of

pytestmark = pytest.mark.usefixtures("tutti")
KUEUE: Final = "kueue.x-k8s.io/v1beta2"
WORLDS: Final = int(os.environ.get("WORLDS", "24"))
SEED: Final = int(os.environ.get("SEED", "1"))
SLOW: Final = {"key": "example.com/slow", "effect": "NoSchedule"}
EVICTING: Final = {"key": "example.com/leaving", "value": "soon", "effect": "NoExecute"}
TOLERATIONS: Final = (
    {"key": SLOW["key"], "operator": "Exists"},
    {"key": SLOW["key"], "operator": "Exists", "effect": "NoExecute"},
    {"key": EVICTING["key"], "value": "soon", "effect": "NoExecute", "tolerationSeconds": 3600},
    {"key": EVICTING["key"], "value": "late"},
    {"operator": "Exists"},
)
REQUIREMENTS: Final = (
    {"key": "pool", "operator": "NotIn", "values": ["a"]},
    {"key": "pool", "operator": "In", "values": ["a", "c"]},
    {"key": "disk", "operator": "Exists"},
    {"key": "disk", "operator": "DoesNotExist"},
    {"key": "disk", "operator": "Gt", "values": ["9"]},
    {"key": "disk", "operator": "Lt", "values": ["100"]},
)
DISKS: Final = (None, "8", "80", "1_000")
SANDBOX: Final = "example.com/sandbox"
"""Label of the nodes of a RuntimeClass."""
RUNTIME_CLASS: Final = "agreement"
PORT: Final = 29_500
DAEMONS: Final = "kube-system"
"""A namespace that is exempt."""
Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class World:
    """Some nodes that nobody else uses, what runs there, and a gang that may use no others."""

    name: str
    nodes: list[Manifest]
    others: list[Manifest]
    daemons: list[Manifest]
    """DaemonSets on these nodes, whose pods are on their way when the gang comes."""
    templates: dict[str, tuple[Manifest, int]]
    """By pod set: its pods' template, and how many there are."""

    @property
    def policy(self) -> list[Manifest]:
        """A flavor of the nodes, and a queue that has enough of everything."""
        flavor = {"nodeLabels": {"world": self.name}, "nodeTaints": [taint(self.name)]}
        flavor |= {"tolerations": [{"key": self.name, "operator": "Exists"}]}
        queue = cluster_queue_of(self.name, 100)
        (group,) = queue["spec"]["resourceGroups"]
        group["coveredResources"].append("memory")
        group["flavors"][0]["name"] = self.name
        group["flavors"][0]["resources"].append({"name": "memory", "nominalQuota": "100Gi"})
        local = {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": self.name}}
        return [
            {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": self.name}, "spec": flavor},
            queue,
            local | {"spec": {"clusterQueue": self.name}},
        ]

    @property
    def gang(self) -> Manifest:
        """A Job, or a PyTorchJob where its pods are not all equal."""
        if "main" in self.templates:
            template, pods = self.templates["main"]
            return job(self.name, pods, template, self.name)
        made = pytorchjob(self.name, 1, {}, self.name)
        for role, (template, pods) in self.templates.items():
            made["spec"]["pytorchReplicaSpecs"][role] |= {"template": template, "replicas": pods}
        return made

    @property
    def loose(self) -> list[Manifest]:
        """The pods that the gang would have, as a user would make them."""
        found = []
        for role, (template, pods) in self.templates.items():
            spec = template["spec"] | {
                "nodeSelector": template["spec"].get("nodeSelector", {}) | {"world": self.name},
                "tolerations": [*template["spec"].get("tolerations", []), {"key": self.name, "operator": "Exists"}],
            }
            labelled = {"metadata": {"labels": {"loose": self.name}}, "spec": spec}
            found += [pod(f"{self.name}-loose-{role.lower()}-{number}", labelled) for number in range(pods)]
        return found


def taint(name: str) -> dict[str, str]:
    return {"key": name, "effect": "NoSchedule"}


def drawn(rng: Random, name: str) -> World:
    """Draw a world: cordoned, tainted and small nodes among others, half of them taken, in some with a DaemonSet, and a
    gang that may fit; some pods take ports of their node.
    """
    made, others, daemons = [], [], []
    if rng.random() < 0.4:
        daemons.append(daemon_set_drawn(rng, name))
    for number in range(rng.randint(2, 4)):
        gpus = rng.choice((2, 4, 8, 8))
        each = nodes.node(f"{name}-{number}", gpus)
        labels = {"world": name, "pool": rng.choice("ab"), "disk": rng.choice(DISKS)}
        labels |= {SANDBOX: "yes"} if rng.random() < 0.5 else {}
        each["metadata"]["labels"] |= {key: value for key, value in labels.items() if value}
        each["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "fake"}
        also = [extra for extra in (SLOW, EVICTING) if rng.random() < 0.15]
        also += [{**SLOW, "effect": "PreferNoSchedule"}] if rng.random() < 0.1 else []
        each["spec"] = {"taints": [taint(name), *also]}
        each["spec"]["unschedulable"] = rng.random() < 0.15
        each["status"]["allocatable"] = each["status"]["capacity"] | {
            "cpu": rng.choice(("3", "16")),
            "pods": rng.choice(("2", "256", "256")),
            "memory": rng.choice(("2Gi", "512Gi", "512Gi")),
        }
        made.append(each)
        if rng.random() < 0.6:
            template = pod_template(rng.randint(1, gpus))
            template["spec"] |= {"nodeName": f"{name}-{number}", "tolerations": [{"operator": "Exists"}]}
            if rng.random() < 0.3:
                template["spec"]["containers"][0]["ports"] = [{"containerPort": PORT, "hostPort": PORT}]
            others.append(pod(f"{name}-other-{number}", template))
    if rng.random() < 0.6:
        return World(name, made, others, daemons, {"main": (pods_drawn(rng, name, "main"), rng.randint(1, 5))})
    roles = {"Master": 1, "Worker": rng.randint(1, 3)}
    sets = {role: (pods_drawn(rng, name, "pytorch"), pods) for role, pods in roles.items()}
    return World(name, made, others, daemons, sets)


def daemon_set_drawn(rng: Random, name: str) -> Manifest:
    """Return a DaemonSet where its pods to come are counted, for all nodes of a world but perhaps the slow."""
    labels, template = {"daemon": name}, pod_template(rng.choice((0, 0, 1)), cpu=rng.choice(("500m", "1", "2")))
    slow = [{"key": SLOW["key"], "operator": "Exists"}] if rng.random() < 0.5 else []
    template["metadata"]["labels"] = labels
    template["spec"] |= {
        "restartPolicy": "Always",
        "nodeSelector": {"world": name},
        "tolerations": [{"key": name, "operator": "Exists"}, *slow],
    }
    metadata = {"name": name, "namespace": DAEMONS, "labels": {"worlds": name.rpartition("-")[0]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}


def pods_drawn(rng: Random, name: str, container: str) -> Manifest:
    """Return a template of pods that are choosy in the ways that Tutti knows, mostly in none or one of them."""
    template = pod_template(rng.choice((0, 1, 1, 2, 2, 4)), container=container, cpu=rng.choice(("100m", "1", "3")))
    spec = template["spec"]
    main = spec["containers"][0]
    if rng.random() < 0.2:
        main["resources"]["requests"]["memory"] = "1Gi"
    if rng.random() < 0.2:
        first = {"name": "first", "image": main["image"], "securityContext": main["securityContext"]}
        first |= {"resources": {"requests": {"cpu": rng.choice(("1", "2"))}}}
        spec["initContainers"] = [first | ({"restartPolicy": "Always"} if rng.random() < 0.5 else {})]
    if rng.random() < 0.25:
        spec["nodeSelector"] = {"pool": rng.choice("ab")}
    if rng.random() < 0.35:
        terms = [term_drawn(rng, name) for _ in range(rng.choice((1, 1, 2)))]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    if rng.random() < 0.4:
        spec["tolerations"] = rng.sample(TOLERATIONS, rng.choice((1, 1, 2)))
    if rng.random() < 0.15:
        spec["runtimeClassName"] = RUNTIME_CLASS
    on_node = rng.random() < 0.15
    if on_node:
        spec["hostNetwork"] = True
    if rng.random() < 0.15:
        taken = {"containerPort": PORT, "protocol": rng.choice(("TCP", "UDP"))}
        main["ports"] = [taken | ({} if on_node else {"hostPort": PORT})]
    return template


def term_drawn(rng: Random, name: str) -> Manifest:
    """Return a term of node affinity: by labels, by a node's name, by both, or by nothing."""
    asked = rng.sample(REQUIREMENTS, rng.choice((0, 1, 1, 2)))
    term: Manifest = {"matchExpressions": asked} if asked else {}
    if rng.random() < 0.25:
        node = f"{name}-{rng.randint(0, 3)}"
        term["matchFields"] = [{"key": "metadata.name", "operator": rng.choice(("In", "NotIn")), "values": [node]}]
    return term


@pytest.fixture
def worlds(admin: Kubectl) -> Iterator[dict[str, World]]:
    """Worlds side by side on one cluster, as they are before their gangs come."""
    # Ports of a node are for the privileged.
    admin("label", "namespace", admin.namespace, "pod-security.kubernetes.io/enforce=privileged", "--overwrite")
    rng = Random(SEED)
    made = [drawn(rng, f"{admin.namespace}-w{number}") for number in range(WORLDS)]
    every = [node for world in made for node in world.nodes]
    for each in every:
        each["metadata"]["labels"]["worlds"] = admin.namespace
    create(admin, [*every, *(each for world in made for each in world.policy)])
    create(admin, [runtime_class()])
    others = [each for world in made for each in world.others]
    create(admin, others)
    wait_until(lambda: len(admin.pods(phase="Running")) == len(others), 180, "what was there before runs")
    daemons = [each for world in made for each in world.daemons]
    create(admin.in_namespace(DAEMONS), daemons)
    wait_until(lambda: all_have_pods(admin, len(daemons)), 180, "the pods of DaemonSets are made, if not bound")
    yield {world.name: world for world in made}
    admin("delete", "daemonset", "-n", DAEMONS, "-l", f"worlds={admin.namespace}", "--wait=false")
    admin("delete", "--raw", f"/api/v1/nodes?labelSelector=worlds%3D{admin.namespace}")
    admin.delete("runtimeclass", RUNTIME_CLASS)


def runtime_class() -> Manifest:
    """Return a RuntimeClass whose pods run on some nodes only, also on slow ones, and cost more."""
    scheduling = {"nodeSelector": {SANDBOX: "yes"}, "tolerations": [{"key": SLOW["key"], "operator": "Exists"}]}
    added = {"overhead": {"podFixed": {"cpu": "1"}}, "scheduling": scheduling}
    metadata = {"name": RUNTIME_CLASS}
    return {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "sandbox", "metadata": metadata, **added}


def all_have_pods(admin: Kubectl, daemon_sets: int) -> bool:
    """Return whether each DaemonSet has a pod for each of its nodes: who is bound first is seen in what is decided."""
    found = [each["status"] for each in admin.in_namespace(DAEMONS).items("daemonsets", f"worlds={admin.namespace}")]
    return len(found) == daemon_sets and all(
        each.get("observedGeneration") and each["currentNumberScheduled"] == each["desiredNumberScheduled"]
        for each in found
    )


def create(kubectl: Kubectl, manifests: list[Manifest]) -> None:
    kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(manifests), timeout_seconds=300)


def decisions(owner: Kubectl) -> dict[str, bool]:
    """Return of each gang that was decided about whether it was started."""
    found: dict[str, bool] = {}
    for each in owner.items("workloads.visibility.tutti.dev"):
        name, status = each["metadata"]["ownerReferences"][0]["name"], each["status"]
        if "admission" in status or status.get("reason", {}).get("code") == "NodesDoNotFit":
            found[name] = "admission" in status
    return found


def pods_of(pods: list[Manifest], label: str, name: str) -> list[Manifest]:
    return [each for each in pods if each["metadata"].get("labels", {}).get(label) == name]


def gang_pods(pods: list[Manifest], world: World) -> list[Manifest]:
    label = "batch.kubernetes.io/job-name" if "main" in world.templates else "training.kubeflow.org/job-name"
    return pods_of(pods, label, world.name)


def tried(each: Manifest) -> bool:
    """Return whether kube-scheduler has looked at a pod."""
    return any(found["type"] == "PodScheduled" for found in each["status"].get("conditions", ()))


def test_what_is_started_is_bound_whole_and_what_fits_no_nodes_could_not_be(
    admin: Kubectl, owner: Kubectl, worlds: dict[str, World]
) -> None:
    create(owner, [world.gang for world in worlds.values()])
    found = wait_until(
        lambda: (seen := decisions(owner)).keys() == worlds.keys() and seen, 180, "all are decided about"
    )
    started = [worlds[name] for name, fits in found.items() if fits]
    equal = [worlds[name] for name, fits in found.items() if not fits and "main" in worlds[name].templates]
    assert started, "no world lets a gang start"
    assert equal, "every world lets its gang start"

    def not_whole() -> list[str]:
        pods = owner.pods(phase="Running")
        wanted = {world.name: sum(count for _, count in world.templates.values()) for world in started}
        return [world.name for world in started if len(gang_pods(pods, world)) != wanted[world.name]]

    wait_until(lambda: not not_whole(), 180, "what was started is bound whole")
    create(owner, [each for world in equal for each in world.loose])
    wait_until(lambda: all(tried(each) for each in owner.items("pods", "loose")), 180, "the scheduler has tried")
    bound = owner.items("pods", "loose")
    for world in equal:
        of_world = pods_of(bound, "loose", world.name)
        assert any("nodeName" not in each["spec"] for each in of_world), f"{world.name} would have fitted: {world}"
    whole = sum(count for world in started for _, count in world.templates.values())
    some = sum("nodeName" in each["spec"] for each in bound)
    print(
        f"{len(worlds)} worlds: {len(started)} gangs started, all {whole} pods bound; {len(found) - len(started)} told "
        f"that they fit nowhere, of which {len(equal)} of equal pods, where the scheduler bound {some} of {len(bound)}"
    )
