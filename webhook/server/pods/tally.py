"""What this replica let pass and has not yet seen: the only memory the webhook has of its own answers.

Between "allowed" and the watch event that shows the pod, a second pod could be granted the same headroom. The tally
closes that gap for one replica; ``ownership`` makes sure that one replica answers for a namespace. It is no ledger: an
allowed pod may never be stored, so an entry ends when its pod is seen (by uid), or when it would have been: a few
seconds have passed, the watch has told of something since, and of a pod that was made later, for a watch may speak and
be behind. A watch that is silent may be a dead one, for as long as it takes to give it up. Losing it all (a restart)
risks no more than one watch delay's worth of pods, which the reconciler heals.
"""

from collections.abc import Callable
from math import inf
from typing import Final

from webhook.core.model.frozen import frozen
from webhook.core.model.gang import PodPrice

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


@frozen
class Passed:
    """One pod that was let pass."""

    price: PodPrice
    gang: str | None
    pod_set: str
    since_seconds: float
    """Monotonic time."""
    created_seconds: float
    """Its ``creationTimestamp``, whole seconds of the API server's clock; 0 where that did not say so."""


class Tally:
    """Pods let pass and not yet seen, by namespace.

    ``seen(namespace, uid)`` says whether the view has the pod; ``heard_seconds()`` when the watch last told anything.
    """

    def __init__(
        self,
        seen: Callable[[str, str], bool],
        heard_seconds: Callable[[], float] = lambda: inf,
    ) -> None:
        self._seen = seen
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

    def saw(self, namespace: str, uid: str, created_seconds: float) -> None:
        """Drop a pod that was seen: from now on the view speaks for it, also once it is gone again."""
        self._shown_seconds = max(self._shown_seconds, created_seconds)
        passed = self._passed.get(namespace)
        if passed is not None and passed.pop(uid, None) is not None and not passed:
            del self._passed[namespace]

    def full(self, namespace: str, now_seconds: float) -> bool:
        """Return whether the namespace holds as many entries as are kept, or all together do."""
        self._sweep(now_seconds)
        return len(self) >= ENTRIES_IN_ALL_MAX or len(self._passed.get(namespace, ())) >= ENTRIES_MAX

    def pending(self, namespace: str, now_seconds: float, but: str = "") -> list[Passed]:
        """Return what was let pass in ``namespace`` and neither seen nor expired, except the pod ``but`` itself."""
        passed = self._passed.get(namespace)
        if not passed:
            return []
        gone = [uid for uid, pod in passed.items() if self._seen(namespace, uid) or self._is_over(pod, now_seconds)]
        for uid in gone:
            del passed[uid]
        if not passed:
            del self._passed[namespace]
        return [pod for uid, pod in passed.items() if uid != but]

    def of_pod_set(self, namespace: str, gang: str, pod_set: str, now_seconds: float, but: str = "") -> int:
        """Return how many of the pending pods belong to one set of a gang."""
        return sum(p.gang == gang and p.pod_set == pod_set for p in self.pending(namespace, now_seconds, but))

    def _sweep(self, now_seconds: float) -> None:
        """Drop what is over, in all namespaces: of one that nobody asks about any more nothing would end otherwise."""
        if now_seconds - self._swept_seconds >= EXPIRY_SECONDS:
            self._swept_seconds = now_seconds
            for each in list(self._passed):
                self.pending(each, now_seconds)

    def _is_over(self, pod: Passed, now_seconds: float) -> bool:
        """Return whether the watch would have shown the pod by now, had it been stored.

        Where API servers' clocks differ by more than ``SHOWN_SECONDS``, or another webhook holds a pod up for longer,
        a pod that was created later may be shown before; so it never ends before ``EXPIRY_SECONDS``.
        """
        age, silent = now_seconds - pod.since_seconds, pod.since_seconds + SHOWN_SECONDS > self._heard_seconds()
        if silent or age < EXPIRY_SECONDS:
            return False
        return age >= BEHIND_SECONDS or pod.created_seconds + SHOWN_SECONDS < self._shown_seconds
