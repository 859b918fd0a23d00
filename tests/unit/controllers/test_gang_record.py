"""The table of a gang's phases: what it allows, and what a record remembers under events in any order."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.unit.core.worlds import gang
from webhook.controllers.gang_record import NEXT, Charged, Event, GangRecords, Phase
from webhook.core.ledger.record import Reservation
from webhook.jobs.reading.record import Requeue

P, E = Phase, Event
HOLDING = {P.RESERVED, P.STOPPING, P.VOIDED}
STORIES: dict[str, tuple[tuple[Event, ...], Phase]] = {
    "a new gang": ((), P.APART),
    "it waits": ((E.SUBMITTED,), P.WAITING),
    "it asks for something else": ((E.SUBMITTED, E.SUBMITTED), P.WAITING),
    "its owner holds it": ((E.SUBMITTED, E.WITHDRAWN), P.APART),
    "it starts": ((E.SUBMITTED, E.ADMITTED), P.RESERVED),
    "it was admitted but does not fit the ledger": ((E.SUBMITTED, E.WITHDRAWN, E.SUBMITTED), P.WAITING),
    "it ran before Tutti knew it": ((E.ADOPTED,), P.RESERVED),
    "it is preempted": ((E.SUBMITTED, E.ADMITTED, E.STOPPED), P.STOPPING),
    "it is suspended": ((E.SUBMITTED, E.ADMITTED, E.STOPPED, E.WRITTEN), P.VOIDED),
    "its last pod is gone": ((E.SUBMITTED, E.ADMITTED, E.STOPPED, E.WRITTEN, E.RELEASED), P.APART),
    "it ends by itself": ((E.SUBMITTED, E.ADMITTED, E.RELEASED), P.APART),
    "it is stopped once more": ((E.ADOPTED, E.STOPPED, E.WRITTEN, E.STOPPED), P.STOPPING),
    "a sibling left while it stopped": ((E.ADOPTED, E.STOPPED, E.WRITTEN, E.REBOUND), P.STOPPING),
    "a sibling left while it ran": ((E.ADOPTED, E.REBOUND), P.RESERVED),
    "it was written before it had an entry": ((E.WRITTEN, E.READ_STOPPING), P.STOPPING),
    "a follower reads that the leader admits it": ((E.SUBMITTED, E.READ_RUNNING), P.RESERVED),
    "a follower reads that it is gone": ((E.READ_STOPPING, E.LOST), P.APART),
    "a rebuilt ledger says that it stops": ((E.ADOPTED, E.READ_STOPPING), P.STOPPING),
    "it was written in this term, and the ledger is read again": (
        (E.ADOPTED, E.STOPPED, E.WRITTEN, E.READ_STOPPING),
        P.VOIDED,
    ),
    "a restored ledger says that it runs": ((E.ADOPTED, E.STOPPED, E.WRITTEN, E.READ_RUNNING), P.RESERVED),
}


@pytest.mark.parametrize("story", STORIES)
def test_what_happens_leads_to_the_phase(story: str) -> None:
    events, phase = STORIES[story]
    record = GangRecords().of("a")
    for event in events:
        record.on(event)
    assert record.phase is phase


def test_every_event_is_in_the_table_and_every_phase_is_entered_and_left() -> None:
    assert set(NEXT) == set(Event)
    moves = {(before, after) for row in NEXT.values() for before, after in row.items() if before is not after}
    assert {before for before, _ in moves} == {after for _, after in moves} == set(Phase)


def test_only_a_write_voids_and_only_what_stops() -> None:
    into = {(event, before) for event, row in NEXT.items() for before, after in row.items() if after is P.VOIDED}
    # Nothing is voided by being remembered so: reading the ledger again keeps what was written in this very term.
    assert into == {(E.WRITTEN, P.STOPPING), (E.WRITTEN, P.VOIDED), (E.READ_STOPPING, P.VOIDED)}


def test_nothing_begins_to_hold_but_by_a_plan_an_adoption_or_a_ledger_that_was_read() -> None:
    begins = {
        e for e, row in NEXT.items() for before, after in row.items() if before not in HOLDING and after in HOLDING
    }
    assert begins == {E.ADMITTED, E.ADOPTED, E.READ_RUNNING, E.READ_STOPPING}


def test_what_holds_nothing_cannot_be_stopped_or_released_and_what_runs_cannot_be_submitted() -> None:
    for event, phase in (
        (E.STOPPED, P.WAITING),
        (E.RELEASED, P.APART),
        (E.SUBMITTED, P.RESERVED),
        (E.ADMITTED, P.APART),
    ):
        assert phase not in NEXT[event]


def test_the_last_word_on_a_gang_that_is_gone_leaves_no_record() -> None:
    records = GangRecords()
    records.of("a").on(E.ADOPTED)
    records.forget("a")
    assert records.find("a") is None
    assert list(records) == []


class AnyOrder(RuleBasedStateMachine):
    """Whatever the table allows, in any order, to a few gangs: a record never keeps what belongs to another phase."""

    def __init__(self) -> None:
        super().__init__()
        self.records = GangRecords()
        self.voided: dict[str, bool] = {}

    uids = st.sampled_from("abc")

    @rule(uid=uids, event=st.sampled_from(Event))
    def happens(self, uid: str, event: Event) -> None:
        record = self.records.of(uid)
        before = record.phase
        if before not in NEXT[event]:
            return
        record.on(event)
        assert record.phase is NEXT[event][before]
        if event is E.SUBMITTED:
            record.asked = gang(uid, "q")
        if event in (E.STOPPED, E.REBOUND, E.RELEASED, E.LOST, E.READ_RUNNING):
            self.voided[uid] = False
        elif event is E.WRITTEN and before is P.STOPPING:
            self.voided[uid] = True
        if before not in HOLDING and record.holds:
            assert not record.proved_gone, "that an earlier reservation's pods are gone proves nothing of this one's"
            assert record.charged is None

    @rule(uid=uids)
    def is_charged_and_proved(self, uid: str) -> None:
        record = self.records.of(uid)
        record.proved_gone = True
        if record.holds:
            record.charged = Charged(Reservation(uid, "Job.batch", "ns", uid, None, (), 0, 0.0), {}, {}, None)
            record.requeue = Requeue("Preempted", 0.0)
            record.rests_until = 9.0

    @rule(uid=uids)
    def is_forgotten(self, uid: str) -> None:
        self.records.forget(uid)
        self.voided.pop(uid, None)

    @invariant()
    def a_record_says_what_its_phase_says(self) -> None:
        for record in self.records:
            assert (record.asked is not None) == (record.phase is P.WAITING)
            assert record.charged is None or record.holds
            assert not record.rests_until or record.holds
            assert (record.phase is P.VOIDED) == self.voided.get(record.uid, False)


TestAnyOrder = AnyOrder.TestCase
