"""One cluster for all end-to-end tests: our own on loopback, or the one that KUBECONFIG names."""

import contextlib
import os
import signal
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.e2e.controlplane.api import Api
from tests.e2e.controlplane.binaries import release, say
from tests.e2e.controlplane.cluster import Cluster
from tests.e2e.controlplane.external import ExternalCluster, ExternalError
from tests.e2e.controlplane.install import NAMESPACE, ROOT, Installation
from tests.e2e.controlplane.link import Link
from tests.e2e.kubectl import Kubectl, KubectlError, wait_until
from tests.e2e.load import api_of

AnyCluster = Cluster | ExternalCluster

OWNER_RULES = [
    {"apiGroups": ["jobset.x-k8s.io", "kubeflow.org"], "resources": ["*"], "verbs": ["*"]},
    {"apiGroups": ["ray.io"], "resources": ["rayjobs"], "verbs": ["*"]},
    {"apiGroups": ["sparkoperator.k8s.io"], "resources": ["sparkapplications"], "verbs": ["*"]},
    {"apiGroups": ["workload.codeflare.dev"], "resources": ["appwrappers"], "verbs": ["*"]},
    {"apiGroups": ["argoproj.io"], "resources": ["workflows"], "verbs": ["*"]},
    {"apiGroups": ["trainer.kubeflow.org"], "resources": ["trainjobs"], "verbs": ["*"]},
    {"apiGroups": ["example.com"], "resources": ["sweeps"], "verbs": ["*"]},
    {
        "apiGroups": ["scheduling.x-k8s.io", "scheduling.sigs.k8s.io", "scheduling.volcano.sh"],
        "resources": ["podgroups"],
        "verbs": ["*"],
    },
]
"""What a team's member may do beside Kubernetes's own role ``edit``."""
KEPT = ("cluster", "breakable")
"""Fixtures that start a control plane and keep it to the end, idle or not: those of most files come last."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose and order the tests.

    Those that need what is not there are left out, aloud: in the cluster of KUBECONFIG, or in an older Kubernetes.
    """
    _order(items)
    given = os.environ.get("KUBECONFIG")
    if not given:
        _leave_out(config, items, {item: reason for item in items if (reason := _too_new(item))})
        return
    try:
        cluster = ExternalCluster(Path(given))
        missing = cluster.missing()
    except ExternalError as error:
        pytest.exit(f"KUBECONFIG={given}: {error}", returncode=1)
    if missing:
        pytest.exit(f"the cluster of KUBECONFIG={given} lacks {'; '.join(missing)}", returncode=1)
    _leave_out(config, items, {item: reason for item in items if (reason := _why_not(item, cluster))})


def _order(items: list[pytest.Item]) -> None:
    """Put the files that need none of the planes of KEPT first, then those of each, large ones before small ones.

    An idle plane takes a part of a core for as long as it is there, and a large file that is begun last keeps one core
    waiting.
    """
    sizes, stages = Counter(item.path for item in items), dict.fromkeys((item.path for item in items), 0)
    for item in items:
        needed = getattr(item, "fixturenames", ())
        stages[item.path] = max(stages[item.path], *(KEPT.index(name) + 1 for name in needed if name in KEPT), 0)
    items.sort(key=lambda item: (stages[item.path], -sizes[item.path]))


def _leave_out(config: pytest.Config, items: list[pytest.Item], left_out: dict[pytest.Item, str]) -> None:
    for reason, count in Counter(left_out.values()).items():
        say(f"left out: {count} tests {reason}")
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def _too_new(item: pytest.Item) -> str:
    """Say which release of Kubernetes a test needs, if what ``$KUBEBUILDER_ASSETS`` holds is older."""
    if os.environ.get("KUBEBUILDER_ASSETS"):
        for mark in item.iter_markers("since"):
            if release() < tuple(map(int, mark.args[0].split("."))):
                return f"that need Kubernetes {mark.args[0]}"
    return ""


def _why_not(item: pytest.Item, cluster: ExternalCluster) -> str:
    """Say why a test cannot run on somebody else's cluster; nothing when it can."""
    if item.get_closest_marker("own_cluster") or "breakable" in getattr(item, "fixturenames", ()):
        return "that start clusters of their own, to break them or to install on them (`make e2e` runs them)"
    for mark in item.iter_markers("needs"):
        if not cluster.has(NAMESPACE, mark.args[0]):
            return f"that need {mark.args[0]}, which this cluster has not"
    return ""


