"""What the nodes never hold, whatever runs there: no start may be promised of it.

Counted is what nodes have to give when they are empty, also those that are cordoned, not ready or tainted, for they may
come back; only nodes without the labels that the pods ask for are left out. So a "never" is certain until nodes are
added.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import PODS
from webhook.core.nodes.shape import Shape
from webhook.core.nodes.turns import ROUND_VISITS
from webhook.core.notation import amounts, names, quantity
from webhook.core.notation.amounts import Amounts
from webhook.core.notation.counted import counted
from webhook.core.notation.quantity import MILLI
from webhook.core.placement.misplaced import Misplaced
from webhook.core.placement.near import levels_of
from webhook.core.placement.overlay import Asked
from webhook.core.reasons.reasons import Code, Reason

_EMPTY: Final = "when nothing else runs there"
_FIX: Final = "it cannot start: ask for fewer or smaller pods, or have nodes added"


def beyond(capacity: Capacity, found: Misplaced) -> Reason | None:
    """Return why the nodes never hold a gang; None where they might."""
    if capacity.eligible(found.asked.shape).no_such_node:
        return None
    return (
        _one_pod(capacity, found.asked.shape)
        or _pod_set(capacity, found.asked)
        or _domain(capacity, found.asked)
        or _gang(capacity, found)
    )


def asked_by(asked: Asked) -> str:
    """Return what a pod set asks, as the beginning of a sentence."""
    each = amounts.render({name: amount for name, amount in asked.shape.requests if name != PODS})
    ports = "".join(f", port {port} of its node" for port in asked.shape.ports)
    return f"asks for {counted(asked.count, 'pod')} of {each}{ports}"


def _one_pod(capacity: Capacity, shape: Shape) -> Reason | None:
    nearest = _nearest_of_too_small(capacity, shape)
    if nearest is None:
        return None
    lacked = {name: amount for name, amount in shape.requests if nearest.get(name, 0) < amount}
    has = ", ".join(f"{quantity.render(nearest.get(name, 0), name)} {name}" for name in sorted(lacked))
    return Reason(
        Code.NODES_DO_NOT_FIT,
        f"no node is large enough: one pod asks for {amounts.render(lacked)}, the largest that may take it has {has}",
        help="let each pod ask for less, or have a larger node added",
        is_beyond=True,
    )


def _nearest_of_too_small(capacity: Capacity, shape: Shape) -> Amounts | None:
    """Return what the node has to give that comes nearest to one pod, where none that may take it is large enough
    though nothing else ran there; None where one is, or where something else keeps the pods off every node.
    """
    known = capacity.eligible(shape)
    if known.large or not known.admitted:
        return None
    nodes = [capacity.nodes[name].capacity for name in known.admitted]
    return max(nodes, key=lambda each: min(each.get(name, 0) / amount for name, amount in shape.requests))


def _pod_set(capacity: Capacity, asked: Asked) -> Reason | None:
    room = capacity.eligible(asked.shape).empty
    holds = sum(room.values())
    if holds >= asked.count:
        return None
    return Reason(
        Code.NODES_DO_NOT_FIT,
        f"pod set {asked.name} {asked_by(asked)}; the nodes that could take them ({len(room)}) hold {holds} "
        f"{_EMPTY}, {asked.count - holds} too few",
        help=_FIX,
        is_beyond=True,
    )


def _domain(capacity: Capacity, asked: Asked) -> Reason | None:
    near = asked.near
    if near is None or not near.required or not near.level:
        return None
    path, room = levels_of(asked), capacity.eligible(asked.shape).empty
    depth = path.index(near.level) + 1
    holds = Counter[str]()
    for node, domain in capacity.domains(path).of.items():
        holds["/".join(domain[:depth])] += room.get(node, 0)
    largest = min(holds, key=lambda each: (-holds[each], each), default=None)
    if largest is None or not 0 < holds[largest] < asked.count:
        return None
    return Reason(
        Code.TOPOLOGY_PLACEMENT_FAILED,
        f"pod set {asked.name} {asked_by(asked)} within one {near.level}; the largest, {largest}, holds "
        f"{holds[largest]} {_EMPTY}, {asked.count - holds[largest]} too few",
        help=f"it cannot start: ask for fewer or smaller pods, for a wider label, or with {names.PREFERRED_TOPOLOGY}",
        is_beyond=True,
    )


def _gang(capacity: Capacity, found: Misplaced) -> Reason | None:
    """Each pod set might fit alone; what all of them ask together may be more than there is."""
    if len(found.gang) == 1:
        return None
    asked, nodes = Counter[str](), _bearing(capacity, found)
    for each in found.gang:
        for name, amount in each.shape.requests:
            asked[name] += amount * each.count
    has = amounts.total([capacity.nodes[node].capacity for node in nodes])
    lacked = {name: amount for name, amount in asked.items() if has.get(name, 0) < amount}
    if not lacked:
        return None
    sets, which = counted(len(found.gang), "pod set"), "" if nodes is capacity.nodes else " that could take them"
    return Reason(
        Code.NODES_DO_NOT_FIT,
        f"its {sets} ask for {_rendered(lacked)} together; the nodes{which} ({len(nodes)}) have "
        f"{_rendered({name: has.get(name, 0) for name in lacked})} {_EMPTY}",
        help=_FIX,
        is_beyond=True,
    )


def _bearing(capacity: Capacity, found: Misplaced) -> Collection[str]:
    """Return the nodes that bear the labels of any pod set of a gang, whatever its pods request. Where the sets ask for
    so many different ones that to compare them takes too long, these are all nodes: a "never" is certain then too.
    """
    kinds = dict.fromkeys(each.shape.kind for each in found.gang)
    if len(kinds) * len(capacity.nodes) > ROUND_VISITS:
        return capacity.nodes
    return {node: None for kind in kinds for node in capacity.eligible(kind).empty}


def _rendered(found: Mapping[str, int]) -> str:
    each = (
        counted(found[name] // MILLI, "pod") if name == PODS else f"{quantity.render(found[name], name)} {name}"
        for name in sorted(found)
    )
    return ", ".join(each)
