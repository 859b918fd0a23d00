"""Tutti comes to a busy cluster and leaves it again: what runs is counted, not touched, and goes back as it was."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.e2e.conftest import Team, create_namespace, member
from tests.e2e.controlplane.cluster import Cluster, Shape
from tests.e2e.controlplane.install import ROOT, Installation
from tests.e2e.kubectl import Kubectl, stays, wait_until
from tests.e2e.load import api_of
from tests.e2e.objects import job, jobset, pod_template, pytorchjob
from tests.e2e.queues import QUEUE, entries, give_queue, reserved, set_gpus
from tests.e2e.watching import Watch
from webhook.core.notation import names

pytestmark = pytest.mark.own_cluster

Manifest = dict[str, Any]

RUNNING: Final = {
    "job": job("old", 2, pod_template(), QUEUE),
    "jobset": jobset("old", 2, pod_template(), QUEUE),
    "pytorchjob": pytorchjob("old", 1, pod_template(container="pytorch"), QUEUE),
}
"""Gangs of two pods that ran before Tutti came."""
HELD: Final = job("careful", 1, pod_template(), QUEUE)
"""Another one, which its owner suspends then."""
LABEL_OF: Final = {
    "job": "job-name=old",
    "jobset": "jobset.sigs.k8s.io/jobset-name=old",
    "pytorchjob": "training.kubeflow.org/job-name=old",
}
_OF_JOB: Final = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name")


@dataclass(frozen=True, slots=True)
class Busy:
    """A cluster on which jobs ran before Tutti was installed."""

    tutti: Installation
    team: Team
    before: Watch
    """Every change of the team's pods since before the installation."""


@pytest.fixture(scope="module")
def busy() -> Iterator[Busy]:
    """A cluster with running jobs, then policy, then Tutti: the order that the documentation gives."""
    with Cluster(Shape()) as cluster:
        root = Kubectl(cluster.binaries["kubectl"], cluster.kubeconfig)
        create_namespace(root, "busy")
        team = Team(root.in_namespace("busy"), member(cluster, root, "busy", "ann"), api_of(cluster, "ann"))
        for manifest in (*RUNNING.values(), HELD, job("free", 1, pod_template())):
            team.owner.apply(manifest)
        team.owner.apply(job("asleep", 1, pod_template(), QUEUE, suspend=True))
        wait_until(lambda: len(team.owner.pods(phase="Running")) == 8, what="they run without Tutti")
        with Watch(team.owner) as pods:
            root("apply", "--server-side", "-k", str(ROOT / "manifests" / "crds"))
            wait_until(lambda: give_queue(team.admin, 7), what="policy is stored")
            yield Busy(Installation(cluster).install(), team, pods)


@pytest.fixture(scope="module")
def adopted(busy: Busy) -> Busy:
    """The same, once the ledger holds the jobs that ran."""
    wait_until(lambda: reserved(busy.team.admin) == 7, what="what runs is adopted")
    return busy


def untouched(adopted: Busy) -> bool:
    """Return whether no pod that ran at the installation was deleted or restarted."""
    gone = (each.item["metadata"]["name"] for each in adopted.before.changes if each.kind == "DELETED")
    return all(name.startswith("careful-") for name in gone)


def test_running_gangs_are_adopted_and_counted_and_nothing_is_stopped(adopted: Busy) -> None:
    admin, owner = adopted.team.admin, adopted.team.owner
    held = entries(admin)
    assert sorted(entry.kind.partition(".")[0] for entry in held) == ["Job", "Job", "JobSet", "PyTorchJob"]
    assert all(entry.adopted and entry.name in ("old", "careful") for entry in held)
    assert all(len(owner.pods(selector, "Running")) == 2 for selector in LABEL_OF.values())
    assert len(owner.pods("job-name=free", "Running")) == 1
    assert untouched(adopted)


@pytest.mark.parametrize("kind", RUNNING)
def test_that_it_was_adopted_is_written_on_a_job_to_which_nothing_else_happens(adopted: Busy, kind: str) -> None:
    """So that its owner's suspension counts as a hold, and a rebuilt ledger knows it."""
    owner = adopted.team.owner
    wait_until(lambda: names.ADMISSION in owner.get(kind, "old")["metadata"]["annotations"], what=f"{kind} has a note")


