"""What is free on every node: allocatable, less bound pods, less what is allotted to pods that are not bound yet.

    free(node) = allocatable - bound pods (foreign ones, and terminating ones until they are gone) - allotted
                 - what is kept for claims (``claimed``)

Each shape that was asked about keeps a ranking of the nodes (``ranking``); a change of a node is noted in a log, and a
ranking catches up when it is asked. So a change costs nothing by itself, and a question what changed since the last.
"""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from webhook.core.nodes.allotment import Allotment, summed
from webhook.core.nodes.changes import Changes
from webhook.core.nodes.claimed import Claimed, ClaimedRoom, Gone, Weighed
from webhook.core.nodes.columns import Asks, Columns
from webhook.core.nodes.domains import Domains, Path, keep_last
from webhook.core.nodes.eligible import ELIGIBLE_MAX, Eligible, Largest, eligible
from webhook.core.nodes.looks import QUESTIONS_MAX, Looks
from webhook.core.nodes.node import UNBOUNDED, Bound, NodeRecord
from webhook.core.nodes.ranking import Ranking, Room
from webhook.core.nodes.shape import Shape
from webhook.core.nodes.turns import CHANGES_UNCOUNTED, ROUND_VISITS, quicker_from_all, work
from webhook.core.notation import amounts
from webhook.core.notation.amounts import Amounts

SHAPES_MAX = 256
"""Indexes kept; the one used longest ago goes first."""


