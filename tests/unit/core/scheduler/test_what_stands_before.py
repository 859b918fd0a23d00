"""What a waiting gang is told: what it needs and who is before it, never a promise that holds for another."""

from tests.unit.core.worlds import World, gang, queue
from webhook.core.model.blockers import QuotaMissing, QuotaTooLow, StartsBy, StartUnknown, render
from webhook.core.model.policy import Strategy

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


def test_what_nobody_holds_is_given_by_a_higher_quota_only() -> None:
    assert render(QuotaTooLow("cpu", 2000)) == "needs 2 more cpu, which only a higher quota gives"


def test_the_head_of_a_backfill_queue_is_told_the_start_that_its_neighbors_are_told() -> None:
    world = backfill(100)
    head = world.engine.reason("head")
    assert head is not None
    assert head.blockers == (QuotaMissing("cpu", 3000), StartsBy(100.0))
    assert head.help == NOBODY + "needs 3 more cpu; it may start in 100 s, when run-time limits have ended what runs"
    assert "team/head, head of queue q: which may start in 100 s" in world.why("passer")


def test_an_absent_run_time_limit_is_named_as_what_makes_a_start_unknown() -> None:
    world = backfill(None)
    head = world.engine.reason("head")
    assert head is not None
    assert head.blockers == (QuotaMissing("cpu", 3000), StartUnknown(("team/runs",)))
    assert head.help == NOBODY + "needs 3 more cpu; when is unknown: team/runs has no run-time limit"
