"""What people get wrong and what breaks: a clear error, a warning or a rebuilt ledger; nothing that runs stops."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, Final

import pytest
import yaml

from tests.e2e.conftest import Team
from tests.e2e.controlplane.install import NAMESPACE, Installation
from tests.e2e.kubectl import Kubectl, stays, wait_until
from tests.e2e.objects import GPU, deployment, job, jobset, pod, pod_template
from tests.e2e.queues import QUEUE, cluster_queue_of, give_queue, reservations, reserved, stored_ledger
from tests.e2e.watching import Watch
from webhook.core.notation import names

MIB: Final = 2**20


def refused(kubectl: Kubectl, manifest: dict[str, Any]) -> str:
    """Apply an object that must be refused, and return what its user reads."""
    return kubectl.refused("apply", "-f", "-", stdin=yaml.safe_dump(manifest))


# -- policy and queues ------------------------------------------------------------------------------------------------


def test_a_malformed_policy_is_refused_with_path_value_and_fix(tutti: Installation | None, admin: Kubectl) -> None:
    broken = cluster_queue_of(f"{admin.namespace}-broken", "four")
    message = refused(admin, broken)
    assert (
        "/spec/resourceGroups/0/flavors/0/resources/1/nominalQuota: four: is not a quantity; write text such as"
        in message
    )
    tree = {
        "apiVersion": "scheduling.sigs.k8s.io/v1beta1",
        "kind": "ElasticQuotaTree",
        "metadata": {"name": "elasticquotatree", "namespace": "kube-system"},
        "spec": {"root": {"name": "root", "min": {GPU: 8}, "max": {GPU: 4}}},
    }
    message = refused(admin.in_namespace("kube-system"), tree)
    assert "/spec/root" in message
    assert "8" in message
    entry = yaml.safe_dump(cluster_queue_of(f"{admin.namespace}-broken", "-1"))
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tutti-policy"}, "data": {"a": entry}}
    message = refused(admin.in_namespace(NAMESPACE), config)
    assert "nominalQuota" in message
    assert "-1" in message


def test_a_job_of_an_unknown_queue_is_told_so_and_waits_until_the_queue_exists(
    tutti: Installation | None, owner: Kubectl, admin: Kubectl
) -> None:
    owner.create(job("early", 2, pod_template(), QUEUE))
    assert f"no queue '{QUEUE}' in namespace {owner.namespace}, as far as Tutti has seen yet" in owner.warnings
    stays(lambda: owner.get("job", "early")["spec"]["suspend"] and not owner.pods(), 2, "it waits")
    give_queue(admin, 2)
    wait_until(lambda: len(owner.pods(phase="Running")) == 2, what="it starts when the queue is there")


def test_a_queue_label_on_what_cannot_wait_is_never_passed_in_silence(
    tutti: Installation | None, owner: Kubectl, admin: Kubectl
) -> None:
    labels = {"tutti.dev/queue-name": QUEUE}
    serving = deployment("serving", 1, pod_template())
    serving["metadata"]["labels"] = labels
    owner.create(serving)
    assert "label tutti.dev/queue-name on a Deployment does not make it wait" in owner.warnings
    owner.create(pod("single", pod_template(labels=labels)))
    assert "label tutti.dev/queue-name has no effect on a single Pod" in owner.warnings
    wait_until(lambda: len(owner.pods(phase="Running")) == 2, what="both run all the same")


def test_a_malformed_gang_is_refused_with_both_numbers(
    tutti: Installation | None, owner: Kubectl, admin: Kubectl
) -> None:
    give_queue(admin, 2)
    manifest = job("least", 2, pod_template(), QUEUE)
    manifest["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": "5"}
    message = refused(owner, manifest)
    assert "5" in message
    assert "2" in message


# -- large reviews ----------------------------------------------------------------------------------------------------


def post(tutti: Installation, path: str, body: bytes) -> tuple[int, bytes]:
    """Post to the webhook past the API server, and return status and body; 0 when it hangs up while we write."""
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    unchecked.load_cert_chain(*tutti.cluster.reviewer)
    address = f"https://127.0.0.1:{tutti.webhook_port}{path}?timeout=10s"
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=20, context=unchecked) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return 0, b""


def large_job(megabytes: float) -> dict[str, Any]:
    """Return a Job whose environment is so large."""
    manifest = job("large", 1, pod_template(), QUEUE)
    variables = [{"name": f"V{n}", "value": "x" * 65_536} for n in range(int(megabytes * 16))]
    manifest["spec"]["template"]["spec"]["containers"][0]["env"] = variables
    return manifest


def review(megabytes: float) -> bytes:
    """Return a review of a job so large, as the API server would send it."""
    request = {
        "uid": "6a1c",
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
        "namespace": "default",
        "name": "large",
        "operation": "CREATE",
        "userInfo": {"username": "ann"},
        "object": large_job(megabytes),
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def test_a_review_of_seven_mebibytes_is_answered_and_a_larger_one_is_no_crash(breakable: Installation) -> None:
    large = review(6.9)
    assert 6.5 * MIB < len(large) < 7 * MIB
    status, body = post(breakable, "/mutate/jobs", large)
    assert status == 200
    answer = json.loads(body)["response"]
    assert answer["uid"] == "6a1c"
    assert answer["allowed"]
    assert answer["patch"]
    assert post(breakable, "/mutate/jobs", review(9))[0] in (0, 413)
    assert post(breakable, "/mutate/jobs", b"{" * 100)[0] == 400
    assert all(replica.component.running for replica in breakable.webhooks)
    assert post(breakable, "/mutate/jobs", review(0.1))[0] == 200


def test_the_largest_job_that_the_api_server_stores_waits_and_starts(
    tutti: Installation | None, owner: Kubectl, admin: Kubectl
) -> None:
    give_queue(admin, 1)
    owner.create(large_job(1.2), "--validate=false")
    wait_until(lambda: len(owner.pods(phase="Running")) == 1, what="it runs")


# -- the ledger -------------------------------------------------------------------------------------------------------


def deleted(system: Kubectl) -> None:
    """Delete the ledger."""
    system("delete", "configmap", names.LEDGER_NAME)


def edited(system: Kubectl, change: Callable[[dict[str, str], str], dict[str, str | None]]) -> None:
    """Change the ledger's data as ``change`` says; it is given the data and the key of some entry."""
    data = system.get("configmap", names.LEDGER_NAME)["data"]
    system.patch("configmap", names.LEDGER_NAME, {"data": change(data, next(key for key in data if key != "meta"))})


