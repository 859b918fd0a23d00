"""The leader dies or freezes between any two of its writes: the standby finishes the work, nothing counts twice."""

import json
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest
import yaml

from tests.e2e.conftest import Team, create_namespace
from tests.e2e.controlplane.install import NAMESPACE, Installation, Replica
from tests.e2e.facts import told
from tests.e2e.kubectl import Kubectl, KubectlError, condition, stays, wait_until
from tests.e2e.load import Load
from tests.e2e.objects import GPU, job, pod_template
from tests.e2e.queues import (
    QUEUE,
    claimants,
    cluster_queue_of,
    give_cohort,
    give_queue,
    reservations,
    reserved,
    set_gpus,
)
from tests.e2e.watching import Watch
from webhook.core.notation import names
from webhook.dialects.elastic_quota_tree import QUEUE_NAMESPACE
from webhook.visibility.http.group import FULL_NAME

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
GANGS: Final = 24
"""So many are admitted by one ledger write and started one after the other."""
ATTEMPTS: Final = 5
"""A kill that came too late to catch the leader at work is tried again."""

Moment = Callable[[Watch, Watch], bool]
"""Whether the leader is where it should die, judged by the watches of the ledger and of the jobs."""


def entries_written(ledger: Watch, jobs: Watch) -> bool:
    """Return whether the ledger reserves for the team's gangs."""
    where = jobs.namespace + "/"
    return any(where in text for change in ledger.changes for text in (change.item.get("data") or {}).values())


def first_started(ledger: Watch, jobs: Watch) -> bool:
    """Return whether some gang was un-suspended."""
    return any(change.item["spec"].get("suspend") is False for change in jobs.changes)


def is_led_by_another(tutti: Installation, former: Replica) -> bool:
    """Return whether somebody else took over."""
    return tutti.leader is not former


def deaths_heard_of(tutti: Installation, name: str) -> int:
    """Return how often others were told that the process of this name has died while it held the lease."""
    logs = [replica.component.log.read_text() for replica in tutti.reconcilers]
    lines = [json.loads(line) for log in logs for line in log.splitlines() if "lease.holder_died" in line]
    return sum(line["holder"].rpartition("_")[0] == name for line in lines)


def ledger_watch(team: Team) -> Watch:
    """Return a watch of the ledger's namespace."""
    return Watch(team.admin.in_namespace(NAMESPACE), "configmaps")


def wait_for_moment(ledger: Watch, jobs: Watch, moment: Moment) -> None:
    """Return as soon as the moment has come: every millisecond counts here."""
    deadline = time.monotonic() + 30
    while not moment(ledger, jobs):
        assert time.monotonic() < deadline, "the gangs were not admitted"
        time.sleep(0.0005)


def create_gangs(owner: Kubectl, count: int, pods: int = 1, runtime: str = "") -> None:
    """Create some gangs in one call."""
    owner.create(
        yaml.safe_dump_all([job(f"gang-{n}", pods, pod_template(runtime=runtime), QUEUE) for n in range(count)])
    )


def started(team: Team) -> list[dict[str, Any]]:
    """Return the team's jobs that are stored unsuspended."""
    return [item for item in team.owner.items("jobs") if not item["spec"].get("suspend")]


def first_write_after(ledger: Watch, since: float, dead: str) -> float:
    """Return the seconds from ``since`` to the first write of the ledger by another replica than ``dead``."""

    def found() -> float:
        for change in ledger.changes:
            text = change.item["metadata"].get("annotations", {}).get(names.LEASE_ANNOTATION, "{}")
            holder = (json.loads(text).get("holderIdentity") or "").rpartition("_")[0]
            if change.at_seconds > since and holder not in ("", dead):
                return change.at_seconds - since
        return 0

    return wait_until(found, 30, what="another replica writes the ledger", poll_seconds=0.05)


