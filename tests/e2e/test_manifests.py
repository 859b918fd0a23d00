"""The manifests on a real API server, by themselves: what is sent, who may do what, and the rules inside the server.

Nothing of Tutti runs here. A registration whose webhook does not answer refuses exactly what is sent to it, which shows
its selection; the policies are tried without the registrations.
"""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import objects, policies
from tests.e2e.controlplane.cluster import Cluster, Shape
from tests.e2e.kubectl import Kubectl, KubectlError, condition, wait_until
from tests.e2e.small_jobs import job, jobset, pod, pytorchjob
from webhook.errors import ApiError
from webhook.jobs.reading.ours import OWN_ANNOTATIONS, OWN_LABELS
from webhook.kube.api import JSON_PATCH, MERGE_PATCH
from webhook.kube.connecting import connect

pytestmark = pytest.mark.own_cluster

OVERLAYS = Path(__file__).resolve().parents[2] / "manifests" / "overlays"
REGISTRATIONS = ("mutatingwebhookconfiguration/tutti", "validatingwebhookconfiguration/tutti")
NO_ANSWER = "failed calling webhook"
QUEUE = "team"
UNQUEUED_AND_STARTED = '--patch={"spec":{"suspend":false},"metadata":{"labels":{"tutti.dev/queue-name":null}}}'
GROUP = {"scheduling.x-k8s.io/pod-group": "crew"}


@pytest.fixture(scope="module")
def alone() -> Iterator[Cluster]:
    """A control plane on which nothing of Tutti runs, with the manifests applied."""
    with Cluster(Shape(nodes=1)) as started:
        yield started


def install(kubectl: Kubectl, overlay: str) -> None:
    """Apply an overlay as a user would; it may not cause a single warning."""
    anywhere = kubectl.in_namespace("")
    anywhere("apply", "--kustomize", str(OVERLAYS / overlay), timeout_seconds=120)
    assert anywhere.warnings == ""


@pytest.fixture(scope="module")
def root(alone: Cluster) -> Kubectl:
    """Its administrator, after the manifests were applied without a warning."""
    kubectl = Kubectl(alone.binaries["kubectl"], alone.kubeconfig)
    install(kubectl, "loopback")
    wait_until(lambda: sent(kubectl, job("probe", queue=QUEUE)), what="the mutating registration in force")
    member = pod("probe", labels={"tutti.dev/gang": "0b5e6f1c"})
    wait_until(lambda: sent(kubectl, member), what="the validating registration in force")
    return kubectl


def sent(kubectl: Kubectl, manifest: dict[str, Any]) -> bool:
    """Return whether creating it (as a dry run) reaches the webhook, which does not answer.

    An object may be as short as it takes to be admitted: what its schema misses is found after admission.
    """
    try:
        kubectl.create(manifest, "--dry-run=server", "--validate=false")
    except KubectlError as error:
        if NO_ANSWER in error.stderr:
            return True
        if " is invalid:" not in error.stderr:
            raise
    return False


@pytest.fixture
def here(root: Kubectl) -> Kubectl:
    """The administrator in a namespace of the test's own."""
    name = f"manifests-{uuid.uuid4().hex[:8]}"
    root("create", "namespace", name)
    kubectl = root.in_namespace(name)
    wait_until(lambda: kubectl.get("serviceaccount", "default"), what="default service account")
    return kubectl


def test_the_ledgers_share_of_the_api_server_is_in_force(root: Kubectl) -> None:
    def dangles() -> str:
        path = "{.status.conditions[?(@.type=='Dangling')].status}"
        return root.in_namespace("")("get", "flowschema", "tutti-ledger", "-o", f"jsonpath={path}")

    wait_until(lambda: dangles() == "False", what="the priority level of the ledger")


