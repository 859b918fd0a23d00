"""Hard namespace ceilings: the ResourceQuotas of every namespace, and what reservations have claimed of them.

    headroom = hard - used by live pods - (reserved - materialised)

``used`` is the sum over the namespace's live pods, priced as the API server prices them, not the quota's lagging
status. ``reserved - materialised`` is the part of each reservation whose pods do not exist yet. The engine asks
``shortfall`` before it admits a gang; the webhook asks ``pod_shortfall`` before it lets a loose pod pass.

A pod that waits behind our scheduling gate is stored, so it is used, and it is its gang's: such a gang asks the fence
only for the pods that it does not have yet, and its reservation is materialised by them before they may run.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import Gang, PodPrice
from webhook.core.model.pods import PodRecord
from webhook.core.notation import amounts
from webhook.core.quota.fence import Fence
from webhook.core.reasons.barriers import FenceFull, NotStated
from webhook.core.reasons.reasons import Holder


@dataclass(slots=True)
class _Namespace:
    """Running totals of one namespace; kept so that a decision costs no walk over its pods."""

    fences: dict[str, Fence] = field(default_factory=dict)
    pods: dict[str, PodRecord] = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    reclaimed: dict[str, Mapping[str, int]] = field(default_factory=dict)
    live: dict[tuple[str, str], int] = field(default_factory=dict)
    """(gang uid, pod set) to live pods, those behind our gate included."""
    leaving: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """(gang uid, pod set) to uids of pods that are being deleted and have not ended."""
    members: dict[str, dict[str, None]] = field(default_factory=dict)
    """Gang uid to uids of its known pods, in the order in which they were told."""
    present: dict[str, int] = field(default_factory=dict)
    """Gang uid to pods that were let go and have not ended, those being deleted included."""
    used: dict[str, dict[str, int]] = field(default_factory=dict)
    """Fence name to amounts of counted pods."""
    claimed: dict[str, dict[str, int]] = field(default_factory=dict)
    """Fence name to amounts of reserved pods that do not exist yet."""
    held: dict[str, dict[tuple[str, bool], dict[str, int]]] = field(default_factory=dict)
    """Fence name to the amounts of both by (gang uid or nothing, behind our gate): a refusal says who holds what."""

    def claim(self, fence: Fence, reservation: Reservation, pod_set: str | None = None) -> dict[str, int]:
        """Return what a reservation, or one set of it, claims of a fence in addition to the pods that it has."""
        return fence.claim(reservation, self.live, self.reclaimed.get(reservation.uid, {}), pod_set)


class Fences:
    """Every namespace's ResourceQuotas with what uses and what claims them, kept incrementally."""

    def __init__(self) -> None:
        self._namespaces: dict[str, _Namespace] = {}

    # -- what exists ------------------------------------------------------------------------------------------------

    def put_fence(self, fence: Fence) -> None:
        """Add or replace one ResourceQuota."""
        space = self._space(fence.namespace)
        space.fences[fence.name] = fence
        self._recount(space, fence)

    def drop_fence(self, namespace: str, name: str) -> None:
        """Forget one ResourceQuota."""
        space = self._namespaces.get(namespace)
        if space is not None:
            for table in (space.fences, space.used, space.claimed, space.held):
                table.pop(name, None)
            self._tidy(namespace, space)

    def put_pod(self, pod: PodRecord) -> None:
        """Add or replace one pod."""
        space = self._space(pod.namespace)
        known = space.pods.pop(pod.uid, None)
        if known is not None and _counts_as(known) == _counts_as(pod):
            # Most changes are of what nobody counts here: conditions, and where it runs.
            space.pods[pod.uid] = pod
            if pod.gang is not None:
                members = space.members[pod.gang]
                members[pod.uid] = members.pop(pod.uid)
            return
        sets = dict.fromkeys((each.gang, each.pod_set) for each in (known, pod) if each is not None)
        for gang, pod_set in sets:
            self._claims(space, gang, -1, pod_set)
        if known is not None:
            self._discount(space, known)
        space.pods[pod.uid] = pod
        if pod.gang is not None:
            space.members.setdefault(pod.gang, {})[pod.uid] = None
        self._count_pod(space, pod, 1)
        for gang, pod_set in sets:
            self._claims(space, gang, 1, pod_set)

    def drop_pod(self, namespace: str, uid: str) -> None:
        """Forget one pod."""
        space = self._namespaces.get(namespace)
        pod = None if space is None else space.pods.pop(uid, None)
        if space is not None and pod is not None:
            self._claims(space, pod.gang, -1, pod.pod_set)
            self._discount(space, pod)
            self._claims(space, pod.gang, 1, pod.pod_set)
            self._tidy(namespace, space)

    def put_reservation(self, reservation: Reservation, reclaimed: Mapping[str, int] | None = None) -> None:
        """Add or replace one reservation; ``reclaimed`` pods of each set have ended and will not be replaced.

        None leaves them as they are known.
        """
        uid, space = reservation.uid, self._space(reservation.namespace)
        self._claims(space, uid, -1)
        space.reservations[uid] = reservation
        space.reclaimed[uid] = space.reclaimed.get(uid, {}) if reclaimed is None else reclaimed
        self._claims(space, uid, 1)

    def give_back(self, namespace: str, uid: str, reclaimed: Mapping[str, int]) -> None:
        """Take note how many pods of each set of a reservation have ended and will not be replaced."""
        space = self._namespaces.get(namespace)
        if space is not None and uid in space.reservations and space.reclaimed[uid] != reclaimed:
            self._claims(space, uid, -1)
            space.reclaimed[uid] = reclaimed
            self._claims(space, uid, 1)

    def drop_reservation(self, namespace: str, uid: str) -> None:
        """Forget one reservation."""
        space = self._namespaces.get(namespace)
        if space is not None and uid in space.reservations:
            self._claims(space, uid, -1)
            del space.reservations[uid]
            space.reclaimed.pop(uid, None)
            self._tidy(namespace, space)

    def set_reservations(self, reservations: Iterable[Reservation]) -> list[Reservation]:
        """Make ``reservations`` the whole truth (a ledger read again); return those that were not known like that."""
        wanted = {reservation.uid: reservation for reservation in reservations}
        new = []
        for space in list(self._namespaces.values()):
            for uid, known in list(space.reservations.items()):
                if uid not in wanted:
                    self.drop_reservation(known.namespace, uid)
        for uid, reservation in wanted.items():
            known_or_none = self.reservation(reservation.namespace, uid)
            if known_or_none is not reservation and known_or_none != reservation:
                self.put_reservation(reservation)
                new.append(reservation)
        return new

    def change_reservations(
        self, before: Mapping[str, Reservation], after: Mapping[str, Reservation], uids: Iterable[str]
    ) -> list[Reservation]:
        """As ``set_reservations`` of all that is in ``after``, where but ``uids`` may differ from ``before``."""
        new = []
        for uid in uids:
            known, wanted = before.get(uid), after.get(uid)
            if known is not None and (wanted is None or wanted.namespace != known.namespace):
                self.drop_reservation(known.namespace, uid)
            if wanted is not None and self.reservation(wanted.namespace, uid) != wanted:
                self.put_reservation(wanted)
                new.append(wanted)
        return new

    def _space(self, namespace: str) -> _Namespace:
        space = self._namespaces.get(namespace)
        if space is None:
            space = self._namespaces[namespace] = _Namespace()
        return space

    def _tidy(self, namespace: str, space: _Namespace) -> None:
        """Forget a namespace of which nothing is left."""
        if not (space.fences or space.pods or space.reservations):
            del self._namespaces[namespace]

    # -- questions --------------------------------------------------------------------------------------------------

    def fences(self, namespace: str) -> tuple[Fence, ...]:
        """Return the ResourceQuotas of ``namespace``, by name."""
        space = self._namespaces.get(namespace)
        return () if space is None else tuple(space.fences[name] for name in sorted(space.fences))

    def reservation(self, namespace: str, uid: str) -> Reservation | None:
        """Return what a gang has reserved here."""
        space = self._namespaces.get(namespace)
        return None if space is None else space.reservations.get(uid)

    def bind(self, namespace: str) -> bool:
        """Return whether ``namespace`` has any ResourceQuota."""
        space = self._namespaces.get(namespace)
        return space is not None and bool(space.fences)

    def pods(self, namespace: str) -> Iterable[PodRecord]:
        """Return the known pods of ``namespace``."""
        space = self._namespaces.get(namespace)
        return () if space is None else space.pods.values()

    def pods_of(self, namespace: str, gang: str) -> Iterable[PodRecord]:
        """Return the known pods of one gang, ended ones and those behind our gate included."""
        space = self._namespaces.get(namespace)
        return () if space is None else [space.pods[uid] for uid in space.members.get(gang, ())]

    def number_of(self, namespace: str, gang: str) -> int:
        """Return how many of these there are."""
        space = self._namespaces.get(namespace)
        return 0 if space is None else len(space.members.get(gang, ()))

    def pod(self, namespace: str, uid: str) -> PodRecord | None:
        """Return one pod, if it is known."""
        space = self._namespaces.get(namespace)
        return None if space is None else space.pods.get(uid)

    def given_back(self, namespace: str, uid: str, pod_set: str) -> int:
        """Return how many pods of a set of a reservation have ended for good: others may have their room."""
        space = self._namespaces.get(namespace)
        return 0 if space is None else space.reclaimed.get(uid, {}).get(pod_set, 0)

    def live_pods(self, namespace: str, gang: str, pod_set: str) -> int:
        """Return how many pods of a gang's set are live, those behind our gate included."""
        space = self._namespaces.get(namespace)
        return 0 if space is None else space.live.get((gang, pod_set), 0)

    def leaving_pods(self, namespace: str, gang: str, pod_set: str, now: float) -> int:
        """Return how many pods of a gang's set are being deleted and may run on, for their grace period is not over.

        One that is there for longer is on a node that does not answer, and may stay for ever.
        """
        space = self._namespaces.get(namespace)
        uids = None if space is None else space.leaving.get((gang, pod_set))
        return 0 if space is None or not uids else sum(now < space.pods[uid].gone_by_seconds for uid in uids)

    def present(self, namespace: str, gang: str) -> int:
        """Return how many pods of a gang were let go and have not ended: while there is one, quota is held.

        Those being deleted count, those behind our scheduling gate do not.
        """
        space = self._namespaces.get(namespace)
        return 0 if space is None else space.present.get(gang, 0)

    def shortfall(
        self, gang: Gang, counts: Mapping[str, int], gone: Collection[str] = ()
    ) -> FenceFull | NotStated | None:
        """Return why ``counts`` pods of ``gang`` do not fit the fences of its namespace now, or None when they do.

        They come on top of what it has reserved. Those of them that exist behind our gate are used already. ``gone``
        are uids of jobs that count as if they had been stopped.
        """
        space = self._namespaces.get(gang.namespace)
        if space is None or not space.fences or gang.loose_pods:
            return None
        reservation = space.reservations.get(gang.uid)
        before = {} if reservation is None else reservation.counts
        new: dict[str, int] = {}
        for pod_set in gang.pod_sets:
            missing = before.get(pod_set.name, 0) - space.live.get((gang.uid, pod_set.name), 0)
            new[pod_set.name] = max(0, missing + counts.get(pod_set.name, 0)) - max(0, missing)
        pods = [(pod_set.price, new[pod_set.name]) for pod_set in gang.pod_sets]
        return self._refusal(gang, new) or self._shortfall(gang.namespace, pods, gone=gone)

    def _refusal(self, gang: Gang, new: Mapping[str, int]) -> NotStated | None:
        """Return why the API server would refuse ``new`` pods of ``gang`` however much is free, or None."""
        come = [pod_set for pod_set in gang.pod_sets if new[pod_set.name] > 0 and pod_set.price.unstated]
        for fence in self.fences(gang.namespace) if come else ():
            silent = {pod_set.name: keys for pod_set in come if (keys := fence.unstated(pod_set.price))}
            if silent:
                return NotStated(
                    fence.label, tuple(sorted({key for keys in silent.values() for key in keys})), tuple(silent)
                )
        return None

    def pod_shortfall(
        self, namespace: str, price: PodPrice, also: Iterable[PodPrice] = (), instead_of: Iterable[PodPrice] = ()
    ) -> FenceFull | None:
        """Return why one more pod does not fit in addition to what is used and reserved, or None.

        ``also`` are pods that this replica has let pass and not yet seen; ``instead_of`` are prices of counted pods
        whose place this one, or one of these, takes (resizes).
        """
        pods = [(price, 1), *((other, 1) for other in also), *((counted, -1) for counted in instead_of)]
        return self._shortfall(namespace, pods, asked_of=price)

    def never_fits(self, gang: Gang) -> FenceFull | NotStated | None:
        """Return why the smallest start of ``gang`` exceeds a fence even when nothing else runs, or None."""
        if gang.loose_pods or not self.bind(gang.namespace):
            return None
        fences = self.fences(gang.namespace)
        least = gang.least_counts
        refusal = self._refusal(gang, least)
        if refusal is not None:
            return refusal
        pods = [(pod_set.price, least[pod_set.name]) for pod_set in gang.pod_sets]
        return _together(
            FenceFull(fence.label, key, asked, fence.hard[key])
            for fence in fences
            for key, asked in sorted(fence.demand(pods).items())
            if asked > fence.hard[key]
        )

    # -- bookkeeping ------------------------------------------------------------------------------------------------

    def _shortfall(
        self,
        namespace: str,
        pods: list[tuple[PodPrice, int]],
        asked_of: PodPrice | None = None,
        gone: Collection[str] = (),
    ) -> FenceFull | None:
        space = self._namespaces.get(namespace)
        if space is None:
            return None
        found: list[FenceFull] = []
        for name in sorted(space.fences):
            fence = space.fences[name]
            left = _left_by(gone, space, fence) if gone else {}
            for key, asked in sorted(fence.demand(pods).items()):
                taken = space.used[name].get(key, 0) + space.claimed[name].get(key, 0) - left.get(key, 0)
                if asked > 0 and taken + asked > fence.hard[key]:
                    shown = asked if asked_of is None else fence.charge(asked_of).get(key, asked)
                    holders = () if found else self._holders(space, fence, key)
                    # Others that are on their way count as there.
                    found.append(FenceFull(fence.label, key, shown, fence.hard[key], taken + asked - shown, holders))
        return _together(found)

    def _holders(self, space: _Namespace, fence: Fence, key: str) -> tuple[Holder, ...]:
        """Return who has most of what a fence bounds."""
        held: dict[str, int] = {}
        for (gang, gated), holds in space.held[fence.name].items():
            if amount := holds.get(key, 0):
                owner = space.reservations.get(gang)
                name = owner.key if owner is not None else "waiting pods" if gated else "loose pods"
                held[name] = held.get(name, 0) + amount
        largest = sorted(((amount, name) for name, amount in held.items() if amount), reverse=True)[:3]
        return tuple(Holder(name, amount) for amount, name in largest)

    def _discount(self, space: _Namespace, pod: PodRecord) -> None:
        if pod.gang is not None:
            space.members[pod.gang].pop(pod.uid, None)
            if not space.members[pod.gang]:
                del space.members[pod.gang]
        self._count_pod(space, pod, -1)

    def _count_pod(self, space: _Namespace, pod: PodRecord, sign: int) -> None:
        if pod.live and pod.gang is not None:
            key = (pod.gang, pod.pod_set)
            space.live[key] = space.live.get(key, 0) + sign
            if not space.live[key]:
                del space.live[key]
        elif pod.gang is not None and pod.terminating and not pod.terminal:
            _keep(space.leaving, (pod.gang, pod.pod_set), pod.uid, sign)
        if pod.gang is not None and not pod.gated and not pod.terminal:
            _accumulate(space.present, {pod.gang: 1}, sign)
            if not space.present[pod.gang]:
                del space.present[pod.gang]
        for name, fence in space.fences.items():
            use = fence.use_of(pod)
            _accumulate(space.used[name], use, sign)
            _hold(space.held[name], (pod.gang or "", pod.gated), use, sign)

    def _claims(self, space: _Namespace, uid: str | None, sign: int, pod_set: str | None = None) -> None:
        reservation = None if uid is None else space.reservations.get(uid)
        if uid is None or reservation is None:
            return
        for name, fence in space.fences.items():
            claim = space.claim(fence, reservation, pod_set)
            _accumulate(space.claimed[name], claim, sign)
            _hold(space.held[name], (uid, False), claim, sign)

    def _recount(self, space: _Namespace, fence: Fence) -> None:
        used: dict[str, int] = {}
        claimed: dict[str, int] = {}
        held: dict[tuple[str, bool], dict[str, int]] = {}
        for pod in space.pods.values():
            use = fence.use_of(pod)
            _accumulate(used, use, 1)
            _hold(held, (pod.gang or "", pod.gated), use, 1)
        for uid, reservation in space.reservations.items():
            claim = space.claim(fence, reservation)
            _accumulate(claimed, claim, 1)
            _hold(held, (uid, False), claim, 1)
        space.used[fence.name], space.claimed[fence.name], space.held[fence.name] = used, claimed, held


