"""A node as far as placement needs it, projected from the API server's object, and a pod that is bound to one."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from webhook.core.model.policy import Taint
from webhook.core.notation.amounts import Amounts
from webhook.core.notation.names import NODE_NAME

PODS = "pods"
"""The resource of which each pod takes one."""
UNBOUNDED = 1 << 60
"""More than any node has, for what is not limited."""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node."""

    name: str
    allocatable: Amounts = field(default_factory=dict)
    """In thousandths of a unit. Of what is not stated there is none, but for pods: of these any number."""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    cordoned: bool = False
    """``spec.unschedulable``."""

    @property
    def capacity(self) -> Amounts:
        """What it has to give, pods included."""
        return self.allocatable if PODS in self.allocatable else {**self.allocatable, PODS: UNBOUNDED}

    def value(self, key: str) -> str | None:
        """Return the value of a label, or the node's own name, which affinity may ask for like one."""
        return self.name if key == NODE_NAME else self.labels.get(key)

    @property
    def usable(self) -> bool:
        """New pods may come at all."""
        return self.ready and not self.cordoned


@dataclass(frozen=True, slots=True)
class Bound:
    """A pod that holds room on a node."""

    node: str
    requests: Amounts
    gang: str | None = None
    """Uid of its gang."""
    pod_set: str = ""
    owner: str = ""
    """Uid of its controller."""
