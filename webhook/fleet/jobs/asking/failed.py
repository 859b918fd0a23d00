"""A gang that has failed in its member, and what follows: each member that it may run in is tried once."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from math import inf
from typing import Final

from webhook.core.fleet.dispatch import Dispatch, DispatchPhase
from webhook.core.fleet.failed_in import FailedIn
from webhook.core.fleet.steps import AfterFailure, Wish, eligible
from webhook.core.notation.problem import some
from webhook.core.notation.shortened import shortened
from webhook.fleet.jobs.cluster_names import ClusterNames
from webhook.fleet.jobs.fleet import Fleet
from webhook.fleet.members.member import Look
from webhook.fleet.members.told import HUB
from webhook.fleet.policies.propagation import Propagation

SILENT_SECONDS: Final = 60.0
"""So much longer than its policy says a gang that failed waits for a member that has not answered for so long."""
WHY_CHARACTERS: Final = 200
"""Of what the controller of a copy says of its failure."""
NAMED_MAX: Final = 10
"""Members that are named of those that do not answer."""
UNASKED_SECONDS: Final = 30.0
"""After which nobody knows any more whether a member that did not answer has answered meanwhile."""

_STARTS_NOTHING: Final = "could not be looked through yet, or start nothing"


def failed_there(why: str) -> str:
    """Return that a gang has failed in its member, and why, in words that follow the member's name."""
    return f"says that it has failed ({shortened(why, WHY_CHARACTERS)})" if why else "says that it has failed"


