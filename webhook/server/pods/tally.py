"""What this replica let pass and has not yet seen: the only memory the webhook has of its own answers.

Between "allowed" and the watch event that shows the pod, a second pod could be granted the same headroom. The tally
closes that gap for one replica; ``ownership`` makes sure that one replica answers for a namespace. It is no ledger: an
allowed pod may never be stored, so an entry ends when its pod is seen (by uid), or when it would have been: a few
seconds have passed, the watch has told of something since, and of a pod that was made later, for a watch may speak and
be behind. A watch that is silent may be a dead one, for as long as it takes to give it up. Losing it all (a restart)
risks no more than one watch delay's worth of pods, which the reconciler heals.

A resize of a pod is remembered beside the pod, as what it may hold from then on: what the fences count of it already is
theirs to count. It ends when the pod is seen at a later ``resourceVersion`` than the one that was resized. Whatever is
stored follows the version that its review showed, so that the resize is seen then too, or was not stored.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from typing import Final, NamedTuple

from webhook.core.ledger.bounds import RESOURCE_NAMES_MAX
from webhook.core.model.frozen import frozen
from webhook.core.model.gang import PodPrice
from webhook.core.model.pods import PodRecord
from webhook.core.notation import amounts

EXPIRY_SECONDS: Final = 5.0
"""Longer than any healthy watch delay, shorter than the patience of a controller whose pod was refused for it."""
SHOWN_SECONDS: Final = 2.0
"""What the watch tells so much later than a pod was let pass, or of a pod made so much later, comes after that pod."""
BEHIND_SECONDS: Final = 15.0
"""More than a watch is behind that speaks. Where no pod is made later, nothing shows how far it is."""
ENTRIES_MAX: Final = 5_000
"""Per namespace; a flood beyond it is answered "busy"."""
ENTRIES_IN_ALL_MAX: Final = 40_000
"""Of all namespaces together, for the same reason."""
RESOURCE_NAME_CHARS_MAX: Final = 317
"""A DNS name, a slash and 63 characters."""


def unkept(price: PodPrice) -> str | None:
    """Return why the price of a pod is more than is remembered, or None."""
    asked = {*price.requests, *price.limits}
    if len(asked) > RESOURCE_NAMES_MAX:
        return f"the pod names {len(asked)} resources; name at most {RESOURCE_NAMES_MAX}"
    longest = max(asked, key=len, default="")
    return None if len(longest) <= RESOURCE_NAME_CHARS_MAX else f"{longest:.80}… is not a name of a resource"


def larger(left: PodPrice, right: PodPrice) -> PodPrice:
    """Return ``left`` with the larger amount of both of each resource."""
    requests, limits = amounts.maximum(left.requests, right.requests), amounts.maximum(left.limits, right.limits)
    same = requests == left.requests and limits == left.limits
    return left if same else replace(left, requests=requests, limits=limits)


@frozen
class Passed:
    """One pod that was let pass, or one that was let ask more."""

    price: PodPrice
    gang: str | None
    pod_set: str
    since_seconds: float
    """Monotonic time."""
    created_seconds: float
    """Its ``creationTimestamp``, whole seconds of the API server's clock; 0 where that did not say so."""
    resized: str = ""
    """Uid of the pod that was let ask more; empty for a new one."""
    version: float = 0.0
    """The ``resourceVersion`` of that pod that was resized."""


class Unseen(NamedTuple):
    """What loose pods hold, or may hold any moment, that the fences do not count yet."""

    come: list[PodPrice]
    instead_of: list[PodPrice]
    """What the fences, or ``come``, count of pods that were resized: the larger ones are in ``come`` in their place."""


