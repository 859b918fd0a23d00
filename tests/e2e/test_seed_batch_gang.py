"""The walkthrough of the Bookstore's training gang: commands and manifests as they are written, and its questions."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from tests.e2e.conftest import AnyCluster, member
from tests.e2e.facts import CREATION_SECONDS, most_together, partly_created, told, uid_of
from tests.e2e.kubectl import Kubectl, condition, stays, wait_until
from tests.e2e.objects import GPU, jobset, pod, pod_template
from tests.e2e.queues import QUEUE, give_queue, reserved
from tests.e2e.shell import Shell
from tests.e2e.watching import Watch

pytestmark = pytest.mark.usefixtures("tutti")

BATCH: Final = "examples/bookstore/ml/batch"
WORKERS: Final = "app.kubernetes.io/component=recommender-train"
SET_CPU: Final = (
    "kubectl patch clusterqueue bookstore-ml-cq --type=json "
    """-p '[{{"op":"replace","path":"/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota","value":"{cpu}"}}]'"""
)


@pytest.fixture
def bookstore(kubectl: Kubectl, cluster: AnyCluster) -> Iterator[Kubectl]:
    """The ML team's lead, who edits jobs in bookstore-ml and the quota of all teams, and nothing else."""
    platform = Shell(kubectl)
    create = "kubectl create -f examples/bookstore/ml/namespace.yaml"
    wait_until(lambda: platform(create), 60, "the namespace of an earlier run is gone")
    lead = member(cluster, kubectl, "bookstore-ml", "ml-lead")
    kubectl("create", "clusterrolebinding", "ml-lead", "--clusterrole=tutti-policy-edit", "--user=ml-lead")
    kubectl("create", "clusterrolebinding", "ml-lead-views", "--clusterrole=tutti-view", "--user=ml-lead")
    wait_until(lambda: lead.may("create", "clusterqueues", "kueue.x-k8s.io"), what="rights of the lead")
    yield lead
    kubectl.delete("clusterrolebinding", "ml-lead", "ml-lead-views")
    kubectl.delete("namespace", "bookstore-ml")
    wait_until(lambda: kubectl.delete("clusterqueue", "bookstore-ml-cq"), 60, "the queue holds no job any more")


def workers(lead: Kubectl) -> list[dict[str, Any]]:
    """Return the training's pods as the walkthrough's command lists them."""
    command = f"kubectl get pods -n bookstore-ml -l {WORKERS} -o json"
    found: list[dict[str, Any]] = json.loads(Shell(lead)(command))["items"]
    return found


def running_workers(lead: Kubectl) -> list[dict[str, Any]]:
    """Return those of them that run."""
    return [pod for pod in workers(lead) if pod["status"].get("phase") == "Running"]


