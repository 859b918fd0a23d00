"""Room on a node is promised once: to who runs there, to who has others stopped, and last to who has booked it.

Gangs of all kinds come, end, are stopped for others and come again, and another leader takes over now and then.
"""

from collections import Counter
from math import inf
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scheduler.test_nodes import engine
from tests.unit.core.worlds import gang, queue
from webhook.core.ledger import text
from webhook.core.ledger.record import Claim, Ledger
from webhook.core.model.gang import Gang
from webhook.core.model.policy import Preemption, PreemptionPolicy, Strategy
from webhook.core.nodes.capacity import Capacity
from webhook.core.quota.fences import Fences
from webhook.core.scheduler.engine import Engine

PREEMPTS = Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY)
Asked = tuple[int, int, int, int | None]
"""Of one gang: cpu of a pod, pods, priority, run-time limit."""
asked = st.tuples(
    st.sampled_from([1, 2, 4]),
    st.integers(1, 3),
    st.sampled_from([0, 0, 0, 0, 1, 2]),
    st.sampled_from([3, 6, 9, 20, None]),
)


class Story:
    """Engines one after the other, and what happens to their gangs."""

    def __init__(self, nodes: list[int], beyond: int, gangs: list[Asked], strategy: Strategy) -> None:
        self._nodes = {f"node-{number}": cpu for number, cpu in enumerate(nodes)}
        self._queue = queue("q", sum(nodes) + beyond, preemption=PREEMPTS, strategy=strategy)
        self.made, self.there = self._engine()
        self.gangs = {
            f"g{number:02}": gang(
                f"g{number:02}", "q", cpu, pods, priority=priority, created=float(number), max_run_seconds=limit
            )
            for number, (cpu, pods, priority, limit) in enumerate(gangs)
        }
        self.now = 0.0
        self.coming, self.waiting = sorted(self.gangs), set[str]()
        self.ends, self.stopping = dict[str, float](), set[str]()
        self.told: dict[str, float] = {}
        """Who has booked, and the latest moment at which it was told that it would start."""

    def submit(self, uid: str) -> None:
        """Have a gang wait; who was told before and goes after it may have to wait longer."""
        self.made.submit(self.gangs[uid], self.now)
        self.waiting.add(uid)
        self.told = {each: end for each, end in self.told.items() if self.order(each) < self.order(uid)}

    def order(self, uid: str) -> tuple[int, float]:
        found = self.gangs[uid]
        return -found.priority, found.created_seconds

    def release(self, uid: str, *, comes_again: bool) -> None:
        self.made.release(uid)
        self.ends.pop(uid, None)
        self.stopping.discard(uid)
        if comes_again:
            self.submit(uid)

    def another_leads(self) -> None:
        """Have another process read ledger and jobs. Bookings are in no ledger."""
        before, held = self.made, self.there.allotments
        ledger = text.decode(text.encode(Ledger(1, 1, claims=before.claims())))
        self.made, self.there = self._engine()
        for uid in self.ends.keys() | self.stopping:
            self.there.allot(uid, held[uid])
            self.made.restore(before.state.allocations.by_uid[uid].reservation)
        for uid in self.stopping:
            self.made.state.allocations.stop(uid)
        self.made.restore_claims(ledger.claims)
        for uid in sorted(self.waiting):
            self.made.submit(self.gangs[uid], self.now)
        self.told.clear()

    def cycle(self) -> None:
        """Decide, write down what happened, and see that all promises can be kept together."""
        self.now += 1
        plan = self.made.cycle(self.now, Fences(), epoch=1)
        for stopped in plan.preempted:
            self.stopping.add(stopped.uid)
        for started in plan.admitted:
            assert self.now <= self.told.pop(started.uid, inf), f"{started.uid} was told that it starts earlier"
            self.waiting.discard(started.uid)
            limit = self.gangs[started.uid].max_run_seconds
            self.ends[started.uid] = inf if limit is None else self.now + limit
        self._promises_hold()
        self._nobody_is_told_a_later_start()

    def _promises_hold(self) -> None:
        claims = {uid: each for uid, each in self.made.claims().items() if self.there.keeps(uid)}
        booked = {uid: each for uid, each in self.made.state.booked.items() if self.there.keeps(uid)}
        self._fit_together(claims)
        self._fit_together({**claims, **booked})
        assert not claims.keys() & booked.keys()
        assert all(amount >= 0 for free in self.there.free.values() for amount in free.values())

    def _fit_together(self, promises: dict[str, Claim]) -> None:
        """See that all have room at once when all those are gone that one of them awaits."""
        leaving = {uid for each in promises.values() for uid in each.awaits}
        taken = Counter[str]()
        for uid, allotment in self.there.allotments.items():
            for node, count in allotment.places["main"].items():
                taken[node] += 0 if uid in leaving else count * self._cpu(self.gangs[uid])
        for uid, each in promises.items():
            for node, count in each.planned.pod_sets[0].places.items():
                taken[node] += count * self._cpu(self.gangs[uid])
        for node, amount in taken.items():
            assert amount <= 1000 * self._nodes[node], f"{node} is promised {amount} of {self._nodes[node]}"

    def _nobody_is_told_a_later_start(self) -> None:
        for uid, booked in self.made.state.booked.items():
            first = all(self.order(uid) <= self.order(each) for each in self.waiting)
            known = [self.ends.get(each, inf) for each in booked.awaits if each not in self.stopping]
            if not first or not known or inf in known or self.stopping:
                self.told.pop(uid, None)
                continue
            # It is looked at in the cycle after the last of them has ended.
            end = max(known) + 1
            assert end <= self.told.get(uid, inf), f"{uid} was told {self.told[uid]}, and now {end}"
            self.told[uid] = end

    def _engine(self) -> tuple[Engine, Capacity]:
        return engine(self._queue, nodes=self._nodes)

    @staticmethod
    def _cpu(of: Gang) -> int:
        return of.pod_sets[0].price.requests["cpu"]


@given(
    st.lists(st.sampled_from([2, 4]), min_size=1, max_size=4),
    st.integers(0, 4),
    st.lists(asked, min_size=2, max_size=14),
    st.sampled_from(Strategy),
    st.randoms(use_true_random=False),
)
def test_no_room_on_a_node_is_promised_twice_and_who_is_told_when_it_starts_starts_no_later(
    nodes: list[int], beyond: int, gangs: list[Asked], strategy: Strategy, chance: Random
) -> None:
    story = Story(nodes, beyond, gangs, strategy)
    while story.coming or story.ends or story.stopping:
        assert story.now < 60 * len(gangs), "it comes to an end"
        if story.coming and chance.random() < 0.6:
            story.submit(story.coming.pop(0))
        for uid in sorted(story.stopping):
            if chance.random() < 0.5:
                story.release(uid, comes_again=True)
        for uid in sorted(story.ends.keys() - story.stopping):
            # A few end before their limits, and who has none at any time.
            if story.ends[uid] <= story.now or chance.random() < (0.1 if story.ends[uid] == inf else 0.02):
                story.release(uid, comes_again=False)
        if chance.random() < 0.05:
            story.another_leads()
        story.cycle()
    assert not story.made.claims()
    assert not story.made.state.booked
    assert story.there.free == {node.name: dict(node.capacity) for node in story.there.nodes.values()}
