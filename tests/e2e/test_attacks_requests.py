"""What a tenant tries by requests that are seldom made: whole collections, apply by force, bytes that are no text.

The table in docs/threat-model.md names these tests.
"""

import json
from contextlib import suppress
from typing import Any, Final

import pytest
import yaml

from tests.e2e.kubectl import Kubectl, KubectlError, stays, wait_until
from tests.e2e.objects import job, jobset, mpijob, pod, pod_template, pytorchjob, tfjob
from tests.e2e.queues import QUEUE, entries, gate_by_hand, give_queue, reserved
from tests.e2e.raw import send

pytestmark = pytest.mark.usefixtures("tutti")

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
JOBS: Final = "/apis/batch/v1/namespaces/{}/jobs"
PODS: Final = "/api/v1/namespaces/{}/pods"
FOREIGN: Final = "kueue.x-k8s.io/multikueue"
PATHS: Final = {
    "job": JOBS,
    "jobset": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets",
    "pytorchjob": "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs",
}


def running(owner: Kubectl, pods: int, selector: str = "") -> None:
    wait_until(lambda: len(owner.pods(selector, phase="Running")) == pods, what=f"{pods} pods run")


def gangs(pods: int = 2) -> list[dict[str, Any]]:
    """Return a gang of three kinds, called by the kind."""
    return [
        job("job", pods, pod_template(), QUEUE),
        jobset("jobset", pods, pod_template(), QUEUE),
        pytorchjob("pytorchjob", pods - 1, pod_template(container="pytorch"), QUEUE),
    ]


def options(**named: Any) -> bytes:
    return json.dumps({"kind": "DeleteOptions", "apiVersion": "v1", **named}).encode()


def test_a_collection_is_deleted_from_above_no_pod_and_none_is_given_more_than_an_hour(
    owner: Kubectl, admin: Kubectl
) -> None:
    """By the address or the body; a policy that looks at one object is asked about each."""
    give_queue(admin, 6)
    for manifest in gangs():
        owner.create(manifest)
    running(owner, 6)
    here = owner.namespace
    for kind, path in PATHS.items():
        for query, body in (
            ("?propagationPolicy=Orphan", None),
            ("?orphanDependents=true", None),
            ("", options(propagationPolicy="Orphan")),
            ("", options(orphanDependents=True)),
        ):
            for which in (path.format(here), f"{path.format(here)}/{kind}"):
                status, told = send(owner, "DELETE", which + query, body)
                assert (status, b"its quota" in told) == (422, True), (which, query, body, told)
    slow = 99_999_999
    for query, body in ((f"?gracePeriodSeconds={slow}", None), ("", options(gracePeriodSeconds=slow))):
        status, told = send(owner, "DELETE", PODS.format(here) + query, body)
        assert (status, b"within an hour" in told) == (422, True), (query, told)
    assert len(owner.pods(phase="Running")) == 6
    assert send(owner, "DELETE", JOBS.format(here), options(propagationPolicy="Background"))[0] == 200
    wait_until(lambda: not owner.pods("job-name=job"), what="they go with their job")


BYTES: Final = {
    "no UTF-8": b"\xff\xfe\xff\xfe\xff\xfe\xff\xfe",
    "half a surrogate": b"\xed\xa0\x80\xed\xa0\x80\xed\xa0",
    "controls": b"\x00\x01\x02\x03\x04\x05\x06\x07",
    "too long a form": b"\xc0\x80\xf8\x88\x80\x80\x80\xf4",
}


def test_bytes_that_are_no_text_hide_no_object_and_stop_nobody(owner: Kubectl, admin: Kubectl) -> None:
    """The API server takes them in protobuf, and has to write JSON of them for everybody who watches."""
    give_queue(admin, 90)
    marked = pod_template()
    marked["metadata"]["annotations"] = {"example.com/note": "INTHEPOD"}
    for number, (what, odd) in enumerate(BYTES.items()):
        made = job(f"odd-{number}", 1, marked, QUEUE, suspend=True)
        made["metadata"]["annotations"] = {"example.com/note": "INTHEJOB"}
        owner.create(made)
        loose = pod(f"odd-{number}", pod_template(gpus=0))
        loose["metadata"]["annotations"] = {"example.com/note": "INTHEPOD"}
        owner.create(loose)
        stored = 0
        for path, word in ((JOBS, b"INTHEJOB"), (PODS, b"INTHEPOD")):
            address = f"{path.format(owner.namespace)}/odd-{number}"

            def put(address: str = address, word: bytes = word, odd: bytes = odd) -> int:
                _, found = send(owner, "GET", address, accept=PROTOBUF)
                return send(owner, "PUT", address, found.replace(word, odd), kind=PROTOBUF)[0]

            # A controller may write in between.
            stored += wait_until(lambda put=put: put() == 200, what=f"{what} is stored")
        assert stored == 2
    owner.create(job("honest", 2, pod_template(), QUEUE))
    running(owner, 2, "job-name=honest")
    for number in range(len(BYTES)):
        running(owner, 1, f"job-name=odd-{number}")


def test_a_pod_of_a_gang_is_let_go_of_by_nobody_but_its_controller(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 6)
    for manifest in gangs():
        owner.create(manifest)
    running(owner, 6)
    other = admin.get("configmap", "kube-root-ca.crt")["metadata"]
    second = {"apiVersion": "v1", "kind": "ConfigMap", "name": other["name"], "uid": other["uid"]}
    for found in owner.pods():
        name, (reference,) = found["metadata"]["name"], found["metadata"]["ownerReferences"]
        for written in (None, [reference | {"controller": False}], [reference | {"name": "other"}], [second]):
            patch = {"metadata": {"ownerReferences": written}}
            told = owner.refused("patch", "pod", name, "--type=merge", f"--patch={json.dumps(patch)}")
            assert "may change the controller" in told, (name, written, told)
        gone = [{"op": "remove", "path": "/metadata/ownerReferences"}]
        assert "controller" in owner.refused("patch", "pod", name, "--type=json", f"--patch={json.dumps(gone)}")
    stays(lambda: len(owner.pods(phase="Running")) == 6 and reserved(admin) == 6, 2, "all stays as it is")


