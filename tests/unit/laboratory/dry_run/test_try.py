"""``tutti try``: what goes in, what comes out, and that nothing in a file ends it with a traceback."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from webhook.cli import app

ROOT = Path(__file__).parents[4]
EXAMPLES = ROOT / "examples"
KUEUE = "kueue.x-k8s.io/v1beta2"
QUOTA = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
    - {coveredResources: [cpu], flavors: [{name: default, resources: [{name: cpu, nominalQuota: 4}]}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: team}
spec: {clusterQueue: cq}
"""


def objects(*gangs: dict[str, Any]) -> list[dict[str, Any]]:
    return [*yaml.safe_load_all(QUOTA), *gangs]


def workload(name: str, *, count: int = 1, priority: int = 0, **status: Any) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": {"cpu": 1}}}]
    pods = {"name": "main", "count": count, "template": {"spec": {"containers": containers}}}
    return {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"queueName": "lq", "priority": priority, "podSets": [pods]},
        "status": status,
    }


def invoke(*args: object, text: str | None = None) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["try", *map(str, args)], input=text, catch_exceptions=False)
    return done.exit_code, done.stdout


def tried(tmp_path: Path, *entries: dict[str, Any], args: tuple[str, ...] = ()) -> dict[str, Any]:
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all(objects(*entries)))
    document: dict[str, Any] = json.loads(invoke(file, "-o", "json", *args)[1])
    return document


def test_yaml_and_json_say_the_same_and_the_table_says_it_to_people(tmp_path: Path) -> None:
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all(objects(workload("one", count=3), workload("two", count=3, priority=-1))))
    as_yaml, as_json, table = (invoke(file, "-o", form) for form in ("yaml", "json", "table"))
    assert yaml.safe_load(as_yaml[1]) == json.loads(as_json[1])
    assert as_yaml[0] == as_json[0] == table[0] == 0
    for word in ("admitted", "team/one", "main x3 cpu=default", "waiting", "team/two", "WaitingForQuota"):
        assert word in table[1]


def test_standard_input_lists_and_json_are_read(tmp_path: Path) -> None:
    everything = {"apiVersion": "v1", "kind": "List", "items": objects(workload("one"))}
    status, out = invoke("-", "-o", "json", text=json.dumps(everything))
    assert (status, [each["gang"] for each in json.loads(out)["cycles"][0]["admitted"]]) == (0, ["team/one"])
    typed: dict[str, Any] = {"apiVersion": KUEUE, "kind": "WorkloadList", "items": objects(workload("two"))[-1:]}
    del typed["items"][0]["kind"], typed["items"][0]["apiVersion"]
    text = f"{yaml.safe_dump_all(objects())}---\n{yaml.safe_dump(typed)}"
    assert [each["gang"] for each in json.loads(invoke("-", "-o", "json", text=text)[1])["cycles"][0]["admitted"]] == [
        "team/two"
    ]


def test_what_cannot_be_read_is_a_diagnostic_and_the_rest_is_decided(tmp_path: Path) -> None:
    good, bad, empty = tmp_path / "good.yaml", tmp_path / "bad.yaml", tmp_path / "empty"
    empty.mkdir()
    good.write_text(yaml.safe_dump_all(objects(workload("one"))))
    bad.write_text("a: [")
    status, out = invoke(good, bad, tmp_path / "absent.yaml", empty, "-o", "json")
    report = json.loads(out)
    assert status == 2
    assert [each["gang"] for each in report["cycles"][0]["admitted"]] == ["team/one"]
    assert sorted(each["path"] for each in report["diagnostics"]) == sorted(
        [str(bad), str(tmp_path / "absent.yaml"), str(empty)]
    )


