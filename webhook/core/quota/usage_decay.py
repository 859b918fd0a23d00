"""Usage-decay ordering: within a queue, the local queue that used less lately goes first.

Kueue calls it admission fair sharing. What a local queue consumed is an exponential average of its charged usage,
sampled at intervals, with the given half-life; each admission adds an entry penalty at once, so that a burst is not
admitted on one sample. Amounts are summed in whole units (cores, bytes) by configured weights and divided by the local
queue's own weight.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from webhook.core.model.policy import LocalQueue
from webhook.core.model.settings import UsageDecay
from webhook.core.notation.quantity import MILLI
from webhook.core.quota.allocations import Allocation
from webhook.core.quota.tree import AmountsByFlavor

LocalName = tuple[str, str]
"""(namespace, name) of a local queue."""


@dataclass(slots=True)
class DecayedUsage:
    """What local queues consumed, decayed."""

    rule: UsageDecay
    sampled_seconds: float | None = None
    """Unix time of the last sample; None before the first."""
    consumed: dict[LocalName, dict[str, float]] = field(default_factory=dict)
    """Local queue to resource to whole units."""

    def copy(self) -> "DecayedUsage":
        """Return an independent copy."""
        return DecayedUsage(self.rule, self.sampled_seconds, {name: dict(used) for name, used in self.consumed.items()})

    def next_sample(self) -> float | None:
        """Return when the next sample is due; None when at once."""
        return None if self.sampled_seconds is None else self.sampled_seconds + self.rule.sampling_interval_seconds

    def sample(self, now: float, allocations: Iterable[Allocation]) -> bool:
        """Average what ``allocations`` are charged now into what was consumed; return whether a sample was due."""
        due = self.next_sample()
        if due is not None and now < due:
            return False
        last, self.sampled_seconds = self.sampled_seconds, now
        if last is None:
            # What was consumed before is as of now.
            return True
        kept = self._kept(now - last)
        current: dict[LocalName, dict[str, float]] = {}
        for allocation in allocations:
            name = local_name(allocation)
            if name is not None:
                _accumulate(current.setdefault(name, {}), allocation.amounts, 1.0)
        for name in sorted(self.consumed.keys() | current.keys()):
            old, new = self.consumed.get(name, {}), current.get(name, {})
            averaged = {
                r: kept * old.get(r, 0.0) + (1 - kept) * new.get(r, 0.0) for r in sorted(old.keys() | new.keys())
            }
            self.consumed[name] = averaged if self.rule.half_life_seconds > 0 else {}
        return True

    def charge(self, name: LocalName, amounts: AmountsByFlavor) -> None:
        """Add the entry penalty of an admission; nothing where nothing is remembered."""
        if self.rule.half_life_seconds <= 0:
            return
        share = 1 - self._kept(self.rule.sampling_interval_seconds)
        _accumulate(self.consumed.setdefault(name, {}), amounts, share)

    def rank(self, name: LocalName, local: LocalQueue | None) -> float:
        """Return the weighted usage of a local queue: smaller goes first."""
        used = sum(
            self.rule.resource_weights.get(resource, 1.0) * amount
            for resource, amount in sorted(self.consumed.get(name, {}).items())
        )
        weight = MILLI if local is None else local.weight_millis
        if weight <= 0:
            return inf
        return used * MILLI / weight

    def _kept(self, elapsed_seconds: float) -> float:
        """Return the part of an old average that is left after a time."""
        if self.rule.half_life_seconds <= 0:
            return 0.0
        return float(0.5 ** (elapsed_seconds / self.rule.half_life_seconds))


def local_name(allocation: Allocation) -> LocalName | None:
    """Return the local queue that an allocation came through, where its job is known."""
    label = None if allocation.gang is None else allocation.gang.queue
    return None if label is None else (allocation.reservation.namespace, label)


def _accumulate(total: dict[str, float], amounts: AmountsByFlavor, share: float) -> None:
    for (_, resource), amount in sorted(amounts.items()):
        total[resource] = total.get(resource, 0.0) + share * amount / MILLI
