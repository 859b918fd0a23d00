"""A process, and a command, imports what it needs: its start takes less, and it keeps less in memory."""

import subprocess
import sys
from typing import Final

import pytest

COMMANDS: Final = ("webhook.controllers", "webhook.server", "webhook.cluster", "webhook.laboratory", "webhook.config")
IDLE: Final = {
    "webhook.cli": ("webhook.commands.show", "webhook.processes", "aiohttp", "structlog", "pydantic", "yaml", "rich"),
    "webhook.processes.webhook": ("webhook.controllers", "webhook.visibility", "webhook.fleet", "webhook.laboratory"),
    "webhook.processes.reconciler": ("webhook.server.handler", "webhook.server.pods", "webhook.laboratory"),
    "webhook.processes.hub": (
        "webhook.server.handler",
        "webhook.controllers",
        "webhook.visibility",
        "webhook.cluster.view",
    ),
    "webhook.commands.show.gang": (*COMMANDS, "cryptography", "prometheus_client", "aiohttp"),
    "webhook.commands.show.queues": (*COMMANDS, "cryptography", "prometheus_client", "aiohttp"),
}
"""What each must not import, before it connects to a cluster."""


@pytest.mark.parametrize("module", IDLE)
def test_nothing_is_imported_that_is_not_needed(module: str) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert module in printed
    assert not [name for name in printed if any(f"{name}.".startswith(f"{idle}.") for idle in IDLE[module])]
