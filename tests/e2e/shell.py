"""Walkthroughs run as they are written: shell commands from the repository's root, as one user."""

import os
import subprocess
from collections.abc import Mapping

from tests.e2e.controlplane.install import ROOT
from tests.e2e.kubectl import Kubectl, KubectlError


class Shell:
    """Runs commands of a walkthrough; the ``kubectl`` in them is the given user's, ``environment`` what they name."""

    def __init__(self, kubectl: Kubectl, environment: Mapping[str, str] | None = None) -> None:
        given = os.environ | (environment or {})
        path = f"{kubectl.program.parent}{os.pathsep}{given['PATH']}"
        self._environment = given | {"PATH": path, "KUBECONFIG": str(kubectl.kubeconfig)}

    def __call__(self, command: str, timeout_seconds: float = 60) -> str:
        """Return what a command prints; raises KubectlError with its stderr when any part of it fails."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
        if done.returncode:
            raise KubectlError(["(from the walkthrough)", command], done.stderr)
        return done.stdout