def _counts_as(pod: PodRecord) -> tuple[object, ...]:
    """Return all of a pod that anything here follows from."""
    return pod.gang, pod.pod_set, pod.price, pod.terminal, pod.terminating, pod.gated


def _hold(
    held: dict[tuple[str, bool], dict[str, int]], who: tuple[str, bool], change: Mapping[str, int], sign: int
) -> None:
    """Change what somebody holds; who holds nothing is forgotten."""
    holds = held.setdefault(who, {})
    for key, amount in change.items():
        holds[key] = holds.get(key, 0) + sign * amount
        if not holds[key]:
            del holds[key]
    if not holds:
        del held[who]


def _together(found: Iterable[FenceFull]) -> FenceFull | None:
    """Return the first of what has too little with all others in it, or None where there is none."""
    full = list(found)
    return replace(full[0], others=tuple(full[1:])) if full else None


def _left_by(gone: Iterable[str], space: _Namespace, fence: Fence) -> dict[str, int]:
    """Return what a fence gets back when jobs are stopped. Ended pods, and those behind our gate, stay stored."""
    pods = (space.pods[uid] for job in gone for uid in space.members.get(job, ()))
    uses = [fence.use_of(pod) for pod in pods if not pod.gated and not pod.terminal]
    entries = [space.reservations[job] for job in gone if job in space.reservations]
    claims = [space.claim(fence, entry) for entry in entries]
    return amounts.total([*uses, *claims])


def _keep(kept: dict[tuple[str, str], set[str]], key: tuple[str, str], uid: str, sign: int) -> None:
    if sign > 0:
        kept.setdefault(key, set()).add(uid)
        return
    kept[key].discard(uid)
    if not kept[key]:
        del kept[key]


def _accumulate(total: dict[str, int], change: Mapping[str, int], sign: int) -> None:
    for key, amount in change.items():
        total[key] = total.get(key, 0) + sign * amount
