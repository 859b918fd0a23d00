"""One gang while its places are made to agree with what is read."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import Gang, PodSet
from webhook.core.model.policy import Flavor
from webhook.core.nodes.shape import Shape, shape_of


@dataclass(frozen=True, slots=True)
class Held:
    """One gang's reservation, what it has given back, and what is known of its pods."""

    reservation: Reservation
    given_back: Mapping[str, int]
    gang: Gang | None

    def shapes(self, flavors: Mapping[str, Flavor]) -> dict[str, Shape]:
        """Return what the pods of each set ask of nodes."""
        return {each.name: self._shape(each.name, flavors) for each in self.reservation.pod_sets}

    def _shape(self, name: str, flavors: Mapping[str, Flavor]) -> Shape:
        reserved = self.reservation.pod_set(name)
        assert reserved is not None
        sets = () if self.gang is None else self.gang.pod_sets
        of_gang = next((each for each in sets if each.name == name), PodSet(name, reserved.count, reserved.price))
        chosen = dict.fromkeys(reserved.flavors.values())
        found = shape_of(of_gang, {flavor: flavors[flavor] for flavor in chosen if flavor in flavors})
        return found.within(reserved.domain)


@dataclass(slots=True)
class Settling:
    """What is known of it so far."""

    held: Held
    shapes: Mapping[str, Shape]
    """By pod set; none where its pods are not told from others."""
    missing: dict[str, int] = field(default_factory=dict)
    """Pods still to come, by pod set."""
    owed: dict[str, Counter[str]] = field(default_factory=dict)
    """Nodes to pods that were to go there and do not fit, by pod set."""