class Capacity:
    """All nodes of one cluster."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeRecord] = {}
        self.free: dict[str, dict[str, int]] = {}
        """Node to amounts: negative ones on a node that is overfull, and only what it lost of one not known yet."""
        self._columns = Columns()
        """The same turned round."""
        self._withheld: dict[str, dict[str, int]] = {}
        """Node to what is kept there for claims."""
        self._claims = ClaimedRoom()
        self.allotments: dict[str, Allotment] = {}
        """By uid of the gang."""
        self._bound: dict[str, Bound] = {}
        self._pods_of: dict[str, dict[str, Bound]] = {}
        """Uid of a gang to its bound pods."""
        self._decided, self._asked = Looks(), Looks()
        """What was looked at for decisions, and for questions."""
        self.asking = False
        """Whether a question is asked, which has no effect on decisions."""
        self.changes = Changes()
        """Of nodes."""
        self.freed = False
        """Something bound or allotted has become free, or a node come or gone, since somebody took note of it."""
        self.generation = 0
        """Grows when a node comes or goes, or is said to be another than it was."""
        self._eligible: dict[Shape, Eligible] = {}
        self._held: dict[str, dict[str, Amounts]] = {}
        """Gang to what it holds, by node, for those that were asked about and have not changed since."""
        self.looked = 0
        """How often the room on any one node was counted."""
        self.largest = Largest(self.nodes)
        self._domains: dict[Path, Domains] = {}

    # -- nodes and pods -----------------------------------------------------------------------------------------------

    def put_node(self, node: NodeRecord) -> None:
        """Add or replace one node."""
        before = self.nodes.get(node.name)
        if before == node:
            return
        self._eligible = {}
        self.generation += 1
        self.freed = True
        self.largest.changed(before, node)
        if before is None or before.labels != node.labels:
            self._domains = {}
        self._add(node.name, {} if before is None else before.capacity, -1)
        self.nodes[node.name] = node
        self._columns.put(node, self.free)
        self._add(node.name, node.capacity, 1)

    def drop_node(self, name: str) -> None:
        """Forget one node; what is bound or allotted there stays written down until it goes."""
        before = self.nodes.pop(name, None)
        if before is not None:
            self._domains, self._eligible = {}, {}
            self.largest.changed(before, None)
            self.generation += 1
            # Who waits for a flavor's last node waits for none any more.
            self.freed = True
            self._columns.drop(name)
            self._add(name, before.capacity, -1)

    def bind(self, uid: str, bound: Bound) -> None:
        """Take note that a pod holds room. One of a gang takes a place that was allotted to it."""
        known = self._bound.get(uid)
        if known == bound:
            return
        self.unbind(uid)
        self._bound[uid] = bound
        self._add(bound.node, bound.requests, -1, bound.gang)
        if bound.gang is not None:
            self._pods_of.setdefault(bound.gang, {})[uid] = bound
            if known is None or known.gang != bound.gang:
                self._settle(bound.gang, bound)

    def unbind(self, uid: str) -> None:
        """Forget a pod that has ended and is gone; an unknown one is fine."""
        bound = self._bound.pop(uid, None)
        if bound is None:
            return
        self.freed = True
        self._add(bound.node, bound.requests, 1, bound.gang)
        if bound.gang is not None:
            pods = self._pods_of[bound.gang]
            del pods[uid]
            if not pods:
                del self._pods_of[bound.gang]

    def bound(self, uid: str) -> Bound | None:
        """Return what a pod holds, if it is known to hold anything."""
        return self._bound.get(uid)

    def all_bound(self) -> Iterable[Bound]:
        """Return what every pod holds."""
        return self._bound.values()

    def bound_of(self, gang: str) -> Counter[tuple[str, str]]:
        """Return how many pods of a gang hold room, by pod set and node."""
        return Counter((bound.pod_set, bound.node) for bound in self._pods_of.get(gang, {}).values())

    def has_nodes(self, labels: Mapping[str, str]) -> bool:
        """Return whether there is any node with ``labels``, whatever its state."""
        return self._columns.any_bears(labels)

    def copy(self) -> "Capacity":
        """Return an independent copy; its rankings are made when they are asked for."""
        twin = Capacity()
        twin.nodes.update(self.nodes)
        twin.free = {name: dict(free) for name, free in self.free.items()}
        twin.allotments = {uid: allotment.copy() for uid, allotment in self.allotments.items()}
        twin._columns = self._columns.copy()
        twin._decided.turns.due = {gang: list(shapes) for gang, shapes in self.due.items()}
        twin._bound = dict(self._bound)
        twin._claims = self._claims.copy()
        twin._withheld = {name: dict(withheld) for name, withheld in self._withheld.items()}
        twin._pods_of = {gang: dict(pods) for gang, pods in self._pods_of.items()}
        return twin

    # -- gangs --------------------------------------------------------------------------------------------------------

    def allot(self, gang: str, allotment: Allotment) -> None:
        """Keep room for pods of ``gang`` that are not bound yet, in place of what it had."""
        before = self._take_back(gang)
        self.freed |= before is not None and not before.is_within(allotment)
        self.allotments[gang] = allotment
        self._add_all(gang, allotment, -1)

    def allot_more(self, gang: str, more: Allotment) -> None:
        """Keep room for further pods of ``gang``, in addition to what it has."""
        self.allot(gang, self.allotments.get(gang, Allotment({}, {})).with_more(more))

    def withdraw(self, gang: str) -> None:
        """Give back what is still kept for ``gang``; an unknown one is fine."""
        self.freed |= self._take_back(gang) is not None

    def allotted_on(self, node: str) -> list[str]:
        """Return the gangs that pods are still to come of to a node."""
        return [uid for uid, each in self.allotments.items() if any(node in places for places in each.places.values())]

    def split(self, gang: str, names: Mapping[str, Mapping[str, str]]) -> None:
        """Hand what is kept for ``gang`` over to others: by uid, what their pod sets were called in it."""
        whole = self._take_back(gang)
        for uid, part in () if whole is None else [(uid, whole.part(sets)) for uid, sets in names.items()]:
            if any(part.places.values()):
                self.allot_more(uid, part)

    def _settle(self, gang: str, came: Bound) -> None:
        """One pod came: at the place that was kept for it, or at another, and then any of its set's is given back."""
        allotment = self.allotments.get(gang)
        places = None if allotment is None else allotment.places.get(came.pod_set)
        if allotment is None or not places:
            return
        place, uses = came.node if came.node in places else min(places), allotment.shapes[came.pod_set].uses
        self.freed |= place != came.node or any(kept > came.requests.get(name, 0) for name, kept in uses.items())
        places[place] -= 1
        if not places[place]:
            del places[place]
        self._add(place, uses, 1, gang)
        if not any(allotment.places.values()):
            del self.allotments[gang]

    def _take_back(self, gang: str) -> Allotment | None:
        allotment = self.allotments.pop(gang, None)
        if allotment is not None:
            self._add_all(gang, allotment, 1)
        return allotment

    def _add_all(self, gang: str, allotment: Allotment, sign: int) -> None:
        for name, places in allotment.places.items():
            for node, count in places.items():
                self._add(node, allotment.shapes[name].uses, sign * count, gang)

    def _add(self, node: str, by: Amounts, factor: int, gang: str | None = None) -> None:
        """Let so much more be free; less where ``factor`` is negative. ``gang`` is whose it is or was, where any's."""
        if gang is not None:
            self._held.pop(gang, None)
        if gang is not None and gang in self._claims.whole.awaited:
            self._claims.leaves(gang, node, by, -factor)
            self._change(node, by, factor)
            self._withhold(node)
        else:
            self._change(node, by, factor)

    def _change(self, node: str, by: Amounts, factor: int) -> None:
        free, tell = self.free.setdefault(node, {}), self._columns.set
        for name, amount in by.items():
            free[name] = now = free.get(name, 0) + factor * amount
            tell(node, name, now)
        if node not in self.nodes and not any(free.values()):
            del self.free[node]
        # What a question gives back for a moment is kept again as it ends.
        self.changes.note((node,), len(self.nodes), undone=self.asking)

    # -- claims -------------------------------------------------------------------------------------------------------

    def claim(self, uid: str, claimed: Claimed) -> None:
        """Keep room for a gang from when those leave that it awaits, in place of what it claimed before."""
        self.unclaim(uid)
        self._keep(claimed.allotment.nodes, self._claims.put(uid, claimed), 1)

    def unclaim(self, uid: str) -> Claimed | None:
        """Give back what a gang claims and return it; None for one that claims nothing."""
        known = self._claims.claims.get(uid)
        if known is not None:
            self._keep(known.allotment.nodes, self._claims.drop(uid), -1)
        return known

    def hand_over(self, gangs: Iterable[str]) -> None:
        """Have claims that are short of room now await ``gangs``, which another that has ended did."""
        awaits = set(gangs) - self._claims.firm.awaited.keys()
        for uid in self.claimants() if awaits else ():
            if not self.keeps(uid):
                claimed = self._claims.claims[uid]
                self.claim(uid, replace(claimed, awaits=claimed.awaits | awaits))

    def has_left(self, gang: str) -> None:
        """Stop awaiting a gang in any claim: what it holds from now on it keeps."""
        if gang in self._claims.whole.awaited:
            self._keep(set(), self._claims.has_left(gang), -1)

    def claimants(self) -> list[str]:
        """Return the uids of the gangs for which room is kept."""
        return list(self._claims.claims)

    def keeps(self, uid: str) -> bool:
        """Return whether what a gang claims is there for it once those are gone that it awaits; False where it claims
        nothing.
        """
        known = self._claims.claims.get(uid)
        return known is not None and all(
            node in self.nodes
            and self._columns.admits(known.allotment.shapes[name], node)
            and self._claims.enough(known, node, self.spare(node))
            for name, places in known.allotment.places.items()
            for node in places
        )

    def spare(self, node: str) -> Mapping[str, int]:
        """Return what is free on a node, or kept there for claims."""
        free, withheld = self.free.get(node, {}), self._withheld.get(node)
        return free if withheld is None else {name: free.get(name, 0) + withheld.get(name, 0) for name in free}

    @property
    def kept(self) -> dict[str, dict[str, int]]:
        """What is kept free for claims, by node."""
        return self._withheld

    def withheld(self, node: str) -> Mapping[str, int]:
        """Return what is kept free on a node for claims."""
        return self._withheld.get(node, {})

    def _keep(self, nodes: Iterable[str], gangs: Mapping[str, Iterable[Weighed]], sign: int) -> None:
        """Have kept on nodes what is claimed there, now that ``gangs`` are awaited, or no longer are."""
        changed = set(nodes)
        for gang, sides in gangs.items():
            for node, requests, count in self._going((gang,)):
                for side in sides:
                    side.leaves(node, requests, sign * count)
                changed.add(node)
        for node in sorted(changed):
            self._withhold(node)

    def _withhold(self, node: str) -> None:
        before, now = self._withheld.pop(node, None), self._claims.withheld(node)
        if before != (now or None):
            self._change(node, before or {}, 1)
            self._change(node, now, -1)
        if now:
            self._withheld[node] = now

    # -- new shapes ---------------------------------------------------------------------------------------------------

    def begin_round(self, waits: Callable[[str], bool]) -> list[str]:
        """Let as many new shapes be looked at as a round of decisions may cost, those first that had to wait; return
        the uids of the gangs that had their turn, and of those that were in line and are gone, as ``waits`` says. A
        user with a thousand jobs that all ask something else delays other jobs, but no process.
        """
        turns = self._decided.turns
        gone = turns.begin(waits)
        while (shape := turns.next(self._work)) is not None:
            self.ranking(shape)
        # Nobody waits for the answer to a question: it is asked again.
        self._asked.turns.begin(lambda _: False, UNBOUNDED)
        return [*gone, *turns.granted]

    @contextmanager
    def questions(self) -> Iterator[None]:
        """Ask without any effect on decisions."""
        self.asking = True
        try:
            yield
        finally:
            self.asking = False

    @property
    def _looks(self) -> Looks:
        return self._asked if self.asking else self._decided

    @property
    def due(self) -> Mapping[str, Sequence[Shape]]:
        """Uids of the gangs that wait for a later round, with the shapes that are to be looked at for them."""
        return self._decided.turns.due

    def may_ask(self, shapes: Collection[Shape], gang: str) -> bool:
        """Return whether shapes may be looked at in this round for ``gang``; if not, they will be in a later one."""
        return self._looks.may_ask({shape: self._work(shape) for shape in shapes}, gang)

    def too_many(self, shapes: Collection[Shape], gang: str) -> int:
        """Return how many shapes a gang asks about in this round, on one flavor after the other and now on this, where
        they cannot be looked at together: they are not all kept, and take too long to look at again. Else 0.
        """
        asked = self._looks.turns.asked.setdefault(gang, {})
        together = len(asked.keys() | shapes)
        if together > SHAPES_MAX and together * len(self.nodes) > ROUND_VISITS:
            return together
        asked.update(dict.fromkeys(shapes))
        return 0

    def _work(self, shape: Shape) -> int:
        """Return what it takes to know a shape, as ``turns`` counts it."""
        uncaught = min([self._uncaught(shape, each.rankings.get(shape)) for each in (self._decided, self._looks)])
        return work(shape, uncaught) if uncaught else 0

    def _uncaught(self, shape: Shape, known: Ranking | None) -> int:
        """Return at how many nodes to look until a ranking is up to date, 0 where these are too few to be counted."""
        if known is None or known.scarce != self.largest.scarce(shape):
            return len(self.nodes)
        behind = min(self.changes.lasting - known.counted, len(self.nodes))
        return behind if behind > CHANGES_UNCOUNTED else 0

    # -- questions ----------------------------------------------------------------------------------------------------

    def ranking(self, shape: Shape) -> Ranking:
        """Return the ranking of ``shape``, up to date."""
        if self.asking and (known := self.known_ranking(shape)) is not None:
            return known
        ranking = self._caught_up(shape, self._looks.rankings.pop(shape, None))
        keep_last(self._looks.rankings, shape, ranking, QUESTIONS_MAX if self.asking else SHAPES_MAX)
        return ranking

    def known_ranking(self, shape: Shape) -> Ranking | None:
        """Return the ranking of ``shape``, up to date, if decisions know it but for few changes; kept no longer."""
        known = self._decided.rankings.get(shape)
        if known is None or self._uncaught(shape, known):
            return None
        counted = known.counted if self.asking else self.changes.lasting
        self._decided.rankings[shape] = known = self._caught_up(shape, known)
        known.counted = counted
        return known

    def _caught_up(self, shape: Shape, ranking: Ranking | None) -> Ranking:
        scarce = self.largest.scarce(shape)
        changed = None if ranking is None or ranking.scarce != scarce else self.changes.since(ranking.seen)
        if ranking is None or changed is None or quicker_from_all(len(changed), len(self.nodes)):
            ranking, changed = Ranking(shape, scarce), ()
            ranking.read(self._columns.names, self.asked(shape), self.verdict(shape))
        looked = self.looked
        for name in changed:
            ranking.set(name, self.room(ranking, name))
        # Turns count these looks: a search does not, which would owe less where a question has come before it.
        self.looked, ranking.seen, ranking.counted = looked, self.changes.count, self.changes.lasting
        return ranking

    def asked(self, shape: Shape) -> list[Asks]:
        """Return what is free of all that a pod of ``shape`` takes, by row."""
        return self._columns.asked(shape, self.free)

    def verdict(self, shape: Shape) -> Sequence[str | None]:
        """Return what keeps the pods of a shape away for good, by row."""
        return self._columns.verdict(shape)

    @property
    def names(self) -> Sequence[str]:
        """The nodes, by row."""
        return self._columns.names

    @property
    def rows(self) -> Mapping[str, int]:
        """Each node's row."""
        return self._columns.row

    def domains(self, path: Path) -> Domains:
        """Return which nodes are in which domain of a path."""
        domains = self._domains.pop(path, None)
        if domains is None:
            domains = Domains(path)
            domains.read(self.nodes)
        keep_last(self._domains, path, domains)
        return domains

    def eligible(self, shape: Shape) -> Eligible:
        """Return on which nodes pods of a shape could ever run; kept until a node's record changes."""
        found = self._eligible.pop(shape, None) or eligible(shape, self.nodes, self.names, self.verdict(shape))
        keep_last(self._eligible, shape, found, ELIGIBLE_MAX)
        return found

    def room(self, ranking: Ranking, name: str, more: Amounts | None = None) -> Room:
        """Return the room that node ``name`` has for a ranking's pods, with ``more`` amounts free than there are."""
        self.looked += 1
        if name not in self.nodes or not self._columns.admits(ranking.shape, name):
            return 0, 0
        return ranking.room(self.free[name], more)

    def held(self, gang: str) -> Mapping[str, Amounts]:
        """Return what a gang holds or will, by node: the same object while that stays, where it holds anything."""
        known = self._held.get(gang)
        if known is None:
            known = {}
            for node, requests, count in self._going((gang,)):
                before = known.get(node)
                # Mostly it is one pod a node.
                whole = requests if count == 1 else amounts.scale(requests, count)
                known[node] = whole if before is None else amounts.add(before, whole)
            if known:
                self._held[gang] = known
        return known

    def held_by(self, gangs: Iterable[str], gone: Gone | None = None, sign: int = 1) -> Mapping[str, Amounts]:
        """Return what else would be free, by node, if ``gangs`` gave back what is allotted to them and their pods were
        gone, and no claim had it.

        Claims keep no more of what several leave than they lack: ``gone`` says who is out already, and is told of
        ``gangs``; that they are back where ``sign`` is negative.
        """
        whole = [gang for gang in dict.fromkeys(gangs) if self.held(gang)]
        claims, gone = self._claims, gone or Gone()
        if len(whole) == 1 and not self.awaits(whole):
            return self.held(whole[0])
        more = summed(map(self.held, whole))
        awaited = {gang: self.held(gang) for gang in whole if self.awaits((gang,))}
        before = {node: claims.withheld(node, gone) for held in awaited.values() for node in held}
        for gang, held in awaited.items():
            claims.count_gone(gang, held, gone, sign)
        for node, kept in before.items():
            now = claims.withheld(node, gone)
            for name in now | kept:
                more[node][name] = more[node].get(name, 0) - sign * (now.get(name, 0) - kept.get(name, 0))
        return more

    def awaits(self, gangs: Iterable[str]) -> bool:
        """Return whether a claim or a booking awaits any of ``gangs``."""
        return not self._claims.whole.awaited.keys().isdisjoint(gangs)

    def held_on(self, nodes: Container[str], resource: str) -> Counter[str]:
        """Return how much of a resource gangs hold on ``nodes`` or will, by uid; it looks at the nodes of all gangs."""
        found = Counter[str]()
        for gang in {**self._pods_of, **self.allotments}:
            amount = sum([held.get(resource, 0) for node, held in self.held(gang).items() if node in nodes])
            if amount:
                found[gang] = amount
        return found

    def _going(self, gangs: Iterable[str]) -> Iterator[tuple[str, Amounts, int]]:
        for gang in dict.fromkeys(gangs):
            allotment = self.allotments.get(gang)
            if allotment is not None:
                for name, places in allotment.places.items():
                    requests = allotment.shapes[name].uses
                    yield from ((node, requests, count) for node, count in places.items())
            for bound in self._pods_of.get(gang, {}).values():
                yield bound.node, bound.requests, 1
