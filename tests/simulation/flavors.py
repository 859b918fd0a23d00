"""Two flavors, each of nodes of its own: no more of each is charged than there is, and pods run on what is charged."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tests.simulation.gpu_pods import GPU
from webhook.core.ledger.record import Reservation
from webhook.core.notation import names
from webhook.core.notation.amounts import FlavorResource

NAMES: Final = ("fast", "slow")
POOL: Final = "example.com/pool"
NOMINAL_GPUS: Final = {"red": (2, 2), "blue": (2, 2), "alone": (3, 0)}
"""Queue to what it has of each; a job of three pods finds that in the cohort, or in the queue that has none."""
TREES: Final = {"red": "shared", "blue": "shared", "alone": "alone"}


def labels_of(node: int) -> dict[str, str]:
    """Return the labels of a node by its number: every other one is slow."""
    return {POOL: NAMES[node % 2]}


def documents(alone: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """Yield the flavors, in place of the one that would be there ``alone``."""
    for name in NAMES:
        yield {**alone, "metadata": {"name": name}, "spec": alone.get("spec", {}) | {"nodeLabels": {POOL: name}}}


def overdrawn(held: Iterable[tuple[Reservation, Mapping[FlavorResource, int]]]) -> str:
    """Return what more is reserved of than there is, empty when nothing is. ``held`` is what each gang is charged."""
    used, room = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for queue, amounts in NOMINAL_GPUS.items():
        for flavor, gpus in zip(NAMES, amounts, strict=True):
            room[TREES[queue], flavor] += gpus * 1000
    for entry, usage in held:
        for key, amount in usage.items():
            if key.resource == GPU:
                used[TREES[entry.queue or ""], key.flavor] += amount
    over = {key: amount for key, amount in used.items() if amount > room[key]}
    return f"{over} is reserved of {dict(room)}" if over else ""


def _has_ended(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def elsewhere(pod: Mapping[str, Any], entries: Mapping[str, Reservation]) -> str:
    """Return that a pod of a gang is on a node of another flavor than it is charged for, empty when it is not."""
    labels, node = pod["metadata"].get("labels") or {}, pod["spec"].get("nodeName")
    entry = entries.get(labels.get(names.GANG_LABEL, ""))
    pod_set = None if entry is None else entry.pod_set(labels.get(names.POD_SET_LABEL, ""))
    if not node or entry is None or pod_set is None or not entry.queue or _has_ended(pod):
        # What has ended may have run before its gang was stopped and started on the other.
        return ""
    on, charged = labels_of(int(node.removeprefix("node-")))[POOL], pod_set.flavors.get(GPU)
    return "" if on == charged else f"pod {pod['metadata']['name']} of {entry} is charged {charged} and runs on {on}"
