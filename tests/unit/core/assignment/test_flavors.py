"""Which flavor is taken: taints, labels, resource groups and fungibility."""

import pytest

from tests.unit.core.worlds import World, gang, group, queue
from webhook.core.assignment.flavors import Judge, Mode, Verdict, assign
from webhook.core.assignment.node_match import misfit
from webhook.core.assignment.request import Choice, Option, Request, Want, charge_of
from webhook.core.model.gang import Nearness, PodPrice, PodSet, Requirement, Toleration
from webhook.core.model.policy import (
    Flavor,
    Fungibility,
    Preemption,
    PreemptionPolicy,
    Preference,
    Queue,
    SearchPolicy,
    Taint,
)
from webhook.core.model.settings import EngineSettings, Transformation
from webhook.core.notation.amounts import FlavorResource
from webhook.core.reasons.reasons import Code
from webhook.core.scheduler.engine import Engine
from webhook.laboratory.dry_run.one_head import OneHeadEngine

STOP, NEXT = SearchPolicy.MAY_STOP_SEARCH, SearchPolicy.TRY_NEXT_FLAVOR
SPOT = Flavor("spot", {"zone": "a", "type": "spot"}, (Taint("spot", "yes"),))


def pods(**placement: object) -> PodSet:
    return PodSet("main", 1, PodPrice({"cpu": 1000}), **placement)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("placement", "fits"),
    [
        ({}, False),
        ({"tolerations": (Toleration("spot", "Exists"),)}, True),
        ({"tolerations": (Toleration("spot", "Equal", "yes", "NoSchedule"),)}, True),
        ({"tolerations": (Toleration("spot", "Equal", "no"),)}, False),
        ({"tolerations": (Toleration("spot", "Equal", "yes", "NoExecute"),)}, False),
        ({"tolerations": (Toleration("", "Exists"),)}, True),
    ],
)
def test_taints_of_a_flavor_must_be_tolerated(placement: dict[str, object], fits: bool) -> None:
    assert (misfit(SPOT, "spot", pods(**placement)) is None) is fits


@pytest.mark.parametrize(
    ("levels", "placement", "fits"),
    [
        (("block", "rack"), {"near": Nearness("rack", required=True)}, True),
        (("block", "rack"), {"near": Nearness("row", required=True)}, False),
        (("block", "rack"), {"near": Nearness("row", required=False)}, False),
        (("block", "rack"), {}, True),
        (("block", "rack"), {"near": Nearness("block", False, "rack", 2)}, True),
        (("block", "rack"), {"near": Nearness("", False, "rack", 2)}, True),
        (("block", "rack"), {"near": Nearness("", False, "row", 2)}, False),
        (("block", "rack"), {"near": Nearness("rack", True, "block", 2)}, False),
        ((), {"near": Nearness("rack", True, "block", 2)}, True),
        ((), {"near": Nearness("row", required=True)}, True),
    ],
)
def test_the_level_that_is_asked_for_is_one_of_the_flavors_topology(
    levels: tuple[str, ...], placement: dict[str, object], fits: bool
) -> None:
    assert (misfit(Flavor("gpu", {"pool": "gpu"}, levels=levels), "gpu", pods(**placement)) is None) is fits


def test_a_flavors_own_tolerations_count_and_prefer_no_schedule_does_not() -> None:
    own = Flavor("own", {}, (Taint("t"), Taint("soft", "", "PreferNoSchedule")), (Toleration("t", "Exists"),))
    assert misfit(own, "own", pods()) is None


@pytest.mark.parametrize(
    ("placement", "fits"),
    [
        ({"node_selector": {"zone": "a", "disk": "ssd"}}, True),
        ({"node_selector": {"zone": "b"}}, False),
        ({"node_affinity": ((Requirement("zone", "In", ("a", "b")),),)}, True),
        ({"node_affinity": ((Requirement("zone", "In", ("b",)),),)}, False),
        ({"node_affinity": ((Requirement("zone", "In", ("b",)),), (Requirement("disk", "Exists"),))}, True),
    ],
)
def test_only_keys_of_the_flavor_are_matched(placement: dict[str, object], fits: bool) -> None:
    flavor = Flavor("f", {"zone": "a"})
    assert (misfit(flavor, "f", pods(**placement)) is None) is fits


