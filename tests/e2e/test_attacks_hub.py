"""What somebody tries who has stolen the token of ``tutti-hub``, in the hub's own cluster.

The account's rights are those that the overlay ``fleet-hub`` gives it; no hub runs. The table in docs/threat-model.md
names these tests.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Final

import pytest

from tests.e2e.controlplane.cluster import Cluster
from tests.e2e.controlplane.install import NAMESPACE, ROOT
from tests.e2e.kubectl import Kubectl, KubectlError, condition, wait_until
from tests.e2e.objects import job, jobset, pod_template, pytorchjob
from tests.e2e.queues import QUEUE
from tests.e2e.raw import send
from webhook.core.notation import names
from webhook.fleet.credentials.account import ACCOUNT

pytestmark = [pytest.mark.own_cluster, pytest.mark.usefixtures("tutti")]

RIGHTS: Final = ROOT / "manifests" / "components" / "fleet-hub" / "rights.yaml"
KINDS: Final = ("job", "jobset", "pytorchjob")
TEMPLATES: Final = {
    "job": "/spec/template",
    "jobset": "/spec/replicatedJobs/0/template/spec/template",
    "pytorchjob": "/spec/pytorchReplicaSpecs/Worker/template",
}
SIZES: Final = {
    "job": "/spec/parallelism",
    "jobset": "/spec/replicatedJobs/0/replicas",
    "pytorchjob": "/spec/pytorchReplicaSpecs/Worker/replicas",
}
PATHS: Final = {
    "job": "batch/v1/namespaces/{}/jobs",
    "jobset": "jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets",
    "pytorchjob": "kubeflow.org/v1/namespaces/{}/pytorchjobs",
}
REFUSED: Final = (403, 422)
RECORD: Final = {"metadata": {"annotations": {names.DISPATCH: '{"phase":"nowhere","offer":"1.1"}'}}}
STATUS: Final = {
    "status": {
        "conditions": [
            {
                "type": "Stolen",
                "status": "True",
                "reason": "X",
                "message": "x",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ]
    }
}


@pytest.fixture(scope="module")
def hub(cluster: Cluster, kubectl: Kubectl) -> Iterator[Cluster]:
    system = kubectl.in_namespace(NAMESPACE)
    system("apply", "--server-side", "-f", str(RIGHTS))
    yield cluster
    system("delete", "--ignore-not-found", "-f", str(RIGHTS))


@pytest.fixture
def thief(hub: Cluster, admin: Kubectl) -> Kubectl:
    """Whoever has the hub's token, in the test's namespace."""
    return Kubectl(admin.program, hub.kubeconfig_for_service_account(NAMESPACE, ACCOUNT), admin.namespace)


def submit(owner: Kubectl, name: str, *, placed: bool) -> None:
    """Create a job of each kind that waits, for the hub or for nobody."""
    made = (
        job(name, 2, pod_template(), QUEUE),
        jobset(name, 2, pod_template(), QUEUE),
        pytorchjob(name, 1, pod_template(container="pytorch"), QUEUE),
    )
    for each in made:
        policy = each["spec"].setdefault("runPolicy", {}) if each["kind"] == "PyTorchJob" else each["spec"]
        policy["suspend"] = True
        if placed:
            policy["managedBy"] = names.HUB_MANAGER
        owner.create(each)


def merge(change: dict[str, Any]) -> tuple[str, str]:
    return "--type=merge", f"--patch={json.dumps(change)}"


def patch_status(thief: Kubectl, kind: str, name: str, change: dict[str, Any]) -> int:
    """Patch the status as the hub does, which may not read it by that name first as kubectl would; return the answer's
    status.
    """
    path = f"/apis/{PATHS[kind].format(thief.namespace)}/{name}/status"
    return send(thief, "PATCH", path, json.dumps(change).encode(), kind="application/merge-patch+json")[0]


def put(path: str, value: Any) -> tuple[str, str]:
    return "--type=json", f"--patch={json.dumps([{'op': 'add', 'path': path, 'value': value}])}"


def wait_for_policy(thief: Kubectl, kind: str, name: str, message: str) -> None:
    """Wait until the API server refuses a write for the policy's reason; rights that come late refuse it as well, and
    so does an API server that never changes such a field.
    """
    turns = count()

    def refused_by_policy() -> bool:
        # Another value each time: what changes nothing is never refused.
        awaited = merge({"metadata": {"annotations": {"awaited": str(next(turns))}}})
        return message in thief.refused("patch", kind, name, *awaited)

    wait_until(refused_by_policy, 20, what="the policy is in force")


def acts(kind: str) -> dict[str, tuple[str, ...]]:
    """Return patches of a job that the hub places, none of which its record or its status needs."""
    template, run = TEMPLATES[kind], "/spec/runPolicy" if kind == "pytorchjob" else "/spec"
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "00000000-0000-0000-0000-000000000000"}
    return {
        "image": put(f"{template}/spec/containers/0/image", "evil:1"),
        "account": put(f"{template}/spec/serviceAccountName", "stolen"),
        "command": put(f"{template}/spec/containers/0/command", ["evil"]),
        "size": put(SIZES[kind], 3),
        "start": put(f"{run}/suspend", False),
        "deadline": put(f"{run}/activeDeadlineSeconds", 1),
        "label": merge({"metadata": {"labels": {"team": "thieves"}}}),
        "queue": merge({"metadata": {"labels": {names.QUEUE_LABELS[0]: "theirs"}}}),
        "annotation": merge({"metadata": {"annotations": {"note": "stolen"}}}),
        "permit": merge({"metadata": {"annotations": {names.PERMIT: "x"}}}),
        "finalizer": merge({"metadata": {"finalizers": ["example.com/never"]}}),
        "owner": merge({"metadata": {"ownerReferences": [owner]}}),
    }


def stored(admin: Kubectl, kind: str, name: str) -> Any:
    """Return what a thief might have changed of a job."""
    found = admin.get(kind, name)
    meta = {key: found["metadata"].get(key) for key in ("labels", "annotations", "finalizers", "ownerReferences")}
    return meta, found["spec"], found.get("status", {}).get("conditions")


def test_a_stolen_token_of_a_hub_changes_nothing_of_a_job_but_where_it_is(
    owner: Kubectl, admin: Kubectl, thief: Kubectl
) -> None:
    submit(owner, "placed", placed=True)
    for kind in KINDS:
        wait_for_policy(thief, kind, "placed", "changes nothing of a job but")
        before = stored(admin, kind, "placed")
        for name, patch in acts(kind).items():
            # Refused; or the API server stores nothing of it, as of another field in a write of the status.
            with suppress(KubectlError):
                thief("patch", kind, "placed", *patch)
            assert stored(admin, kind, "placed") == before, (kind, name)
        for change in ({"metadata": {"labels": {"team": "thieves"}}}, RECORD, {"spec": {"suspend": False}}):
            patch_status(thief, kind, "placed", change)
            assert stored(admin, kind, "placed") == before, (kind, "by its status", change)
        for verb in (("delete", kind, "placed"), ("scale", kind, "placed", "--replicas=9")):
            thief.refused(*verb)


def test_a_stolen_token_of_a_hub_writes_nothing_on_a_job_that_it_does_not_place(
    owner: Kubectl, admin: Kubectl, thief: Kubectl
) -> None:
    submit(owner, "theirs", placed=False)
    for kind in KINDS:
        wait_for_policy(thief, kind, "theirs", "writes only on jobs that it places")
        # What its own controller writes beside is no theft.
        wait_until(lambda kind=kind: condition(admin.get(kind, "theirs"), "Suspended"), what="it says that it waits")
        assert "places" in thief.refused("patch", kind, "theirs", *merge(RECORD))
        assert patch_status(thief, kind, "theirs", STATUS) in REFUSED
        for patch in acts(kind).values():
            before = stored(admin, kind, "theirs")
            with suppress(KubectlError):
                thief("patch", kind, "theirs", *patch)
            assert stored(admin, kind, "theirs") == before, (kind, patch)


def test_what_a_hub_writes_of_its_jobs_passes(owner: Kubectl, admin: Kubectl, thief: Kubectl) -> None:
    """Its record, the finalizer beside it, and the status that a member shows."""
    submit(owner, "placed", placed=True)
    for kind in KINDS:
        # The account's rights are new.
        wait_until(lambda kind=kind: thief("patch", kind, "placed", *merge(RECORD)), what="it may write its record")
        thief("patch", kind, "placed", *merge({"metadata": {"finalizers": [names.DISPATCH]}}))
        assert patch_status(thief, kind, "placed", STATUS) == 200
        found = admin.get(kind, "placed")
        assert found["metadata"]["finalizers"] == [names.DISPATCH]
        assert found["status"]["conditions"][0]["type"] == "Stolen"
        thief("patch", kind, "placed", *merge({"metadata": {"finalizers": None}}))


def test_a_tenant_changes_nothing_by_which_a_hub_knows_its_jobs_where_no_webhook_is_asked(
    hub: Cluster, admin: Kubectl
) -> None:
    """Kinds without ``managedBy`` have an annotation. Of an operator's namespace the webhook is not asked."""
    beside = admin.in_namespace("spark-operator")
    admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": beside.namespace}})
    beside("create", "rolebinding", "tenant", "--clusterrole=edit", "--user=tenant")
    tenant = Kubectl(admin.program, hub.kubeconfig_for_user("tenant"), beside.namespace)
    thief = Kubectl(admin.program, hub.kubeconfig_for_service_account(NAMESPACE, ACCOUNT), beside.namespace)
    placed, theirs = (job(name, 1, pod_template(), suspend=True) for name in ("placed", "theirs"))
    placed["metadata"]["annotations"] = {names.MANAGED_BY: names.HUB_MANAGER}
    for each in (placed, theirs):
        wait_until(lambda it=each: tenant.create(it), what="the tenant's rights are in force")
    for name, value in (("placed", None), ("placed", "me"), ("theirs", names.HUB_MANAGER)):
        annotated = merge({"metadata": {"annotations": {names.MANAGED_BY: value}}})
        asked = ("patch", "job", name, *annotated)
        # Before the policy is in force they pass, and nothing of a rehearsal is stored.
        rehearsed = partial(tenant.refused, *asked, "--dry-run=server")
        wait_until(lambda said=rehearsed: "and stays" in said(), what="the policy is in force")
        tenant.refused(*asked)
    tenant("patch", "job", "placed", *merge({"metadata": {"annotations": {"note": "mine"}}}))
    wait_until(lambda: thief("patch", "job", "placed", *merge(RECORD)), what="the hub writes on what it places")
    assert "only on jobs that it places" in thief.refused("patch", "job", "theirs", *merge(RECORD))
    beside.delete("job", "placed", "theirs")