def test_the_files_of_a_directory_and_json_values_one_after_the_other_are_read(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("a: [")
    (tmp_path / "quota.yml").write_text(yaml.safe_dump_all(objects()))
    (tmp_path / "jobs.json").write_text("\n".join(json.dumps(workload(name), indent=1) for name in ("one", "two")))
    (tmp_path / "more.yaml").write_text(json.dumps([workload("three")]))
    status, out = invoke(tmp_path, "-o", "json")
    admitted = [each["gang"] for each in json.loads(out)["cycles"][0]["admitted"]]
    assert (status, sorted(admitted)) == (0, ["team/one", "team/three", "team/two"])


@pytest.mark.parametrize("form", ["kind: Service\n{}\nkind: Service\n", '{{"a": 1, {}, "a": 2}}'])
def test_a_key_that_is_written_twice_is_told(form: str, tmp_path: Path) -> None:
    text = form.format('"metadata": {"name": "one"}' if form.startswith("{") else "metadata: {name: one}")
    status, out = invoke("-", "-o", "json", text=text)
    assert (status, json.loads(out)["diagnostics"][0]["message"]) == (2, "a key is written twice; the last one counts")


def test_the_same_object_in_two_files_counts_once_and_a_different_one_is_told(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text(yaml.safe_dump_all(objects(workload("one"))))
    two.write_text(yaml.safe_dump_all(objects()))
    assert invoke(one, two, "-o", "json")[0] == 0
    two.write_text(yaml.safe_dump(workload("one", count=2)))
    status, out = invoke(one, two, "-o", "json")
    assert (status, [each["path"] for each in json.loads(out)["diagnostics"]]) == (
        2,
        ["Workload team/one#/metadata/name"],
    )


def test_objects_without_a_namespace_are_where_kubectl_puts_them() -> None:
    everything = objects(workload("one"))
    for obj in everything:
        obj["metadata"].pop("namespace", None)
    status, out = invoke("-", "-o", "json", text=yaml.safe_dump_all(everything))
    assert (status, json.loads(out)["cycles"][0]["admitted"][0]["gang"]) == (0, "default/one")


@pytest.mark.parametrize(
    "text",
    [
        "just words",
        "[]",
        "{}",
        "kind: Workload",
        "kind: 3",
        "kind: Workload\nmetadata: []",
        "kind: Workload\napiVersion: kueue.x-k8s.io/v1beta2\nmetadata: {name: a}",
        "kind: Workload\napiVersion: kueue.x-k8s.io/v1beta2\nmetadata: {name: a}\nspec: []\nstatus: 3",
        "kind: Workload\napiVersion: kueue.x-k8s.io/v1beta2\nmetadata: {name: a, labels: []}\nspec: {podSets: {}}",
        "kind: Workload\napiVersion: kueue.x-k8s.io/v1beta2\nmetadata: {name: a}\nspec: {podSets: [{count: -1}]}",
        "kind: Workload\napiVersion: kueue.x-k8s.io/v1beta2\nmetadata: {name: a}\n"
        "spec: {podSets: [{template: {spec: {containers: [{resources: {requests: {cpu: [1]}}}]}}}]}",
        "kind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: []",
        "kind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: {containers: 3}\nstatus: {phase: 7}",
        "kind: Job\napiVersion: batch/v1\nmetadata: {name: j, labels: {tutti.dev/queue-name: q}}\nspec: 1",
        "kind: Namespace\napiVersion: v1\nmetadata: {name: n, labels: 4}",
        "kind: LimitRange\napiVersion: v1\nmetadata: {name: n}\nspec: 4",
        "kind: PriorityClass\napiVersion: scheduling.k8s.io/v1\nmetadata: {name: n}\nvalue: many",
        "kind: RuntimeClass\napiVersion: node.k8s.io/v1\nmetadata: {name: n}\noverhead: 7",
        "kind: PodGroup\napiVersion: scheduling.x-k8s.io/v1alpha1\nmetadata: {name: n}\nspec: {minMember: x}",
        "kind: ResourceQuota\napiVersion: v1\nmetadata: {name: n}\nspec: {hard: 4}",
        "kind: ClusterQueue\napiVersion: kueue.x-k8s.io/v1beta2\nmetadata: {name: n}\nspec: 4",
        "kind: List\nitems: 4",
        "&a [*a]",
        "kind: List\nitems: [1, {kind: List, items: [2]}]",
        "cpu: 99999999999999999999999",
    ],
)
def test_odd_documents_are_diagnostics_or_passed_over(text: str) -> None:
    status, out = invoke("-", "-o", "json", text=text)
    report = json.loads(out)
    assert status == (2 if report["diagnostics"] else 0)
    assert all(each["message"] and each["fix"] for each in report["diagnostics"])


def test_a_wrong_time_or_configuration_is_a_diagnostic(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("fairSharing: {preemptionStrategies: [Sometimes]}")
    for args in (("--now", "soon"), ("--config", file), ("--config", tmp_path / "absent.yaml")):
        status, out = invoke("-", "-o", "json", *args, text="")
        report = json.loads(out)
        assert (status, report["cycles"], len(report["diagnostics"])) == (2, [], 1)


def test_time_is_what_is_said(tmp_path: Path) -> None:
    resting = workload("rests", requeueState={"requeueAt": "2026-01-01T00:00:00Z"})
    for now, admitted in (
        ("2025-12-31T23:59:59Z", 0),
        ("2026-01-01T00:00:00", 1),
        ("1767225599", 0),
        ("1767225600", 1),
    ):
        assert len(tried(tmp_path, resting, args=("--now", now))["cycles"][0]["admitted"]) == admitted


def test_a_job_of_a_configured_kind_is_a_gang(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "kinds": [
                    {
                        "group": "example.com",
                        "version": "v1",
                        "kind": "Campaign",
                        "plural": "campaigns",
                        "suspend": "spec.paused",
                        "podSets": [{"template": "spec.template", "count": "spec.workers"}],
                        "succeeded": {"condition": "Done"},
                    }
                ]
            }
        )
    )
    job = {
        "apiVersion": "example.com/v1",
        "kind": "Campaign",
        "metadata": {"name": "c", "namespace": "team", "labels": {"tutti.dev/queue-name": "lq"}},
        "spec": {
            "workers": 3,
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}},
        },
    }
    report = tried(tmp_path, job, args=("--config", str(config)))
    assert [each["podSets"][0]["count"] for each in report["cycles"][0]["admitted"]] == [3]
    assert tried(tmp_path, job)["skipped"][0]["object"] == "Campaign team/c"


