"""A replay on nodes: what quota alone starts in part, what a check starts whole, and what packing gains."""

from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from tests.unit.laboratory.replay.logs import GPU, gpus, job, policy
from webhook.config import Config
from webhook.core.notation.problem import shown
from webhook.errors import WrongInput
from webhook.laboratory.dry_run.world import build
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


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("metadata", "x"),
        ("metadata/name", None),
        ("metadata/name", 7),
        ("metadata/labels", ["x"]),
        ("metadata/labels/x", 1),
        ("metadata/labels/x", None),
        ("spec", "x"),
        ("spec/unschedulable", "yes"),
        ("spec/taints", {"key": "a"}),
        ("spec/taints/0", "a"),
        ("spec/taints/0/key", None),
        ("spec/taints/0/value", 1),
        ("spec/taints/0/effect", "Never"),
        ("status", []),
        ("status/allocatable", "8"),
        ("status/allocatable/cpu", "-5"),
        ("status/allocatable/cpu", "many"),
        ("status/allocatable/cpu", None),
        ("status/capacity/cpu", True),
        ("status/conditions", "Ready"),
        ("status/conditions/0", "Ready"),
        ("status/conditions/0/type", None),
        ("status/conditions/0/status", True),
    ],
)
def test_what_is_wrong_with_a_node_is_told_by_field_and_value_by_every_command_that_reads_it(
    field: str, wrong: object, tmp_path: Path
) -> None:
    node: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "a", "labels": {"x": "y"}},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {GPU: "8", "cpu": "4"},
            "capacity": {"cpu": "4"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    read: dict[str, Any] = orjson.loads(orjson.dumps(node))
    *steps, last = [int(step) if step.isdigit() else step for step in field.split("/")]
    at = reduce(getitem, steps, read)
    at[last] = wrong
    file = tmp_path / "nodes.yaml"
    file.write_text(yaml.safe_dump_all([node | {"metadata": {"name": "b"}}, read]))
    with pytest.raises(WrongInput) as refused:
        pool(str(file), GPU, 16)
    dry = build([read], Config(), 0.0)
    for (problem,) in (refused.value.problems, dry.problems):
        where = field if field.startswith("metadata/l") or not field.startswith("metadata") else "metadata/name"
        assert problem.path.endswith(f"#/{where}")
        assert problem.value == ("" if where == "metadata/name" else shown(wrong))
        assert problem.why
        assert problem.fix


def test_of_two_nodes_of_one_name_in_a_file_one_has_to_go(tmp_path: Path) -> None:
    file, has = tmp_path / "nodes.yaml", {"allocatable": {GPU: "8"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "status": has}
    file.write_text(yaml.safe_dump_all([node, node | {"status": {"allocatable": {GPU: "4"}}}]))
    with pytest.raises(WrongInput, match="Node a#/metadata/name: a: is written twice, not the same"):
        pool(str(file), GPU, 16)


def test_of_a_node_that_states_its_capacity_alone_that_is_allocatable(tmp_path: Path) -> None:
    file = tmp_path / "nodes.yaml"
    metadata = {"name": "a", "labels": {"x": "y"}, "annotations": None}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": None, "status": {"capacity": {GPU: "8"}}}
    file.write_text(yaml.safe_dump(node))
    (found,) = pool(str(file), GPU, 0).nodes
    assert found.allocatable == {GPU: 8000}
    dry = build([node], Config(), 0.0)
    assert dry.problems == []
    assert dry.view.nodes is not None
    assert dry.view.nodes.capacity.free["a"][GPU] == 8000


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
