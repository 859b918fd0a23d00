"""Certificates without cert-manager: the Job issues the first ones, the CronJob renews them while jobs are created."""

import base64
import itertools
import uuid
from collections.abc import Iterator
from typing import Final

import pytest

from certs.__main__ import terms_for
from certs.authority import DAY_SECONDS, Pair, load_pair, new_authority, new_leaf
from certs.cluster import AUTHORITY_SECRET, LEAF_SECRET
from certs.rotation import Material, load_authorities
from certs.store import AUTHORITIES_FILE
from tests.e2e.conftest import Team, create_namespace, member
from tests.e2e.controlplane.cluster import Cluster, Shape
from tests.e2e.controlplane.install import NAMESPACE, SELF_SIGNED_OVERLAY, Installation
from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.load import api_of
from tests.e2e.objects import job, pod_template
from tests.e2e.queues import QUEUE, give_queue
from tests.e2e.test_certificates import announced_bundle, assert_unharmed, load_on, serial_of, served, wait_served
from webhook.clock import SystemClock

pytestmark = pytest.mark.own_cluster

NAMES: Final = terms_for(NAMESPACE).names
REGISTRATIONS: Final = ("validatingwebhookconfiguration", "mutatingwebhookconfiguration")


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    """Tutti on a cluster of its own, installed from nothing: empty Secrets, nobody trusted."""
    with Cluster(Shape(nodes=1, operators=False)) as started:
        yield Installation(started, SELF_SIGNED_OVERLAY).install()


@pytest.fixture
def team(installation: Installation) -> Team:
    """A team on that cluster, whose queue admits nothing."""
    cluster, name = installation.cluster, f"e2e-{uuid.uuid4().hex[:8]}"
    root = Kubectl(cluster.binaries["kubectl"], cluster.kubeconfig)
    create_namespace(root, name)
    found = Team(root.in_namespace(name), member(cluster, root, name, f"{name}-ann"), api_of(cluster, f"{name}-ann"))
    give_queue(found.admin, 0)
    return found


class Secrets:
    """What the Job and the CronJob keep, and a run of the CronJob; writing here is as if time had passed."""

    _runs = itertools.count()

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        cluster = installation.cluster
        self.system = Kubectl(cluster.binaries["kubectl"], cluster.kubeconfig, NAMESPACE)

    def run(self) -> Material:
        """Run the CronJob now, as the documentation says; return what it left."""
        name = f"tutti-certs-now-{next(self._runs)}"
        self.system("create", "job", name, "--from=cronjob/tutti-certs")
        self._installation.run_job(name)
        self.system.delete("job", name)
        return self.read()

    def read(self) -> Material:
        """Return the authorities and the leaf."""
        authorities, leaf = self._data(AUTHORITY_SECRET), self._data(LEAF_SECRET)
        assert leaf.keys() == {"ca.crt", "tls.crt", "tls.key"}
        return Material(load_authorities(authorities[AUTHORITIES_FILE]), load_pair(leaf["tls.crt"], leaf["tls.key"]))

    def write(self, material: Material) -> None:
        """Keep other certificates, their authorities announced before they are served."""
        bundle = self._installation.cluster.directory / "announced"
        bundle.mkdir(exist_ok=True)
        (bundle / "ca.crt").write_bytes(material.bundle_pem)
        kubeconfig = str(self._installation.cluster.kubeconfig)
        self._installation.certs("patch-ca", "--out", str(bundle), "--kubeconfig", kubeconfig)
        self._put(AUTHORITY_SECRET, {AUTHORITIES_FILE: material.authorities_pem})
        self._put(LEAF_SECRET, material.files())

    def versions(self) -> list[str]:
        """Return the resourceVersions of everything that a run may write."""
        paths = [("secret", AUTHORITY_SECRET), ("secret", LEAF_SECRET), *((kind, "tutti") for kind in REGISTRATIONS)]
        found = [self.system.get(kind, name) for kind, name in paths]
        return [item["metadata"]["resourceVersion"] for item in found]

    def _data(self, name: str) -> dict[str, bytes]:
        data = self.system.get("secret", name)["data"]
        return {key: base64.b64decode(value) for key, value in data.items()}

    def _put(self, name: str, data: dict[str, bytes]) -> None:
        self.system.patch("secret", name, {"data": {k: base64.b64encode(v).decode() for k, v in data.items()}})


