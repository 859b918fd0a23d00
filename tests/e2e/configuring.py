"""Tutti with other keys in its configuration for a while, on our cluster and on any other."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from tests.e2e.controlplane.install import NAMESPACE, Installation
from tests.e2e.kubectl import Kubectl


@contextmanager
def configured(
    tutti: Installation | None, kubectl: Kubectl, *, webhooks: bool = False, **settings: Any
) -> Iterator[None]:
    """Run reconcilers, and with ``webhooks`` those too, with ``settings`` while the block runs.

    ``settings`` are keys that the installation leaves out.
    """
    if tutti is not None:
        replicas = tutti.replicas if webhooks else tutti.reconcilers
        tutti.reconfigure(replicas, **settings)
        try:
            yield
        finally:
            tutti.reconfigure(replicas, **dict.fromkeys(settings))
        return
    system = kubectl.in_namespace(NAMESPACE)
    names = ["tutti-reconciler", *(["tutti-webhook"] if webhooks else [])]
    before = system.get("configmap", "tutti-config")["data"]["config.yaml"]
    _roll_out(system, yaml.safe_dump((yaml.safe_load(before) or {}) | settings), names)
    try:
        yield
    finally:
        _roll_out(system, before, names)


def _roll_out(system: Kubectl, config: str, deployments: list[str]) -> None:
    """Give Deployments another configuration file."""
    system.patch("configmap", "tutti-config", {"data": {"config.yaml": config}})
    for name in deployments:
        system("rollout", "restart", f"deployment/{name}")
        system("rollout", "status", f"deployment/{name}", "--timeout=120s", timeout_seconds=130)
