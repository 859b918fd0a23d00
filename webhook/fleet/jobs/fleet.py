"""What all jobs of one hub share: its members, and what is known of them."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakValueDictionary

import structlog

from webhook.clock import Clock
from webhook.core.fleet.dispatch import Dispatch
from webhook.core.fleet.failed_in import FailedIn, tried
from webhook.core.fleet.sight import Copy
from webhook.core.fleet.steps import Wish, why_not
from webhook.core.notation.names import QUEUE_LABELS
from webhook.fleet.jobs.allowance import Allowance
from webhook.fleet.jobs.asking.choice import HUB
from webhook.fleet.members.copies import JobName
from webhook.fleet.members.member import Look, Member, NoAnswer
from webhook.fleet.policies.multikueue import NOTHING_SET_UP, SetUp
from webhook.fleet.policies.propagation import Propagation
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.reading.gating import is_noted, queue_label
from webhook.kube.api import Api

log = structlog.get_logger(__name__)

TURNS: Final = 8
"""Objects of one namespace that are under way to one member."""
CLUSTERS_MAX: Final = 8
"""To which one member's name led, and of which it is known that they were swept."""

_SILENT: Final = "has not heard from this hub for a while"
_NO_MEMBER: Final = "is not a member of this hub"
_UNSWEPT: Final = "does not answer, and may have it from before this hub began"
_UNLISTED: Final = "cannot list the jobs of this kind, or could not until a moment ago"
_UNUSABLE: Final = "may have it from before this hub began, and does not say"
_UNSEEN: Final = "may have it from before this hub began, and does not list the jobs of this kind"
_UNENDED: Final = "may have it from before this hub began, and could not be looked through"


