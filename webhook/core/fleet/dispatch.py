"""Where a gang of the hub is: one record a gang, its phases, and the one table of what may follow.

The record is stored in the hub and each change of it is a compare-and-swap, so no two hub processes both take a step.

====================  =====================================================================================
phase                 what may exist in the members
====================  =====================================================================================
nowhere               nothing, or copies that may not start and are swept
offered               a copy in the member, perhaps a reservation there; it may not start, for no permit was ever sent
granted               the same copy with or without its permit, and pods
recalled              what is left of that copy; no permit for it is sent any more
====================  =====================================================================================

Offered is left without contact, granted only on ``proof``, or when somebody says that its member is lost, or when it
is silent for so long that it has stopped the gang as promised. So at any time at most one copy of a gang has, or
can still get, a permit: the one that the record names by uid.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

from webhook.core.fleet.failed_in import FailedIn, note

EPOCHS_END: Final = 10**12
NUMBERS_END: Final = 10**9


class Offer(NamedTuple):
    """The number of one try to place a gang; it only grows."""

    epoch: int
    """Of the hub: grows whenever its record was lost or set back, so that no offer ever bears the number of another."""
    number: int

    @property
    def may_be_ours(self) -> bool:
        """Whether a hub may have made it: its epochs are Unix times, and whoever can edit a copy writes any digits."""
        return self.epoch < EPOCHS_END and self.number < NUMBERS_END

    def __str__(self) -> str:
        return f"{self.epoch}.{self.number}"


NO_OFFER: Final = Offer(0, 0)


class DispatchPhase(StrEnum):
    """How far a gang's dispatch has come."""

    NOWHERE = "nowhere"
    OFFERED = "offered"
    GRANTED = "granted"
    RECALLED = "recalled"


_OF_ONE_OFFER: Final = (DispatchPhase.OFFERED, DispatchPhase.GRANTED, DispatchPhase.RECALLED, DispatchPhase.NOWHERE)
"""In which order a gang goes through them; those may be left out that it does not need."""


class Event(StrEnum):
    """What changes a dispatch."""

    OFFER = "offer"
    """One member is asked for room."""
    WITHDRAW = "withdraw"
    """The gang is not to run any more, and was only offered."""
    GRANT = "grant"
    """The member has reserved for the copy: it gets the permit. Again, when the copy changed before the permit came."""
    RECALL = "recall"
    """It is to leave the member: finished, stopped, lost there, or failed there and to be tried in another."""
    PROVE = "prove"
    """Nothing of it is left there."""
    LOSE = "lose"
    """Its member will not come back, says somebody, or has promised to stop it by now: there is no proof."""
    ADOPT = "adopt"
    """A copy with a permit was found that the record had lost."""
    RENAME = "rename"
    """Its cluster is reached by another member's name now."""


