"""What a member of a team with the role ``edit`` tried to run beyond its quota: each refused, or without effect.

The table in docs/threat-model.md names these tests.
"""

import json
from functools import partial
from typing import Any

import pytest
import yaml

from tests.e2e.facts import uid_of
from tests.e2e.kubectl import Kubectl, condition, stays, wait_until
from tests.e2e.objects import (
    GPU,
    deployment,
    job,
    jobset,
    mpijob,
    pod,
    pod_template,
    pytorchjob,
    resource_quota,
    tfjob,
    xgboostjob,
)
from tests.e2e.queues import QUEUE, entries, gate_by_hand, give_queue, reserved

Manifest = dict[str, Any]

pytestmark = pytest.mark.usefixtures("tutti")

FOREIGN = "kueue.x-k8s.io/multikueue"
GANG = "tutti.dev/gang"
OURS = "is written only by Tutti"


def refused_create(owner: Kubectl, manifest: Manifest) -> str:
    """Create an object that must be refused, and return what its user reads."""
    return owner.refused("create", "-f", "-", stdin=yaml.safe_dump(manifest))


def refused_patch(owner: Kubectl, kind: str, name: str, patch: Manifest) -> str:
    """Send a merge patch that must be refused, and return what its user reads."""
    return owner.refused("patch", kind, name, "--type=merge", f"--patch={yaml.safe_dump(patch)}")


def running_gang(owner: Kubectl, admin: Kubectl, gpus: int = 2) -> str:
    """Fill the namespace's queue with a Job, and return its uid."""
    give_queue(admin, gpus)
    owner.create(job("gang", gpus, pod_template(), QUEUE, completions=3 * gpus))
    wait_until(lambda: len(owner.pods(phase="Running")) == gpus, what="the gang runs")
    return str(owner.get("job", "gang")["metadata"]["uid"])


# -- a gang's label on what is of no gang


def test_a_job_without_a_queue_does_not_take_the_places_of_a_gang_that_shrank(owner: Kubectl, admin: Kubectl) -> None:
    uid = running_gang(owner, admin)
    owner.patch("job", "gang", {"spec": {"parallelism": 1}})
    wait_until(lambda: len(owner.pods()) == 1, what="the gang has shrunk")
    squatting = {GANG: uid, "tutti.dev/pod-set": "main"}
    assert OURS in refused_create(owner, job("squat", 1, pod_template(labels=squatting)))
    owner.create(job("squat", 1, pod_template(), suspend=True))
    labelled = {"spec": {"template": {"metadata": {"labels": squatting}}}}
    assert OURS in refused_patch(owner, "job", "squat", labelled)
    nested = jobset("squat", 1, pod_template(labels=squatting))
    assert OURS in refused_create(owner, nested)
    stays(lambda: len(owner.pods()) == 1 and reserved(admin) == 2, 1, "no pod took a place")


def test_what_cannot_wait_does_not_bear_a_gangs_label(owner: Kubectl, admin: Kubectl) -> None:
    uid = running_gang(owner, admin)
    squatting = {GANG: uid, "tutti.dev/pod-set": "main"}
    for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"):
        made, clean = (deployment("squat", 0, pod_template(labels=labels)) for labels in (squatting, {}))
        for each in (made, clean):
            each["kind"] = kind
            if kind == "DaemonSet":
                del each["spec"]["replicas"]
                each["spec"]["template"]["spec"]["nodeSelector"] = {"no": "node"}
            elif kind == "StatefulSet":
                each["spec"]["serviceName"] = "squat"
        assert OURS in refused_create(owner, made)
        owner.create(clean)
        labelled = {"spec": {"template": {"metadata": {"labels": squatting}}}}
        assert OURS in refused_patch(owner, kind.lower(), "squat", labelled)
    cron = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": pod_template(labels=squatting)}}}
    assert OURS in refused_create(
        owner, {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "squat"}, "spec": cron}
    )
    assert OURS in refused_create(owner, pod("squat", pod_template(labels={"tutti.dev/pod-set": "main"})))
    owner.create(pod("squat", pod_template(gpus=0)))
    for key, value in squatting.items():
        assert OURS in owner.refused("label", "pod", "squat", f"{key}={value}")


# -- another controller's, then ours


