"""What a tenant tries through the API server's less usual doors: each refused, or of no use.

Server-side apply, subresources, finalizers, names that come again, odd amounts, ownerReferences, and what the
administrator of a namespace may write besides jobs. The table in docs/threat-model.md names these tests.
"""

import copy
import json
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import create_namespace, member
from tests.e2e.controlplane.cluster import Cluster
from tests.e2e.kubectl import Kubectl, KubectlError, stays, wait_until
from tests.e2e.objects import GPU, job, jobset, pod, pod_template, pytorchjob, resource_quota
from tests.e2e.queues import QUEUE, entries, give_cohort, give_queue, reservations, reserved

Manifest = dict[str, Any]

pytestmark = pytest.mark.usefixtures("tutti")

HELD_BACK = "example.com/never"
"""A finalizer that nobody takes away."""


def gangs(pods: int = 2) -> dict[str, Manifest]:
    """Return a gang of single-GPU pods of each sort of kind."""
    return {
        "job": job("gang", pods, pod_template(), QUEUE),
        "jobset": jobset("gang", pods, pod_template(), QUEUE),
        "pytorchjob": pytorchjob("gang", pods - 1, pod_template(container="pytorch"), QUEUE),
    }


def running(owner: Kubectl, pods: int, selector: str = "") -> None:
    """Wait until exactly so many pods run."""
    wait_until(lambda: len(owner.pods(selector, phase="Running")) == pods, what=f"{pods} pods run")


def starts_beside(owner: Kubectl, name: str = "beside") -> None:
    """Let another job of the namespace's queue start: it is stopped by nothing of the attack."""
    owner.create(job(name, 1, pod_template(), QUEUE))
    running(owner, 1, f"job-name={name}")


# -- other ways to write the same fields


def test_server_side_apply_by_force_takes_nothing_of_a_gang_that_waits(owner: Kubectl, admin: Kubectl) -> None:
    """Under the field managers of others too: whoever owned a field before, what is stored is judged."""
    give_queue(admin, 0)
    for kind, manifest in gangs().items():
        owner.create(manifest)
        for manager in ("tutti", "tutti-reconciler", "kube-controller-manager"):
            apply = ("apply", "--server-side", "--force-conflicts", f"--field-manager={manager}", "-f", "-")
            started = copy.deepcopy(manifest)
            holder = started["spec"].setdefault("runPolicy", {}) if kind == "pytorchjob" else started["spec"]
            holder["suspend"] = False
            assert "only Tutti un-suspends it" in owner.refused(*apply, stdin=yaml.safe_dump(started))
            forged = copy.deepcopy(manifest)
            forged["metadata"]["annotations"] = {"tutti.dev/admission": "{}"}
            assert "is written only by Tutti" in owner.refused(*apply, stdin=yaml.safe_dump(forged))
            unlabelled = copy.deepcopy(manifest)
            unlabelled["metadata"]["labels"] = {"tutti.dev/queue-name": ""}
            assert "but not none" in owner.refused(*apply, stdin=yaml.safe_dump(unlabelled))
            owner(*apply, stdin=yaml.safe_dump(manifest))
            manifest_without = copy.deepcopy(manifest)
            del manifest_without["metadata"]["labels"]["tutti.dev/queue-name"]
            # Whoever applied a label takes it away by applying the object without it.
            with suppress(KubectlError):
                owner(*apply, stdin=yaml.safe_dump(manifest_without))
            assert owner.get(kind, "gang")["metadata"]["labels"]["tutti.dev/queue-name"] == QUEUE
    stays(lambda: not owner.pods() and not entries(admin), 1, "nothing started")


def test_a_json_patch_that_tests_moves_and_copies_starts_no_gang(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 0)
    owner.create(job("gang", 2, pod_template(), QUEUE))
    tricks: list[list[Manifest]] = [
        [{"op": "test", "path": "/spec/suspend", "value": True}, {"op": "remove", "path": "/spec/suspend"}],
        [{"op": "copy", "from": "/spec/template/spec/automountServiceAccountToken", "path": "/spec/suspend"}],
        [
            {"op": "remove", "path": "/metadata/labels/tutti.dev~1queue-name"},
            {"op": "replace", "path": "/spec/suspend", "value": False},
        ],
        [{"op": "move", "from": "/metadata/labels/tutti.dev~1queue-name", "path": "/metadata/labels/moved"}],
    ]
    owner.patch("job", "gang", {"metadata": {"annotations": {"note": "x"}}})
    for trick in tricks:
        assert owner.refused("patch", "job", "gang", "--type=json", f"--patch={json.dumps(trick)}")
    assert owner.get("job", "gang")["spec"]["suspend"] is True


