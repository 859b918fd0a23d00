"""What a story shows of the thing that its weather is named for: a weather in which it hardly happens tests nothing."""

from collections import Counter
from typing import Any, Final

from tests.simulation import shapes
from tests.simulation.gating import moment_of
from tests.simulation.lent_pods import PREFIX as LENT
from tests.simulation.limits import LIMITS
from tests.simulation.load import MESH, how_it_ended
from tests.simulation.shapes import is_suspended
from tests.simulation.shut_kinds import MOMENTS
from tests.simulation.world import World
from webhook.clock import LoopClock
from webhook.core.ledger.record import Reservation
from webhook.core.notation import names
from webhook.jobs.plain_pods.groups import POD_GROUP
from webhook.kube.election import leader_of, readable_seconds
from webhook.laboratory.simulated.controllers.indexes import parse_indexes
from webhook.laboratory.simulated.objects.store import Event

SLOW_SECONDS: Final = 10
"""No pod takes that long to stop where it is not slow."""
KINDS: Final = ("Job", "JobSet", "PyTorchJob")
CHANGES: Final = ("label", "move", "own", "hand_over", "resize", "ask_more", "suspend", "annotate")
"""What hostile tenants do to their jobs: labels, queues, owners, managedBy, sizes, templates and the like."""
HOSTILE: Final = (
    {f"{change} {kind}": 1 for change in CHANGES for kind in shapes.KINDS}
    | {f"{change} {moment}": 10 for change in CHANGES for moment in ("waiting", "running")}
    | {f"{change} stored": 5 for change in CHANGES}
)
"""Each change of each kind, while it waits and while it runs; and not all of them are refused."""
REFUSED_LATER: Final = {f"refused while {moment}": 2 for moment in MOMENTS} | {"started beside an unread kind": 5}
UNGATED: Final = {
    "un-gated with a group any": 3,
    "un-gated with a gang without a queue starting": 1,
    "un-gated with a gang without a queue stopping": 1,
    "LocalQueue deleted un-gated": 1,
}
"""Plain pods run, gangs start or are being stopped while somebody un-gates, and LocalQueues are missing then."""
BORROWING: Final = {f"{queue} borrows": 1 for queue in LIMITS} | {"stopped for Preempted": 1}
SEEDS: Final = (1, 2, 3, 4, 5)
"""Stories that are told while it is counted, and not a second time."""
SHOWN: Final = {
    "calm with adopted jobs": {"stopped adopted": 3, "started adopted": 3, "held": 3},
    "rough with adopted jobs": {"stopped adopted": 3, "started adopted": 3, "held": 1},
    "calm with jobs of CronJobs": {"started of a CronJob": 10},
    "rough with jobs of CronJobs": {"started of a CronJob": 10},
    "calm with credits and a ledger lost": {"rebuilt with a charge": 5},
    "rough with credits and a ledger lost": {"rebuilt with a charge": 5},
    "calm with kinds that nobody can list": {"started beside an unread kind": 5},
    "rough with kinds that nobody can list": {"started beside an unread kind": 5},
    "calm with kinds refused later": REFUSED_LATER,
    "rough with kinds refused later": REFUSED_LATER,
    "calm with namespaces ungated": {"started un-gated": 5, "stopped un-gated": 1},
    "rough with namespaces ungated": {"started un-gated": 5, "stopped un-gated": 1},
    "calm with plain pods and namespaces ungated": UNGATED,
    "rough with plain pods and namespaces ungated": UNGATED,
    "calm with injected sidecars": {"pod with a sidecar": 15},
    "rough with injected sidecars and a ledger lost": {"pod with a sidecar": 15},
    "calm with hostile tenants of all kinds": HOSTILE,
    "rough with hostile tenants of all kinds": HOSTILE,
    "calm with a bug of ours": {"failed in decide": 6, "failed in grow": 1, "failed in why_waiting": 1},
    "rough with a bug of ours": {"failed in decide": 6, "failed in why_waiting": 1},
    "calm with new policy": {"queue deleted in use": 1},
    "rough with new policy": {"queue deleted in use": 1},
    "calm with pages put back": {"page put back": 1, "page put back while nobody led": 1},
    "rough with pages put back": {"page put back": 1, "page put back while nobody led": 1},
    "crashing with deaths told": {"lease of the dead taken early": 2},
    "calm with deaths imagined": {"lease of the living taken early": 2},
    "rough with deaths imagined": {"lease of the dead taken early": 1, "lease of the living taken early": 1},
    "rough with deaths imagined and pages": {"lease of the living taken early": 2},
    "crashing with deaths imagined and pod groups": {"lease of the dead taken early": 2},
    "calm with many shapes": {"put off": 5},
    "rough with many shapes": {"put off": 5},
    "crashing with many shapes on nodes that come and go": {"put off": 5},
    "calm with indexes that fail": {"index failed": 5, "JobSet restarted": 5},
    "rough with indexes that fail": {"index failed": 5, "JobSet restarted": 5},
    "calm with pods that start slowly": {"stopped for PodsReadyTimeout": 5},
    "rough with pods that start slowly": {"stopped for PodsReadyTimeout": 5},
    "calm with pods that stop slowly": {"pod stopped slowly": 1},
    "crashing with pods that stop slowly on few nodes": {"pod stopped slowly": 1},
    "calm with work queues": {"started without completions": 1, "failed after a success": 1},
    "rough with work queues": {"started without completions": 1, "stopped without completions": 1},
    "calm with quotas made narrower and wider": {"quota changed": 1, "quota below its use": 1},
    "rough with quotas made narrower and wider": {"quota changed": 1, "quota below its use": 1},
    "calm with processes cut off": {"leader cut off": 1, "standby cut off": 1, "webhook cut off": 1},
    "rough with processes cut off": {"leader cut off": 1, "standby cut off": 1, "webhook cut off": 1},
    "calm with limits to lending": BORROWING,
    "rough with limits to lending": BORROWING,
    "calm with fair shares": BORROWING,
    "rough with fair shares": BORROWING,
    "calm with two flavors in racks": {"on fast": 1, "on slow": 1},
    "rough with a quota tree": {"stopped for Preempted": 1},
    "calm with priorities": {"stopped for Preempted": 5},
    "rough with two flavors": {"on fast": 10, "on slow": 8, "on another flavor than before": 1},
    "crashing with two flavors on few nodes": {"on fast": 10, "on slow": 8, "on another flavor than before": 1},
    "calm with elastic jobs": {"started with fewer": 1, "scaled": 5},
    "rough with elastic jobs": {"started with fewer": 1, "scaled": 5},
    "crashing with elastic jobs that stop slowly on few nodes": {"started with fewer": 1, "scaled": 1},
    "calm with pods lent": {"lent pod adopted": 5, "lent ended": 5},
    "rough with pods lent": {"lent pod adopted": 5, "lent ended": 5},
    "calm with a ledger edited": {"annotated": 3, "added": 3, "changed": 3, "removed": 3},
    "slow with a ledger edited and pages": {"annotated": 3, "added": 3, "removed": 2},
    "calm with a ledger put back": {"index put back while nobody led": 1},
    "rough with a ledger put back": {"index put back while nobody led": 1},
}
"""Weather to what these show of it, and how often at least."""


