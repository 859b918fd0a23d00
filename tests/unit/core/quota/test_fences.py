"""ResourceQuota headroom: hard - used - (reserved - materialised)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.costs import counted
from webhook.core.ledger.record import Reservation, reserve
from webhook.core.model.gang import Gang, PodPrice, PodSet, Requirement
from webhook.core.model.pods import PodRecord, WaitingPod
from webhook.core.quota.fence import Fence
from webhook.core.quota.fences import Fences
from webhook.core.reasons.barriers import FenceFull, reason_of

GPU = "requests.nvidia.com/gpu"
ONE_GPU = PodPrice({"nvidia.com/gpu": 1000, "cpu": 1000}, {"nvidia.com/gpu": 1000})
TWO_GPUS = replace(ONE_GPU, requests={"nvidia.com/gpu": 2000, "cpu": 1000})


def gang(count: int, quorum: int | None = None) -> Gang:
    return Gang("uid", "Job.batch", "ns", "train", None, (PodSet("main", count, ONE_GPU),), quorum=quorum)


def reservation(count: int) -> Reservation:
    return reserve(gang(count), None, {"main": count}, {}, epoch=1, now_seconds=0)


def pod(number: int, *, member: bool = True, **changes: object) -> PodRecord:
    record = PodRecord(f"pod-{number}", "ns", f"pod-{number}", 1, ONE_GPU, "uid" if member else None, "main")
    return replace(record, **changes)  # type: ignore[arg-type]


@pytest.fixture
def fences() -> Fences:
    fences = Fences()
    fences.put_fence(Fence("ns", "hard", {GPU: 4000, "pods": 6000}))
    return fences


def test_a_pod_that_is_deleted_before_it_had_a_node_holds_nothing(fences: Fences) -> None:
    """Its finalizer may keep it for ever; nobody gives it a node any more."""
    fences.put_pod(pod(0, node="node-1", terminating=True))
    fences.put_pod(pod(1, terminating=True))
    assert fences.present("ns", "uid") == 1


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_holds_nothing_while_a_finalizer_keeps_it(fences: Fences, phase: str) -> None:
    """Its kubelet says so once its containers have ended; until then it holds its room, whoever keeps the object."""
    fences.put_pod(pod(0, node="node-1", terminating=True))
    assert fences.present("ns", "uid") == 1
    fences.put_pod(pod(0, node="node-1", terminating=True, phase=phase))
    assert fences.present("ns", "uid") == 0


def test_a_gang_that_exceeds_the_quota_is_told_which_with_numbers(fences: Fences) -> None:
    """The first key that is short, what is asked and what there is."""
    short = fences.shortfall(gang(5), {"main": 5})
    assert isinstance(short, FenceFull)
    assert (short.fence, short.resource, short.asked, short.limit) == ("ResourceQuota ns/hard", GPU, 5000, 4000)
    assert reason_of(short).help == "it can never start: ask for less, or raise the ResourceQuota"
    assert reason_of(short).is_never
    fences.put_reservation(reservation(3))
    other = fences.shortfall(replace(gang(2), uid="other"), {"main": 2})
    assert other is not None
    assert reason_of(other).help == f"needs 1 more {GPU}; end something there, or raise the ResourceQuota"


def test_all_of_which_resource_quotas_have_too_little_left_is_told(fences: Fences) -> None:
    fences.put_fence(Fence("ns", "also", {"requests.cpu": 5000}))
    fences.put_reservation(reservation(4))
    short = fences.shortfall(replace(gang(3), uid="other"), {"main": 3})
    assert short is not None
    tail = "; end something there, or raise the ResourceQuota"
    assert str(reason_of(short)) == (
        "asks for 3 requests.cpu; ResourceQuota ns/also has 5, 4 used; held by ns/train (4); needs 2 more "
        f"requests.cpu, 1 more pod of ResourceQuota ns/hard and 3 more {GPU} of ResourceQuota ns/hard{tail}"
    )


@pytest.mark.parametrize("runs", [0, 2])
def test_what_is_more_than_resource_quotas_allow_at_all_is_told_alone(fences: Fences, runs: int) -> None:
    """Of what only others hold nothing is said: it would never start all the same."""
    fences.put_fence(Fence("ns", "also", {"requests.cpu": 8000}))
    if runs:
        fences.put_reservation(reservation(runs))
    short = fences.shortfall(replace(gang(7), uid="other"), {"main": 7})
    assert short is not None
    said = str(reason_of(short))
    assert said.startswith("asks for 7 pods; ResourceQuota ns/hard has 6")
    tip = "it can never start: ask for less, or raise the ResourceQuota"
    assert said.endswith(f"it also asks for 7 {GPU}, ResourceQuota ns/hard has 4; {tip}")
    never = fences.never_fits(gang(7))
    assert never is not None
    assert "it also asks for 7" in str(reason_of(never))


def test_pods_that_are_on_their_way_count_as_there(fences: Fences) -> None:
    """It was told that it needs none more."""
    fences.put_reservation(reservation(3))
    short = fences.pod_shortfall("ns", ONE_GPU, also=[ONE_GPU])
    assert short is not None
    assert reason_of(short).help == f"needs 1 more {GPU}; end something there, or raise the ResourceQuota"


def test_all_that_containers_do_not_state_is_told(fences: Fences) -> None:
    silent = PodPrice({"nvidia.com/gpu": 1000}, {}, unstated=frozenset({"requests.cpu", "requests.memory"}))
    fences.put_fence(Fence("ns", "stated", {"requests.cpu": 9000, "requests.memory": 9000}))
    sets = tuple(PodSet(name, 1, silent) for name in ("master", "worker"))
    found = fences.shortfall(replace(gang(1), pod_sets=sets), {"master": 1, "worker": 1})
    assert found is not None
    assert str(reason_of(found)) == (
        "ResourceQuota ns/stated bounds requests.cpu, requests.memory, which not every container of pod sets master, "
        "worker states; state requests.cpu, requests.memory in every container, or let a LimitRange fill it in"
    )


def test_a_quota_that_comes_later_charges_pods_still_to_come_for_what_nothing_counted_when_they_were_admitted() -> None:
    asking = PodPrice({**ONE_GPU.requests, "a.b/licence": 1000}, ONE_GPU.limits)
    first = replace(gang(3), pod_sets=(PodSet("main", 3, asking),))
    fences = Fences()
    fences.put_reservation(reserve(first, None, {"main": 3}, {}, epoch=1, now_seconds=0))
    fences.put_pod(pod(0, price=asking))
    fences.put_fence(Fence("ns", "licences", {"requests.a.b/licence": 3000}))
    short = fences.shortfall(replace(first, uid="second"), {"main": 1})
    assert isinstance(short, FenceFull)
    assert (short.used, short.limit) == (3000, 3000)


def test_pods_that_cannot_be_told_from_others_meet_the_fence_one_by_one(fences: Fences) -> None:
    """A claim for them would never be materialised, and keep out the very pods that it is for."""
    loose = replace(gang(4), loose_pods=True)
    fences.put_reservation(reserve(loose, "research", {"main": 4}, {}, epoch=1, now_seconds=0))
    assert fences.pod_shortfall("ns", ONE_GPU) is None
    assert fences.shortfall(replace(gang(9), loose_pods=True), {"main": 9}) is None
    assert fences.never_fits(replace(gang(9), loose_pods=True)) is None


def test_reserved_pods_count_before_they_exist(fences: Fences) -> None:
    """A loose pod cannot eat what was admitted, and is told what holds it."""
    fences.put_reservation(reservation(4))
    short = fences.pod_shortfall("ns", ONE_GPU)
    assert short is not None
    assert [(holder.gang, holder.amount) for holder in short.holders] == [("ns/train", 4000)]


def gated(number: int) -> PodRecord:
    """Return a pod of the gang that waits behind our gate."""
    return pod(number, waiting=WaitingPod(PodSet("main", 1, ONE_GPU), {}, False, None, None, 0))


def test_a_waiting_pod_takes_room_from_everybody_but_its_own_gang(fences: Fences) -> None:
    """It is stored, so the ResourceQuota counts it; its gang asks only for what is not there yet."""
    for number in range(3):
        fences.put_pod(gated(number))
    assert fences.pod_shortfall("ns", ONE_GPU) is None
    assert fences.shortfall(replace(gang(2), uid="another"), {"main": 2}) is not None
    assert fences.shortfall(gang(4), {"main": 4}) is None
    short = fences.shortfall(gang(5), {"main": 5})
    assert isinstance(short, FenceFull)
    assert (short.asked, short.used, short.limit) == (2000, 3000, 4000)
    assert [holder.gang for holder in short.holders] == ["waiting pods"]


def test_a_reservation_is_materialised_by_pods_that_wait(fences: Fences) -> None:
    """Neither its admission nor letting them go changes what is taken: nothing is counted twice."""
    for number in range(3):
        fences.put_pod(gated(number))
    fences.put_reservation(reservation(3))
    assert fences.pod_shortfall("ns", ONE_GPU) is None
    assert fences.present("ns", "uid") == 0
    for number in range(3):
        fences.put_pod(pod(number))
    assert fences.present("ns", "uid") == 3
    assert fences.pod_shortfall("ns", ONE_GPU) is None
    fences.put_pod(gated(3))
    assert fences.shortfall(gang(4), {"main": 1}) is None, "the gang grows by a pod that waits: it is there already"
    assert fences.shortfall(gang(5), {"main": 2}) is not None


def test_a_reserved_pod_is_not_counted_twice_once_it_exists(fences: Fences) -> None:
    """Used grows as the claim shrinks."""
    fences.put_reservation(reservation(3))
    for number in range(3):
        assert fences.pod_shortfall("ns", ONE_GPU) is None
        fences.put_pod(pod(number))
    assert fences.pod_shortfall("ns", ONE_GPU) is None


def test_a_terminating_pod_counts_in_the_fence_beside_its_replacement(fences: Fences) -> None:
    """Its place in the gang is free, its quota is not."""
    fences.put_reservation(reservation(3))
    for number in range(3):
        fences.put_pod(pod(number))
    fences.put_pod(pod(0, node="node-1", terminating=True))
    assert fences.live_pods("ns", "uid", "main") == 2
    assert fences.pod_shortfall("ns", ONE_GPU) is not None


def test_ended_and_reclaimed_pods_give_their_room_back(fences: Fences) -> None:
    """A pod that succeeded and will not be replaced is neither used nor claimed."""
    fences.put_reservation(reservation(4), {"main": 2})
    fences.put_pod(pod(0, phase="Succeeded"))
    fences.put_pod(pod(1, phase="Succeeded"))
    assert fences.shortfall(gang(2), {"main": 2}) is None


def test_quota_is_present_until_the_last_pod_is_gone(fences: Fences) -> None:
    """Deleting is not gone."""
    fences.put_pod(pod(0, node="node-1", terminating=True))
    assert fences.present("ns", "uid") == 1
    fences.drop_pod("ns", "pod-0")
    assert fences.present("ns", "uid") == 0


@pytest.mark.parametrize(
    ("scope", "price", "counted"),
    [
        (Requirement("Terminating", "Exists"), replace(ONE_GPU, has_deadline=True), True),
        (Requirement("Terminating", "Exists"), ONE_GPU, False),
        (Requirement("NotTerminating", "Exists"), ONE_GPU, True),
        (Requirement("BestEffort", "Exists"), replace(ONE_GPU, best_effort=True), True),
        (Requirement("NotBestEffort", "Exists"), ONE_GPU, True),
        (Requirement("PriorityClass", "In", ("high",)), replace(ONE_GPU, priority_class="high"), True),
        (Requirement("PriorityClass", "In", ("high",)), ONE_GPU, False),
        (Requirement("PriorityClass", "DoesNotExist"), ONE_GPU, True),
        (Requirement("CrossNamespacePodAffinity", "Exists"), ONE_GPU, False),
        (Requirement("VolumeAttributesClass", "Exists"), ONE_GPU, False),
    ],
)
def test_scopes_decide_which_pods_are_counted(scope: Requirement, price: PodPrice, counted: bool) -> None:
    """All scopes must match, as in Kubernetes."""
    assert Fence("ns", "scoped", {"pods": 1000}, (scope,)).matches(price) is counted


def test_a_gang_that_fits_no_empty_namespace_is_known_at_once(fences: Fences) -> None:
    """Only the quorum has to fit."""
    assert fences.never_fits(gang(5)) is not None
    assert fences.never_fits(gang(5, quorum=4)) is None


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["put_pod", "resize", "drop_pod", "reserve", "release", "fence", "unfence"]),
        st.integers(0, 3),
        st.booleans(),
        st.sampled_from(["Pending", "Running", "Succeeded"]),
        st.booleans(),
    ),
    max_size=40,
)


@given(EVENTS)
def test_incremental_totals_equal_a_fresh_count(events: list[tuple[str, int, bool, str, bool]]) -> None:
    """Whatever came in whatever order, the answer is that of the final state alone."""
    kept, pods, reserved, fenced = Fences(), {}, {}, {}
    for what, number, member, phase, terminating in events:
        match what:
            case "put_pod":
                pods[number] = pod(number, member=member, phase=phase, node="node-1", terminating=terminating)
                if number == 3 and phase == "Pending":
                    pods[number] = gated(number)
                kept.put_pod(pods[number])
            case "resize" if number in pods:
                pods[number] = replace(pods[number], price=TWO_GPUS if member else ONE_GPU, ready=terminating)
                kept.put_pod(pods[number])
            case "drop_pod":
                pods.pop(number, None)
                kept.drop_pod("ns", f"pod-{number}")
            case "reserve":
                reserved["uid"] = reservation(number)
                kept.put_reservation(reserved["uid"])
            case "release":
                reserved.pop("uid", None)
                kept.drop_reservation("ns", "uid")
            case "fence":
                fenced["hard"] = Fence("ns", "hard", {GPU: number * 1000, "pods": 3000})
                kept.put_fence(fenced["hard"])
            case "unfence":
                fenced.pop("hard", None)
                kept.drop_fence("ns", "hard")
    fresh = Fences()
    for record in pods.values():
        fresh.put_pod(record)
    fresh.set_reservations(reserved.values())
    for fence in fenced.values():
        fresh.put_fence(fence)
    for count in range(4):
        told = kept.shortfall(gang(count), {"main": count})
        assert told == fresh.shortfall(gang(count), {"main": count})
        assert told is None or sum(holder.amount for holder in told.holders) == told.used
    assert kept.present("ns", "uid") == fresh.present("ns", "uid")
    assert kept.live_pods("ns", "uid", "main") == fresh.live_pods("ns", "uid", "main")


def test_pods_that_have_ended_stay_given_back_when_the_reservation_changes(fences: Fences) -> None:
    fences.put_reservation(reservation(3))
    fences.give_back("ns", "uid", {"main": 2})
    assert fences.pod_shortfall("ns", ONE_GPU, also=[ONE_GPU, ONE_GPU]) is None
    grown = replace(reservation(3), priority=5)
    assert fences.set_reservations([grown]) == [grown]
    assert fences.pod_shortfall("ns", ONE_GPU, also=[ONE_GPU, ONE_GPU]) is None
    assert fences.set_reservations([replace(grown)]) == []
    fences.drop_reservation("ns", "uid")
    fences.put_reservation(reservation(3))
    assert fences.pod_shortfall("ns", ONE_GPU, also=[ONE_GPU]) is not None, "another start has all of its pods to come"


def test_a_pod_of_a_gang_of_hundreds_of_pod_sets_costs_no_more_than_another(fences: Fences) -> None:
    sets = tuple(PodSet(f"set-{number}", 1, ONE_GPU) for number in range(500))
    wide = replace(gang(1), pod_sets=sets)
    fences.put_reservation(reserve(wide, None, wide.counts, {}, epoch=1, now_seconds=0))

    def come_and_go() -> None:
        for number in range(100):
            fences.put_pod(pod(number, pod_set=f"set-{number}"))
            fences.drop_pod("ns", f"pod-{number}")

    counted(come_and_go)


def test_a_pod_is_counted_again_only_when_it_counts_as_something_else(fences: Fences) -> None:
    """It is told of each condition, and what it asks was counted twice each time."""
    fences.put_fence(Fence("ns", "wide", {f"requests.example.com/{number}": 1000 for number in range(500)}))
    fences.put_reservation(reservation(3))
    for number in range(3):
        fences.put_pod(pod(number, node="node-1"))

    def told() -> None:
        for number in range(3_000):
            fences.put_pod(pod(number % 3, node="node-1", ready=number % 2 == 0))

    counted(told)
    assert [each.name for each in fences.pods_of("ns", "uid")] == ["pod-0", "pod-1", "pod-2"], "as they were told last"
    assert [each.name for each in fences.pods_of("ns", "uid") if each.ready] == ["pod-1"]


def test_a_refusal_costs_the_same_however_many_pods_a_namespace_has(fences: Fences) -> None:
    """Whoever is refused tries again: each time all 20,000 pods were asked what they hold."""
    fences.put_fence(Fence("ns", "hard", {GPU: 20_000_000}))
    for number in range(20_000):
        ended = number >= 10_000
        fences.put_pod(pod(number, member=number % 2 == 0, phase="Succeeded" if ended else "Running", node="node-1"))
    fences.put_reservation(reservation(15_000))

    def refused() -> None:
        for _ in range(1_000):
            told = fences.pod_shortfall("ns", replace(ONE_GPU, requests={"nvidia.com/gpu": 9_000_000}))
            assert told is not None
            assert [(holder.gang, holder.amount) for holder in told.holders] == [
                ("ns/train", 15_000_000),
                ("loose pods", 5_000_000),
            ]

    counted(refused)
