"""The manifests get their certificate, from cert-manager or by themselves, and the API server trusts it."""

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.x509 import DNSName, SubjectAlternativeName, load_pem_x509_certificate

from certs import cluster as certs_cluster
from certs.authority import DAY_SECONDS, service_names
from certs.rotation import Terms
from tests.e2e.controlplane.cluster import Cluster, Shape
from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.test_manifests import REGISTRATIONS, account, install
from webhook.clock import SystemClock
from webhook.kube.connecting import connect

pytestmark = pytest.mark.own_cluster


def test_cert_manager_issues_the_certificate_and_tells_the_api_server_whom_to_trust() -> None:
    with Cluster(Shape(nodes=1, operators=False)) as other:
        other.start_cert_manager()
        kubectl = Kubectl(other.binaries["kubectl"], other.kubeconfig, "tutti-system")
        install(kubectl, "loopback-cert-manager")
        secret = wait_until(lambda: kubectl.get("secret", "tutti-certs"), 60, what="the certificate's Secret")
        assert {"ca.crt", "tls.crt", "tls.key"} <= secret["data"].keys()
        for registration in REGISTRATIONS:
            entries = wait_until(lambda name=registration: injected(kubectl, name), 60, what="caBundle injected")
            assert {entry["clientConfig"]["caBundle"] for entry in entries} == {secret["data"]["ca.crt"]}
        leaf = load_pem_x509_certificate(base64.b64decode(secret["data"]["tls.crt"]))
        authority = load_pem_x509_certificate(base64.b64decode(secret["data"]["ca.crt"]))
        leaf.verify_directly_issued_by(authority)
        names = leaf.extensions.get_extension_for_class(SubjectAlternativeName).value.get_values_for_type(DNSName)
        assert set(names) == set(service_names("tutti-system"))


def injected(kubectl: Kubectl, registration: str) -> list[dict[str, Any]]:
    """Return the entries of a registration once all of them have a bundle; an empty list before."""
    entries: list[dict[str, Any]] = kubectl.get(*registration.split("/"))["webhooks"]
    return entries if all("caBundle" in entry["clientConfig"] for entry in entries) else []


@pytest.fixture
def alone() -> Iterator[Cluster]:
    """A control plane without operators, on which nothing of Tutti runs."""
    with Cluster(Shape(nodes=1, operators=False)) as started:
        yield started


async def test_rotation_runs_under_its_own_narrow_account(alone: Cluster) -> None:
    root = Kubectl(alone.binaries["kubectl"], alone.kubeconfig)
    install(root, "self-signed")
    terms, now = Terms(names=service_names("tutti-system")), SystemClock().now()
    kubeconfig = alone.kubeconfig_for_service_account("tutti-system", "tutti-certs")
    api = await connect(kubeconfig)
    try:
        first = await certs_cluster.rotate(api, "tutti-system", terms, now)
        both = await certs_cluster.rotate(api, "tutti-system", terms, now + DAY_SECONDS, new_authority=True)
    finally:
        await api.close()
    assert both.leaf is not None
    assert first.leaf is not None
    assert (len(both.authorities), both.leaf.certificate) == (2, first.leaf.certificate)
    entries = root.get("validatingwebhookconfiguration", "tutti")["webhooks"]
    assert len({entry["clientConfig"]["caBundle"] for entry in entries}) == 1
    assert root.get("apiservice", "v1alpha1.visibility.tutti.dev")["spec"]["caBundle"]
    certs = account(alone, "tutti-certs", "tutti-system")
    assert "cannot list" in certs.refused("get", "secrets")
    install(root, "self-signed")
    assert set(root.in_namespace("tutti-system").get("secret", "tutti-certs")["data"]) == {
        "ca.crt",
        "tls.crt",
        "tls.key",
    }
    assert root.get("validatingwebhookconfiguration", "tutti")["webhooks"] == entries
