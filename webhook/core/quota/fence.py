"""One ResourceQuota: which pods it counts, and what each of them costs it.

Both follow ``pkg/quota/v1/evaluator/core/pods.go`` of Kubernetes 1.36: a pod that has ended is not counted, one that is
being deleted is, scopes must all match, ``count/pods`` counts objects, and of cpu and memory that a quota bounds every
container must state the amount, unless the pod as a whole states any. A pod still there when twice its grace period is
over counts here and no longer there: it may run yet on a lost node, and what Tutti gives out twice it cannot take back.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import PodPrice, Requirement
from webhook.core.model.pods import PodRecord
from webhook.core.model.policy import requirement_holds
from webhook.core.notation import amounts
from webhook.core.notation.quantity import MILLI

_OBJECTS: Final = "count/pods"
"""Counts stored pods, ended ones too; every other key only those that have not ended."""


@dataclass(frozen=True, slots=True)
class Fence:
    """One ResourceQuota, as far as it binds pods."""

    namespace: str
    name: str
    hard: Mapping[str, int]
    """Quota key (``requests.cpu``, ``limits.memory``, ``pods``, ``requests.nvidia.com/gpu``) to thousandths."""
    scopes: tuple[Requirement, ...] = ()
    """``spec.scopes`` and ``spec.scopeSelector`` together: key is the scope name; all must match."""

    @property
    def label(self) -> str:
        """How messages name it."""
        return f"ResourceQuota {self.namespace}/{self.name}"

    def matches(self, price: PodPrice) -> bool:
        """Return whether the quota counts a pod of this price."""
        return all(_scope_holds(scope, price) for scope in self.scopes)

    def charge(self, price: PodPrice) -> dict[str, int]:
        """Return what one pod costs this quota, by quota key; only keys that the quota limits."""
        return {key: amount for key in self.hard if (amount := _charge(key, price))}

    def use_of(self, pod: PodRecord) -> dict[str, int]:
        """Return what a stored pod uses, by quota key: of one that has ended only the object counts."""
        if not self.matches(pod.price):
            return {}
        if pod.terminal:
            return {_OBJECTS: MILLI} if _OBJECTS in self.hard else {}
        return self.charge(pod.price)

    def unstated(self, price: PodPrice) -> tuple[str, ...]:
        """Return the keys that pods of this price must state and do not; the API server refuses them."""
        if not price.unstated or not self.matches(price):
            return ()
        return tuple(key for key in sorted(self.hard) if _stated_as(key) in price.unstated)

    def demand(self, pods: Iterable[tuple[PodPrice, int]]) -> dict[str, int]:
        """Return what so many pods of these prices cost this quota together, by quota key."""
        return amounts.total(amounts.scale(self.charge(price), n) for price, n in pods if n and self.matches(price))

    def claim(
        self,
        reservation: Reservation,
        live: Mapping[tuple[str, str], int],
        reclaimed: Mapping[str, int],
        pod_set: str | None = None,
    ) -> dict[str, int]:
        """Return what a reservation still claims: reserved pods that neither exist nor have ended for good.

        Of one ``pod_set`` only, if it is given: a pod that comes or goes changes no other, and there may be hundreds.

        ``live`` is by gang and pod set. An adopted gang's pods carry no label and count as loose, like those of a kind
        whose pods cannot be told apart; a stopping gang's pods are going and none will come.
        """
        if reservation.adopted or reservation.loose_pods or reservation.stopping is not None:
            return {}
        return self.demand(
            (s.price, max(0, s.count - live.get((reservation.uid, s.name), 0) - reclaimed.get(s.name, 0)))
            for s in reservation.pod_sets
            if pod_set is None or s.name == pod_set
        )


def _scope_holds(scope: Requirement, price: PodPrice) -> bool:
    match scope.key:
        case "Terminating":
            return price.has_deadline
        case "NotTerminating":
            return not price.has_deadline
        case "BestEffort":
            return price.best_effort
        case "NotBestEffort":
            return not price.best_effort
        case "CrossNamespacePodAffinity":
            return price.cross_namespace_affinity
        case "PriorityClass":
            labels: dict[str, str] = {scope.key: price.priority_class} if price.priority_class else {}
            return requirement_holds(scope, labels)
    return False


def _stated_as(key: str) -> str:
    return f"requests.{key}" if key in ("cpu", "memory") else key


def _charge(key: str, price: PodPrice) -> int:
    if key in ("pods", _OBJECTS):
        return MILLI
    prefix, _, resource = key.partition(".")
    if prefix == "requests" and resource:
        return price.requests.get(resource, 0)
    if prefix == "limits" and resource:
        return price.limits.get(resource, 0)
    return price.requests.get(key, 0) if key in ("cpu", "memory", "ephemeral-storage") else 0
