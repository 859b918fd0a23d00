"""What a tenant tries by other spellings of a body: keys that come twice, protobuf, YAML, null, patches that delete.

Whatever the API server makes of a body is what is judged. The table in docs/threat-model.md names these tests.
"""

import json
from typing import Any, Final

import pytest
import yaml

from tests.e2e.kubectl import Kubectl, stays, wait_until
from tests.e2e.objects import job, jobset, pod_template, pytorchjob
from tests.e2e.queues import QUEUE, entries, give_queue, reserved
from tests.e2e.raw import send

pytestmark = pytest.mark.usefixtures("tutti")

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
PATHS: Final = {
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets",
    "PyTorchJob": "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs",
}


def gangs(pods: int = 2) -> list[dict[str, Any]]:
    return [
        job("gang", pods, pod_template(), QUEUE),
        jobset("gang", pods, pod_template(), QUEUE),
        pytorchjob("gang", pods - 1, pod_template(container="pytorch"), QUEUE),
    ]


def path_of(who: Kubectl, kind: str) -> str:
    return PATHS[kind].format(who.namespace)


def suspended(admin: Kubectl, kind: str, name: str) -> bool:
    spec = admin.get(kind.lower(), name)["spec"]
    return bool((spec["runPolicy"] if kind == "PyTorchJob" else spec).get("suspend"))


def test_a_key_that_comes_twice_starts_no_gang_and_hides_no_queue(owner: Kubectl, admin: Kubectl) -> None:
    """The last one counts for the API server, and what it stores is what is judged."""
    give_queue(admin, 0)
    for manifest in gangs():
        kind, text = manifest["kind"], json.dumps(manifest)
        label = f'"tutti.dev/queue-name": "{QUEUE}"'
        assert label in text
        twice = [
            text.replace('"spec": {', '"spec": {"suspend": true, "suspend": false, ', 1),
            text.replace(label, f'"tutti.dev/queue-name": "", {label}'),
            text.replace('"metadata": {', '"metadata": {"labels": {}, ', 1),
            text[:-1] + ', "metadata": {"name": "gang", "labels": {' + label + "}}}",
        ]
        for number, each in enumerate(twice):
            body = each.replace('"name": "gang"', f'"name": "twice-{number}"')
            status, _ = send(owner, "POST", f"{path_of(owner, kind)}?fieldValidation=Ignore", body.encode())
            assert status in (201, 400, 403, 422)
            if status == 201:
                assert suspended(admin, kind, f"twice-{number}"), (kind, body)
    stays(lambda: not owner.pods() and not entries(admin), 1, "nothing started")


def test_a_body_in_protobuf_is_judged_as_one_in_json(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 0)
    owner.create(gangs()[0])
    path = f"{path_of(owner, 'Job')}/gang"
    status, stored = send(owner, "GET", path, accept=PROTOBUF)
    assert status == 200
    assert stored.count(b"NonIndexedP\x01") == 1, "suspend comes behind the completion mode"

    def put(before: bytes, after: bytes) -> tuple[int, bytes]:
        _, stored = send(owner, "GET", path, accept=PROTOBUF)
        status, told = send(owner, "PUT", path, stored.replace(before, after), kind=PROTOBUF)
        # A controller may write the status in between, which is a conflict and no judgement.
        assert status != 409
        return status, told

    status, told = wait_until(lambda: put(b"NonIndexedP\x01", b"NonIndexedP\x00"), what="it is judged")
    assert (status, b"only Tutti un-suspends it" in told) == (403, True), told
    status, told = wait_until(lambda: put(b"tutti.dev/queue-name", b"tutti.dev/queue-nams"), what="it is judged")
    assert status == 403, told
    assert suspended(admin, "Job", "gang")


def test_yaml_that_grows_when_it_is_read_stops_nobody(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 1)
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    head = yaml.safe_dump(gangs()[2])
    status, _ = send(
        owner,
        "POST",
        path_of(owner, "PyTorchJob"),
        (head + "\n".join(lines)).encode(),
        kind="application/yaml",
    )
    assert status in (400, 413, 422)
    owner.create(job("beside", 1, pod_template(), QUEUE))
    wait_until(lambda: len(owner.pods(phase="Running")) == 1, what="another job starts")


