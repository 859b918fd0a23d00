"""Certificates and their authority are replaced while jobs are created without a pause: no request fails."""

import base64
import json
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest
import yaml
from cryptography import x509

from certs import cluster as certs_cluster
from certs.__main__ import issue_directory, terms_for
from certs.rotation import Material
from tests.e2e.conftest import Team, create_namespace, member
from tests.e2e.controlplane.cluster import Cluster, Shape
from tests.e2e.controlplane.install import CERT_MANAGER_OVERLAY, NAMESPACE, SECRET, Installation
from tests.e2e.kubectl import Kubectl, condition, wait_until
from tests.e2e.load import Load, api_of
from tests.e2e.objects import job, pod_template
from tests.e2e.queues import QUEUE, give_queue
from webhook.clock import SystemClock

OVERLAP_SECONDS: Final = 1.0
"""How long everybody has to learn of a new authority, where it is a day otherwise."""
EACH_SECONDS: Final = 1.5
"""Load goes on for so long after every step."""


def load_on(team: Team, name: str) -> Load:
    """Return load of jobs that wait, as fast as one connection can carry it."""
    return Load(team.api, team.jobs, lambda n: job(f"{name}-{n}", 1, pod_template(), QUEUE), 0.005)


def assert_unharmed(load: Load, least: int = 20) -> None:
    """Assert that every job was created and held."""
    assert not load.failures, load.failures[:3]
    assert len(load.stored) > least
    assert all(item["spec"]["suspend"] for item in load.stored)


def served(tutti: Installation) -> set[int]:
    """Return the serial numbers of the certificates that the webhook replicas serve to a new connection."""
    addresses = [("127.0.0.1", replica.webhook_port) for replica in tutti.webhooks]
    pems = [ssl.get_server_certificate(address, timeout=5) for address in addresses]
    return {x509.load_pem_x509_certificate(pem.encode()).serial_number for pem in pems}


def wait_served(tutti: Installation, serial: int) -> None:
    """Wait until every replica serves a certificate, and leave the load some time with it."""
    wait_until(lambda: served(tutti) == {serial}, what="every replica serves the new certificate")
    time.sleep(EACH_SECONDS)


class Rotation:
    """The steps of ``python -m certs`` in the installation's directory, with a shorter overlap."""

    def __init__(self, tutti: Installation) -> None:
        self._tutti = tutti
        self.out = tutti.cluster.directory / "certs"

    def step(self, *names: str, new_authority: bool = False) -> Material:
        """Do what is due, store it in the Secret and announce the authorities."""
        terms = replace(terms_for(NAMESPACE, names), overlap_seconds=OVERLAP_SECONDS)
        material = issue_directory(self.out, None, terms, SystemClock().now(), new_authority=new_authority)
        secret = yaml.safe_dump(certs_cluster.secret_manifest(NAMESPACE, material))
        cluster = self._tutti.cluster
        kubectl = Kubectl(cluster.binaries["kubectl"], cluster.kubeconfig, NAMESPACE)
        kubectl("apply", "--server-side", "-f", "-", stdin=secret)
        self._tutti.certs("patch-ca", "--out", str(self.out), "--kubeconfig", str(kubectl.kubeconfig))
        return material


def serial_of(material: Material) -> int:
    """Return the serial number of the leaf."""
    assert material.leaf is not None
    return material.leaf.certificate.serial_number


def test_a_leaf_is_renewed_under_load(breakable: Installation, team: Team) -> None:
    give_queue(team.admin, 0)
    before = served(breakable)
    with load_on(team, "leaf") as load:
        renewed = serial_of(Rotation(breakable).step("renewed.example"))
        assert renewed not in before
        wait_served(breakable, renewed)
    assert_unharmed(load)


def test_an_authority_is_replaced_under_load(breakable: Installation, team: Team) -> None:
    give_queue(team.admin, 0)
    rotation = Rotation(breakable)
    with load_on(team, "authority") as load:
        first = rotation.step()
        time.sleep(EACH_SECONDS)
        announced = rotation.step(new_authority=True)
        assert len(announced.authorities) == 2
        assert serial_of(announced) == serial_of(first), "the new authority is announced before it signs"
        time.sleep(EACH_SECONDS)
        signing = rotation.step()
        assert serial_of(signing) != serial_of(first)
        wait_served(breakable, serial_of(signing))
        settled = rotation.step()
        assert settled.bundle_pem == announced.authorities[0].certificate_pem, "the old authority is trusted no more"
        time.sleep(EACH_SECONDS)
    assert_unharmed(load)
    assert announced_bundle(team.admin) == settled.bundle_pem


def announced_bundle(admin: Kubectl) -> bytes:
    """Return the authority that the API server trusts."""
    entries = admin.get("validatingwebhookconfiguration", "tutti")["webhooks"]
    bundles = {entry["clientConfig"].get("caBundle", "") for entry in entries}
    assert len(bundles) == 1
    return base64.b64decode(bundles.pop())


# -- cert-manager -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def by_cert_manager() -> Iterator[Installation]:
    """Tutti on a cluster of its own, whose certificates the real cert-manager issues: its first start."""
    with Cluster(Shape(nodes=1, operators=False)) as started:
        started.start_cert_manager()
        yield Installation(started, CERT_MANAGER_OVERLAY).install(ready_seconds=120)


@pytest.fixture
def certified(by_cert_manager: Installation) -> Team:
    """A team on that cluster."""
    cluster, name = by_cert_manager.cluster, "certified"
    root = Kubectl(cluster.binaries["kubectl"], cluster.kubeconfig)
    create_namespace(root, name)
    return Team(root.in_namespace(name), member(cluster, root, name, "ann"), api_of(cluster, "ann"))


def renew(admin: Kubectl) -> None:
    """Make cert-manager issue the certificate again, as ``cmctl renew`` does."""
    system = admin.in_namespace(NAMESPACE)
    conditions: list[dict[str, Any]] = system.get("certificate", SECRET)["status"]["conditions"]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    issuing = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "lastTransitionTime": now}
    status = {"status": {"conditions": [*conditions, issuing]}}
    system.patch("certificate", SECRET, status, "--subresource=status")


def secret_serial(admin: Kubectl) -> int:
    """Return the serial number of the certificate in the Secret."""
    data = admin.in_namespace(NAMESPACE).get("secret", SECRET)["data"]
    return x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"])).serial_number


@pytest.mark.own_cluster
def test_certificates_of_cert_manager_serve_from_the_first_start_and_are_renewed_under_load(
    by_cert_manager: Installation, certified: Team
) -> None:
    admin = certified.admin
    wait_until(lambda: announced_bundle(admin), 60, what="cert-manager announced its authority")
    give_queue(admin, 0)
    certified.owner.create(job("first", 1, pod_template(), QUEUE))
    assert certified.owner.get("job", "first")["spec"]["suspend"] is True
    first = secret_serial(admin)
    assert served(by_cert_manager) == {first}
    with load_on(certified, "renewal") as load:
        renew(admin)
        renewed = wait_until(lambda: (found := secret_serial(admin)) != first and found, 60, what="it is issued again")
        wait_served(by_cert_manager, renewed)
    assert_unharmed(load)
    ready = admin.in_namespace(NAMESPACE).get("certificate", SECRET)
    assert condition(ready, "Ready") == "True", json.dumps(ready["status"])
