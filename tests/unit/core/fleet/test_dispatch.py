"""The record of one gang: what may follow what, and numbers that only grow."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from webhook.core.fleet.dispatch import NOWHERE, TRANSITIONS, Dispatch, DispatchPhase, Event, Offer
from webhook.core.fleet.failed_in import FailedIn
from webhook.core.fleet.permit import permit_text, permits
from webhook.core.fleet.sight import Copy
from webhook.core.fleet.strays import Verdict, verdict
from webhook.core.fleet.text import decode, encode, offer_of

OFFERED = Dispatch().offered(3, "a", "cluster-a")
GRANTED = OFFERED.granted("copy", "17")


def test_a_gang_that_may_have_pods_is_left_by_proof_or_somebodys_word_alone() -> None:
    may_have_pods = {DispatchPhase.GRANTED, DispatchPhase.RECALLED}
    out = {
        event
        for (before, event), after in TRANSITIONS.items()
        if before in may_have_pods and after not in may_have_pods
    }
    assert out == {Event.PROVE, Event.LOSE}


IN = {
    DispatchPhase.NOWHERE: Dispatch(),
    DispatchPhase.OFFERED: OFFERED,
    DispatchPhase.GRANTED: GRANTED,
    DispatchPhase.RECALLED: GRANTED.recalled("over"),
}
BY: dict[Event, Callable[[Dispatch], Dispatch]] = {
    Event.OFFER: lambda dispatch: dispatch.offered(3, "b", "cluster-b"),
    Event.WITHDRAW: lambda dispatch: dispatch.withdrawn("stopped"),
    Event.GRANT: lambda dispatch: dispatch.granted("copy", "18"),
    Event.RECALL: lambda dispatch: dispatch.recalled("over"),
    Event.PROVE: lambda dispatch: dispatch.proven_gone(),
    Event.LOSE: lambda dispatch: dispatch.lost("lost"),
    Event.ADOPT: lambda dispatch: dispatch.adopted(Offer(3, 1), "a", "cluster-a", "copy"),
    Event.RENAME: lambda dispatch: dispatch.known_as("again"),
}
DRAWN = """
           offer    withdraw  grant    recall    prove    lose     adopt    rename
