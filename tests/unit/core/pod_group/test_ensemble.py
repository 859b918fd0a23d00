"""Jobs that share a PodGroup as one gang and back: nothing is lost on the way, and which jobs may leave."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.worlds import gang
from webhook.core.ledger.record import Ledger, Membership, Reservation, reserve
from webhook.core.ledger.text import decode, encode, encode_entry
from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.core.notation.amounts import FlavorResource
from webhook.core.notation.names import MAX_JOBS
from webhook.core.pod_group import ensemble
from webhook.core.pod_group.ensemble import Part

KEY = ("team", "ring")
FLAVORS = {"cpu": "default", MAX_JOBS: "default"}


@st.composite
def jobs(draw: st.DrawFn) -> list[Gang]:
    """One to four jobs of one PodGroup, of one to three pod sets each."""
    found = []
    for number in range(draw(st.integers(1, 4))):
        sets = tuple(
            PodSet(f"set-{i}", draw(st.integers(0, 3)), PodPrice({"cpu": 1000 * draw(st.integers(0, 3))}))
            for i in range(draw(st.integers(1, 3)))
        )
        found.append(gang(f"job-{number}", "q", pod_sets=sets, created=draw(st.sampled_from([0.0, 1.0]))))
    return ensemble.in_order(found)


def reservation(of: Gang, counts: dict[str, int], membership: Membership | None = None) -> Reservation:
    """A reservation in which the first pod set alone asks for a job, as the engine writes it."""
    flavors = {s.name: FLAVORS if i == 0 else {"cpu": "default"} for i, s in enumerate(of.pod_sets)}
    return replace(reserve(of, "q", counts, flavors, 1, 100.0), membership=membership)


@given(jobs(), st.data())
def test_what_was_composed_is_split_into_what_it_was_made_of(found: list[Gang], data: st.DataObject) -> None:
    membership = Membership("ring", 3)
    parts = []
    for job in found:
        counts = {name: data.draw(st.integers(0, count)) for name, count in job.counts.items()}
        parts.append(Part(reservation(job, counts, membership), job))
    whole = ensemble.compose_reservation(KEY, parts)
    assert [replace(ensemble.reservation_of(whole, job), membership=membership) for job in found] == [
        part.reservation for part in parts
    ]
    assert [ensemble.split(whole, part.reservation) for part in parts] == [part.reservation.pod_sets for part in parts]


@given(jobs())
def test_an_ensemble_asks_and_holds_what_its_jobs_ask_and_hold_each_counted_as_a_job(found: list[Gang]) -> None:
    whole = ensemble.compose(KEY, found, 1)
    assert whole.pods == sum(job.pods for job in found)
    assert whole.requests().get("cpu", 0) == sum(job.requests().get("cpu", 0) for job in found)
    held = ensemble.compose_reservation(KEY, [Part(reservation(job, job.counts)) for job in found]).usage()
    assert held[FlavorResource("default", MAX_JOBS)] == 1000 * len(found)
    each = [reservation(job, job.counts).usage() for job in found]
    assert held == {key: sum(usage.get(key, 0) for usage in each) for key in held}


def test_it_stands_where_its_first_job_stands_and_goes_only_when_all_may() -> None:
    first = gang("first", "q", created=1.0, not_before_seconds=2.0, max_run_seconds=10)
    second = gang("second", "q", created=5.0, not_before_seconds=9.0, max_run_seconds=60, preemptible=False)
    whole = ensemble.compose(KEY, [first, second], 2)
    assert (whole.created_seconds, whole.not_before_seconds, whole.max_run_seconds) == (1.0, 9.0, 60)
    assert not whole.preemptible
    assert ensemble.compose(KEY, [first, replace(second, max_run_seconds=None)], 2).max_run_seconds is None


def test_its_quorum_alone_says_how_few_pods_are_enough() -> None:
    whole = ensemble.compose(KEY, [gang("a", "q", pods=3, min_count=1), gang("b", "q", pods=3)], 5)
    assert whole.least_pods == 5


def test_different_queues_or_priorities_are_named_with_what_to_do() -> None:
    mixed = ensemble.mismatch([gang("a", "red"), gang("b", "blue")])
    assert mixed is not None
    assert "different queues (blue, red)" in str(mixed)
    assert "same queue label" in mixed.help
    mixed = ensemble.mismatch([gang("a", "red"), gang("b", "red", priority=7)])
    assert mixed is not None
    assert "different priorities (0, 7)" in str(mixed)
    assert ensemble.mismatch([gang("a", "red"), gang("b", "red")]) is None


def test_the_rest_stands_while_it_makes_the_quorum_less_what_has_succeeded() -> None:
    entries = [reservation(gang(name, "q", pods=2), {"main": 2}, Membership("ring", 4)) for name in "ab"]
    assert ensemble.stands(entries)
    assert not ensemble.stands(entries[:1])
    assert not ensemble.stands([entries[0], replace(entries[1], stopping="OnHold")])
    assert ensemble.stands([ensemble.relieved(entries[0], 2)])
    assert ensemble.stands([])


def test_a_membership_survives_the_ledger_and_entries_without_one_read_as_before() -> None:
    entry = reservation(gang("a", "q"), {"main": 1}, Membership("ring", 4, 2))
    assert read_back(entry) == entry
    assert '"membership":{"ensemble":"ring","quorum":4,"succeeded":2}' in encode_entry(entry)
    assert "membership" not in encode_entry(ensemble.left(entry))
    assert read_back(ensemble.left(entry)).membership is None


def read_back(entry: Reservation) -> Reservation:
    return decode(encode(Ledger(entries={entry.uid: entry}))).entries[entry.uid]


def test_a_quorum_is_lowered_and_never_raised() -> None:
    entry = Reservation("uid", "Job.batch", "ns", "left", "q", (), 1, 100.0, membership=Membership("ring", 4, 1))
    assert ensemble.lowered(entry, 3).membership == Membership("ring", 3, 1)
    assert ensemble.lowered(entry, 5) == entry
    assert ensemble.lowered(ensemble.left(entry), 1).membership is None
