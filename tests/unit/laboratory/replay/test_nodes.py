"""A replay on nodes: what quota alone starts in part, what a check starts whole, and what packing gains."""

from pathlib import Path

import pytest

from tests.unit.laboratory.replay.logs import GPU, gpus, job, policy
from webhook.errors import PolicyError
from webhook.laboratory.replay import queues
from webhook.laboratory.replay.job_log import Job
from webhook.laboratory.replay.nodes import StartRule, pool
from webhook.laboratory.replay.run import Outcome, replay


def outcome(jobs: list[Job], nodes: str, fit: StartRule, quota: int = 16) -> Outcome:
    fitted = queues.fitted(policy(gpus("a", quota)), {"a"})  # type: ignore[arg-type]
    return replay(jobs, fitted, GPU, nodes=(pool(nodes, GPU, quota), fit))


def test_kube_scheduler_spreads_small_jobs_so_that_none_has_room_for_a_large_one() -> None:
    jobs = [job("a", 0, 1000), job("a", 1, 1000), job("a", 2, 10, 8)]
    by_quota = outcome(jobs, "2x8", StartRule.QUOTA)
    assert [course.wait_seconds for course in by_quota.courses][:2] == [0, 0]
    assert by_quota.courses[2].not_whole > 0
    checked = outcome(jobs, "2x8", StartRule.CHECK)
    assert [course.wait_seconds for course in checked.courses] == [0, 0, 998]
    assert [course.wait_seconds for course in outcome(jobs, "2x8", StartRule.PACK).courses] == [0, 0, 0]


def test_half_a_gang_holds_its_gpus_until_the_time_out_and_is_queued_again_behind() -> None:
    # One GPU of the second node is taken until 100,000: of 2 pods of 8 one is bound, and held for 300 s.
    found = outcome([job("a", 0, 1), job("a", 0, 350, 1), job("a", 10, 10, 16)], "2x8", StartRule.QUOTA, quota=32)
    wide = found.courses[2]
    assert (wide.starts, wide.not_whole, wide.in_vain_seconds) == (2, 1, 8 * 300)
    assert wide.ended_seconds == 10 + 300 + 60 + 10


def test_a_gang_that_becomes_whole_in_time_runs_from_then_on() -> None:
    found = outcome([job("a", 0, 100, 1), job("a", 10, 10, 16)], "2x8", StartRule.QUOTA, quota=32)
    wide = found.courses[1]
    assert (wide.ended_seconds, wide.starts, wide.in_vain_seconds) == (110, 1, 8 * 90)


def test_nodes_come_from_a_number_or_from_a_file(tmp_path: Path) -> None:
    assert len(pool("8", GPU, 20).nodes) == 3
    assert pool("5x4", GPU, 20).largest == 4
    file = tmp_path / "nodes.yaml"
    file.write_text(
        "apiVersion: v1\nkind: Node\nmetadata: {name: a, labels: {x: y}}\n"
        f"status: {{allocatable: {{{GPU}: '4'}}}}\n"
    )
    (node,) = pool(str(file), GPU, 0).nodes
    assert (node.name, node.labels, node.allocatable) == ("a", {"x": "y"}, {GPU: 4000})


@pytest.mark.parametrize("given", ["0x8", "3x0", "0", "999999x8", "missing.yaml"])
def test_nodes_that_cannot_be_are_told(given: str) -> None:
    with pytest.raises(PolicyError) as refused:
        pool(given, GPU, 16)
    assert given in str(refused.value)
