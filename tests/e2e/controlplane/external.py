"""A cluster that somebody else runs: what tests need from it, through its administrator's kubeconfig."""

import atexit
import copy
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.controlplane.binaries import find
from tests.e2e.controlplane.kubeconfig import write_private


class ExternalCluster:
    """Users are impersonated there, since we cannot sign certificates; admission sees the same user names."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        found = shutil.which("kubectl")
        self.binaries = {"kubectl": Path(found) if found else find("kubectl")}
        self.directory = Path(tempfile.mkdtemp(prefix="tutti-users-"))
        atexit.register(shutil.rmtree, self.directory, ignore_errors=True)
        raw = subprocess.run(
            [
                self.binaries["kubectl"],
                f"--kubeconfig={kubeconfig}",
                "config",
                "view",
                "--raw",
                "--minify",
                "-o",
                "yaml",
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        self._document: dict[str, Any] = yaml.safe_load(raw.stdout)

    def kubeconfig_for_user(self, user: str, groups: tuple[str, ...] = ()) -> Path:
        """Write a kubeconfig that impersonates a user."""
        document = copy.deepcopy(self._document)
        everybody = ["system:authenticated", *groups]
        document["users"][0]["user"] |= {"as": user, "as-groups": everybody}
        return write_private(self.directory / f"{user.replace(':', '_')}.kubeconfig", yaml.safe_dump(document))

    def kubeconfig_for_service_account(self, namespace: str, name: str) -> Path:
        """Write a kubeconfig that impersonates a service account."""
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        return self.kubeconfig_for_user(f"system:serviceaccount:{namespace}:{name}", groups)
