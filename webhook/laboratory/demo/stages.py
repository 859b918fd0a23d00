"""Where the demo plays: a simulated cluster with Tutti next to it, a real control plane, or any cluster that has Tutti.

On the simulated one everything but the cluster is as in production: certificates are issued by ``certs``, webhook and
reconciler are processes with service account tokens, and the API server sends its reviews to the webhook over TLS.
"""

import base64
import copy
import importlib
import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

from webhook.clock import SystemClock
from webhook.controllers.reporting import registration_faults
from webhook.core.notation import quantity
from webhook.core.notation.names import SYSTEM_NAMESPACE
from webhook.errors import NotFound, TuttiError
from webhook.kube.api import Api
from webhook.kube.connecting import connect, connected
from webhook.laboratory.demo import files, play
from webhook.laboratory.demo.processes import Processes, free_port
from webhook.laboratory.demo.screen import say
from webhook.laboratory.demo.watching import GPU
from webhook.laboratory.simulated.admission.remote_reviews import RemoteReviews
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.controllers.base import Pace
from webhook.laboratory.simulated.http import serve
from webhook.laboratory.simulated.requests.identity import ADMIN, User
from webhook.server.http.tls import ServingCertificate

HOST: Final = "127.0.0.1"
CONDITIONS: Final = {"the-policy": lambda request: request["name"] == "tutti-policy"}
"""What match conditions mean here, where CEL is not evaluated; one that is missing holds, and the webhook decides."""
PLAY_SECONDS: Final = 50.0
REAL_PLAY_SECONDS: Final = 240.0
"""Images have to be pulled there, and nodes may be busy."""
ACCOUNTS: Final = ("tutti-webhook", "tutti-reconciler")
SERVICE: Final = "tutti-webhook"
"""What the registrations ask."""


class StageError(TuttiError):
    """The demo cannot play there; the message says why and what to do."""


async def on_simulated() -> int:
    """Play on a simulated cluster; return the exit status."""
    say(f"starting a simulated cluster with {play.GPUS} GPUs")
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(_scratch()))
        tls = ServingCertificate(_issue(directory / "server"))
        cluster = SimulatedCluster(
            Random(1),  # noqa: S311 - a simulation's chance
            clock=SystemClock(),
            pace=Pace(pod_start_seconds=0.4, pod_stop_seconds=0.4),
            namespaces=(SYSTEM_NAMESPACE,),
        )
        tokens = {name: secrets.token_urlsafe(24) for name in ("admin", *ACCOUNTS)}
        users = {tokens[name]: User.service_account(SYSTEM_NAMESPACE, name) for name in ACCOUNTS}
        front = await serve(cluster.router, users | {tokens["admin"]: ADMIN}, tls.context)
        stack.push_async_callback(front.close)
        await stack.enter_async_context(cluster)
        await cluster.add_node("node-0", gpu=str(play.GPUS))
        authority = directory / "server" / "ca.crt"
        kubeconfigs = {n: _kubeconfig(directory / n, front.url, authority, token) for n, token in tokens.items()}
        processes = await stack.enter_async_context(Processes(directory))
        url = await _start_tutti(processes, directory, kubeconfigs)
        # Closed before the processes are ended: the webhook drains for as long as anybody is connected.
        reviews = RemoteReviews(cluster.server, {(SYSTEM_NAMESPACE, SERVICE): url}, CONDITIONS)
        stack.push_async_callback(reviews.close)
        api = await connect(kubeconfigs["admin"])
        stack.push_async_callback(api.close)
        await register(api, (directory / "webhook" / "ca.crt").read_bytes())
        return await play.perform(api, PLAY_SECONDS, processes.check, tidy=False)


async def on_given(kubeconfig: Path) -> int:
    """Play on a cluster where Tutti is installed; return the exit status. Raises StageError when it cannot."""
    async with connected(kubeconfig, "tutti-demo") as api:
        await _require_tutti(api)
        return await play.perform(api, REAL_PLAY_SECONDS, lambda: None, tidy=True)


