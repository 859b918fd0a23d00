"""Why a gang waits: one typed reason, whose text is made here or from its parts.

The event, the read API's conditions, ``tutti explain`` and the metric label are all made of it.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from webhook.core.notation import counted_jobs, quantity
from webhook.core.reasons.blockers import Blocker


class Code(StrEnum):
    """Kinds of reason; CamelCase as in conditions. The first group uses Kueue's names where Kueue has one."""

    NO_MATCHING_FLAVOR = "NoMatchingFlavor"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    WAITING_FOR_PREEMPTED = "WaitingForPreemptedWorkloads"
    MISCONFIGURED = "Misconfigured"
    SUSPENDED = "Suspended"
    ON_HOLD = "OnHold"
    TERMINATING = "Terminating"
    PENDING_EVALUATION = "PendingEvaluation"
    ADMISSION_GATED = "AdmissionGated"
    TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"

    FENCED = "ResourceQuotaExceeded"
    NODES_DO_NOT_FIT = "NodesDoNotFit"
    BEHIND_HEAD = "BehindHead"
    BEHIND_STARVED = "BehindStarvedQueue"
    BACKING_OFF = "BackingOff"
    QUEUE_NOT_FOUND = "QueueNotFound"
    POD_GROUP_NOT_FOUND = "PodGroupNotFound"
    POD_GROUP_INCOMPLETE = "PodGroupIncomplete"
    PRIORITY_CLASS_NOT_FOUND = "PriorityClassNotFound"
    WAITING_FOR_PODS = "WaitingForPods"
    LEDGER_FULL = "LedgerFull"
    ENTRY_TOO_LARGE = "ReservationTooLarge"
    NAMESPACE_NOT_FENCED = "NamespaceNotFenced"
    WRITE_REFUSED = "WriteRefused"
    UNREADABLE = "Unreadable"
    KIND_UNREAD = "KindUnread"


_NEVER: Final = frozenset(
    {
        Code.NO_MATCHING_FLAVOR,
        Code.EXCEEDS_MAX_QUOTA,
        Code.MISCONFIGURED,
        Code.QUEUE_NOT_FOUND,
        Code.POD_GROUP_NOT_FOUND,
        Code.PRIORITY_CLASS_NOT_FOUND,
        Code.ENTRY_TOO_LARGE,
        Code.UNREADABLE,
    }
)


@dataclass(frozen=True, slots=True)
class Holder:
    """Somebody who holds some of what is missing."""

    gang: str
    """``namespace/name`` of an admitted gang, or ``loose pods``."""
    amount: int


@dataclass(frozen=True, slots=True)
class Reason:
    """Why not now: which queue, cohort or fence, which resource, the numbers, who holds it and what would help."""

    code: Code
    message: str = ""
    """Free text where the numbers do not tell it all."""
    where: str = ""
    """The queue, cohort or ``ResourceQuota namespace/name`` that says no."""
    resource: str = ""
    flavor: str = ""
    asked: int | None = None
    used: int | None = None
    limit: int | None = None
    """What it can hold at most, now."""
    holders: tuple[Holder, ...] = field(default=())
    help: str = ""
    """What would have to end or change for the gang to start."""
    blockers: tuple[Blocker, ...] = ()
    """The same as values, where numbers say it."""
    is_beyond: bool = False
    """It asks more than there is when nothing else runs, where its code does not tell."""

    @property
    def is_never(self) -> bool:
        """Whether it cannot start, whatever ends: what it asks has to change, or what there is."""
        return self.is_beyond or self.code in _NEVER

    def __str__(self) -> str:
        parts = [self.message] if self.message else []
        if self.asked is not None:
            parts.append(f"asks for {counted_jobs.amount_text(self.asked, self.resource)}")
        if self.limit is not None:
            used = "" if self.used is None else f", {self._amount(self.used)} used"
            parts.append(f"{self.where} has {self._amount(self.limit)}{used}")
        elif self.where and not self.message:
            parts.append(f"at {self.where}")
        if self.holders:
            parts.append("held by " + ", ".join(f"{h.gang} ({self._amount(h.amount)})" for h in self.holders))
        if self.help:
            parts.append(self.help)
        return "; ".join(parts) or self.code

    def _amount(self, thousandths: int) -> str:
        return quantity.render(thousandths, self.resource)
