"""What a waiting gang is told: what it needs and who is before it, never a promise that holds for another."""

from typing import Any

import pytest

from tests.unit.core.worlds import World, gang, group, queue
from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.core.model.policy import Flavor, Preemption, PreemptionPolicy, Queue, Strategy
from webhook.core.notation.quantity import MILLI
from webhook.core.quota.fence import Fence
from webhook.core.reasons.blockers import QuotaMissing, QuotaTooLow, StartsBy, StartUnknown, TooMuch, render
from webhook.core.reasons.reasons import Code

NOBODY = "preemption finds no gang that may be stopped; "


def backfill(limit_seconds: int | None) -> World:
    """``runs`` holds three of four cpu; ``head`` waits for all of them, ``passer`` behind it for one."""
    world = World(queue("q", 4, strategy=Strategy.BACKFILL))
    world.submit(gang("runs", "q", 3, max_run_seconds=limit_seconds)).cycle()
    world.submit(
        gang("head", "q", 4, created=1.0, max_run_seconds=50), gang("passer", "q", created=2.0, max_run_seconds=500)
    )
    world.cycle()
    return world


def ahead(world: World, uid: str) -> int:
    """Return how many jobs are said to be before the one with this uid."""
    why = world.engine.reason(uid)
    assert why is not None
    (missing,) = (each for each in why.blockers if isinstance(each, QuotaMissing))
    return missing.ahead


def test_of_several_that_wait_each_is_told_how_many_jobs_are_before_it() -> None:
    world = World(queue("q", 4)).submit(gang("runs", "q", 4))
    world.cycle()
    world.submit(*(gang(name, "q", 2, created=float(number)) for number, name in enumerate("abc", 1)))
    world.cycle()
    told = [world.engine.reason(name) for name in "abc"]
    assert [each.blockers for each in told if each] == [(QuotaMissing("cpu", 2000, ahead),) for ahead in range(3)]
    assert [each.help for each in told if each] == [
        NOBODY + "needs 2 more cpu",
        NOBODY + "needs 2 more cpu and 1 job before it",
        NOBODY + "needs 2 more cpu and 2 jobs before it",
    ]


def of_two_sets(name: str, each: int = 1, **settings: Any) -> Gang:
    """A gang of a master and a worker of so many cpu."""
    sets = tuple(PodSet(role, 1, PodPrice({"cpu": each * MILLI})) for role in ("master", "worker"))
    return gang(name, "q", pod_sets=sets, **settings)


@pytest.mark.parametrize("settings", [{}, {"preemption": Preemption(PreemptionPolicy.LOWER_PRIORITY)}])
def test_a_gang_of_several_pod_sets_is_told_what_all_of_them_need_together(settings: dict[str, Any]) -> None:
    """Not what the first needs that finds no room: it would start with no more than that."""
    world = World(queue("q", 4, **settings)).submit(gang("runs", "q", 4))
    world.cycle()
    world.submit(of_two_sets("waits", created=1.0)).cycle()
    why = world.engine.reason("waits")
    assert why is not None
    assert (why.asked, why.blockers) == (2000, (QuotaMissing("cpu", 2000),))


@pytest.mark.parametrize(("free", "missing"), [((0, 0), 2), ((1, 0), 1), ((0, 1), 1)])
def test_where_pod_sets_have_a_choice_of_flavors_no_more_is_said_to_be_needed_than_would_do(
    free: tuple[int, int], missing: int
) -> None:
    world = World(queue("q", None, group(a={"cpu": 4}, b={"cpu": 4})))
    for flavor, left in zip("ab", free, strict=True):
        world.submit(gang(f"runs-{flavor}", "q", 4 - left, placement={"node_selector": {"in": flavor}}))
    world.set_policy(
        *world.policy.queues.values(), flavors=tuple(Flavor(each, node_labels={"in": each}) for each in "ab")
    )
    assert len(world.cycle()) == 2
    world.submit(of_two_sets("waits", created=1.0)).cycle()
    why = world.engine.reason("waits")
    assert why is not None
    assert [each.missing for each in why.blockers if isinstance(each, QuotaMissing)] == [missing * MILLI]
    world.set_policy(
        queue(
            "q", None, group(a={"cpu": 4 + (why.flavor == "a") * missing}, b={"cpu": 4 + (why.flavor == "b") * missing})
        ),
        flavors=tuple(Flavor(each, node_labels={"in": each}) for each in "ab"),
    )
    assert world.cycle() == ["waits"]