@pytest.fixture(scope="session", autouse=True)
def _end_like_ctrl_c() -> None:
    """Turn SIGTERM into what Ctrl-C does, so that the cluster is taken down then too."""

    def interrupt(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[AnyCluster]:
    """The cluster that the tests share."""
    given = os.environ.get("KUBECONFIG")
    if given:
        external = ExternalCluster(Path(given))
        external.note_absent()
        yield external
        external.tidy()
        return
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def report(message: str) -> None:
        with capture.global_and_fixture_disabled():
            say(message)

    with Cluster(report=report) as started:
        yield started


@pytest.fixture(scope="session")
def tutti(cluster: AnyCluster) -> Installation | None:
    """Tutti on the cluster, installed from ``manifests/``; None where KUBECONFIG's cluster must have it already."""
    return Installation(cluster).install() if isinstance(cluster, Cluster) else None


@pytest.fixture(scope="session")
def kubectl(cluster: AnyCluster) -> Kubectl:
    """kubectl as the cluster's administrator."""
    return Kubectl(cluster.binaries["kubectl"], cluster.kubeconfig)


@pytest.fixture
def namespace(kubectl: Kubectl, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh namespace in which Pod Security enforces ``restricted``."""
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    create_namespace(kubectl, name)
    yield name
    kubectl.clear("namespace", name)
    # Where Tutti is not installed yet there are none; one that still holds a job stays, and is in nobody's way.
    with contextlib.suppress(KubectlError):
        queues = [queue["metadata"]["name"] for queue in kubectl.items("clusterqueues")]
        if ours := [queue for queue in queues if queue.startswith(f"{name}-")]:
            kubectl.clear("clusterqueue", *ours)


@pytest.fixture
def admin(kubectl: Kubectl, namespace: str) -> Kubectl:
    """The administrator, in the test's namespace."""
    return kubectl.in_namespace(namespace)


@pytest.fixture
def owner(cluster: AnyCluster, kubectl: Kubectl, namespace: str) -> Kubectl:
    """A user who may edit jobs in the test's namespace and nothing anywhere else."""
    return member(cluster, kubectl, namespace, f"{namespace}-owner")


@dataclass(frozen=True, slots=True)
class Team:
    """A namespace of a cluster, as its administrator and as a member see it."""

    admin: Kubectl
    owner: Kubectl
    api: Api
    """The member's raw requests."""

    @property
    def jobs(self) -> str:
        """The address of the namespace's Jobs."""
        return f"/apis/batch/v1/namespaces/{self.admin.namespace}/jobs"


@pytest.fixture(scope="session")
def breakable() -> Iterator[Installation]:
    """Tutti on a cluster of its own, whose processes a test may kill, freeze and start again.

    Jobs are started one at a time there, so that a test can catch a leader between two starts.
    """
    with Cluster() as started, Link(started.ports.take(), started.server) as link:
        yield Installation(started, overrides={"effects_in_flight": 1}, link=link).install()


@pytest.fixture
def team(breakable: Installation) -> Iterator[Team]:
    """A fresh PSA-restricted namespace on the breakable cluster; every process of Tutti runs at its start."""
    for replica in breakable.replicas:
        if not replica.component.running:
            replica.component.start()
    breakable.wait_ready()
    cluster, name = breakable.cluster, f"e2e-{uuid.uuid4().hex[:8]}"
    root = Kubectl(cluster.binaries["kubectl"], cluster.kubeconfig)
    create_namespace(root, name)
    yield Team(root.in_namespace(name), member(cluster, root, name, f"{name}-owner"), api_of(cluster, f"{name}-owner"))
    root.clear("namespace", name)


def create_namespace(kubectl: Kubectl, name: str, labels: dict[str, str] | None = None) -> None:
    """Create a PSA-restricted namespace and wait until pods can be created in it."""
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata: dict[str, Any] = {"name": name, "labels": restricted | (labels or {})}
    kubectl.set_up({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    here = kubectl.in_namespace(name)
    wait_until(lambda: here.get("serviceaccount", "default"), what=f"default service account of {name}")


def member(cluster: AnyCluster, kubectl: Kubectl, namespace: str, user: str) -> Kubectl:
    """Return kubectl as a user who holds the role ``edit`` and our job kinds in one namespace."""
    rbac = "rbac.authorization.k8s.io"
    head, subject = {"apiVersion": f"{rbac}/v1"}, {"apiGroup": rbac, "kind": "User", "name": user}
    objects = [head | {"kind": "Role", "metadata": {"name": "gang-editor"}, "rules": OWNER_RULES}]
    for suffix, kind, role in (("jobs", "Role", "gang-editor"), ("edit", "ClusterRole", "edit")):
        reference = {"apiGroup": rbac, "kind": kind, "name": role}
        binding = {"kind": "RoleBinding", "metadata": {"name": f"{user}-{suffix}"}}
        objects.append(head | binding | {"roleRef": reference, "subjects": [subject]})
    kubectl.in_namespace(namespace).set_up(*objects)
    made = Kubectl(cluster.binaries["kubectl"], cluster.kubeconfig_for_user(user), namespace)
    # The API server learns of each role and each binding by a watch of its own.
    rights = (("jobs", "batch"), ("sweeps", "example.com"))
    wait_until(lambda: all(made.may("create", *right) for right in rights), what=f"rights of {user}")
    return made


@pytest.fixture
def this_tutti(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The command ``tutti`` is that of this checkout."""
    for name in ("tutti", "kubectl-tutti"):
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m webhook "$@"\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
