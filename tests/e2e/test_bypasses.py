"""Ways around the queue that a team's member may try: each is refused with a message that helps."""

import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import AnyCluster, create_namespace, member
from tests.e2e.controlplane.install import Installation
from tests.e2e.kubectl import Kubectl, stays, wait_until
from tests.e2e.objects import GPU, job, jobset, pod, pod_template, pytorchjob, resource_quota
from tests.e2e.queues import QUEUE, give_queue, reservations, reserved, set_gpus

Manifest = dict[str, Any]

pytestmark = pytest.mark.usefixtures("tutti")

GANGS = {
    "job": lambda name, pods=2, **template: job(name, pods, pod_template(**template), QUEUE, completions=3 * pods),
    "jobset": lambda name, pods=2, **template: jobset(name, pods, pod_template(**template), QUEUE),
    "pytorchjob": lambda name, pods=2, **template: pytorchjob(
        name, pods - 1, pod_template(container="pytorch", **template), QUEUE
    ),
}
"""A gang of some single-GPU pods, of each kind."""
SUSPEND = {"job": ("suspend",), "jobset": ("suspend",), "pytorchjob": ("runPolicy", "suspend")}
each_kind = pytest.mark.parametrize("kind", GANGS)


def at(place: tuple[str, ...], value: Any) -> Manifest:
    """Return a merge patch of one field of spec."""
    for key in reversed(place):
        value = {key: value}
    return {"spec": value}


def suspended(owner: Kubectl, kind: str, name: str) -> bool:
    """Return whether a job is stored suspended."""
    found = owner.get(kind, name)["spec"]
    for key in SUSPEND[kind]:
        found = found.get(key, {})
    return found is True


def running(owner: Kubectl, pods: int) -> None:
    """Wait until exactly so many pods run."""
    wait_until(lambda: len(owner.pods(phase="Running")) == pods, what=f"{pods} pods run")


@pytest.fixture(scope="module")
def governor(cluster: AnyCluster, kubectl: Kubectl, tutti: Installation | None) -> Iterator[Kubectl]:
    """The administrator of a namespace where a gang of two runs and another waits, of each kind; the queue is full."""
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    create_namespace(kubectl, name)
    admin, owner = kubectl.in_namespace(name), member(cluster, kubectl, name, f"{name}-owner")
    give_queue(admin, 2 * len(GANGS))
    for make in GANGS.values():
        owner.create(make("gang"))
    running(owner, 2 * len(GANGS))
    for make in GANGS.values():
        owner.create(make("waiting"))
    yield admin
    kubectl.delete("namespace", name)


@pytest.fixture
def citizen(cluster: AnyCluster, governor: Kubectl) -> Iterator[Kubectl]:
    """A member of that namespace; nothing that a test tries there may add a pod."""
    user = Kubectl(governor.program, cluster.kubeconfig_for_user(f"{governor.namespace}-owner"), governor.namespace)
    yield user
    assert len(user.pods()) == 2 * len(GANGS)
    assert reserved(governor) == 2 * len(GANGS)


def refused_patch(owner: Kubectl, kind: str, patch: Manifest, name: str = "gang") -> str:
    """Send a merge patch that must be refused, and return what its user reads."""
    return owner.refused("patch", kind, name, "--type=merge", f"--patch={yaml.safe_dump(patch)}")


def refused_create(owner: Kubectl, manifest: Manifest) -> str:
    """Create an object that must be refused, and return what its user reads."""
    return owner.refused("create", "-f", "-", stdin=yaml.safe_dump(manifest))


def uid_of(owner: Kubectl, kind: str) -> str:
    """Return the uid of the gang that runs."""
    return str(owner.get(kind, "gang")["metadata"]["uid"])


def owned_by(owner: Kubectl, api_version: str, kind: str) -> Manifest:
    """Return a controller reference to the gang that runs."""
    reference = {"apiVersion": api_version, "kind": kind, "name": "gang", "controller": True}
    return reference | {"uid": uid_of(owner, kind.lower())}


# -- starting without being admitted ----------------------------------------------------------------------------------


@each_kind
def test_a_waiting_gang_cannot_be_un_suspended_by_hand(citizen: Kubectl, kind: str) -> None:
    message = refused_patch(citizen, kind, at(SUSPEND[kind], False), "waiting")
    assert f"waits in queue {QUEUE}, and only Tutti un-suspends it" in message
    assert f"kubectl get workloads -n {citizen.namespace}" in message
    assert suspended(citizen, kind, "waiting")