def test_a_training_job_of_another_controller_does_not_start_here_when_that_is_taken_back(
    owner: Kubectl, admin: Kubectl
) -> None:
    give_queue(admin, 2)
    made = {
        "pytorchjob": pytorchjob("flip", 7, pod_template(container="pytorch"), QUEUE, managedBy=FOREIGN),
        "tfjob": tfjob("flip", 7, pod_template(container="tensorflow"), QUEUE, managedBy=FOREIGN),
        "mpijob": mpijob("flip", 7, pod_template(), QUEUE, managedBy=FOREIGN),
        "xgboostjob": xgboostjob("flip", 7, pod_template(container="xgboost"), QUEUE, managedBy=FOREIGN),
    }
    for kind, manifest in made.items():
        owner.create(manifest)
        for manager in (None, "kubeflow.org/training-operator"):
            patch = {"spec": {"runPolicy": {"managedBy": manager}}}
            refusal = refused_patch(owner, kind, "flip", patch)
            assert "would have to wait for Tutti, but it is already running" in refusal
    stays(lambda: not owner.pods() and not entries(admin), 1, "nothing started, nothing was adopted")


def test_what_another_controller_held_waits_when_it_is_taken_back_suspended(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 2)
    held = pytorchjob("flip", 1, pod_template(container="pytorch"), QUEUE, managedBy=FOREIGN, suspend=True)
    owner.create(held)
    stays(lambda: not entries(admin), 1, "it is not ours")
    owner.patch("pytorchjob", "flip", {"spec": {"runPolicy": {"managedBy": None}}})
    wait_until(lambda: len(owner.pods(phase="Running")) == 2, what="it was admitted")
    assert reserved(admin) == 2


def test_a_gang_is_not_given_to_another_controller(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 2)
    owner.create(pytorchjob("gang", 1, pod_template(container="pytorch"), QUEUE))
    wait_until(lambda: len(owner.pods(phase="Running")) == 2, what="the gang runs")
    owner.create(pytorchjob("waiting", 1, pod_template(container="pytorch"), QUEUE))
    for name in ("gang", "waiting"):
        message = refused_patch(owner, "pytorchjob", name, {"spec": {"runPolicy": {"managedBy": FOREIGN}}})
        assert "cannot be set to another controller" in message
        unlabelled = {"metadata": {"labels": {"tutti.dev/queue-name": None}}}
        refused_patch(owner, "pytorchjob", name, unlabelled | {"spec": {"runPolicy": {"managedBy": FOREIGN}}})


def test_a_training_job_that_runs_does_not_join_a_pod_group(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 2)
    owner.create(pytorchjob("free", 1, pod_template(gpus=0, container="pytorch")))
    wait_until(lambda: len(owner.pods(phase="Running")) == 2, what="it runs outside every queue")
    joining = owner.get("pytorchjob", "free")["spec"]["pytorchReplicaSpecs"]
    joining["Worker"]["template"].setdefault("metadata", {})["labels"] = {"scheduling.x-k8s.io/pod-group": "crew"}
    message = refused_patch(owner, "pytorchjob", "free", {"spec": {"pytorchReplicaSpecs": joining}})
    assert "would have to wait for Tutti, but it is already running" in message


# -- in a namespace where all jobs wait


@pytest.fixture
def gated(admin: Kubectl, owner: Kubectl) -> Kubectl:
    """The owner, in a namespace that is gated by hand, with 2 GPUs in its LocalQueue ``default``."""
    gate_by_hand(admin, 2)
    return owner


def test_the_label_of_the_default_queue_does_not_come_off_a_job_that_waits(gated: Kubectl, admin: Kubectl) -> None:
    gated.create(job("d1", 16, pod_template()))
    assert gated.get("job", "d1")["metadata"]["labels"]["tutti.dev/queue-name"] == "default"
    told = gated.refused("label", "job", "d1", "tutti.dev/queue-name-")
    assert "may change its queue (it is default), but not leave it" in told
    assert "not leave it" in gated.refused("label", "job", "d1", "tutti.dev/queue-name=", "--overwrite")
    stays(lambda: not gated.pods() and not entries(admin), 1, "it waits")
    gated("label", "job", "d1", "tutti.dev/queue-name=other", "--overwrite")


