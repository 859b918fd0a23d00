"""Which queue a log's jobs wait in, each queue by itself, and the policies that are made from a log."""

import pytest

from tests.unit.core.worlds import cohort, group, policy, queue
from tests.unit.laboratory.replay.logs import gpus, job
from webhook.core.model.policy import LocalQueue, Policy, Preemption, PreemptionPolicy, Strategy
from webhook.dialects import compiler
from webhook.errors import WrongInput
from webhook.laboratory.replay import built_in, queues
from webhook.laboratory.replay.job_log import CPU, GPU, JobLog

TWO = policy(gpus("a", 8, dialect="kueue"), gpus("b", 8, dialect="kueue"))


def with_local(*local: LocalQueue) -> Policy:
    return policy(*TWO.queues.values(), local_queues={(each.namespace, each.name): each for each in local})


def test_a_queue_of_the_log_is_a_queue_local_queue_or_namespace_of_that_name() -> None:
    assert queues.queue_named(TWO, "a") == "a"
    assert queues.queue_named(with_local(LocalQueue("x", "jobs", "b")), "x") == "b"
    assert queues.queue_named(with_local(LocalQueue("team", "x", "b")), "x") == "b"
    assert queues.queue_named(policy(gpus("b", 8), namespace_queues={"x": "b"}, queue_aliases={}), "x") == "b"
    assert queues.queue_named(TWO, "x") is None


def test_a_queue_whose_name_no_cluster_would_take_is_called_otherwise_in_a_policy_made_for_the_log() -> None:
    log = JobLog("a log", GPU, [job(name, 0, 60) for name in ("vcA", "vca", "__", "plain")])
    made = compiler.compile_policy(built_in.objects(log, built_in.BORROW, Strategy.STRICT_FIFO))
    assert not made.problems
    assert len(made.queues) == 4
    found = [queues.queue_named(made, each.queue) for each in log.jobs]
    assert len(set(found)) == 4
    assert found[1::2] == ["vca", "plain"]


def test_a_policy_of_one_queue_takes_everybody() -> None:
    assert queues.queue_named(policy(gpus("all", 8, dialect="kueue")), "x") == "all"


def test_a_queue_by_itself_keeps_its_nominal_quota_and_its_own_rules_only() -> None:
    rules = Preemption(PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY)
    shared = policy(queue("a", (4, 2, 1), cohort="all", preemption=rules), cohort("all", cpu=9))
    by_itself = queues.alone(shared)
    assert by_itself.queues["a"] == queue("a", 4, preemption=Preemption(PreemptionPolicy.LOWER_PRIORITY))
    assert queues.capacity(by_itself, CPU) == 4
    assert queues.capacity(shared, CPU) == 13


def test_jobs_ask_the_resource_that_the_policy_has() -> None:
    assert queues.resource_in(TWO, GPU) == GPU
    assert queues.resource_in(policy(queue("a", None, group(default={"amd.com/gpu": 4}))), GPU) == "amd.com/gpu"
    with pytest.raises(WrongInput, match="no queue has nvidia"):
        queues.resource_in(policy(queue("a", None, group(default={"cpu": 4, "memory": 4}))), GPU)


def log(*sizes: tuple[str, float, int], capacity: int | None = None, resource: str = GPU) -> JobLog:
    jobs = [job(name, 0, run, size) for name, run, size in sizes]
    return JobLog("log", resource, [*jobs, job(sizes[0][0], 100, 0, 1)], capacity=capacity)


def test_a_queue_owns_what_would_keep_it_busy_in_whole_nodes_and_at_least_its_largest_job() -> None:
    # Over 100 s: 1,050 GPU-seconds, 15 GPUs at 70 %, two nodes; 10 GPU-seconds, but a job of 10 GPUs.
    asked = log(("a", 105, 10), ("b", 1, 10))
    assert built_in.quotas_of(asked, 0.7) == {"a": 16, "b": 16}
    assert built_in.quotas_of(asked, 0.1) == {"a": 112, "b": 16}


def test_where_the_log_says_how_large_the_cluster_was_that_is_divided() -> None:
    assert built_in.quotas_of(log(("a", 20, 1), ("b", 10, 1), capacity=8)) == {"a": 5, "b": 3}
    assert built_in.quotas_of(log(("a", 20, 1), capacity=240, resource=CPU)) == {"a": 240}


@pytest.mark.parametrize("name", built_in.NAMES)
def test_the_built_in_policies_are_what_they_say(name: str) -> None:
    made = compiler.compile_policy(built_in.objects(log(("a", 20, 1), ("b", 10, 1)), name, Strategy.BACKFILL))
    assert made.problems == ()
    reclaims = PreemptionPolicy.ANY if name == built_in.RECLAIM else PreemptionPolicy.NEVER
    for each in made.queues.values():
        assert each.strategy is Strategy.BACKFILL
        assert each.cohort == (None if name == built_in.PRIVATE else "cluster")
        assert each.preemption.reclaim_within_cohort is reclaims
    assert (
        queues.alone(made).queues
        == compiler.compile_policy(
            built_in.objects(log(("a", 20, 1), ("b", 10, 1)), built_in.PRIVATE, Strategy.BACKFILL)
        ).queues
    )


def test_the_name_of_a_built_in_policy_may_have_a_strategy() -> None:
    assert built_in.parse("borrow") == ("borrow", Strategy.BEST_EFFORT_FIFO)
    assert built_in.parse("reclaim:StrictFIFO") == ("reclaim", Strategy.STRICT_FIFO)
    assert built_in.parse("borrow:Fast") is None
    assert built_in.parse("./borrow") is None