@each_kind
def test_a_gang_that_is_created_unsuspended_is_stored_suspended(citizen: Kubectl, kind: str) -> None:
    manifest = GANGS[kind]("eager")
    manifest["spec"] |= at(SUSPEND[kind], False)["spec"]
    citizen.create(manifest)
    assert suspended(citizen, kind, "eager")
    stays(lambda: len(citizen.pods()) == 2 * len(GANGS), 1, "it gets no pod")


@pytest.mark.parametrize(
    "labels",
    [
        {"kueue.x-k8s.io/queue-name": QUEUE},
        {"tutti.dev/queue-name": QUEUE, "kueue.x-k8s.io/queue-name": QUEUE},
        {"tutti.dev/queue-name": "", "kueue.x-k8s.io/queue-name": QUEUE},
    ],
    ids=["kueues", "both", "ours empty"],
)
@each_kind
def test_whichever_queue_label_a_gang_has_it_is_stored_suspended(
    citizen: Kubectl, kind: str, labels: dict[str, str]
) -> None:
    manifest = GANGS[kind]("labelled")
    manifest["metadata"]["labels"] = labels
    manifest["spec"] |= at(SUSPEND[kind], False)["spec"]
    citizen.create(manifest)
    assert suspended(citizen, kind, "labelled")
    citizen.delete(kind, "labelled")


@each_kind
def test_a_waiting_gang_cannot_drop_its_queue_and_start_at_once(citizen: Kubectl, kind: str) -> None:
    unlabelled = {"metadata": {"labels": dict.fromkeys(("tutti.dev/queue-name", "kueue.x-k8s.io/queue-name"))}}
    message = refused_patch(citizen, kind, at(SUSPEND[kind], False) | unlabelled, "waiting")
    assert "only Tutti un-suspends it" in message
    assert suspended(citizen, kind, "waiting")


def test_server_side_apply_can_neither_start_a_waiting_gang_nor_grow_a_running_one(
    owner: Kubectl, admin: Kubectl
) -> None:
    give_queue(admin, 0)
    manifest = GANGS["job"]("gang")
    apply = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    owner(*apply, stdin=yaml.safe_dump(manifest))
    started = manifest | {"spec": manifest["spec"] | {"suspend": False}}
    assert "only Tutti un-suspends it" in owner.refused(*apply, stdin=yaml.safe_dump(started))
    set_gpus(admin, 2)
    running(owner, 2)
    owner(*apply, stdin=yaml.safe_dump(manifest))
    larger = manifest | {"spec": manifest["spec"] | {"parallelism": 3}}
    assert "would have 3 pods, 2 are reserved" in owner.refused(*apply, stdin=yaml.safe_dump(larger))
    assert len(owner.pods()) == 2


def test_a_job_re_created_under_the_same_name_waits_for_the_pods_of_the_first(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 2)
    owner.create(GANGS["job"]("gang"))
    running(owner, 2)
    first = uid_of(owner, "job")
    admin("delete", "job", "gang", "--cascade=orphan")
    owner.create(GANGS["job"]("gang"))
    assert uid_of(owner, "job") != first
    stays(lambda: suspended(owner, "job", "gang") and len(owner.pods()) == 2, 3, "it waits while the orphans run")
    assert reservations(admin)["gang"].uid == first
    owner.delete("pod", *(item["metadata"]["name"] for item in owner.pods()))
    running(owner, 2)
    assert not suspended(owner, "job", "gang")
    assert reservations(admin)["gang"].uid == uid_of(owner, "job")


def test_the_admission_of_another_job_is_dropped_from_a_copy_of_it(citizen: Kubectl) -> None:
    annotations = citizen.get("job", "gang")["metadata"]["annotations"]
    manifest = GANGS["job"]("copy")
    manifest["metadata"]["annotations"] = {"tutti.dev/admission": annotations["tutti.dev/admission"]}
    citizen.create(manifest)
    copied = citizen.get("job", "copy")
    assert "tutti.dev/admission" not in copied["metadata"].get("annotations", {})
    assert copied["spec"]["suspend"] is True