def test_a_job_that_claims_an_admitted_owner_is_neither_stripped_of_our_labels_nor_started(
    gated: Kubectl, admin: Kubectl
) -> None:
    gated.create(mpijob("ring", 1, pod_template()))
    wait_until(lambda: gated.get("mpijob", "ring")["spec"]["runPolicy"].get("suspend") is False, what="admitted")
    ring = gated.get("mpijob", "ring")
    refused_patch(gated, "mpijob", "ring", {"spec": {"runPolicy": {"managedBy": FOREIGN}}})
    claimed = job("claimed", 16, pod_template())
    reference = {"apiVersion": ring["apiVersion"], "kind": "MPIJob", "name": "ring", "uid": ring["metadata"]["uid"]}
    claims = {"metadata": {"ownerReferences": [reference | {"controller": True}]}}
    claiming = claimed | {"metadata": claimed["metadata"] | claims["metadata"]}
    assert "it names MPIJob ring as its controller" in refused_create(gated, claiming)
    gated.create(claimed)
    assert gated.get("job", "claimed")["spec"]["suspend"] is True
    refused_patch(gated, "job", "claimed", claims)
    refused_patch(gated, "job", "claimed", {"spec": {"suspend": False}} | claims)
    bare = {"spec": {"template": {"metadata": {"labels": {GANG: None, "tutti.dev/pod-set": None}}}}}
    stored = gated.get("job", "claimed")["spec"]
    gated.patch("job", "claimed", bare)
    assert gated.get("job", "claimed")["spec"] == stored, "they are put back"
    refused_patch(gated, "job", "claimed", bare | {"spec": {"suspend": False} | bare["spec"]})
    refused_patch(gated, "job", "claimed", {"spec": {"suspend": False}})
    refused_patch(gated, "job", "claimed", {"spec": {"suspend": False}, "metadata": {"ownerReferences": None}})
    assert not gated.pods("job-name=claimed")
    assert reserved(admin, GPU) <= 2


# -- pods


