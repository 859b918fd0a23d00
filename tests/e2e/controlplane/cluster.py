"""One control plane: starts everything in a private folder on ports of its own, and takes all of it down again."""

import atexit
import os
import shutil
import ssl
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml

from tests.e2e.controlplane import kinds, kubeconfig, modules, nodes, operators
from tests.e2e.controlplane.api import Api, ApiError
from tests.e2e.controlplane.binaries import find, find_all, say
from tests.e2e.controlplane.pki import LOOPBACK, Authority, service_account_key
from tests.e2e.controlplane.ports import Ports
from tests.e2e.controlplane.process import Component, ComponentError, wait_ready

SERVICE_NETWORK: Final = "10.96.0.0/16"
TOKEN_SECONDS: Final = 30 * 24 * 3600
"""Tokens outlive any cluster of ours: the processes read them from a kubeconfig, which nobody refreshes."""
CORE_PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok")
OPERATOR_PROGRAMS: Final = ("jobset", "training-operator")


@dataclass(frozen=True, slots=True)
class Shape:
    """What a cluster is to look like."""

    nodes: int = 4
    gpus_per_node: int = 8
    operators: bool = True
    """Run the JobSet controller and the training operator."""
    without_controllers: tuple[str, ...] = ()
    """Controllers of kube-controller-manager to leave out, such as ``job-controller``."""
    api_server_flags: tuple[str, ...] = field(default=())


REVIEWER: Final = "kube-apiserver"
"""The name in the client certificate that the API server shows to admission webhooks."""