def test_null_and_patches_that_delete_start_no_gang_and_take_nothing_off_it(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 0)
    for manifest in gangs():
        kind = manifest["kind"]
        owner.create(manifest)
        run = {"runPolicy": {"suspend": None}} if kind == "PyTorchJob" else {"suspend": None}
        tricks: list[tuple[str, dict[str, Any]]] = [
            ("merge", {"spec": run}),
            ("merge", {"metadata": {"labels": None}}),
            ("merge", {"metadata": {"labels": None}, "spec": run}),
        ]
        if kind == "Job":
            tricks += [
                ("strategic", {"spec": {"suspend": None}}),
                ("strategic", {"metadata": {"labels": {"$patch": "delete"}}}),
                ("strategic", {"metadata": {"labels": {"$patch": "replace", "team": "a"}}}),
                ("strategic", {"spec": {"$retainKeys": ["template"], "template": {}}}),
            ]
        if kind == "PyTorchJob":
            tricks.append(("merge", {"spec": {"runPolicy": None}}))
        for form, patch in tricks:
            owner.refused("patch", kind.lower(), "gang", f"--type={form}", f"--patch={json.dumps(patch)}")
            assert suspended(admin, kind, "gang"), (kind, patch)
            assert admin.get(kind.lower(), "gang")["metadata"]["labels"]["tutti.dev/queue-name"] == QUEUE
    stays(lambda: not owner.pods() and not entries(admin), 1, "nothing started")


def test_numbers_in_other_spellings_and_keys_in_other_cases_bring_no_pod_that_has_no_place(
    owner: Kubectl, admin: Kubectl
) -> None:
    """``Worker`` and ``worker`` are one to the operator."""
    give_queue(admin, 4)
    manifest = pytorchjob("gang", 1, pod_template(container="pytorch"), QUEUE)
    text = json.dumps(manifest)
    replicas = manifest["spec"]["pytorchReplicaSpecs"]
    both = {**replicas, "worker": {**replicas["Worker"], "replicas": 6}}
    bodies = [
        text.replace('"Worker": {"replicas": 1', '"Worker": {"replicas": 1, "Replicas": 6'),
        text.replace('"replicas": 1', '"replicas": 1.0'),
        text.replace('"replicas": 1', '"replicas": 10e-1'),
        text.replace('"replicas": 1', '"replicas": 1e400'),
        text.replace('"replicas": 1', '"replicas": 18446744073709551617'),
        json.dumps({**manifest, "spec": {**manifest["spec"], "pytorchReplicaSpecs": both}}),
    ]
    for number, each in enumerate(bodies):
        body = each.replace('"name": "gang"', f'"name": "odd-{number}"')
        send(owner, "POST", f"{path_of(owner, 'PyTorchJob')}?fieldValidation=Ignore", body.encode())

    def within() -> bool:
        # In this order: between the two looks, places may come and pods with them, but nothing ends.
        pods = len(owner.pods())
        held = sum(each.count for entry in entries(admin) for each in entry.pod_sets)
        return pods <= held and reserved(admin) <= 4

    stays(within, 5, "each pod has a place")


def test_a_gang_whose_pods_are_evicted_again_and_again_has_no_more_of_them(owner: Kubectl, admin: Kubectl) -> None:
    """Eviction is a right of whoever may edit a namespace."""
    give_queue(admin, 2)
    owner.create(job("gang", 2, pod_template(), QUEUE))
    wait_until(lambda: len(owner.pods(phase="Running")) == 2, what="it runs")
    for _ in range(6):
        for pod in owner.pods():
            name = pod["metadata"]["name"]
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            path = f"/api/v1/namespaces/{owner.namespace}/pods/{name}/eviction"
            send(owner, "POST", path, json.dumps(body).encode())
        alive = [pod for pod in admin.items("pods") if pod["status"].get("phase") in ("Pending", "Running")]
        assert len(alive) <= 4, "each that goes, and its replacement"
        assert reserved(admin) <= 2
    owner.create(job("owed", 2, pod_template(), QUEUE))
    owner.delete("job", "gang")
    wait_until(lambda: len(owner.pods("job-name=owed", phase="Running")) == 2, 60, what="its room came back")
