"""What is known of each member since it was swept, and so of what may run there that no record speaks of."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from webhook.fleet.members.copies import JobName
from webhook.fleet.members.member import Member
from webhook.fleet.members.told import HUB

K = TypeVar("K")
V = TypeVar("V")
CLUSTERS_MAX: Final = 8
"""To which one member's name led, and of which it is known that they were swept."""

_UNSWEPT: Final = "does not answer, and may have it from before this hub began"
_UNLISTED: Final = "cannot list the jobs of this kind, or could not until a moment ago"
_UNUSABLE: Final = "may have it from before this hub began, and does not say"
_UNSEEN: Final = "may have it from before this hub began, and does not list the jobs of this kind"
_UNDONE: Final = "leads to a cluster that is looked through first for what it has from before"
_UNENDED: Final = "may have it from before this hub began, and could not be looked through"


@dataclass
class Swept:
    """What is known of each member since it was swept."""

    members: Mapping[str, Member]
    """Of the hub, as they are now."""
    due: dict[str, int] = field(default_factory=dict)
    """Members to be swept before anything is offered (rule P4), but for those that were declared lost; each with its
    ``times_due`` then: jobs that came after it have nothing there, and need not wait."""
    due_with_others: set[str] = field(default_factory=set)
    """Of these the members that are due only because their names may lead to the cluster of another one by now."""
    times_due: int = 0
    """How often members came to be due."""
    clusters: dict[str, list[str]] = field(default_factory=dict)
    """Those that were swept, by the names that led to them; of each name the last few."""
    lost: Mapping[str, str] = field(default_factory=dict)
    """Members that were declared lost, and when: nothing is offered to them until they are swept."""
    lost_once: Mapping[str, str] = field(default_factory=dict)
    """Of these what came back with a backup of the hub's cluster: of now they say nothing."""
    unlisted: dict[str, set[str]] = field(default_factory=dict)
    """By kind that could not be listed when members were swept: those to be swept again before a job of it is offered
    that may have been there by then."""
    unlisted_at: dict[str, int] = field(default_factory=dict)
    """By kind its ``times_due`` when it could not be listed last."""
    unseen: dict[str, dict[str, Mapping[str, tuple[int, str]]]] = field(default_factory=dict)
    """By member and cluster that was swept the kinds that it did not list then, each with its ``times_due`` and why:
    jobs of that kind wait until that cluster does, but for those that came later. They keep no other kind waiting."""
    unended: dict[str, str] = field(default_factory=dict)
    """By member why its last sweep did not come to an end."""
    apart: dict[str, dict[str, Mapping[JobName, str]]] = field(default_factory=dict)
    """By member and cluster, each with why, the hub's jobs that have a copy there and a record that cannot be read, or
    a copy that two sweeps could not settle, or of which pods or room are left there and no copy: they are offered to
    nobody before a sweep of that cluster has found all of that mended and gone. They keep no other gang waiting."""

    def make_due(self, members: Iterable[str]) -> None:
        """Offer no job that is there by now before these members were swept."""
        self.times_due += 1
        due = dict.fromkeys(members, self.times_due)
        self.due |= due
        self.due_with_others -= due.keys()

    def make_due_with_others(self, member: str) -> None:
        """Have a member swept again for all that others are to be swept for: what is in the cluster of one of them, its
        name may lead to now.
        """
        lost = self._lost_now
        if times := [time for name, time in self.due.items() if name not in lost]:
            self.due_with_others |= set() if member in self.due else {member}
            self.due[member] = max(self.due.get(member, 0), *times)
        for members in self.unlisted.values():
            if members - lost:
                members.add(member)

    def note_unlisted(self, kinds: Collection[str]) -> None:
        """Note which kinds cannot be listed in the hub now: each member is swept again for them when they can."""
        self.unlisted |= {kind: set(self.members) for kind in kinds}
        self.unlisted_at |= dict.fromkeys(kinds, self.times_due)

    def is_done(self, member: str, cluster: str) -> bool:
        """Return whether a member was swept, and this is the cluster that was (rule P5).

        Where its name has come to lead to another cluster, that one alone waits: it may never let itself be swept.
        """
        return member not in self.due and cluster in self.clusters.get(member, ())

    def why_not_done(self, member: str, cluster: str) -> str:
        """Return why nothing is offered to this cluster, in words that follow the member's name; else nothing."""
        if self.is_done(member, cluster):
            return ""
        unended = self.unended.get(member, "")
        return f"{_UNDONE}, and could not be: {unended}" if unended else _UNDONE

    def apart_in(self, member: str, cluster: str) -> dict[JobName, str]:
        """Return which jobs are set apart, and why, in the cluster to which a member's name leads."""
        return self._known_in(self.apart, member, cluster)

    def unseen_in(self, member: str, cluster: str) -> dict[str, tuple[int, str]]:
        """Return which kinds the cluster to which a member's name leads did not list when it was swept last."""
        return self._known_in(self.unseen, member, cluster)

    def set_apart(self, member: str, cluster: str, jobs: Mapping[JobName, str]) -> None:
        """Set these jobs apart, and no others, in the cluster to which a member's name leads."""
        self._note_in(self.apart, member, cluster, jobs)

    def forget_other_clusters(self, member: str, cluster: str) -> None:
        """Forget what is open in other clusters to which a member's name led: it was declared lost."""
        if member in self.apart:
            self.apart[member] = {each: jobs for each, jobs in self.apart[member].items() if each == cluster}
        if member in self.unseen:
            self.unseen[member] = {each: kinds for each, kinds in self.unseen[member].items() if each == cluster}

    def _known_in(self, known: Mapping[str, Mapping[str, Mapping[K, V]]], member: str, cluster: str) -> dict[K, V]:
        found = dict[K, V]()
        for name in self._speaking_of(known, member, cluster):
            found |= known[name].get(cluster, {})
        return found

    def _note_in(
        self, known: dict[str, dict[str, Mapping[K, V]]], member: str, cluster: str, what: Mapping[K, V]
    ) -> None:
        for name in self._speaking_of(known, member, cluster):
            known[name].pop(cluster, None)
        # A member may say another cluster each time.
        others = list(known.pop(member, {}).items())
        if kept := [*others, *([(cluster, what)] if what else [])]:
            known[member] = dict(kept[-CLUSTERS_MAX:])

    def _speaking_of(self, known: Iterable[str], member: str, cluster: str) -> list[str]:
        """Return by which names something may be known of a cluster: by this one, or one that leads elsewhere now.

        A name that still leads there is to find by itself that it is mended: any member may say that it does.
        """
        others = {name for name, other in self.members.items() if other.uid in ("", cluster)} - {member}
        return [name for name in known if name not in others]

    def note_done(self, member: str, cluster: str, unlisted: Collection[str], unseen: Mapping[str, str]) -> None:
        """Note that a member was swept, but for what it has of the kinds that could not be listed then: in the hub, or
        in the member, each with why.
        """
        time, before, clusters = self.due.pop(member, 0), self.unseen_in(member, cluster), self.clusters.get(member, [])
        if member in self.due_with_others and cluster in clusters:
            # It leads where it did: of the other one there is nothing.
            time = 0
        self.due_with_others.discard(member)
        # A member may say another one each time. The one before so many others is to be swept again.
        self.clusters[member] = [*(each for each in clusters if each != cluster), cluster][-CLUSTERS_MAX:]
        # What it had was known before it stopped to list a kind.
        left = {kind: (time or before[kind][0], why) for kind, why in unseen.items() if time or kind in before}
        self._note_in(self.unseen, member, cluster, left)
        for kind in self.unlisted.keys() - set(unlisted) - unseen.keys():
            self.unlisted[kind].discard(member)
        self.unlisted = {kind: members for kind, members in self.unlisted.items() if members}

    def begin_again(self) -> None:
        """Offer nothing before each member was swept once more, by whichever cluster its name leads to."""
        self.make_due(self.members)
        self.clusters.clear()

    def leave(self, name: str) -> None:
        """Forget a member that is none any more."""
        self.due.pop(name, None)
        self.due_with_others.discard(name)
        for members in self.unlisted.values():
            members.discard(name)
        for known in (self.apart, self.unseen, self.unended):
            known.pop(name, None)

    def note_lost(self, noted: Mapping[str, str], *, set_back: bool) -> set[str]:
        """Note which members were declared lost, and when; return those that were not yet: they are to be swept.

        ``set_back``: the hub's cluster was since they were read last, and what is noted now may come from its backup.
        """
        before, self.lost = self.lost, noted
        if set_back:
            self.lost_once = {name: when for name, when in noted.items() if before.get(name) != when}
        return noted.keys() - before.keys()

    @property
    def complete(self) -> bool:
        """Whether all is known that may run in any member, but of kinds that could not be listed: ``knows_all_of``."""
        return self.due.keys() <= self._lost_now

    def knows_all_of(self, kind: str) -> bool:
        """Return whether all is known that may run in any member of one kind."""
        waited_for = self.unseen.keys() - self._lost_now
        seen = not any(kind in kinds for name in waited_for for kinds in self.unseen[name].values())
        return seen and self.complete and kind not in self.unlisted

    def left_in(self, job: JobName, came_after: int) -> dict[str, str]:
        """Return the members, each with why, in which something may run of one job that no record speaks of.

        ``came_after``: how many ``times_due`` there had been when it was created. Of a member that answers, and so is
        swept in a moment, nothing needs to be said.
        """
        lost = self._lost_now
        unswept = {name for name, time in self.due.items() if time > came_after} - lost
        unlisted = self.unlisted.get(job[0], set()) - lost if self.unlisted_at.get(job[0], 0) > came_after else set()
        left = {name: self._why_due(name) for name in unswept | unlisted}
        left |= {HUB: _UNLISTED} if unlisted and not any(left.values()) else {}
        for name in self.unseen.keys() - unswept - lost:
            kinds = {cluster: each.get(job[0], (0, "")) for cluster, each in self.unseen[name].items()}
            unseen = {cluster: f"{_UNSEEN}: {why}" for cluster, (time, why) in kinds.items() if time > came_after}
            left |= self._told_of(name, unseen)
        for name in self.apart.keys() - lost:
            apart = {cluster: jobs[job] for cluster, jobs in self.apart[name].items() if job in jobs}
            left |= self._told_of(name, apart)
        return left

    def _told_of(self, name: str, found: Mapping[str, str]) -> dict[str, str]:
        """Return what is told of a member, of what was found by its name in some clusters."""
        member = self.members.get(name)
        now = "" if member is None else member.uid
        if member is not None and now in found and member.health.failure:
            # Its name may have come to lead elsewhere, which nobody hears of before it answers.
            return {name: f"{found[now]}. That is what it said last; now it does not answer"}
        if now in found or not found:
            return {name: found[now]} if found else {}
        cluster, why = next(iter(found.items()))
        return {name: f"{why}, in the cluster {cluster}, to which its name led before"}

    def _why_due(self, name: str) -> str:
        member = self.members.get(name)
        if member is None or member.health.failure:
            return _UNSWEPT
        if member.health.unusable:
            return f"{_UNUSABLE}: {member.health.unusable}"
        return f"{_UNENDED}: {self.unended[name]}" if name in self.unended else ""

    @property
    def _lost_now(self) -> set[str]:
        return {name for name, when in self.lost.items() if self.lost_once.get(name) != when}
