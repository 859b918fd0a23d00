"""The nodes under a replay: which pods a job has, and where kube-scheduler would put them.

A job of a log says how many GPUs it had, not how they were spread: it is taken as pods of at most a node's GPUs, whole
nodes first. kube-scheduler binds pod by pod, each to the node with most free (its default, LeastAllocated).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.core.model.policy import Flavor
from webhook.core.nodes.allotment import Allotment
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import PODS, NodeRecord
from webhook.core.nodes.shape import shape_of
from webhook.core.notation.problem import Problem
from webhook.core.notation.quantity import MILLI
from webhook.core.placement.overlay import Asked
from webhook.errors import WrongInput
from webhook.laboratory.dry_run.files import objects as files
from webhook.laboratory.dry_run.files.nodes import read_node

NODES_MAX: Final = 100_000


class StartRule(StrEnum):
    """What a start depends on, besides quota."""

    QUOTA = "quota"
    """Nothing: kube-scheduler binds what it can, and a gang that is not whole in time is stopped."""
    CHECK = "check"
    """All pods must fit the nodes; kube-scheduler chooses where."""
    PACK = "pack"
    """All pods must fit the nodes, and go where best fit puts them."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The nodes of a replay."""

    nodes: tuple[NodeRecord, ...]
    resource: str
    alike: bool = False
    """Made by number: flavors have no labels that could tell one from another."""

    @property
    def largest(self) -> int:
        """Whole units of the resource on the largest node."""
        return max(node.allocatable.get(self.resource, 0) for node in self.nodes) // MILLI

    def capacity(self) -> Capacity:
        """Return the nodes with nothing on them."""
        empty = Capacity()
        for node in self.nodes:
            empty.put_node(node)
        return empty

    def pod_sets(self, size: int) -> tuple[PodSet, ...]:
        """Return a job's pods: as many of a whole node as its size has, and one of the rest."""
        whole, rest = divmod(size, self.largest)
        main = PodSet("main", whole, _price(self.resource, self.largest))
        return ((main,) if whole else ()) + ((PodSet("rest", 1, _price(self.resource, rest)),) if rest else ())

    def units(self, pods: PodSet) -> int:
        """Return how many units of the resource such pods ask."""
        return pods.count * pods.price.requests.get(self.resource, 0) // MILLI


def _price(resource: str, units: int) -> PodPrice:
    return PodPrice({resource: units * MILLI}, {resource: units * MILLI})


def pool(text: str, resource: str, quota: int) -> Pool:
    """Return the nodes that ``--nodes`` names. Raises WrongInput.

    A file of Node objects; COUNTxSIZE, as 64x8; or SIZE alone: as many as ``quota`` units come to, rounded up.
    """
    count, times, size = text.partition("x")
    if not times:
        count, size = "", text
    if size.isdigit() and (count.isdigit() or not times):
        nodes = int(count) if times else -(-quota // max(1, int(size)))
        if not 0 < nodes <= NODES_MAX or not int(size):
            raise WrongInput((_wrong(text, "no nodes", f"give 1 to {NODES_MAX} nodes of at least 1, as 64x8"),))
        of_one = {resource: int(size) * MILLI}
        return Pool(tuple(NodeRecord(f"node-{place:05d}", of_one) for place in range(nodes)), resource, alike=True)
    if not Path(text).exists():
        why, fix = "is neither a size nor a file", "give SIZE, COUNTxSIZE as in 64x8, or a file of Nodes"
        raise WrongInput((_wrong(text, why, fix),))
    found, problems = files.read([Path(text)])
    named = files.named([each for each in found if each["kind"] == "Node"], problems)
    nodes_found = [read_node(each, problems) for each in named]
    records = [_record(each.node, resource) for each in nodes_found if each is not None]
    having = tuple(node for node in records if node.allocatable[resource])
    if not having and not problems:
        problems.append(_wrong(text, f"has no Node with {resource}", "give Node objects, or COUNTxSIZE as in 64x8"))
    if problems:
        raise WrongInput(tuple(problems))
    return Pool(having, resource)


def topologies(text: str | None) -> list[files.Object]:
    """Return the Topology objects in the file that ``--nodes`` names; what cannot be read there ``pool`` tells."""
    if text is None or not Path(text).exists():
        return []
    return [each for each in files.read([Path(text)])[0] if each["kind"] == "Topology"]


def _record(node: NodeRecord, resource: str) -> NodeRecord:
    """Return a node with one resource alone, as jobs of a log ask no other; it is there from the beginning."""
    return replace(node, allocatable={resource: node.allocatable.get(resource, 0)}, ready=True)


def _wrong(value: str, why: str, fix: str) -> Problem:
    return Problem("--nodes", value, why, fix)


@dataclass(frozen=True, slots=True)
class Floor:
    """What a replay's gangs stand on."""

    capacity: Capacity
    fit: StartRule
    flavors: Mapping[str, Flavor]

    def asked(self, gang: Gang, reservation: Reservation) -> tuple[Asked, ...]:
        """Return what kube-scheduler is asked for a gang that is admitted: its start wrote the labels and tolerations
        of its flavors into the pods, and of their topology nothing.
        """
        chosen = {
            each.name: {name: self.flavors[name] for name in each.flavors.values() if name in self.flavors}
            for each in reservation.pod_sets
        }
        shapes = {each.name: replace(shape_of(each, chosen[each.name]), levels=()) for each in gang.pod_sets}
        return tuple(Asked(each.name, shapes[each.name], each.count) for each in gang.pod_sets)

    def start(self, uid: str, asked: Sequence[Asked]) -> int:
        """Have kube-scheduler bind the pods of a gang that is admitted, wherever they would fit best."""
        self.capacity.withdraw(uid)
        return self.bind(uid, asked)

    def bind(self, uid: str, asked: Sequence[Asked]) -> int:
        """Have kube-scheduler bind what it can of a gang, and return how many units its pods hold now."""
        bind(self.capacity, uid, asked)
        held = self.capacity.allotments.get(uid)
        bound = {} if held is None else {name: sum(places.values()) for name, places in held.places.items()}
        resource = next(name for name, _ in asked[0].shape.requests if name != PODS)
        return sum(each.shape.amount(resource) // MILLI * bound.get(each.name, 0) for each in asked)


def bind(capacity: Capacity, gang: str, asked: Iterable[Asked]) -> int:
    """Bind a gang's pods as kube-scheduler does, one by one to the node with most room; return how many found none.

    Pods that were bound before stay; those that were not are tried again.
    """
    sets = list(asked)
    before = capacity.allotments.get(gang)
    places = {each.name: dict(before.places.get(each.name, {})) if before else {} for each in sets}
    shapes, missing = {each.name: each.shape for each in sets}, 0
    for each in sets:
        wanted, own = each.count - sum(places[each.name].values()), places[each.name]
        while wanted and (rooms := capacity.ranking(each.shape).by_room):
            node = rooms[max(rooms)][0]
            own[node] = own.get(node, 0) + 1
            wanted -= 1
            capacity.allot(gang, Allotment(shapes, {name: dict(nodes) for name, nodes in places.items()}))
        missing += wanted
    return missing
