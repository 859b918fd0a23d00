"""The read API as its users meet it: kubectl's words, their rights, and what queues show."""

import json
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.conftest import AnyCluster
from tests.e2e.controlplane.install import Installation
from tests.e2e.kubectl import Kubectl, condition, wait_until
from tests.e2e.objects import GPU, job, pod_template
from tests.e2e.queues import QUEUE, cluster_queue_of, give_queue, set_gpus

pytestmark = pytest.mark.usefixtures("tutti")

RAW = "/apis/visibility.tutti.dev/v1alpha1"


def workload_of(user: Kubectl, name: str) -> dict[str, Any]:
    """Return the workload of a Job."""
    uid = user.get("job", name)["metadata"]["uid"]
    found = wait_until(lambda: user.items("workloads", f"kueue.x-k8s.io/job-uid={uid}"), what=f"a workload of {name}")
    return found[0]


def waiting_for_quota(user: Kubectl, name: str) -> dict[str, Any]:
    """Return the workload of a Job that waits for quota; nothing while it says nothing of that."""
    found = workload_of(user, name)
    return found if found["status"].get("reason", {}).get("code") == "WaitingForQuota" else {}


def is_admitted(user: Kubectl, name: str) -> Callable[[], bool]:
    """Return whether a Job's workload says that it is admitted, as a question to wait for."""
    return lambda: condition(workload_of(user, name), "Admitted") == "True"


def test_a_waiting_gang_and_the_one_that_holds_its_quota_are_shown_to_their_owner(
    owner: Kubectl, admin: Kubectl
) -> None:
    queue = give_queue(admin, 2)
    owner.create(job("holder", 2, pod_template(), QUEUE))
    wait_until(is_admitted(owner, "holder"), what="the first is admitted")
    owner.create(job("late", 2, pod_template(), QUEUE))
    late = wait_until(lambda: waiting_for_quota(owner, "late"), what="a reason")
    reason = late["status"]["reason"]
    assert (reason["resource"], reason["asked"], reason["used"], reason["limit"]) == (GPU, "2", "2", "2")
    assert reason["holders"] == [{"gang": f"{owner.namespace}/holder", "amount": "2"}]
    assert condition(late, "QuotaReserved") == "False"

    names = {item["metadata"]["ownerReferences"][0]["name"]: item["metadata"]["name"] for item in owner.items("wl")}
    # Each line may come from the other replica, which may be a moment behind.
    wait_until(lambda: has_lines(owner, names["holder"], names["late"], queue), what="kubectl's table")
    assert "needs 2 more nvidia.com/gpu" in owner("describe", "workload", names["late"])
    set_gpus(admin, 4)
    owner("wait", "--for=condition=Admitted", f"workload/{names['late']}", "--timeout=30s")


def has_lines(owner: Kubectl, holder: str, late: str, queue: str) -> bool:
    """Assert that kubectl's tables show a workload that is admitted, and one that waits for its quota."""
    table = owner("get", "workloads").splitlines()
    assert table[0].split() == ["NAME", "QUEUE", "RESERVED", "IN", "ADMITTED", "FINISHED", "AGE", "REASON"]
    rows = {row.split()[0]: row.split() for row in table[1:]}
    assert rows.keys() == {holder, late}
    assert rows[holder][1:4] == [QUEUE, queue, "True"]
    assert rows[late][1:3] == [QUEUE, "False"]
    assert rows[late][-1] == "WaitingForQuota", "why it waits stands where its owner looks first"
    wide = owner("get", "workload", late, "-o", "wide").splitlines()[1].split()
    assert wide[-4:] == ["1", "0/2", "0", "WaitingForQuota"]
    return True


def test_a_watch_follows_a_gang_from_waiting_to_finished(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 0)
    owner.create(job("train", 1, pod_template(runtime="4s"), QUEUE))
    name = workload_of(owner, "train")["metadata"]["name"]
    columns = (
        'jsonpath={.status.conditions[?(@.type=="Admitted")].status}/{.status.conditions[?(@.type=="Finished")].status}'
    )
    command = [str(owner.program), f"--kubeconfig={owner.kubeconfig}", f"--namespace={owner.namespace}"]
    command += ["get", "workload", name, "--watch", "-o", columns + '{"\\n"}']
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
        try:
            assert watch.stdout is not None
            seen = [watch.stdout.readline().strip()]
            set_gpus(admin, 1)
            while "/True" not in seen[-1]:
                line = watch.stdout.readline()
                assert line, f"the watch ended after {seen}"
                seen.append(line.strip())
        finally:
            watch.terminate()
    assert seen[0] == "False/"
    assert "True/" in seen
    assert seen[-1] == "True/True"


