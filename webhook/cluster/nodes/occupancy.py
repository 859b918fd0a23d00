"""What is free on the nodes of one cluster: nodes, pods, DaemonSets and the ledger as they are read, in a ``Capacity``.

Every bound pod counts on its node until it has ended or is gone, whoever owns it; one that is being deleted too. What a
reservation has no bound pods for is allotted to it: where the engine put them, where a pod of it has gone (its
replacement is on the way), and else where most of them fit, once all others have what their entries name. A gang that
is being stopped keeps what it has until its entry is dropped: a pod of it may be bound yet.

Pods to come of DaemonSets count in namespaces that are exempt alone (device plugins, network, logs): a tenant's could
hold room on every node and never have a pod there.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from webhook.cluster.nodes.daemon_set import StoredDaemonSet
from webhook.cluster.nodes.moves import on_nodes, others_to_come, strays, with_moves
from webhook.cluster.nodes.node import StoredNode
from webhook.cluster.nodes.settling import Held, Settling
from webhook.core.ledger.record import Reservation
from webhook.core.model.pods import PodRecord
from webhook.core.model.policy import Flavor, HyperNode
from webhook.core.nodes.allotment import Allotment
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import PODS, Bound, NodeRecord
from webhook.core.nodes.shape import Shape
from webhook.core.nodes.tiers import Tiers
from webhook.core.notation.amounts import Amounts
from webhook.core.notation.quantity import MILLI
from webhook.core.placement.fit import place_most
from webhook.core.placement.overlay import Asked

LABELLED_MAX: Final = 500
"""Nodes that are labelled in one turn of the loop. To try ``TRIALS`` rules on one takes as long as to label it."""
TRIALS: Final = 8
WAYS_TRIED: Final = 32
"""Of one settling: how often it is looked for others that could make way, or for a place that one of them could take.
Each may mean a look at all gangs or all nodes, and a lost node pool may leave thousands of shapes short."""


class Occupancy:
    """Which pods are on which node."""

    def __init__(self, exempt_namespaces: Collection[str] = ()) -> None:
        self.capacity = Capacity()
        self._tiers = Tiers()
        self._unlabelled: dict[str, None] = {}
        """Nodes whose labels are of HyperNodes that have changed since."""
        self._exempt = frozenset(exempt_namespaces)
        self._entries: Mapping[str, Reservation] = {}
        self._unsettled: set[str] = set()
        """Gangs of which something changed."""
        self._vacated: dict[str, list[tuple[str, str]]] = {}
        """Gang to (pod set, node) of its pods that have gone since it was settled."""
        self._daemons: dict[str, Shape] = {}
        """By uid of the DaemonSet."""
        self._served = Counter[tuple[str, str]]()
        """(DaemonSet, node) to its pods there."""
        self._expecting: dict[str, None] = {}
        """Nodes of which it is not known any more which pods of DaemonSets are to come."""
        self._unkept: set[str] = set()
        """Uids of other gangs that lack room: of those being stopped, too, pods that were sent before may land."""
        self.short: dict[str, int] = {}
        """Gangs to their pods still to come that fit no node any more, of sets with places or domain written down."""
        self._elsewhere: dict[str, Held] = {}
        """Gangs that have room kept where their entries say nothing of: who was to go there goes first."""
        self._displaced: dict[str, None] = {}
        """Those of them that have just lost some of it."""
        self._kept_before: dict[str, Allotment] = {}
        """Gangs to what was kept for them before this settling; those for which something else is kept since."""
        self._no_way: set[Shape] = set()
        """Shapes that lack room, and nobody can make way for, as of this settling."""
        self._ways_left = 0
        self._freed_since = False
        """Something became free, and was told, since who lacks room was last looked at."""
        self._prices: dict[tuple[tuple[str, int], ...], Amounts] = {}
        """Equal requests are one object: there are as many as pods, and few that differ."""

    # -- what is read -------------------------------------------------------------------------------------------------

    def take_node(self, old: StoredNode | None, new: StoredNode | None) -> bool:
        """Take in a change of a node, as informers tell it; return whether it is one: heartbeats are not."""
        if new is not None:
            self.put_node(new)
        elif old is not None:
            self.drop_node(old.name)
        return old is None or new is None or old.node != new.node

    def take_daemon_set(self, _feed: str, old: StoredDaemonSet | None, new: StoredDaemonSet | None) -> None:
        """Take in a change of a DaemonSet, as informers tell it."""
        if new is not None:
            self.put_daemon_set(new)
        elif old is not None:
            self.drop_daemon_set(old.uid)

    def put_node(self, stored: StoredNode) -> None:
        """Add or replace one node."""
        self._put(stored.node)

    def take_hyper_nodes(self, found: tuple[HyperNode, ...]) -> bool:
        """Take in all HyperNodes that there are; return whether nodes have to be labelled again for it."""
        if found == self._tiers.hyper_nodes:
            return False
        self._tiers.replace(found)
        self._unlabelled = dict.fromkeys(self.capacity.nodes)
        return True

    def label_nodes(self, most: int = LABELLED_MAX) -> bool:
        """Label some nodes by the HyperNodes that there are now; return whether there are more to label.

        ``most`` is how many nodes are enough, fewer by what is tried on them.
        """
        done = 0
        while self._unlabelled and done < most:
            name, _ = self._unlabelled.popitem()
            done += 1 + self._tiers.trials(name) // TRIALS
            self._put(self.capacity.nodes[name])
        return bool(self._unlabelled)

    def nodes_in(self, domain: Mapping[str, str]) -> list[str]:
        """Return the nodes in a domain of HyperNodes, by the labels that stand for their tiers."""
        return self._tiers.nodes_in(domain)

    def _put(self, read: NodeRecord) -> None:
        node = self._tiers.labelled(read)
        if self.capacity.nodes.get(node.name) != node:
            self.capacity.put_node(node)
            self._expecting[node.name] = None
            self._unsettle_at(node.name)

    def drop_node(self, name: str) -> None:
        """Forget one node."""
        self.capacity.drop_node(name)
        self._tiers.forget(name)
        self._unlabelled.pop(name, None)
        self._unsettle_at(name)
        for uid in self._daemons:
            self.capacity.unbind(_to_come(uid, name))

    def _unsettle_at(self, node: str) -> None:
        """Look again at the gangs that have pods still to come to a node."""
        allotted = self.capacity.allotments.items()
        self._unsettled.update(uid for uid, each in allotted if any(node in nodes for nodes in each.places.values()))

    def put_daemon_set(self, found: StoredDaemonSet) -> None:
        """Add or replace one DaemonSet."""
        if found.namespace in self._exempt and self._daemons.get(found.uid) != found.shape:
            if found.uid not in self._daemons:
                pods = (each for each in self.capacity.all_bound() if each.owner == found.uid)
                self._served |= Counter((each.owner, each.node) for each in pods)
            self._daemons[found.uid] = found.shape
            self._expecting.update(dict.fromkeys(self.capacity.nodes))

    def drop_daemon_set(self, uid: str) -> None:
        """Forget one DaemonSet: no pods of it are expected any more."""
        if self._daemons.pop(uid, None) is not None:
            self._served = Counter({place: pods for place, pods in self._served.items() if place[0] != uid})
            for node in self.capacity.nodes:
                self.capacity.unbind(_to_come(uid, node))

    def put_pod(self, pod: PodRecord) -> None:
        """Add or replace one pod."""
        if not pod.node or pod.terminal:
            self.drop_pod(pod.uid)
            return
        known = self.capacity.bound(pod.uid)
        if known is not None and (known.node, known.gang) != (pod.node, pod.gang):
            # It was taken for another gang's, or for a loose one, before its controller was read.
            self.drop_pod(pod.uid)
            known = None
        bound = Bound(pod.node, self._requests(pod), pod.gang, pod.pod_set, pod.owner_uid)
        if bound == known:
            # Most changes of a pod are of what is nothing to its node.
            return
        if known is None and pod.owner_uid in self._daemons:
            self._served[pod.owner_uid, pod.node] += 1
            self._expecting[pod.node] = None
        self.capacity.bind(pod.uid, bound)
        if pod.gang is not None:
            self._unsettled.add(pod.gang)
        if min(self.capacity.spare(pod.node).values()) < 0:
            self._unsettled.update(self.capacity.allotted_on(pod.node))

    def drop_pod(self, uid: str) -> None:
        """Forget one pod that has ended or is gone."""
        known = self.capacity.bound(uid)
        if known is None:
            return
        self.capacity.unbind(uid)
        self._expecting[known.node] = None
        if known.owner in self._daemons:
            self._served[known.owner, known.node] -= 1
        if known.gang is not None:
            self._vacated.setdefault(known.gang, []).append((known.pod_set, known.node))
            self._unsettled.add(known.gang)

    def set_reservations(self, entries: Mapping[str, Reservation], changed: Iterable[str] | None = None) -> None:
        """Make ``entries`` of the ledger, by uid, the whole truth; ``changed`` are those that differ, where known."""
        before, self._entries = self._entries, entries
        if changed is not None:
            self._unsettled.update(changed)
            return
        self._unsettled.update(before.keys() - entries.keys())
        self._unsettled.update(uid for uid, entry in entries.items() if before.get(uid) is not entry)

    def touch(self, uid: str) -> None:
        """Take note that more may be known of a gang."""
        if uid in self._entries:
            self._unsettled.add(uid)

    def forget_decisions(self) -> None:
        """Give back what was allotted by decisions that no ledger has, and all claims, which come from it again."""
        for uid in self.capacity.allotments.keys() - self._entries.keys():
            self.capacity.withdraw(uid)
        for uid in self.capacity.claimants():
            self.capacity.unclaim(uid)
        # What was given back by a decision that no ledger has is kept again.
        self._unsettled.update(self._entries)

    # -- what follows from it -----------------------------------------------------------------------------------------

    @property
    def changes(self) -> int:
        """How many gangs have to be looked at, besides those that are short of places."""
        return len(self._unsettled)

    def look_again(self) -> bool:
        """Have those looked at again that lack room, if they may be stopped for it or something became free; return
        whether there are any.
        """
        self._unsettled |= self.short.keys()
        if self.capacity.freed or self._freed_since:
            self._unsettled |= self._unkept
        self._freed_since = False
        return bool(self.short or self._unkept)

    def unsettled(self, most: int | None = None) -> list[Reservation]:
        """Return the reservations of ``most`` gangs whose allotments may have to change, of all where that is None."""
        if most is None:
            self.look_again()
        if not self._unsettled:
            return []
        return [self._entries[uid] for uid in sorted(self._unsettled & self._entries.keys())[:most]]

    def settle(self, changed: Iterable[Held], flavors: Mapping[str, Flavor]) -> bool:
        """Allot to each gang of ``changed`` (those of ``unsettled``) what it has no bound pods for.

        Return whether anything became free since the last time.
        """
        if not (self._unsettled or self._expecting or self._displaced):
            return self._take_freed()
        gone = self._unsettled - self._entries.keys()
        self._unsettled -= gone
        for uid in gone:
            self.capacity.withdraw(uid)
            self._vacated.pop(uid, None)
            self.short.pop(uid, None)
            self._unkept.discard(uid)
            self._elsewhere.pop(uid, None)
        for node in self._expecting:
            self._expect(node)
        self._expecting.clear()
        self._kept_before, freed = {}, self.capacity.freed
        begun = dict[str, Settling]()
        for held in changed:
            begun[held.reservation.uid] = self._begin(held, flavors)
            self._unsettled.discard(held.reservation.uid)
        while self._displaced:
            uid, _ = self._displaced.popitem()
            if uid not in begun:
                begun[uid] = self._begin(replace(self._elsewhere[uid], reservation=self._entries[uid]), flavors)
        self._no_way, self._ways_left = set(), WAYS_TRIED
        for settling in begun.values():
            self._finish(settling)
        # What was taken away and kept again meanwhile nobody could have had.
        self.capacity.freed = freed or any(self._has_lost(uid, before) for uid, before in self._kept_before.items())
        return self._take_freed()

    def _has_lost(self, uid: str, before: Allotment) -> bool:
        now = self.capacity.allotments.get(uid)
        return now is None or not before.is_within(now)

    def _take_freed(self) -> bool:
        freed, self.capacity.freed = self.capacity.freed, False
        self._freed_since |= freed
        return freed

    def _begin(self, held: Held, flavors: Mapping[str, Flavor]) -> Settling:
        """Have a gang keep what it has, and what its entry and its pods say of where the others are to go."""
        entry = held.reservation
        uid, vacated = entry.uid, self._vacated.pop(entry.uid, [])
        self.short.pop(uid, None)
        self._unkept.discard(uid)
        if entry.adopted or entry.loose_pods:
            # The pods of those that are not marked are not told from others.
            return Settling(held, {})
        known, bound = self.capacity.allotments.get(uid), self.capacity.bound_of(uid)
        settling = Settling(held, held.shapes(flavors))
        shapes = settling.shapes
        places = {name: Counter(on) for name, on in (known.places if known else {}).items() if name in shapes}
        for each in entry.pod_sets:
            name, shape, here = each.name, shapes[each.name], on_nodes(bound, each.name)
            missing = max(0, each.count - held.given_back.get(name, 0) - here.total())
            own = places[name] = self._kept(places.get(name, Counter()), shape, missing)
            self._keep(uid, shapes, places)
            meant = [node for pod_set, node in vacated if pod_set == name]
            if each.places:
                meant += (Counter(each.places) - here - own).elements()
            owed = Counter(meant[: max(0, missing - own.total())])
            for node in owed:
                # Others may be kept room there by now, of which its entry says nothing.
                fitting = min(owed[node], self._fitting(uid, node, shape, owed[node]))
                owed[node] -= fitting
                own[node] += fitting
            self._keep(uid, shapes, places)
            settling.missing[name], settling.owed[name] = missing, owed
        return settling

    def _finish(self, settling: Settling) -> None:
        """Have what a gang lacks yet kept wherever there is room, once all have what was meant for them."""
        held, shapes = settling.held, settling.shapes
        uid, known = held.reservation.uid, self.capacity.allotments.get(held.reservation.uid)
        places = {name: Counter(on) for name, on in (known.places if known else {}).items() if name in shapes}
        improvised = uid in self._elsewhere
        for each in held.reservation.pod_sets if shapes else ():
            name, own = each.name, places.setdefault(each.name, Counter())
            missing = settling.missing[name]
            if own.total() < missing:
                own.update(place_most(self.capacity, Asked(name, shapes[name], missing - own.total())))
                improvised = True
            lacks = missing - own.total()
            if lacks and held.reservation.stopping is None and self._make_way(uid, name, shapes, places, lacks):
                improvised, lacks = True, missing - own.total()
            if lacks and held.reservation.stopping is None and (each.places or each.domain):
                self.short[uid] = self.short.get(uid, 0) + lacks
            elif lacks:
                self._unkept.add(uid)
            # What becomes free where they were to go is theirs before anybody else's.
            owed = settling.owed[name].elements()
            own.update([node for node in owed if self._admits(node, shapes[name])][:lacks])
            self._keep(uid, shapes, places)
        self._elsewhere.pop(uid, None)
        bound = self.capacity.bound_of(uid)
        if any(
            (improvised or each.places) and strays(each, on_nodes(bound, each.name), places.get(each.name, {}))
            for each in held.reservation.pod_sets
        ):
            self._elsewhere[uid] = held

    def _make_way(
        self, gang: str, pod_set: str, shapes: Mapping[str, Shape], places: Mapping[str, Counter[str]], lacks: int
    ) -> bool:
        """Give pods that fit no node the places of others' that are still to come and fit elsewhere; return whether
        any was given. So a pod that landed in another rack than it should takes no room of those who need that one.
        """
        shape, given = shapes[pod_set], 0
        if shape in self._no_way or self._ways_left <= 0:
            return False
        self._ways_left -= 1
        stuck = {shape}
        self._keep(gang, shapes, places)
        for uid, name, node in list(others_to_come(self.capacity, self._entries, gang, shape)):
            if given == lacks or self._ways_left <= 0:
                return given > 0
            other = self.capacity.allotments[uid]
            if other.shapes[name] in stuck:
                continue
            self._ways_left -= 1
            if not (to := place_most(self.capacity, Asked(name, other.shapes[name], 1))):
                stuck.add(other.shapes[name])
                continue
            theirs = {each: Counter(on) for each, on in other.places.items()}
            theirs[name] = theirs[name] - Counter([node]) + Counter(to)
            self._keep(uid, other.shapes, theirs)
            if shape.fits(self.capacity.spare(node)):
                places[pod_set][node] += 1
                given += 1
                self._keep(gang, shapes, places)
                self._unsettled.add(uid)
            else:
                self._keep(uid, other.shapes, {each: Counter(on) for each, on in other.places.items()})
        if given < lacks:
            self._no_way.add(shape)
        return given > 0

    def _displace(self, gang: str, node: str, shape: Shape, pods: int) -> None:
        """Take room on a node from those whose entries say nothing of it, until so many pods of a gang fit there."""
        for uid in [each for each in self._elsewhere if each != gang]:
            if shape.fits(self.capacity.spare(node)) >= pods:
                return
            known, bound = self.capacity.allotments.get(uid), self.capacity.bound_of(uid)
            places = {} if known is None else {name: Counter(on) for name, on in known.places.items()}
            there = {
                each.name: strays(each, on_nodes(bound, each.name), places.get(each.name, {}))[node]
                for each in self._entries[uid].pod_sets
            }
            if known is not None and any(there.values()):
                for name, own in places.items():
                    own[node] -= there.get(name, 0)
                self._keep(uid, known.shapes, places)
                self._displaced[uid] = None

    def with_moves(self, entry: Reservation) -> Reservation:
        """Return an entry that says where room is kept for its pods by now: the same where it does already."""
        known = self.capacity.allotments.get(entry.uid)
        if known is None or entry.uid not in self._elsewhere:
            return entry
        return with_moves(entry, self.capacity.bound_of(entry.uid), known.places)

    def moved(self) -> list[str]:
        """Return the gangs that have room kept where their entries say nothing of."""
        return [uid for uid in self._elsewhere if uid in self._entries]

    def _kept(self, own: Counter[str], shape: Shape, missing: int) -> Counter[str]:
        """Return what remains of the places that a pod set had until now, of which so many pods are to come."""
        # A node was cordoned, or is not ready, or gone: what was to go there goes elsewhere. Or others' pods came.
        if not own:
            return Counter()
        own = Counter(
            {
                node: pods - min(pods, self._too_many(node, shape))
                for node, pods in own.items()
                if self._admits(node, shape)
            }
        )
        for node in sorted(own):
            own[node] -= min(own[node], max(0, own.total() - missing))
        return own

    def _keep(self, uid: str, shapes: Mapping[str, Shape], places: Mapping[str, Counter[str]]) -> None:
        """Have just these places allotted to a gang."""
        known, now = (
            self.capacity.allotments.get(uid),
            {name: {node: pods for node, pods in own.items() if pods > 0} for name, own in places.items()},
        )
        if known is not None:
            self._kept_before.setdefault(uid, known)
        if any(now.values()) and (known is None or now != known.places):
            self.capacity.allot(uid, Allotment(shapes, now))
        elif not any(now.values()):
            self.capacity.withdraw(uid)

    def _too_many(self, name: str, shape: Shape) -> int:
        """Return how many pods of a shape would have to leave a node for it not to be overfull."""
        free = self.capacity.spare(name)
        beyond = [-(min(0, free.get(resource, 0)) // amount) for resource, amount in shape.requests]
        return max(*beyond, *(-free.get(port, 0) // MILLI - 1 for port in shape.ports), 0)

    def _fitting(self, gang: str, name: str, shape: Shape, pods: int) -> int:
        """Return how many more pods of a shape a node takes, of ``pods`` that a gang's entry has there."""
        if not self._admits(name, shape):
            return 0
        if shape.fits(self.capacity.spare(name)) < pods and self._elsewhere:
            self._displace(gang, name, shape, pods)
        return shape.fits(self.capacity.spare(name))

    def _admits(self, name: str, shape: Shape) -> bool:
        node = self.capacity.nodes.get(name)
        return node is not None and shape.admits(node)

    def _expect(self, name: str) -> None:
        """Hold room on a node for pods of DaemonSets that are to come there, where they could be bound now."""
        node = self.capacity.nodes.get(name)
        for uid, shape in self._daemons.items():
            pod = _to_come(uid, name)
            self.capacity.unbind(pod)
            due = node is not None and not self._served[uid, name] and shape.admits(node)
            if due and shape.fits(self.capacity.spare(name)):
                self.capacity.bind(pod, Bound(name, shape.uses))

    def _requests(self, pod: PodRecord) -> Amounts:
        amounts = {name: amount for name, amount in pod.price.requests.items() if amount}
        amounts |= dict.fromkeys(pod.host_ports, MILLI)
        return self._prices.setdefault(tuple(sorted(amounts.items())), {**amounts, PODS: MILLI})


def _to_come(daemon_set: str, node: str) -> str:
    return f"{daemon_set}/{node}"