TRANSITIONS: Final[Mapping[tuple[DispatchPhase, Event], DispatchPhase]] = {
    (DispatchPhase.NOWHERE, Event.OFFER): DispatchPhase.OFFERED,
    (DispatchPhase.NOWHERE, Event.ADOPT): DispatchPhase.GRANTED,
    (DispatchPhase.OFFERED, Event.OFFER): DispatchPhase.OFFERED,
    (DispatchPhase.OFFERED, Event.WITHDRAW): DispatchPhase.NOWHERE,
    (DispatchPhase.OFFERED, Event.GRANT): DispatchPhase.GRANTED,
    (DispatchPhase.OFFERED, Event.ADOPT): DispatchPhase.GRANTED,
    (DispatchPhase.GRANTED, Event.GRANT): DispatchPhase.GRANTED,
    (DispatchPhase.GRANTED, Event.RECALL): DispatchPhase.RECALLED,
    (DispatchPhase.RECALLED, Event.PROVE): DispatchPhase.NOWHERE,
    (DispatchPhase.GRANTED, Event.RENAME): DispatchPhase.GRANTED,
    (DispatchPhase.RECALLED, Event.RENAME): DispatchPhase.RECALLED,
    (DispatchPhase.GRANTED, Event.LOSE): DispatchPhase.NOWHERE,
    (DispatchPhase.RECALLED, Event.LOSE): DispatchPhase.NOWHERE,
}
"""All that may happen; what is not here is a bug."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The hub's record of one gang."""

    phase: DispatchPhase = DispatchPhase.NOWHERE
    offer: Offer = NO_OFFER
    """The last one that was made."""
    member: str = ""
    cluster: str = ""
    """Uid of the member's kube-system: a member is what this says, not what is reached by its name (rule P5)."""
    copy_uid: str = ""
    copy_version: str = ""
    """The copy's resourceVersion as read before the grant; its permit is bound to it."""
    why: str = ""
    """Why it was recalled or withdrawn."""
    failed: tuple[FailedIn, ...] = ()
    """Where it failed: no such member is asked again while others are left."""
    stops_after_seconds: int = 0
    """How long its member promised at the grant to run it without a word of the hub; 0: it promised nothing."""
    waits: str = ""
    """Why it waits in the member that was asked for room: what it said when it was asked before, and where that takes
    long what it says now. Or why it still is in the one it leaves.

    Of one that is granted: how its member refuses the permit, or why it has stopped the gang.
    """
    elsewhere: tuple[str, ...] = ()
    """Why it is not in this member or that, one reason each, with its name."""
    never: bool = False
    """By the last word of each member that it may run in, it can start in none, whatever ends."""
    grace_seconds: int = 0
    """The longest that a pod of the granted copy may take to end; 0: the record is of a hub that did not write it."""
    suspended_by: str = ""
    """Of a gang that is nowhere: the user's policy by which it is offered to nobody, so that it needs no slot."""

    @property
    def holds(self) -> bool:
        """Whether pods of it may exist in a member."""
        return self.phase in (DispatchPhase.GRANTED, DispatchPhase.RECALLED)

    def may_follow(self, before: "Dispatch") -> bool:
        """Return whether the record of a gang that was ``before`` may say this now; if not, it was set back."""
        if self.offer != before.offer:
            return self.offer > before.offer
        is_adopted = before.phase is DispatchPhase.NOWHERE and self.holds
        return is_adopted or _OF_ONE_OFFER.index(self.phase) >= _OF_ONE_OFFER.index(before.phase)

    @property
    def facts(self) -> "Dispatch":
        """It without what only people read."""
        return replace(self, why="", waits="", elsewhere=(), never=False)

    def offered(
        self,
        epoch: int,
        member: str,
        cluster: str,
        elsewhere: tuple[str, ...] = (),
        waits: str = "",
        *,
        never: bool = False,
    ) -> "Dispatch":
        """Return it offered to ``member``, by a number that no earlier offer of this gang had.

        ``elsewhere`` says why not to others, ``waits`` what this one said when it was asked before.
        """
        assert epoch >= self.offer.epoch, f"epoch {epoch} after offer {self.offer}"
        number = self.offer.number + 1 if epoch == self.offer.epoch else 1
        phase, offer = self._after(Event.OFFER), Offer(epoch, number)
        made = Dispatch(phase, offer, member, cluster, failed=self.failed)
        return replace(made, elsewhere=elsewhere, waits=waits, never=never)

    def still_nowhere(self, elsewhere: tuple[str, ...] | None, suspended_by: str) -> "Dispatch":
        """Return it with why it is in no member, if that is another reason than before, and with the policy for it."""
        why, told = ("", elsewhere) if elsewhere else (self.why, self.elsewhere)
        return replace(self, why=why, elsewhere=told, suspended_by=suspended_by)

    def withdrawn(self, why: str) -> "Dispatch":
        """Return it taken back before anything could start."""
        return Dispatch(self._after(Event.WITHDRAW), self.offer, why=why, failed=self.failed)

    def granted(
        self, copy_uid: str, copy_version: str, stops_after_seconds: int = 0, grace_seconds: int = 0
    ) -> "Dispatch":
        """Return it granted to the copy that was read, of that version and grace, in a member that promised to stop it
        so.
        """
        assert copy_uid, "a grant names its copy"
        assert self.copy_uid in ("", copy_uid), f"granted to {self.copy_uid}, not to {copy_uid}"
        phase = self._after(Event.GRANT)
        return replace(
            self,
            phase=phase,
            copy_uid=copy_uid,
            copy_version=copy_version,
            stops_after_seconds=stops_after_seconds,
            grace_seconds=grace_seconds,
            waits="",
            never=False,
        )

    def adopted(
        self,
        offer: Offer,
        member: str,
        cluster: str,
        copy_uid: str,
        stops_after_seconds: int = 0,
        *,
        grace_seconds: int = 0,
    ) -> "Dispatch":
        """Return it granted to a copy that has its permit already."""
        return Dispatch(
            self._after(Event.ADOPT),
            max(offer, self.offer),
            member,
            cluster,
            copy_uid,
            failed=self.failed,
            stops_after_seconds=stops_after_seconds,
            grace_seconds=grace_seconds,
        )

    def known_as(self, member: str) -> "Dispatch":
        """Return it in the cluster that has it, by the name of the member that leads there now (rule P5)."""
        return replace(self, phase=self._after(Event.RENAME), member=member)

    def recalled(self, why: str) -> "Dispatch":
        """Return it on its way out of its member."""
        return replace(self.facts, phase=self._after(Event.RECALL), why=why)

    def failed_over(self, why: str, noted: tuple[FailedIn, ...] = ()) -> "Dispatch":
        """Return it on its way out of a member in which it failed, to be tried in others.

        ``noted``: where that was, if more is known of it than the record says.
        """
        failed = note(self.failed, noted or (FailedIn(self.member, self.cluster),))
        return replace(self.recalled(why), failed=failed)

    def proven_gone(self) -> "Dispatch":
        """Return it free to be offered elsewhere, or for good."""
        return Dispatch(self._after(Event.PROVE), self.offer, why=self.why, failed=self.failed)

    def lost(self, why: str) -> "Dispatch":
        """Return it free to be offered elsewhere, by somebody's word or its member's promise alone."""
        return Dispatch(self._after(Event.LOSE), self.offer, why=why, failed=self.failed)

    def _after(self, event: Event) -> DispatchPhase:
        after = TRANSITIONS.get((self.phase, event))
        assert after is not None, f"{event} of a gang that is {self.phase}"
        return after


NOWHERE: Final = Dispatch()
"""A gang that was never offered."""
