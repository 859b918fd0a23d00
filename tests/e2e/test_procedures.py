"""What docs/operating.md tells people to do, done as it is written: upgrade, and break the glass."""

import json
from collections.abc import Iterator

import pytest

from tests.e2e import policies
from tests.e2e.conftest import Team, create_namespace, member
from tests.e2e.controlplane.cluster import Cluster, Shape
from tests.e2e.controlplane.install import Installation
from tests.e2e.kubectl import Kubectl, stays, wait_until
from tests.e2e.load import api_of
from tests.e2e.objects import job, pod_template
from tests.e2e.page_commands import block_with
from tests.e2e.queues import QUEUE, give_queue, reservations
from tests.e2e.shell import Shell
from tests.e2e.watching import Watch

pytestmark = pytest.mark.own_cluster

REGISTRATIONS = "validatingwebhookconfiguration,mutatingwebhookconfiguration"
BINDINGS = ("validatingadmissionpolicybinding", *(["mutatingadmissionpolicybinding"] if policies.suspending() else []))


@pytest.fixture(scope="module")
def tutti_of_its_own() -> Iterator[Installation]:
    """Tutti on a cluster that no other test uses."""
    with Cluster(Shape(nodes=1)) as started:
        yield Installation(started).install()


@pytest.fixture
def squad(tutti_of_its_own: Installation, request: pytest.FixtureRequest) -> Team:
    """A namespace with a queue of two GPUs, both taken by a gang that runs."""
    cluster, name = tutti_of_its_own.cluster, f"squad-{abs(hash(request.node.name)) % 10_000}"
    root = Kubectl(cluster.binaries["kubectl"], cluster.kubeconfig)
    create_namespace(root, name)
    made = Team(root.in_namespace(name), member(cluster, root, name, f"{name}-owner"), api_of(cluster, f"{name}-owner"))
    give_queue(made.admin, 2)
    made.owner.create(job("running", 2, pod_template(), QUEUE))
    wait_until(lambda: len(runs(made, "running")) == 2, what="a gang runs")
    return made


def runs(squad: Team, name: str) -> list[object]:
    """Return the running pods of a Job."""
    return [*squad.owner.pods(f"job-name={name}", "Running")]


def waits(squad: Team, name: str) -> bool:
    """Return whether a Job is stored suspended."""
    return squad.owner.get("job", name)["spec"]["suspend"] is True


def born_suspended(squad: Team) -> bool:
    """Return whether a queued Job would be stored suspended."""
    stored = squad.owner.create(job("probe", 1, pod_template(), QUEUE), "--dry-run=server", "--output=json")
    return json.loads(stored)["spec"].get("suspend", False) is True


def test_an_upgrade_touches_no_running_gang_and_the_next_one_waits_and_starts(
    tutti_of_its_own: Installation, squad: Team
) -> None:
    with Watch(squad.owner) as pods:
        tutti_of_its_own.apply_manifests()
        for replica in tutti_of_its_own.replicas:
            replica.component.stop(grace_seconds=4)
            replica.component.start()
            tutti_of_its_own.wait_ready()
        squad.owner.create(job("next", 2, pod_template(), QUEUE))
        stays(lambda: waits(squad, "next"), 2, "the next waits")
        assert not [change for change in pods.changes if change.kind == "DELETED"]
    squad.owner("delete", "job", "running")
    wait_until(lambda: len(runs(squad, "next")) == 2, what="the next starts")


def test_with_the_glass_broken_jobs_run_at_once_and_are_counted_and_the_next_wait_again(
    tutti_of_its_own: Installation, squad: Team
) -> None:
    owner, shell = squad.owner, Shell(squad.admin)
    owner.create(job("patient", 1, pod_template(), QUEUE))
    shell(f"kubectl apply --server-side -k manifests/overlays/{policies.overlay().name}")
    shell(f"kubectl delete {REGISTRATIONS} tutti")
    for bindings in BINDINGS:
        shell(f"kubectl delete {bindings} -l app.kubernetes.io/part-of=tutti")
    wait_until(lambda: not born_suspended(squad), what="the API server has taken note of the policies' end")
    owner.create(job("urgent", 2, pod_template(), QUEUE))
    wait_until(lambda: len(runs(squad, "urgent")) == 2, what="a job runs past its queue")
    wait_until(lambda: reservations(squad.admin).keys() == {"running", "urgent"}, what="it is counted")
    assert waits(squad, "patient")

    tutti_of_its_own.apply_manifests()
    untrusted = ("label", "job", "patient", "x=y", "--dry-run=server")
    wait_until(lambda: "failed calling webhook" in owner.refused(*untrusted), what="they are registered again")
    tutti_of_its_own.announce_authority()
    wait_until(lambda: owner("label", "job", "patient", "--overwrite", "x=y"), what="the webhook is trusted again")
    # Each registration is learnt for itself: the one that suspends, and the one that looks at what is changed.
    wait_until(lambda: owner.create(job("late", 1, pod_template(), QUEUE)), what="jobs are taken again")
    assert waits(squad, "late")
    assert len(runs(squad, "urgent")) == 2
    owner("delete", "job", "running", "urgent")
    wait_until(lambda: runs(squad, "patient") and runs(squad, "late"), what="those that waited start")


@pytest.mark.usefixtures("this_tutti")
def test_a_node_is_drained_by_the_commands_of_the_page_and_no_gang_of_it_fails(squad: Team) -> None:
    """Who waits is not let onto the node meanwhile, and what was held comes back at its place."""
    owner, shell = squad.owner, Shell(squad.admin)
    (pod, *_) = owner.pods("job-name=running")
    meant = {
        "NAMESPACE": owner.namespace,
        "pod/NAME": f"pod/{pod['metadata']['name']}",
        "job/NAME": "job/running",
        "NODE": "node-0",
    }
    block = "\n".join(block_with("operating.md", "kubectl cordon NODE"))
    for written, here in meant.items():
        block = block.replace(written, here)
    cordon, get, explain, hold, drain, uncordon, release = block.splitlines()
    owner.create(job("late", 2, pod_template(), QUEUE))
    shell(cordon)
    assert str(pod["metadata"]["name"]) in shell(get)
    assert shell(explain).startswith(f"Job {owner.namespace}/running ")
    shell(hold)
    shell(drain)
    stays(lambda: not owner.pods(), 3, "nothing runs there, nor does who waits")
    shell(uncordon)
    shell(release)
    wait_until(lambda: len(runs(squad, "running")) == 2 or len(runs(squad, "late")) == 2, what="the node is used again")
    owner.delete("job", "late")
    wait_until(lambda: len(runs(squad, "running")) == 2, what="what was held is back")
    assert not owner.get("job", "running")["status"].get("failed")
