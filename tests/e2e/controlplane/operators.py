"""The controllers of other people's job kinds, each under its own service account as on any cluster.

Their own manifests say what they may do; only what runs an image is left out, and webhooks are reached by address.
"""

import contextlib
import json
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests.e2e.controlplane import kubeconfig, modules
from tests.e2e.controlplane.api import Api, ApiError
from tests.e2e.controlplane.binaries import made_once
from tests.e2e.controlplane.pki import Leaf
from tests.e2e.controlplane.process import Component

if TYPE_CHECKING:
    from tests.e2e.controlplane.cluster import Cluster

TRAINING_CERTIFICATES: Final = Path("/tmp/k8s-webhook-server/serving-certs")
"""The training operator reads this folder and no other; any certificate does, so that runs can share it."""

Objects = list[tuple[str, dict[str, Any]]]
"""Kind and content of each object of a manifest."""

INIT_CONTAINER: Final = """
- name: init-pytorch
  image: {{.InitContainerImage}}
  command: [sh, -c, "until nslookup {{.MasterAddr}}; do sleep 2; done"]
  resources:
    requests: {cpu: 50m, memory: 10Mi}
    limits: {cpu: 100m, memory: 20Mi}
  securityContext:
    allowPrivilegeEscalation: false
    runAsNonRoot: true
    runAsUser: 1000
    capabilities: {drop: [ALL]}
    seccompProfile: {type: RuntimeDefault}
"""
"""What the operator puts before each PyTorch worker. It asks for as much as the built-in one, whose pods are refused in
namespaces that enforce the restricted Pod Security level."""

CERT_MANAGER_PROGRAMS: Final = ("cert-manager-controller", "cert-manager-cainjector")
_INSTALLATIONS: Final = {
    "jobset": modules.jobset_installation,
    "training-operator": modules.training_operator_installation,
}
"""Where the kustomization of an operator is, by its project."""
_WEBHOOKS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_FIRST: Final = ("Namespace", modules.DEFINITION, "ServiceAccount", "ClusterRole", "ClusterRoleBinding")
_INSTALLED: Final = (*_FIRST, "Role", "RoleBinding", "Secret")
_CLUSTER_ADMIN: Final = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}


def start_jobset(cluster: "Cluster", objects: Objects) -> Component:
    """Install and start the JobSet controller with its webhooks."""
    webhooks = _install(cluster, "jobset-system", objects)
    port, metrics_port, health_port = (cluster.ports.take() for _ in range(3))
    certificates = cluster.directory / "jobset"
    cluster.authority.serving("jobset").write(certificates)
    configuration = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "internalCertManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(certificates)},
        "metrics": {"bindAddress": f"127.0.0.1:{metrics_port}", "certDir": str(certificates)},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health_port}"},
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"qps": 500, "burst": 1000},
    }
    (certificates / "configuration.yaml").write_text(yaml.safe_dump(configuration))
    account = cluster.kubeconfig_for_service_account("jobset-system", "jobset-controller-manager")
    cluster.probes["jobset"] = f"http://127.0.0.1:{health_port}/readyz"
    component = cluster.component(
        "jobset", "--config", certificates / "configuration.yaml", "--kubeconfig", account, "--zap-log-level=info"
    ).start()
    for kind, document in webhooks:
        cluster.api.create(kind, reached_by_address(document, port, cluster.authority.pem))
    return component