@contextmanager
def real_control_plane() -> Iterator[Path]:
    """Run the real control plane of the end-to-end tests with Tutti installed; yield its administrator's kubeconfig.

    Raises StageError outside a checkout, and when it does not start.
    """
    if (files.CHECKOUT / "tests").is_dir() and str(files.CHECKOUT) not in sys.path:
        sys.path.insert(0, str(files.CHECKOUT))
    try:
        control_plane = importlib.import_module("tests.e2e.controlplane.cluster")
        installation = importlib.import_module("tests.e2e.controlplane.install")
        process = importlib.import_module("tests.e2e.controlplane.process")
        binaries = importlib.import_module("tests.e2e.controlplane.binaries")
    except ModuleNotFoundError as error:
        raise StageError(
            "the real control plane is part of the source tree: run `make demo CLUSTER=real` in a checkout, or give"
            " --kubeconfig for a cluster where Tutti is installed"
        ) from error
    failures: tuple[type[Exception], ...] = (process.ComponentError, binaries.BuildError)
    try:
        # One node: that the pods also fit the nodes is not what is shown.
        cluster = control_plane.Cluster(control_plane.Shape(nodes=1, gpus_per_node=play.GPUS), say)
        with cluster:
            say("installing Tutti from manifests/: two webhooks, two reconcilers")
            installation.Installation(cluster).install()
            yield cluster.kubeconfig
    except failures as error:
        raise StageError(str(error)) from error


def _scratch() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="tutti-demo-")
    except OSError as error:
        raise StageError(
            f"the demo keeps certificates and logs in a temporary folder, and none can be made ({error.strerror}):"
            " name a writable one in TMPDIR, or mount one at /tmp where the root is read-only"
        ) from error


def _issue(directory: Path) -> Path:
    # The package of certificate tooling is next to this one and imports it: a cycle unless it is imported late.
    tooling = importlib.import_module("certs.__main__")
    terms = tooling.terms_for(SYSTEM_NAMESPACE, ["localhost", HOST])
    tooling.issue_directory(directory, None, terms, SystemClock().now())
    return directory


def _kubeconfig(directory: Path, url: str, authority: Path, token: str) -> Path:
    directory.mkdir()
    path = directory / "kubeconfig"
    bundle = base64.b64encode(authority.read_bytes()).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "demo", "cluster": {"server": url, "certificate-authority-data": bundle}}],
        "users": [{"name": "demo", "user": {"token": token}}],
        "contexts": [{"name": "demo", "context": {"cluster": "demo", "user": "demo"}}],
        "current-context": "demo",
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document))
    return path


async def _start_tutti(processes: Processes, directory: Path, kubeconfigs: dict[str, Path]) -> str:
    """Start the webhook and the reconciler, wait until they are ready, and return the webhook's base URL."""
    say("issuing certificates; starting the webhook and the reconciler")
    certificates = _issue(directory / "webhook")
    ports: dict[str, dict[str, int]] = {}
    for role in ("webhook", "reconciler"):
        ports[role] = {name: free_port() for name in ("webhook_port", "visibility_port", "health_port")}
        config = {
            "kubeconfig": str(kubeconfigs[f"tutti-{role}"]),
            "identity": f"tutti-{role}-0",
            "cert_dir": str(certificates),
            "listen": {"host": HOST, **ports[role]},
        }
        await processes.start(role, config)
    for role, taken in ports.items():
        await processes.wait_ready(role, taken["health_port"])
    return f"https://{HOST}:{ports['webhook']['webhook_port']}"


async def register(api: Api, authority: bytes) -> None:
    """Create the registrations that ship, with the authority that issued the webhook's certificate."""
    bundle = base64.b64encode(authority).decode()
    for configuration in copy.deepcopy(registration_faults.shipped()):
        for hook in configuration["webhooks"]:
            hook["clientConfig"]["caBundle"] = bundle
        await play.create(api, configuration)


async def _require_tutti(api: Api) -> None:
    try:
        await api.request("GET", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/tutti")
        await api.request("GET", "/apis/kueue.x-k8s.io/v1beta2/clusterqueues", query={"limit": "1"})
    except NotFound as error:
        raise StageError(
            "Tutti is not installed on that cluster (docs/operating.md says how); without a kubeconfig the demo brings"
            " a simulated one of its own: make demo KUBECONFIG="
        ) from error
    await _require_gpus(api)


async def _require_gpus(api: Api) -> None:
    nodes: Any = play.decoded(await api.request("GET", "/api/v1/nodes"))
    there = sum(quantity.parse(n["status"].get("allocatable", {}).get(GPU, "0")) for n in nodes["items"])
    if there < play.GPUS * quantity.MILLI:
        raise StageError(
            f"the demo's teams share {play.GPUS} {GPU}; the nodes of that cluster have {quantity.render(there, GPU)}"
        )
