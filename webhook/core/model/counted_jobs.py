"""Limits on how many jobs may run are pseudo-resources to the engine: people are told of jobs."""

from typing import Final

from webhook.core.model import quantity
from webhook.core.model.names import GUARANTEED, MAX_JOBS, PREEMPTIBLE_JOBS

WHICH: Final = {
    MAX_JOBS: "",
    GUARANTEED + MAX_JOBS: " that may not be preempted",
    PREEMPTIBLE_JOBS: " that may be preempted",
}
"""Pseudo-resources that count jobs, and which."""


def resource_text(resource: str) -> str:
    """Return what a resource is called to people."""
    return f"jobs{WHICH[resource]}" if resource in WHICH else resource


def amount_text(thousandths: int, resource: str) -> str:
    """Return an amount of a resource with its name: ``2 nvidia.com/gpu``, ``1 job``."""
    amount = quantity.render(thousandths, resource)
    if resource not in WHICH:
        return f"{amount} {resource}".rstrip()
    return f"{amount} job{'' if amount == '1' else 's'}{WHICH[resource]}"