def jobsets_admitted(api: Api) -> bool:
    """Whether a JobSet passes its webhooks, which the controller adds some time after it says that it is ready."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
    spec = {"replicatedJobs": [{"name": "main", "template": {"spec": {"template": {"spec": pod}}}}]}
    try:
        api.post(
            "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets?dryRun=All",
            {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "probe"}, "spec": spec},
        )
    except (OSError, ApiError):
        return False
    return True


def start_training_operator(cluster: "Cluster", objects: Objects) -> Component:
    """Install and start the training operator; its webhooks stay out, because it signs their certificate itself.

    Its webhook port is the one port of ours that is not bound to loopback alone: the operator has no setting for that.
    """
    webhooks = _install(cluster, "kubeflow", objects)
    for kind, document in webhooks:
        cluster.api.create(kind, document | {"webhooks": []})
    _share_training_certificate(cluster.authority.serving("training-operator"))
    account = cluster.kubeconfig_for_service_account("kubeflow", "training-operator")
    health = f"127.0.0.1:{cluster.ports.take()}"
    cluster.probes["training-operator"] = f"http://{health}/readyz"
    return cluster.component(
        "training-operator",
        f"--kubeconfig={account}",
        f"--webhook-server-port={cluster.ports.take()}",
        "--metrics-bind-address=0",
        f"--health-probe-bind-address={health}",
        "--controller-threads=8",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        f"--pytorch-init-container-template-file={_write_init_container(cluster.directory)}",
        "--zap-log-level=info",
    ).start()


def define_kinds(cluster: "Cluster") -> None:
    """Install the kinds of both operators and no operator: what a hub has of them."""
    defined = [
        document
        for project in _INSTALLATIONS
        for kind, document in render(cluster.binaries["kubectl"], project)
        if kind == modules.DEFINITION
    ]
    for document in defined:
        cluster.api.create(modules.DEFINITION, document)
    for document in defined:
        cluster.wait_served(modules.served_at(document))


def start_cert_manager(cluster: "Cluster") -> list[Component]:
    """Install and start cert-manager's controller and CA injector (its webhook is not needed here)."""
    if "cert-manager-controller" in cluster.components:
        return [cluster.components[name] for name in CERT_MANAGER_PROGRAMS]
    cluster.api.create("Namespace", {"metadata": {"name": "cert-manager"}})
    definitions = list(modules.cert_manager_crds())
    for document in definitions:
        cluster.api.create(modules.DEFINITION, document)
    for document in definitions:
        cluster.wait_served(modules.served_at(document))
    started = []
    for name, flags in (
        ("cert-manager-controller", [f"--metrics-listen-address=127.0.0.1:{cluster.ports.take()}"]),
        ("cert-manager-cainjector", []),
    ):
        binding = {
            "metadata": {"name": name},
            "roleRef": _CLUSTER_ADMIN,
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "cert-manager"}],
        }
        cluster.api.create("ServiceAccount", {"metadata": {"name": name}}, "cert-manager")
        cluster.api.create("ClusterRoleBinding", binding)
        account = cluster.kubeconfig_for_service_account("cert-manager", name)
        started.append(cluster.component(name, f"--kubeconfig={account}", "--leader-elect=false", *flags).start())
    return started


def render(kubectl: Path, project: str) -> Objects:
    """Return the objects of a project's installation by kind; made once for its pins, for it takes seconds."""

    def make(folder: Path) -> None:
        command = [str(kubectl), "kustomize", str(_INSTALLATIONS[project]())]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        objects = [each for each in yaml.safe_load_all(done.stdout) if each["kind"] != modules.DEFINITION]
        (folder / "objects.json").write_text(json.dumps([*modules.definitions(done.stdout), *objects]))

    objects = json.loads((made_once(project, "installation", make) / "objects.json").read_text())
    return [(each["kind"], each) for each in objects]


def reached_by_address(configuration: dict[str, Any], port: int, authority: bytes) -> dict[str, Any]:
    """Return a webhook configuration whose service references became addresses on loopback."""
    for webhook in configuration["webhooks"]:
        path = webhook["clientConfig"]["service"].get("path", "/")
        webhook["clientConfig"] = {
            "url": f"https://127.0.0.1:{port}{path}",
            "caBundle": kubeconfig.encode(authority),
        }
    return configuration


def _write_init_container(folder: Path) -> Path:
    """Write the template of the PyTorch workers' init container."""
    path = folder / "init-container.yaml"
    path.write_text(INIT_CONTAINER)
    return path


def _install(cluster: "Cluster", namespace: str, objects: Objects) -> Objects:
    """Create an operator's namespace, kinds and rights; returns its webhook registrations, which come last."""
    for kind, document in sorted(objects, key=_order):
        if kind in _INSTALLED:
            cluster.api.create(kind, document, namespace)
    for kind, document in objects:
        if kind == modules.DEFINITION:
            cluster.wait_served(modules.served_at(document))
    return [(kind, document) for kind, document in objects if kind in _WEBHOOKS]


def _order(entry: tuple[str, dict[str, Any]]) -> int:
    """Namespaces and kinds before what lies in them."""
    return _FIRST.index(entry[0]) if entry[0] in _FIRST else len(_FIRST)


def _share_training_certificate(leaf: Leaf) -> None:
    """Put a certificate where the training operator looks, unless one is there: key and certificate appear together."""
    TRAINING_CERTIFICATES.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TRAINING_CERTIFICATES.parent) as made:
        leaf.write(Path(made) / "pair")
        # Renaming onto a folder that has files fails: then another run was first, and its pair is as good.
        with contextlib.suppress(OSError):
            (Path(made) / "pair").rename(TRAINING_CERTIFICATES)