@pytest.mark.parametrize("make", [job, jobset, pytorchjob])
def test_a_job_is_sent_only_when_it_opts_in(here: Kubectl, make: Any) -> None:
    assert not sent(here, make("plain"))
    assert not sent(here, make("plain", labels={"app": "a"}))
    assert sent(here, make("queued", queue=QUEUE))
    assert sent(here, make("grouped", labels=GROUP))
    assert sent(here, make("forged", labels={"tutti.dev/gang": "0b5e6f1c"}))


def of_kind(api_version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return an object of any kind."""
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "short", "labels": {}}, "spec": spec}


POD = {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "crew"}}, "spec": {"containers": []}}
RAY = {"headGroupSpec": {"rayStartParams": {}, "template": {}}, "workerGroupSpecs": [{"template": POD}]}
WRAPPED = {"template": {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": POD}}}


@pytest.mark.parametrize(
    ("project", "manifest"),
    [
        ("ray", of_kind("ray.io/v1", "RayCluster", RAY)),
        ("ray", of_kind("ray.io/v1", "RayJob", {"rayClusterSpec": RAY})),
        ("spark", of_kind("sparkoperator.k8s.io/v1beta2", "SparkApplication", {"executor": POD["metadata"]})),
        ("appwrapper", of_kind("workload.codeflare.dev/v1beta2", "AppWrapper", {"components": [WRAPPED]})),
        ("argo", of_kind("argoproj.io/v1alpha1", "Workflow", {"templates": [{"metadata": POD["metadata"]}]})),
    ],
    ids=["RayCluster", "RayJob", "SparkApplication", "AppWrapper", "Workflow"],
)
def test_a_job_of_other_projects_is_sent_only_when_it_opts_in(
    alone: Cluster, here: Kubectl, project: str, manifest: dict[str, Any]
) -> None:
    sent_when_queued(alone, here, project, manifest | {"spec": {}})
    assert sent(here, manifest)


def test_a_train_job_whose_pods_its_runtime_describes_is_sent_only_when_it_names_a_queue(
    alone: Cluster, here: Kubectl
) -> None:
    sent_when_queued(alone, here, "trainer", of_kind("trainer.kubeflow.org/v1alpha1", "TrainJob", {}))


def sent_when_queued(alone: Cluster, here: Kubectl, project: str, plain: dict[str, Any]) -> None:
    """Install a project's kinds, and look that an object of one is sent with a queue label and not without."""
    alone.install_kinds(project)
    queued = plain | {"metadata": {"name": "short", "labels": {"tutti.dev/queue-name": QUEUE}}}
    wait_until(lambda: not sent(here, plain), what="kind served, plain object not sent")
    assert sent(here, queued)


def test_everything_is_sent_from_a_namespace_where_everything_waits(here: Kubectl) -> None:
    here("label", "namespace", here.namespace, "tutti.dev/gated=true")
    wait_until(lambda: sent(here, job("plain")), what="namespace label seen")
    assert sent(here, jobset("plain"))
    assert not sent(here, pod("plain"))


def test_an_update_is_sent_when_the_job_opts_in_or_did_so_before(here: Kubectl) -> None:
    here.create(job("plain"))
    here("label", "job", "plain", "team=a")
    assert NO_ANSWER in here.refused("label", "job", "plain", "tutti.dev/queue-name=team")
    assert NO_ANSWER in here.refused("annotate", "job", "plain", "tutti.dev/admission=forged")


def test_pods_are_sent_when_they_are_members_or_their_namespace_is_fenced(here: Kubectl) -> None:
    assert not sent(here, pod("plain"))
    assert sent(here, pod("member", labels={"tutti.dev/gang": "0b5e6f1c"}))
    here.create(pod("loose"))
    assert NO_ANSWER in here.refused("label", "pod", "loose", "tutti.dev/gang=0b5e6f1c")
    here("label", "namespace", here.namespace, "tutti.dev/fenced=true")
    wait_until(lambda: sent(here, pod("plain")), what="namespace label seen")
    here("label", "pod", "loose", "team=a")


def test_nothing_is_sent_from_the_namespaces_we_depend_on(root: Kubectl) -> None:
    system = root.in_namespace("kube-system")
    assert not sent(system, job("queued", queue=QUEUE))
    assert not sent(system, pod("member", labels={"tutti.dev/gang": "0b5e6f1c"}))


def test_what_cannot_wait_is_never_refused(here: Kubectl) -> None:
    deployment = objects.deployment("serving", 1, objects.pod_template(gpus=0))
    deployment["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": QUEUE}
    assert not sent(here, deployment)


def test_policy_is_sent_from_every_namespace(root: Kubectl) -> None:
    flavor = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "plain"},
        "spec": {},
    }
    assert sent(root, flavor)
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tutti-policy"}, "data": {}}
    assert sent(root.in_namespace("tutti-system"), config)
    config["metadata"]["name"] = "other"  # type: ignore[index]
    assert not sent(root.in_namespace("tutti-system"), config)