def an_entry_lowered(system: Kubectl) -> None:
    """Make an entry hold less than its gang runs."""
    edited(system, lambda data, uid: {uid: data[uid].replace('"count":2', '"count":1')})


def an_entry_removed(system: Kubectl) -> None:
    """Remove an entry: its gang would be forgotten."""
    edited(system, lambda data, uid: {uid: None})


def nonsense(system: Kubectl) -> None:
    """Write what is not JSON."""
    edited(system, lambda data, uid: {"meta": "{", uid: "???"})


def emptied(system: Kubectl) -> None:
    """Remove everything."""
    edited(system, lambda data, uid: dict.fromkeys(data))


@pytest.mark.parametrize("harm", [deleted, an_entry_lowered, an_entry_removed, nonsense, emptied])
def test_a_ledger_that_is_harmed_by_hand_is_rebuilt_and_what_runs_stays_counted(
    breakable: Installation, team: Team, harm: Callable[[Kubectl], None]
) -> None:
    owner, admin, system = team.owner, team.admin, team.admin.in_namespace(NAMESPACE)
    give_queue(admin, 4)
    owner.create(job("first", 2, pod_template(), QUEUE))
    owner.create(jobset("second", 2, pod_template(), QUEUE))
    wait_until(lambda: len(owner.pods(phase="Running")) == 4, what="two gangs run")
    owner.create(job("third", 2, pod_template(), QUEUE))
    # Any entry may be the one that is harmed, and gangs of earlier tests are let go of with their namespaces.
    before = wait_until(lambda: alone(admin), 90, "no other gang is in the ledger")
    tracked = system("get", "configmap", "tutti-ledger", "--output=jsonpath={.metadata.managedFields}")
    assert not tracked, "the API server does not work out who wrote which key"
    with Watch(owner) as pods:
        harm(system)
        rebuilt = wait_until(lambda: later(admin, before.epoch), what="the ledger is rebuilt")
        wait_until(lambda: set(reservations(admin)) == {"first", "second"}, what="what runs is in it")
        assert reserved(admin) == 4
        assert rebuilt.epoch > before.epoch
        stays(lambda: owner.get("job", "third")["spec"]["suspend"], 2, "the waiting gang finds no room")
        assert not pods.changes, "nothing that runs was touched"
    owner.delete("job", "first")
    wait_until(lambda: len(owner.pods("job-name=third", "Running")) == 2, what="it starts when there is room")
    wait_until(lambda: set(reservations(admin)) == {"second", "third"}, what="the ledger says so")
    events = [event["note"] if "note" in event else event["message"] for event in system.items("events")]
    assert any("reservations were taken from the jobs themselves" in text for text in events)
    if harm is not deleted:
        assert any(
            item["metadata"]["name"].startswith("tutti-ledger-quarantine") for item in system.items("configmaps")
        )
    assert all(replica.component.running for replica in breakable.replicas)


def alone(kubectl: Kubectl) -> Any:
    """Return the stored ledger once all that it holds are gangs of the namespace."""
    found = stored_ledger(kubectl)
    theirs = () if found is None else [each for each in found.entries.values() if each.namespace != kubectl.namespace]
    return None if theirs else found


def later(kubectl: Kubectl, epoch: int) -> Any:
    """Return the stored ledger once it is of a later epoch; what cannot be read yet is not."""
    try:
        found = stored_ledger(kubectl)
    except ValueError:
        return None
    return found if found is not None and found.epoch > epoch else None