class Failed:
    """What one process remembers of it, for one gang."""

    def __init__(self, fleet: Fleet, names: ClusterNames) -> None:
        self._fleet, self._names = fleet, names
        self._seen: tuple[str, float] | None = None
        """The copy that was seen to have failed, and since when."""
        self._last: Look | None = None
        """That copy, as it was before anybody deleted it."""
        self._is_there = False
        """Whether it was not deleted yet at the present look: by other names of its cluster it is shown too."""
        self._noted_there: tuple[str, tuple[FailedIn, ...]] = "", ()
        """Of the copy with this uid what was noted last while it was there."""
        self._unanswered: dict[str, float] = {}
        """Loop time since when each member was asked without an answer, as seen for this gang."""
        self._asked_at = -inf
        """Loop time at which they were asked last."""
        self.noted: tuple[FailedIn, ...] = ()
        """Where the gang of the present look has failed, as far as more is known than its record says."""
        self.look_at_seconds = inf
        """Loop time at which the waiting ends that its policy asks for."""
        self.said = failed_there("")
        """That it has failed, and why, in words that follow its member's name."""
        self.words = ""
        """What is said of it while it waits, in words that follow its member's name."""

    def look(self, dispatch: Dispatch, found: Look | None) -> Look | None:
        """Return what was found in the member; of a copy that has failed and is deleted since, that it has failed.

        It waits until its failure counts, and would else run again as if it had never failed.
        """
        self.noted, self._is_there = (), False
        if dispatch.phase is not DispatchPhase.GRANTED:
            self._last = None
            return found
        if found is None or found.sight.cluster != dispatch.cluster:
            return found
        copy = found.sight.copy
        if copy is not None and copy.uid == dispatch.copy_uid and not copy.deleting:
            self._is_there = True
            self._last = found if copy.failed else None
        last = None if self._last is None else self._last.sight.copy
        if self._last is None or last is None or last.uid != dispatch.copy_uid:
            return found
        return replace(self._last, sight=replace(found.sight, copy=last))

    async def others(self, dispatch: Dispatch, policy: Propagation, namespace: str, queue: str) -> set[str]:
        """Return the members left to try for a gang that has failed, with the silent ones and with what is no member
        yet; also those to which its policy suspends dispatching, for that ends.
        """
        if self._is_there:
            self._noted_there = dispatch.copy_uid, await self._names.failed_in(dispatch)
        uid, noted = self._noted_there
        self.noted = noted if uid == dispatch.copy_uid else await self._names.failed_in(dispatch)
        rules = policy.resumed, namespace, queue
        allowed = self._fleet.members.keys() - self._fleet.left_out(*rules).keys()
        others = allowed | self._fleet.may_come(*rules).keys()
        return others - self._fleet.tried((*dispatch.failed, *self.noted))

    async def after(
        self,
        wish: Wish,
        dispatch: Dispatch,
        policy: Propagation,
        others: Collection[str],
        look: Callable[[str], Awaitable[Look | None]],
        *,
        why: str,
        left_in: Mapping[str, str],
    ) -> AfterFailure:
        """Return what follows; ``why`` it failed, as its copy says.

        ``others`` are the members left to try. ``left_in``: where, and why, something of it may be left that no record
        speaks of: it is offered to nobody until that is known.
        """
        if not self._fleet.members_known:
            return self.held_up(why, "has not read yet which members it has")
        now, self.said = asyncio.get_running_loop().time, failed_there(why)
        waits_seconds = policy.toleration_seconds or 0.0
        if self._seen is None or self._seen[0] != dispatch.copy_uid:
            self._seen, self._unanswered = (dispatch.copy_uid, now()), {}
            self.words = f"{self.said}; if it may still run elsewhere, it leaves after {waits_seconds:.0f} s"
        self.look_at_seconds, due = inf, self._seen[1] + waits_seconds
        if others and now() < due:
            self.look_at_seconds = due
            return AfterFailure.WAIT
        held = {name for name in others if policy.suspends_to(name)}
        if held and held.issuperset(others):
            return self._resumes(policy, held)
        if now() - self._asked_at > UNASKED_SECONDS:
            self._unanswered = {}
        asked = sorted(set(others) - held)
        looks = dict(zip(asked, await asyncio.gather(*map(look, asked)), strict=True))
        fit = {name for name, found in looks.items() if eligible(wish, None if found is None else found.sight)}
        hears = fit - self._fleet.silent
        takes = hears - self._starting_nothing(dispatch, looks)
        if takes and not left_in:
            return AfterFailure.MOVE
        if hears and HUB in left_in:
            return self.held_up(why, left_in[HUB])
        self._asked_at = now()
        # Nothing is offered to one that answers and does not hear this hub, or starts nothing: its gang would leave for
        # nobody. Nor to one that does while it may be left in another: that one is waited for as if it were silent.
        unread = {name for name, found in looks.items() if found is not None and found.sight.unread}
        silent = (fit - takes) | unread | {name for name, found in looks.items() if found is None}
        if hears and left_in:
            left = left_in.keys() - {dispatch.member}
            nothing = f"nothing of it is left in: {_names(left)}" if left else "nothing else of it is left there"
            self.words = f"others may have it, once it is known that {nothing}"
        else:
            why_not = ["do not hear this hub"] * bool(fit - hears) + [_STARTS_NOTHING] * bool(hears)
            why_not += ["do not answer"] * bool(silent - unread - hears)
            why_not += ["have no ledger that can be read"] * bool(unread)
            self.words = f"others may have it, and {', or '.join(why_not)}: {_names(silent)}"
        self.words = f"{self.said}; {self.words}"
        silent |= set(left_in) if hears else set()
        self._unanswered = {name: self._unanswered.get(name, now()) for name in silent}
        if any(now() - self._silent_since(name, due) < SILENT_SECONDS for name in silent):
            return AfterFailure.WAIT
        return self._resumes(policy, held) if held else AfterFailure.END

    def _resumes(self, policy: Propagation, held: Collection[str]) -> AfterFailure:
        """Return that it waits until its policy no longer suspends dispatching to the only members left to try."""
        to = f" to {_names(held)}" if policy.dispatches else ""
        self.words = f"{self.said}; it may run elsewhere once {policy} no longer suspends dispatching{to}"
        return AfterFailure.WAIT

    def _starting_nothing(self, dispatch: Dispatch, looks: Mapping[str, Look | None]) -> set[str]:
        """Return which of the members that answer would be offered nothing now, or would start nothing."""
        failed = {each.cluster for each in (*dispatch.failed, *self.noted)} - {""}
        return {
            name
            for name, found in looks.items()
            if found is not None
            # Where its name has just come to lead to such a cluster, the next look knows who shows the copy there.
            and (
                found.sight.cluster in failed
                or self._fleet.swept.why_not_done(name, found.sight.cluster)
                or self._fleet.idle(name)
            )
        }

    def held_up(self, why: str, unread: str) -> AfterFailure:
        """Return that it waits for what the hub cannot read; ``why`` it failed, as its copy says."""
        self.said = failed_there(why)
        self.words = f"{self.said}; whether it may run elsewhere is not known: the hub {unread}"
        return AfterFailure.WAIT

    def _silent_since(self, name: str, due: float) -> float:
        """Return from when the silence of a member counts: one that has only begun is no reason to give it up.

        What kept a gang from moving before may have been its own member, or the hub's cluster. Who answers, but never
        what was asked for this gang, is silent since it was first asked for that: to others it may answer well.
        """
        member = self._fleet.members.get(name)
        known = inf if member is None or member.health.failing_since is None else member.health.failing_since
        return max(due, min(known, self._unanswered[name]))


def _names(members: Collection[str]) -> str:
    return some(sorted(members), NAMED_MAX)
