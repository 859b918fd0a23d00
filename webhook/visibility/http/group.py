"""What the read API serves: its group, its version and its two resources, as discovery names them.

Also what its readers need to know of its documents.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Document = Mapping[str, Any]

GROUP: Final = "visibility.tutti.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
ROOT: Final = f"/apis/{API_VERSION}"
VERBS: Final = ("get", "list", "watch")
JOB_UID_LABEL: Final = "kueue.x-k8s.io/job-uid"
"""On a Workload: the uid of its job, by which Kueue's users find it."""
FULL_NAME: Final = "kube-queue/quota-fullname"
"""On a Queue: where it stands in the tree."""
FIELDS: Final = ("metadata.name", "metadata.namespace", "spec.queueName", "status.admission.clusterQueue")
"""Fields that documents can be selected by, as by their labels."""


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
