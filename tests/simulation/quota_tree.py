"""An ElasticQuotaTree instead of Kueue's queues: each namespace is a leaf, and its jobs name no queue."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tests.simulation.gpu_pods import GPU
from tests.simulation.trees import Trees
from webhook.core.ledger.record import Reservation
from webhook.core.notation.amounts import FlavorResource

GPUS: Final = 6
LEAVES: Final = {"team-a": (2, 5), "team-b": (3, 6)}
"""Namespace, of which the leaf has the name, to its least and its most GPUs."""
ROOT: Final = "root"
USUAL: Final = Trees(
    {f"{ROOT}/{leaf}": (least, ROOT) for leaf, (least, _) in LEAVES.items()}
    | {"nobody": (GPUS - sum(least for least, _ in LEAVES.values()), ROOT)}
)
"""What is nobody's by right any leaf may borrow."""


def document() -> dict[str, Any]:
    """Return the tree."""
    children = [
        {"name": name, "namespaces": [name], "min": {GPU: least}, "max": {GPU: most}}
        for name, (least, most) in LEAVES.items()
    ]
    root = {"name": ROOT, "min": {GPU: GPUS}, "max": {GPU: GPUS}, "children": children}
    metadata = {"name": "elasticquotatree", "namespace": "kube-system"}
    version = "scheduling.sigs.k8s.io/v1beta1"
    return {"apiVersion": version, "kind": "ElasticQuotaTree", "metadata": metadata, "spec": {"root": root}}


def overdrawn(held: Iterable[tuple[Reservation, Mapping[FlavorResource, int]]]) -> str:
    """Return which leaf has more than its most, empty when none has. ``held`` is what each gang is charged."""
    used = Counter[str]()
    for entry, usage in held:
        used[entry.queue or ""] += sum(amount for key, amount in usage.items() if key.resource == GPU)
    over = {leaf: used[f"{ROOT}/{leaf}"] for leaf, (_, most) in LEAVES.items()}
    over = {leaf: amount for leaf, amount in over.items() if amount > LEAVES[leaf][1] * 1000}
    return f"leaves have more than their most: {over}" if over else ""