class Sights:
    """Counts in ``seen`` what is stored in one world."""

    def __init__(self, world: World) -> None:
        self.seen = Counter[str]()
        self._world = world
        self._deleted: dict[str, float] = {}
        """By uid of a pod: since when it is being stopped."""
        self._gated: dict[str, bool] = {}
        self._adopted: set[str] = set()
        self._borrows: set[str] = set()
        self._entries: dict[str, tuple[str, str | None, float]] = {}
        """By uid of a gang: its flavor, why it is being stopped, and since when it runs."""
        world.cluster.server.store.subscribe(self._stored)

    def counted(self) -> Counter[str]:
        """Return what happened, once the story is over."""
        rebuilt = self._world.invariants.rebuilt
        self.seen["rebuilt with a charge"] = sum(any(each.charge for each in entry.pod_sets) for entry in rebuilt)
        self.seen.update({f"failed in {what}": times for what, times in self._world.bugs.met.items()})
        self.seen.update(self._world.edited)
        self.seen.update({f"{who} cut off": times for who, times in self._world.cut_off.items()})
        self.seen["held"] = len(self._world.owners.held)
        self.seen.update(self._world.hostile.did)
        self.seen.update(self._world.lent.did)
        self.seen["put off"] = self._world.kept_nodes.put_off
        self.seen.update(f"refused while {moment}" for moment in self._world.shut_kinds.met)
        for (page, led), times in self._world.put_back.items():
            self.seen[f"{'page' if page else 'index'} put back{'' if led else ' while nobody led'}"] += times
        return self.seen

    def _stored(self, event: Event) -> None:
        item, metadata = event.current.object, event.current.object["metadata"]
        labels = metadata.get("labels") or {}
        if item.get("kind") == "Pod":
            self._stops(event)
        match item.get("kind"):
            case "Pod" if event.type == "ADDED" and names.GANG_LABEL in labels:
                containers = item["spec"].get("initContainers") or ()
                self.seen["pod with a sidecar"] += any(each["name"] == MESH for each in containers)
            case "Pod" if event.previous is not None and metadata["name"].startswith(LENT):
                owned = [each["metadata"].get("ownerReferences") for each in (event.previous.object, item)]
                self.seen["lent pod adopted"] += owned[0] is None and owned[1] is not None
            case "ResourceQuota" if event.previous is not None:
                hard, had = (each["spec"]["hard"] for each in (item, event.previous.object))
                used = (item.get("status") or {}).get("used") or {}
                below = any(int(used.get(key, 0)) > int(amount) for key, amount in hard.items())
                self.seen["quota changed"] += hard != had
                self.seen["quota below its use"] += hard != had and below
            case "Namespace":
                gated, before = names.GATED_NAMESPACE in labels, self._gated.get(metadata["name"])
                if before and not gated:
                    self._ungated(metadata["name"])
                self._gated[metadata["name"]] = gated
            case "LocalQueue" if event.type == "DELETED":
                self.seen["LocalQueue deleted un-gated"] += self._gated.get(metadata["namespace"]) is False
            case "ConfigMap":
                entries = self._world.invariants.ledger.entries.items()
                self._adopted |= {uid for uid, entry in entries if entry.adopted}
                for uid, entry in entries:
                    self._reserved(uid, entry)
                if self._world.weather.limits:
                    self._borrowing()
                self._lease(event)
            case "ClusterQueue" if event.type == "DELETED":
                entries = self._world.invariants.ledger.entries.items()
                self.seen["queue deleted in use"] += any(entry.queue == metadata["name"] for _, entry in entries)
            case kind if kind in KINDS and event.previous is not None:
                self._job(kind, event.previous.object, item)

    def _stops(self, event: Event) -> None:
        now, uid = LoopClock().now(), event.current.uid
        if "deletionTimestamp" in event.current.object["metadata"]:
            since = self._deleted.setdefault(uid, now)
            self.seen["pod stopped slowly"] += event.type == "DELETED" and now - since > SLOW_SECONDS

    def _reserved(self, uid: str, entry: Reservation) -> None:
        """Take note of each state of an entry once: on which flavor it is, whether that changed, and why it stops."""
        on = next(iter(entry.pod_sets[0].flavors.values()), "")
        state = on, entry.stopping, entry.since_seconds
        before = self._entries.get(uid, ("", None, 0.0))
        self._entries[uid] = state
        if state != before:
            self.seen[f"stopped for {entry.stopping}"] += entry.stopping is not None
            self.seen[f"on {on}"] += entry.stopping is None
            self.seen["on another flavor than before"] += before[0] not in ("", on)

    def _borrowing(self) -> None:
        """Take note of who begins to hold more than is its own."""
        used = Counter[str]()
        for entry in self._world.invariants.ledger.entries.values():
            used[entry.queue or ""] += sum(entry.counts.values())
        borrows = {queue for queue, each in LIMITS.items() if used[queue] > each.nominal}
        self.seen.update(f"{queue} borrows" for queue in borrows - self._borrows)
        self._borrows = borrows

    def _lease(self, event: Event) -> None:
        before = None if event.previous is None else leader_of(event.previous.object)
        now = leader_of(event.current.object)
        if before is None or now is None or not before.address or now.holder in ("", before.holder):
            return
        if (before.ended_seconds() or 0.0) > (readable_seconds(now.acquired) or 0.0):
            whose = "living" if self._world.deaths.lives(before.address) else "dead"
            self.seen[f"lease of the {whose} taken early"] += 1

    def _ungated(self, namespace: str) -> None:
        for entry in self._world.invariants.ledger.entries.values():
            if entry.namespace == namespace:
                kind = "group" if entry.kind == POD_GROUP.key else "gang" if entry.queue else "gang without a queue"
                self.seen[f"un-gated with a {kind} {moment_of(self._world, entry)}"] += 1

    def _job(self, kind: str, before: dict[str, Any], item: dict[str, Any]) -> None:
        was, metadata = is_suspended(kind, before), item["metadata"]
        now, then = (len(parse_indexes((each.get("status") or {}).get("failedIndexes"))) for each in (item, before))
        self.seen["index failed"] += now > then
        now, then = ((each.get("status") or {}).get("restarts", 0) for each in (item, before))
        self.seen["JobSet restarted"] += now > then
        now, then = ((each.get("status") or {}).get("failed", 0) for each in (item, before))
        lasts = kind == "Job" and not was and "completions" not in item["spec"] and how_it_ended(item) is None
        self.seen["failed after a success"] += lasts and now > then and bool(item["status"].get("succeeded"))
        pods, had = (each["spec"].get("parallelism", 0) for each in (item, before))
        self.seen["started with fewer"] += pods < had and was and not is_suspended(kind, item)
        self.seen["scaled"] += pods != had and not was and not is_suspended(kind, item)
        controllers = [each["kind"] for each in metadata.get("ownerReferences") or () if each.get("controller")]
        if was == is_suspended(kind, item) or controllers == ["JobSet"]:
            return
        act, router = "started" if was else "stopped", self._world.cluster.router
        labels = metadata.get("labels") or {}
        self.seen[f"{act} without completions"] += kind == "Job" and "completions" not in item["spec"]
        self.seen[f"{act} of a CronJob"] += controllers == ["CronJob"]
        self.seen[f"{act} adopted"] += metadata["uid"] in self._adopted
        self.seen[f"{act} beside an unread kind"] += bool(router.unlistable or router.shut)
        if not any(label in labels for label in names.QUEUE_LABELS) and not self._gated.get(metadata["namespace"]):
            self.seen[f"{act} un-gated"] += 1
