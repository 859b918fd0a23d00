"""Claims and bookings are written as far as there is room, and nobody's are left out for another's sake."""

from dataclasses import replace

import pytest

from webhook.core.ledger import beside, text
from webhook.core.ledger.record import Booked, Claim, Ledger, reserve
from webhook.core.ledger.witness import short
from webhook.core.model.gang import Gang, PodPrice, PodSet

BYTES_MAX = 8_000


@pytest.fixture(autouse=True)
def _small_config_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "BYTES_MAX", BYTES_MAX)


def claims(namespace: str, count: int) -> dict[str, Claim]:
    made = {}
    for number in range(count):
        uid = f"{namespace}-{number:03}"
        gang = Gang(uid, "Job.batch", namespace, uid, "q", (PodSet("main", 2, PodPrice({"cpu": 1000})),))
        made[uid] = Claim(reserve(gang, "q", {"main": 2}, {}, epoch=1, now_seconds=0), ("victim",))
    return made


def test_the_claims_of_who_has_most_are_left_out_first() -> None:
    ledger = Ledger(1, 1, {}, claims("greedy", 200) | claims("modest", 2), {"head": Booked("q", 1)})
    stored, texts = beside.written(
        Ledger(1, 0), ledger, {"a": "x" * 1_000}, {"b": "y" * 1_000, "a": None}, beside.ClaimTexts()
    )
    assert {uid for uid in stored.claims if uid.startswith("modest")} == {"modest-000", "modest-001"}
    assert stored.bookings == ledger.bookings
    written = {"b": "y" * 1_000} | {key: value for key, value in texts.items() if value is not None}
    size = text.size_bytes(written) + beside.META_BYTES
    assert BYTES_MAX - 400 < size <= BYTES_MAX, "as many as there is room for"


def test_what_was_left_out_before_is_no_reason_to_write_again() -> None:
    ledger = Ledger(1, 1, {}, claims("greedy", 200))
    stored, texts = beside.written(Ledger(1, 0), ledger, {}, {}, beside.ClaimTexts())
    assert texts.keys() == {text.CLAIMS}
    again, more = beside.written(
        stored, replace(ledger, seq=2), {text.CLAIMS: texts[text.CLAIMS] or ""}, {}, beside.ClaimTexts()
    )
    assert (again.claims, more) == (stored.claims, {})


def test_bookings_that_do_not_fit_leave_the_room_to_claims() -> None:
    bookings = {f"head-{number}": Booked("q" * 200, number) for number in range(100)}
    stored, texts = beside.written(
        Ledger(1, 0), Ledger(1, 1, {}, claims("team", 3), bookings), {}, {}, beside.ClaimTexts()
    )
    assert (len(stored.claims), stored.bookings) == (3, {})
    assert texts.keys() == {text.CLAIMS}


def test_a_claim_that_has_not_changed_is_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded, encode = list[Claim](), text.encode_claim

    def noted(claim: Claim) -> str:
        encoded.append(claim)
        return encode(claim)

    monkeypatch.setattr(text, "encode_claim", noted)
    known, ledger = beside.ClaimTexts(), Ledger(1, 1, {}, claims("greedy", 200))
    stored, _ = beside.written(Ledger(1, 0), ledger, {}, {}, known)
    assert len(stored.claims) < len(encoded) == 200, "what is left out is not encoded twice either"
    changed = replace(ledger.claims["greedy-000"], awaits=("other",))
    more = replace(ledger, seq=2, claims={**ledger.claims, "greedy-000": changed})
    again, texts = beside.written(stored, more, {}, {}, known)
    assert encoded[200:] == [changed]
    assert texts[text.CLAIMS] == text.encode_claims(again.claims)
    assert again.claims["greedy-000"].awaits == ("other",)


def test_what_meta_says_of_pages_has_room_beside_claims_however_many_writes_there_are() -> None:
    """It was counted as 200 bytes, and takes a dozen for each page: an index full of claims could not be written."""
    listed = {f"tutti-ledger-page-1234-{number}": f"uid-{number}" for number in range(60)}
    before = Ledger(1234, 1, {}, {}, {}, listed)
    stored, texts = beside.written(before, replace(before, claims=claims("greedy", 200)), {}, {}, beside.ClaimTexts())
    late = replace(stored, seq=10**18, seen={short(page): 10**18 for page in listed})
    written = {key: value for key, value in texts.items() if value is not None}
    written[text.META] = text.encode_meta(late, 2**64 - 1)
    assert BYTES_MAX - 500 < text.size_bytes(written) <= BYTES_MAX


def test_where_there_is_no_room_beside_entries_all_claims_and_bookings_are_left_out() -> None:
    ledger = Ledger(1, 1, {}, claims("team", 3), {"head": Booked("q", 1)})
    stored, texts = beside.written(Ledger(1, 0), ledger, {"a": "x" * BYTES_MAX}, {}, beside.ClaimTexts())
    assert (stored.claims, stored.bookings, texts) == ({}, {}, {})