# -- accounts -------------------------------------------------------------------------------------------------------


def account(alone: Cluster, name: str, namespace: str = "default") -> Kubectl:
    """Return kubectl as one of Tutti's service accounts."""
    return Kubectl(alone.binaries["kubectl"], alone.kubeconfig_for_service_account("tutti-system", name), namespace)


def may_list(kubectl: Kubectl, group: str, resource: str) -> bool:
    """Return whether RBAC lets the user list what nobody may serve yet, which kubectl's own can-i refuses to ask."""
    asked = {"namespace": kubectl.namespace, "verb": "list", "group": group, "resource": resource}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    answer = kubectl.create(review | {"spec": {"resourceAttributes": asked}}, "--validate=false", "--output=json")
    return bool(json.loads(answer)["status"]["allowed"])


@pytest.mark.parametrize("name", ["tutti-webhook", "tutti-reconciler"])
def test_an_account_sees_what_it_follows_and_no_secrets(alone: Cluster, root: Kubectl, name: str) -> None:
    kubectl = account(alone, name)
    for resource in ("jobs.batch", "jobsets.jobset.x-k8s.io", "pytorchjobs.kubeflow.org", "pods", "resourcequotas"):
        assert kubectl.can("watch", resource), resource
    assert not kubectl.can("get", "secrets")
    assert not kubectl.can("create", "pods")
    assert not kubectl.can("create", "jobs.batch")
    system = account(alone, name, "tutti-system")
    system("get", "configmaps", "--field-selector=metadata.name=tutti-ledger")
    # Pages of the ledger are found by their label: no list can be bound to a label.
    system("get", "configmaps", "--selector=tutti.dev/ledger-page=tutti-ledger")
    assert "cannot list" in kubectl.refused("get", "configmaps")
    assert "cannot get" in system.refused("get", "secret", "tutti-certs")


def test_the_webhook_starts_nothing(alone: Cluster, root: Kubectl) -> None:
    kubectl = account(alone, "tutti-webhook")
    assert not kubectl.can("patch", "jobs.batch")
    assert not kubectl.can("patch", "namespaces")


def test_the_reconcilers_hand_on_namespaces_is_held_to_two_labels(alone: Cluster, here: Kubectl) -> None:
    kubectl = account(alone, "tutti-reconciler")
    here("label", "namespace", here.namespace, "pod-security.kubernetes.io/enforce=restricted")
    kubectl("label", "namespace", here.namespace, "tutti.dev/fenced=true", "tutti.dev/gated=true")
    kubectl("label", "namespace", here.namespace, "tutti.dev/fenced-")
    for change in (["label", "pod-security.kubernetes.io/enforce-"], ["label", "team=a"], ["annotate", "team=a"]):
        verb, key = change
        told = kubectl.refused(verb, "namespace", here.namespace, key)
        assert "tutti-reconciler may change" in told
    labels = here.get("namespace", here.namespace)["metadata"]["labels"]
    assert labels["tutti.dev/gated"] == "true"
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


