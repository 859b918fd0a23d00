"""Limits on how many jobs may run are pseudo-resources to the engine: people are told of jobs."""

from typing import Final

from webhook.core.notation import quantity
from webhook.core.notation.names import GUARANTEED, MAX_JOBS, PREEMPTIBLE_JOBS

WHICH: Final = {
    MAX_JOBS: "",
    GUARANTEED + MAX_JOBS: " that may not be preempted",
    PREEMPTIBLE_JOBS: " that may be preempted",
}
"""Pseudo-resources that count jobs, and which."""
PODS: Final = "pods"
"""What a ResourceQuota, or a queue, counts of pods."""


def resource_text(resource: str) -> str:
    """Return what a resource is called to people."""
    return f"jobs{WHICH[resource]}" if resource in WHICH else resource


def amount_text(thousandths: int, resource: str) -> str:
    """Return an amount of a resource with its name: ``2 nvidia.com/gpu``, ``1 job``."""
    return named(quantity.render(thousandths, resource), resource)


def named(amount: str, resource: str) -> str:
    """Return an amount that is written already, ``1`` or ``1 more``, with what it is of."""
    one = amount.split(" ", maxsplit=1)[0] == "1"
    if resource in WHICH:
        return f"{amount} job{'' if one else 's'}{WHICH[resource]}"
    if resource == PODS:
        return f"{amount} pod{'' if one else 's'}"
    return f"{amount} {resource}".rstrip()