def test_nobody_but_a_node_makes_a_mirror_pod(owner: Kubectl, admin: Kubectl) -> None:
    running_gang(owner, admin)
    admin.apply(resource_quota("wall", **{f"requests.{GPU}": "4"}))
    fenced = "jsonpath={.metadata.labels.tutti\\.dev/fenced}"
    wait_until(lambda: admin("get", "namespace", admin.namespace, f"--output={fenced}") == "true", what="fenced")
    mirror = pod("mirror", pod_template())
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    mirror["spec"] = mirror["spec"] | {"nodeName": "node-0"}
    # The API server has read the namespace's label a moment later than it is stored.
    told = partial(owner.refused, "create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(mirror))
    wait_until(lambda: "spec.nodeName is preset to 'node-0'" in told(), what="pods of the namespace are judged")
    assert "spec.nodeName is preset to 'node-0'" in refused_create(owner, mirror)


def test_an_amount_that_no_pod_can_ask_is_refused_by_name(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 2)
    huge = pod_template(gpus=0, labels={"scheduling.x-k8s.io/pod-group": "crew"})
    huge["spec"]["containers"][0]["resources"] = {"requests": {"memory": "9E"}}
    message = refused_create(owner, pod("huge", huge))
    assert "spec.containers[0].resources.requests.memory" in message
    assert "write at most 9223372036854775" in message
    assert "9E" in refused_create(owner, job("huge", 1, huge, QUEUE))


def test_a_job_of_thousands_of_resources_or_tolerations_is_refused_and_stops_nobody(
    owner: Kubectl, admin: Kubectl
) -> None:
    """The first filled the ledger for everybody, also after it was deleted."""
    give_queue(admin, 2)
    greedy = job("greedy", 1, pod_template(), QUEUE)
    spec = greedy["spec"]["template"]["spec"]
    for names, why in (
        (30_000, "the review holds more than 20000 JSON values"),
        (5_000, "5000 names: are more than 1000"),
    ):
        spec["containers"][0]["resources"] = {"limits": {f"a.b/{number}": "9P" for number in range(names)}}
        assert why in owner.refused("create", "-f", "-", stdin=json.dumps(greedy))
    spec["containers"][0]["resources"] = {}
    spec["tolerations"] = [{"key": "a", "operator": "Exists"}] * 2_000
    assert "is more than 1000 tolerations" in owner.refused("create", "-f", "-", stdin=json.dumps(greedy))
    owner.create(job("honest", 2, pod_template(), QUEUE))
    wait_until(lambda: len(owner.pods(phase="Running")) == 2, what="others run")


# -- a gang that is stopped gives its room back


def test_pods_of_a_gang_cannot_be_made_to_go_for_ever(owner: Kubectl, admin: Kubectl) -> None:
    """Who waits for their room would wait as long."""
    running_gang(owner, admin)
    slow = pod_template()
    slow["spec"]["terminationGracePeriodSeconds"] = 10**9
    assert "terminationGracePeriodSeconds: 3600 or less" in refused_create(owner, job("slow", 1, slow, QUEUE))
    first, second = (found["metadata"]["name"] for found in owner.pods(phase="Running"))
    assert "within an hour" in owner.refused("delete", "pod", first, "--grace-period=999999999", "--wait=false")
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": first, "namespace": owner.namespace},
        "deleteOptions": {"gracePeriodSeconds": 10**9},
    }
    path = f"/api/v1/namespaces/{owner.namespace}/pods/{first}/eviction"
    assert "within an hour" in owner.refused("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
    owner("delete", "pod", second, "--grace-period=1", "--wait=false")


def test_a_finalizer_on_pods_that_never_had_a_node_holds_no_room(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 2)
    stuck = pod_template()
    stuck["metadata"] = stuck.get("metadata", {}) | {"finalizers": ["example.com/never"]}
    stuck["spec"]["schedulerName"] = "nobody"
    owner.create(job("stuck", 2, stuck, QUEUE))
    wait_until(lambda: len(owner.pods("job-name=stuck")) == 2, what="its pods wait for a node")
    names = [found["metadata"]["name"] for found in owner.pods("job-name=stuck")]
    owner("delete", "job", "stuck", "--wait=false")
    owner.create(job("next", 2, pod_template(), QUEUE))
    wait_until(lambda: len(owner.pods("job-name=next", phase="Running")) == 2, what="the next one starts")
    for name in names:
        owner.patch("pod", name, {"metadata": {"finalizers": None}})


def test_an_account_of_namespace_default_is_no_operator_whatever_its_name(owner: Kubectl, admin: Kubectl) -> None:
    uid = running_gang(owner, admin)
    for account in ("kuberay-operator", "spark-operator", "training-operator", "jobset-controller-manager"):
        admin("create", "rolebinding", account, "--clusterrole=edit", f"--serviceaccount=default:{account}")
        member = pod("member", pod_template(labels={GANG: uid, "tutti.dev/pod-set": "main"}))
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "gang", "uid": uid, "controller": True}
        member["metadata"]["ownerReferences"] = [reference]
        acting = f"--as=system:serviceaccount:default:{account}"
        refused = partial(admin.refused, "create", "-f", "-", acting, stdin=yaml.safe_dump(member))
        # Until its rights are in force, it is refused for want of them.
        wait_until(
            lambda refused=refused: "only its controller creates its pods" in refused(), what=f"{account} is told"
        )


def test_a_pod_of_a_gang_keeps_the_labels_by_which_its_controller_finds_it(owner: Kubectl, admin: Kubectl) -> None:
    """The Job controller lets go of a pod that it finds no more: it would run on when the gang is stopped."""
    running_gang(owner, admin)
    name = owner.pods(phase="Running")[0]["metadata"]["name"]
    for label in ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"):
        assert "its controller would release the pod" in owner.refused("label", "pod", name, f"{label}-")
        assert "its controller would release the pod" in owner.refused(
            "label", "pod", name, f"{label}=x", "--overwrite"
        )
    owner("label", "pod", name, "debug=yes")
    owner("label", "pod", name, "debug-")
    owner.patch("job", "gang", {"spec": {"suspend": True}})
    wait_until(lambda: not owner.pods("job-name=gang"), what="all its pods go")


def made_again(owner: Kubectl, name: str) -> None:
    """Delete a JobSet's Job with its pods, and wait until two pods of another one run in its place."""
    deleted = uid_of(owner, "job", name)
    owner("delete", "job", name, "--wait=false")
    wait_until(lambda: uid_of(owner, "job", name) != deleted, what="its controller makes it again")
    selector = f"controller-uid={uid_of(owner, 'job', name)}"
    wait_until(lambda: len(owner.pods(selector, phase="Running")) == 2, what="and so its pods")


