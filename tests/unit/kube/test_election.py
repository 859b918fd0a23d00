"""Who may lead, and until when: the rules of the leader record."""

import json

import pytest

from webhook.kube.election import Elector, parse, render
from webhook.wire.times import micro_time_text

UNIX = 1_767_225_600.25


def written_by(elector: Elector, now: float) -> str:
    """Return the record after ``elector`` wrote it successfully at ``now``."""
    text = elector.record(UNIX)
    elector.renewed(now)
    return text


def fields(text: str) -> dict[str, object]:
    document: dict[str, object] = json.loads(text)
    return document


def test_the_record_is_the_one_client_go_writes() -> None:
    assert fields(Elector("one").record(UNIX)) == {
        "holderIdentity": "one",
        "leaseDurationSeconds": 5,
        "acquireTime": "2026-01-01T00:00:00.250000Z",
        "renewTime": "2026-01-01T00:00:00.250000Z",
        "leaderTransitions": 1,
    }


def test_a_record_written_is_read_back() -> None:
    text = Elector("one").record(UNIX)
    record = parse(text)
    assert record is not None
    assert render(record) == text


def test_a_record_of_client_go_itself_is_read() -> None:
    record = parse(
        '{"holderIdentity":"a_1f","leaseDurationSeconds":15,"acquireTime":"2026-01-01T00:00:00Z",'
        '"renewTime":"2026-01-01T00:00:09Z","leaderTransitions":3}'
    )
    assert record is not None
    assert (record.holder, record.lease_seconds, record.transitions) == ("a_1f", 15, 3)


def test_times_are_utc_with_microseconds() -> None:
    assert micro_time_text(0.000001) == "1970-01-01T00:00:00.000001Z"


def test_a_vacant_lease_is_taken_at_once() -> None:
    elector = Elector("one")
    elector.observe(None, 100)
    assert elector.may_acquire(100)
    written_by(elector, 100)
    assert elector.leading(100)
    assert elector.holder == "one"


def test_a_held_lease_is_left_alone_until_it_was_seen_unchanged_for_its_duration() -> None:
    record = written_by(Elector("one"), 0)
    other = Elector("two")
    other.observe(record, 50)
    other.observe(record, 54)
    assert not other.may_acquire(54.9)
    assert other.may_acquire(55)


def test_a_renewal_starts_the_wait_again() -> None:
    leader, other = Elector("one"), Elector("two")
    other.observe(written_by(leader, 0), 1)
    text = leader.record(UNIX + 2)
    other.observe(text, 3)
    assert not other.may_acquire(7.9)
    assert other.may_acquire(8)


def test_the_times_written_in_the_record_decide_nothing() -> None:
    other = Elector("two")
    other.observe(Elector("one").record(UNIX - 1_000_000), 10)
    assert not other.may_acquire(14.9)


def test_a_longer_lease_in_the_record_is_respected_within_reason() -> None:
    other = Elector("two")
    other.observe(Elector("one", lease_seconds=30).record(UNIX), 0)
    assert not other.may_acquire(29)
    other.observe('{"holderIdentity":"x","leaseDurationSeconds":1e300}', 100)
    assert other.may_acquire(701)


def test_a_released_lease_is_free_at_once() -> None:
    leader, other = Elector("one"), Elector("two")
    other.observe(written_by(leader, 0), 0)
    other.observe(leader.released(UNIX), 1)
    assert other.may_acquire(1)
    assert not leader.leading(1)
    assert not leader.must_quit(100)


def test_the_lease_of_a_process_that_is_dead_is_free_at_once_and_no_later_one() -> None:
    leader, other = Elector("one", address="10.0.0.7:8080"), Elector("two")
    other.observe(written_by(leader, 0), 1)
    seen = other.other
    assert seen is not None
    assert seen.address == "10.0.0.7:8080"
    assert not other.may_acquire(1)
    other.died(seen, 1)
    assert other.may_acquire(1)
    assert other.may_acquire_in(1) == 0
    assert other.other is None
    again = Elector("one")
    again.observe(leader.record(UNIX), 2)
    other.observe(written_by(again, 2), 3)
    assert not other.may_acquire(3)


