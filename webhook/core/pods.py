"""One pod as the fences and the quorum see it, projected from the API server's object."""

from dataclasses import dataclass

from webhook.core.gang import PodPrice


@dataclass(frozen=True, slots=True)
class PodRecord:
    """The few facts about a pod that decide what it counts against."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    price: PodPrice
    gang: str | None = None
    """Uid in its gang label; None for a loose pod or one whose gang was never admitted."""
    pod_set: str = ""
    phase: str = "Pending"
    terminating: bool = False
    gated: bool = False
    """It carries our scheduling gate."""
    ready: bool = False
    node: str = ""
    owner_uid: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    """PodGroup labels and queue labels only."""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def terminal(self) -> bool:
        """It has ended and holds nothing (a ResourceQuota no longer counts it)."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def live(self) -> bool:
        """It counts as a member of its gang: neither ended nor being deleted."""
        return not self.terminal and not self.terminating