def test_a_flavor_that_does_not_fit_the_pods_is_passed_over() -> None:
    world = World(queue("a", None, group(spot={"cpu": 9}, plain={"cpu": 9})), flavors=(SPOT,))
    plan = world.submit(gang("g", "a")).plan()
    assert plan.admitted[0].pod_sets[0].flavors == {"cpu": "plain"}


def test_no_matching_flavor_says_why() -> None:
    world = World(queue("a", None, group(spot={"cpu": 9})), flavors=(SPOT,)).submit(gang("g", "a"))
    assert world.cycle() == []
    reason = world.engine.reason("g")
    assert reason is not None
    assert reason.code is Code.NO_MATCHING_FLAVOR
    assert "untolerated taint spot=yes:NoSchedule of flavor spot" in str(reason)


def two_flavors(fungibility: Fungibility, **settings: object) -> World:
    """In flavor one the queue must borrow; in flavor two it need not, but one gang of low priority is in the way."""
    mine: Queue = queue(
        "a",
        None,
        group(one={"cpu": 0}, two={"cpu": 4}),
        cohort="c",
        fungibility=fungibility,
        preemption=Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY),
    )
    world = World(mine, queue("lender", None, group(one={"cpu": 4}), cohort="c"))
    world.submit(gang("low", "a", 2, placement={"node_selector": {}}, **settings))
    return world


@pytest.mark.parametrize(
    ("fungibility", "flavor"),
    [
        (Fungibility(when_can_borrow=STOP), "one"),
        (Fungibility(when_can_borrow=NEXT), "two"),
    ],
)
def test_the_search_stops_or_goes_on_at_a_flavor_that_needs_borrowing(fungibility: Fungibility, flavor: str) -> None:
    plan = two_flavors(fungibility).plan()
    assert plan.admitted[0].pod_sets[0].flavors == {"cpu": flavor}


@pytest.mark.parametrize(
    ("preference", "outcome"),
    [
        (Preference.BORROWING_OVER_PREEMPTION, ("one", set())),
        (Preference.PREEMPTION_OVER_BORROWING, ("two", {"low"})),
    ],
)
def test_preference_weighs_borrowing_against_preemption(preference: Preference, outcome: tuple[str, set[str]]) -> None:
    world = two_flavors(Fungibility(NEXT, NEXT, preference))
    assert world.plan().admitted[0].pod_sets[0].flavors == {"cpu": "two"}
    plan = world.submit(gang("high", "a", 4, priority=1)).plan()
    assert {p.uid for p in plan.preempted} == outcome[1]
    if not outcome[1]:
        assert plan.admitted[0].pod_sets[0].flavors == {"cpu": outcome[0]}


@pytest.mark.parametrize(("policy", "stopped"), [(STOP, {"low"}), (NEXT, set())])
def test_the_search_stops_or_goes_on_at_a_flavor_that_needs_preemption(policy: SearchPolicy, stopped: set[str]) -> None:
    rules = Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY)
    mine = queue(
        "a", None, group(one={"cpu": 2}, two={"cpu": 2}), fungibility=Fungibility(STOP, policy), preemption=rules
    )
    world = World(mine).submit(gang("low", "a", 2))
    world.cycle()
    plan = world.submit(gang("high", "a", 2, priority=1)).plan()
    assert {p.uid for p in plan.preempted} == stopped


