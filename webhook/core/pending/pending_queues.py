"""All waiting gangs of one cluster: which queue and class each stands in, who rests, who is unschedulable, who is
woken.

Whatever the policy alone decides is decided once, when a gang comes or the policy changes: which queue it waits in,
whether anything keeps it out (``eligibility``), and which flavors its pod sets may use.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from webhook.core.assignment.flavors import Judge, Mode, Verdict, assign
from webhook.core.assignment.request import compile_request
from webhook.core.model.gang import Gang
from webhook.core.model.policy import Policy, PreemptionPolicy
from webhook.core.model.settings import EngineSettings
from webhook.core.notation.amounts import FlavorResource
from webhook.core.pending.eligibility import why_closed, why_ineligible
from webhook.core.pending.gang_state import ALLOWED, Event, GangState
from webhook.core.pending.keyed_heap import KeyedHeap
from webhook.core.pending.pending_queue import EquivalenceClass, PendingGang, PendingQueue, class_key
from webhook.core.pending.wake_index import Bottleneck, BottleneckOrder, Need, WakeIndex
from webhook.core.quota.tree import QuotaTree, Vertex
from webhook.core.reasons.reasons import Reason
from webhook.core.reasons.wake_keys import Freed, QueueHead, WakeKey


class PendingQueues:
    """Everything that waits."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.policy = Policy()
        self.namespaces: Mapping[str, Mapping[str, str]] = {}
        self.records: dict[str, PendingGang] = {}
        """By uid, every gang that waits."""
        self.queues: dict[str | None, PendingQueue] = {None: PendingQueue(None)}
        self.active: dict[PendingQueue, None] = {}
        """Queues that may have a class to decide about."""
        self.room_at: Callable[[Vertex, FlavorResource], int] = lambda vertex, key: 0
        """How much a vertex lets through now beyond its private quota."""
        self.backfilling: dict[Vertex, list[PendingQueue]] = {}
        """Root of a tree to its Backfill queues."""
        self.guarded: dict[Vertex, list[PendingQueue]] = {}
        """Root of a tree to its queues that guard borrowing."""
        self.changes = 0
        """Grows whenever a gang comes to wait or does so no longer, and when another one heads a queue."""
        self._looks = 0
        self._looked: dict[Vertex, int] = {}
        """By root of a tree: grows whenever another gang may head one of its queues, and never comes to what it was."""
        self._wakes = WakeIndex()
        self._backoff_ends: KeyedHeap[str] = KeyedHeap()
        self._touched: dict[Bottleneck, None] = {}
        """Gates where there may be more room."""
        self._woken_by: dict[EquivalenceClass, Bottleneck] = {}

    def set_policy(self, policy: Policy, tree: QuotaTree, namespaces: Mapping[str, Mapping[str, str]]) -> None:
        """Sort by another policy. Queues whose queue and tree say what they said before stay as they are."""
        before = self.policy
        self.policy, self.namespaces = policy, namespaces
        for name, queue in list(self.queues.items()):
            if name is not None and (
                tree.queues.get(name) is not queue.vertex
                or policy.queues.get(name) != queue.spec
                or policy.flavors != before.flavors
            ):
                self._close(queue)
        for name, spec in policy.queues.items():
            if name not in self.queues:
                self.queues[name] = PendingQueue(name, spec, tree.queues[name], closed=why_closed(spec))
        self._index_queues()
        for record in list(self.records.values()):
            if self._queue_of(record.gang) is not record.queue:
                self._move(record)
        for queue in self.queues.values():
            for gang in [gang for gang in queue.claiming.values() if self._why_ineligible(gang) is not None]:
                self.unclaim(gang.uid)
            for eclass in queue.eclasses.values():
                ineligible = self._why_ineligible(eclass.sample)
                if ineligible != eclass.ineligible:
                    eclass.ineligible = ineligible
                    self.wake_class(eclass)
                    self.head_changed(queue)

    def heads_version(self, root: Vertex) -> int:
        """Return a number that grows whenever another gang may head one of the queues of a tree."""
        return self._looked.get(root, 0)

    def _count(self, queue: PendingQueue) -> None:
        """Note that another gang may head a queue."""
        if queue.vertex is not None:
            self._looks += 1
            self._looked[queue.vertex.root] = self._looks

    def _index_queues(self) -> None:
        self.backfilling, self.guarded = {}, {}
        roots = {queue.vertex.root for queue in self.queues.values() if queue.vertex is not None}
        self._looked = {root: number for root, number in self._looked.items() if root in roots}
        for name in sorted(name for name in self.queues if name is not None):
            queue = self.queues[name]
            if queue.backfills and queue.vertex is not None:
                self.backfilling.setdefault(queue.vertex.root, []).append(queue)
            if queue.yields and queue.vertex is not None:
                self.guarded.setdefault(queue.vertex.root, []).append(queue)
            self._count(queue)

    def _close(self, queue: PendingQueue) -> None:
        """Give up a queue whose queue changed; its gangs are moved afterwards."""
        del self.queues[queue.name]
        self.active.pop(queue, None)
        for eclass in queue.eclasses.values():
            self._wakes.forget(eclass)
            self.pass_on(eclass)
        self._wakes.close(queue)
        self.wake(QueueHead(queue.name))

    def _move(self, record: PendingGang) -> None:
        """Let a gang wait where the present policy puts it; a back-off goes on."""
        backs_off = record.state is GangState.BACKOFF
        if record.queue is not None and self.queues.get(record.queue.name) is record.queue:
            self.withdraw(record.gang.uid)
        else:
            del self.records[record.gang.uid]
        until = record.gang.not_before_seconds
        self.submit(record.gang, until - 1 if backs_off else until)

    def _why_ineligible(self, gang: Gang) -> Reason | None:
        return why_ineligible(gang, self.policy, self.namespaces)

    def _queue_of(self, gang: Gang) -> PendingQueue | None:
        """Return the queue a gang belongs into; None while its queue is unknown."""
        name = self.policy.queue_of(gang.namespace, gang.queue)
        return None if name is None and gang.queue is not None else self.queues.get(name)

    def submit(self, gang: Gang, now: float) -> None:
        """Let a gang wait; one of the same uid is replaced."""
        known = self.records.get(gang.uid)
        if known is not None:
            if known.gang == gang:
                return
            self.withdraw(gang.uid)
        queue = self._queue_of(gang)
        if queue is None:
            self._note(Event.SUBMITTED, gang, GangState.NO_QUEUE)
        elif gang.not_before_seconds > now:
            queue.backoff[gang.uid] = gang
            self._backoff_ends.push(gang.not_before_seconds, gang.uid)
            self._note(Event.SUBMITTED, gang, GangState.BACKOFF, queue)
        else:
            self._join(Event.SUBMITTED, queue, gang)

    def _note(
        self,
        event: Event,
        gang: Gang,
        apart: GangState | None,
        queue: PendingQueue | None = None,
        eclass: EquivalenceClass | None = None,
    ) -> None:
        """Record what became of a gang. Only here a gang comes into another state, or with its whole class."""
        known = self.records.get(gang.uid)
        self.records[gang.uid] = PendingGang(gang, queue, eclass, apart)
        before = GangState.ABSENT if known is None else known.state
        after = apart if eclass is None else eclass.state
        assert (event, before, after) in ALLOWED, f"{event}: {before} to {after}"

    def state_of(self, uid: str) -> GangState:
        """Return the state of a gang that holds nothing."""
        record = self.records.get(uid)
        return GangState.ABSENT if record is None else record.state

    def withdraw(self, uid: str) -> Gang | None:
        """Forget a waiting gang; None when it did not wait."""
        record = self.records.pop(uid, None)
        if record is None:
            return None
        if record.eclass is not None:
            self._leave(record.eclass, uid)
        elif record.queue is not None:
            record.queue.backoff.pop(uid, None)
            if record.queue.claiming.pop(uid, None) is not None:
                self.active[record.queue] = None
        return record.gang

    def claim(self, gang: Gang, eclass: EquivalenceClass) -> None:
        """Take a gang out of its class and of the order: others are being stopped for it."""
        self._leave(eclass, gang.uid)
        eclass.queue.claiming[gang.uid] = gang
        self._note(Event.PREEMPTS, gang, GangState.CLAIMING, eclass.queue)

    def unclaim(self, uid: str) -> None:
        """Put a claiming gang back into its class."""
        queue = self.records[uid].queue
        assert queue is not None
        self._join(Event.CLAIM_LAPSED, queue, queue.claiming.pop(uid))
        self.active[queue] = None

    def end_backoffs(self, now: float) -> None:
        """Let gangs whose back-off is over join their classes."""
        while (until := self.next_backoff_end()) is not None and until <= now:
            uid = self._backoff_ends.first()
            assert uid is not None
            self._backoff_ends.discard(uid)
            queue = self.records[uid].queue
            assert queue is not None
            self._join(Event.BACKOFF_OVER, queue, queue.backoff.pop(uid))

    def next_backoff_end(self) -> float | None:
        """Return when the earliest back-off ends."""
        while (uid := self._backoff_ends.first()) is not None:
            if self.state_of(uid) is GangState.BACKOFF:
                return self.records[uid].gang.not_before_seconds
            self._backoff_ends.discard(uid)
        return None

    def mark_unschedulable(
        self,
        eclass: EquivalenceClass,
        wake_on: Iterable[WakeKey],
        bottleneck: tuple[Need, BottleneckOrder] | None = None,
        marks: Iterable[Need] = (),
    ) -> None:
        """Set a blocked class aside until what blocks it changes."""
        eclass.move(Event.BLOCKED)
        eclass.level = 0 if bottleneck is None else bottleneck[1][0]
        self._wakes.mark_unschedulable(eclass, wake_on, bottleneck, marks)
        self.pass_on(eclass)
        self._move_on(eclass.queue)

    def wake(self, key: WakeKey, unless: Callable[[EquivalenceClass], bool] | None = None) -> None:
        """Wake the classes that the change ``key`` could help, but for those of which ``unless`` says so."""
        for eclass in self._wakes.helped_by(key):
            if unless is None or not unless(eclass):
                self.wake_class(eclass)

    def waiting_for(self, key: WakeKey) -> list[EquivalenceClass]:
        """Return the classes that the change ``key`` could help."""
        return self._wakes.helped_by(key)

    def head_changed(self, queue: PendingQueue) -> None:
        """Decide again about the gangs that the former head of a queue held up, and the new one of a Backfill queue,
        which has the rights of a head now.
        """
        self.changes += 1
        self._count(queue)
        self.wake(QueueHead(queue.name))
        head = queue.head() if queue.backfills else None
        if head is not None and head.unschedulable:
            self.wake_class(head)
        self._move_on(queue)

    def touch(self, vertex: Vertex, key: FlavorResource, own_room: int) -> None:
        """Take note that ``vertex`` uses less of ``key``: of what its subtree owns ``own_room`` is unused now."""
        spot = Freed(vertex.index, key)
        self.wake(spot)
        for eclass in self._wakes.passed(spot, own_room):
            self.wake_class(eclass)
        bottleneck = self._wakes.bottlenecks.get(spot)
        if bottleneck is not None:
            self._touched[bottleneck] = None

    def wake_class(self, eclass: EquivalenceClass, level: int = 0) -> None:
        """Have a class decided about again; ``level`` is the lowest at which it could start, if known.

        The level counts only while nobody stands behind the class: else it is to be looked at soon, so that it does not
        keep others waiting if it turns out to be blocked.
        """
        if eclass.hopeless:
            self._count(eclass.queue)
        if eclass.state is GangState.UNSCHEDULABLE:
            eclass.move(Event.WOKEN)
        eclass.hopeless = False
        self._wakes.forget(eclass)
        before = eclass.queue.first()
        eclass.queue.nominate(eclass)
        self.active[eclass.queue] = None
        eclass.level = level if before is None else 0
        first = eclass.queue.first()
        if before is not None:
            before.level = 0
            if first is not before:
                self.pass_on(before)
        self._wake_ahead(first)

    def _wake_ahead(self, first: EquivalenceClass | None) -> None:
        """Wake the first class that goes before the one that its queue nominates and may have room by now: it must not
        be overtaken while it waits for its turn at a bottleneck.
        """
        ahead = None if first is None else self._wakes.ahead_of(first, self.room_at)
        if ahead is not None:
            self.wake_class(ahead, ahead.level)

    def _move_on(self, queue: PendingQueue) -> None:
        """Let those have a try who stood back behind the class that the queue nominated until now."""
        for bottleneck in self._wakes.resume(queue):
            # Who has the turn there may come after them.
            if bottleneck.woken is not None:
                self.pass_on(bottleneck.woken)
            self._touched[bottleneck] = None
        self._wake_ahead(queue.first())

    def _stands_back(self, eclass: EquivalenceClass) -> bool:
        """Return whether the queue of an unschedulable class has another one to be decided about first."""
        first = eclass.queue.first()
        if first is None or first.order_key > eclass.order_key:
            return False
        first.level = 0
        self.active[eclass.queue] = None
        return True

    def pass_on(self, eclass: EquivalenceClass) -> None:
        """Let the next class at the bottleneck that woke ``eclass`` have a try: this one has had its turn, or
        has to stand back behind another of its queue.
        """
        bottleneck = self._woken_by.pop(eclass, None)
        if bottleneck is not None:
            bottleneck.woken = None
            self._touched[bottleneck] = None

    def serve_bottlenecks(self) -> None:
        """At each bottleneck that changed, wake the first class that finds room, unless one is active already."""
        while self._touched:
            bottleneck, _ = self._touched.popitem()
            if bottleneck.woken is not None:
                continue
            eclass = self._wakes.first(bottleneck, self.room_at(bottleneck.vertex, bottleneck.key), self._stands_back)
            if eclass is None:
                continue
            bottleneck.woken, self._woken_by[eclass] = eclass, bottleneck
            self.wake_class(eclass, eclass.level)
            if eclass.queue.first() is not eclass:
                self.pass_on(eclass)

    def admitted_beside(self, queue: PendingQueue, priority: int) -> None:
        """Have the unschedulable classes of a queue above ``priority``, which might now stop a gang of their own queue,
        decided about whenever anything in the tree is freed.
        """
        rules = None if queue.spec is None else queue.spec.preemption
        if queue.vertex is None or rules is None or rules.within_queue is PreemptionPolicy.NEVER:
            return
        root = queue.vertex.root.index
        for eclass in queue.eclasses.values():
            if eclass.unschedulable and rules.may_stop_own(eclass.sample.priority, priority):
                for key in eclass.request.keys:
                    self._wakes.also_on(eclass, Freed(root, key))

    def copy(self) -> "PendingQueues":
        """Return independent queues in the same state: what is unschedulable stays so."""
        twin = PendingQueues(self.settings)
        twin.policy, twin.namespaces = self.policy, self.namespaces
        eclasses: dict[EquivalenceClass, EquivalenceClass] = {}
        twin.queues = {name: queue.copy(eclasses) for name, queue in self.queues.items()}
        twin.active = {twin.queues[queue.name]: None for queue in self.active}
        twin._index_queues()
        twin.records = {
            uid: replace(
                each, queue=each.queue and twin.queues[each.queue.name], eclass=each.eclass and eclasses[each.eclass]
            )
            for uid, each in self.records.items()
        }
        twin._wakes = self._wakes.copy(eclasses)
        twin._touched = {
            twin._wakes.bottlenecks[spot]: None for spot in self._open_spots() if spot in twin._wakes.bottlenecks
        }
        twin._backoff_ends = self._backoff_ends.copy(lambda uid: uid)
        return twin

    def _open_spots(self) -> list[Freed]:
        bottlenecks = (*self._touched, *self._woken_by.values(), *self._wakes.standing_back())
        return [Freed(bottleneck.vertex.index, bottleneck.key) for bottleneck in bottlenecks]

    def in_order(self, queue: PendingQueue) -> Iterator[Gang]:
        """Yield the gangs of a queue in queue order."""
        for _, gang in sorted(queue.waiting(), key=lambda item: item[0]):
            yield gang

    def _join(self, event: Event, queue: PendingQueue, gang: Gang) -> None:
        self.changes += 1
        self._count(queue)
        key = class_key(gang)
        eclass = queue.eclasses.get(key)
        if eclass is None:
            eclass = queue.eclasses[key] = EquivalenceClass(queue, key, gang)
            eclass.ineligible = self._why_ineligible(gang)
            eclass.elastic = gang.least_pods < gang.pods
            if queue.spec is not None:
                eclass.request = compile_request(gang, queue.spec, self.policy.flavors, self.settings)
            if eclass.request.has_one_way:
                eclass.smallest = eclass.request.amounts(gang.least_counts)
            eclass.shifting = eclass.elastic or eclass.request.has_alternatives
            eclass.never = queue.backfills and not _could_ever_start(eclass)
        eclass.put(gang)
        self._note(event, gang, None, queue, eclass)
        if eclass.order[0][1] == gang.uid:
            self.wake_class(eclass)
            if queue.backfills and queue.head() is eclass:
                # Those that an earlier head held up may go before this one does.
                self.head_changed(queue)

    def _leave(self, eclass: EquivalenceClass, uid: str) -> None:
        self.changes += 1
        self._count(eclass.queue)
        was_head = eclass.order[0][1] == uid
        led = was_head and (not eclass.queue.backfills or eclass.queue.head() is eclass)
        eclass.drop(uid)
        if not eclass.order:
            self._wakes.forget(eclass)
            self.pass_on(eclass)
            del eclass.queue.eclasses[eclass.key]
        elif was_head:
            self.wake_class(eclass)
        if was_head:
            self.active[eclass.queue] = None
        if led:
            self.head_changed(eclass.queue)
        elif was_head:
            self._move_on(eclass.queue)


def _could_ever_start(eclass: EquivalenceClass) -> bool:
    """Return whether the smallest start of a class would fit an idle tree."""
    queue, vertex = eclass.queue.spec, eclass.queue.vertex
    assert queue is not None
    assert vertex is not None

    def judge(key: FlavorResource, amount: int) -> Verdict:
        return Verdict(Mode.FIT if amount <= vertex.potential(key) else Mode.NO_FIT, 0)

    if eclass.request.refusal is not None:
        return False
    return assign(eclass.request, eclass.sample.least_counts, queue.fungibility, Judge(judge)).mode is Mode.FIT
