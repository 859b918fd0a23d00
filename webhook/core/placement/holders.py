"""Which gangs hold the room on nodes that a gang lacks."""

from collections import Counter
from collections.abc import Collection

from webhook.core.nodes.capacity import Capacity
from webhook.core.placement.misplaced import Misplaced
from webhook.core.placement.near import levels_of


def holders(capacity: Capacity, found: Misplaced) -> tuple[str, Counter[str]]:
    """Return the resource that is scarcest for the pods, and how much of it gangs hold, by uid, in thousandths: in the
    domain that has most room for them, where they have to be in one, else on all nodes that may and could take one.
    """
    shape = found.asked.shape
    resource, nodes = capacity.largest.scarce(shape), capacity.eligible(shape).large
    where = _where(capacity, found)
    nodes = nodes if where is None else nodes.intersection(where)
    return resource, capacity.held_on(nodes, resource) if nodes else Counter()


def _where(capacity: Capacity, found: Misplaced) -> Collection[str] | None:
    """Return the nodes that count; None: all of them."""
    near, nearest = found.asked.near, found.nearest
    if near is None or not near.binding or nearest is None:
        return None
    depth = nearest.count("/") + 1
    members = capacity.domains(levels_of(found.asked)).members
    return [node for domain, nodes in members.items() if "/".join(domain[:depth]) == nearest for node in nodes]