nowhere    offered  -         -        -         -        -        granted  -
offered    offered  nowhere   granted  -         -        -        granted  -
granted    -        -         granted  recalled  -        nowhere  -        granted
recalled   -        -         -        -         nowhere  nowhere  -        recalled
"""
"""What follows each event in each phase; a line where it must not happen."""


def drawn() -> Iterator[tuple[DispatchPhase, Event, str]]:
    events, *rows = (line.split() for line in DRAWN.strip().splitlines())
    for phase, *after in rows:
        yield from ((DispatchPhase(phase), Event(event), follows) for event, follows in zip(events, after, strict=True))


@pytest.mark.parametrize(("phase", "event"), [(phase, event) for phase, event, follows in drawn() if follows != "-"])
def test_what_follows_shows_no_set_back(phase: DispatchPhase, event: Event) -> None:
    assert BY[event](IN[phase]).may_follow(IN[phase])


def test_a_record_that_goes_back_shows_a_set_back() -> None:
    recalled = GRANTED.recalled("over")
    told = [
        NOWHERE,
        OFFERED,
        GRANTED,
        recalled,
        recalled.proven_gone(),
        recalled.proven_gone().offered(3, "b", "other"),
    ]
    for number, earlier in enumerate(told):
        for later in told[number + 1 :]:
            assert later.may_follow(earlier)
            # Somebody's word that a member is lost may be wrong: what it has is adopted.
            assert earlier.may_follow(later) == (later == recalled.proven_gone() and earlier.holds)


@pytest.mark.parametrize(("phase", "event", "follows"), list(drawn()))
def test_what_may_follow_what_is_the_one_table(phase: DispatchPhase, event: Event, follows: str) -> None:
    assert TRANSITIONS.get((phase, event), "-") == follows
    if follows == "-":
        with pytest.raises(AssertionError, match=f"{event} of a gang that is {phase}"):
            BY[event](IN[phase])
    else:
        after = BY[event](IN[phase])
        assert after.phase is DispatchPhase(follows)
        assert decode(encode(after)) == after
        assert bool(after.copy_uid) == after.holds


def test_the_table_speaks_of_each_phase_and_event() -> None:
    assert len(list(drawn())) == len(DispatchPhase) * len(Event)


def test_a_permit_is_for_one_copy_at_a_time() -> None:
    with pytest.raises(AssertionError, match="granted to copy, not to another"):
        GRANTED.granted("another", "18")
    assert GRANTED.granted("copy", "18").copy_version == "18"


@pytest.mark.parametrize(
    ("dispatch", "again"),
    [
        (OFFERED, OFFERED.offered(3, "b", "cluster-b")),
        (OFFERED, OFFERED.withdrawn("stopped").offered(3, "a", "cluster-a")),
        (GRANTED, GRANTED.recalled("over").proven_gone().offered(3, "a", "cluster-a")),
        (GRANTED, GRANTED.recalled("over").proven_gone().offered(4, "a", "cluster-a")),
    ],
    ids=["moved", "withdrawn", "proven gone", "in a new epoch"],
)
def test_no_offer_bears_the_number_of_another(dispatch: Dispatch, again: Dispatch) -> None:
    assert again.offer > dispatch.offer


def test_the_policy_that_suspends_a_gangs_dispatching_is_read_back_and_forgotten_with_the_next_offer() -> None:
    suspended = replace(NOWHERE, suspended_by="PropagationPolicy a/b")
    assert decode(encode(suspended)) == suspended
    assert suspended.offered(1, "a", "cluster-a").suspended_by == ""


def test_an_adopted_copy_keeps_numbers_growing() -> None:
    adopted = OFFERED.adopted(Offer(2, 9), "b", "cluster-b", "copy")
    assert adopted.offer == OFFERED.offer
    assert (adopted.phase, adopted.member, adopted.copy_uid) == (DispatchPhase.GRANTED, "b", "copy")


@pytest.mark.parametrize(
    ("permit", "offer", "uid"),
    [
        ("", "", "copy"),
        ("", "3.1", "copy"),
        ("3.1 copy", "3.2", "copy"),
        ("3.1 copy", "3.1", "other"),
        (" copy", "", "copy"),
    ],
)
def test_a_permit_is_useless_on_any_other_copy_or_offer(permit: str, offer: str, uid: str) -> None:
    assert not permits(permit, offer, uid)


def test_a_permit_lets_the_copy_start_that_it_was_written_for() -> None:
    assert permits(permit_text(str(OFFERED.offer), "copy"), str(OFFERED.offer), "copy")


@pytest.mark.parametrize("offer", ["9999999999." + "9" * 29, "9" * 37 + ".9", "99999999999.999999999"])
def test_a_record_that_follows_an_adopted_copy_can_be_read_whatever_somebody_wrote_on_that(offer: str) -> None:
    copy = Copy("uid", "1", "hub", "job", offer_of(offer), permitted=True)
    found = verdict(copy, "cluster-a", NOWHERE, swept=True, complete=True)
    assert found in (Verdict.ADOPT, Verdict.END)
    if found is Verdict.ADOPT:
        record = NOWHERE.adopted(copy.offer, "a", "cluster-a", copy.uid)
        for _ in range(20):
            record = (
                record.recalled("over").proven_gone().offered(record.offer.epoch, "a", "cluster-a").granted("b", "1")
            )
            assert decode(encode(record)) == record


def test_what_only_people_read_comes_back_with_the_record_and_is_over_with_the_grant() -> None:
    told = OFFERED.offered(3, "b", "cluster-b", ("a does not answer",), "says no", never=True)
    assert decode(encode(told)) == told
    assert told.facts == OFFERED.offered(3, "b", "cluster-b")
    granted = told.granted("copy", "17")
    assert (granted.waits, granted.never) == ("", False)


def test_where_it_failed_comes_back_with_the_record_and_stays_through_the_next_offers() -> None:
    record = GRANTED.failed_over("failed").proven_gone().offered(3, "b", "cluster-b")
    assert record.failed == (FailedIn("a", "cluster-a"),)
    assert decode(encode(record)) == record


def test_a_record_of_a_hub_that_noted_no_clusters_is_read() -> None:
    written = json.loads(encode(replace(GRANTED, failed=(FailedIn("b"), FailedIn("c")))))
    del written["failedClusters"]
    assert decode(json.dumps(written)).failed == (FailedIn("b"), FailedIn("c"))
