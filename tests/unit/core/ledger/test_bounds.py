"""What one gang may put into the ledger: bounded by what a tenant writes, and told with field, value and fix."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.ledger import bounds
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.record import Ledger, reserve
from webhook.core.model.gang import Gang, PodPrice, PodSet

NAMES = st.text("abcdefghijklmnopqrstuvwxyz-./", min_size=1, max_size=300)
PRICES = st.builds(
    PodPrice,
    requests=st.dictionaries(NAMES, st.integers(0, 2**63), max_size=90),
    limits=st.dictionaries(NAMES, st.integers(0, 2**63), max_size=40),
)
POD_SETS = st.builds(PodSet, name=st.text("abc-", min_size=1, max_size=253), count=st.integers(0, 500), price=PRICES)
ODD = st.text('aé\N{GRINNING FACE}"\\\n', min_size=1, max_size=253)
ODD_PRICES = st.builds(
    PodPrice,
    requests=st.dictionaries(ODD, st.integers(0, 2**63), max_size=60),
    limits=st.dictionaries(ODD, st.integers(0, 2**63), max_size=4),
    has_deadline=st.booleans(),
    best_effort=st.booleans(),
    priority_class=ODD,
    cross_namespace_affinity=st.booleans(),
)
ODD_SETS = st.builds(PodSet, name=ODD, count=st.just(1_000_000), price=ODD_PRICES, job=st.just("u" * 36))


def gang_of(*pod_sets: PodSet) -> Gang:
    return Gang("0a1b2c3d-uid", "Job.batch", "team-a", "train", None, pod_sets)


@given(st.lists(POD_SETS, max_size=6, unique_by=lambda pod_set: pod_set.name))
def test_a_gang_that_is_not_too_large_makes_an_entry_within_the_bound(pod_sets: list[PodSet]) -> None:
    gang = gang_of(*pod_sets)
    entry = reserve(gang, "queue", gang.counts, {}, 1, 0.0)
    if bounds.too_large(gang) is None:
        assert bounds.entry_bytes(entry) <= bounds.ENTRY_BYTES_MAX
        assert bounds.fits_alone(entry)


@given(st.lists(ODD_SETS, max_size=3, unique_by=lambda pod_set: pod_set.name), st.integers(0, 90))
def test_nor_does_one_whose_names_take_more_bytes_than_letters(pod_sets: list[PodSet], more: int) -> None:
    long = [PodSet(f"{'n' * 250}{number}", 1, PodPrice({}, priority_class="c" * 253)) for number in range(more)]
    gang = gang_of(*pod_sets, *long)
    if bounds.too_large(gang) is None:
        assert bounds.entry_bytes(reserve(gang, "queue", gang.counts, {}, 1, 0.0)) <= bounds.ENTRY_BYTES_MAX


def test_thousands_of_resource_names_are_too_many_though_each_amount_is_0() -> None:
    price = PodPrice({f"a.b/{number}": 0 for number in range(4600)})
    problem = bounds.too_large(gang_of(PodSet("main", 1, price)))
    assert problem is not None
    assert "pod set main" in problem
    assert "4600 resources" in problem
    assert "leave out" in problem


def test_long_names_are_too_much_together() -> None:
    price = PodPrice({f"{'x' * 300}{number}": 1 for number in range(50)})
    assert bounds.too_large(gang_of(PodSet("main", 1, price))) is None
    problem = bounds.too_large(gang_of(*(PodSet(f"set-{number}", 1, price) for number in range(3))))
    assert problem is not None
    assert "3 pod sets" in problem
    assert f"{bounds.ENTRY_BYTES_MAX}; use fewer" in problem


def test_a_hundred_pod_sets_of_a_real_job_are_not_too_many() -> None:
    requests = {"cpu": 4000, "memory": 17_179_869_184_000, "nvidia.com/gpu": 8000, "ephemeral-storage": 10**15}
    sets = (PodSet(f"workers-{number:03}", 8, PodPrice(requests, requests)) for number in range(100))
    assert bounds.too_large(gang_of(*sets)) is None


@pytest.mark.parametrize("limits", [{"cpu": 2000, "gpu": 0}, {"gpu": 0}])
def test_what_is_0_is_not_written(limits: dict[str, int]) -> None:
    gang = gang_of(PodSet("main", 1, PodPrice({"cpu": 1000, "gpu": 0}, limits)))
    entry = reserve(gang, "queue", gang.counts, {}, 1, 0.0)
    text = ledger_text.encode(Ledger(1, 1, {entry.uid: entry}))
    assert "gpu" not in text[entry.uid]
    assert ledger_text.decode(text).entries == {entry.uid: entry}


def test_what_runs_already_is_cut_down_to_what_its_queue_counts() -> None:
    price = PodPrice({"cpu": 1000, "nvidia.com/gpu": 1000} | {f"a.b/{number}": 9 for number in range(9000)})
    gang = gang_of(PodSet("main", 1, price))
    flavors = {"main": {"nvidia.com/gpu": "gpus"}}
    entry = bounds.bounded(reserve(gang, "queue", gang.counts, flavors, 1, 0.0))
    assert entry.pod_sets[0].price.requests == {"cpu": 1000, "nvidia.com/gpu": 1000}
    small = reserve(gang_of(PodSet("main", 1, PodPrice({"cpu": 1000}))), "queue", {"main": 1}, flavors, 1, 0.0)
    assert bounds.bounded(small) is small


@pytest.mark.parametrize("in_limits", [False, True])
def test_an_entry_keeps_what_nothing_counts_yet_up_to_so_many_names_a_pod_set(in_limits: bool) -> None:
    amounts = {f"a.b/{number}": 1000 for number in range(bounds.RESOURCE_NAMES_MAX)}
    most, more = (
        gang_of(PodSet("main", 1, PodPrice({}, asked) if in_limits else PodPrice(asked)))
        for asked in (amounts, amounts | {"a.b/one-more": 0})
    )
    assert bounds.too_large(most) is None
    entry = reserve(most, "queue", most.counts, {}, 1, 0.0)
    stored = ledger_text.decode(ledger_text.encode(Ledger(1, 1, {entry.uid: entry}))).entries[entry.uid]
    assert stored.pod_sets[0].price == most.pod_sets[0].price
    assert stored.usage() == {}
    problem = bounds.too_large(more)
    assert problem is not None
    assert f"name {bounds.RESOURCE_NAMES_MAX + 1} resources" in problem


def test_an_entry_within_the_bound_is_stored_with_what_its_queue_says_of_it() -> None:
    names = {f"{'x' * 200}{number}": 2**63 for number in range(bounds.RESOURCE_NAMES_MAX)}
    sets = [PodSet("main", 1, PodPrice(names))]
    while bounds.too_large(gang_of(*sets)) is None:
        sets.append(PodSet(f"set-{len(sets)}", 1, PodPrice({f"y{len(sets)}": 1})))
    gang = gang_of(*sets[:-1])
    flavors = {each.name: dict.fromkeys(each.price.requests, "a-flavor") for each in gang.pod_sets}
    assert bounds.entry_bytes(reserve(gang, "queue", gang.counts, {}, 1, 0.0)) > 0.9 * bounds.ENTRY_BYTES_MAX
    assert bounds.fits_alone(reserve(gang, "queue", gang.counts, flavors, 1, 0.0))