@pytest.mark.parametrize("place", ["jobset", "job"])
def test_a_queue_that_is_named_where_that_means_nothing_is_warned_about(citizen: Kubectl, place: str) -> None:
    template = pod_template(gpus=0, labels={"tutti.dev/queue-name": QUEUE} if place == "job" else None)
    manifest = GANGS["jobset"]("astray", gpus=0) if place == "jobset" else job("astray", 1, template)
    # A Job without labels of its own would get its template's, and so wait.
    manifest["metadata"]["labels"] = {"app": "astray"}
    if place == "jobset":
        child = manifest["spec"]["replicatedJobs"][0]["template"]
        child["metadata"] = {"labels": {"tutti.dev/queue-name": QUEUE}}
    citizen.create(manifest, "--dry-run=server")
    assert "does not make the" in citizen.warnings
    assert "it starts at once" in citizen.warnings


@pytest.mark.parametrize(
    ("place", "key"),
    [
        ("labels", "kueue.x-k8s.io/queue"),
        ("labels", "kueue.x-k8s.io/QueueName"),
        ("labels", "tutti.dev/queuename"),
        ("labels", "queue-name"),
        ("annotations", "scheduling.volcano.sh/queue-name"),
    ],
)
def test_a_misspelt_queue_label_is_warned_about(citizen: Kubectl, place: str, key: str) -> None:
    astray = job("astray", 1, pod_template(gpus=0))
    astray["metadata"][place] = {key: QUEUE}
    citizen.create(astray, "--dry-run=server")
    assert f"{place.removesuffix('s')} {key} at metadata.{place} does not make the Job wait" in citizen.warnings


@pytest.mark.parametrize(
    ("own", "inner", "warned"),
    [
        ({"app": "astray"}, {"tutti.dev/queue-name": QUEUE}, True),
        ({"kueue.x-k8s.io/queue": QUEUE}, None, True),
        ({"tutti.dev/queue-name": QUEUE}, {"tutti.dev/queue-name": QUEUE}, False),
        (None, {"tutti.dev/queue-name": QUEUE}, False),
    ],
)
def test_a_schedule_whose_jobs_will_not_wait_is_warned_about(
    citizen: Kubectl, own: dict[str, str] | None, inner: dict[str, str] | None, warned: bool
) -> None:
    """A Job without labels of its own gets those of its pod template, and waits by them."""
    one = job("astray", 1, pod_template(gpus=0, labels=inner))
    template = {"metadata": {"labels": own or {}}, "spec": one["spec"]}
    template["spec"].pop("suspend", None)
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "astray"},
        "spec": {"schedule": "0 3 * * *", "jobTemplate": template},
    }
    citizen.create(manifest, "--dry-run=server")
    assert ("does not make the Jobs of a CronJob wait in a queue" in citizen.warnings) is warned


def test_a_job_without_a_queue_in_a_namespace_that_has_queues_is_warned_about_once(
    citizen: Kubectl, governor: Kubectl
) -> None:
    """However many queues it has. What is created nonetheless runs, as it always did."""
    local = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "spec": {"clusterQueue": "none-such"}}
    governor.apply({**local, "metadata": {"name": "another"}})
    plain, queued = job("astray", 1, pod_template(gpus=0)), job("found", 1, pod_template(gpus=0), QUEUE)

    def warned() -> bool:
        citizen.create(plain, "--dry-run=server")
        return "this job names no queue" in citizen.warnings

    wait_until(warned, 30, "the API server has read policy and queues")
    assert citizen.warnings.count("this job names no queue") == 1
    assert f"kubectl get localqueues -n {citizen.namespace}" in citizen.warnings
    citizen.create(queued, "--dry-run=server")
    assert "names no queue" not in citizen.warnings


# -- growing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "patch", "says"),
    [
        ("job", at(("parallelism",), 3), "would have 3 pods, 2 are reserved"),
        (
            "pytorchjob",
            at(("pytorchReplicaSpecs", "Worker", "replicas"), 2),
            "pod set worker would have 2 pods, 1 is reserved",
        ),
        (
            "pytorchjob",
            at(("pytorchReplicaSpecs", "Worker", "template"), pod_template(gpus=2, container="pytorch")),
            f"2 {GPU}, 1 is reserved",
        ),
    ],
    ids=["parallelism", "replicas", "requests"],
)
def test_an_admitted_gang_cannot_grow(citizen: Kubectl, kind: str, patch: Manifest, says: str) -> None:
    message = refused_patch(citizen, kind, patch)
    assert says in message
    assert "a running gang does not grow. Suspend it first" in message


