"""While the webhook is away, what opted in waits or is refused, and nothing else in the cluster notices."""

import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from tests.e2e import policies
from tests.e2e.conftest import Team, member
from tests.e2e.controlplane.install import Installation
from tests.e2e.facts import told
from tests.e2e.kubectl import Kubectl, KubectlError, condition, stays, wait_until
from tests.e2e.load import Load
from tests.e2e.objects import deployment, job, jobset, pod, pod_template
from tests.e2e.queues import QUEUE, give_queue, reserved, set_gpus

REGISTRATIONS: Final = ("mutatingwebhookconfiguration/tutti", "validatingwebhookconfiguration/tutti")
NO_ANSWER: Final = "failed calling webhook"
START: Final = {"spec": {"suspend": False}}


def refused(owner: Kubectl, manifest: dict[str, Any]) -> str:
    """Create an object that must be refused, and return what its user reads."""
    return owner.refused("create", "-f", "-", stdin=yaml.safe_dump(manifest))


def runs(owner: Kubectl, selector: str, pods: int) -> None:
    """Wait until so many pods of a selector run."""
    wait_until(lambda: len(owner.pods(selector, "Running")) == pods, what=f"{pods} pods of {selector} run")


@pytest.fixture
def outage(breakable: Installation, team: Team) -> Iterator[Team]:
    """A team with a gang that runs, one that ends soon and one that waits, after both webhook replicas were killed."""
    give_queue(team.admin, 3)
    team.owner.create(job("steady", 2, pod_template(), QUEUE))
    team.owner.create(job("brief", 1, pod_template(runtime="8s"), QUEUE))
    runs(team.owner, "", 3)
    team.owner.create(job("waiting", 2, pod_template(), QUEUE))
    for replica in breakable.webhooks:
        replica.component.kill()
    yield team
    for replica in breakable.webhooks:
        if not replica.component.running:
            replica.component.start()
    breakable.wait_ready()


def test_without_a_webhook_labelled_jobs_are_refused_or_stay_suspended(breakable: Installation, outage: Team) -> None:
    owner = outage.owner
    assert NO_ANSWER in refused(owner, job("late", 1, pod_template(), QUEUE))
    assert NO_ANSWER in refused(owner, jobset("late", 1, pod_template(), QUEUE))
    patch = ("patch", "job", "waiting", "--type=merge", f"--patch={json.dumps(START)}")
    assert NO_ANSWER in owner.refused(*patch)
    assert NO_ANSWER in refused(owner, pod("forged", pod_template(labels={"tutti.dev/gang": "x"})))
    stays(lambda: owner.get("job", "waiting")["spec"]["suspend"], 1, "the waiting gang is suspended")
    assert len(owner.pods("job-name=steady", "Running")) == 2
    owner.delete("job", "steady")
    wait_until(lambda: not owner.items("pods", "job-name=steady"), what="there is room")
    stays(lambda: owner.get("job", "waiting")["spec"]["suspend"], 2, "it is not started while its pods are refused")
    wait_until(lambda: NO_ANSWER in str(told(owner, "waiting", "StartFailed")), what="its owner is told why")

    for replica in breakable.webhooks:
        replica.component.start()
    breakable.wait_ready()
    wait_until(lambda: owner.create(job("late", 1, pod_template(), QUEUE)), what="labelled jobs are taken again")
    runs(owner, "job-name=late", 1)
    runs(owner, "job-name=waiting", 2)


def test_without_a_webhook_nothing_that_did_not_opt_in_is_touched(
    breakable: Installation, outage: Team, cluster_elsewhere: Kubectl
) -> None:
    owner = outage.owner
    owner.create(job("plain", 1, pod_template()))
    owner.create(jobset("plain", 1, pod_template()))
    owner.create(deployment("serving", 2, pod_template()))
    owner.create(pod("bare", pod_template()))
    labelled = deployment("labelled", 1, pod_template())
    labelled["metadata"]["labels"] = {"tutti.dev/queue-name": QUEUE}
    owner.create(labelled)
    for selector, pods in (("job-name=plain", 1), ("app=serving", 2), ("app=labelled", 1)):
        runs(owner, selector, pods)
    owner("scale", "deployment", "serving", "--replicas=3")
    runs(owner, "app=serving", 3)
    cluster_elsewhere.create(job("plain", 1, pod_template()))
    runs(cluster_elsewhere, "job-name=plain", 1)
    wait_until(lambda: condition(owner.get("job", "brief"), "Complete") == "True", what="a running gang completes")
    owner.delete("job", "steady")
    wait_until(lambda: not owner.items("pods", "job-name=steady"), what="a running gang can be deleted")
    wait_until(lambda: reserved(outage.admin) <= 2, what="what ended is freed")