def kill_at(tutti: Installation, team: Team, moment: Moment) -> tuple[int, float]:
    """Kill the leader at a moment; return how many gangs it had started, and the seconds to the next ledger write."""
    give_queue(team.admin, 0)
    create_gangs(team.owner, GANGS)
    jobs_watch = Watch(team.owner, "jobs", "/apis/batch/v1")
    with ledger_watch(team) as ledger, jobs_watch as jobs:
        dying = tutti.leader
        set_gpus(team.admin, GANGS)
        wait_for_moment(ledger, jobs, moment)
        dying.component.send(signal.SIGKILL)
        died = time.monotonic()
        running = len(started(team))
        assert len(reservations(team.admin)) == GANGS, "one ledger write reserved for all"
        seconds = first_write_after(ledger, died, dying.name)
    dying.component.kill()
    dying.component.start()
    return running, seconds


def assert_finished_once(team: Team) -> None:
    """Wait until every gang runs with one pod, and the ledger holds each once."""
    wait_until(lambda: len(team.owner.pods(phase="Running")) == GANGS, 60, what="the standby starts the rest")
    assert len(started(team)) == GANGS
    assert len(reservations(team.admin)) == GANGS
    assert reserved(team.admin) == GANGS
    stays(lambda: len(team.owner.items("pods")) == GANGS, 1, "each gang has one pod")


def assert_nothing_is_left(team: Team) -> None:
    """Delete all jobs and wait until the ledger forgot them."""
    team.owner("delete", "jobs", "--all", "--wait=false")
    wait_until(lambda: not reservations(team.admin) and not team.owner.items("pods"), 60, what="everything is freed")


@pytest.mark.parametrize("moment", [entries_written, first_started])
def test_a_standby_finishes_what_a_killed_leader_had_begun(
    breakable: Installation, team: Team, moment: Moment, capsys: pytest.CaptureFixture[str]
) -> None:
    with Load(team.api, f"{team.jobs}?dryRun=All", lambda n: job(f"ask-{n}", 1, pod_template(), QUEUE)) as asked:
        for _ in range(ATTEMPTS):
            running, seconds = kill_at(breakable, team, moment)
            with capsys.disabled():
                print(f"\nleader killed with {running} of {GANGS} started; next ledger write after {seconds:.1f} s")
            assert_finished_once(team)
            if running < GANGS and (moment is entries_written or running > 0):
                break
            assert_nothing_is_left(team)
        else:
            pytest.fail("every kill came too late")
        assert_nothing_is_left(team)
    assert not asked.failures
    assert len(asked.stored) > 20
    assert all(item["spec"]["suspend"] for item in asked.stored), "the webhook decided each"


def test_leaders_killed_at_random_lose_no_gang_and_admit_none_twice(breakable: Installation, team: Team) -> None:
    gpus, gangs = 8, 24
    give_queue(team.admin, gpus)
    with Watch(team.owner) as pods:
        create_gangs(team.owner, gangs, pods=2, runtime="1s")
        for pause_seconds in (0.3, 1.1):
            time.sleep(pause_seconds)
            dying = breakable.leader
            heard = deaths_heard_of(breakable, dying.name)
            dying.component.kill()
            wait_until(partial(is_led_by_another, breakable, dying), what="the standby leads")
            # Later on it may have begun to lead just before, and nobody was connected to it yet.
            assert pause_seconds > 1 or deaths_heard_of(breakable, dying.name) == heard + 1
            dying.component.start()
        wait_until(
            lambda: all(condition(item, "Complete") == "True" for item in team.owner.items("jobs")),
            90,
            what="every gang completes",
        )
        wait_until(lambda: not reservations(team.admin), what="the ledger is empty")
        for _, existing in pods.live():
            holding = [p for p in existing.values() if p["status"].get("phase") not in ("Succeeded", "Failed")]
            assert len(holding) <= gpus, "more pods than the queue has GPUs"
        assert len({change.item["metadata"]["uid"] for change in pods.changes}) == 2 * gangs