def days_ago(days: float) -> float:
    """Return a time in the past as Unix seconds."""
    return SystemClock().now() - days * DAY_SECONDS


def leaf_of(authority: Pair, issued_seconds: float) -> Pair:
    """Return a usual leaf that was issued then."""
    return new_leaf(authority, NAMES, issued_seconds)


def test_from_nothing_the_first_job_issues_certificates_and_tells_the_api_server_whom_to_trust(
    installation: Installation, team: Team
) -> None:
    secrets = Secrets(installation)
    kept = secrets.read()
    assert len(kept.authorities) == 1
    assert served(installation) == {serial_of(kept)}
    assert announced_bundle(team.admin) == kept.bundle_pem
    read_api = team.admin.get("apiservice", "v1alpha1.visibility.tutti.dev")["spec"]
    assert base64.b64decode(read_api["caBundle"]) == kept.bundle_pem
    team.owner.create(job("first", 1, pod_template(), QUEUE))
    assert team.owner.get("job", "first")["spec"]["suspend"] is True


def test_the_account_that_renews_reads_no_other_secret_and_creates_none(installation: Installation) -> None:
    cluster = installation.cluster
    account = cluster.kubeconfig_for_service_account(NAMESPACE, "tutti-certs")
    kubectl = Kubectl(cluster.binaries["kubectl"], account, NAMESPACE)
    assert kubectl.can("patch", f"secret/{LEAF_SECRET}")
    assert not kubectl.can("get", "secret/another")
    assert not kubectl.can("list", "secrets")
    assert not kubectl.can("create", "secrets")
    assert not kubectl.can("patch", "validatingwebhookconfiguration/another")


def test_a_night_on_which_nothing_is_due_writes_nothing(installation: Installation) -> None:
    secrets = Secrets(installation)
    before = secrets.versions()
    secrets.run()
    assert secrets.versions() == before


def test_a_leaf_that_ends_soon_is_renewed_under_load(installation: Installation, team: Team) -> None:
    secrets = Secrets(installation)
    (authority,) = secrets.read().authorities
    old = Material((authority,), leaf_of(authority, days_ago(80)))
    secrets.write(old)
    wait_served(installation, serial_of(old))
    with load_on(team, "leaf") as load:
        renewed = secrets.run()
        assert renewed.bundle_pem == authority.certificate_pem
        assert serial_of(renewed) != serial_of(old)
        wait_served(installation, serial_of(renewed))
    assert_unharmed(load)


def test_an_authority_in_its_last_year_is_replaced_on_three_nights_under_load(
    installation: Installation, team: Team
) -> None:
    secrets = Secrets(installation)
    old = new_authority(days_ago(40), 340 * DAY_SECONDS)
    secrets.write(Material((old, *secrets.read().authorities), secrets.read().leaf))
    secrets.write(Material((old,), leaf_of(old, days_ago(40))))
    wait_served(installation, serial_of(secrets.read()))
    with load_on(team, "authority") as load:
        first_night = secrets.run()
        assert len(first_night.authorities) == 2
        assert first_night.leaf is not None
        assert first_night.leaf.signed_by(old), "the new authority is announced before it signs"
        new = new_authority(days_ago(1.5))
        secrets.write(Material((new, old), first_night.leaf))
        second_night = secrets.run()
        assert second_night.leaf is not None
        assert second_night.leaf.signed_by(new)
        assert announced_bundle(team.admin) == new.certificate_pem + old.certificate_pem
        wait_served(installation, serial_of(second_night))
        secrets.write(Material((new, old), leaf_of(new, days_ago(1.5))))
        third_night = secrets.run()
        assert announced_bundle(team.admin) == new.certificate_pem, "the old authority is trusted no more"
        wait_served(installation, serial_of(third_night))
    assert_unharmed(load)


def test_after_the_glass_was_broken_a_run_announces_the_authority_to_the_new_registrations(
    installation: Installation, team: Team
) -> None:
    secrets = Secrets(installation)
    kept = secrets.read()
    secrets.system("delete", "validatingwebhookconfiguration,mutatingwebhookconfiguration", "tutti")
    installation.apply_manifests()
    assert announced_bundle(team.admin) == b""
    secrets.run()
    assert announced_bundle(team.admin) == kept.bundle_pem
    wait_until(lambda: team.owner.create(job("after", 1, pod_template(), QUEUE)), what="the API server trusts it")
    assert team.owner.get("job", "after")["spec"]["suspend"] is True