def test_what_an_admitted_job_made_is_not_deleted_from_above_its_pods(owner: Kubectl, admin: Kubectl) -> None:
    """They would run on when the job is stopped, or deleted."""
    give_queue(admin, 2)
    owner.create(jobset("set", 2, pod_template(), QUEUE))
    wait_until(lambda: len(owner.pods(phase="Running")) == 2, what="it runs")
    for kept in (
        owner.refused("delete", "job", "set-workers-0", "--cascade=orphan"),
        owner.refused("delete", "--raw", f"/apis/batch/v1/namespaces/{owner.namespace}/jobs/set-workers-0"),
    ):  # two policies refuse it, and the API server tells of either
        assert "pods of an admitted job go with it" in kept or "controller would make it again" in kept, kept
    made_again(owner, "set-workers-0")
    owner("delete", "jobset", "set", "--wait=false")
    wait_until(lambda: not owner.pods(), what="all of it goes")


@pytest.mark.parametrize("queues", ["by a LocalQueue", "by the namespace's label alone, as a leaf of a tree has"])
def test_what_a_job_of_no_queue_made_is_not_deleted_from_above_its_pods_either(
    owner: Kubectl, admin: Kubectl, queues: str
) -> None:
    """It bears no more marks than what ran before Tutti came: four pods would run of a job that is charged for two."""
    owner.create(jobset("old", 2, pod_template()))
    wait_until(lambda: len(owner.pods(phase="Running")) == 2, what="it runs")
    again = "controller would make it again"
    if queues == "by a LocalQueue":
        give_queue(admin, 2)

    def in_force() -> bool:
        if queues != "by a LocalQueue":
            # A reconciler that has not read yet that a job needs it takes it away once.
            admin("label", "namespace", admin.namespace, "tutti.dev/gated=policy", "--overwrite")
        return again in owner.refused("delete", "job", "old-workers-0", "--cascade=orphan", "--dry-run=server")

    wait_until(in_force, what="the policy is in force here")
    assert again in owner.refused("delete", "job", "old-workers-0", "--cascade=orphan")
    assert again in owner.refused("delete", "--raw", f"/apis/batch/v1/namespaces/{owner.namespace}/jobs/old-workers-0")
    (reference,) = owner.get("job", "old-workers-0")["metadata"]["ownerReferences"]
    for stripped in ([], [{**reference, "controller": False}], [{**reference, "uid": "another"}]):
        bare = {"ownerReferences": stripped or None, "labels": None}
        assert again in refused_patch(owner, "job", "old-workers-0", {"metadata": bare}), stripped
    owner("label", "job", "old-workers-0", "team=b")
    made_again(owner, "old-workers-0")


def test_nobody_has_the_garbage_collector_leave_pods_behind(owner: Kubectl, admin: Kubectl) -> None:
    """It may delete anything, and lets go of the pods of whatever bears finalizer orphan."""
    give_queue(admin, 2)
    owner.create(jobset("set", 2, pod_template(), QUEUE))
    wait_until(lambda: len(owner.pods(phase="Running")) == 2, what="it runs")
    asked = {"metadata": {"finalizers": ["orphan"]}}
    for kind, name in (("job", "set-workers-0"), ("jobset", "set")):
        told = owner.refused("patch", kind, name, "--type=merge", "-p", json.dumps(asked))
        assert "finalizer orphan would leave pods behind" in told, told
    made = job("born", 1, pod_template(), QUEUE)
    made["metadata"] |= asked["metadata"]
    assert "finalizer orphan would leave" in owner.refused("create", "-f", "-", stdin=yaml.safe_dump(made))
    other = {"metadata": {"finalizers": ["example.com/keep"]}}
    owner.patch("jobset", "set", other)
    owner("delete", "jobset", "set", "--wait=false")
    owner.patch("jobset", "set", {"metadata": {"finalizers": None}})
    wait_until(lambda: not owner.pods(), what="all of it goes")


def test_the_jobs_of_a_job_set_that_waits_do_not_start_without_its_queue(gated: Kubectl, admin: Kubectl) -> None:
    """Nothing was admitted, so that nobody minds that they are let go; a Job that is made there is given a queue."""
    gated.create(jobset("set", 16, pod_template()))
    wait_until(lambda: gated.items("jobs"), what="its controller makes its Job, suspended")
    gated("delete", "jobset", "set", "--cascade=orphan")
    wait_until(lambda: not gated.get("job", "set-workers-0")["metadata"].get("ownerReferences"), what="an orphan")
    stays(lambda: not gated.pods() and not entries(admin), 5, "it waits")
    wait_until(lambda: "names no queue of its own" in str(gated.items("workloads")), what="its workload says why")


