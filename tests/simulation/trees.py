"""What queues own and which cohorts they are below, at one moment, and what that lets gangs hold."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from webhook.core.ledger.record import Reservation

Held = tuple[Reservation, int]
"""An entry of the ledger, and how much it holds, in thousandths."""


@dataclass(frozen=True, slots=True)
class Trees:
    """Policy as administrators wrote it. Cohorts own nothing themselves."""

    queues: Mapping[str, tuple[int, str | None]]
    """Queue to its quota and its cohort."""
    parents: Mapping[str, str | None] = field(default_factory=dict)
    """Each Cohort object to its parent. A cohort that is only named has none."""

    def charged(self, entry: Reservation, cohort: str | None) -> str | None:
        """Return the tree that a gang takes room of.

        Of a queue that was deleted it is the tree of the ``cohort`` that it was last below, where its entry names the
        same; a process that never saw the queue knows no other.
        """
        if entry.queue in self.queues:
            return self._tree(entry.queue)
        return self._top(cohort) if cohort is not None and cohort in entry.cohorts[:1] else None

    def oversubscribed(self, held: Sequence[Held], cohorts: Mapping[str, str | None], asking: Collection[str]) -> str:
        """Return what holds more than its queues own, of the trees of the queues ``asking``; empty when nothing does.

        ``cohorts`` are the last ones of queues that are gone.
        """
        used, room, gangs = dict[str, int](), dict[str, int](), dict[str, list[Reservation]]()
        for entry, amount in held:
            tree = self.charged(entry, cohorts.get(entry.queue or ""))
            if tree is not None:
                used[tree] = used.get(tree, 0) + amount
                gangs.setdefault(tree, []).append(entry)
        for queue, (gpus, _) in self.queues.items():
            room[self._tree(queue)] = room.get(self._tree(queue), 0) + gpus * 1000
        for tree, entries in gangs.items():
            above = self._vanished_below(tree, entries)
            if above is not None:
                used[above] = used.get(above, 0) + max(0, used[tree] - room.get(tree, 0))
        for tree in sorted({self._tree(queue) for queue in asking if queue in self.queues}):
            if used.get(tree, 0) > room[tree]:
                return f"{tree} is oversubscribed in the ledger: {used[tree]} of {room[tree]}"
        return ""

    def _vanished_below(self, tree: str, entries: Sequence[Reservation]) -> str | None:
        """Return the tree that a cohort was in whose object is gone, if the youngest gang of each queue says the same.

        What is borrowed below it stays charged there.
        """
        youngest = {each.queue: each.cohorts for each in sorted(entries, key=lambda e: (e.since_seconds, e.uid))}
        above = {dict(pairwise(cohorts)).get(tree) for cohorts in youngest.values()}
        name = above.pop() if len(above) == 1 and tree not in self.parents else None
        return None if name is None or self._top(name) == tree else self._top(name)

    def _tree(self, queue: str) -> str:
        """Return what is at the top of a queue's tree: a cohort, or itself."""
        cohort = self.queues[queue][1]
        return queue if cohort is None else self._top(cohort)

    def _top(self, cohort: str) -> str:
        while (parent := self.parents.get(cohort)) is not None:
            cohort = parent
        return cohort


def held_by(entry: Reservation, counts: Mapping[str, int]) -> tuple[Any, ...]:
    """Return what an entry holds that a rebuild must find again, with the counts that are noted on the job.

    A pod set without pods holds nothing: the owner of an adopted job may have added one.
    """
    sets = [
        (s.name, counts[s.name], s.price, s.flavors, s.charge, s.domain) for s in entry.pod_sets if counts.get(s.name)
    ]
    alike = (entry.queue, entry.cohorts, entry.adopted, entry.loose_pods, entry.evictable, entry.since_seconds)
    return (*alike, sets)
