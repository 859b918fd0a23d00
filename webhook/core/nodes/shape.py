"""What the pods of one set ask of a node. Sets of equal shape fit the same nodes, so they share one ranking.

Follows kube-scheduler's filters NodeResourcesFit, NodeAffinity (required), TaintToleration and NodePorts.
"""

from collections.abc import Callable, Mapping
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
FEW_TOLERATIONS: Final = 8
"""More are not compared with a node each time that it is looked at."""


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
    _hash: int = field(default=0, init=False, repr=False, compare=False)
    _kind: "Shape | None" = field(default=None, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        """Worked out once: node affinity may have hundreds of parts, and shapes are looked up all the time."""
        if not self._hash:
            mine = (self.requests, self.selector, self.affinity, self.tolerations, self.levels, self.ports)
            object.__setattr__(self, "_hash", hash(mine))
        return self._hash

    @property
    def kind(self) -> "Shape":
        """The same without what it requests: which nodes keep its pods away for good does not depend on that."""
        if not (self.requests or self.ports):
            return self
        if self._kind is None:
            object.__setattr__(self, "_kind", replace(self, requests=(), ports=()))
        assert self._kind is not None
        return self._kind

    @property
    def parts(self) -> int:
        """How much there is to compare with nodes: labels, tolerations, and terms, requirements and values."""
        requirements = [requirement for term in self.affinity for requirement in term]
        of_affinity = len(self.affinity) + sum([1 + len(each.values) for each in requirements])
        return len(self.selector) + len(self.tolerations) + of_affinity

    @property
    def is_plain(self) -> bool:
        """Whether a node says at once, by itself, if it may take its pods."""
        return not self.affinity and len(self.tolerations) <= FEW_TOLERATIONS

    @property
    def uses(self) -> dict[str, int]:
        """What one pod takes of a node: amounts, and ports, of which a node is said to have none to begin with."""
        return {**dict(self.requests), **dict.fromkeys(self.ports, MILLI)}

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
        why = why_not_in(node.ready, node.cordoned, node.taints, self._bears)
        if why is not None:
            return why
        for key, value in self.selector:
            if node.labels.get(key) != value:
                return unlabelled(f"{key}={value}")
        if self.affinity and not any(all(_holds(r, node) for r in term) for term in self.affinity):
            return OUTSIDE_AFFINITY
        return next((unlabelled(level) for level in self.levels if level not in node.labels), None)

    def _bears(self, taint: Taint) -> bool:
        return any(tolerates(each, taint) for each in self.tolerations)

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


def why_not_in(ready: bool, cordoned: bool, taints: tuple[Taint, ...], bears: Callable[[Taint], bool]) -> str | None:
    """Return what keeps pods away from a node, whatever its labels say, where they are such as bear some taints."""
    if cordoned and not bears(CORDON):
        return "cordoned"
    if not ready:
        return "not ready"
    kept = next((taint for taint in taints if _keeps_out(taint) and not bears(taint)), None)
    return None if kept is None else f"{TAINT} {kept.key} not tolerated"


def unlabelled(label: str) -> str:
    """Return what is said of nodes without a label."""
    return intern(f"{WITHOUT_LABEL} {label}")


def _holds(requirement: Requirement, node: NodeRecord) -> bool:
    labels = {NODE_NAME: node.name} if requirement.key == NODE_NAME else node.labels
    return requirement_holds(requirement, labels)


def _keeps_out(taint: Taint) -> bool:
    return taint.effect in ("NoSchedule", "NoExecute")
