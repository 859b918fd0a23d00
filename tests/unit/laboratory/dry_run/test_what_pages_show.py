"""What the pages tell about dry runs: the dump reads every kind that decides, and the examples end as they say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import orjson
from typer.testing import CliRunner

from webhook.cli import app
from webhook.dialects import registry
from webhook.jobs.kinds.registry import with_custom
from webhook.jobs.plain_pods.pod_group import GENERATIONS

ROOT = Path(__file__).parents[4]
KINDS = {
    *("namespaces", "nodes", "pods", "limitranges", "workloads.kueue.x-k8s.io"),
    *("priorityclasses.scheduling.k8s.io", "runtimeclasses.node.k8s.io"),
    *("trainingruntimes.trainer.kubeflow.org", "clustertrainingruntimes.trainer.kubeflow.org"),
    *(f"{each.plural}.{each.group}".rstrip(".") for each in registry.RESOURCES),
    *(f"{kind.plural}.{kind.group}" for kind in with_custom(()).values()),
    *(f"podgroups.{path.split('/')[2]}" for path in GENERATIONS.values()),
}
"""What a dry run reads, as kubectl names it."""
NOT_SERVED = "elasticquotatrees.scheduling.sigs.k8s.io"
KUBECTL = f"""#!/bin/sh
case "$*" in
  "api-resources --verbs list -o name") printf '%s\\n' {" ".join(sorted(KINDS - {NOT_SERVED}))} events ;;
  "get -A -o yaml jobs.batch") cat {ROOT}/examples/researcher/jobs.yaml ;;
  "get -A -o yaml "*) echo "{{apiVersion: v1, kind: List, items: []}}" ;;
  *tutti-policy*) cat {ROOT}/examples/teams/quota.yaml ;;
  *tutti-config*) echo "{{}}" ;;
esac
echo "$*" >> calls
"""


def test_the_dump_of_a_cluster_has_all_kinds_that_decide_and_passes_over_those_that_it_does_not_serve(
    tmp_path: Path,
) -> None:
    for name, text in {"kubectl": KUBECTL, "tutti": f'#!/bin/sh\nexec {sys.executable} -m webhook "$@"\n'}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    block = re.search(r"^```console\n(.*?)^```", (ROOT / "docs/try.md").read_text(), re.MULTILINE | re.DOTALL)
    assert block is not None
    script = re.sub(r"^\$ ", "", block[1], flags=re.MULTILINE).rstrip() + " -o json\n"
    around = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=around, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    asked = re.findall(r"^get -A -o yaml (.*)$", (tmp_path / "calls").read_text(), re.MULTILINE)
    assert sorted(asked) == sorted(KINDS - {NOT_SERVED})
    assert NOT_SERVED in script
    assert [each["gang"] for each in orjson.loads(done.stdout)["cycles"][0]["admitted"]] == ["team-vision/training"]


def test_the_jobs_of_the_researchers_page_end_as_it_tells() -> None:
    command = "tutti try examples/teams/quota.yaml examples/researcher/jobs.yaml"
    assert command in (ROOT / "docs/researcher.md").read_text()
    files = [str(ROOT / word) for word in command.split()[2:]]
    cycle = orjson.loads(CliRunner().invoke(app, ["try", *files, "-o", "json"]).stdout)["cycles"][0]
    assert [each["gang"] for each in cycle["admitted"]] == ["team-vision/training"]
    assert [each["gang"] for each in cycle["waiting"]] == ["team-vision/evaluation"]
