"""Pods of a gang that have room kept on other nodes than its entry in the ledger says, and the entry that says so.

A pod whose node was lost, or taken by others, is placed again. Until that is written, a new leader would not know it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from webhook.core.ledger.record import PLACES_MAX, Reservation, ReservedPodSet
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.shape import Shape


def on_nodes(bound: Mapping[tuple[str, str], int], pod_set: str) -> Counter[str]:
    """Return node to bound pods of one set; ``bound`` is by pod set and node."""
    return Counter({node: pods for (name, node), pods in bound.items() if name == pod_set})


def strays(pod_set: ReservedPodSet, here: Counter[str], own: Mapping[str, int]) -> Counter[str]:
    """Return node to pods still to come there that its entry does not name; ``own`` are all that are to come."""
    return Counter(own) - (Counter(pod_set.places) - here)


def others_to_come(
    capacity: Capacity, entries: Mapping[str, Reservation], gang: str, shape: Shape
) -> Iterator[tuple[str, str, str]]:
    """Yield gang, pod set and node of each pod that is still to come, is another gang's, and has its place where pods
    of ``shape`` may go. Those of one shape are left out: where one of them fits nowhere, none does.
    """
    for uid, allotment in sorted(capacity.allotments.items()):
        if uid == gang or uid not in entries or entries[uid].stopping is not None:
            continue
        for name, on in allotment.places.items():
            for node in on if allotment.shapes[name] != shape else ():
                if node in capacity.nodes and shape.admits(capacity.nodes[node]):
                    yield from [(uid, name, node)] * on[node]


def with_moves(
    entry: Reservation, bound: Mapping[tuple[str, str], int], places: Mapping[str, Mapping[str, int]]
) -> Reservation:
    """Return an entry whose places are those by which its pods are to come now, by pod set, in order of ranks."""
    sets = tuple(_with_moves(each, on_nodes(bound, each.name), places.get(each.name, {})) for each in entry.pod_sets)
    return entry if sets == entry.pod_sets else replace(entry, pod_sets=sets)


def _with_moves(pod_set: ReservedPodSet, here: Counter[str], own: Mapping[str, int]) -> ReservedPodSet:
    to_come = Counter(pod_set.places) - here
    now_at = sorted((Counter(own) - to_come).elements())
    unused, made = to_come - Counter(own), Counter[str]()
    for node, pods in pod_set.places.items():
        moved = min(unused[node], len(now_at))
        made[node] += pods - moved
        made.update(now_at[:moved])
        now_at = now_at[moved:]
    made = +made
    return replace(pod_set, places=dict(made)) if made and len(made) <= PLACES_MAX else pod_set