@dataclass
class Fleet:
    """What all jobs of one hub share."""

    api: Api
    """The hub's own cluster."""
    members: dict[str, Member]
    clock: Clock
    epoch: int = 0
    """Of the offers of this process: no other process of this hub has the same. 0 until the hub's cluster answers."""
    uid: str = ""
    """Of the hub's kube-system."""
    unswept: dict[str, int] = field(default_factory=dict)
    """Members to be swept before anything is offered (rule P4), but for those that were declared lost; each with its
    ``sweeps_due`` then: jobs that came after it have nothing there, and need not wait."""
    sweeps_due: int = 0
    """How often members came to be swept."""
    swept: dict[str, list[str]] = field(default_factory=dict)
    """The clusters that were, by the names that led to them; of each name the last few."""
    lost: Mapping[str, str] = field(default_factory=dict)
    """Members that were declared lost, and when: nothing is offered to them until they are swept."""
    lost_once: Mapping[str, str] = field(default_factory=dict)
    """Of these what came back with a backup of the hub's cluster: of now they say nothing."""
    silent: set[str] = field(default_factory=set)
    """Members whose Lease is not renewed, or cannot be, where that is done: nothing is offered to them."""
    propagations: Mapping[str, list[Propagation]] = field(default_factory=dict)
    """Of the hub's users by namespace: in which members, and what after a failure."""
    set_up: SetUp = NOTHING_SET_UP
    """MultiKueue's: which members the jobs of a queue may be placed in."""
    unread: str = ""
    """What cannot be read of what users say about where jobs may run, and why: then nothing is offered."""
    members_known: bool = True
    """False until all members were named for the first time."""
    unjoined: Collection[str] = ()
    """Names that are no members of this process, though they are named: another process may reach them."""

    set_backs: int = 0
    """How often the hub's API server was found to have been set back."""

    unlisted: dict[str, set[str]] = field(default_factory=dict)
    """By kind that could not be listed when members were swept: those to be swept again before a job of it is offered
    that may have been there by then."""
    unlisted_at: dict[str, int] = field(default_factory=dict)
    """By kind its ``sweeps_due`` when it could not be listed last."""

    unseen: dict[str, Mapping[str, tuple[int, str]]] = field(default_factory=dict)
    """By member that was swept the kinds that it did not list then, each with its ``sweeps_due`` and why: jobs of that
    kind wait until it does, but for those that came later. They keep no other kind waiting."""

    unended: dict[str, str] = field(default_factory=dict)
    """By member why its last sweep did not come to an end."""

    apart: dict[str, dict[str, Mapping[JobName, str]]] = field(default_factory=dict)
    """By member and cluster, each with why, the hub's jobs that have a copy there and a record that cannot be read, or
    a copy that two sweeps could not settle, or of which pods or room are left there and no copy: they are offered to
    nobody before a sweep of that cluster has found all of that mended and gone. They keep no other gang waiting."""

    turns: WeakValueDictionary[tuple[str, str], asyncio.Semaphore] = field(default_factory=WeakValueDictionary)

    telling: Allowance = field(default_factory=Allowance)
    """Of what gangs are told that do not go on."""
    telling_of_waits: Allowance = field(default_factory=Allowance)
    """Of what gangs are told that wait: a tenant who has thousands wait keeps no other gang from hearing of a fault."""

    def turn(self, member: str, namespace: str) -> asyncio.Semaphore:
        """Return what is held while something of a namespace is brought into a member.

        A tenant with thousands of jobs takes no more of the hub's memory, and keeps nobody else waiting.
        """
        return self.turns.setdefault((member, namespace), asyncio.Semaphore(TURNS))

    def member(self, name: str) -> Member:
        """Return a member. Raises NoAnswer where it was taken away meanwhile."""
        if name not in self.members:
            raise NoAnswer(f"{name} is no longer a member")
        return self.members[name]

    def tried(self, failed: Collection[FailedIn]) -> set[str]:
        """Return the members that have had their try with a gang that has failed there."""
        return tried(failed, {name: member.uid for name, member in self.members.items()})

    def hesitance(self, name: str) -> int:
        """Return how late a member is asked: 0: it answers; 1: it is slow; 2: it did not, or starts nothing."""
        member = self.members.get(name)
        return 2 if member is None or member.health.passed_by else int(member.health.slow)

    def left_out(self, propagation: Propagation, namespace: str, queue: str) -> dict[str, str]:
        """Return the members that are not asked for a job of that policy and queue, each with why."""
        labels_of = self.set_up.labels_of
        left_out = {name: why for name in self.members if (why := propagation.why_not(name, labels_of(name)))}
        left_out |= dict.fromkeys(self.silent, _SILENT)
        left_out |= self.set_up.left_out(namespace, queue, self.members)
        return left_out | dict.fromkeys(self.lost.keys() & self.members.keys(), "was declared lost")

    def may_come(self, propagation: Propagation, namespace: str, queue: str) -> dict[str, str]:
        """Return what may yet be asked for such a job, each with why it is not now: silent members, and names of which
        this process has not come to use the credentials.
        """
        labels_of, strange = self.set_up.labels_of, self.unswept.keys() - self.members.keys()
        late = dict.fromkeys(self.silent, _SILENT) | dict.fromkeys(strange, _NO_MEMBER)
        late = {name: why for name, why in late.items() if not propagation.why_not(name, labels_of(name))}
        never = self.lost.keys() | self.set_up.left_out(namespace, queue, late).keys()
        return {name: why for name, why in late.items() if name not in never}

    def why_uncounted(self, job: Mapping[str, Any]) -> str:
        """Return why a job is offered to nobody though it was not held back at home, in words that follow "the hub".

        In a member it might wait in a default queue, and run past the hub's quota.
        """
        unnamed = queue_label(job) is None and not is_noted(job)
        if not (unnamed and self.set_up.has_queues(job["metadata"]["namespace"])):
            return ""
        return f"has queues for this namespace, and the job names none: suspend it, then label it {QUEUE_LABELS[0]}"

    def ranks(self, propagation: Propagation) -> dict[str, int]:
        """Return in which of a policy's groups each member is; nothing where it has no more than one."""
        several = len(propagation.groups or ()) > 1
        return {name: propagation.rank(name, self.set_up.labels_of(name)) for name in self.members if several}

    def idle(self, name: str) -> str:
        """Return why a member starts nothing, though it answers, in words that follow its name; else nothing."""
        member = self.members.get(name)
        return "" if member is None or member.health.failure else member.health.idle

    def why_not(self, wish: Wish, name: str, look: Look | None) -> str:
        """Return why a gang is not in a member, or will not start there, in words that follow its name."""
        return self.idle(name) or why_not(wish, None if look is None else look.sight)

    async def permitted(self, kind: JobKind, namespace: str, name: str, dispatch: Dispatch) -> Copy | None:
        """Return the very copy that a record names, if it is there now and has its permit; None if nobody answers."""
        try:
            sight = (await self.member(dispatch.member).look(kind, namespace, name, dispatch.phase)).sight
        except NoAnswer:
            return None
        copy = sight.copy
        if copy is None or (sight.cluster, copy.uid) != (dispatch.cluster, dispatch.copy_uid):
            return None
        return copy if copy.permitted else None

    def has_to_sweep(self, members: Iterable[str]) -> None:
        """Offer no job that is there by now before these members were swept."""
        self.sweeps_due += 1
        self.unswept |= dict.fromkeys(members, self.sweeps_due)

    def note_unlisted(self, kinds: Collection[str]) -> None:
        """Note which kinds cannot be listed in the hub now: each member is swept again for them when they can."""
        self.unlisted |= {kind: set(self.members) for kind in kinds}
        self.unlisted_at |= dict.fromkeys(kinds, self.sweeps_due)

    def is_swept(self, member: str, cluster: str) -> bool:
        """Return whether a member was swept, and this is the cluster that was (rule P5).

        Where its name has come to lead to another cluster, that one alone waits: it may never let itself be swept.
        """
        return member not in self.unswept and cluster in self.swept.get(member, ())

    def note_swept_cluster(self, member: str, cluster: str) -> None:
        """Note which cluster was swept by the name of a member; the one before so many others is to be swept again.

        A member may say another one each time.
        """
        others = [each for each in self.swept.get(member, ()) if each != cluster]
        self.swept[member] = [*others, cluster][-CLUSTERS_MAX:]

    def apart_in(self, member: str, cluster: str) -> dict[JobName, str]:
        """Return which jobs are set apart, and why, in the cluster to which a member's name leads."""
        found = dict[JobName, str]()
        for name in self._speaking_of(member, cluster):
            found |= self.apart[name].get(cluster, {})
        return found

    def set_apart(self, member: str, cluster: str, jobs: Mapping[JobName, str]) -> None:
        """Set these jobs apart, and no others, in the cluster to which a member's name leads."""
        for name in self._speaking_of(member, cluster):
            self.apart[name].pop(cluster, None)
        # A member may say another cluster each time.
        others = list(self.apart.pop(member, {}).items())
        if kept := [*others, *([(cluster, jobs)] if jobs else [])]:
            self.apart[member] = dict(kept[-CLUSTERS_MAX:])

    def set_apart_nowhere_else(self, member: str, cluster: str) -> None:
        """Forget what was set apart in other clusters to which a member's name led: it was declared lost."""
        if member in self.apart:
            self.apart[member] = {each: jobs for each, jobs in self.apart[member].items() if each == cluster}

    def _speaking_of(self, member: str, cluster: str) -> list[str]:
        """Return by which names jobs may be set apart in a cluster: by this one, or one that leads elsewhere now.

        A name that still leads there is to find by itself that they are mended: any member may say that it does.
        """
        others = {name for name, other in self.members.items() if other.uid in ("", cluster)} - {member}
        return [name for name in self.apart if name not in others]

    def note_swept(self, member: str, unlisted: Collection[str], unseen: Mapping[str, str]) -> None:
        """Note that a member was swept, but for what it has of the kinds that could not be listed then: in the hub, or
        in the member, each with why.
        """
        due, before = self.unswept.pop(member, 0), self.unseen.pop(member, {})
        # What it had was known before it stopped to list a kind.
        left = {kind: (due or before[kind][0], why) for kind, why in unseen.items() if due or kind in before}
        self.unseen |= {member: left} if left else {}
        for kind in self.unlisted.keys() - set(unlisted) - unseen.keys():
            self.unlisted[kind].discard(member)
        self.unlisted = {kind: members for kind, members in self.unlisted.items() if members}

    def begin_again(self, version: int) -> None:
        """Offer nothing until each member was swept: the hub's API server is at an earlier version than before."""
        log.error("fleet.set_back", version=version)
        self.has_to_sweep(self.members)
        self.swept.clear()
        self.epoch = max(self.epoch + 1, int(self.clock.now()))
        self.set_backs += 1

    @property
    def complete(self) -> bool:
        """Whether all is known that may run anywhere, but of kinds that could not be listed: ``knows_all_of``."""
        return self.members_known and self.unswept.keys() <= self._lost_now

    def knows_all_of(self, kind: str) -> bool:
        """Return whether all is known that may run anywhere of one kind."""
        seen = not any(kind in kinds for name, kinds in self.unseen.items() if name not in self._lost_now)
        return seen and self.complete and kind not in self.unlisted

    def left_in(self, job: JobName, came_after: int) -> dict[str, str]:
        """Return the members, each with why, in which something may run of one job that no record speaks of.

        ``came_after``: how many ``sweeps_due`` there had been when it was created. Of a member that answers, and so is
        swept in a moment, nothing needs to be said.
        """
        lost = self._lost_now
        unswept = {name for name, due in self.unswept.items() if due > came_after} - lost
        unlisted = self.unlisted.get(job[0], set()) - lost if self.unlisted_at.get(job[0], 0) > came_after else set()
        left = {name: self._why_unswept(name) for name in unswept | unlisted}
        left |= {HUB: _UNLISTED} if unlisted and not any(left.values()) else {}
        for name in self.unseen.keys() - unswept - lost:
            due, why = self.unseen[name].get(job[0], (0, ""))
            left |= {name: f"{_UNSEEN}: {why}"} if due > came_after else {}
        for name in self.apart.keys() - lost:
            left |= self._apart_by(name, job)
        return {**left, HUB: self.unread} if self.unread else left

    def _apart_by(self, name: str, job: JobName) -> dict[str, str]:
        found = {cluster: jobs[job] for cluster, jobs in self.apart[name].items() if job in jobs}
        now = self.members[name].uid if name in self.members else ""
        if now in found or not found:
            return {name: found[now]} if found else {}
        cluster, why = next(iter(found.items()))
        return {name: f"{why}, in the cluster {cluster}, to which its name led before"}

    def _why_unswept(self, name: str) -> str:
        member = self.members.get(name)
        if member is None or member.health.failure:
            return _UNSWEPT
        if member.health.unusable:
            return f"{_UNUSABLE}: {member.health.unusable}"
        return f"{_UNENDED}: {self.unended[name]}" if name in self.unended else ""

    @property
    def _lost_now(self) -> set[str]:
        return {name for name, when in self.lost.items() if self.lost_once.get(name) != when}


def told_of(left_in: Mapping[str, str], member: str) -> dict[str, str]:
    """Return why a gang is not in each member, where something of it may be left in some; ``member`` has its offer."""
    told = {name: why for name, why in left_in.items() if why}
    if not told or member in ("", *told):
        return told
    return {**told, member: "; ".join(f"{name} {why}" for name, why in sorted(told.items()))}
