"""Tutti installed from ``manifests/``: its Deployments become processes, its Services lead to localhost.

Two webhook replicas and two reconcilers run under the manifests' service accounts with the manifests' rights. An
ExternalName Service is followed to localhost with the port that the registration names, so a balancer of ours listens
there for the replicas, as a Service's virtual address would.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from tests.e2e.controlplane.cluster import Cluster
from tests.e2e.controlplane.kubeconfig import behind
from tests.e2e.controlplane.link import Link
from tests.e2e.controlplane.process import Component, ComponentError, wait_ready
from webhook.core.notation import names

ROOT: Final = Path(__file__).resolve().parents[3]
READ_API: Final = True
"""Whether installations register the aggregated read API."""
NAMESPACE: Final = "tutti-system"
SECRET: Final = "tutti-certs"
OVERLAY: Final = ROOT / "manifests" / "overlays" / "loopback"
CERT_MANAGER_OVERLAY: Final = ROOT / "manifests" / "overlays" / "loopback-cert-manager"
SELF_SIGNED_OVERLAY: Final = ROOT / "manifests" / "overlays" / "loopback-self-signed"
FIRST_CERTIFICATES: Final = "tutti-certs-first"
"""The Job that issues the first certificates where Tutti signs its own."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One of Tutti's processes, as its pod would be."""

    component: Component
    webhook_port: int
    visibility_port: int
    health_port: int

    @property
    def name(self) -> str:
        """Its identity: what a pod's name would be."""
        return self.component.name

    @property
    def health(self) -> str:
        """Base address of /healthz, /readyz and /metrics."""
        return f"http://127.0.0.1:{self.health_port}"


