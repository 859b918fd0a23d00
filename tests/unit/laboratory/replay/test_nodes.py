"""A replay on nodes: what quota alone starts in part, what a check starts whole, and what packing gains."""

from pathlib import Path

import pytest

from tests.unit.laboratory.replay.logs import GPU, gpus, job, policy
from webhook.errors import WrongInput
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
    with pytest.raises(WrongInput) as refused:
        pool(given, GPU, 16)
    assert given in str(refused.value)


def test_a_wait_is_split_into_that_for_quota_and_that_for_nodes() -> None:
    # Two of 16 GPUs are taken, one of either node, until 1,000; from 100 on others hold what quota is left until 400.
    jobs = [job("a", 0, 1000), job("a", 0, 1000), job("a", 100, 300, 4), job("a", 150, 10, 8), job("a", 2000, 10)]
    by_check = outcome(jobs, "2x8", StartRule.CHECK, quota=13)
    assert by_check.courses[3].wait_seconds == 850
    assert by_check.on_nodes is not None
    assert dict(by_check.on_nodes.waited) == {8: 600}, "from 400 on the quota had room"
    # By quota alone it starts at 400 with no node, is stopped after 300 s, and rests for 60, and so on.
    by_quota = outcome(jobs, "2x8", StartRule.QUOTA, quota=13)
    assert by_quota.on_nodes is not None
    assert dict(by_quota.on_nodes.waited) == {8: by_quota.courses[3].wait_seconds - 250}


def test_what_is_free_in_pieces_is_told_as_a_share_of_what_is_free_while_jobs_arrive() -> None:
    # One GPU of one of two nodes is taken half of the time: 7 of 15 are in a piece then, and none of 16 after it.
    jobs = [job("a", 0, 100), job("a", 200, 1)]
    found = outcome(jobs, "2x8", StartRule.PACK).on_nodes
    assert found is not None
    assert found.free_unit_seconds == 100 * 15 + 100 * 16
    assert found.in_pieces_unit_seconds == 100 * 7