def test_an_adopted_gang_that_its_owner_suspends_is_held_until_its_owner_lifts_that(adopted: Busy) -> None:
    admin, owner = adopted.team.admin, adopted.team.owner
    note = "jsonpath={.metadata.annotations}"
    wait_until(lambda: names.ADMISSION in owner("get", "job", "careful", "-o", note), what="its adoption is noted")
    set_gpus(admin, 6)
    owner("patch", "job", "careful", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    wait_until(lambda: reserved(admin) == 6, what="its quota returns when its last pod is gone")
    assert not owner.pods("job-name=careful")
    wait_until(lambda: why_careful(owner) == "OnHold", what="its workload says that it is held")
    stays(lambda: owner.get("job", "careful")["spec"]["suspend"], 3, "nobody un-suspends it")
    owner("patch", "job", "careful", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    wait_until(lambda: why_careful(owner) == "WaitingForQuota", what="it waits for its turn when that is lifted")
    owner.delete("job", "careful")


def why_careful(owner: Kubectl) -> str:
    """Return why the job that its owner suspended waits, by its workload."""
    (found,) = [each for each in owner.items("workloads") if each["metadata"]["name"].startswith("job-careful")]
    return str(found["status"].get("reason", {}).get("code", ""))


def test_a_new_gang_waits_for_what_was_adopted(adopted: Busy) -> None:
    admin, owner = adopted.team.admin, adopted.team.owner
    owner.apply(job("new", 2, pod_template(), QUEUE))
    waiting = ("asleep", "new")
    stays(lambda: all(owner.get("job", name)["spec"]["suspend"] for name in waiting), 2, "adopted gangs fill the queue")
    set_gpus(admin, 9)
    wait_until(lambda: len(owner.pods("job-name=new", "Running")) == 2, what="it starts when there is room")
    assert reserved(admin) == 9, "what waited before Tutti came had its turn first"
    wait_until(lambda: len(owner.pods("job-name=asleep", "Running")) == 1, what="and it runs")


def test_an_adopted_gang_keeps_to_the_rules_of_a_running_one(adopted: Busy) -> None:
    owner = adopted.team.owner
    assert "its queue label stays while it runs" in owner.refused("label", "job", "old", "tutti.dev/queue-name-")
    scaled = owner.refused("scale", "pytorchjob", "old", "--replicas=4")
    assert "runs as a gang with a reservation" in scaled


def uninstall(tutti: Installation, *flags: str) -> str:
    """Run ``tutti uninstall`` and return what it prints."""
    command = [sys.executable, "-m", "webhook", "uninstall", "--kubeconfig", str(tutti.cluster.kubeconfig), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def uninstalled(adopted: Busy) -> Busy:
    """The same cluster after Tutti was taken away, while gangs ran, waited and were held."""
    owner, tutti = adopted.team.owner, adopted.tutti
    owner.apply(job("late", 2, pod_template(), QUEUE))
    owner.apply(jobset("late", 2, pod_template(), QUEUE))
    owner.apply(pytorchjob("late", 1, pod_template(container="pytorch"), QUEUE))
    owner.apply(job("sleeper", 1, pod_template(), QUEUE, suspend=True))
    admin = adopted.team.admin
    admin("delete", "mutatingwebhookconfiguration/tutti", "validatingwebhookconfiguration/tutti")
    for replica in tutti.replicas:
        replica.component.kill()
    assert "un-suspend" in uninstall(tutti, "--dry-run")
    assert owner.get("job", "late")["spec"]["suspend"], "a dry run writes nothing"
    uninstall(tutti)
    return adopted


def spec_of(item: Manifest) -> Any:
    """Return what a job's spec means: without what the Job controller derives from its uid, and without empty maps and
    a ``suspend`` that is false, which mean the same as nothing."""
    spec: Manifest = json.loads(json.dumps(item["spec"]))
    spec.pop("selector", None)
    labels = spec.get("template", {}).get("metadata", {}).get("labels", {})
    for label in _OF_JOB:
        labels.pop(label, None)
    return without_nothing(spec)


def without_nothing(node: Any) -> Any:
    """Return a document without empty maps and false ``suspend`` fields."""
    if isinstance(node, list):
        return [without_nothing(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: without_nothing(value) for key, value in node.items() if (key, value) != ("suspend", False)}
    return {key: value for key, value in kept.items() if value != {}}


MAKERS: Final = {
    "job": lambda name: job(name, 2, pod_template(), QUEUE),
    "jobset": lambda name: jobset(name, 2, pod_template(), QUEUE),
    "pytorchjob": lambda name: pytorchjob(name, 1, pod_template(container="pytorch"), QUEUE),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_waiting_gang_goes_back_as_its_owner_wrote_it_and_runs(uninstalled: Busy, kind: str) -> None:
    owner = uninstalled.team.owner
    never = json.loads(owner.create(MAKERS[kind]("never"), "--dry-run=server", "-o", "json"))
    given_back = owner.get(kind, "late")
    assert spec_of(given_back) == spec_of(never)
    own = {key for key in given_back["metadata"].get("annotations", {}) if key.startswith(names.DOMAIN)}
    assert not own
    selector = LABEL_OF[kind].replace("=old", "=late")
    wait_until(lambda: len(owner.pods(selector, "Running")) == 2, what="it runs")


def test_a_job_that_its_owner_suspended_stays_suspended(uninstalled: Busy) -> None:
    owner = uninstalled.team.owner
    assert owner.get("job", "sleeper")["spec"]["suspend"] is True
    assert names.DOMAIN not in json.dumps(owner.get("job", "sleeper")["spec"])


def test_running_gangs_run_on_and_nothing_of_tutti_holds_them(uninstalled: Busy) -> None:
    owner = uninstalled.team.owner
    for kind, selector in LABEL_OF.items():
        assert len(owner.pods(selector, "Running")) == 2
        annotations = owner.get(kind, "old")["metadata"].get("annotations", {})
        assert not [key for key in annotations if key.startswith(names.DOMAIN)]
    assert len(owner.pods("job-name=new", "Running")) == 2
    assert untouched(uninstalled)
    labels = uninstalled.team.admin.get("namespace", "busy")["metadata"]["labels"]
    assert not [key for key in labels if key.startswith(names.DOMAIN)]


def test_uninstalling_again_finds_nothing_to_do(uninstalled: Busy) -> None:
    assert "0 objects written" in uninstall(uninstalled.tutti)
