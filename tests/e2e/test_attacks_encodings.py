"""What a tenant tries by other spellings of a body: keys that come twice, and protobuf.

Whatever the API server makes of a body is what is judged. The table in docs/threat-model.md names these tests.
"""

import json
from typing import Any, Final

import pytest

from tests.e2e.kubectl import Kubectl, stays
from tests.e2e.objects import job, jobset, pod_template, pytorchjob
from tests.e2e.queues import QUEUE, entries, give_queue
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
    # A controller may write the status in between, which is a conflict and no judgement.
    bare = stored.replace(b"NonIndexedP\x01", b"NonIndexedP\x00")
    status, told = send(owner, "PUT", path, bare, kind=PROTOBUF)
    assert (status, b"un-suspended by Tutti alone" in told) == (403, True), told
    unlabelled = stored.replace(b"tutti.dev/queue-name", b"tutti.dev/queue-nams")
    status, told = send(owner, "PUT", path, unlabelled, kind=PROTOBUF)
    assert status == 403, told
    assert suspended(admin, "Job", "gang")