def test_kubectl_explains_the_fields_of_workloads_and_queues(owner: Kubectl) -> None:
    assert "Gangs of its queue that are ahead of it" in owner("explain", "workload.status.position")
    assert "Most lent out of it" in owner("explain", "queue.spec.quota.lendingLimit")


def test_nobody_writes_workloads_and_only_who_may_see_the_namespace_reads_them(
    owner: Kubectl, admin: Kubectl, kubectl: Kubectl
) -> None:
    give_queue(admin, 0)
    owner.create(job("train", 1, pod_template(), QUEUE))
    name = workload_of(owner, "train")["metadata"]["name"]
    assert "read-only" in kubectl.in_namespace(owner.namespace).refused("delete", "workload", name)
    assert "forbidden" in owner.refused("get", "workloads", "--namespace=kube-system")
    assert "forbidden" in owner.refused("get", "queues", "--all-namespaces")
    shown = [f"queue.visibility.tutti.dev/{QUEUE}"]
    wait_until(lambda: owner("get", "queues", "--output=name").split() == shown, what="the queue")
    assert 'workloads.visibility.tutti.dev "nope" not found' in owner.refused("get", "workload", "nope")


def test_a_caller_without_the_front_proxys_certificate_is_refused_by_every_replica(
    tutti: Installation | None, cluster: AnyCluster
) -> None:
    if tutti is None:
        assert Kubectl(cluster.binaries["kubectl"], cluster.kubeconfig)("get", "--raw", RAW)
        return
    blind = ssl.create_default_context()
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    for replica in tutti.reconcilers:
        url = f"https://127.0.0.1:{replica.visibility_port}"
        request = urllib.request.Request(f"{url}{RAW}/workloads", headers={"X-Remote-User": "system:admin"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, context=blind, timeout=5)
        assert refused.value.code == 401
        assert json.loads(refused.value.read())["reason"] == "Unauthorized"
        with urllib.request.urlopen(f"{url}/healthz", context=blind, timeout=5) as probe:
            assert probe.status == 200


def test_replicas_answer_alike_whether_they_lead_or_follow(owner: Kubectl, admin: Kubectl) -> None:
    """Connections go to one replica after another; every answer must be the same."""
    give_queue(admin, 2)
    owner.create(job("holder", 2, pod_template(), QUEUE))
    wait_until(is_admitted(owner, "holder"), what="it is admitted")
    owner.create(job("late", 2, pod_template(), QUEUE))
    time.sleep(2)
    wait_until(lambda: len({first_conditions(owner) for _ in range(6)}) == 1, what="six answers are alike")


def first_conditions(owner: Kubectl) -> str:
    """Return the first condition of each of the two workloads, without the times that each replica notes for itself."""
    shown = {item["metadata"]["name"]: item["status"]["conditions"][0] for item in owner.items("workloads")}
    assert len(shown) == 2, shown
    for entry in shown.values():
        entry.pop("lastTransitionTime")
    return json.dumps([shown[name] for name in sorted(shown)], sort_keys=True)


def test_kubectl_shows_the_cohort_of_a_cluster_queue_by_either_spelling(admin: Kubectl) -> None:
    for name, field in (("new", "cohortName"), ("old", "cohort")):
        queue = cluster_queue_of(f"{admin.namespace}-{name}", 1)
        queue["spec"] |= {field: f"{admin.namespace}-together"}
        admin.apply(queue)
        for served in ("cq", "clusterqueues.v1beta1.kueue.x-k8s.io"):
            heading, row = admin("get", served, f"{admin.namespace}-{name}").splitlines()
            assert heading.split()[:2] == ["NAME", "COHORT"]
            assert row.split()[:2] == [f"{admin.namespace}-{name}", f"{admin.namespace}-together"]


def test_queues_show_counts_and_usage_where_kueues_users_look(owner: Kubectl, admin: Kubectl) -> None:
    queue = give_queue(admin, 2)
    for name in ("first", "second", "third"):
        owner.create(job(name, 2, pod_template(), QUEUE))

    def counted() -> bool:
        status = admin.get("clusterqueue", queue).get("status", {})
        local = owner("get", "localqueue", QUEUE).splitlines()[1].split()
        return (status.get("pendingWorkloads"), status.get("admittedWorkloads"), local[2:4]) == (2, 1, ["2", "1"])

    wait_until(counted, what="two wait and one runs")
    status = admin.get("clusterqueue", queue)["status"]
    gpus = next(r for r in status["flavorsUsage"][0]["resources"] if r["name"] == GPU)
    assert (gpus["total"], condition({"status": status}, "Active")) == ("2", "True")
    seen = {admin.get("clusterqueue", queue)["metadata"]["resourceVersion"] for _ in range(3)}
    time.sleep(6)
    seen.add(admin.get("clusterqueue", queue)["metadata"]["resourceVersion"])
    assert len(seen) == 1, "nothing changed, so nothing is written"