def test_however_many_pod_sets_have_a_choice_of_flavors_all_of_them_are_told_of() -> None:
    world = World(queue("q", None, group(a={"cpu": 9}, b={"cpu": 9})))
    for name in "ab":
        world.submit(gang(f"runs-{name}", "q", 9)).cycle()
    sets = tuple(PodSet(f"set-{number}", 1, PodPrice({"cpu": MILLI})) for number in range(9))
    world.submit(gang("waits", "q", pod_sets=sets, created=1.0)).cycle()
    why = world.engine.reason("waits")
    assert why is not None
    assert why.blockers == (QuotaMissing("cpu", 9 * MILLI),)
    world.end("runs-a")
    assert world.cycle() == ["waits"]


def test_of_a_flavor_no_more_is_said_to_be_needed_than_it_could_ever_give() -> None:
    world = World(queue("q", None, group(a={"cpu": 9}, b={"cpu": 9})))
    for name in "ab":
        world.submit(gang(f"runs-{name}", "q", 9)).cycle()
    sets = tuple(PodSet(f"set-{number}", 1, PodPrice({"cpu": MILLI})) for number in range(18))
    world.submit(gang("waits", "q", pod_sets=sets, created=1.0)).cycle()
    why = world.engine.reason("waits")
    assert why is not None
    assert why.blockers == tuple(QuotaMissing("cpu", 9 * MILLI, flavor=flavor) for flavor in "ab")
    assert why.help == NOBODY + "needs 9 more cpu of flavor a and 9 more cpu of flavor b"


def needs(name: str, *sets: dict[str, int], **settings: Any) -> Gang:
    """A gang with a pod for each of these requests."""
    prices = (PodPrice({resource: amount * MILLI for resource, amount in each.items()}) for each in sets)
    return gang(name, "q", pod_sets=tuple(PodSet(f"s{n}", 1, price) for n, price in enumerate(prices)), **settings)


@pytest.mark.parametrize("groups", [({"cpu": 8, "gpu": 8},), ({"cpu": 8}, {"gpu": 8})], ids=["together", "apart"])
@pytest.mark.parametrize("sets", [({"cpu": 2, "gpu": 4},), ({"cpu": 2}, {"gpu": 4})], ids=["one set", "two sets"])
@pytest.mark.parametrize("settings", [{}, {"preemption": Preemption(PreemptionPolicy.LOWER_PRIORITY)}])
@pytest.mark.parametrize("behind", [0, 1])
def test_all_resources_of_which_too_little_is_free_are_named(
    groups: tuple[dict[str, int], ...], sets: tuple[dict[str, int], ...], settings: dict[str, Any], behind: int
) -> None:
    def quota(more: int) -> Queue:
        each = (
            {name: most + more * (most - 6 if name == "cpu" else 3) for name, most in one.items()} for one in groups
        )
        return queue("q", None, *(group(**{f"f{n}": one}) for n, one in enumerate(each)), **settings)

    world = World(quota(0)).submit(needs("runs", {"cpu": 8, "gpu": 7}))
    world.cycle()
    world.submit(*(needs(f"waits-{n}", *sets, created=1.0 + n) for n in range(behind + 1))).cycle()
    why = world.engine.reason(f"waits-{behind}")
    assert why is not None
    assert why.blockers == (QuotaMissing("cpu", 2 * MILLI, behind), QuotaMissing("gpu", 3 * MILLI, behind))
    assert why.help.endswith("needs 2 more cpu and 3 more gpu" + (", and 1 job before it" if behind else ""))
    world.set_policy(quota(1))
    assert world.cycle() == ["waits-0"]