def test_room_that_others_are_stopped_for_is_kept_when_another_leads(breakable: Installation, team: Team) -> None:
    """The guest's pods take long to go. What comes meanwhile is more urgent than the host, and too late."""
    admin, owner = team.admin, team.owner
    give_cohort(admin, "lender", "borrower", gpus=2)
    urgent = {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": f"{admin.namespace}-urgent"}}
    admin.apply(urgent | {"value": 7})
    for count, name in enumerate(("own", "guest"), 1):
        owner.apply(job(name, 2, pod_template(), "borrower"))
        wait_until(lambda count=count: len(owner.pods(phase="Running")) == 2 * count, what=f"{name} runs")  # type: ignore[misc]
    going = [pod["metadata"]["name"] for pod in owner.pods("job-name=guest")]
    for name in going:
        admin.patch("pod", name, {"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking", "example.com/slow"]}})
    owner.apply(job("host", 2, pod_template(), "lender"))
    wait_until(lambda: claimants(admin) == ["host"], what="the guest is stopped for the host")
    dying = breakable.leader
    dying.component.send(signal.SIGKILL)
    late = job("late", 2, pod_template(), "lender")
    late["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = f"{admin.namespace}-urgent"
    owner.apply(late)
    wait_until(partial(is_led_by_another, breakable, dying), 30, what="the standby leads")
    wait_until(lambda: told(owner, "late", "Queued"), what="the standby has decided about the late one")
    assert claimants(admin) == ["host"]
    for name in going:
        admin.patch("pod", name, {"metadata": {"finalizers": None}})
    wait_until(lambda: len(owner.pods("job-name=host", "Running")) == 2, what="the host has what it was to have")
    assert sorted(reservations(admin)) == ["host", "own"]
    assert not claimants(admin)
    assert owner.get("job", "late")["spec"]["suspend"] is True


def test_what_runs_in_queues_that_vanished_while_tutti_was_down_stays_charged_whatever_they_were_written_in(
    breakable: Installation, team: Team
) -> None:
    """A ClusterQueue, a leaf of an ElasticQuotaTree, a queue of Volcano's, and a cohort between a queue and the top."""
    admin, owner = team.admin, team.owner
    name, system = admin.namespace, admin.in_namespace("kube-system")
    give_cohort(admin, "gone", "left", gpus=2)
    give_between(admin)
    left = cluster_queue_of(f"{name}-left", 2)
    left["spec"] |= {"cohortName": name}
    admin.apply(left)
    create_namespace(admin, f"{name}-leaf")
    leaf = admin.in_namespace(f"{name}-leaf")
    system.apply(tree_of(name, f"{name}-leaf"))
    volcano = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": f"{name}-volcano"}}
    entry = json.dumps(volcano | {"spec": {"capability": {GPU: 2}, "deserved": {GPU: 2}}})
    policy = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tutti-policy"}}
    admin.in_namespace(NAMESPACE).apply(policy | {"data": {"volcano": entry}})
    labels = partial(admin.get, "namespace", f"{name}-leaf")
    wait_until(lambda: names.GATED_NAMESPACE in labels()["metadata"]["labels"], what="the leaf is gated")
    probe = job("probe", 1, pod_template())
    wait_until(lambda: '"suspend": true' in leaf.create(probe, "--dry-run=server", "-o", "json"), what="label seen")
    owner.create(job("old", 2, pod_template(), "gone"))
    owner.create(job("volcano", 2, pod_template(), f"{name}-volcano"))
    owner.create(job("below", 2, pod_template(), "below"))
    leaf.create(job("leaf", 2, pod_template()))
    wait_until(lambda: len(owner.pods(phase="Running")) == 6 and len(leaf.pods(phase="Running")) == 2, what="all run")
    for replica in breakable.replicas:
        replica.component.kill()
    admin("delete", "validatingwebhookconfiguration", "tutti")
    wait_until(lambda: admin.delete("clusterqueue", f"{name}-gone"), what="the API server has seen that")
    admin.delete("cohort", f"{name}-between")
    admin.in_namespace(NAMESPACE).delete("configmap", "tutti-policy")
    system.delete("elasticquotatree", "elasticquotatree")
    breakable.apply_manifests()
    breakable.announce_authority()
    for replica in breakable.replicas:
        replica.component.start()
    breakable.wait_ready()
    owner.create(job("new", 2, pod_template(), "left"))
    waits = wait_until(lambda: told(owner, "new", "Queued"), what="the other queue's job is told why it waits")[-1]
    assert f"{name}/old" in waits
    shown = wait_until(lambda: queues_shown(admin), what="the API server has found the read API again")
    leaves = wait_until(lambda: queues_shown(admin.in_namespace(QUEUE_NAMESPACE), QUEUE_NAMESPACE), what="leaves")
    for queue in (f"{name}-gone", f"{name}-volcano"):
        assert shown[f"(deleted) {queue}"]["status"]["usage"][GPU] == "2"
    assert leaves["(deleted) root/leaf"]["status"]["usage"][GPU] == "2"
    assert shown[f"{name}-top"]["status"]["usage"][GPU] == "2", "what was lent below a cohort that went"
    owner.delete("job", "old")
    wait_until(lambda: len(owner.pods("job-name=new", "Running")) == 2, 60, "it starts when that is gone")
    owner.delete("job", "volcano", "below")
    leaf.delete("job", "leaf")
    wait_until(lambda: none_deleted(queues_shown(admin)), 60, "and are shown no more")
    admin.delete("namespace", f"{name}-leaf")


def none_deleted(shown: dict[str, Any]) -> bool:
    """Return whether queues are shown, and none that was deleted."""
    return bool(shown) and not any(each.startswith("(deleted)") for each in shown)


def give_between(admin: Kubectl) -> None:
    """Create a queue without GPUs, below a cohort that is below another, in which a queue has two to lend."""
    name = admin.namespace
    queue, lender = cluster_queue_of(f"{name}-below", 0), cluster_queue_of(f"{name}-lender", 2)
    queue["spec"] |= {"cohortName": f"{name}-between"}
    lender["spec"] |= {"cohortName": f"{name}-top"}
    local = {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": "below"}}
    for each, spec in ((f"{name}-top", {}), (f"{name}-between", {"parentName": f"{name}-top"})):
        admin.apply({"apiVersion": KUEUE, "kind": "Cohort", "metadata": {"name": each}, "spec": spec})
    admin.apply(queue)
    admin.apply(lender)
    admin.apply(local | {"spec": {"clusterQueue": f"{name}-below"}})


def tree_of(name: str, namespace: str) -> dict[str, Any]:
    """Return a tree of one leaf of two GPUs, which is the queue of a namespace."""
    amounts = {key: {"cpu": 10, GPU: 2} for key in ("min", "max")}
    root = {"name": "root", **amounts, "children": [{"name": "leaf", "namespaces": [namespace], **amounts}]}
    metadata = {"name": "elasticquotatree", "namespace": "kube-system", "labels": {"of": name}}
    head = {"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree", "metadata": metadata}
    return head | {"spec": {"root": root}}


def test_a_leader_that_was_frozen_steps_down_when_it_wakes_and_writes_nothing(
    breakable: Installation, team: Team
) -> None:
    give_queue(team.admin, 1)
    frozen = breakable.leader
    heard = deaths_heard_of(breakable, frozen.name)
    frozen.component.send(signal.SIGSTOP)
    create_gangs(team.owner, 2)
    wait_until(lambda: len(team.owner.pods(phase="Running")) == 1, what="the standby leads and admits one")
    frozen.component.send(signal.SIGCONT)
    stays(lambda: breakable.leader is not frozen and len(started(team)) == 1, 3, "it leads no longer")
    assert frozen.component.running
    assert deaths_heard_of(breakable, frozen.name) == heard, "nobody takes it for dead"
    assert reserved(team.admin) == 1


def queues_shown(admin: Kubectl, namespace: str = NAMESPACE) -> dict[str, Any]:
    """Return the queues that the read API shows, by full name; none while the API server does not reach it."""
    try:
        found = admin.in_namespace(namespace).items("queues")
    except KubectlError:
        return {}
    return {item["metadata"]["annotations"][FULL_NAME]: item for item in found}