def test_a_started_job_holds_what_its_annotation_says(tmp_path: Path) -> None:
    admission = {
        "uid": "u1",
        "epoch": 1,
        "seq": 1,
        "queue": "cq",
        "counts": {"main": 4},
        "flavors": {"main": {"cpu": "default"}},
        "since": 1.0,
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "j",
            "namespace": "team",
            "uid": "u1",
            "labels": {"tutti.dev/queue-name": "lq"},
            "annotations": {"tutti.dev/admission": json.dumps(admission)},
        },
        "spec": {
            "suspend": False,
            "parallelism": 4,
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}},
        },
    }
    (cycle,) = tried(tmp_path, job, workload("new"))["cycles"]
    assert (cycle["admitted"], [each["gang"] for each in cycle["waiting"]]) == ([], ["team/new"])
    assert cycle["waiting"][0]["reason"]["holders"] == [{"gang": "team/j", "amount": "4"}]


@pytest.mark.parametrize("folder", ["bookstore/ml/batch", "ack-fleet-queue", "teams", "acs-gang-podgroup"])
def test_the_examples_are_decided_without_complaint(folder: str) -> None:
    status, out = invoke(*sorted((EXAMPLES / folder).glob("*.yaml")), "-o", "json")
    assert status == 0, out
    assert json.loads(out)["cycles"][0]["admitted"] or json.loads(out)["cycles"][0]["waiting"]


def test_the_job_of_the_readme_waits_in_the_queues_of_the_example_for_the_reason_that_it_shows(tmp_path: Path) -> None:
    page = (ROOT / "README.md").read_text()
    job = yaml.safe_load(re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[0])
    shown = " ".join(page.split())
    entries = [job]
    for name, pods in re.findall(r"team-vision/(\w+) \((\d)\)", shown):
        entries.append(copy.deepcopy(job))
        entries[-1]["metadata"] |= {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
        entries[-1]["spec"] |= {"parallelism": int(pods), "completions": int(pods)}
    job["metadata"]["creationTimestamp"] = "2026-01-01T00:01:00Z"
    (tmp_path / "jobs.yaml").write_text(yaml.safe_dump_all(entries))
    (cycle,) = json.loads(invoke(EXAMPLES / "teams" / "quota.yaml", tmp_path / "jobs.yaml", "-o", "json")[1])["cycles"]
    (waiting,) = cycle["waiting"]
    said = waiting["reason"]
    holders = ", ".join(f"{each['gang']} ({each['amount']})" for each in said["holders"])
    asks = f"{said['code']}: asks for {said['asked']} {said['resource']}"
    has = f"{said['where']} has {said['limit']}, {said['used']} used"
    assert f"{asks}; {has}; held by {holders}; {said['help']}" in shown
    assert f"of queue {waiting['queue']} start together" in shown


def test_the_same_files_give_the_same_report_in_any_order(tmp_path: Path) -> None:
    entries = [workload(f"w{i}", count=1 + i % 3, priority=i % 2) for i in range(6)]
    forwards = tried(tmp_path, *entries)
    backwards = tried(tmp_path, *reversed(entries))
    assert forwards == backwards