def test_a_job_that_is_replaced_whole_is_judged_as_it_is_when_changed(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 0)
    for kind, manifest in gangs().items():
        owner.create(manifest)
        stored = owner.get(kind, "gang")
        started = copy.deepcopy(stored)
        del started["metadata"]["resourceVersion"]
        (started["spec"]["runPolicy"] if kind == "pytorchjob" else started["spec"])["suspend"] = False
        replace = partial(owner.refused, "replace", "-f", "-", stdin=json.dumps(started))
        # Its controller may write its status between kubectl's reading and writing: that conflict is no judgement.
        wait_until(lambda replace=replace: "only Tutti un-suspends it" in replace(), what=f"the {kind} is judged")
        group, _, _ = stored["apiVersion"].partition("/")
        other = stored | {"apiVersion": f"{group}/v9"}
        assert "no matches for kind" in owner.refused("replace", "-f", "-", stdin=json.dumps(other))
        fresh = copy.deepcopy(manifest)
        (fresh["spec"].setdefault("runPolicy", {}) if kind == "pytorchjob" else fresh["spec"])["suspend"] = False
        owner("replace", "--force", "-f", "-", stdin=json.dumps(fresh))
        new = owner.get(kind, "gang")
        assert new["metadata"]["uid"] != stored["metadata"]["uid"]
        assert (new["spec"]["runPolicy"] if kind == "pytorchjob" else new["spec"])["suspend"] is True
    stays(lambda: not owner.pods() and not entries(admin), 1, "nothing started")


def test_a_role_that_edits_a_namespace_writes_neither_status_nor_bindings_nor_rights(
    owner: Kubectl, admin: Kubectl
) -> None:
    """Kubernetes's own roles keep these from tenants; the rest of the model counts on it."""
    give_queue(admin, 0)
    owner.create(job("gang", 2, pod_template(), QUEUE))
    done = json.dumps({"status": {"conditions": [{"type": "Complete", "status": "True"}]}})
    told = owner.refused("patch", "job", "gang", "--subresource=status", "--type=merge", f"--patch={done}")
    assert "forbidden" in told
    boss = f"{admin.namespace}-boss"
    admin("create", "rolebinding", boss, "--clusterrole=admin", f"--user={boss}")
    rights = (
        ("patch", "jobs/status", "batch"),
        ("patch", "pods/status", ""),
        ("create", "pods/binding", ""),
        ("create", "bindings", ""),
        ("top", "workloads", "visibility.tutti.dev"),
        ("ungate", "namespaces", ""),
        ("use", "clusterqueues", "kueue.x-k8s.io"),
    )
    for verb, resource, group in rights:
        rule = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
        head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "more"}}
        told = partial(
            admin.refused, "create", "-f", "-", f"--as={boss}", stdin=yaml.safe_dump(head | {"rules": [rule]})
        )
        said = "attempting to grant RBAC permissions not currently held"
        # Until its own rights are in force, it is refused for want of them.
        wait_until(lambda told=told, said=said: said in told(), what=f"nobody gives the right to {verb} {resource}")