def listed(lead: Kubectl) -> dict[str, str]:
    """Return the line about the training in ``kubectl get workloads``, by column."""
    titles, *lines = Shell(lead)("kubectl get workloads -n bookstore-ml").splitlines()
    starts = [match.start() for match in re.finditer(r"\S+", titles)]
    line = next(line for line in lines if "recommender-train" in line)
    cells = [line[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]
    return dict(zip(titles.split(), cells, strict=True))


def conditions(lead: Kubectl) -> dict[str, dict[str, Any]]:
    """Return the conditions of the training's workload, by type."""
    found = [item for item in lead.items("workloads") if "recommender-train" in item["metadata"]["name"]]
    return {entry["type"]: entry for entry in found[0]["status"]["conditions"]}


def lacks_cpu(lead: Kubectl) -> list[str]:
    """Return the events that say that the training waits for cores."""
    return [said for said in told(lead, "recommender-train", "Queued") if "asks for 1 cpu" in said]


def test_the_walkthrough_from_queue_to_lowered_and_restored_quota(bookstore: Kubectl) -> None:
    lead = Shell(bookstore)
    lead(f"kubectl apply -f {BATCH}/kueue-resourceflavor.yaml")
    lead(f"kubectl apply -f {BATCH}/kueue-clusterqueue.yaml")
    lead(f"kubectl apply -f {BATCH}/kueue-localqueue.yaml")
    assert "bookstore-ml-cq" in lead("kubectl get clusterqueue bookstore-ml-cq -o wide")
    assert "bookstore-ml-lq" in lead("kubectl get localqueue  -n bookstore-ml")
    with Watch(bookstore) as watch:
        lead(f"kubectl apply -f {BATCH}/recommender-jobset.yaml")
        wait_until(lambda: len(running_workers(bookstore)) == 2, what="both workers run")
        assert "recommender-train" in lead("kubectl get jobset -n bookstore-ml")
        assert "recommender-train" in lead("kubectl get jobset,workloads -n bookstore-ml")
        wait_until(lambda: listed(bookstore)["ADMITTED"] == "True", what="the read API shows it admitted")
        assert conditions(bookstore)["QuotaReserved"]["status"] == "True"
        first = uid_of(bookstore, "jobset", "recommender-train")
        assert partly_created(watch, {first: 2})[first] < CREATION_SECONDS, "the workers were created together"

        lead("kubectl delete jobset recommender-train -n bookstore-ml")
        lead(SET_CPU.format(cpu=0))
        wait_until(lambda: not workers(bookstore), what="the first gang's pods are gone")
        lead(f"kubectl apply -f {BATCH}/recommender-jobset.yaml")
        # The first one had the same name, and may have waited for a queue that had just been made.
        reason = wait_until(lambda: lacks_cpu(bookstore), what="it says why it waits")[-1]
        assert "bookstore-ml-cq" in reason
        stays(lambda: not workers(bookstore), 2, "no pod exists")
        waiting = conditions(bookstore)["QuotaReserved"]
        assert waiting["status"] == "False"
        assert "asks for 1 cpu; queue bookstore-ml-cq has 0" in waiting["message"]
        assert listed(bookstore)["ADMITTED"] != "True"
        why = lead("kubectl get workload -n bookstore-ml -o yaml | grep -A3 'conditions:'   # why pending")
        assert "asks for 1 cpu" in why
        assert bookstore.get("jobset", "recommender-train")["spec"]["suspend"] is True

        lead(SET_CPU.format(cpu=4))
        wait_until(lambda: len(running_workers(bookstore)) == 2, what="both workers run")
        wait_until(lambda: listed(bookstore)["ADMITTED"] == "True", what="the read API shows it admitted")
        second = uid_of(bookstore, "jobset", "recommender-train")
        assert second != first
        assert partly_created(watch, {second: 2})[second] < CREATION_SECONDS, "the workers were created together"


def test_a_jobset_of_four_gpus_waits_in_a_queue_of_two_and_says_why(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 2)
    owner.apply(jobset("four", 4, pod_template(), QUEUE))
    assert f"asks for 4 {GPU}" in owner.warnings
    assert "can hold at most 2" in owner.warnings
    reason = wait_until(lambda: told(owner, "four", "Queued"), what="it says why it waits")[-1]
    assert f"asks for 4 {GPU}" in reason
    assert "has 2" in reason
    stays(lambda: not owner.items("pods"), 1, "no pod exists")


def test_of_two_jobsets_of_two_gpus_one_runs_and_the_other_starts_when_it_ends(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 2)
    with Watch(owner) as watch:
        owner.apply(jobset("first", 2, pod_template(runtime="8s"), QUEUE))
        wait_until(lambda: len(owner.pods(phase="Running")) == 2, what="the first runs")
        owner.apply(jobset("second", 2, pod_template(runtime="1s"), QUEUE))
        reason = wait_until(lambda: told(owner, "second", "Queued"), what="it says why it waits")[-1]
        assert f"held by {owner.namespace}/first (2)" in reason
        wait_until(lambda: condition(owner.get("jobset", "first"), "Completed") == "True", what="the first ends")
        wait_until(lambda: condition(owner.get("jobset", "second"), "Completed") == "True", what="the second ends")
        second = uid_of(owner, "jobset", "second")
        watch.settle()
        started = [change for change in watch.changes if change.kind == "ADDED"]
        assert len(started) == 4
        seconds_start = min(
            index
            for index, change in enumerate(watch.changes)
            if change.item["metadata"]["labels"]["tutti.dev/gang"] == second
        )
        over = {change.item["metadata"]["name"] for change in watch.changes[:seconds_start] if is_over(change.item)}
        assert len(over) == 2, "both pods of the first had ended before a pod of the second existed"
        assert partly_created(watch, {second: 2})[second] < CREATION_SECONDS


def is_over(item: dict[str, Any]) -> bool:
    """Return whether a pod has ended."""
    return item["status"].get("phase") in ("Succeeded", "Failed")


def test_a_resource_quota_on_gpus_stays_the_hard_wall(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 8)
    namespace = admin.namespace
    Shell(admin)(
        f"""
        kubectl create -n {namespace} quota gpu-quota \
          --hard=requests.nvidia.com/gpu=4 --dry-run=client -o yaml \
          | kubectl apply -f -
        kubectl get resourcequota -n {namespace}
        """
    )
    wait_until(lambda: admin.get("resourcequota", "gpu-quota").get("status", {}).get("hard"), what="it is in force")
    owner.apply(jobset("six", 6, pod_template(), QUEUE))
    reason = wait_until(lambda: told(owner, "six", "Queued"), what="it says why it waits")[-1]
    assert f"asks for 6 requests.{GPU}; ResourceQuota {namespace}/gpu-quota has 4, 0 used" in reason
    owner.apply(jobset("four", 4, pod_template(), QUEUE))
    wait_until(lambda: len(owner.pods(phase="Running")) == 4, what="four GPUs run past the one that cannot")
    assert reserved(admin) == 4
    refused = owner.refused("create", "-f", "-", stdin=yaml.safe_dump(pod("fifth", pod_template())))
    assert f"{namespace}/four (4)" in refused
    with Watch(owner) as watch:
        stays(lambda: len(owner.pods()) == 4, 1, "four pods exist")
        assert most_together(watch, uid_of(owner, "jobset", "six")) == [0, 0]