async def test_the_reconcilers_hand_on_the_status_of_jobs_is_held_to_taking_out_a_start_time(
    alone: Cluster, here: Kubectl
) -> None:
    here.create(suspended(job("stopped")))
    wait_until(lambda: condition(here.get("job", "stopped"), "Suspended") == "True", what="reported stopped")
    ran = '--patch={"status":{"startTime":"2026-03-01T10:00:05Z"}}'
    here("patch", "job", "stopped", "--subresource=status", "--type=merge", ran)
    path = f"/apis/batch/v1/namespaces/{here.namespace}/jobs/stopped/status"
    api = await connect(str(alone.kubeconfig_for_service_account("tutti-system", "tutti-reconciler")))
    try:
        for change, told in (
            ({"status": {"succeeded": 1}}, "but take out its start time"),
            ({"status": {"startTime": "2026-03-02T10:00:05Z"}}, "but take out its start time"),
            ({"status": {"conditions": []}}, "but take out its start time"),
            ({"metadata": {"labels": {"team": "a"}}}, "nothing but the status"),
        ):
            with pytest.raises(ApiError, match=told):
                await api.request("PATCH", path, body=json.dumps(change).encode(), content_type=MERGE_PATCH)
        clear = b'[{"op": "remove", "path": "/status/startTime"}]'
        await api.request("PATCH", path, body=clear, content_type=JSON_PATCH)
    finally:
        await api.close()
    assert "startTime" not in here.get("job", "stopped")["status"]


def test_editors_may_make_pod_groups_and_look_at_quota_but_not_change_it(alone: Cluster, here: Kubectl) -> None:
    here("create", "rolebinding", "edit", "--clusterrole=edit", "--user=ann")
    ann = Kubectl(alone.binaries["kubectl"], alone.kubeconfig_for_user("ann"), here.namespace)
    wait_until(lambda: ann.can("create", "podgroups.scheduling.x-k8s.io"), what="aggregated role edit")
    assert ann.can("list", "localqueues.kueue.x-k8s.io")
    assert may_list(ann, "visibility.tutti.dev", "workloads")
    assert not ann.can("patch", "localqueues.kueue.x-k8s.io")


# -- the rules inside the API server --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def twin(root: Kubectl) -> Kubectl:
    """The administrator of a cluster whose registrations are gone, with the policies in force."""
    root("delete", *REGISTRATIONS)
    install(root, policies.overlay().name)
    wait_until(lambda: all(in_force(root, make) for make in (job, jobset, pytorchjob)), what="policies that mark")
    # Those that refuse come into force apart from these.
    forged = json.dumps(jobset("probe", labels={"tutti.dev/gang": "0b5e6f1c"}))
    refused = ("create", "--dry-run=server", "-f", "-")
    wait_until(lambda: "written only by Tutti" in root.refused(*refused, stdin=forged), what="policies that refuse")
    for policy in root.items("validatingadmissionpolicies"):
        assert "typeChecking" not in policy.get("status", {}) or not policy["status"]["typeChecking"]
    return root


def in_force(kubectl: Kubectl, make: Any) -> bool:
    """Return whether a queued job that is to run at once is stored suspended, or refused where nothing suspends it."""
    running = make("probe", queue=QUEUE)
    if policies.suspending():
        spec = born(kubectl, running)["spec"]
        return spec.get("runPolicy", spec).get("suspend") is True
    return "is created suspended" in kubectl.refused("create", "--dry-run=server", "-f", "-", stdin=json.dumps(running))


