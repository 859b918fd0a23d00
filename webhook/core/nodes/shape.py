"""What the pods of one set ask of a node. Sets of equal shape fit the same nodes, so they share one ranking.

Follows kube-scheduler's filters NodeResourcesFit, NodeAffinity (required), TaintToleration and NodePorts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from sys import intern
from typing import Final

from webhook.core.model.gang import PodSet, Requirement, Toleration
from webhook.core.model.policy import Flavor, Taint, requirement_holds, tolerates
from webhook.core.nodes.node import PODS, UNBOUNDED, NodeRecord
from webhook.core.notation.names import NODE_NAME
from webhook.core.notation.quantity import MILLI

CORDON = Taint("node.kubernetes.io/unschedulable")
"""A pod that tolerates it is bound to a cordoned node all the same."""
WITHOUT_LABEL: Final = "without label"
OUTSIDE_AFFINITY: Final = "outside its node affinity"
TAINT: Final = "with taint"


@dataclass(frozen=True, slots=True)
class Shape:
    """Hashable; amounts in thousandths, sorted by name."""

    requests: tuple[tuple[str, int], ...] = ()
    selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[tuple[Requirement, ...], ...] = ()
    """Any term must hold; none: every node."""
    tolerations: tuple[Toleration, ...] = field(default=())
    levels: tuple[str, ...] = ()
    """Labels that a node has to bear, whatever their values: those of the flavor's topology."""
    ports: tuple[str, ...] = ()
    """Ports of the node itself (``TCP/29500``), each of which one pod has at a time."""

    @property
    def uses(self) -> dict[str, int]:
        """What one pod takes of a node: amounts, and ports, of which a node is said to have none to begin with."""
        return {**dict(self.requests), **dict.fromkeys(self.ports, MILLI)}

    @property
    def keys(self) -> tuple[str, ...]:
        """The labels of nodes whose values matter to it."""
        of_affinity = [requirement.key for term in self.affinity for requirement in term]
        return tuple(dict.fromkeys([*(key for key, _ in self.selector), *of_affinity]))

    def within(self, domain: Mapping[str, str]) -> "Shape":
        """Return the same, of pods that may go only to nodes with the labels of ``domain``."""
        return replace(self, selector=tuple(sorted({**dict(self.selector), **domain}.items()))) if domain else self

    def admits(self, node: NodeRecord) -> bool:
        """Return whether a pod may go to ``node``, whatever is free there."""
        if not node.usable or node.taints or self.affinity:
            return self.why_not(node) is None
        labels = node.labels
        for level in self.levels:
            if level not in labels:
                return False
        for key, value in self.selector:  # noqa: SIM110 - asked of every node of a cluster
            if labels.get(key) != value:
                return False
        return True

    def why_not(self, node: NodeRecord) -> str | None:
        """Return what keeps the pods away from ``node`` for good, in a few words; None when nothing does."""
        if node.cordoned and not any(tolerates(each, CORDON) for each in self.tolerations):
            return "cordoned"
        if not node.ready:
            return "not ready"
        for taint in node.taints:
            if _keeps_out(taint) and not any(tolerates(each, taint) for each in self.tolerations):
                return f"{TAINT} {taint.key} not tolerated"
        for key, value in self.selector:
            if node.labels.get(key) != value:
                return intern(f"{WITHOUT_LABEL} {key}={value}")
        if self.affinity and not any(all(_holds(r, node) for r in term) for term in self.affinity):
            return OUTSIDE_AFFINITY
        return next((f"{WITHOUT_LABEL} {level}" for level in self.levels if level not in node.labels), None)

    def amount(self, resource: str) -> int:
        """Return what one pod asks of ``resource``."""
        return next((amount for name, amount in self.requests if name == resource), 0)

    def fits(self, free: Mapping[str, int]) -> int:
        """Return how many of the pods ``free`` amounts hold."""
        most = UNBOUNDED
        for name, amount in self.requests:
            count = free.get(name, 0) // amount
            if count < most:  # noqa: PLR1730 - asked of every node of a cluster
                most = count
        return max(self.with_ports(most, free), 0) if self.ports else max(most, 0)

    def with_ports(self, count: int, free: Mapping[str, int]) -> int:
        """Return how many of ``count`` pods find their ports unused; ``free`` is below 0 of those that are used."""
        return min(count, 0 if any(free.get(port, 0) < 0 for port in self.ports) else 1)


def shape_of(pod_set: PodSet, flavors: Mapping[str, Flavor] | None = None) -> Shape:
    """Return the shape of ``pod_set`` started on ``flavors`` (by name), whose labels and tolerations it gets."""
    selector, tolerations = dict(pod_set.node_selector), list(pod_set.tolerations)
    levels = dict[str, None]()
    for flavor in (flavors or {}).values():
        levels |= dict.fromkeys(flavor.levels)
        selector |= flavor.node_labels
        tolerations += flavor.tolerations
    requests = {name: amount for name, amount in pod_set.price.requests.items() if amount > 0}
    return Shape(
        tuple(sorted({**requests, PODS: MILLI}.items())),
        tuple(sorted(selector.items())),
        pod_set.node_affinity,
        tuple(tolerations),
        tuple(levels),
        pod_set.host_ports,
    )


def _holds(requirement: Requirement, node: NodeRecord) -> bool:
    labels = {NODE_NAME: node.name} if requirement.key == NODE_NAME else node.labels
    return requirement_holds(requirement, labels)


def _keeps_out(taint: Taint) -> bool:
    return taint.effect in ("NoSchedule", "NoExecute")
