"""A hub, its processes, three members and everything that is on its way between them.

Nothing is ever answered: a process learns what a write did by reading again, so each reply counts as lost. A write may
land at any later time or never, also when its process has died and others lead: that is a crash before and after each
write, a slow link and a late leader at once. While a link is cut nothing is read through it and nothing lands.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

from tests.unit.core.fleet.members import HUB, Member, Stored
from webhook.core.fleet import proof, strays
from webhook.core.fleet.dispatch import NOWHERE, Dispatch, DispatchPhase, Offer
from webhook.core.fleet.proof import Evidence, Proof
from webhook.core.fleet.sight import Copy, Sight
from webhook.core.fleet.steps import AfterFailure, HubStep, Wish, eligible, is_copy, next_step
from webhook.core.fleet.strays import Verdict

MEMBERS = ("a", "b", "c")
JOBS = ("one", "two")
PROCESSES = (0, 1)
ON_THE_WAY_MAX = 8
WEIGHTS = {
    "preempt": 0.1,
    "give back": 0.03,
    "lose a write": 0.2,
    "sweep": 0.4,
    "decide": 3.0,
    "stop": 0.5,
    "resume": 4.0,
    "heal": 4.0,
    "submit again": 9.0,
}
"""How much likelier than others a kind of move is."""
LONG = {"pod ends": 0.03, "finish": 0.03, "sweep": 0.15}
"""The same where pods outlive what happens around them."""

Moves = Iterator[tuple[str, Callable[[], None]]]


@dataclass(frozen=True)
class Job:
    """The hub's object of one gang, its record on it."""

    uid: str
    version: int = 1
    runs: bool = True
    over: bool = False
    dispatch: Dispatch = NOWHERE
    came_after: int = 0
    """How often members had come to be swept when it was submitted."""

    @property
    def wish(self) -> Wish:
        return Wish(HUB, self.uid, self.runs and not self.over, stopped=not (self.runs or self.over))


@dataclass
class Mind:
    """What one hub process remembers; a crash takes it."""

    sights: dict[tuple[str, str], Sight | None] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    """Read after the sights."""
    proofs: dict[str, Proof] = field(default_factory=dict)


@dataclass
class OnTheWay:
    """A write that was sent."""

    member: str | None
    """Whose link it takes; None for the hub's own API server."""
    what: str
    land: Callable[[], None]


