"""The ledger as text: what is written is read back, and what was not written by us is not believed."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.record import Booked, Claim, Ledger, Reservation, ReservedPodSet
from webhook.core.ledger.text import Decoder, LedgerCorrupt
from webhook.core.model.gang import PodPrice
from webhook.core.notation.amounts import FlavorResource

NAMES = st.text("abcdefghijklmnopqrstuvwxyz-.", min_size=1, max_size=12)
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(1, 10**15), max_size=3)
PRICES = st.builds(
    PodPrice,
    requests=AMOUNTS,
    limits=AMOUNTS,
    has_deadline=st.booleans(),
    best_effort=st.booleans(),
    priority_class=st.sampled_from(["", "high"]),
    cross_namespace_affinity=st.booleans(),
)
POD_SETS = st.builds(
    ReservedPodSet,
    name=NAMES,
    count=st.integers(0, 500),
    price=PRICES,
    flavors=st.dictionaries(st.sampled_from(["cpu", "pods"]), NAMES, max_size=2),
    charge=st.none() | AMOUNTS,
    job=st.sampled_from(["", "uid-of-a-member"]),
    places=st.dictionaries(NAMES, st.integers(1, 9), max_size=2),
    domain=st.dictionaries(NAMES, NAMES, max_size=2),
)
RESERVATIONS = st.builds(
    Reservation,
    uid=st.uuids().map(str),
    kind=st.just("Job.batch"),
    namespace=NAMES,
    name=NAMES,
    queue=st.none() | NAMES,
    pod_sets=st.lists(POD_SETS, max_size=3).map(tuple),
    epoch=st.integers(1, 9),
    since_seconds=st.integers(0, 2 * 10**9).map(lambda n: n / 8),
    evictable=st.booleans(),
    loose_pods=st.booleans(),
    preemptible=st.booleans(),
    priority=st.integers(-10, 10),
    stopping=st.sampled_from([None, "Preempted"]),
    adopted=st.booleans(),
)
CLAIMS = st.builds(Claim, planned=RESERVATIONS, awaits=st.lists(NAMES, max_size=3).map(tuple))
BOOKED = st.builds(
    Booked,
    queue=NAMES,
    turn=st.integers(0, 99),
    at_seconds=st.none() | st.floats(0, 2e9),
    amounts=st.dictionaries(st.builds(FlavorResource, NAMES, NAMES), st.integers(0, 10**15), max_size=2),
)
LEDGERS = st.builds(
    Ledger,
    epoch=st.integers(0, 99),
    seq=st.integers(0, 10**6),
    entries=st.lists(RESERVATIONS, max_size=4).map(lambda entries: {entry.uid: entry for entry in entries}),
    bookings=st.dictionaries(NAMES, BOOKED, max_size=2),
    claims=st.lists(CLAIMS, max_size=2).map(lambda claims: {claim.planned.uid: claim for claim in claims}),
)


@given(LEDGERS)
def test_what_is_written_is_read_back(ledger: Ledger) -> None:
    """decode is the inverse of encode."""
    assert ledger_text.decode(ledger_text.encode(ledger)) == ledger


OTHERS = st.dictionaries(
    st.text(st.characters(categories=["Ll"]), min_size=20, max_size=22),
    st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers()),
    max_size=3,
)
"""What no release writes yet."""


@given(RESERVATIONS, OTHERS, OTHERS)
def test_what_another_release_wrote_beside_the_rest_is_there_when_an_entry_is_written_again(
    entry: Reservation, of_gang: dict[str, Any], of_pods: dict[str, Any]
) -> None:
    record = json.loads(ledger_text.encode_entry(entry))
    record |= of_gang
    record["podSets"] = [each | of_pods for each in record["podSets"]]
    data = {entry.uid: json.dumps(record)}
    data["meta"] = ledger_text.encode_meta(Ledger(1, 1), ledger_text.checksum(data))
    read = ledger_text.decode(data).entries[entry.uid]
    assert replace(read, unknown={}, pod_sets=tuple(replace(each, unknown={}) for each in read.pod_sets)) == entry
    stopped = json.loads(ledger_text.encode_entry(replace(read, stopping="Preempted")))
    assert stopped == record | {"stopping": "Preempted"}


@given(LEDGERS, st.data())
def test_any_edit_by_hand_is_noticed(ledger: Ledger, data: st.DataObject) -> None:
    """Entries and claims removed, added or changed by somebody else are not believed."""
    text = ledger_text.encode(ledger)
    uids = sorted(ledger.entries)
    kept = sorted({ledger_text.CLAIMS, ledger_text.BOOKINGS} & text.keys())
    if kept and data.draw(st.booleans()):
        del text[data.draw(st.sampled_from(kept))]
    elif not uids:
        text["added"] = "{}"
    elif data.draw(st.booleans()):
        del text[data.draw(st.sampled_from(uids))]
    else:
        uid = data.draw(st.sampled_from(uids))
        text[uid] = json.dumps(json.loads(text[uid]) | {"priority": 4711})
    with pytest.raises(LedgerCorrupt):
        ledger_text.decode(text)


@pytest.mark.parametrize(
    "data", [{}, {"meta": ""}, {"meta": "[]"}, {"meta": '{"schema":3,"epoch":1,"seq":1,"checksum":"0"}'}]
)
def test_what_is_no_ledger_is_refused(data: dict[str, str]) -> None:
    """Missing, empty, foreign and from the future."""
    with pytest.raises(LedgerCorrupt):
        ledger_text.decode(data)


@given(st.lists(LEDGERS, min_size=1, max_size=4))
def test_decoding_versions_one_after_another_changes_nothing(ledgers: list[Ledger]) -> None:
    """Remembered entries never leak into a version that does not hold them."""
    decoder = Decoder()
    for ledger in ledgers:
        assert decoder.decode(ledger_text.encode(ledger)) == ledger


@given(LEDGERS)
def test_what_is_known_of_a_ledger_is_kept_once(ledger: Ledger) -> None:
    """Another version's texts are new objects, read from the wire; and entries are decoded from them only once."""
    decoder, data = Decoder(), ledger_text.encode(ledger)
    before = decoder.decode(data)
    copy = decoder.kept({f"{key} "[:-1]: f"{text} "[:-1] for key, text in data.items()})
    assert copy == data
    kept = {id(part) for each in data.items() for part in each}
    assert all({id(key), id(text)} <= kept for key, text in copy.items() if key != ledger_text.META)
    after = decoder.decode(copy)
    assert all(after.entries[uid] is entry for uid, entry in before.entries.items())