def test_a_job_of_no_queue_does_not_overdraw_one_by_what_it_made(owner: Kubectl, admin: Kubectl) -> None:
    """What it made names a queue that it does not wait in, and is let go of while it runs."""
    give_queue(admin, 2)
    made = jobset("set", 3, pod_template())
    made["spec"]["replicatedJobs"][0]["template"].setdefault("metadata", {})["labels"] = {
        "kueue.x-k8s.io/queue-name": QUEUE
    }
    owner.create(made)
    wait_until(lambda: len(owner.pods(phase="Running")) == 3, what="it runs, beside the queue")
    owner("delete", "jobset", "set", "--cascade=orphan")
    wait_until(lambda: owner.get("job", "set-workers-0")["spec"].get("suspend"), what="it is to wait")
    wait_until(lambda: not owner.pods(), what="its pods go")
    stays(lambda: not entries(admin), 3, "the queue is charged for none of it")
    wait_until(lambda: "set-workers-0" in str(owner.items("workloads")), what="it waits in the queue that it names")


def test_a_job_of_a_job_set_that_has_ended_is_made_again_in_room_that_the_set_still_holds(
    owner: Kubectl, admin: Kubectl
) -> None:
    """Others get none of its room while it runs: whoever it belongs to may have any Job of it run once more."""
    give_queue(admin, 2)
    made = jobset("set", 1, pod_template(), QUEUE)
    short = jobset("set", 1, pod_template(runtime="2s"))["spec"]["replicatedJobs"][0] | {"name": "short"}
    made["spec"]["replicatedJobs"].append(short)
    owner.create(made)
    wait_until(
        lambda: condition(owner.get("job", "set-short-0"), "Complete") == "True", what="one of its Jobs has ended"
    )
    owner.create(job("other", 1, pod_template(), QUEUE))
    stays(lambda: not owner.pods("job-name=other"), 5, "another gang waits all the same")
    ended = uid_of(owner, "job", "set-short-0")
    owner("delete", "job", "set-short-0", "--wait=false")
    wait_until(lambda: uid_of(owner, "job", "set-short-0") != ended, what="its controller makes it again")
    wait_until(lambda: condition(owner.get("job", "set-short-0"), "Complete") == "True", what="it runs to its end")
    assert not owner.pods("job-name=other")
    owner("delete", "jobset", "set", "--wait=false")
    wait_until(lambda: owner.pods("job-name=other", phase="Running"), what="with the set its room is free")


def test_an_elastic_job_does_not_run_again_what_has_ended(owner: Kubectl, admin: Kubectl) -> None:
    """The Job controller forgets indexes beyond the completions, and would run them once there are more again."""
    give_queue(admin, 2)
    owner.create(job("gang", 2, pod_template(), QUEUE, completionMode="Indexed"))
    wait_until(lambda: len(owner.pods(phase="Running")) == 2, what="it runs")
    (last,) = (each["metadata"]["name"] for each in owner.pods() if each["metadata"]["name"].startswith("gang-1-"))
    ended = json.dumps({"status": {"phase": "Succeeded"}})
    admin("patch", "pod", last, "-n", owner.namespace, "--subresource=status", "--type=merge", "-p", ended)
    wait_until(lambda: owner.get("job", "gang")["status"].get("completedIndexes") == "1", what="index 1 has ended")
    told = refused_patch(owner, "job", "gang", {"spec": {"parallelism": 1, "completions": 1}})
    assert "1 of pod set main has ended, and might run again" in told, told


def test_a_job_that_was_admitted_is_not_deleted_from_above_its_pods(owner: Kubectl, admin: Kubectl) -> None:
    """Nobody could stop them any more: whoever is owed their room would wait for ever."""
    running_gang(owner, admin)
    assert "pods of an admitted job go with it" in owner.refused("delete", "job", "gang", "--cascade=orphan")
    path = f"/apis/batch/v1/namespaces/{owner.namespace}/jobs/gang"
    assert "pods of an admitted job go with it" in owner.refused("delete", "--raw", path)
    owner("delete", "job", "gang", "--wait=false")
    wait_until(lambda: not owner.pods(), what="its pods go with it")
