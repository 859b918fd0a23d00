"""The control plane itself, before Tutti has a part in it: its controllers are the real ones and pods really run."""

import json
from typing import Any

import pytest

from tests.e2e.conftest import AnyCluster
from tests.e2e.controlplane.cluster import Cluster
from tests.e2e.kubectl import Kubectl, KubectlError, condition, wait_until
from tests.e2e.objects import job, jobset, pod_template, pytorchjob, tfjob
from tests.e2e.watching import Watch


def test_a_job_without_a_queue_runs_until_it_is_deleted(owner: Kubectl) -> None:
    owner.apply(job("steady", 3, pod_template()))
    wait_until(lambda: len(owner.pods("job-name=steady", "Running")) == 3, what="three pods run")
    owner.delete("job", "steady")
    wait_until(lambda: not owner.items("pods"), what="its pods are gone")


def test_a_job_completes_after_its_simulated_runtime(owner: Kubectl) -> None:
    owner.apply(job("short", 2, pod_template(runtime="1s")))
    wait_until(lambda: condition(owner.get("job", "short"), "Complete") == "True", what="the job completes")
    assert len(owner.pods("job-name=short", "Succeeded")) == 2


def test_a_jobset_of_two_pods_runs_and_completes(owner: Kubectl) -> None:
    owner.apply(jobset("pair", 2, pod_template(runtime="2s")))
    selector = "jobset.sigs.k8s.io/jobset-name=pair"
    wait_until(lambda: len(owner.pods(selector)) == 2, what="two pods exist")
    wait_until(lambda: condition(owner.get("jobset", "pair"), "Completed") == "True", what="the JobSet completes")


def test_a_pytorchjob_of_one_master_and_two_workers_runs(owner: Kubectl) -> None:
    owner.apply(pytorchjob("trio", 2, pod_template(container="pytorch")))
    selector = "training.kubeflow.org/job-name=trio"
    wait_until(lambda: len(owner.pods(selector, "Running")) == 3, what="master and workers run")
    wait_until(lambda: condition(owner.get("pytorchjob", "trio"), "Running") == "True", what="the job says so")


def test_a_tfjob_of_one_chief_and_one_worker_succeeds_after_its_simulated_runtime(owner: Kubectl) -> None:
    owner.apply(tfjob("duo", 1, pod_template(container="tensorflow", runtime="1s")))
    wait_until(lambda: condition(owner.get("tfjob", "duo"), "Succeeded") == "True", what="the job succeeds")


def test_pods_that_ask_for_more_gpus_than_any_node_has_stay_pending(owner: Kubectl) -> None:
    owner.apply(job("huge", 1, pod_template(gpus=64)))
    pod = wait_until(lambda: owner.pods("job-name=huge"), what="its pod exists")[0]
    found = wait_until(lambda: condition(owner.get("pod", pod["metadata"]["name"]), "PodScheduled"), what="a verdict")
    assert found == "False"


def test_a_watch_sees_every_pod_come_and_go(owner: Kubectl) -> None:
    with Watch(owner) as watch:
        owner.apply(job("watched", 4, pod_template(runtime="500ms")))
        wait_until(lambda: condition(owner.get("job", "watched"), "Complete") == "True", what="the job completes")
        owner.delete("job", "watched")
        wait_until(lambda: not owner.items("pods"), what="its pods are gone")
        wait_until(lambda: (states := watch.live()) and states[-1][1] == {}, what="the watch has seen them go")
        assert [change.kind for change in watch.changes].count("ADDED") == 4
        assert max(len(pods) for _, pods in watch.live()) == 4


@pytest.mark.parametrize("kind", ["pods", "pod", "events", "jobs.batch", "jobset", "namespaces", "nodes", "crd"])
def test_tests_read_without_kubectl_what_kubectl_shows(admin: Kubectl, kind: str) -> None:
    admin.apply(jobset("pair", 2, pod_template()))
    wait_until(lambda: len(admin.pods(phase="Running")) == 2, what="two pods run")
    read = wait_until(lambda: _alike(admin, kind), what="nothing changed between the two looks")
    one = read[-1]["metadata"]["name"]
    assert sorted(admin.get(kind, one)) == sorted(json.loads(admin("get", kind, one, "-o", "json")))
    with pytest.raises(KubectlError) as error:
        admin.get(kind, "nobody")
    assert error.value.stderr.strip() == admin.refused("get", kind, "nobody", "-o", "json").strip()


def test_tests_are_refused_without_kubectl_in_its_words(owner: Kubectl) -> None:
    with pytest.raises(KubectlError) as error:
        owner.get("node", "node-0")
    assert error.value.stderr.strip() == owner.refused("get", "node", "node-0", "-o", "json").strip()


def test_what_tests_set_up_without_kubectl_is_as_kubectl_applies_it(admin: Kubectl) -> None:
    made = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "made", "labels": {"a": "b"}},
        "data": {"c": "d"},
    }
    admin.set_up(made)
    assert "made unchanged" in admin.apply(made)
    other = {**made, "data": {"e": "f"}}
    admin.set_up(made, other)
    assert admin.get("configmap", "made")["data"] == {"e": "f"}
    admin.clear("configmap", "made", "made")
    assert admin("get", "configmap", "made", "--ignore-not-found") == ""


def _alike(admin: Kubectl, kind: str) -> list[dict[str, Any]]:
    """Return what is read of a kind if it is what kubectl shows, else nothing: some objects change by themselves."""
    read, shown = admin.items(kind), json.loads(admin("get", kind, "-o", "json"))["items"]
    return read if read == shown else []


def test_a_user_has_only_the_rights_of_their_namespace(owner: Kubectl) -> None:
    assert owner.can("create", "jobs.batch")
    assert not owner.in_namespace("default").can("create", "jobs.batch")
    with pytest.raises(KubectlError, match="forbidden"):
        owner("get", "nodes")


@pytest.mark.needs("crd/certificates.cert-manager.io")
def test_cert_manager_issues_a_certificate_and_injects_its_authority(cluster: AnyCluster, admin: Kubectl) -> None:
    if isinstance(cluster, Cluster):
        cluster.start_cert_manager()
    namespace = admin.namespace
    issuer = {"apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": {"name": "self"}}
    admin.apply(issuer | {"spec": {"selfSigned": {}}})
    certificate = {"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": {"name": "leaf"}}
    admin.apply(
        certificate
        | {"spec": {"secretName": "leaf", "dnsNames": [f"a.{namespace}.svc"], "issuerRef": {"name": "self"}}}
    )
    registration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": namespace, "annotations": {"cert-manager.io/inject-ca-from": f"{namespace}/leaf"}},
        "webhooks": [
            {
                "name": "nothing.tutti.dev",
                "clientConfig": {"service": {"name": "a", "namespace": namespace}},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "rules": [],
            }
        ],
    }
    admin.apply(registration)

    def injected() -> str:
        found = admin.get("validatingwebhookconfiguration", namespace)
        return str(found["webhooks"][0]["clientConfig"].get("caBundle", ""))

    try:
        wait_until(injected, timeout_seconds=60, what="the authority is injected")
        assert admin.get("secret", "leaf")["data"]["ca.crt"] == injected()
    finally:
        admin.delete("validatingwebhookconfiguration", namespace)
