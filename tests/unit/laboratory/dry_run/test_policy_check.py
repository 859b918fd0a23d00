"""Policy files are checked as the cluster would compile them."""

import io
import re
from pathlib import Path
from textwrap import indent

import pytest
from rich.console import Console

from webhook.config import Config, parse
from webhook.laboratory.dry_run.policy_check import run

EXAMPLES = Path(__file__).parents[4] / "examples"

BROKEN = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: research}
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [cpu]
      flavors:
        - name: default
          resources: [{name: cpu, nominalQuota: lots}]
"""


def check(*files: Path, config: Config | None = None) -> tuple[int, str]:
    out = io.StringIO()
    status = run(files, config, Console(file=out, width=160))
    return status, out.getvalue()


def test_a_weight_is_warned_of_while_nobody_compares_shares(tmp_path: Path) -> None:
    file = tmp_path / "queue.yaml"
    file.write_text(
        BROKEN.replace("lots", "4").replace("  namespaceSelector", "  fairSharing: {weight: 2}\n  namespaceSelector")
    )
    status, text = check(file)
    assert status == 0
    assert "spec/fairSharing/weight" in text
    assert "fair sharing is off" in text
    _, text = check(file, config=parse("fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare]}", "config"))
    assert "fair sharing is off" not in text


@pytest.mark.parametrize("folder", ["bookstore/ml/batch", "ack-fleet-queue", "teams", "acs-gang-podgroup"])
def test_the_examples_compile(folder: str) -> None:
    status, text = check(*sorted((EXAMPLES / folder).glob("*.yaml")))
    assert (status, "0 errors, 0 warnings" in text) == (0, True)


def test_the_tree_shows_quota_limits_and_who_may_use_it() -> None:
    _, text = check(EXAMPLES / "ack-fleet-queue" / "elasticquotatree.yaml")
    assert "cohort root" in text
    assert "queue root/child-2" in text
    assert "tutti.dev/max-jobs (default): owns 0, at most 1" in text
    assert "all jobs of namespace default" in text


def test_what_does_not_compile_is_told_with_path_value_and_fix(tmp_path: Path) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(BROKEN)
    status, text = check(file)
    assert status == 2
    assert "ClusterQueue research#/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota" in text
    assert "lots" in text
    assert "inactive" in text


FLAVOR = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: default}\n"
QUOTA = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q, namespace: a}\nspec: {hard: {pods: many}}\n"
LISTED = f"apiVersion: v1\nkind: List\nitems:\n-{indent(BROKEN.strip(), '  ')[1:]}\n"
INSIDE = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: tutti-policy, namespace: tutti-system}\ndata:\n  a: "


@pytest.mark.parametrize(
    ("documents", "path", "number"),
    [
        ([BROKEN], "ClusterQueue research#/spec/resourceGroups", 1),
        ([FLAVOR, BROKEN], "ClusterQueue research#/spec/resourceGroups", 2),
        ([FLAVOR, "", QUOTA], "ResourceQuota a/q#/spec/hard", 3),
        ([FLAVOR, LISTED], "ClusterQueue research#", 2),
        ([FLAVOR, FLAVOR.replace("ResourceFlavor", "ResourceFlavors")], "ResourceFlavors default#/kind", 2),
        ([FLAVOR, INSIDE + "'['"], "ConfigMap tutti-policy#", 2),
        ([FLAVOR, INSIDE + "|\n" + indent(BROKEN.strip(), "    ")], "ClusterQueue research#", 2),
    ],
)
def test_a_problem_names_the_file_and_the_document_that_it_comes_from(
    documents: list[str], path: str, number: int, tmp_path: Path
) -> None:
    file = tmp_path / "q.yaml"
    file.write_text("\n---\n".join(documents))
    status, text = check(EXAMPLES / "teams" / "quota.yaml", file)
    assert status == 2
    assert path in text
    after = text.partition(path)[2]
    assert re.match(rf"[^\n]*\n\s*file\s+{re.escape(str(file))}, document {number}\s", after), text


def test_of_two_objects_by_one_name_both_files_are_told(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(BROKEN.replace("lots", f'"{ord(name[0])}"'))
    text = check(tmp_path / "a.yaml", tmp_path / "b.yaml")[1]
    assert re.search(r"file\s+\S+a.yaml,\s+document\s+1;\s+\S+b.yaml,\s+document\s+1", text), text


def test_a_queue_that_every_namespace_may_use_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "open.yaml"
    file.write_text(BROKEN.replace("lots", '"4"'))
    assert "every namespace may use this queue" in check(file)[1]
    file.write_text(BROKEN.replace("lots", '"4"').replace("{}", "{matchLabels: {team: research}}"))
    assert "every namespace may use this queue" not in check(file)[1]


def test_a_reference_that_dangles_is_a_warning_only(tmp_path: Path) -> None:
    file = tmp_path / "dangling.yaml"
    file.write_text(BROKEN.replace("lots", '"4"'))
    status, text = check(file)
    assert status == 0
    assert "there is no such ResourceFlavor yet" in text


def test_resource_quotas_lists_and_config_maps_are_read_too(tmp_path: Path) -> None:
    file = tmp_path / "more.yaml"
    inner = "\n".join(f"    {line}" for line in BROKEN.strip().splitlines())
    file.write_text(
        "apiVersion: v1\nkind: List\nitems:\n"
        "- {apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: a}, spec: {hard: {pods: many}}}\n"
        "- {apiVersion: apps/v1, kind: Deployment, metadata: {name: d}}\n"
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: tutti-policy, namespace: tutti-system}\n"
        f"data:\n  queues.yaml: |\n{inner}\n"
    )
    status, text = check(file)
    assert status == 2
    assert "ResourceQuota a/q#/spec/hard/pods" in text
    assert "ClusterQueue research#" in text
    assert "1 policy object, 1 ResourceQuota: 2 errors" in text

    assert "passed over, being no policy: 1 Deployment" in text


def test_a_file_that_cannot_be_read_is_an_error_and_the_rest_is_compiled(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("a: [")
    status, text = check(file, tmp_path / "absent.yaml", EXAMPLES / "teams" / "quota.yaml")
    assert status == 2
    assert "bad.yaml" in text
    assert ", column 1" in text
    assert "absent.yaml" in text
    assert "No such file or directory" in text
    assert "Errno" not in text
    assert "queue vision" in text