def test_a_resource_of_which_nothing_is_asked_is_not_said_to_be_missing() -> None:
    world = World(queue("q", None, group(f={"cpu": 8, "gpu": 8}))).submit(needs("runs", {"cpu": 8, "gpu": 8}))
    world.cycle()
    world.set_policy(queue("q", None, group(f={"cpu": 4, "gpu": 8})))
    world.submit(needs("waits", {"cpu": 0, "gpu": 1}, created=1.0)).cycle()
    why = world.engine.reason("waits")
    assert why is not None
    assert why.blockers == (QuotaMissing("gpu", MILLI),)


@pytest.mark.parametrize("groups", [({"cpu": 4, "gpu": 8},), ({"cpu": 4}, {"gpu": 8})], ids=["together", "apart"])
@pytest.mark.parametrize(
    "sets", [({"cpu": 6, "gpu": 9},), ({"cpu": 6}, {"gpu": 9}), ({"cpu": 3, "gpu": 4}, {"cpu": 3, "gpu": 5})]
)
def test_all_resources_of_which_more_is_asked_than_a_queue_can_hold_are_named(
    groups: tuple[dict[str, int], ...], sets: tuple[dict[str, int], ...]
) -> None:
    world = World(queue("q", None, *(group(**{f"f{n}": one}) for n, one in enumerate(groups))))
    world.submit(needs("waits", *sets)).cycle()
    flavor = f"f{len(groups) - 1}"
    for why in (world.engine.reason("waits"), world.engine.potential(needs("waits", *sets))):
        assert why is not None
        assert (why.code, why.resource, why.asked, why.limit) == (Code.EXCEEDS_MAX_QUOTA, "cpu", 6000, 4000)
        assert why.is_never
        assert why.blockers == (TooMuch("gpu", 9000, "queue q", 8000, flavor),)
        assert f"it also asks for 9 gpu of flavor {flavor}, queue q has 8; it can never start" in str(why)


def test_what_fits_is_not_said_to_be_too_much() -> None:
    world = World(queue("q", None, group(f={"cpu": 4, "gpu": 8})))
    world.submit(needs("waits", {"cpu": 6, "gpu": 8})).cycle()
    why = world.engine.reason("waits")
    assert why is not None
    assert why.blockers == ()


def test_all_that_no_resource_group_covers_is_named() -> None:
    world = World(queue("q", None, group(f={"cpu": 4}))).submit(needs("waits", {"a": 1, "b": 1}, {"b": 2, "cpu": 1}))
    world.cycle()
    why = str(world.engine.reason("waits"))
    assert (
        "pod set s0: no resource group of queue q covers a, b; pod set s1: no resource group of queue q covers b" in why
    )
    assert "add a, b to a resource group of the queue" in why


def test_an_admitted_gang_is_told_all_that_one_more_pod_of_it_lacks() -> None:
    world = World(queue("q", None, group(f={"cpu": 4, "gpu": 4})))
    price = PodPrice({"cpu": MILLI, "gpu": MILLI})
    world.submit(gang("grows", "q", pod_sets=(PodSet("main", 6, price),), quorum=1)).cycle()
    why = world.engine.reason("grows")
    assert why is not None
    assert [each.resource for each in why.blockers if isinstance(each, QuotaTooLow | QuotaMissing)] == ["cpu", "gpu"]


def test_of_several_that_a_resource_quota_keeps_out_each_is_told_how_many_jobs_are_before_it() -> None:
    world = World(queue("q", 9))
    world.fences.put_fence(Fence("team", "hard", {"requests.cpu": 4000}))
    world.submit(gang("runs", "q", 4)).cycle()
    world.submit(*(gang(name, "q", 2, created=float(number)) for number, name in enumerate("abc", 1)))
    world.cycle()
    told = [world.engine.reason(name) for name in "abc"]
    assert [each.blockers for each in told if each] == [(QuotaMissing("requests.cpu", 2000, n),) for n in range(3)]
    assert [each.help for each in told if each] == [
        "needs 2 more requests.cpu; end something there, or raise the ResourceQuota",
        "needs 2 more requests.cpu and 1 job before it; end something there, or raise the ResourceQuota",
        "needs 2 more requests.cpu and 2 jobs before it; end something there, or raise the ResourceQuota",
    ]