def test_an_admitted_jobset_cannot_grow(citizen: Kubectl) -> None:
    grown = citizen.get("jobset", "gang")["spec"]["replicatedJobs"]
    grown[0]["replicas"] = 2
    message = refused_patch(citizen, "jobset", at(("replicatedJobs",), grown))
    # JobSet's own webhook refuses it too; both are asked at once, and either answer may be the one that is shown.
    assert "replicatedJobs" in message or "pods, 2 are reserved" in message


def test_a_child_job_of_an_admitted_jobset_cannot_grow(citizen: Kubectl) -> None:
    citizen.patch("job", "gang-workers-0", {"spec": {"parallelism": 2, "backoffLimit": 1}})
    citizen.refused("patch", "job", "gang-workers-0", "--type=merge", '--patch={"spec":{"completions":3}}')
    stays(lambda: len(citizen.pods()) == 2 * len(GANGS), 1, "no pod is added")


def test_kubectl_scale_cannot_grow_an_admitted_gang(citizen: Kubectl) -> None:
    message = citizen.refused("scale", "pytorchjob", "gang", "--replicas=3")
    assert "runs as a gang with a reservation; scaling it from 1 to 3 replicas would start pods" in message


def test_kubectl_scale_of_a_waiting_gang_changes_what_it_waits_for(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 1)
    owner.create(GANGS["pytorchjob"]("gang"))
    owner("scale", "pytorchjob", "gang", "--replicas=3")
    set_gpus(admin, 4)
    running(owner, 4)
    assert reserved(admin) == 4


# -- leaving the queue ------------------------------------------------------------------------------------------------


@each_kind
def test_an_admitted_gang_can_neither_change_its_queue_nor_drop_it(citizen: Kubectl, kind: str) -> None:
    moved = citizen.refused("label", kind, "gang", "tutti.dev/queue-name=other", "--overwrite")
    assert "it cannot move to other while it runs. Suspend it first" in moved
    dropped = citizen.refused("label", kind, "gang", "tutti.dev/queue-name-")
    assert f"the job runs in queue {QUEUE}, which is charged for it; its queue label stays" in dropped


def test_a_waiting_job_may_name_another_queue_but_not_none(citizen: Kubectl) -> None:
    citizen.create(GANGS["job"]("leaving"))
    assert "it may name another queue, but not none" in citizen.refused(
        "label", "job", "leaving", "tutti.dev/queue-name-"
    )
    assert "only Tutti un-suspends it" in refused_patch(citizen, "job", {"spec": {"suspend": False}}, "leaving")
    citizen("label", "job", "leaving", "tutti.dev/queue-name=other", "--overwrite")


def test_a_running_job_that_never_waited_cannot_be_labelled(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 0)
    owner.create(job("free", 1, pod_template()))
    running(owner, 1)
    message = owner.refused("label", "job", "free", f"tutti.dev/queue-name={QUEUE}")
    assert "the job is already running unqueued" in message


# -- writing in Tutti's name ------------------------------------------------------------------------------------------


def test_tuttis_annotations_and_labels_are_not_edited_by_hand(citizen: Kubectl) -> None:
    ours = "is written only by Tutti"
    assert ours in citizen.refused("annotate", "job", "gang", "tutti.dev/admission={}", "--overwrite")
    assert ours in citizen.refused("annotate", "job", "gang", "tutti.dev/requeue={}")
    name = citizen.pods("job-name=gang")[0]["metadata"]["name"]
    assert ours in citizen.refused("label", "pod", name, "tutti.dev/gang-")
    assert ours in citizen.refused("label", "pod", name, "tutti.dev/gang=other", "--overwrite")
    assert ours in citizen.refused("label", "pod", name, "tutti.dev/pod-set=other", "--overwrite")


def test_a_pod_that_is_being_deleted_stays_in_its_gang(owner: Kubectl, admin: Kubectl) -> None:
    """It runs on for as long as its owner chose."""
    give_queue(admin, 2)
    owner.create(GANGS["job"]("leaving"))
    running(owner, 2)
    name = owner.pods()[0]["metadata"]["name"]
    kept = ["batch.kubernetes.io/job-tracking", "example.org/accounting"]
    owner.patch("pod", name, {"metadata": {"finalizers": kept}})
    try:
        owner("delete", "pod", name, "--wait=false")
        assert "is written only by Tutti" in owner.refused("label", "pod", name, "tutti.dev/gang-")
        assert "only its job's controller may change" in owner.refused(
            "patch", "pod", name, "--type=merge", "-p", '{"metadata": {"ownerReferences": null}}'
        )
    finally:
        owner.patch("pod", name, {"metadata": {"finalizers": None}})


