"""What is due when, and that no verifier ever meets a leaf whose authority it had no time to learn of."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certs.authority import DAY_SECONDS, service_names
from certs.rotation import Material, Terms, advance, load_authorities, why_leaf_is_due, with_new_authority

NOW = 1_800_000_000.0
TERMS = Terms(names=service_names("tutti-system"))
BRIEF = Terms(
    names=("localhost",),
    leaf_seconds=9 * DAY_SECONDS,
    leaf_renew_seconds=3 * DAY_SECONDS,
    authority_seconds=30 * DAY_SECONDS,
    authority_renew_seconds=10 * DAY_SECONDS,
    overlap_seconds=DAY_SECONDS,
)


def first() -> Material:
    return advance(Material(), TERMS, NOW)


def test_the_first_run_makes_an_authority_and_a_leaf_of_it() -> None:
    material = first()
    assert len(material.authorities) == 1
    assert material.leaf is not None
    assert material.leaf.signed_by(material.authorities[0])
    assert material.leaf.names == TERMS.names


def test_a_second_run_changes_nothing() -> None:
    material = first()
    assert advance(material, TERMS, NOW + DAY_SECONDS) is material


def test_a_leaf_is_renewed_thirty_days_before_its_end_by_the_same_authority() -> None:
    material = first()
    kept = advance(material, TERMS, NOW + 59 * DAY_SECONDS)
    assert kept is material
    renewed = advance(material, TERMS, NOW + 61 * DAY_SECONDS)
    assert renewed.leaf != material.leaf
    assert renewed.authorities == material.authorities


def test_a_leaf_for_other_names_is_replaced_at_once() -> None:
    material = first()
    other = Terms(names=(*TERMS.names, "localhost"))
    assert advance(material, other, NOW).leaf.names == other.names  # type: ignore[union-attr]


def test_a_new_authority_is_trusted_for_a_day_before_it_signs_and_the_old_one_for_a_day_after() -> None:
    old = first()
    announced = advance(with_new_authority(old, TERMS, NOW), TERMS, NOW)
    assert [len(announced.authorities), announced.leaf] == [2, old.leaf]

    waiting = advance(announced, TERMS, NOW + DAY_SECONDS - 1)
    assert waiting is announced

    signed = advance(waiting, TERMS, NOW + DAY_SECONDS)
    assert signed.leaf is not None
    assert signed.leaf.signed_by(signed.authorities[0])
    assert len(signed.authorities) == 2

    done = advance(signed, TERMS, NOW + 2 * DAY_SECONDS)
    assert done.authorities == signed.authorities[:1]
    assert done.leaf == signed.leaf


def test_an_authority_in_its_last_year_is_replaced() -> None:
    material = first()
    late = advance(material, TERMS, NOW + 3290 * DAY_SECONDS)
    assert len(late.authorities) == 2


def test_everything_expired_is_made_anew() -> None:
    late = advance(first(), TERMS, NOW + 4000 * DAY_SECONDS)
    assert len(late.authorities) == 1
    assert late.leaf is not None
    assert late.leaf.signed_by(late.authorities[0])


@pytest.mark.parametrize("ahead_days", [1, 61, 365, 3300, 4000])
def test_what_a_clock_that_was_ahead_has_made_is_replaced_by_the_first_run_whose_clock_is_right(
    ahead_days: int,
) -> None:
    """Each process would refuse it and go on with what it has; one that starts would have nothing to serve."""
    before = first()
    later = NOW + ahead_days * DAY_SECONDS
    rotated = with_new_authority(before, TERMS, later)
    for day in (0, 1, 2):
        rotated = advance(rotated, TERMS, later + day * DAY_SECONDS)
    assert rotated.leaf != before.leaf
    mended = advance(rotated, TERMS, NOW + DAY_SECONDS)
    assert mended.leaf is not None
    assert mended.leaf.begins_seconds <= NOW + DAY_SECONDS < mended.leaf.ends_seconds
    assert all(each.begins_seconds <= NOW + DAY_SECONDS < each.ends_seconds for each in mended.authorities)
    assert any(mended.leaf.signed_by(each) for each in mended.authorities)


def test_a_leaf_says_why_it_is_due() -> None:
    material = first()
    signer = material.authorities[0]
    assert why_leaf_is_due(None, signer, TERMS, NOW) == "there is none"
    assert why_leaf_is_due(material.leaf, signer, TERMS, NOW) is None
    assert why_leaf_is_due(material.leaf, signer, TERMS, NOW + 80 * DAY_SECONDS) == "it ends soon"


def test_authorities_survive_being_written_and_read() -> None:
    material = with_new_authority(first(), TERMS, NOW)
    read = load_authorities(material.authorities_pem)
    assert [pair.certificate for pair in read] == [pair.certificate for pair in material.authorities]


@settings(max_examples=25)
@given(steps=st.lists(st.tuples(st.floats(0.1, 4.0), st.booleans()), min_size=1, max_size=20))
def test_whoever_learned_the_bundle_within_the_overlap_always_knows_the_signer(
    steps: list[tuple[float, bool]],
) -> None:
    """Runs at any interval below the last third of a leaf, with authorities replaced by hand at any of them."""
    now = NOW
    material = advance(Material(), BRIEF, now)
    history = [(now, material)]
    for days, by_hand in steps:
        now += min(days, 2.9) * DAY_SECONDS
        if by_hand:
            material = with_new_authority(material, BRIEF, now)
        material = advance(material, BRIEF, now)
        history.append((now, material))
        leaf = material.leaf
        assert leaf is not None
        assert leaf.ends_seconds > now
        # A verifier may still hold any bundle that was current within the overlap before now, except at the very start.
        for replaced_at, (_, known) in zip((at for at, _ in history[1:]), history[:-1], strict=True):
            if now - replaced_at < BRIEF.overlap_seconds:
                assert any(leaf.signed_by(authority) for authority in known.authorities)
        # And a server may still serve any leaf that was current within the overlap.
        for replaced_at, (_, served) in zip((at for at, _ in history[1:]), history[:-1], strict=True):
            if now - replaced_at < BRIEF.overlap_seconds:
                assert served.leaf is not None
                assert any(served.leaf.signed_by(authority) for authority in material.authorities)