@pytest.fixture
def cluster_elsewhere(breakable: Installation, team: Team) -> Iterator[Kubectl]:
    """The owner of another namespace, in which Tutti was never used."""
    name = f"{team.admin.namespace}-elsewhere"
    team.admin("create", "namespace", name)
    yield member(breakable.cluster, team.admin, name, f"{name}-owner")
    team.admin.delete("namespace", name)


def test_replicas_are_replaced_one_by_one_under_load_without_a_refusal(breakable: Installation, team: Team) -> None:
    give_queue(team.admin, 0)
    with Load(team.api, team.jobs, lambda n: job(f"job-{n}", 1, pod_template(), QUEUE), 0.01) as load:
        for replica in breakable.webhooks:
            time.sleep(1)
            replica.component.stop(grace_seconds=8)
            replica.component.start()
            breakable.wait_ready()
            time.sleep(1.5)
    assert not load.failures
    assert len(load.stored) > 50
    assert all(item["spec"]["suspend"] for item in load.stored)


@pytest.fixture
def policies_only(breakable: Installation, team: Team) -> Iterator[Team]:
    """A team on the cluster with the policies in force and the registrations gone."""
    admin = team.admin
    kept = [admin("get", registration, "-o", "json") for registration in REGISTRATIONS]
    # Kustomize's folder is read by kubectl, which is told no namespace: policies have none.
    rendered = subprocess.run(
        [str(admin.program), "kustomize", str(policies.overlay())], capture_output=True, text=True, check=True
    ).stdout
    admin("apply", "--server-side", "-f", "-", stdin=rendered)
    admin("delete", *REGISTRATIONS)
    try:
        probe = job("probe", 1, pod_template(), QUEUE, suspend=not policies.suspending())
        wait_until(
            lambda: json.loads(admin.create(probe, "--dry-run=server", "-o", "json"))["spec"].get("suspend"),
            what="the policies that mark are in force",
        )
        # Those that refuse come into force apart from these.
        admin.create(probe)
        wait_until(lambda: _is_refused_by_policy(team.owner, "probe"), what="the policies that refuse are in force")
        admin.delete("job", "probe")
        yield team
    finally:
        for registration in kept:
            document = json.loads(registration)
            document["metadata"] = {
                key: value for key, value in document["metadata"].items() if key in ("name", "labels", "annotations")
            }
            admin("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(document))
        admin("delete", "--wait=false", "-f", "-", stdin=rendered)


def _is_refused_by_policy(owner: Kubectl, name: str) -> bool:
    """Return whether a policy keeps the owner of a job from starting it."""
    try:
        owner("patch", "job", name, "--type=merge", "--dry-run=server", f"--patch={json.dumps(START)}")
    except KubectlError as error:
        return "ValidatingAdmissionPolicy" in error.stderr
    return False


def test_with_the_policies_alone_a_gang_still_waits_and_starts_whole(policies_only: Team) -> None:
    owner, admin = policies_only.owner, policies_only.admin
    give_queue(admin, 0)
    gang = job("gang", 2, pod_template(), QUEUE, suspend=False)
    if not policies.suspending():
        assert "is created suspended" in refused(owner, gang)
        gang = job("gang", 2, pod_template(), QUEUE, suspend=True)
    owner.create(gang)
    assert owner.get("job", "gang")["spec"]["suspend"] is True
    start = ("patch", "job", "gang", "--type=merge", f"--patch={json.dumps(START)}")
    assert "only Tutti starts" in owner.refused(*start)
    assert "written only by Tutti" in owner.refused("annotate", "job", "gang", "tutti.dev/admission=forged")
    set_gpus(admin, 2)
    runs(owner, "job-name=gang", 2)
    assert reserved(admin) == 2
    assert "queue of a running job" in owner.refused("label", "job", "gang", "tutti.dev/queue-name-")
    forged = pod("forged", pod_template(labels={"tutti.dev/gang": owner.get("job", "gang")["metadata"]["uid"]}))
    assert "made by the controller" in refused(owner, forged)
