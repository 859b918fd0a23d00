"""What runs, told from the objects' first versions alone: no label, owner or annotation that is edited later counts.

It is how quota is judged where tenants write what they like: what asked for a queue when it was created, and all that
its controllers made, runs within the quota of all queues together.
"""

import re
from collections.abc import Iterable
from math import inf
from typing import Any, Final

from tests.simulation.hostile import PREFIX
from tests.simulation.load import OLD
from tests.simulation.queues import NOMINAL_GPUS
from tests.simulation.shapes import STORAGES
from webhook.core.ledger.record import Reservation
from webhook.core.notation import names
from webhook.laboratory.simulated.objects.store import Event, Store
from webhook.untyped.values import seconds

MOST_GPUS: Final = sum(NOMINAL_GPUS.values())
PODS: Final = ("", "pods")
GANGS: Final = frozenset(STORAGES.values())
BY_HAND: Final = re.compile(rf"{PREFIX}\d+")
"""Names of what hostile tenants make themselves; what controllers make for them has more."""


class Running:
    """The GPUs of pods that belong to jobs which asked for a queue at their creation."""

    def __init__(self) -> None:
        self._queued: set[str] = set()
        """Uids of jobs that named a queue when they were created, and of all that was made for them."""
        self._gangs: set[str] = set()
        """Uids of objects of job kinds: what these make is no gang of its own."""
        self._plain: set[str] = set()
        """Uids of pods that joined a PodGroup as they were created: others take their places while they still end."""
        self._namespaces: dict[str, str] = {}
        """By uid. An owner of another namespace is none: the garbage collector takes it for gone."""
        self._made_for: dict[str, str] = {}
        """Pod or child to what controlled it when it was created."""
        self._gpus: dict[str, int] = {}
        self._gone_by: dict[str, float] = {}
        """When the grace period of pods that are being deleted is over: what stays is on a node that is silent."""
        self._uncharged: set[str] = set()
        """Uids of jobs that were adopted while the LocalQueue that they name was gone, and of those that ran before
        Tutti came and were deleted before any ledger had them: no queue is charged for their pods.
        """
        self._reserved: set[str] = set()
        """Uids of all that a ledger ever had."""

    def take(self, event: Event) -> None:
        """Take in one stored write."""
        uid, metadata = event.current.uid, event.current.object["metadata"]
        self._namespaces[uid] = metadata.get("namespace", "")
        owner = self._controller(metadata)
        if event.type == "ADDED":
            self._made_for[uid] = owner
            if event.storage in GANGS:
                self._gangs.add(uid)
            if self._asked(metadata):
                self._queued.add(uid)
            if not owner and (metadata.get("labels") or {}).keys() & {*names.POD_GROUP_LABELS}:
                self._plain.add(uid)
        elif not owner and self._made_for.get(uid) and not self._runs(uid):
            # Its owner was deleted above it while it waited: from now on it is a job by itself.
            self._made_for[uid] = ""
            (self._queued.add if self._asked(metadata) else self._queued.discard)(uid)
        if event.type == "DELETED" and metadata["name"].startswith(OLD) and uid not in self._reserved:
            self._uncharged.add(uid)
        if event.storage == PODS:
            self._gpus.pop(uid, None)
            self._gone_by.pop(uid, None)
            if event.type != "DELETED":
                self._gpus[uid] = _gpus(event.current.object)
                if metadata.get("deletionTimestamp"):
                    self._gone_by[uid] = 0.0 if uid in self._plain else seconds(metadata["deletionTimestamp"])

    def take_entries(self, entries: Iterable[Reservation]) -> None:
        """Take note of what is reserved, and of what is charged to no queue."""
        for entry in entries:
            self._reserved.add(entry.uid)
            if entry.adopted and entry.queue is None:
                self._uncharged.add(entry.uid)

    def take_stored(self, store: Store) -> None:
        """Take in what is there already, owners before what they made."""
        for storage in (*reversed(STORAGES.values()), PODS):
            for stored in store.items(storage):
                self.take(Event("ADDED", storage, stored, None))

    def set_back(self, store: Store) -> None:
        """Know the pods that are there once ``store`` was set back. Of what came back it is known how it began."""
        self._gpus.clear()
        self._gone_by.clear()
        for stored in store.items(PODS):
            self.take(Event("MODIFIED", PODS, stored, None))

    def too_much(self, now: float) -> str:
        """Return what runs, if it is more than all queues together have; otherwise nothing."""
        charged = (uid for uid in self._gpus if uid in self._queued and self._top(uid) not in self._uncharged)
        gpus = sum(self._gpus[uid] for uid in charged if now < self._gone_by.get(uid, inf))
        return f"{gpus} GPUs run, all queues together have {MOST_GPUS}" if gpus > MOST_GPUS else ""

    def _top(self, uid: str) -> str:
        while owner := self._made_for.get(uid):
            uid = owner
        return uid

    def _runs(self, uid: str) -> bool:
        return uid in self._gpus or any(self._made_for.get(pod) == uid for pod in self._gpus)

    def _asked(self, metadata: dict[str, Any]) -> bool:
        labels = metadata.get("labels") or {}
        if BY_HAND.fullmatch(metadata["name"]) and not labels.get(names.GANG_LABEL):
            # A controller that its author claims made nothing: it is theirs, and runs by itself.
            return any(labels.get(label) for label in names.QUEUE_LABELS)
        owner = self._controller(metadata)
        if owner in self._gangs:
            # It is part of that one's gang, whatever it names itself.
            return owner in self._queued
        return owner in self._queued or any(labels.get(label) for label in names.QUEUE_LABELS)

    def _controller(self, metadata: dict[str, Any]) -> str:
        owners = (owner["uid"] for owner in metadata.get("ownerReferences") or () if owner.get("controller"))
        owner = next(owners, "")
        return owner if self._namespaces.get(owner) == metadata.get("namespace", "") else ""


def _gpus(pod: dict[str, Any]) -> int:
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed") or pod["spec"].get("schedulingGates"):
        return 0
    containers = pod["spec"]["containers"]
    return sum(int((each.get("resources") or {}).get("requests", {}).get("nvidia.com/gpu", 0)) for each in containers)
