"""What is scraped of queues: amounts, gangs and waits, by the leader alone and for so many queues at most."""

from collections.abc import Iterator
from random import Random

import pytest
from prometheus_client import REGISTRY

from tests.unit.core.worlds import policy, queue
from tests.unit.visibility.world import World
from webhook import metrics
from webhook.controllers.reporting.queue_metrics import QueueGauges
from webhook.core.model.policy import Policy

pytestmark = pytest.mark.virtual_time


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    yield
    metrics.know_queues(())
    QueueGauges(World().view, World().queue_counts, leading=lambda: False).look()()


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def of_queue(what: str, name: str) -> float | None:
    return value(f"tutti_queue_{what}", queue=name, cohort="research", flavor="default", resource="cpu")


async def test_a_borrower_and_its_lender_are_seen_with_who_waits_and_runs() -> None:
    world = World()
    world.admits(world.waits("big", cpu=3, pods=2))
    world.waits("late", cpu=8, pods=1)
    metrics.know_queues(world.view.policy.queues)
    QueueGauges(world.view, world.queue_counts, leading=lambda: True).look()()
    amounts = [of_queue(what, "vision") for what in ("nominal", "usage", "borrowed", "lent", "limit")]
    assert amounts == [4, 6, 2, 0, 8]
    assert [of_queue(what, "speech") for what in ("usage", "borrowed", "lent")] == [0, 0, 2]
    cohort = {"cohort": "research", "parent": "", "flavor": "default", "resource": "cpu"}
    assert (value("tutti_cohort_nominal", **cohort), value("tutti_cohort_usage", **cohort)) == (8, 6)
    gangs = [value(f"tutti_queue_{what}", queue="vision") for what in ("waiting_gangs", "running_gangs", "active")]
    assert gangs == [1, 1, 1]


async def test_a_replica_that_does_not_lead_has_no_series_by_queue() -> None:
    world = World()
    metrics.know_queues(world.view.policy.queues)
    gauges = QueueGauges(world.view, world.queue_counts, leading=lambda: True)
    gauges.look()()
    assert of_queue("nominal", "vision") == 4
    gauges.leading = lambda: False
    gauges.look()()
    assert of_queue("nominal", "vision") is None


def many(number: int) -> Policy:
    return policy(*(queue(f"queue-{index:04}", 1) for index in range(number)))


async def test_queues_beyond_the_first_so_many_share_one_series_that_has_their_sum() -> None:
    world = World(many(metrics.QUEUES_MAX + 7))
    metrics.know_queues(world.view.policy.queues)
    QueueGauges(world.view, world.queue_counts, leading=lambda: True).look()()
    (family,) = metrics.QUEUE_NOMINAL.collect()
    assert len(family.samples) == metrics.QUEUES_MAX + 1
    labels = {"queue": metrics.OTHERS, "cohort": "", "flavor": "default", "resource": "cpu"}
    assert value("tutti_queue_nominal", **labels) == 7


def test_a_class_is_told_by_the_gangs_priority_and_only_the_first_so_many_have_names() -> None:
    classes = [(f"class-{index:02}", index) for index in range(metrics.CLASSES_MAX + 1)]
    Random(1).shuffle(classes)
    assert metrics.class_label(3, classes) == "class-03"
    assert metrics.class_label(metrics.CLASSES_MAX, classes) == metrics.OTHERS
    assert metrics.class_label(-7, classes) == ""


def test_what_was_counted_for_a_queue_that_is_gone_is_dropped() -> None:
    metrics.know_queues(["stays", "goes"])
    for name in ("stays", "goes", "never-known"):
        metrics.WAIT_SECONDS.labels(metrics.queue_label(name), "").observe(1)
        metrics.EVICTED.labels(metrics.queue_label(name), "Preempted").inc()
    metrics.know_queues(["stays"])
    for metric in (metrics.WAIT_SECONDS, metrics.EVICTED):
        named = {sample.labels["queue"] for family in metric.collect() for sample in family.samples}
        assert {"goes", "never-known"}.isdisjoint(named)
        assert {"stays", metrics.OTHERS} <= named


def test_series_are_looked_through_only_where_queues_came_or_went(monkeypatch: pytest.MonkeyPatch) -> None:
    """A label of a namespace is policy, too, and there are thousands of series."""
    looks: list[object] = []
    monkeypatch.setattr(metrics.ADMITTED, "collect", lambda: looks.append(1) or [])
    metrics.know_queues(["a", "b"])
    metrics.know_queues(["b", "a"])
    assert len(looks) == 1
    metrics.know_queues(["a"])
    assert len(looks) == 2


async def test_cohorts_beyond_the_first_so_many_share_one_series_too() -> None:
    number = metrics.QUEUES_MAX + 7
    nodes = [queue(f"queue-{index:04}", 1, cohort=f"cohort-{index:04}") for index in range(number)]
    world = World(policy(*nodes))
    metrics.know_queues(world.view.policy.queues)
    QueueGauges(world.view, world.queue_counts, leading=lambda: True).look()()
    (family,) = metrics.COHORT_NOMINAL.collect()
    assert len(family.samples) == metrics.QUEUES_MAX + 1
    assert value("tutti_cohort_nominal", cohort=metrics.OTHERS, parent="", flavor="default", resource="cpu") == 7
