"""What somebody tries who reaches Tutti's port, or has stolen the token of its account."""

import json
import ssl
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.e2e.controlplane.cluster import REVIEWER, Cluster
from tests.e2e.controlplane.install import NAMESPACE, ROOT, Installation
from tests.e2e.controlplane.pki import Authority
from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.objects import job, jobset, pod_template, pytorchjob
from tests.e2e.queues import QUEUE, give_queue, reservations
from tests.e2e.raw import send
from tests.e2e.test_metrics import value
from webhook.controllers.reporting.registration_watch import REASON
from webhook.core.notation import names

SELF_SIGNED: Final = ROOT / "manifests" / "components" / "self-signed" / "rotation.yaml"
ACCOUNTS: Final = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
pytestmark = [pytest.mark.own_cluster, pytest.mark.usefixtures("tutti")]


def post(
    tutti: Installation, certificate: tuple[Path, Path] | None = None, headers: dict[str, str] | None = None
) -> int:
    """Post a review to the port, and return the status."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(*certificate)
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "forged"}}
    address = f"https://127.0.0.1:{tutti.webhook_port}/validate/pods?timeout=3s"
    sent = {"Content-Type": "application/json", **(headers or {})}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(address, json.dumps(review).encode(), sent), timeout=10, context=context
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_review_that_the_api_server_did_not_send_is_not_answered(tutti: Installation) -> None:
    assert post(tutti) == 401
    assert post(tutti, tutti.cluster.reviewer) == 200


def test_a_certificate_of_another_name_or_authority_is_not_believed(tutti: Installation, tmp_path: Path) -> None:
    cluster = tutti.cluster
    for name in ("kube-apiserver-2", "kube", "front-proxy-client"):
        assert post(tutti, cluster.reviewers_authority.client(name).write(tmp_path, name)) == 401
    for number, authority in enumerate((Authority("tutti-reviewers-ca"), cluster.authority)):
        # By TLS 1.3 a caller learns after the handshake that it has failed.
        with pytest.raises((urllib.error.URLError, ssl.SSLError, ConnectionError)):
            post(tutti, authority.client(REVIEWER).write(tmp_path, f"false-{number}"))


def test_nobody_but_a_replica_passes_a_review_on(tutti: Installation) -> None:
    for certificate in (None, tutti.cluster.reviewer):
        assert post(tutti, certificate, headers={"Tutti-Hop": "tutti-webhook-0"}) == 403


@pytest.fixture
def thief(cluster: Cluster, admin: Kubectl) -> Kubectl:
    """Whoever has the reconciler's token, in the test's namespace."""
    kubeconfig = cluster.kubeconfig_for_service_account(NAMESPACE, "tutti-reconciler")
    return Kubectl(admin.program, kubeconfig, admin.namespace)


def image(kind: str) -> str:
    """Return the JSON patch that runs another image."""
    paths = {
        "job": "/spec/template",
        "jobset": "/spec/replicatedJobs/0/template/spec/template",
        "pytorchjob": "/spec/pytorchReplicaSpecs/Worker/template",
    }
    return json.dumps([{"op": "replace", "path": f"{paths[kind]}/spec/containers/0/image", "value": "evil:1"}])


def test_a_stolen_token_changes_no_job_that_waits_for_nothing(owner: Kubectl, thief: Kubectl) -> None:
    template = pod_template(gpus=0, container="pytorch")
    owner.create(pytorchjob("free", 1, template))
    owner.create(job("free", 1, pod_template(gpus=0), suspend=True))
    assert "has no queue" in thief.refused(
        "patch", "pytorchjob", "free", "--type=json", f"--patch={image('pytorchjob')}"
    )
    for kind in ("pytorchjob", "job"):
        note = '--patch={"metadata":{"annotations":{"tutti.dev/voided":"1/1"}}}'
        assert "has no queue" in thief.refused("patch", kind, "free", "--type=merge", note)


def test_a_stolen_token_starts_stops_and_places_jobs_and_changes_nothing_else_of_them(
    owner: Kubectl, admin: Kubectl, thief: Kubectl
) -> None:
    give_queue(admin, gpus=0)
    owner.create(job("waits", 1, pod_template(), QUEUE))
    owner.create(jobset("waits", 1, pod_template(), QUEUE))
    owner.create(pytorchjob("waits", 1, pod_template(container="pytorch"), QUEUE))
    more = {
        "metadata": {"labels": {"team": "thieves"}},
        "annotations": {"metadata": {"annotations": {"note": "stolen"}}},
    }
    for kind in ("job", "jobset", "pytorchjob"):
        told = thief.refused("patch", kind, "waits", "--type=json", f"--patch={image(kind)}")
        assert "start, stop and place a job" in told or (kind == "job" and "field is immutable" in told)
        label = json.dumps({"metadata": more["metadata"]})
        assert "no label" in thief.refused("patch", kind, "waits", "--type=merge", f"--patch={label}")
        note = json.dumps(more["annotations"])
        assert "no annotation" in thief.refused("patch", kind, "waits", "--type=merge", f"--patch={note}")
        assert "cannot delete" in thief.refused("delete", kind, "waits")
        own = '--patch={"metadata":{"annotations":{"tutti.dev/voided":"1/1"}}}'
        thief("patch", kind, "waits", "--type=merge", own)


def test_a_stolen_token_changes_no_number_of_a_gang_that_waits(owner: Kubectl, admin: Kubectl, thief: Kubectl) -> None:
    """Where its owner lets it start smaller, none but the one that says how many."""
    give_queue(admin, gpus=0)
    owner.create(job("waits", 1, pod_template(), QUEUE))
    owner.create(jobset("waits", 1, pod_template(), QUEUE))
    owner.create(pytorchjob("waits", 1, pod_template(container="pytorch"), QUEUE))
    smaller = job("smaller", 4, pod_template(), QUEUE)
    smaller["metadata"]["annotations"] = {names.MIN_PARALLELISM: "2"}
    owner.create(smaller)
    numbers = {
        "job/waits": ("/spec/parallelism", "/spec/backoffLimit", "/spec/activeDeadlineSeconds"),
        "job/smaller": ("/spec/backoffLimit", "/spec/ttlSecondsAfterFinished"),
        "jobset/waits": ("/spec/replicatedJobs/0/replicas", "/spec/ttlSecondsAfterFinished"),
        "pytorchjob/waits": (
            "/spec/pytorchReplicaSpecs/Worker/replicas",
            "/spec/runPolicy/backoffLimit",
            "/spec/pytorchReplicaSpecs/Worker/template/spec/hostNetwork",
        ),
    }
    for which, paths in numbers.items():
        for path in paths:
            patch = json.dumps([{"op": "add", "path": path, "value": True if path.endswith("Network") else 3}])
            told = thief.refused("patch", which, "--type=json", f"--patch={patch}")
            assert "start, stop and place a job" in told or "change the size of no job" in told, (which, path)
    thief.patch("job", "smaller", {"spec": {"parallelism": 2}})


def test_a_stolen_token_changes_no_more_by_apply_by_subresources_or_by_collections(
    owner: Kubectl, admin: Kubectl, thief: Kubectl
) -> None:
    give_queue(admin, gpus=1)
    waiting = {
        "job": job("waits", 2, pod_template(), QUEUE),
        "jobset": jobset("waits", 2, pod_template(), QUEUE),
        "pytorchjob": pytorchjob("waits", 1, pod_template(container="pytorch"), QUEUE),
    }
    for kind, manifest in waiting.items():
        owner.create(manifest)
        stored = admin.get(kind, "waits")
        changed = json.loads(json.dumps(manifest).replace("registry.example/training:1", "evil:1"))
        for flags in (("--server-side", "--force-conflicts", "--field-manager=kubectl-create"), ()):
            thief.refused("apply", "-f", "-", *flags, stdin=json.dumps(changed))
        thief.refused("replace", "-f", "-", stdin=json.dumps(stored | {"spec": changed["spec"]}))
        thief.refused("delete", kind, "--all")
        thief.refused("patch", kind, "waits", "--type=json", f"--patch={image(kind)}", "--dry-run=server")
        assert admin.get(kind, "waits")["spec"] == stored["spec"]
    said = {"status": {"active": 1}}
    path = f"/apis/batch/v1/namespaces/{thief.namespace}/jobs/waits/status"
    _, told = send(thief, "PATCH", path, json.dumps(said).encode(), kind="application/merge-patch+json")
    assert b"take out its start time" in told, told
    owner.create(job("runs", 1, pod_template(), QUEUE))
    wait_until(lambda: len(owner.pods(phase="Running")) == 1, what="a gang runs")
    name = owner.pods()[0]["metadata"]["name"]
    bare = '--patch=[{"op":"remove","path":"/metadata/labels"}]'
    assert "does not wait behind its gate" in thief.refused("patch", "pod", name, "--type=json", bare)
    for verb in (
        ("debug", name, "--image=evil:1", "--quiet"),
        ("create", "token", "tutti-webhook", "-n", NAMESPACE),
        ("label", "pod", name, "team=thieves"),
        ("annotate", "namespace", owner.namespace, "note=stolen"),
    ):
        thief.refused(*verb)


@pytest.fixture
def renewer(cluster: Cluster, kubectl: Kubectl) -> Iterator[Kubectl]:
    """Whoever has the token of the account that renews certificates, with the rights of the overlay self-signed."""
    rights = [each for each in yaml.safe_load_all(SELF_SIGNED.read_text()) if each["kind"] in ACCOUNTS]
    system = kubectl.in_namespace(NAMESPACE)
    system("apply", "-f", "-", stdin=yaml.safe_dump_all(rights))
    made = Kubectl(kubectl.program, cluster.kubeconfig_for_service_account(NAMESPACE, "tutti-certs"))
    registration = ("patch", "validatingwebhookconfiguration/tutti")
    wait_until(lambda: made("auth", "can-i", *registration), what="its rights are in force")
    yield made
    system("delete", "-f", "-", stdin=yaml.safe_dump_all(rights))


HOOK: Final = "loose-pods.tutti.dev"


@pytest.mark.parametrize("back", ["at once", "once it is told"])
def test_a_stolen_token_that_takes_a_webhook_out_of_our_registration_is_told(
    tutti: Installation, kubectl: Kubectl, renewer: Kubectl, back: str
) -> None:
    """No policy may judge registrations, so that this cannot be refused."""
    kind, system = "validatingwebhookconfiguration", kubectl.in_namespace(NAMESPACE)

    def told() -> set[str]:
        return {each["message"] for each in system.items("events") if each["reason"] == REASON}

    def counted(name: str) -> float:
        return max(value(tutti, f"tutti_registration_{name}"))

    wait_until(lambda: counted("faults") == 0, what="all is well")
    system("delete", "events", "--all")
    stored, lapses = kubectl.get(kind, "tutti"), counted("lapses_total")
    del stored["metadata"]["resourceVersion"]
    index = [hook["name"] for hook in stored["webhooks"]].index(HOOK)
    renewer("patch", kind, "tutti", "--type=json", f'--patch=[{{"op": "remove", "path": "/webhooks/{index}"}}]')
    try:
        if back != "at once":
            wait_until(lambda: counted("faults") == 1, what="it is counted")
    finally:
        kubectl("replace", "-f", "-", stdin=json.dumps(stored))
    wait_until(lambda: counted("lapses_total") == lapses + 1 and counted("faults") == 0, what="both are counted")
    wait_until(lambda: any(f"webhook {HOOK} is missing" in each for each in told()), what="that it was out is told")
    wait_until(lambda: any("is complete again" in each for each in told()), what="that it is back is told")


@pytest.mark.parametrize("authority", ["", b64encode(Authority("theirs").pem).decode()])
def test_a_stolen_token_that_announces_another_authority_is_told(
    tutti: Installation, kubectl: Kubectl, renewer: Kubectl, authority: str
) -> None:
    """Nobody could ask our webhooks then: those that let pass when nobody answers would let all pass."""
    kind = "validatingwebhookconfiguration"
    wait_until(lambda: max(value(tutti, "tutti_registration_faults")) == 0, what="all is well")
    stored = kubectl.get(kind, "tutti")
    del stored["metadata"]["resourceVersion"]
    change = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": authority}]
    renewer("patch", kind, "tutti", "--type=json", f"--patch={json.dumps(change)}")
    try:
        wait_until(lambda: max(value(tutti, "tutti_registration_faults")) == 1, what="it is counted")
    finally:
        kubectl("replace", "-f", "-", stdin=json.dumps(stored))
    wait_until(lambda: max(value(tutti, "tutti_registration_faults")) == 0, what="all is well again")


def test_what_tutti_writes_itself_passes(owner: Kubectl, admin: Kubectl) -> None:
    """Started, with what its flavor asks of nodes; the kinds in detail are the other tests' matter."""
    give_queue(admin, gpus=4)
    made = [
        job("one", 1, pod_template(), QUEUE),
        jobset("two", 1, pod_template(), QUEUE),
        pytorchjob("three", 1, pod_template(container="pytorch"), QUEUE),
    ]
    for each in made:
        owner.create(each)
    wait_until(lambda: reservations(admin).keys() == {"one", "two", "three"}, what="they are admitted")
    wait_until(lambda: len(admin.pods(phase="Running")) == 4, what="they run")
