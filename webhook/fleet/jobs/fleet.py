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
from webhook.fleet.members.member import Look, Member, NoAnswer
from webhook.fleet.policies.multikueue import NOTHING_SET_UP, SetUp
from webhook.fleet.policies.propagation import Propagation
from webhook.fleet.swept import Swept
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.reading.gating import is_noted, queue_label
from webhook.kube.api import Api

log = structlog.get_logger(__name__)

TURNS: Final = 8
"""Objects of one namespace that are under way to one member."""

_SILENT: Final = "has not heard from this hub for a while"
_NO_MEMBER: Final = "is not a member of this hub"


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
    swept: Swept = field(init=False)
    """Of these members."""
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

    turns: WeakValueDictionary[tuple[str, str], asyncio.Semaphore] = field(default_factory=WeakValueDictionary)

    telling: Allowance = field(default_factory=Allowance)
    """Of what gangs are told that do not go on."""
    telling_of_waits: Allowance = field(default_factory=Allowance)
    """Of what gangs are told that wait: a tenant who has thousands wait keeps no other gang from hearing of a fault."""

    def __post_init__(self) -> None:
        self.swept = Swept(self.members)

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

    async def see_clusters(self, members: Iterable[str]) -> None:
        """Ask these members which clusters they are; who does not answer is the one that it was."""
        asked = [self.members[name].cluster() for name in members]
        await asyncio.gather(*asked, return_exceptions=True)

    def reach(self, name: str, api: Api) -> Api:
        """Ask a member by another connection, which may lead to another cluster; return the one before."""
        self.swept.make_due_with_others(name)
        return self.members[name].reach(api)

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
        return left_out | dict.fromkeys(self.swept.lost.keys() & self.members.keys(), "was declared lost")

    def may_come(self, propagation: Propagation, namespace: str, queue: str) -> dict[str, str]:
        """Return what may yet be asked for such a job, each with why it is not now: silent members, names of which
        this process has not come to use the credentials, and members to which alone dispatching is suspended.
        """
        labels_of, strange = self.set_up.labels_of, self.swept.due.keys() - self.members.keys()
        late = dict.fromkeys(self.silent, _SILENT) | dict.fromkeys(strange, _NO_MEMBER)
        if propagation.dispatches:
            named = propagation.suspended_to & (self.members.keys() | late.keys())
            late |= {name: propagation.why_not(name) for name in named}
        resumed = propagation.resumed if propagation.dispatches else propagation
        late = {name: why for name, why in late.items() if not resumed.why_not(name, labels_of(name))}
        never = self.swept.lost.keys() | self.set_up.left_out(namespace, queue, late).keys()
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

    def begin_again(self, version: int) -> None:
        """Offer nothing until each member was swept: the hub's API server is at an earlier version than before."""
        log.error("fleet.set_back", version=version)
        self.swept.begin_again()
        self.epoch = max(self.epoch + 1, int(self.clock.now()))
        self.set_backs += 1


def told_of(left_in: Mapping[str, str], member: str) -> dict[str, str]:
    """Return why a gang is not in each member, where something of it may be left in some; ``member`` has its offer."""
    told = {name: why for name, why in left_in.items() if why}
    if not told or member in ("", *told):
        return told
    return {**told, member: "; ".join(f"{name} {why}" for name, why in sorted(told.items()))}