class Cluster:
    """A running control plane. Use it as a context manager, or call :meth:`start` and :meth:`stop`."""

    def __init__(self, shape: Shape | None = None, report: Callable[[str], None] = say) -> None:
        self.shape = shape or Shape()
        self.report = report
        self.ports = Ports()
        self.components: dict[str, Component] = {}
        self.probes: dict[str, str] = {}
        """Readiness address of a component, by its name."""
        self.binaries = find_all(CORE_PROGRAMS + (OPERATOR_PROGRAMS if self.shape.operators else ()), report)
        _remove_orphans()
        self.directory = Path(tempfile.mkdtemp(prefix=f"tutti-{os.getpid()}-"))
        self.logs = self.directory / "logs"
        self.logs.mkdir()
        self.authority = Authority("tutti-cluster-ca")
        self._front_proxy = Authority("tutti-front-proxy-ca")
        self.reviewers_authority = Authority("tutti-reviewers-ca")
        self.server = f"https://127.0.0.1:{self.ports.take()}"
        self.kubeconfig = self.directory / "admin.kubeconfig"
        self.api = self._prepare_keys()
        self._lock = threading.Lock()
        self._projects: set[str] = set()
        """Whose job kinds are installed."""
        atexit.register(self.stop)

    def start(self) -> Self:
        """Start everything and wait until it works; on any failure all of it is gone again.

        Raises ComponentError with the tail of the log of what did not start.
        """
        began = time.monotonic()
        try:
            with ThreadPoolExecutor() as pool:
                # The first rendering takes seconds, in which the API server starts.
                projects = OPERATOR_PROGRAMS if self.shape.operators else ()
                rendered = [pool.submit(operators.render, self.binaries["kubectl"], project) for project in projects]
                self._start_api_server()
                self._start_controllers()
                for number in range(self.shape.nodes):
                    self.api.create("Node", nodes.node(f"node-{number}", self.shape.gpus_per_node))
                for start, objects in zip(
                    (operators.start_jobset, operators.start_training_operator), rendered, strict=False
                ):
                    start(self, objects.result())
            self._wait_working()
        except BaseException:
            self.stop()
            raise
        self.report(f"control plane ready in {time.monotonic() - began:.1f} s ({self.directory})")
        return self

    def stop(self) -> None:
        """End every process, latest first, and remove the folder; may be called again."""
        with self._lock:
            for component in reversed(list(self.components.values())):
                component.kill()
            self.components.clear()
            self.ports.release()
            shutil.rmtree(self.directory, ignore_errors=True)
        atexit.unregister(self.stop)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start_cert_manager(self) -> list[Component]:
        """Install and start the real cert-manager; builds it on first use."""
        for name in operators.CERT_MANAGER_PROGRAMS:
            self.binaries[name] = find(name, self.report)
        return operators.start_cert_manager(self)

    def install_kinds(self, project: str) -> None:
        """Install the job kinds of a project in :data:`kinds.PROJECTS` without its controller; may be called again."""
        if project in self._projects:
            return
        self._projects.add(project)
        definitions = list(kinds.definitions(project))
        for definition in definitions:
            self.api.create(modules.DEFINITION, definition)
        for definition in definitions:
            self.wait_served(modules.served_at(definition))

    def component(
        self,
        name: str,
        *arguments: str | Path,
        program: str | Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Component:
        """Add a component that is torn down with the cluster; the caller starts it."""
        command = [program if program is not None else self.binaries[name], *arguments]
        self.components[name] = Component(name, command, self.logs, environment)
        return self.components[name]

    def kubeconfig_for_user(self, user: str, groups: tuple[str, ...] = ()) -> Path:
        """Write a kubeconfig for any user name, who has only the rights that RBAC gives it."""
        leaf = self.authority.client(user, groups)
        path = self.directory / "users" / f"{user.replace('/', '_')}.kubeconfig"
        return kubeconfig.write(path, self.server, self.authority.pem, kubeconfig.with_certificate(leaf))

    def kubeconfig_for_service_account(self, namespace: str, name: str, wait_seconds: float = 30) -> Path:
        """Write a kubeconfig with a token of a service account, which must exist or appear soon."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        spec = {"spec": {"expirationSeconds": TOKEN_SECONDS}}
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                token = self.api.post(path, spec)["status"]["token"]
                break
            except ApiError as error:
                if error.status != 404 or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        target = self.directory / "accounts" / f"{namespace}_{name}.kubeconfig"
        return kubeconfig.write(target, self.server, self.authority.pem, kubeconfig.with_token(token), namespace)

    def wait_served(self, path: str, timeout_seconds: float = 60) -> None:
        """Wait until the API server serves a resource, such as a CRD's that was just created."""
        server = self.components["kube-apiserver"]
        wait_ready(server, f"{path} is served", lambda: self.api.answers(f"{path}?limit=1"), timeout_seconds)

    def http_ok(self, url: str) -> bool:
        """Whether an address answers 200; server certificates are not looked at."""
        unchecked = ssl.create_default_context()
        unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
        try:
            with urllib.request.urlopen(url, timeout=2, context=unchecked) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _prepare_keys(self) -> Api:
        """Write all keys, certificates and the control plane's kubeconfigs; returns the admin's client."""
        keys = self.directory / "keys"
        hosts = (*LOOPBACK, "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.96.0.1")
        self.authority.leaf.write(keys, "ca")
        self._front_proxy.leaf.write(keys, "front-proxy-ca")
        self._front_proxy.client("front-proxy-client").write(keys, "front-proxy-client")
        self.reviewers_authority.leaf.write(keys, "reviewers-ca")
        reviewer = self.reviewers_authority.client(REVIEWER)
        self.reviewer = reviewer.write(keys, "reviewer")
        kubeconfig.write_admission(keys / "admission.yaml", *self.reviewer)
        self.authority.serving("kube-apiserver", hosts).write(keys, "apiserver")
        kubeconfig.write_private(keys / "service-accounts.key", service_account_key().decode())
        admin = self.authority.client("tutti-admin", ("system:masters",))
        admin.write(keys, "admin")
        kubeconfig.write(self.kubeconfig, self.server, self.authority.pem, kubeconfig.with_certificate(admin))
        return Api.with_keys(self.server, keys / "ca.crt", keys / "admin.crt", keys / "admin.key")

    @property
    def reviewers(self) -> dict[str, Any]:
        """Who may ask admission webhooks, as Tutti's configuration says it."""
        return {"authority": str(self.directory / "keys" / "reviewers-ca.crt"), "names": [REVIEWER]}

    def _start_api_server(self) -> None:
        """Start etcd and kube-apiserver, and wait until the latter is ready."""
        client, peer = (f"http://127.0.0.1:{self.ports.take()}" for _ in range(2))
        self.component(
            "etcd",
            f"--data-dir={self.directory / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--quota-backend-bytes=4294967296",
            "--log-level=warn",
        ).start()
        server = self.component("kube-apiserver", *self._api_server_flags(client)).start()
        wait_ready(server, "it is ready", lambda: self.api.answers("/readyz"), 60)

    def _api_server_flags(self, etcd: str) -> list[str]:
        keys = self.directory / "keys"
        return [
            f"--etcd-servers={etcd}",
            f"--secure-port={self.server.rsplit(':', 1)[1]}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            "--authorization-mode=RBAC",
            f"--service-cluster-ip-range={SERVICE_NETWORK}",
            f"--tls-cert-file={keys / 'apiserver.crt'}",
            f"--tls-private-key-file={keys / 'apiserver.key'}",
            f"--client-ca-file={keys / 'ca.crt'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={keys / 'service-accounts.key'}",
            f"--service-account-signing-key-file={keys / 'service-accounts.key'}",
            # An aggregated API learns who calls from these headers, under the front proxy's certificate.
            f"--requestheader-client-ca-file={keys / 'front-proxy-ca.crt'}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={keys / 'front-proxy-client.crt'}",
            f"--proxy-client-key-file={keys / 'front-proxy-client.key'}",
            # Admission webhooks learn by a client certificate that it is the API server that asks.
            f"--admission-control-config-file={keys / 'admission.yaml'}",
            # No name of a simulated node leads anywhere.
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged=true",
            "--profiling=false",
            *self.shape.api_server_flags,
        ]

    def _start_controllers(self) -> None:
        """Start kube-controller-manager, kube-scheduler and the simulated kubelets."""
        keys = self.directory / "keys"
        manager, port = self._system_kubeconfig("system:kube-controller-manager"), self.ports.take()
        self.probes["kube-controller-manager"] = f"https://127.0.0.1:{port}/healthz"
        self.component(
            "kube-controller-manager",
            f"--kubeconfig={manager}",
            f"--authentication-kubeconfig={manager}",
            f"--authorization-kubeconfig={manager}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--root-ca-file={keys / 'ca.crt'}",
            f"--service-account-private-key-file={keys / 'service-accounts.key'}",
            f"--cluster-signing-cert-file={keys / 'ca.crt'}",
            f"--cluster-signing-key-file={keys / 'ca.key'}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--kube-api-qps=1000",
            "--kube-api-burst=2000",
            "--concurrent-job-syncs=20",
            "--concurrent-resource-quota-syncs=20",
            f"--controllers={','.join(['*', *(f'-{name}' for name in self.shape.without_controllers)])}",
        ).start()
        self._start_scheduler()
        stages = nodes.write_configuration(self.directory / "kwok.yaml")
        kubelets, port = self._system_kubeconfig("tutti-simulated-kubelets", "system:masters"), self.ports.take()
        self.component(
            "kwok",
            f"--kubeconfig={kubelets}",
            f"--config={stages}",
            "--manage-all-nodes",
            "--v=WARN",
            "--node-lease-duration-seconds=40",
            f"--server-address=127.0.0.1:{port}",
            # Where the API server asks for a pod's log.
            "--node-ip=127.0.0.1",
            f"--node-port={port}",
        ).start()

    def _start_scheduler(self) -> None:
        account, port = self._system_kubeconfig("system:kube-scheduler"), self.ports.take()
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(account), "qps": 1000, "burst": 2000},
            "leaderElection": {"leaderElect": False},
        }
        path = self.directory / "scheduler.yaml"
        path.write_text(yaml.safe_dump(configuration))
        self.probes["kube-scheduler"] = f"https://127.0.0.1:{port}/healthz"
        self.component(
            "kube-scheduler",
            f"--config={path}",
            f"--authentication-kubeconfig={account}",
            f"--authorization-kubeconfig={account}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
        ).start()

    def _system_kubeconfig(self, user: str, *groups: str) -> Path:
        """Write the kubeconfig of a control plane component: bootstrap RBAC knows its user name."""
        return self.kubeconfig_for_user(user, groups).rename(self.directory / f"{user.replace(':', '_')}.kubeconfig")

    def _wait_working(self) -> None:
        """Wait until every component says that it is ready and pods could run."""
        for name, url in self.probes.items():
            self._wait_ready(name, url)
        wait_ready(self.components["kwok"], "all nodes are ready", self._nodes_ready)
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        manager = self.components["kube-controller-manager"]
        wait_ready(manager, "service accounts are made", lambda: self.api.answers(account))
        if self.shape.operators:
            admitted = partial(operators.jobsets_admitted, self.api)
            wait_ready(self.components["jobset"], "JobSets can be created", admitted)

    def _wait_ready(self, name: str, url: str) -> None:
        component, is_ready = self.components[name], partial(self.http_ok, url)
        try:
            wait_ready(component, "it is ready", is_ready, 60)
        except ComponentError:
            if component.running or name not in OPERATOR_PROGRAMS:
                raise
            # As a kubelet would. JobSet's manager ends now and then when its caches and its controllers start at once.
            component.start()
            wait_ready(component, "it is ready", is_ready, 60)

    def _nodes_ready(self) -> bool:
        listed: list[dict[str, Any]] = self.api.get("/api/v1/nodes")["items"]
        return len(listed) >= self.shape.nodes and all(_ready(node) for node in listed)


def _remove_orphans() -> None:
    """Remove folders of runs that were killed too hard to do it; their processes died with them."""
    for folder in Path(tempfile.gettempdir()).glob("tutti-*-*"):
        owner = folder.name.split("-")[1]
        if owner.isdecimal() and not _alive(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _ready(node: dict[str, Any]) -> bool:
    """Whether a node is ready and free of taints, so that pods are scheduled on it."""
    conditions = node.get("status", {}).get("conditions", [])
    ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return ready and not node["spec"].get("taints")
