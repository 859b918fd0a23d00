"""Which of the admission policies a release of Kubernetes takes."""

from pathlib import Path
from typing import Final

from tests.e2e.controlplane.binaries import release
from tests.e2e.controlplane.install import ROOT

SUSPENDING_SINCE: Final = (1, 36)
"""The first release that serves v1 of MutatingAdmissionPolicy."""


def suspending() -> bool:
    """Return whether the policies that suspend a queued job are served by the control plane that we start."""
    return release() >= SUSPENDING_SINCE


def overlay() -> Path:
    """Return the overlay to apply."""
    return ROOT / "manifests" / "overlays" / ("admission-policies" if suspending() else "validating-policies")