@given(LEDGERS)
def test_what_this_process_wrote_is_not_decoded(ledger: Ledger) -> None:
    """The leader reads its own writes back; an entry that somebody else has written is read all the same."""
    decoder, data = Decoder(), ledger_text.encode(ledger)
    for uid, entry in ledger.entries.items():
        decoder.written(uid, data[uid], entry)
    assert all(decoder.decode(data).entries[uid] is entry for uid, entry in ledger.entries.items())
    for uid, entry in ledger.entries.items():
        decoder.written(uid, data[uid], replace(entry, epoch=entry.epoch + 1))
        decoder.written(uid, None, None)
    assert decoder.decode(data) == ledger


def test_every_successor_is_newer() -> None:
    """Writes and take-overs order all versions."""
    first = Ledger(epoch=3, seq=7)
    assert first.version < first.amended().version < first.taken_over().version < first.taken_over().amended().version


def test_usage_charges_pods_gangs_and_reclaimed_pods() -> None:
    """max-jobs once a gang, pods by count, other resources by price, less what will not run again."""
    price = PodPrice({"cpu": 2000})
    flavors = {"cpu": "spot", "pods": "spot", "tutti.dev/max-jobs": "spot"}
    sets = (ReservedPodSet("a", 2, price, flavors), ReservedPodSet("b", 3, price, flavors))
    reservation = Reservation("u", "Job.batch", "ns", "j", "q", sets, 1, 0.0)
    assert reservation.usage({"b": 1}) == {
        FlavorResource("spot", "cpu"): 8000,
        FlavorResource("spot", "pods"): 4000,
        FlavorResource("spot", "tutti.dev/max-jobs"): 1000,
    }