class Tally:
    """Pods let pass and not yet seen, by namespace.

    ``find(namespace, uid)`` returns the pod as the view has it; ``heard_seconds()`` when the watch last told anything.
    """

    def __init__(
        self,
        find: Callable[[str, str], PodRecord | None],
        heard_seconds: Callable[[], float] = lambda: inf,
    ) -> None:
        self._find = find
        self._heard_seconds = heard_seconds
        self._passed: dict[str, dict[str, Passed]] = {}
        self._swept_seconds = -inf
        self._shown_seconds = 0.0
        """``created_seconds`` of the newest pod that was seen."""

    def __len__(self) -> int:
        """Return how many pods are remembered, those among them that nobody has asked about since they expired."""
        return sum(map(len, self._passed.values()))

    def add(
        self,
        namespace: str,
        uid: str,
        price: PodPrice,
        now_seconds: float,
        created_seconds: float = 0.0,
        *,
        gang: str | None = None,
        pod_set: str = "",
    ) -> None:
        """Remember a pod that was let pass; a second review of the same pod counts once."""
        self._sweep(now_seconds)
        passed = Passed(price, gang, pod_set, now_seconds, created_seconds)
        self._passed.setdefault(namespace, {})[uid] = passed

    def add_resize(self, namespace: str, uid: str, price: PodPrice, now_seconds: float, version: int) -> None:
        """Remember that a pod at ``version`` (0: not known) was let ask ``price``.

        The most of what it was let ask counts until the last of that is seen: any of it may be stored.
        """
        self._sweep(now_seconds)
        passed, key, last = self._passed.setdefault(namespace, {}), _key_of_resize(uid), float(version or inf)
        before = passed.get(key)
        if before is not None and not self._is_past(namespace, key, before, now_seconds):
            most, last = larger(price, before.price), max(last, before.version)
            price = price if unkept(most) else most
        # No later pod shows how far the watch is: this one was made long ago.
        passed[key] = Passed(price, None, "", now_seconds, inf, resized=uid, version=last)

    def saw(self, namespace: str, uid: str, created_seconds: float, version: int | None = None) -> None:
        """Drop a pod that was seen, at ``version`` or as it went: from now on the view speaks for it."""
        self._shown_seconds = max(self._shown_seconds, created_seconds)
        passed = self._passed.get(namespace)
        if passed is None:
            return
        passed.pop(uid, None)
        resized = passed.get(_key_of_resize(uid))
        if resized is not None and (version is None or version > resized.version):
            del passed[_key_of_resize(uid)]
        if not passed:
            del self._passed[namespace]

    def full(self, namespace: str, now_seconds: float) -> bool:
        """Return whether the namespace holds as many entries as are kept, or all together do."""
        self._sweep(now_seconds)
        return len(self) >= ENTRIES_IN_ALL_MAX or len(self._passed.get(namespace, ())) >= ENTRIES_MAX

    def pending(self, namespace: str, now_seconds: float, but: str = "") -> list[Passed]:
        """Return what was let pass in ``namespace`` and neither seen nor expired, except the pod ``but`` itself."""
        return [pod for uid, pod in self._live(namespace, now_seconds).items() if uid != but]

    def loose(self, namespace: str, now_seconds: float, but: str) -> Unseen:
        """Return what is not counted yet of loose pods and of all that were resized, except the pod ``but`` itself."""
        unseen, live = Unseen([], []), self._live(namespace, now_seconds)
        for key, each in live.items():
            if each.gang is not None or (each.resized or key) == but:
                continue
            counted = self._counted(namespace, each.resized, live) if each.resized else None
            unseen.come.append(each.price if counted is None else larger(each.price, counted))
            if counted is not None:
                unseen.instead_of.append(counted)
        return unseen

    def _counted(self, namespace: str, uid: str, live: Mapping[str, Passed]) -> PodPrice | None:
        """Return with what a pod counts that was resized: as it was seen, or let pass as a loose one; None for not."""
        pod, made = self._find(namespace, uid), live.get(uid)
        if pod is not None:
            return None if pod.terminal else pod.price
        return made.price if made is not None and made.gang is None else None

    def of_pod_set(self, namespace: str, gang: str, pod_set: str, now_seconds: float, but: str = "") -> int:
        """Return how many of the pending pods belong to one set of a gang."""
        return sum(p.gang == gang and p.pod_set == pod_set for p in self.pending(namespace, now_seconds, but))

    def _live(self, namespace: str, now_seconds: float) -> Mapping[str, Passed]:
        """Return what is pending in ``namespace`` by its key; forgets what is not any more."""
        passed = self._passed.get(namespace)
        if not passed:
            return {}
        for key in [key for key, each in passed.items() if self._is_past(namespace, key, each, now_seconds)]:
            del passed[key]
        if not passed:
            del self._passed[namespace]
        return passed

    def _is_past(self, namespace: str, key: str, each: Passed, now_seconds: float) -> bool:
        pod = self._find(namespace, each.resized or key)
        seen = pod is not None and (not each.resized or pod.resource_version > each.version)
        return seen or self._is_over(each, now_seconds)

    def _sweep(self, now_seconds: float) -> None:
        """Drop what is over, in all namespaces: of one that nobody asks about any more nothing would end otherwise."""
        if now_seconds - self._swept_seconds >= EXPIRY_SECONDS:
            self._swept_seconds = now_seconds
            for each in list(self._passed):
                self._live(each, now_seconds)

    def _is_over(self, pod: Passed, now_seconds: float) -> bool:
        """Return whether the watch would have shown the pod by now, had it been stored.

        Where API servers' clocks differ by more than ``SHOWN_SECONDS``, or another webhook holds a pod up for longer,
        a pod that was created later may be shown before; so it never ends before ``EXPIRY_SECONDS``.
        """
        age, silent = now_seconds - pod.since_seconds, pod.since_seconds + SHOWN_SECONDS > self._heard_seconds()
        if silent or age < EXPIRY_SECONDS:
            return False
        return age >= BEHIND_SECONDS or pod.created_seconds + SHOWN_SECONDS < self._shown_seconds


def _key_of_resize(uid: str) -> str:
    """Return by what the resize of a pod is remembered beside the pod itself. No uid has a blank."""
    return f"{uid} resized"
