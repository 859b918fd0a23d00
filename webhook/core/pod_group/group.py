"""The jobs that share one PodGroup: who waits, who holds what, and what of it is a gang.

Once the jobs that wait bring as many pods as the PodGroup needs, the first of them that bring enough are one gang, an
ensemble; a job that is enough by itself starts whole, not in part with others. While the group runs with its quorum
met, each further job is a gang of its own.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field, replace

from webhook.core.ledger.record import Membership, Reservation
from webhook.core.model.gang import Gang
from webhook.core.notation.problem import some
from webhook.core.pod_group import ensemble
from webhook.core.pod_group.ensemble import Key, Part
from webhook.core.reasons.reasons import Code, Reason


@dataclass(slots=True)
class Group:
    """The jobs that share one PodGroup."""

    key: Key
    waiting: dict[str, Gang] = field(default_factory=dict)
    held: dict[str, Part] = field(default_factory=dict)
    """Those that hold a reservation, as members or for themselves."""
    submitted: dict[str, Gang] = field(default_factory=dict)
    """What the engine knows to wait for it, by the engine's uid: the ensemble, or jobs by themselves."""
    composed: tuple[Gang, ...] = ()
    """Of which jobs the ensemble that waits is made, in its order."""
    together: frozenset[str] = frozenset()
    """Their uids."""
    membership: Membership | None = None
    """What they will have been admitted with."""
    withheld: Reason | None = None
    """Why none of those that wait is considered."""
    charged: bool = False
    """The engine charges the ensemble."""

    @property
    def uid(self) -> str:
        """The engine's name for the ensemble."""
        return ensemble.uid_of(self.key)

    @property
    def members(self) -> list[Part]:
        """Those that hold what they were admitted with together."""
        return [self.held[uid] for uid in sorted(self.held) if self.held[uid].reservation.membership is not None]

    def passed_over(self, uid: str) -> bool:
        """Return whether a job that waits is not part of what the engine knows to wait."""
        return uid not in self.submitted and uid not in self.together

    def allocation(self) -> tuple[Reservation, Gang | None, dict[str, int]]:
        """Return what the ensemble holds, its gang as far as its jobs are known, and which pods will not run again."""
        members = self.members
        known = ensemble.in_order(part.gang for part in members if part.gang is not None)
        membership = members[0].reservation.membership
        assert membership is not None
        whole = ensemble.compose(self.key, known, membership.still_needed) if known else None
        order = {gang.uid: place for place, gang in enumerate(known)}
        members.sort(key=lambda part: order.get(part.reservation.uid, len(order)))
        return ensemble.compose_reservation(self.key, members), whole, ensemble.reclaimed_of(members)

    def makes_quorum_with(self, joining: Reservation, going: Set[str]) -> bool:
        """Return whether a job makes the quorum with those that go on when all of ``going`` are stopped."""
        if not any(uid == self.uid or uid in self.held for uid in going):
            # Nothing has changed since it was decided about by itself. Thousands may start so in one cycle.
            return True
        stay = sum(joining.counts.values())
        for part in self.held.values():
            known = part.reservation
            uid = known.uid if known.membership is None else self.uid
            if known.stopping is not None or uid in going:
                continue
            if known.membership is not None:
                return True  # Those who were admitted together make it, or go together.
            stay += part.pods
        return stay >= _quorum(self.waiting.values()) - _succeeded(self.waiting.values())

    def decide_what_waits(self) -> dict[str, Gang]:
        """Return what is to wait in the engine, by the engine's uid, and set what goes with it."""
        jobs = ensemble.in_order(self.waiting.values())
        self.composed, self.membership, self.withheld = (), None, None
        self.together = frozenset()
        if not jobs:
            return {}
        members = self.members
        if members and all(part.reservation.stopping for part in members):
            self.withheld = _awaiting(members)
            return {}
        held = sum(part.pods for part in self.held.values() if part.reservation.stopping is None)
        quorum, succeeded = _quorum(jobs), _succeeded(jobs)
        if members or held >= max(1, quorum - succeeded):
            return {gang.uid: replace(gang, quorum=None) for gang in jobs}
        membership = Membership(self.key[1], max(1, quorum - held), succeeded)
        brought = sum(gang.pods for gang in jobs)
        jobs = ensemble.enough(jobs, membership.still_needed)
        self.withheld = ensemble.mismatch(jobs)
        if self.withheld is None and brought < membership.still_needed:
            self.withheld = ensemble.incomplete(self.key, quorum - succeeded, brought, held)
        if len(jobs) > 1:
            self.withheld = self.withheld or ensemble.too_many(self.key, jobs)
        if self.withheld is not None:
            return {}
        if len(jobs) == 1 and not succeeded:
            return {jobs[0].uid: replace(jobs[0], quorum=membership.quorum) if held else jobs[0]}
        self.composed, self.membership = tuple(jobs), membership
        self.together = frozenset(gang.uid for gang in jobs)
        return {self.uid: ensemble.compose(self.key, jobs, membership.still_needed)}

    def copy(self) -> "Group":
        """Return an independent group in the same state."""
        return replace(self, waiting=dict(self.waiting), held=dict(self.held), submitted=dict(self.submitted))


def _quorum(jobs: Iterable[Gang]) -> int:
    """Return how many pods the PodGroup of ``jobs`` needs: its ``minMember``."""
    return min(gang.pods if gang.quorum is None else gang.quorum for gang in jobs)


def _succeeded(jobs: Iterable[Gang]) -> int:
    """Return how many pods of the PodGroup of ``jobs`` have succeeded and left."""
    return max(gang.succeeded_pods for gang in jobs)


def _awaiting(members: Sequence[Part]) -> Reason:
    verb = "is" if len(members) == 1 else "are"
    names = some(members, ensemble.NAMED_MAX, lambda part: str(part.reservation))
    return Reason(
        Code.SUSPENDED,
        f"{names} of its PodGroup {verb} still being stopped",
        help="they queue again together, when the last pod is gone",
    )