def member_pod(gang: str) -> Manifest:
    """Return a pod that claims a place in a gang."""
    return pod("forged", pod_template(labels={"tutti.dev/gang": gang, "tutti.dev/pod-set": "main"}))


def test_a_pod_with_a_forged_gang_label_is_refused(citizen: Kubectl) -> None:
    message = refused_create(citizen, member_pod(uid_of(citizen, "job")))
    assert f"claims a place in Job {citizen.namespace}/gang" in message
    assert "only its controller creates its pods" in message
    assert "has no reservation" in refused_create(citizen, member_pod("x"))
    assert "not admitted yet" in refused_create(citizen, member_pod("pending"))


def test_a_pod_with_a_forged_owner_is_refused(citizen: Kubectl) -> None:
    forged = member_pod(uid_of(citizen, "job"))
    forged["metadata"]["ownerReferences"] = [owned_by(citizen, "batch/v1", "Job")]
    message = refused_create(citizen, forged)
    assert "only its controller creates its pods" in message
    assert f"{citizen.namespace}-owner" in message


def test_a_job_with_a_forged_owner_is_refused(citizen: Kubectl) -> None:
    forged = GANGS["job"]("forged")
    forged["metadata"]["ownerReferences"] = [owned_by(citizen, "jobset.x-k8s.io/v1alpha2", "JobSet")]
    message = refused_create(citizen, forged)
    assert "it names JobSet gang as its controller" in message
    assert f"{citizen.namespace}-owner" in message
    assert "controllerUsers of JobSet.jobset.x-k8s.io" in message
    stays(lambda: len(citizen.pods()) == 2 * len(GANGS), 1, "it gets no pod")


# -- pods that pass by the scheduler, and GPUs in odd places ----------------------------------------------------------


def test_a_pod_that_names_its_node_is_refused_where_reservations_must_hold(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 2)
    admin.apply(resource_quota("wall", **{f"requests.{GPU}": "4"}))
    owner.create(GANGS["job"]("gang"))
    running(owner, 2)
    preset = pod("preset", pod_template())
    preset["spec"] = preset["spec"] | {"nodeName": "node-0"}
    told = partial(owner.refused, "create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(preset))
    wait_until(lambda: "spec.nodeName is preset" in told(), what="pods of the namespace are judged")
    message = refused_create(owner, preset)
    assert "spec.nodeName is preset to 'node-0'" in message
    assert "use nodeSelector or affinity" in message


def test_a_gang_whose_template_names_its_node_is_refused(citizen: Kubectl) -> None:
    preset = GANGS["job"]("preset")
    preset["spec"]["template"]["spec"] |= {"nodeName": "node-0"}
    assert "the template of pod set main presets spec.nodeName to 'node-0'" in refused_create(citizen, preset)


def gpu_in(place: str) -> Callable[[], Manifest]:
    """Return a maker of a pod template whose GPUs stand in an odd place."""

    def make() -> Manifest:
        template = pod_template(gpus=0)
        main = template["spec"]["containers"][0]
        with_gpus = {"limits": {GPU: "2"}, "requests": {"cpu": "100m"}}
        if place == "limits":
            main["resources"] = with_gpus
            return template
        other = main | {"name": "other", "resources": with_gpus}
        if place == "sidecar":
            other["restartPolicy"] = "Always"
            main["resources"] = {"limits": {GPU: "1"}}
        template["spec"]["initContainers"] = [other]
        return template

    return make


@pytest.mark.parametrize(("place", "gpus"), [("limits", 2), ("init container", 2), ("sidecar", 3)])
def test_gpus_are_priced_wherever_a_pod_asks_for_them(owner: Kubectl, admin: Kubectl, place: str, gpus: int) -> None:
    give_queue(admin, 2 * gpus - 1)
    owner.create(job("gang", 2, gpu_in(place)(), QUEUE))
    assert f"asks for {2 * gpus} {GPU}" in owner.warnings
    assert f"can hold at most {2 * gpus - 1}" in owner.warnings
    stays(lambda: suspended(owner, "job", "gang"), 1.5, "it waits")
    set_gpus(admin, 2 * gpus)
    running(owner, 2)
    assert reserved(admin) == 2 * gpus