class World:
    """Everything, and the moves that are possible now."""

    def __init__(self) -> None:
        self.members = {name: Member(f"cluster-{name}") for name in MEMBERS}
        self.elsewhere: list[Member] = []
        """Clusters that a name no longer leads to."""
        self.accepted = {name: member.cluster for name, member in self.members.items()}
        """The clusters that somebody has accepted as members."""
        self.cut: set[str] = set()
        self.jobs = {job: Job(f"{job}-1") for job in JOBS}
        self.epoch = 1
        self.unswept: dict[str, int] = {}
        """Each with how often members had come to be swept then."""
        self.sweeps_due = 0
        self.apart: dict[str, set[str]] = {name: set() for name in MEMBERS}
        """Jobs of which something was left in a member when it was swept, or not settled twice, and still is."""
        self.delayed: dict[str, set[str]] = {name: set() for name in MEMBERS}
        """Jobs whose copies have kept a member from counting as swept once."""
        self.first_seen: dict[str, dict[str, str]] = {name: {} for name in MEMBERS}
        """In which version each copy was seen first since its member has to be swept, by uid."""
        self.backup: dict[str, Job] | None = None
        self.minds = {process: Mind() for process in PROCESSES}
        self.wires: list[OnTheWay] = []
        self.foreign: dict[tuple[str, str], Stored] = {}
        self.counts: dict[str, int] = {}
        self.writes = 0
        self.submitted = 0
        self.restored = False

    # -- moves --------------------------------------------------------------------------------------------------------

    def moves(self) -> Moves:
        for member in (*self.members.values(), *self.elsewhere):
            yield from member.moves()
        for number, write in enumerate(self.wires):
            if write.member not in self.cut:
                yield f"land {write.what}", lambda number=number: self._land(number)
            yield "lose a write", lambda number=number: self._lose(number)
        for process in PROCESSES:
            for job in JOBS:
                yield "read", lambda process=process, job=job: self._read(process, job)
                if job in self.minds[process].jobs and len(self.wires) < ON_THE_WAY_MAX:
                    yield "decide", lambda process=process, job=job: self._decide(process, job)
            for name in MEMBERS:
                if self._answers(name) and len(self.wires) < ON_THE_WAY_MAX:
                    yield "sweep", lambda process=process, name=name: self._sweep(process, name)

    def faults(self) -> Moves:
        for process in PROCESSES:
            yield "crash", lambda process=process: self.minds.update({process: Mind()})
        for name in MEMBERS:
            yield (
                ("heal" if name in self.cut else "cut"),
                lambda name=name: self.cut.symmetric_difference_update({name}),
            )
            yield "lose a member's ledger", self.members[name].lose_ledger
        for job in JOBS:
            yield ("stop" if self.jobs[job].runs else "resume"), lambda job=job: self.toggle(job)
            if self.jobs[job].over and not self.jobs[job].dispatch.holds:
                yield "submit again", lambda job=job: self.submit_again(job)

    def take(self, name: str, move: Callable[[], None]) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1
        move()
        self.check()

    def walk(self, chance: Random, moves: int, faults: float = 0.03, **weights: float) -> None:
        """Take moves by chance: first a kind, then one of it."""
        by_kind = WEIGHTS | weights
        for _ in range(moves):
            kinds: dict[str, list[Callable[[], None]]] = {}
            for name, move in self.faults() if chance.random() < faults else self.moves():
                kinds.setdefault(name, []).append(move)
            names = sorted(kinds)
            name = chance.choices(names, [by_kind.get(each, 1.0) for each in names])[0]
            self.take(name, chance.choice(kinds[name]))

    # -- weathers of their own ----------------------------------------------------------------------------------------

    def back_up(self) -> None:
        self.backup = dict(self.jobs)

    def set_back(self) -> None:
        """The hub's record returns to what was backed up; resourceVersions go on, as etcd is told to do."""
        if self.backup is not None:
            self.epoch += 1
            self.restored = True
            self.jobs = {job: replace(self.backup[job], version=self.jobs[job].version + 1) for job in JOBS}
            self.sweeps_due += 1
            self.unswept = dict.fromkeys(MEMBERS, self.sweeps_due)
            self.first_seen = {name: {} for name in MEMBERS}

    def swap(self, name: str) -> None:
        """Another cluster answers by the name of a member."""
        self.elsewhere.append(self.members[name])
        self.members[name] = Member(f"cluster-{name}{len(self.elsewhere)}")

    def accept(self, name: str) -> None:
        """The new cluster is taken as that member; of the old one nothing is proven by that."""
        if name not in self.unswept:
            self.accepted[name] = self.members[name].cluster

    def _answers(self, name: str) -> bool:
        return name not in self.cut and self.members[name].cluster == self.accepted[name]

    def occupy(self, name: str, job: str) -> None:
        """Somebody of the member has a job of that name."""
        if job not in self.members[name].objects:
            theirs = Stored(f"theirs-{name}-{job}", "", "", Offer(0, 0), suspended=False)
            self.members[name].objects[job] = theirs
            self.foreign[name, job] = replace(theirs)

    # -- a hub process ------------------------------------------------------------------------------------------------

    def _read(self, process: int, job: str) -> None:
        mind = self.minds[process]
        for name in MEMBERS:
            mind.sights[name, job] = self.members[name].look(job) if self._answers(name) else None
        mind.jobs[job] = self.jobs[job]

    def _decide(self, process: int, job: str) -> None:
        mind = self.minds[process]
        known = mind.jobs.pop(job)
        dispatch, wish = known.dispatch, known.wish
        # Decided later than read: what was seen may have changed, and what is written is conditional on it.
        sight = mind.sights.get((dispatch.member, job))
        choice = self._choice(mind, job, known)
        others = set(MEMBERS) - {*_names(dispatch), dispatch.member}
        free = any(eligible(wish, mind.sights.get((name, job))) for name in others)
        after = AfterFailure.MOVE if free else AfterFailure.END
        apart = any(job in names for names in self.apart.values())
        unswept = any(due > known.came_after for due in self.unswept.values())
        moves, complete = choice is not None, not unswept and not apart
        step = next_step(wish, dispatch, sight, moves=moves, complete=complete, after_failure=after)
        self.counts[step] = self.counts.get(step, 0) + 1
        copy = None if sight is None else sight.copy
        match step:
            case HubStep.OFFER if choice is not None:
                self._write(job, known, dispatch.offered(self.epoch, *choice))
            case HubStep.WITHDRAW:
                self._write(job, known, dispatch.withdrawn("stopped"))
            case HubStep.CREATE:
                self._send(dispatch.member, step, lambda there: there.create(job, known.uid, dispatch.offer))
            case HubStep.SWEEP if copy is not None:
                self._send(dispatch.member, step, lambda there: there.delete(job, copy.uid, copy.version))
            case HubStep.GRANT if copy is not None:
                self._write(job, known, dispatch.granted(copy.uid, copy.version))
            case HubStep.PERMIT:
                uid, version = dispatch.copy_uid, dispatch.copy_version
                self._send(dispatch.member, step, lambda there: there.permit(job, dispatch.offer, uid, version))
            case HubStep.REPORT:
                self._send(None, step, lambda _: self._store(job, known, replace(known, over=True)))
            case HubStep.RECALL:
                self._write(job, known, dispatch.recalled("over"))
            case HubStep.FAIL_OVER:
                self._write(job, known, dispatch.failed_over("failed"))
            case HubStep.DELETE:
                self._send(dispatch.member, step, lambda there: there.delete(job, dispatch.copy_uid, None))
            case HubStep.PROVE:
                self._prove(mind, job, known)

    def _choice(self, mind: Mind, job: str, known: Job) -> tuple[str, str] | None:
        """The next member after the one it is offered to, where that one does not answer or cannot take it."""
        wish, dispatch = known.wish, known.dispatch
        current = mind.sights.get((dispatch.member, job))
        if dispatch.phase is DispatchPhase.OFFERED and current is not None and eligible(wish, current):
            return None
        start = MEMBERS.index(dispatch.member) + 1 if dispatch.member else 0
        for name in (*MEMBERS[start:], *MEMBERS[:start]):
            sight = mind.sights.get((name, job))
            if name in self.unswept or (name in _names(dispatch) < set(MEMBERS)):
                continue
            if sight is not None and eligible(wish, sight) and name != dispatch.member:
                return name, sight.cluster
        return None

    def _prove(self, mind: Mind, job: str, known: Job) -> None:
        dispatch = known.dispatch
        so_far = mind.proofs.get(job)
        if so_far is None or (so_far.cluster, so_far.copy_uid) != (dispatch.cluster, dispatch.copy_uid):
            so_far = proof.begun(dispatch)
        there = self.members[dispatch.member]
        if dispatch.member not in self.cut:
            uid = dispatch.copy_uid
            gone = {
                Evidence.COPY: all(found.uid != uid for found in there.objects.values()),
                Evidence.RESERVATION: uid not in there.reserved,
                Evidence.PODS: not there.pods.get(uid),
            }
            if so_far.wanted is not Evidence.COMPLETE:
                # Each read but the first, which the step is decided by, says of which cluster it is.
                its_own = so_far.wanted is Evidence.COPY or there.cluster == dispatch.cluster
                so_far = so_far.found(gone=gone[so_far.wanted] and its_own)
        mind.proofs[job] = so_far
        if so_far.proves(dispatch):
            self._write(job, known, dispatch.proven_gone())

    def _sweep(self, process: int, name: str) -> None:
        there = self.members[name]
        seen: list[tuple[str, Copy]] = [(job, found.shown()) for job, found in there.objects.items()]
        left, verdicts, apart = there.leftovers(), [], set()
        before, delayed = self.apart[name], self.delayed[name]
        for job, copy in seen:
            known = self.jobs[job]
            if not is_copy(known.wish, copy):
                continue
            dispatch = known.dispatch if copy.job == known.uid else None
            kept = job in before
            swept, complete = name not in self.unswept and not kept, not self.unswept and not kept
            verdict = strays.verdict(copy, there.cluster, dispatch, swept=swept, complete=complete)
            first = self.first_seen[name].setdefault(copy.uid, copy.version) if not swept else ""
            # It was written to since: another read says so, as an answer would.
            revoked = verdict is Verdict.REVOKE and copy.version != first
            settled = revoked or verdict is Verdict.KEEP
            if not settled and job in (delayed if name in self.unswept else before):
                apart.add(job)
            else:
                verdicts.append(Verdict.KEEP if revoked else verdict)
                delayed |= set() if settled else {job}
            self.counts[verdict] = self.counts.get(verdict, 0) + 1
            if verdict is Verdict.SWEEP:
                self._send(name, "sweep", lambda to, job=job, copy=copy: to.delete(job, copy.uid, copy.version))
            elif verdict is Verdict.REVOKE and not revoked:
                self._send(name, "revoke", lambda to, job=job, copy=copy: to.revoke(job, copy.uid, copy.version))
            elif verdict is Verdict.END:
                self._send(name, "end", lambda to, job=job, copy=copy: to.delete(job, copy.uid, None))
            elif verdict is Verdict.ADOPT:
                self._write(job, known, known.dispatch.adopted(copy.offer, name, there.cluster, copy.uid))
        self.apart[name] = apart | (left if name in self.unswept else before & left)
        if strays.swept(verdicts):
            self.unswept.pop(name, None)
            delayed.clear()

    # -- writes -------------------------------------------------------------------------------------------------------

    def _write(self, job: str, known: Job, dispatch: Dispatch) -> None:
        self._send(None, dispatch.phase, lambda _: self._store(job, known, replace(known, dispatch=dispatch)))

    def _store(self, job: str, known: Job, after: Job) -> None:
        if self.jobs[job].version == known.version:
            self.jobs[job] = replace(after, version=known.version + 1)

    def _send(self, name: str | None, what: str, land: Callable[[Member], None]) -> None:
        there = self.members[name or MEMBERS[0]]
        self.wires.append(OnTheWay(name, what, lambda: land(there)))

    def _land(self, number: int) -> None:
        self.writes += 1
        self.wires.pop(number).land()

    def _lose(self, number: int) -> None:
        self.wires.pop(number)

    def toggle(self, job: str) -> None:
        known = self.jobs[job]
        self._store(job, known, replace(known, runs=not known.runs))

    def submit_again(self, job: str) -> None:
        known = self.jobs[job]
        self.submitted += 1
        version, uid = known.version + 1, f"{job}-{self.submitted + 1}"
        self.jobs[job] = Job(uid, version, came_after=self.sweeps_due)

    # -- what must hold after every stored write ----------------------------------------------------------------------

    def check(self) -> None:
        places: dict[str, set[str]] = {}
        dispatches = {job.uid: job.dispatch for job in self.jobs.values()}
        for member in (*self.members.values(), *self.elsewhere):
            for job, uid in member.running():
                places.setdefault(job, set()).add(uid)
                dispatch = dispatches.get(job)
                named = dispatch is not None and dispatch.holds and dispatch.copy_uid == uid
                # What the record says of the time before it was set back is known again when all members were swept,
                # but for gangs that are set apart.
                apart = any(job.rpartition("-")[0] in left for left in self.apart.values())
                excused = self.unswept or apart or (dispatch is None and self.restored)
                assert named or excused, f"{job} runs as {uid} while its record says {dispatch}"
        twice = {job: sorted(uids) for job, uids in places.items() if len(uids) > 1}
        assert not twice, f"runs more than once: {twice}"
        for (name, job), theirs in self.foreign.items():
            assert self.members[name].objects.get(job) == theirs, f"somebody else's {job} in {name} was touched"


def _names(dispatch: Dispatch) -> set[str]:
    return {each.member for each in dispatch.failed}