def test_jobs_of_other_queues_that_wait_for_the_same_resource_quota_are_before_it_too() -> None:
    world = World(queue("q", 9), queue("r", 9))
    world.fences.put_fence(Fence("team", "hard", {"requests.cpu": 4000}))
    world.submit(gang("runs", "q", 4)).cycle()
    world.submit(gang("first", "q", 2, created=1.0), gang("second", "r", 2, created=2.0), gang("none", None, 2))
    world.cycle()
    assert {name: ahead(world, name) for name in ("none", "first", "second")} == {"none": 0, "first": 1, "second": 2}


def test_jobs_of_other_namespaces_are_not_before_one_that_waits_for_its_own_resource_quota() -> None:
    world = World(queue("q", 99))
    for namespace in ("team", "other"):
        world.fences.put_fence(Fence(namespace, "hard", {"requests.cpu": 4000}))
    for at in ("q", None):
        world.submit(gang(f"runs-{at}", at, 4), gang(f"there-{at}", at, 4, namespace="other")).cycle()
        world.submit(
            gang(f"before-{at}", at, 2, namespace="other", created=1.0), gang(f"mine-{at}", at, 2, created=9.0)
        )
        world.cycle()
        assert ahead(world, f"mine-{at}") == (at is None), "of its own namespace alone"


def test_jobs_of_other_queues_that_wait_for_the_same_room_of_the_cohort_are_before_it_too() -> None:
    world = World(queue("a", 2, cohort="all"), queue("b", 2, cohort="all"), queue("c", 2)).submit(gang("runs", "a", 4))
    world.cycle()
    world.submit(
        gang("elsewhere", "c", 3, created=0.5),
        gang("first", "b", 4, created=1.0),
        gang("second", "b", 4, created=2.0),
        gang("mine", "a", 4, created=3.0),
        gang("later", "b", 4, created=4.0),
    )
    world.cycle()
    told = {name: world.engine.reason(name) for name in ("first", "second", "mine", "later")}
    ahead = {
        name: [each.ahead for each in why.blockers if isinstance(each, QuotaMissing)]
        for name, why in told.items()
        if why
    }
    assert ahead == {"first": [0], "second": [1], "mine": [2], "later": [3]}


def test_a_job_of_another_queue_that_has_to_borrow_is_not_before_one_that_asks_what_its_queue_owns() -> None:
    world = World(queue("a", 2, cohort="all"), queue("b", 2, cohort="all")).submit(gang("runs", "b", 4))
    world.cycle()
    world.submit(gang("borrower", "b", 2, created=1.0), gang("mine", "a", 2, created=2.0))
    world.cycle()
    assert (ahead(world, "mine"), ahead(world, "borrower")) == (0, 1)


def test_what_nobody_holds_is_given_by_a_higher_quota_only() -> None:
    assert render(QuotaTooLow("cpu", 2000)) == "needs 2 more cpu, which only a higher quota gives"


def test_the_head_of_a_backfill_queue_is_told_the_start_that_its_neighbors_are_told() -> None:
    world = backfill(100)
    head = world.engine.reason("head")
    assert head is not None
    assert head.blockers == (QuotaMissing("cpu", 3000), StartsBy(100.0))
    assert (
        head.help == NOBODY + "needs 3 more cpu; it may start in 100 s, when running gangs reach their run-time limits"
    )
    assert "team/head, head of queue q: which may start in 100 s" in world.why("passer")


def test_an_absent_run_time_limit_is_named_as_what_makes_a_start_unknown() -> None:
    world = backfill(None)
    head = world.engine.reason("head")
    assert head is not None
    assert head.blockers == (QuotaMissing("cpu", 3000), StartUnknown(("team/runs",)))
    assert head.help == NOBODY + "needs 3 more cpu; its start time is unknown: team/runs has no run-time limit"