class Installation:
    """Tutti on a cluster of ours; its replicas can be killed, frozen and started again."""

    def __init__(
        self,
        cluster: Cluster,
        overlay: Path = OVERLAY,
        replicas: int = 2,
        overrides: dict[str, Any] | None = None,
        link: Link | None = None,
    ) -> None:
        self.cluster = cluster
        self.link = link
        """Between our processes and the API server."""
        self.overlay = overlay
        self.overrides = overrides or {}
        """Keys of Tutti's configuration file to set on top of the manifest's."""
        self.read_api = READ_API
        """Whether to register the aggregated read API: while nobody answers there, no namespace can be deleted."""
        self.webhook_port, self.visibility_port = cluster.ports.take(), cluster.ports.take()
        self.webhooks = [self._replica("webhook", number) for number in range(replicas)]
        self.reconcilers = [self._replica("reconciler", number) for number in range(replicas)]

    @property
    def replicas(self) -> list[Replica]:
        """All of Tutti's processes."""
        return [*self.reconcilers, *self.webhooks]

    @property
    def leader(self) -> Replica:
        """The reconciler that held the lease last, by the ledger as it is stored now."""
        ledger = self.cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{names.LEDGER_NAME}")
        holder = json.loads(ledger["metadata"]["annotations"][names.LEASE_ANNOTATION])["holderIdentity"]
        # The number of its term follows.
        return next(replica for replica in self.reconcilers if replica.name == holder.rpartition("_")[0])

    def install(self, ready_seconds: float = 60) -> "Installation":
        """Apply the manifests, start the processes and wait until every replica is ready.

        Raises ComponentError with the tail of a log when one does not become so.
        """
        base = self.apply_manifests()
        if self.overlay == OVERLAY:
            self.issue_certificate()
        elif self.overlay == SELF_SIGNED_OVERLAY:
            self.run_job(FIRST_CERTIFICATES)
        folders = [self._folder(replica) / "certs" for replica in self.replicas]
        self._start_mount(folders)
        for replica in self.replicas:
            self._write_config(replica, base)
            replica.component.start()
        self._start_balancer("service-webhook", self.webhook_port, self.webhooks, "webhook_port")
        self._start_balancer("service-visibility", self.visibility_port, self.reconcilers, "visibility_port")
        self.wait_ready(ready_seconds)
        if self.read_api:
            self.cluster.wait_served("/apis/visibility.tutti.dev/v1alpha1")
        return self

    def apply_manifests(self) -> dict[str, Any]:
        """Apply the manifests, at an installation or again; return the configuration file that they mount."""
        documents = redirect(self._render(), self.webhook_port, self.visibility_port)
        if not self.read_api:
            documents = [document for document in documents if document["kind"] != "APIService"]
        self._kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(documents))
        return config_of(documents)

    def wait_ready(self, timeout_seconds: float = 60) -> None:
        """Wait until every replica that runs is ready and, if one of them is a webhook, the API server reaches it."""
        running = [replica for replica in self.replicas if replica.component.running]
        for replica in running:
            answers = partial(self.cluster.http_ok, f"{replica.health}/readyz")
            wait_ready(replica.component, "it is ready", answers, timeout_seconds)
        if any(replica in self.webhooks for replica in running):
            self._wait_forwarded(timeout_seconds)

    def reconfigure(self, replicas: list[Replica], **settings: Any) -> None:
        """Start some replicas again with other keys in their configuration file, as after a change of its ConfigMap.

        A key that is None is taken out.
        """
        for replica in replicas:
            path = self._folder(replica) / "config.yaml"
            replica.component.stop()
            config = yaml.safe_load(path.read_text()) | settings
            path.write_text(yaml.safe_dump({key: value for key, value in config.items() if value is not None}))
            replica.component.start()
        self.wait_ready()

    def apply(self, documents: list[dict[str, Any]]) -> None:
        """Apply manifests of Tutti's, and announce the authority to whoever they make call the webhook."""
        redirected = redirect(documents, self.webhook_port, self.visibility_port)
        self._kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=yaml.safe_dump_all(redirected))
        self.announce_authority()

    def _wait_forwarded(self, timeout_seconds: float) -> None:
        """The balancer learns by its own probes that a replica is ready, up to a second later than we do."""
        forwarded = partial(self.cluster.http_ok, f"https://127.0.0.1:{self.webhook_port}/healthz")
        wait_ready(self.cluster.components["service-webhook"], "it forwards to a replica", forwarded, timeout_seconds)

    def issue_certificate(self, *, new_authority: bool = False) -> None:
        """Issue the serving certificate into its Secret and announce its authority, as the documentation says."""
        out = ["--out", str(self.cluster.directory / "certs")]
        if new_authority:
            self.certs("rotate", *out, "--new-authority")
        self._kubectl("apply", "--server-side", "-f", "-", stdin=self.certs("issue", *out, "--secret"))
        self.announce_authority()

    def announce_authority(self) -> None:
        """Tell the API server which authority to trust: the registrations may be new."""
        out = str(self.cluster.directory / "certs")
        self.certs("patch-ca", "--out", out, "--kubeconfig", str(self.cluster.kubeconfig))

    def run_job(self, name: str) -> str:
        """Do the work of a Job in Tutti's namespace, where the simulated kubelets only pretend to; return its output.

        Command, arguments, environment and service account are those of its pod template as the API server stored it. A
        kubeconfig with a token of the account stands in for the mounted one. Raises ComponentError when it fails.
        """
        pod = json.loads(self._kubectl("-n", NAMESPACE, "get", "job", name, "-o", "json"))["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        program, *arguments = [*container["command"], *container.get("args", [])]
        assert program == "python", f"{name} runs {program}"
        account = self.cluster.kubeconfig_for_service_account(NAMESPACE, pod["serviceAccountName"])
        given = {entry["name"]: entry["value"] for entry in container.get("env", [])}
        return _run([sys.executable, *arguments], environment=given | {"KUBECONFIG": str(account)})

    def _replica(self, role: str, number: int) -> Replica:
        name = f"tutti-{role}-{number}"
        config = self.cluster.directory / name / "config.yaml"
        component = self.cluster.component(
            name, "-m", "webhook", role, "--config", config, program=sys.executable, environment=_python()
        )
        return Replica(component, *(self.cluster.ports.take() for _ in range(3)))

    def _folder(self, replica: Replica) -> Path:
        return self.cluster.directory / replica.name

    def _write_config(self, replica: Replica, base: dict[str, Any]) -> None:
        account = "tutti-webhook" if replica in self.webhooks else "tutti-reconciler"
        kubeconfig = self.cluster.kubeconfig_for_service_account(NAMESPACE, account)
        local = {
            "kubeconfig": str(kubeconfig if self.link is None else behind(kubeconfig, self.link.port)),
            "identity": replica.name,
            "cert_dir": str(self._folder(replica) / "certs"),
            "listen": {
                "host": "127.0.0.1",
                "webhook_port": replica.webhook_port,
                "visibility_port": replica.visibility_port,
                "health_port": replica.health_port,
            },
            **({"reviewers": self.cluster.reviewers} if replica in self.webhooks else {}),
            "peers": {peer.name: f"https://127.0.0.1:{peer.webhook_port}" for peer in self.webhooks},
        }
        self._folder(replica).mkdir(exist_ok=True)
        (self._folder(replica) / "config.yaml").write_text(yaml.safe_dump(base | local | self.overrides))

    def _start_mount(self, folders: list[Path]) -> None:
        """Start what a kubelet would do for the certificate's Secret, and wait for the files."""
        keys = self.cluster.directory / "keys"
        arguments: list[str | Path] = [
            "--server",
            self.cluster.server,
            "--keys",
            keys,
            "--secret",
            f"{NAMESPACE}/{SECRET}",
        ]
        for folder in folders:
            arguments += ["--to", folder]
        mount = self._own_program("secret-mount", "mount", arguments)
        wait_ready(mount, "the certificate is there", lambda: all((folder / "tls.key").exists() for folder in folders))

    def _start_balancer(self, name: str, port: int, replicas: list[Replica], attribute: str) -> None:
        arguments: list[str | Path] = ["--listen", str(port)]
        for replica in replicas:
            arguments += ["--replica", f"{getattr(replica, attribute)}={replica.health}/readyz"]
        self._own_program(name, "balancer", arguments)

    def _own_program(self, name: str, module: str, arguments: Sequence[str | Path]) -> Component:
        command = ("-m", f"tests.e2e.controlplane.{module}", *arguments)
        return self.cluster.component(name, *command, program=sys.executable, environment=_python()).start()

    def _render(self) -> list[dict[str, Any]]:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return [
            document for document in yaml.load_all(self._kubectl("kustomize", str(self.overlay)), loader) if document
        ]

    def _kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        kubectl = str(self.cluster.binaries["kubectl"])
        return _run([kubectl, f"--kubeconfig={self.cluster.kubeconfig}", *arguments], stdin)

    def certs(self, *arguments: str) -> str:
        """Run ``python -m certs``; return what it prints."""
        return _run([sys.executable, "-m", "certs", *arguments])


def redirect(documents: list[dict[str, Any]], webhook_port: int, visibility_port: int) -> list[dict[str, Any]]:
    """Return the manifests with our ports: an ExternalName Service is followed with the port of who refers to it."""
    for document in documents:
        if document["kind"] in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
            for webhook in document["webhooks"]:
                webhook["clientConfig"]["service"]["port"] = webhook_port
        elif document["kind"] == "APIService":
            document["spec"]["service"]["port"] = visibility_port
    return documents


def config_of(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the configuration file that the manifests mount into the pods."""
    for document in documents:
        if document["kind"] == "ConfigMap" and document["metadata"]["name"] == "tutti-config":
            return yaml.safe_load(document["data"]["config.yaml"]) or {}
    return {}


def _run(command: list[str], stdin: str | None = None, environment: dict[str, str] | None = None) -> str:
    """Return what a command prints; raises ComponentError with its stderr."""
    done = subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        check=False,
    )
    if done.returncode:
        raise ComponentError(f"installing Tutti: {' '.join(command)} failed:\n{done.stderr.strip()}")
    return done.stdout


def _python() -> dict[str, str]:
    """Return the environment in which our own modules are found."""
    return {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