def test_a_pod_behind_our_gate_is_bound_to_no_node_by_hand(owner: Kubectl, admin: Kubectl) -> None:
    """Not even by those who may write bindings."""
    give_queue(admin, 0)
    group = pod_template(labels={"scheduling.x-k8s.io/pod-group": "crew", "tutti.dev/queue-name": QUEUE})
    owner.create(
        {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": "crew"},
            "spec": {"minMember": 1},
        }
    )
    owner.create(pod("waits", group))
    assert owner.get("pod", "waits")["spec"]["schedulingGates"]
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "waits", "namespace": owner.namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-0"},
    }
    path = f"/api/v1/namespaces/{owner.namespace}/pods/waits/binding"
    assert "forbidden" in owner.refused("create", "--raw", path, "-f", "-", stdin=json.dumps(binding)).lower()
    told = admin.refused("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))
    assert "schedulingGates" in told
    lifted = [{"op": "remove", "path": "/spec/schedulingGates"}]
    assert "Tutti" in owner.refused("patch", "pod", "waits", "--type=json", f"--patch={json.dumps(lifted)}")


# -- what keeps an object for ever


@pytest.mark.parametrize("kind", ["job", "jobset", "pytorchjob"])
def test_a_job_that_a_finalizer_keeps_gives_back_what_it_borrowed(owner: Kubectl, admin: Kubectl, kind: str) -> None:
    """Its controller looks at it no more once it is being deleted: whoever is owed its room would wait."""
    give_cohort(admin, QUEUE, "lender", gpus=2)
    kept = gangs(4)[kind]
    kept["metadata"]["finalizers"] = [HELD_BACK]
    owner.create(kept)
    running(owner, 4)
    owner("delete", kind, "gang", "--cascade=background", "--wait=false")
    stays(lambda: len(owner.pods(phase="Running")) == 4, 1, "its pods run on")
    owner.create(job("owed", 2, pod_template(), "lender"))
    running(owner, 2, "job-name=owed")
    assert "deletionTimestamp" in owner.get(kind, "gang")["metadata"]
    stays(lambda: len(owner.pods(phase="Running")) <= 4, 1, "nothing of it comes again")
    owner.patch(kind, "gang", {"metadata": {"finalizers": None}})


def test_workers_that_outlive_their_training_job_are_stopped_for_who_is_owed_their_room(
    owner: Kubectl, admin: Kubectl
) -> None:
    """With cleanPodPolicy None they run on when the master has ended, and their operator looks at them no more."""
    give_cohort(admin, QUEUE, "lender", gpus=2)
    left = pytorchjob("gang", 3, pod_template(container="pytorch"), QUEUE, cleanPodPolicy="None")
    left["spec"]["pytorchReplicaSpecs"]["Master"]["template"] = pod_template(container="pytorch", runtime="1s")
    owner.create(left)
    wait_until(lambda: len(owner.pods(phase="Succeeded")) == 1, what="the master has ended")
    running(owner, 3)
    owner.create(job("owed", 2, pod_template(), "lender"))
    running(owner, 2, "job-name=owed")


def test_a_namespace_that_comes_again_owes_nothing_of_the_one_before(
    cluster: Cluster, owner: Kubectl, admin: Kubectl, kubectl: Kubectl
) -> None:
    queue = give_queue(admin, 2)
    owner.create(job("gang", 2, pod_template(), QUEUE))
    running(owner, 2)
    admin("delete", "namespace", admin.namespace, "--wait=true", timeout_seconds=120)
    create_namespace(kubectl, admin.namespace)
    again = member(cluster, kubectl, admin.namespace, f"{admin.namespace}-owner")
    assert give_queue(admin, 2) == queue
    again.create(job("gang", 2, pod_template(), QUEUE))
    running(again, 2)
    assert reserved(admin) == 2


# -- names that come again


def test_jobs_that_replace_each_other_under_one_name_hold_what_one_may(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 2)
    for _ in range(8):
        owner.create(job("gang", 2, pod_template(), QUEUE))
        owner("delete", "job", "gang", "--cascade=foreground", "--wait=false")
        wait_until(lambda: not owner("get", "job", "gang", "--ignore-not-found"), what="the name is free")
        assert len(owner.pods(phase="Running")) <= 2
    owner.create(job("gang", 2, pod_template(), QUEUE))
    running(owner, 2)
    held = reservations(admin)
    assert held["gang"].uid == owner.get("job", "gang")["metadata"]["uid"]
    assert reserved(admin) == 2


def test_names_that_the_api_server_makes_up_are_each_a_job_of_their_own(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 2)
    made = job("", 1, pod_template(), QUEUE)
    del made["metadata"]["name"]
    made["metadata"]["generateName"] = "sweep-"
    for _ in range(4):
        owner.create(made)
    running(owner, 2)
    stays(lambda: len(owner.pods()) == 2 and reserved(admin) == 2, 1, "two run, two wait")


# -- amounts, names and references of odd shapes


def test_an_amount_in_any_spelling_is_charged_as_the_api_server_reads_it_or_refused(
    owner: Kubectl, admin: Kubectl
) -> None:
    """A PyTorchJob's schema takes amounts that no pod could ask; a Job's are checked as those of a pod."""
    give_queue(admin, 2)
    for number, odd in enumerate(("١", "0x1", "1e", "--1", "1e1.5", "9" * 400, "-1", "-1E-9", -1, "NaN")):
        template = pod_template(container="pytorch")
        template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = odd
        owner.refused("create", "-f", "-", stdin=json.dumps(pytorchjob(f"odd-{number}", 1, template, QUEUE)))
        owner.refused("create", "-f", "-", stdin=json.dumps(job(f"odd-{number}", 1, template, QUEUE)))
    for number, amount in enumerate(("+1", " 1", "1e0", "1E-9", ".5", "1.", "1000m", "0", 1)):
        template = pod_template(gpus=0, container="pytorch")
        template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = amount
        owner.create(json.dumps(job(f"said-{number}", 1, template, QUEUE)))
        running(owner, number + 1)
    held = {entry.name: entry.pod_sets[0].price.requests.get("cpu", 0) for entry in entries(admin)}
    # The API server stores no cpu finer than a thousandth, and rounds up.
    assert [held[f"said-{number}"] for number in range(9)] == [1000, 1000, 1000, 1, 500, 1000, 1000, 0, 1000]


def test_a_gang_with_names_and_labels_as_long_as_they_may_be_starts(owner: Kubectl, admin: Kubectl) -> None:
    queue, label = "q" * 63, "l" * 63
    give_queue(admin, 2, queue)
    long = pod_template(labels={label: label, f"{'p.' * 20}example.com/{label}": label})
    made = job("j" * 63, 2, long, queue)
    made["metadata"]["annotations"] = {f"example.com/{label}": "x" * 200_000}
    owner.create(made)
    running(owner, 2)
    assert reserved(admin) == 2


def test_jobs_that_own_each_other_or_what_is_not_there_wait_like_any_other(owner: Kubectl, admin: Kubectl) -> None:
    """Two that own each other are a ring; a walk up the owners has to end."""
    queue = give_queue(admin, 1)
    for name in ("one", "two", "three"):
        owner.create(job(name, 2, pod_template(), QUEUE))
    uids = {name: owner.get("job", name)["metadata"]["uid"] for name in ("one", "two", "three")}

    def owned(by: str, uid: str, kind: str = "Job", version: str = "batch/v1") -> list[Manifest]:
        return [{"apiVersion": version, "kind": kind, "name": by, "uid": uid, "controller": True}]

    clusters = admin.get("clusterqueue", queue)["metadata"]["uid"]
    patches = {
        "one": owned("two", uids["two"]),
        "two": owned("one", uids["one"]),
        "three": owned("three", uids["three"]),
    }
    for name, references in patches.items():
        with suppress(KubectlError):
            owner.patch("job", name, {"metadata": {"ownerReferences": references}})
        owner.refused("patch", "job", name, "--type=merge", '--patch={"spec":{"suspend":false}}')
    queued = job("queued", 2, pod_template(), QUEUE)
    queued["metadata"]["ownerReferences"] = owned(queue, clusters, "ClusterQueue", "kueue.x-k8s.io/v1beta2")
    owner.create(queued)
    nobody = job("nobody", 2, pod_template(), QUEUE)
    nobody["metadata"]["ownerReferences"] = owned("gone", "00000000-0000-0000-0000-000000000000")
    owner.create(nobody)
    assert not owner.pods()
    starts_beside(owner)
    assert reserved(admin) == 1


# -- what leaves a trace, and what there may be many of


def test_a_dry_run_takes_no_room_of_anybody(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 4)
    starts_beside(owner)
    admin.apply(resource_quota("wall", **{f"requests.{GPU}": "3"}))
    fenced = "jsonpath={.metadata.labels.tutti\\.dev/fenced}"
    wait_until(lambda: admin("get", "namespace", admin.namespace, f"--output={fenced}") == "true", what="fenced")
    # Kubernetes refuses pods until it has counted what a new ResourceQuota limits.
    wait_until(lambda: owner.create(pod("first", pod_template()), "--dry-run=server"), what="the quota is counted")
    for number in range(12):
        owner.create(pod(f"loose-{number}", pod_template()), "--dry-run=server")
        owner.create(job(f"gang-{number}", 2, pod_template(), QUEUE), "--dry-run=server")
    assert reserved(admin) == 1
    owner.create(pod("loose-0", pod_template()))
    owner.create(pod("loose-1", pod_template()))
    running(owner, 3)


def test_hundreds_of_pod_groups_in_one_go_keep_nobody_waiting(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 1)
    groups = [
        {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": f"crew-{number}"},
            "spec": {"minMember": 1 + number},
        }
        for number in range(300)
    ]
    owner("create", "-f", "-", stdin=yaml.safe_dump_all(groups), timeout_seconds=120)
    starts_beside(owner)


# -- what the administrator of a namespace writes besides


def test_a_limit_range_that_comes_after_admission_makes_no_pod_larger_than_its_place(
    owner: Kubectl, admin: Kubectl
) -> None:
    """It writes on pods what their job did not ask."""
    give_queue(admin, 8)
    small = pod_template(gpus=0)
    # One that is not over when a pod of it is lost.
    owner.create(job("gang", 2, small, QUEUE, backoffLimit=6))
    running(owner, 2)
    item = {"type": "Container", "default": {GPU: "4"}, "defaultRequest": {GPU: "4"}}
    limits = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "large"}, "spec": {"limits": [item]}}
    admin.apply(limits)
    shown = ("--dry-run=server", "--output=jsonpath={.spec.containers[0].resources.limits}")
    wait_until(lambda: GPU in owner.create(pod("probe", small), *shown), what="the limits are in force")
    owner.delete("pod", owner.pods(phase="Running")[0]["metadata"]["name"])
    wait_until(lambda: len(owner.pods(phase="Running")) == 1, what="a pod of it is gone")
    stays(lambda: not [p for p in owner.pods() if GPU in json.dumps(p["spec"])], 3, "no larger one takes its place")
    assert reserved(admin) == 0
    owner.create(job("after", 1, pod_template(), QUEUE))
    running(owner, 1, "job-name=after")


