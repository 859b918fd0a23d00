"""What the read API serves: its group, its version and its two resources, as discovery names them."""

from dataclasses import dataclass
from typing import Final

GROUP: Final = "visibility.tutti.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
VERBS: Final = ("get", "list", "watch")


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource as discovery describes it. All of ours are namespaced and read-only."""

    plural: str
    singular: str
    kind: str
    short_names: tuple[str, ...] = ()


WORKLOADS: Final = Resource("workloads", "workload", "Workload", ("wl", "kwl"))
QUEUES: Final = Resource("queues", "queue", "Queue")
RESOURCES: Final = {resource.plural: resource for resource in (WORKLOADS, QUEUES)}
