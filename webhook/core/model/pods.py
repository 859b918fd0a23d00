"""One pod as the fences and the quorum see it, projected from the API server's object."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from webhook.core.model.frozen import frozen
from webhook.core.model.gang import PodPrice, PodSet


def holds_nothing(phase: str, terminating: bool, node: str) -> bool:
    """Return whether a pod has ended, or never will run.

    What is deleted before it was given a node is given none: a finalizer may keep it for ever, and nothing runs.
    """
    return phase in ("Succeeded", "Failed") or (terminating and not node)


@frozen
class WaitingPod:
    """A pod behind our scheduling gate: what it asks of its gang, and what a patch that lifts the gate must know."""

    asks: PodSet
    """Its pod set, of one pod."""
    labels: Mapping[str, str]
    has_annotations: bool
    node_selector: Mapping[str, str] | None
    """None when the map is absent (a patch must create it)."""
    tolerations: int | None
    """Number of tolerations; None when the list is absent."""
    gate: int
    """Place of our gate in the list of gates."""
    requeue: str = ""
    """Text of the annotation that says from where it was sent back."""
    affinity: Mapping[str, Any] = field(default_factory=dict)
    """What its owner wrote there."""


@frozen
class PodRecord:
    """The few facts about a pod that decide what it counts against."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    price: PodPrice
    gang: str | None = None
    """Uid of its gang; None for a loose pod. A pod that waits behind our gate has one already."""
    pod_set: str = ""
    phase: str = "Pending"
    terminating: bool = False
    gone_by_seconds: float = 0.0
    """Where it is being deleted, the Unix time at which its grace period is over."""
    ready: bool = False
    node: str = ""
    host_ports: tuple[str, ...] = ()
    """Ports of its node that it has, as of ``PodSet``."""
    owner_uid: str = ""
    made_for: str = ""
    """Uid of the object that it was made for by a label of that one's controller, where no owner says so."""
    named: tuple[str, ...] = ()
    """Names of what it was made for, by labels of controllers; empty for one that bears our label."""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels by which it joins a group, and labels of queue, priority class and preemptibility only."""
    group: str = ""
    """The PodGroup that it joined by itself; empty for a pod that belongs to a job."""
    group_size: int = 0
    """How many pods its group has in all, where it is one of Kueue's; 0 for any other."""
    priority: int = 0
    created_seconds: float = 0.0
    """Its ``creationTimestamp``."""
    admission: str = ""
    """Text of the annotation that says with what a pod of a PodGroup was started."""
    unscheduled: str = ""
    """Why the scheduler finds no node for it, in its own words."""
    foreign_gates: tuple[str, ...] = ()
    """Scheduling gates of others that keep it from the scheduler, by name."""
    unstarted: str = ""
    """Why its node cannot start a container of it: a reason and the node's own words."""
    waiting: WaitingPod | None = None
    """It waits behind our scheduling gate."""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def gated(self) -> bool:
        """It carries our scheduling gate."""
        return self.waiting is not None

    @property
    def terminal(self) -> bool:
        """It has ended and holds nothing (of a ResourceQuota, only ``count/pods`` counts it until it is deleted)."""
        return holds_nothing(self.phase, self.terminating, self.node)

    @property
    def live(self) -> bool:
        """It counts as a member of its gang: neither ended nor being deleted."""
        return not self.terminal and not self.terminating