@pytest.fixture
def gated(admin: Kubectl, owner: Kubectl) -> Kubectl:
    """The owner, in a namespace that is gated by hand, with 2 GPUs in its LocalQueue ``default``."""
    gate_by_hand(admin, 2)
    return owner


@pytest.mark.parametrize("manager", ["kubectl", "tutti"])
def test_the_queue_that_the_webhook_wrote_is_left_by_no_way_of_applying(
    gated: Kubectl, admin: Kubectl, manager: str
) -> None:
    """Who applies a job again without the label that they never wrote does not own it."""
    kinds = {
        "job": job("greedy", 16, pod_template()),
        "jobset": jobset("greedy", 16, pod_template()),
        "pytorchjob": pytorchjob("greedy", 15, pod_template(container="pytorch")),
        "tfjob": tfjob("greedy", 15, pod_template(container="tensorflow")),
        "mpijob": mpijob("greedy", 15, pod_template()),
    }
    by = ("--server-side", "--force-conflicts", f"--field-manager={manager}")
    for kind, manifest in kinds.items():
        gated.apply(manifest, *by)
        gated.apply(manifest, *by)
        for tried in ({"labels": None}, {"labels": {}}, {"labels": {"kueue.x-k8s.io/queue-name": ""}}):
            changed = manifest | {"metadata": {**manifest["metadata"], **tried}}
            with suppress(KubectlError):
                gated("apply", "-f", "-", *by, stdin=yaml.safe_dump(changed))
            assert gated.get(kind, "greedy")["metadata"]["labels"]["tutti.dev/queue-name"] == "default", (kind, tried)
        assert "not leave it" in gated.refused(
            "patch", kind, "greedy", "--type=merge", f"--patch={json.dumps({'metadata': {'labels': None}})}"
        )
        for operations in (
            [{"op": "replace", "path": "/metadata/labels", "value": {}}],
            [{"op": "move", "from": "/metadata/labels/tutti.dev~1queue-name", "path": "/metadata/labels/gone"}],
        ):
            told = gated.refused("patch", kind, "greedy", "--type=json", f"--patch={json.dumps(operations)}")
            assert "not leave it" in told, (kind, told)
    stays(lambda: not gated.pods() and not entries(admin), 1, "they wait")


def test_what_another_controller_holds_is_taken_back_running_by_no_kind_of_request(
    owner: Kubectl, admin: Kubectl
) -> None:
    """By a JSON patch, apply under the manager that wrote it, or whole; it would be adopted beyond every quota."""
    give_queue(admin, 2)
    made = {
        "pytorchjob": pytorchjob("held", 7, pod_template(container="pytorch"), QUEUE),
        "tfjob": tfjob("held", 7, pod_template(container="tensorflow"), QUEUE),
        "mpijob": mpijob("held", 7, pod_template(), QUEUE),
    }
    by = ("--server-side", "--force-conflicts")
    for kind, manifest in made.items():
        owner.apply(manifest | {"spec": manifest["spec"] | {"runPolicy": {"managedBy": FOREIGN}}}, *by)
        where = "/spec/runPolicy/managedBy"
        patches = (
            [{"op": "remove", "path": where}],
            [{"op": "test", "path": where, "value": FOREIGN}, {"op": "remove", "path": "/spec/runPolicy"}],
            [{"op": "replace", "path": where, "value": "kubeflow.org/training-operator"}],
        )
        for patch in patches:
            owner.refused("patch", kind, "held", "--type=json", f"--patch={json.dumps(patch)}")
        owner.refused("apply", "-f", "-", *by, stdin=yaml.safe_dump(manifest))
        stored = owner.get(kind, "held")
        del stored["spec"]["runPolicy"]["managedBy"]
        owner.refused("replace", "-f", "-", stdin=json.dumps(stored))
        assert owner.get(kind, "held")["spec"]["runPolicy"]["managedBy"] == FOREIGN
    stays(lambda: not owner.pods() and not entries(admin), 1, "nothing started, nothing was adopted")


@pytest.mark.parametrize("more", [{}, {"blockOwnerDeletion": True}], ids=["", "and blocks its deletion"])
def test_a_job_below_what_another_controller_holds_is_stored_waiting_or_not_at_all(
    gated: Kubectl, admin: Kubectl, more: dict[str, bool]
) -> None:
    """Its owner is admitted by nobody here, and so is it."""
    held = jobset("held", 16, pod_template(), "default", managedBy=FOREIGN)
    gated.create(held)
    known = gated.get("jobset", "held")
    reference = {"apiVersion": known["apiVersion"], "kind": "JobSet", "name": "held", "uid": known["metadata"]["uid"]}
    for controller in (True, False):
        child = job(f"child-{str(controller).lower()}", 16, pod_template())
        child["metadata"]["ownerReferences"] = [reference | more | {"controller": controller}]
        with suppress(KubectlError):
            gated.create(child)
    for found in gated.items("jobs"):
        name = found["metadata"]["name"]
        assert found["spec"]["suspend"] is True, name
        starting = [{"op": "replace", "path": "/spec/suspend", "value": False}]
        gated.refused("patch", "job", name, "--type=json", f"--patch={json.dumps(starting)}")
    stays(lambda: not gated.pods() and not entries(admin), 1, "nothing started")