def suspended(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a job as its owner writes it who suspends it."""
    return manifest | {"spec": manifest["spec"] | {"suspend": True}}


def born(kubectl: Kubectl, manifest: dict[str, Any]) -> dict[str, Any]:
    """Return an object as it would be stored."""
    stored: dict[str, Any] = json.loads(kubectl.create(manifest, "--dry-run=server", "--output=json"))
    return stored


@pytest.mark.since("1.36")
@pytest.mark.parametrize("make", [job, jobset])
def test_policies_let_a_queued_job_be_born_suspended(twin: Kubectl, here: Kubectl, make: Any) -> None:
    assert born(here, make("queued", queue=QUEUE))["spec"]["suspend"] is True
    assert born(here, make("grouped", labels=GROUP))["spec"]["suspend"] is True
    assert not born(here, make("plain"))["spec"].get("suspend", False)


@pytest.mark.since("1.36")
def test_policies_suspend_a_training_job_with_and_without_a_run_policy(twin: Kubectl, here: Kubectl) -> None:
    assert born(here, pytorchjob("queued", queue=QUEUE))["spec"]["runPolicy"] == {"suspend": True}
    with_policy = pytorchjob("queued", queue=QUEUE)
    with_policy["spec"]["runPolicy"] = {"cleanPodPolicy": "None"}
    assert born(here, with_policy)["spec"]["runPolicy"] == {"cleanPodPolicy": "None", "suspend": True}
    assert "runPolicy" not in born(here, pytorchjob("plain"))["spec"]


@pytest.mark.since("1.36")
def test_policies_know_namespaces_where_everything_waits(twin: Kubectl, here: Kubectl) -> None:
    here("label", "namespace", here.namespace, "tutti.dev/gated=true")
    wait_until(lambda: born(here, job("plain"))["spec"]["suspend"], what="namespace label seen")


def test_policies_let_nobody_but_the_reconciler_start_a_queued_job(
    alone: Cluster, twin: Kubectl, here: Kubectl
) -> None:
    here.create(suspended(job("queued", queue=QUEUE)))
    start = '--patch={"spec":{"suspend":false}}'
    assert "only Tutti starts" in here.refused("patch", "job", "queued", "--type=merge", start)
    away = '--patch={"spec":{"suspend":false},"metadata":{"labels":{"tutti.dev/queue-name":null}}}'
    assert "only Tutti starts" in here.refused("patch", "job", "queued", "--type=merge", away)
    account(alone, "tutti-reconciler", here.namespace)("patch", "job", "queued", "--type=merge", start)
    assert "queue of a running job" in here.refused("label", "job", "queued", "tutti.dev/queue-name-")
    here.patch("job", "queued", {"spec": {"suspend": True}})
    here("label", "job", "queued", "tutti.dev/queue-name=other", "--overwrite")


def test_policies_let_an_owner_resume_the_workflow_that_was_started(
    alone: Cluster, twin: Kubectl, here: Kubectl
) -> None:
    """Suspending one only pauses it: it keeps its room, and needs no turn."""
    alone.install_kinds("argo")
    waiting = of_kind("argoproj.io/v1alpha1", "Workflow", {"suspend": True})
    waiting["metadata"] = {"name": "queued", "labels": {"tutti.dev/queue-name": QUEUE}}
    wait_until(lambda: here.create(waiting, "--validate=false"), what="kind served")
    resume = ("patch", "workflow", "queued", "--type=merge", '--patch={"spec":{"suspend":null}}')
    assert "only Tutti starts" in here.refused(*resume)
    started = '{"spec":{"suspend":null},"metadata":{"annotations":{"tutti.dev/admission":"{}"}}}'
    account(alone, "tutti-reconciler", here.namespace)(
        "patch", "workflow", "queued", "--type=merge", f"--patch={started}"
    )
    here.patch("workflow", "queued", {"spec": {"suspend": True}})
    here(*resume)


def test_policies_keep_our_annotations_and_labels_to_us(twin: Kubectl, here: Kubectl) -> None:
    here.create(job("plain"))
    assert "written only by Tutti" in here.refused("annotate", "job", "plain", "tutti.dev/admission=forged")
    forged = job("forged", labels={"tutti.dev/gang": "0b5e6f1c"})
    with pytest.raises(AssertionError, match="written only by Tutti"):
        here.create(forged)
    here.create(suspended(job("marked", queue=QUEUE, labels={"tutti.dev/gang": "pending"})))
    assert "only Tutti starts" in here.refused("patch", "job", "marked", "--type=merge", UNQUEUED_AND_STARTED)
    assert "but not none" in here.refused("label", "job", "marked", "tutti.dev/queue-name-")


@pytest.mark.parametrize("key", sorted(OWN_LABELS))
def test_policies_keep_the_labels_of_gangs_off_whatever_is_of_none(twin: Kubectl, here: Kubectl, key: str) -> None:
    squatting = {key: "0b5e6f1c"}
    change = "--patch=" + json.dumps({"spec": {"template": {"metadata": {"labels": squatting}}}})
    for make, kind in ((job, "job"), (serving, "deployment")):
        with pytest.raises(AssertionError, match="written only by Tutti"):
            here.create(make("squat", labels=squatting))
        here.create(suspended(make("plain")) if kind == "job" else make("plain"))
        assert "written only by Tutti" in here.refused("patch", kind, "plain", "--type=merge", change)
    with pytest.raises(AssertionError, match="written only by Tutti"):
        here.create(jobset("squat", labels=squatting))
    assert "written only by Tutti" in here.refused("label", "job", "plain", f"{key}=0b5e6f1c")
    with pytest.raises(AssertionError, match=r"written only by Tutti|made by the controller"):
        here.create(pod("squat", labels=squatting))
    here.create(pod("plain"))
    told = here.refused("label", "pod", "plain", f"{key}=0b5e6f1c")
    assert "written only by Tutti" in told or "cannot change" in told


@pytest.mark.parametrize("key", sorted(OWN_ANNOTATIONS))
def test_policies_keep_our_annotations_off_jobs_and_the_pods_of_gangs(twin: Kubectl, here: Kubectl, key: str) -> None:
    here.create(suspended(job("queued", queue=QUEUE)))
    assert "written only by Tutti" in here.refused("annotate", "job", "queued", f"{key}=x")
    waiting = pod("waiting", labels={"tutti.dev/gang": "pending"})
    waiting["spec"]["schedulingGates"] = [{"name": "tutti.dev/admission"}]
    here.create(waiting)
    assert "written only by Tutti" in here.refused("annotate", "pod", "waiting", f"{key}=x")


def serving(name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a Deployment."""
    return objects.deployment(name, 0, objects.pod_template(gpus=0, labels=labels))


def test_policies_judge_a_change_that_makes_a_job_wait_as_its_creation(twin: Kubectl, here: Kubectl) -> None:
    foreign = pytorchjob("flip", queue=QUEUE)
    foreign["spec"]["runPolicy"] = {"managedBy": "kueue.x-k8s.io/multikueue"}
    here.create(foreign)
    back = '--patch={"spec":{"runPolicy":{"managedBy":null}}}'
    assert "cannot begin to wait" in here.refused("patch", "pytorchjob", "flip", "--type=merge", back)
    here.create(job("free"))
    assert "queue of a running job" in here.refused("label", "job", "free", "tutti.dev/queue-name=team")
    waiting = pytorchjob("waiting", queue=QUEUE)
    here.create(waiting | {"spec": waiting["spec"] | {"runPolicy": {"suspend": True}}})
    away = '--patch={"spec":{"runPolicy":{"managedBy":"kueue.x-k8s.io/multikueue"}}}'
    assert "cannot be given to another" in here.refused("patch", "pytorchjob", "waiting", "--type=merge", away)


def test_policies_let_no_job_leave_the_queues_of_a_namespace_where_all_wait(twin: Kubectl, here: Kubectl) -> None:
    here("label", "namespace", here.namespace, "tutti.dev/gated=true")
    here.create(suspended(job("queued", queue=QUEUE)))
    wait_until(
        lambda: (
            "but not leave it" in here.refused("label", "job", "queued", "--dry-run=server", "tutti.dev/queue-name-")
        ),
        what="namespace label seen",
    )
    here("label", "job", "queued", "tutti.dev/queue-name=other", "--overwrite")


def test_policies_keep_gang_pods_to_their_controllers(alone: Cluster, twin: Kubectl, here: Kubectl) -> None:
    with pytest.raises(AssertionError, match="made by the controller"):
        here.create(pod("member", labels={"tutti.dev/gang": "0b5e6f1c"}))
    with pytest.raises(AssertionError, match="wait behind its gate"):
        here.create(pod("bare", labels={"tutti.dev/gang": "pending"}))
    waiting = pod("waiting", labels={"tutti.dev/gang": "pending"})
    waiting["spec"]["schedulingGates"] = [{"name": "tutti.dev/admission"}]
    here.create(waiting)
    lifting = '--patch=[{"op":"remove","path":"/spec/schedulingGates/0"}]'
    assert "only Tutti lifts the scheduling gate" in here.refused("patch", "pod", "waiting", "--type=json", lifting)
    assert "cannot change" in here.refused("label", "pod", "waiting", "tutti.dev/gang-")
    here("label", "pod", "waiting", "team=a")


def test_policies_give_the_ledger_one_writer_and_leave_deleting_it_to_administrators(
    alone: Cluster, twin: Kubectl
) -> None:
    system = twin.in_namespace("tutti-system")
    assert "only tutti-reconciler writes the ledger" in system.refused("create", "configmap", "tutti-ledger")
    account(alone, "tutti-reconciler", "tutti-system")("create", "configmap", "tutti-ledger")
    assert "only tutti-reconciler writes the ledger" in system.refused("label", "configmap", "tutti-ledger", "team=a")
    system("delete", "configmap", "tutti-ledger")
    # So have its pages, and nothing else becomes one by its label.
    page = "tutti-ledger-page-1-1"
    assert "only tutti-reconciler writes the ledger" in system.refused("create", "configmap", page)
    account(alone, "tutti-reconciler", "tutti-system")("create", "configmap", page)
    assert "only tutti-reconciler writes the ledger" in system.refused("label", "configmap", page, "team=a")
    system("delete", "configmap", page)
    system("create", "configmap", "notes")
    label = "tutti.dev/ledger-page=tutti-ledger"
    assert "only tutti-reconciler writes the ledger" in system.refused("label", "configmap", "notes", label)
    system("label", "configmap", "notes", "team=a")
    system("delete", "configmap", "notes")


def test_policies_let_only_those_with_the_right_take_a_namespace_out_of_sight(
    alone: Cluster, twin: Kubectl, here: Kubectl
) -> None:
    here("label", "namespace", here.namespace, "tutti.dev/gated=true")
    twin("create", "clusterrole", "namespace-editor", "--verb=get,patch,update", "--resource=namespaces")
    twin("create", "clusterrolebinding", "bob-edits-namespaces", "--clusterrole=namespace-editor", "--user=bob")
    bob = Kubectl(alone.binaries["kubectl"], alone.kubeconfig_for_user("bob"), here.namespace)
    wait_until(lambda: bob.can("patch", "namespaces"), what="role of bob")
    assert "right to ungate" in bob.refused("label", "namespace", here.namespace, "tutti.dev/gated-")
    # With the value that says "policy asked for it" the reconciler would take the label away.
    forged = ("--overwrite", "tutti.dev/gated=policy")
    assert "right to ungate" in bob.refused("label", "namespace", here.namespace, *forged)
    bob("label", "namespace", here.namespace, "team=a")
    here("label", "namespace", here.namespace, "tutti.dev/gated-")
