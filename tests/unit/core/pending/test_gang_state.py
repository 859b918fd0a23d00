"""The table of what may change a gang's state: all that happens to the engine, in any order, keeps to it."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.unit.core.worlds import World, gang, queue
from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import Gang
from webhook.core.model.policy import Preemption, PreemptionPolicy, Queue, Strategy
from webhook.core.pending.gang_state import ALLOWED, TRANSITIONS, Event, GangState

LOWER = Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY)
S, E = GangState, Event


def queues(*names: str) -> list[Queue]:
    strict = {"s": Strategy.STRICT_FIFO, "b": Strategy.BACKFILL}
    return [
        queue(name, 4, cohort="all", preemption=LOWER, strategy=strict.get(name, Strategy.BEST_EFFORT_FIFO))
        for name in names
    ]


def full() -> World:
    """One queue, full with ``runs``, and ``waits`` behind it."""
    world = World(queue("q", 4, preemption=LOWER)).submit(gang("runs", "q", 4))
    world.cycle()
    world.submit(gang("waits", "q", 4, created=1.0))
    world.cycle()
    return world


def restored(world: World, *, stopping: str | None) -> None:
    [entry] = [allocation.reservation for allocation in world.engine.state.allocations.by_uid.values()]
    world.engine.restore(replace(entry, stopping=stopping))


def preempting(world: World) -> None:
    world.submit(gang("urgent", "q", 4, priority=1))
    world.cycle()


def dropped(world: World) -> None:
    preempting(world)
    restored(world, stopping="Preempted")
    world.end("runs")


ROWS: list[tuple[str, GangState, Callable[[World], object]]] = [
    ("new", S.ABSENT, lambda world: None),
    ("new", S.NO_QUEUE, lambda world: world.submit(gang("new", "nowhere"))),
    ("new", S.BACKOFF, lambda world: world.submit(gang("new", "q", not_before_seconds=9.0))),
    ("new", S.ACTIVE, lambda world: world.submit(gang("new", "q", 4, created=2.0, priority=-1))),
    ("new", S.UNSCHEDULABLE, lambda world: world.submit(gang("new", "q", 4, created=2.0))),
    ("waits", S.UNSCHEDULABLE, lambda world: None),
    ("waits", S.ACTIVE, lambda world: world.set_policy(queue("q", 8))),
    ("waits", S.RESERVED, lambda world: world.end("runs").cycle()),
    ("waits", S.NO_QUEUE, lambda world: world.set_policy(queue("other", 4))),
    ("waits", S.ABSENT, lambda world: world.engine.withdraw("waits")),
    ("urgent", S.CLAIMING, preempting),
    ("runs", S.STOPPING, preempting),
    ("runs", S.STOPPING, lambda world: restored(world, stopping="OnHold")),
    ("urgent", S.ACTIVE, lambda world: (preempting(world), restored(world, stopping=None))),
    ("runs", S.RESERVED, lambda world: (preempting(world), restored(world, stopping=None))),
    ("urgent", S.RESERVED, lambda world: (dropped(world), world.cycle())),
    ("runs", S.ABSENT, dropped),
    ("runs", S.BACKOFF, lambda world: world.submit(gang("runs", "q", 4, created=2.0)).end("runs")),
]


@pytest.mark.parametrize(
    ("uid", "state", "happens"), ROWS, ids=[f"{n}-{r[0]}-{r[1].value}" for n, r in enumerate(ROWS)]
)
def test_what_happens_takes_a_gang_to_its_state(uid: str, state: GangState, happens: Callable[[World], object]) -> None:
    world = full()
    happens(world)
    assert world.engine.state_of(uid) is state


def test_every_state_can_be_reached_and_left() -> None:
    assert set().union(*(row.targets for row in TRANSITIONS.values())) == set(GangState)
    assert set().union(*(row.sources for row in TRANSITIONS.values())) == set(GangState)


def test_only_what_the_table_says_is_allowed() -> None:
    assert (E.ADMITTED, S.CLAIMING, S.RESERVED) in ALLOWED
    assert (E.ADMITTED, S.UNSCHEDULABLE, S.RESERVED) not in ALLOWED
    assert (E.SUBMITTED, S.RESERVED, S.ACTIVE) not in ALLOWED


DECIDES = (E.BACKOFF_OVER, E.BLOCKED, E.WOKEN, E.PREEMPTS, E.CLAIM_LAPSED, E.ADMITTED, E.STOPPED)
OTHERS = (E.WOKEN, E.CLAIM_LAPSED)
"""What a command may do to gangs that it does not name."""


def reachable(before: GangState, events: Iterable[Event]) -> set[GangState]:
    found = {before}
    while True:
        rows = [TRANSITIONS[event] for event in events]
        more = {s for row in rows if found.intersection(row.sources) for s in row.targets}
        if more <= found:
            return found
        found |= more


class AnyOrder(RuleBasedStateMachine):
    """Random commands; after each, every gang is in a state that the table lets it reach by what happened."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(*queues("q", "s", "b"))
        self.states: dict[str, GangState] = {}
        self.ledger: dict[str, Reservation] = {}
        self.gangs: dict[str, Gang] = {}

    def _did(self, *events: Event, uid: str | None = None) -> None:
        """Compare all states with those before ``events`` happened to the gang, or to all."""
        for name in "abcdef":
            before, after = self.states.get(name, S.ABSENT), self.world.engine.state_of(name)
            own = events if uid in (None, name) else ()
            assert after in reachable(before, (*own, *OTHERS)), f"{name}: {before} to {after} by {events}"
            self.states[name] = after

    uids = st.sampled_from("abcdef")

    @rule(
        uid=uids,
        where=st.sampled_from(("q", "q", "s", "b", "nowhere")),
        cpu=st.integers(1, 5),
        priority=st.integers(0, 2),
        wait=st.sampled_from((0, 0, 0, 2)),
    )
    def submit(self, uid: str, where: str, cpu: int, priority: int, wait: int) -> None:
        until = self.world.now + wait
        asks = gang(uid, where, cpu, priority=priority, created=self.world.now, not_before_seconds=until)
        self.gangs[uid] = replace(asks, max_run_seconds=4 if cpu < 3 else None)
        self.world.submit(self.gangs[uid])
        self._did(E.SUBMITTED, uid=uid)

    @rule(uid=uids)
    def withdraw(self, uid: str) -> None:
        self.world.engine.withdraw(uid)
        self._did(E.WITHDRAWN, uid=uid)

    @rule()
    def cycle(self) -> None:
        plan = self.world.plan()
        self.ledger |= {each.uid: each for each in plan.admitted}
        for each in plan.preempted:
            self.ledger[each.uid] = replace(self.ledger[each.uid], stopping=each.reason)
        self._did(*DECIDES)

    @rule(uid=uids, stopping=st.sampled_from((None, "OnHold")))
    def restore(self, uid: str, stopping: str | None) -> None:
        if uid in self.ledger:
            self.ledger[uid] = replace(self.ledger[uid], stopping=stopping)
            self.world.engine.restore(self.ledger[uid], self.gangs[uid])
            self._did(E.RESTORED, uid=uid)

    @rule(uid=uids)
    def release(self, uid: str) -> None:
        self.ledger.pop(uid, None)
        self.world.end(uid)
        self._did(E.RELEASED, uid=uid)

    @rule(seconds=st.integers(1, 3))
    def wait(self, seconds: int) -> None:
        self.world.now += seconds
        self.cycle()

    @rule(names=st.sampled_from((("q",), ("q", "s"), ("q", "s", "b"), ("s",))))
    def set_policy(self, names: tuple[str, ...]) -> None:
        self.world.set_policy(*queues(*names))
        self._did(E.POLICY_CHANGED, E.BACKOFF_OVER)

    @invariant()
    def each_gang_is_in_one_place(self) -> None:
        engine = self.world.engine
        state = engine.state
        for uid, record in state.pending.records.items():
            assert uid not in state.allocations.by_uid
            places = {
                S.BACKOFF: record.queue is not None and uid in record.queue.backoff,
                S.CLAIMING: record.queue is not None and uid in record.queue.claiming,
            }
            assert [place for place, there in places.items() if there] == (
                [record.state] if record.state in places else []
            )
            assert (record.eclass is not None) == (record.state in (S.ACTIVE, S.UNSCHEDULABLE))
        assert {gang.uid for gang in engine.waiting()} == state.pending.records.keys()
        written = {uid for uid, each in state.allocations.by_uid.items() if each.reservation.stopping is not None}
        assert written <= state.allocations.stopping.keys() <= state.allocations.by_uid.keys()

    @invariant()
    def a_copy_has_everybody_where_they_are(self) -> None:
        twin = self.world.engine.copy()
        assert all(twin.state_of(uid) is self.world.engine.state_of(uid) for uid in "abcdef")


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAnyOrder = AnyOrder.TestCase
