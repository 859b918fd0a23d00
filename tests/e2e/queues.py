"""Quota for tests, and what the ledger says about it."""

from typing import Any, Final

from tests.e2e.controlplane.install import NAMESPACE
from tests.e2e.kubectl import Kubectl, KubectlError, wait_until
from tests.e2e.objects import GPU, job, pod_template
from webhook.cluster.ledger_book import LedgerBook
from webhook.core.ledger.pages import Found
from webhook.core.ledger.record import Ledger, Reservation
from webhook.core.notation import names

QUEUE: Final = "team"
"""The LocalQueue that :func:`give_queue` makes."""
_GROUP: Final = "kueue.x-k8s.io/v1beta2"
_FLAVOR: Final[dict[str, Any]] = {"apiVersion": _GROUP, "kind": "ResourceFlavor", "metadata": {"name": "any-node"}}


def give_queue(admin: Kubectl, gpus: int, name: str = QUEUE) -> str:
    """Create a LocalQueue in the namespace and a ClusterQueue of its own for ``gpus`` GPUs; return that one's name."""
    cluster_queue = f"{admin.namespace}-{name}"
    admin.set_up(_FLAVOR, cluster_queue_of(cluster_queue, gpus), _local(name, cluster_queue))
    _is_known(admin, name)
    return cluster_queue


def gate_by_hand(admin: Kubectl, gpus: int) -> None:
    """Have all jobs of the namespace wait, in a LocalQueue ``default`` for ``gpus`` GPUs; return once that is seen."""
    admin("label", "namespace", admin.namespace, "tutti.dev/gated=true")
    give_queue(admin, gpus, "default")
    probe = job("probe", 1, pod_template(gpus=0), suspend=True)
    queued = "jsonpath={.metadata.labels.tutti\\.dev/queue-name}"
    wait_until(lambda: admin.create(probe, "--dry-run=server", f"--output={queued}") == "default", what="label seen")


def give_cohort(admin: Kubectl, *names: str, gpus: int) -> None:
    """Create queues of so many GPUs each, in a cohort; each takes back what is its own."""
    objects = [_FLAVOR]
    for name in names:
        queue = cluster_queue_of(f"{admin.namespace}-{name}", gpus)
        queue["spec"] |= {"cohortName": admin.namespace, "preemption": {"reclaimWithinCohort": "Any"}}
        objects += [queue, _local(name, f"{admin.namespace}-{name}")]
    admin.set_up(*objects)
    for name in names:
        _is_known(admin, name)


def _local(name: str, cluster_queue: str) -> dict[str, Any]:
    """Return a LocalQueue."""
    spec = {"clusterQueue": cluster_queue}
    return {"apiVersion": _GROUP, "kind": "LocalQueue", "metadata": {"name": name}, "spec": spec}


def _is_known(admin: Kubectl, name: str) -> None:
    """Wait until the webhook knows a queue: it hears of policy by watches, each a moment after the object is stored."""
    probe = job("probe", 1, pod_template(gpus=0), name, suspend=True)
    wait_until(lambda: not admin.warned(probe), what=f"queue {name} is known")


def cluster_queue_of(name: str, gpus: int | str) -> dict[str, Any]:
    """Return a ClusterQueue of 100 cores and some GPUs, outside any cohort."""
    quotas = [{"name": "cpu", "nominalQuota": "100"}, {"name": GPU, "nominalQuota": str(gpus)}]
    group = {"coveredResources": ["cpu", GPU], "flavors": [{"name": "any-node", "resources": quotas}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    return {"apiVersion": _GROUP, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def set_gpus(admin: Kubectl, gpus: int, name: str = QUEUE) -> None:
    """Change the quota of the queue that :func:`give_queue` made."""
    admin.apply(cluster_queue_of(f"{admin.namespace}-{name}", gpus))


def stored_ledger(kubectl: Kubectl) -> Ledger | None:
    """Return the ledger as it is stored; None while it is missing. Raises LedgerCorrupt."""
    try:
        found = kubectl.in_namespace(NAMESPACE).get("configmap", names.LEDGER_NAME)
    except KubectlError:
        return None
    book = LedgerBook(found.get("data"))
    for page in kubectl.in_namespace(NAMESPACE).items("configmaps", names.LEDGER_PAGE):
        book.pages[page["metadata"]["name"]] = Found(page["metadata"]["uid"], page.get("data") or {})
    return book.read()


def claimants(kubectl: Kubectl) -> list[str]:
    """Return the names of the namespace's gangs for which the ledger keeps room that is being made."""
    ledger = stored_ledger(kubectl)
    found = () if ledger is None else ledger.claims.values()
    return [claim.planned.name for claim in found if claim.planned.namespace == kubectl.namespace]


def entries(kubectl: Kubectl) -> list[Reservation]:
    """Return the reservations of the namespace's jobs."""
    ledger = stored_ledger(kubectl)
    found = () if ledger is None else ledger.entries.values()
    return [entry for entry in found if entry.namespace == kubectl.namespace]


def reservations(kubectl: Kubectl) -> dict[str, Reservation]:
    """Return the reservations of the namespace's jobs by the job's name, where no two kinds share one."""
    return {entry.name: entry for entry in entries(kubectl)}


def reserved(kubectl: Kubectl, resource: str = GPU) -> int:
    """Return how many whole units of a resource the namespace's reservations hold."""
    pod_sets = [pod_set for entry in entries(kubectl) for pod_set in entry.pod_sets]
    return sum(pod_set.count * pod_set.price.requests.get(resource, 0) for pod_set in pod_sets) // 1000
