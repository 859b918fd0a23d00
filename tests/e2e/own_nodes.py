"""Nodes that one namespace has for itself, with a flavor and a queue for them."""

from collections.abc import Mapping
from typing import Any, Final

from tests.e2e.controlplane import nodes
from tests.e2e.kubectl import Kubectl
from tests.e2e.objects import pod, pod_template
from tests.e2e.queues import QUEUE, cluster_queue_of

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
SECONDS: Final = 30
ROW: Final = "example.com/row"
"""Label of nodes: half of them are in each row."""
BLOCK: Final = "example.com/block"
"""Label of nodes: all rows are in one block."""


def own_nodes(
    admin: Kubectl,
    count: int,
    *,
    queues: Mapping[str, int] | None = None,
    has: Mapping[str, str] | None = None,
    **of_flavor: str,
) -> list[str]:
    """Make nodes of 8 GPUs that one namespace uses alone, with a flavor; return their names.

    ``queues`` are the GPUs of each queue by its name, otherwise one has them all; ``has`` is what each node has beside
    the usual or in its place.
    """
    name, taint = admin.namespace, {"key": admin.namespace, "effect": "NoSchedule"}
    names = [f"{name}-{number}" for number in range(count)]
    objects = [own_node(admin, each, has or {}, "left" if each in names[: count // 2] else "right") for each in names]
    tolerations = [{"key": name, "operator": "Exists"}]
    spec = {"nodeLabels": {"rack": name}, "nodeTaints": [taint], "tolerations": tolerations, **of_flavor}
    objects.append({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec})
    for each, gpus in (queues or {QUEUE: 8 * count}).items():
        queue = cluster_queue_of(f"{name}-{each}", gpus)
        queue["spec"]["resourceGroups"][0]["flavors"][0]["name"] = name
        queue["spec"]["preemption"] = {"withinClusterQueue": "LowerPriority"}
        local = {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": each}}
        objects += [queue, local | {"spec": {"clusterQueue": f"{name}-{each}"}}]
    admin.set_up(*objects)
    # A node bears a taint until its kubelet has reported: a gang that came before would find room on some of them only.
    admin("wait", "--for=condition=Ready", f"--timeout={SECONDS}s", *(f"node/{each}" for each in names))
    return names


def own_node(admin: Kubectl, name: str, has: Mapping[str, str], row: str = "left") -> dict[str, Any]:
    """Return a node of 8 GPUs for one namespace; ``has`` is what it has otherwise."""
    made = nodes.node(name, 8)
    made["metadata"]["labels"] |= {"rack": admin.namespace, BLOCK: "hall", ROW: row}
    made["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "fake"}
    made["status"] = {key: {**amounts, **has} for key, amounts in made["status"].items()}
    return {**made, "spec": {"taints": [{"key": admin.namespace, "effect": "NoSchedule"}]}}


def on(node: str, gpus: int) -> dict[str, Any]:
    """Return a pod of nobody's queue that takes so many GPUs of a node."""
    template = pod_template(gpus)
    template["spec"] |= {"nodeName": node}
    return pod(f"other-{node.rpartition('-')[2]}", template)


def running(owner: Kubectl, name: str) -> int:
    """Return how many pods of a Job run."""
    return len(owner.pods(f"job-name={name}", "Running"))
