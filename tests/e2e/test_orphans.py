"""Jobs that are deleted from above what they run, by somebody who may: that stays charged until it is gone."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.e2e.conftest import Team, create_namespace, member
from tests.e2e.controlplane.cluster import Cluster, Shape
from tests.e2e.controlplane.install import ROOT, Installation
from tests.e2e.kubectl import Kubectl, stays, wait_until
from tests.e2e.load import api_of
from tests.e2e.objects import job, jobset, pod_template, pytorchjob
from tests.e2e.queues import QUEUE, give_queue, reservations

pytestmark = pytest.mark.own_cluster


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster on which Tutti runs, a team of it, and where all of its jobs wait."""

    tutti: Installation
    team: Team


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A queue of four GPUs, in which a PyTorchJob of two pods ran before Tutti came."""
    with Cluster(Shape()) as cluster:
        root = Kubectl(cluster.binaries["kubectl"], cluster.kubeconfig)
        create_namespace(root, "busy")
        team = Team(root.in_namespace("busy"), member(cluster, root, "busy", "ann"), api_of(cluster, "ann"))
        team.owner.apply(pytorchjob("old", 1, pod_template(container="pytorch"), QUEUE))
        running(team.owner, 2)
        root("apply", "--server-side", "-k", str(ROOT / "manifests" / "crds"))
        wait_until(lambda: give_queue(team.admin, 4), what="policy is stored")
        yield Site(Installation(cluster).install(), team)


def running(owner: Kubectl, pods: int, selector: str = "") -> None:
    """Wait until so many pods run."""
    wait_until(lambda: len(owner.pods(selector, "Running")) == pods, what=f"{pods} pods run")


def test_what_was_orphaned_while_nobody_led_holds_its_quota_until_it_is_gone(site: Site) -> None:
    """A job that ran before Tutti, whose pods bear its name alone, and the Job of a JobSet that Tutti started. No
    process that saw it is left.
    """
    admin, owner, tutti = site.team.admin, site.team.owner, site.tutti
    wait_until(lambda: set(reservations(admin)) == {"old"}, what="what ran is adopted")
    owner.create(jobset("train", 2, pod_template(), QUEUE))
    running(owner, 4)
    for replica in tutti.reconcilers:
        replica.component.kill()
    admin("delete", "pytorchjob", "old", "--cascade=orphan")
    admin("delete", "job", "train-workers-0", "--cascade=orphan")
    assert not [pod for pod in owner.pods() if pod["metadata"].get("ownerReferences")], "nobody owns what runs"
    for replica in tutti.webhooks:
        replica.component.kill()
    for replica in tutti.replicas:
        replica.component.start()
    tutti.wait_ready()
    owner.delete("jobset", "train")
    owner.create(job("new", 2, pod_template(), QUEUE))
    stays(lambda: owner.get("job", "new")["spec"]["suspend"] and len(owner.pods()) == 4, 10, "the queue is full")
    assert set(reservations(admin)) == {"old", "train"}
    owner.delete("pod", *(pod["metadata"]["name"] for pod in owner.pods("training.kubeflow.org/job-name=old")))
    running(owner, 2, "job-name=new")
    assert set(reservations(admin)) == {"new", "train"}
    owner.delete("job", "new")
    owner.delete("pod", *(pod["metadata"]["name"] for pod in owner.pods()))
    wait_until(lambda: not reservations(admin), what="all of it is released")


def test_orphans_of_a_job_set_run_on_in_its_queue_where_all_jobs_wait(site: Site) -> None:
    """They were stopped and started again without a queue, beside whoever took their room."""
    admin, owner = site.team.admin, site.team.owner
    admin("label", "namespace", admin.namespace, "tutti.dev/gated=true")
    owner.create(jobset("train", 4, pod_template(), QUEUE))
    running(owner, 4)
    admin("delete", "jobset", "train", "--cascade=orphan")
    wait_until(lambda: not owner.get("job", "train-workers-0")["metadata"].get("ownerReferences"), what="an orphan")
    owner.create(job("new", 4, pod_template(), QUEUE))
    stays(lambda: owner.get("job", "new")["spec"]["suspend"] and len(owner.pods()) == 4, 10, "the queue is full")
    assert set(reservations(admin)) == {"train"}
    assert owner.get("job", "train-workers-0")["spec"]["suspend"] is False, "it runs on"
    owner.delete("job", "train-workers-0")
    running(owner, 4, "job-name=new")
    assert set(reservations(admin)) == {"new"}
