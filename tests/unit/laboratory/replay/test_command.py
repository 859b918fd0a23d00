"""``tutti simulate`` as people run it."""

import io
import json
import re
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from webhook.errors import WrongInput
from webhook.laboratory.replay.command import Options, print_policy, run

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster\n"
ROW = "2017-10-09 00:{minute:02}:00,{run},{gpus},0,{vc}\n"
COHORT = "  cohortName: all\n"
POLICY = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: vision}
spec:
  cohortName: all
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [nvidia.com/gpu]
      flavors: [{name: default, resources: [{name: nvidia.com/gpu, nominalQuota: "8"}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: speech}
spec:
  cohortName: all
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [nvidia.com/gpu]
      flavors: [{name: default, resources: [{name: nvidia.com/gpu, nominalQuota: "8"}]}]
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Vision fills the cluster for ten minutes; speech comes after one and would have had room by itself."""
    file = tmp_path / "log.csv"
    rows = [ROW.format(minute=0, run=600, gpus=8, vc="vision"), ROW.format(minute=0, run=600, gpus=8, vc="vision")]
    file.write_text(HEADER + "".join(rows) + ROW.format(minute=1, run=60, gpus=8, vc="speech"))
    return file


def simulate(file: Path, *policies: str, output: str = "json", options: Options | None = None) -> tuple[int, str]:
    out = io.StringIO()
    status = run(file, policies, options, output=output, console=Console(file=out, width=160))
    return status, out.getvalue()


def test_the_smaller_log_that_is_shipped_runs_to_its_end_as_it_is() -> None:
    shipped = Path(__file__).parents[4] / "benchmarks" / "traces" / "helios-venus.csv.gz"
    status, text = simulate(shipped, output="table")
    assert status == 0, text
    assert re.search(r"never started, jobs +0 +0 +0\b", text) or "never started" not in text, text


def columns(text: str) -> dict[str, dict]:
    return {column["policy"]: column for column in json.loads(text)["policies"]}


@pytest.fixture
def three(tmp_path: Path) -> list[str]:
    """Files: nobody borrows, both may, and owners take back."""
    texts = {
        "private": POLICY.replace(COHORT, ""),
        "borrow": POLICY,
        "reclaim": POLICY.replace(COHORT, COHORT + "  preemption: {reclaimWithinCohort: Any}\n"),
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return [str(tmp_path / f"{name}.yaml") for name in texts]


def test_policies_stand_side_by_side_with_what_sharing_costs(log: Path, three: list[str]) -> None:
    status, text = simulate(log, *three)
    private, borrow, reclaim = columns(text).values()
    assert status == 0
    # Alone, vision's second waits ten minutes. Borrowing, speech waits nine. Reclaiming, vision's first is stopped
    # after one minute and runs again, whole, when speech has ended.
    assert [each["wait"]["meanSeconds"] for each in (private, borrow, reclaim)] == [200, 180, 40]
    assert [each["loss"]["worstSeconds"] for each in (private, borrow, reclaim)] == [0, 540, 120]
    assert borrow["loss"]["jobsShare"] == pytest.approx(1 / 3, abs=1e-6)
    assert borrow["loss"]["unitHoursShare"] == pytest.approx(60 / 1260, abs=1e-6)
    assert (reclaim["preemptions"], reclaim["lostUnitSeconds"]) == (1, 60 * 8)
    assert [each["utilisation"] for each in (private, borrow, reclaim)] == [0.5, 1, 1]
    assert [queue["worseShare"] for queue in borrow["queues"]] == [1, 0]


def test_jobs_that_one_policy_has_no_queue_for_are_left_out_of_all_columns(log: Path, three: list[str]) -> None:
    file = Path(three[1])
    log.write_text(log.read_text() + ROW.format(minute=2, run=60, gpus=1, vc="lost"))
    status, text = simulate(log, str(file), "borrow")
    assert (status, {each["jobs"] for each in columns(text).values()}) == (0, {3})
    problem = json.loads(text)["diagnostics"][0]
    assert (problem["value"], problem["warning"]) == ("lost", True)
    log.write_text(HEADER + ROW.format(minute=2, run=60, gpus=1, vc="lost"))
    with pytest.raises(WrongInput, match="has no queue for it"):
        simulate(log, str(file))


def test_a_bad_row_ends_with_2_and_the_rest_is_replayed(log: Path) -> None:
    log.write_text(log.read_text() + "now,60,1,0,vision\n")
    status, text = simulate(log, "private", output="table")
    assert status == 2
    assert "3 jobs of 2 queues" in text
    assert "log.csv:5#timestamp" in text


def test_the_table_has_a_row_for_each_measure_and_a_column_for_each_policy(log: Path, three: list[str]) -> None:
    _, text = simulate(log, *three, output="table")
    rows = {cells[0]: cells[1:] for line in text.splitlines() if (cells := re.split(r"  +", line.strip()))}
    assert rows["wait, mean"] == ["200", "180", "40"]
    assert rows["wait, GPU-weighted mean"] == ["200", "180", "40"]
    assert rows["waited longer than alone, % of jobs"] == ["0.00", "33.33", "33.33"]
    assert rows["2-8 GPUs (3 jobs): wait, mean"] == ["200", "180", "40"]


def test_yaml_and_json_say_the_same(log: Path) -> None:
    assert yaml.safe_load(simulate(log, output="yaml")[1]) == json.loads(simulate(log)[1])


def test_the_printed_built_in_policy_is_a_policy_file(log: Path, tmp_path: Path) -> None:
    out = io.StringIO()
    print_policy(log, ["reclaim"], Options(), Console(file=out))
    file = tmp_path / "policy.yaml"
    file.write_text(out.getvalue())
    found = columns(simulate(log, str(file), "reclaim")[1])
    assert {**found[str(file)], "policy": ""} == {**found["reclaim"], "policy": ""}
    with pytest.raises(WrongInput, match="not one built-in policy"):
        print_policy(log, [], Options())


def test_what_is_no_policy_and_what_a_log_does_not_say_are_refused(log: Path) -> None:
    with pytest.raises(WrongInput, match="neither a file nor a built-in policy"):
        simulate(log, "generous")
    with pytest.raises(WrongInput, match="does not say whose jobs"):
        simulate(log, options=Options(by_user=True))


def test_each_user_may_be_a_queue(tmp_path: Path) -> None:
    file = tmp_path / "log.swf"
    row = "{n} {n} -1 60 -1 -1 -1 2 60 -1 1 {user} 1 -1 1 -1 -1 -1\n"
    file.write_text("; MaxProcs: 4\n" + "".join(row.format(n=n, user=n % 2) for n in range(1, 5)))
    _, text = simulate(file, "private", options=Options(by_user=True))
    assert [queue["queue"] for queue in columns(text)["private"]["queues"]] == ["0", "1"]


def test_what_the_configuration_says_of_decisions_counts(log: Path, three: list[str], tmp_path: Path) -> None:
    config = tmp_path / "tutti.yaml"
    config.write_text("resources: {excludeResourcePrefixes: [nvidia.com/]}\n")
    out = io.StringIO()
    assert run(log, [three[0]], output="json", config=config, console=Console(file=out)) == 0
    assert columns(out.getvalue())[three[0]]["wait"]["maxSeconds"] == 0


def test_kube_scheduler_binds_pods_to_nodes_of_their_flavor_alone(log: Path, tmp_path: Path) -> None:
    policy, nodes = tmp_path / "policy.yaml", tmp_path / "nodes.yaml"
    flavor = "metadata: {name: default}\n"
    policy.write_text(POLICY.replace(flavor, flavor + "spec: {nodeLabels: {pool: a}}\n"))
    text = ""
    for name, label in (("own", "a"), ("other", "b")):
        text += f"apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{pool: {label}}}}}\n"
        text += "status: {allocatable: {nvidia.com/gpu: 8}}\n---\n"
    nodes.write_text(text)
    _, shown = simulate(log, str(policy), options=Options(nodes=str(nodes)))
    for column in ("check", "pack"):
        waits = columns(shown)[f"{policy} {column}"]["wait"]["maxSeconds"]
        assert waits == 1140, f"{column}: one after another on the flavor's one node"


def test_a_topology_may_stand_beside_the_nodes_or_in_the_policy_and_says_which_nodes_a_flavor_has(
    log: Path, tmp_path: Path
) -> None:
    policy, nodes = tmp_path / "policy.yaml", tmp_path / "nodes.yaml"
    topology = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Topology\nmetadata: {name: racks}\n"
    topology += "spec: {levels: [{nodeLabel: rack}]}\n---\n"
    flavor = "metadata: {name: default}\n"
    policy.write_text(POLICY.replace(flavor, flavor + "spec: {nodeLabels: {pool: a}, topologyName: racks}\n"))
    text = ""
    for name, labels in (("in-one", "pool: a, rack: r"), ("in-none", "pool: a")):
        text += f"apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{{labels}}}}}\n"
        text += "status: {allocatable: {nvidia.com/gpu: 8}}\n---\n"
    nodes.write_text(text)

    def waits() -> tuple[int, float]:
        status, shown = simulate(log, str(policy), options=Options(nodes=str(nodes)))
        return status, columns(shown)[f"{policy} pack"]["wait"]["maxSeconds"]

    nodes.write_text(topology + text)
    assert waits() == (0, 1140), "one after another on the one node in a rack"
    policy.write_text(topology + policy.read_text())
    assert waits() == (0, 1140), "the same object in both is no error"
    nodes.write_text(text)
    assert waits() == (0, 1140)