def test_who_is_seen_to_renew_after_it_was_said_to_be_dead_is_alive() -> None:
    """A renewal that was on its way when it died is none: that comes soon."""
    leader, other = Elector("one", address="10.0.0.7:8080"), Elector("two")
    other.observe(written_by(leader, 0), 0.1)
    seen = other.other
    assert seen is not None
    other.died(seen, 0.5)
    other.observe(leader.record(UNIX + 1), 2.4)
    assert other.may_acquire(2.4)
    other.observe(leader.record(UNIX + 2), 2.5)
    assert not other.may_acquire(7.4)
    assert other.may_acquire(7.5)


def test_a_record_says_nothing_of_where_its_holder_is_if_nothing_is_known() -> None:
    assert "holderAddress" not in fields(Elector("one").record(UNIX))
    assert fields(Elector("one", address="[fd00::7]:8080").record(UNIX))["holderAddress"] == "[fd00::7]:8080"


def test_every_take_over_is_one_more_transition_and_a_renewal_is_not() -> None:
    one, two = Elector("one"), Elector("two")
    first = written_by(one, 0)
    assert fields(written_by(one, 1))["leaderTransitions"] == fields(first)["leaderTransitions"] == 1
    two.observe(first, 0)
    taken = written_by(two, 10)
    assert fields(taken)["leaderTransitions"] == 2
    assert fields(two.released(UNIX))["leaderTransitions"] == 2


def test_a_renewal_keeps_the_time_of_the_take_over() -> None:
    elector = Elector("one")
    acquired = fields(written_by(elector, 0))["acquireTime"]
    renewed = fields(elector.record(UNIX + 5))
    assert renewed["acquireTime"] == acquired
    assert renewed["renewTime"] != acquired


def test_a_restarted_process_takes_over_from_itself_with_another_transition() -> None:
    text = written_by(Elector("one"), 0)
    restarted = Elector("one")
    restarted.observe(text, 3)
    assert restarted.may_acquire(3)
    assert fields(restarted.record(UNIX))["leaderTransitions"] == 2


def test_a_leader_quits_when_it_was_not_renewed_in_time() -> None:
    elector = Elector("one")
    written_by(elector, 10)
    assert elector.quit_at == 14
    assert not elector.must_quit(13.9)
    assert elector.must_quit(14)
    assert not elector.leading(14)


def test_a_renewal_counts_from_before_it_was_sent() -> None:
    elector = Elector("one")
    written_by(elector, 0)
    elector.record(UNIX)
    elector.renewed(2)
    assert elector.quit_at == 6


def test_a_renewal_is_due_early_enough_for_two_more_tries() -> None:
    elector = Elector("one")
    written_by(elector, 0)
    assert not elector.renew_due(1.3)
    assert elector.renew_due(1.4)


def test_who_never_led_need_not_quit() -> None:
    assert not Elector("one").must_quit(1e9)


def test_a_leader_that_sees_a_successor_quits_at_once() -> None:
    one, two = Elector("one"), Elector("two")
    two.observe(written_by(one, 0), 0)
    one.observe(written_by(two, 7), 1)
    assert one.must_quit(1)


def test_a_leader_that_sees_a_successor_of_its_own_name_quits_at_once() -> None:
    first, restarted = Elector("one"), Elector("one")
    restarted.observe(written_by(first, 0), 1)
    text = written_by(restarted, 1)
    assert not first.is_ours(text)
    first.observe(text, 2)
    assert first.must_quit(2)
    assert restarted.is_ours(text)


def test_a_late_copy_of_the_predecessors_record_does_not_depose() -> None:
    one, two = Elector("one"), Elector("two")
    late = written_by(one, 0)
    two.observe(late, 0)
    written_by(two, 7)
    two.observe(late, 8)
    assert two.leading(8)
    assert two.holder == "two"


def test_losing_the_record_does_not_end_a_lease_that_was_seen_alive() -> None:
    leader, other = Elector("one"), Elector("two")
    other.observe(written_by(leader, 0), 0)
    other.observe(None, 1)
    assert not other.may_acquire(4.9)
    assert other.may_acquire(5)
    assert other.holder == ""


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "5", "{", '{"leaderTransitions":"x"}', '{"leaderTransitions":1e999}']
)
def test_what_is_no_record_holds_nobody_back(text: str) -> None:
    elector = Elector("one")
    elector.observe(text, 0)
    assert elector.may_acquire(0)
    assert not elector.is_ours(text)


def test_a_record_that_was_never_written_cannot_be_renewed() -> None:
    with pytest.raises(AssertionError):
        Elector("one").renewed(0)
