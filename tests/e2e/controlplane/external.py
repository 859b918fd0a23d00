"""A cluster that somebody else runs: what tests need from it, through its administrator's kubeconfig."""

import atexit
import copy
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

from tests.e2e.controlplane import kinds
from tests.e2e.controlplane.binaries import find
from tests.e2e.controlplane.kubeconfig import write_private

SHARED: Final = (
    "namespace/appwrapper-system",
    "namespace/kubeflow-system",
    "namespace/kuberay-system",
    "namespace/spark-operator",
    "resourceflavor/any-node",
    "resourceflavor/bookstore-ml-flavor",
    "resourceflavor/reserved-pool",
    "crd/widgets.agreement.example.com",
)
"""What tests create, if it is not there, for all that come after them."""


class ExternalError(Exception):
    """The cluster cannot be reached; the message is kubectl's."""


class ExternalCluster:
    """Users are impersonated there, since we cannot sign certificates; admission sees the same user names."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        found = shutil.which("kubectl")
        self.binaries = {"kubectl": Path(found) if found else find("kubectl")}
        self.directory = Path(tempfile.mkdtemp(prefix="tutti-users-"))
        atexit.register(shutil.rmtree, self.directory, ignore_errors=True)
        self._installed: list[str] = []
        raw = self._kubectl("config", "view", "--raw", "--minify", "-o", "yaml")
        if raw.returncode:
            raise ExternalError(_last_line(raw.stderr))
        self._document: dict[str, Any] = yaml.safe_load(raw.stdout)

    def kubeconfig_for_user(self, user: str, groups: tuple[str, ...] = ()) -> Path:
        """Write a kubeconfig that impersonates a user."""
        document = copy.deepcopy(self._document)
        everybody = ["system:authenticated", *groups]
        document["users"][0]["user"] |= {"as": user, "as-groups": everybody}
        return write_private(self.directory / f"{user.replace(':', '_')}.kubeconfig", yaml.safe_dump(document))

    def missing(self) -> list[str]:
        """Say what the cluster lacks that most tests need."""
        needed = {
            "validatingwebhookconfiguration/tutti": "Tutti (docs/operating.md says how to install it)",
            "crd/jobsets.jobset.x-k8s.io": "JobSet",
            "crd/pytorchjobs.kubeflow.org": "the training operator",
            "node -l node.kubernetes.io/instance-type=simulated": "nodes simulated by KWOK, as in tests/e2e/kind.sh",
        }
        return [what for query, what in needed.items() if not self.has("default", query)]

    def has(self, namespace: str, query: str) -> bool:
        """Whether ``kubectl get`` finds anything; raises ExternalError when the cluster does not answer."""
        done = self._kubectl("get", *query.split(), f"--namespace={namespace}", "--ignore-not-found", "--output=name")
        if done.returncode and "the server doesn't have a resource type" not in done.stderr:
            raise ExternalError(_last_line(done.stderr))
        return bool(done.stdout.strip())

    def install_kinds(self, project: str) -> None:
        """Install the job kinds of a project in :data:`kinds.PROJECTS` that are not there, without its controller.

        May be called again; :meth:`tidy` takes away what was installed.
        """
        for definition in kinds.definitions(project):
            name = f"crd/{definition['metadata']['name']}"
            if not self.has("default", name):
                self._kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(definition)).check_returncode()
                self._installed.append(name)

    def note_absent(self) -> None:
        """Remember what of :data:`SHARED` is not there yet, so that :meth:`tidy` takes it away."""
        self._installed += [name for name in SHARED if not self.has("default", name)]

    def tidy(self) -> None:
        """Delete what was not there before: job kinds, and what tests share."""
        if self._installed:
            self._kubectl("delete", *self._installed, "--wait=false", "--ignore-not-found")
        self._installed.clear()

    def kubeconfig_for_service_account(self, namespace: str, name: str) -> Path:
        """Write a kubeconfig that impersonates a service account."""
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        return self.kubeconfig_for_user(f"system:serviceaccount:{namespace}:{name}", groups)

    def _kubectl(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [self.binaries["kubectl"], f"--kubeconfig={self.kubeconfig}", *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)


def _last_line(stderr: str) -> str:
    """Return what kubectl says in the end; before it stand its library's own complaints."""
    return stderr.strip().rpartition("\n")[2]