def test_quotas_of_nothing_in_one_namespace_stop_that_namespace_alone(
    cluster: Cluster, owner: Kubectl, admin: Kubectl, kubectl: Kubectl
) -> None:
    give_cohort(admin, QUEUE, gpus=2)
    for number in range(20):
        admin.apply(resource_quota(f"none-{number}", **{f"requests.{GPU}": "0", "pods": "0", "count/jobs.batch": "50"}))
    owner.create(job("gang", 2, pod_template(), QUEUE))
    other = f"{admin.namespace}-b"
    create_namespace(kubectl, other)
    neighbour, boss = member(cluster, kubectl, other, f"{other}-owner"), kubectl.in_namespace(other)
    give_queue(boss, 2)
    neighbour.create(job("gang", 2, pod_template(), QUEUE))
    running(neighbour, 2)
    assert not owner.pods()
    kubectl.delete("namespace", other)


def test_a_template_with_gates_of_its_own_holds_no_more_than_it_was_given(owner: Kubectl, admin: Kubectl) -> None:
    """Its pods wait for nobody. Whoever is owed their room gets it."""
    give_cohort(admin, QUEUE, "lender", gpus=2)
    gated = pod_template()
    gated["spec"]["schedulingGates"] = [{"name": "example.com/never"}]
    owner.create(job("gang", 4, gated, QUEUE))
    wait_until(lambda: len(owner.pods()) == 4 and reserved(admin) == 4, what="it holds what it was given")
    owner.create(job("owed", 2, pod_template(), "lender"))
    running(owner, 2, "job-name=owed")
    ours = pod_template()
    ours["spec"]["schedulingGates"] = [{"name": "tutti.dev/admission"}]
    owner.create(job("gated", 1, ours, QUEUE))
    stays(lambda: not owner.pods("job-name=gated"), 2, "our gate on a job's pods is ours to write")