def test_pod_sets_share_a_flavor_only_while_it_lasts() -> None:
    world = World(queue("a", None, group(one={"cpu": 3}, two={"cpu": 9})))
    sets = tuple(PodSet(name, 2, PodPrice({"cpu": 1000})) for name in ("driver", "worker"))
    plan = world.submit(gang("g", "a", pod_sets=sets)).plan()
    assert [dict(s.flavors) for s in plan.admitted[0].pod_sets] == [{"cpu": "one"}, {"cpu": "two"}]


@pytest.mark.parametrize(("first", "second", "taken"), [(2, 0, "first"), (2, 2, "first"), (0, 0, "second")])
def test_a_pod_set_of_no_pods_goes_back_to_a_flavor_with_room(first: int, second: int, taken: str) -> None:
    owned = {"first": first, "second": second}

    judge = Judge(lambda _key, _amount: Verdict(Mode.FIT, 0), lambda key: owned[key.flavor])
    options = tuple(Option(flavor, (FlavorResource(flavor, "cpu"),)) for flavor in owned)
    request = Request((Choice((Want("cpu", 1, "main"),), options, ("main",)),))
    found = assign(request, {"main": 0}, Fungibility(), judge, {0: 1})
    assert found.flavors == {"main": {"cpu": taken}}
    assert not found.resume


@pytest.mark.parametrize("engine", [Engine, OneHeadEngine])
def test_a_gang_that_looked_on_starts_when_what_it_passed_over_has_room(engine: type[Engine]) -> None:
    zones = (Flavor("west", {"zone": "west"}), Flavor("east", {"zone": "east"}))
    rules = Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY)
    mine = queue("a", None, group(west={"cpu": 3}, east={"cpu": 8}), preemption=rules)
    world = World(mine, engine=engine(), flavors=zones)
    sets = (
        PodSet("here", 1, PodPrice({"cpu": 2000}), node_selector={"zone": "west"}),
        PodSet("anywhere", 2, PodPrice({"cpu": 2000})),
    )
    assert world.submit(gang("holds", "a", 6, priority=5)).cycle() == ["holds"]
    world.submit(gang("pair", "a", pod_sets=sets))
    assert not any(world.cycle() for _ in range(3))
    assert world.end("holds").cycle() == ["pair"]


def test_a_gang_is_decided_about_again_when_one_pod_set_may_leave_its_flavor_to_another() -> None:
    zones = (Flavor("west", {"zone": "west"}), Flavor("east", {"zone": "east"}))
    owned = group(west={"cpu": 3}, east={"cpu": (1, 0)})
    world = World(
        queue("a", None, owned, cohort="c", fungibility=Fungibility(when_can_borrow=NEXT)),
        queue("b", None, group(west={"cpu": 4}), cohort="c"),
        flavors=zones,
    )
    sets = (
        PodSet("anywhere", 1, PodPrice({"cpu": 1000})),
        PodSet("there", 1, PodPrice({"cpu": 1000}), node_selector={"zone": "east"}),
    )
    assert world.submit(gang("full", "a", 3)).cycle() == ["full"]
    assert world.submit(gang("pair", "a", pod_sets=sets)).cycle() == []
    assert world.end("full").cycle() == ["pair"]


def test_charges_are_transformed_and_excluded_as_configured() -> None:
    settings = EngineSettings(
        excluded_prefixes=("networking.example/",),
        transformations=(
            Transformation("mig-1g", {"gpu": 250}, replace=True),
            Transformation("cpu", {"credits": 2000}, multiply_by="memory"),
        ),
    )
    asked = {"cpu": 2000, "memory": 3000, "mig-1g": 2000, "networking.example/x": 1000}
    assert charge_of(asked, settings) == {"cpu": 2000, "memory": 3000, "gpu": 500, "credits": 12000}
    world = World(queue("a", None, group(f={"gpu": 1})), settings=settings)
    plan = world.submit(gang("g", "a", pod_sets=(PodSet("main", 4, PodPrice({"mig-1g": 1000})),))).plan()
    assert plan.admitted[0].pod_sets[0].charge == {"gpu": 250}
    assert world.used("a", "gpu") == 1
