"""Defaults that the API server, or the kind's own webhook, writes into objects on their way in.

Only what somebody reads is defaulted: the fields that gangs, prices and the job controllers use.
Functions change the object in place; it is not stored yet.
"""

from collections.abc import Callable
from typing import Any, Final

from webhook.laboratory.simulated.requests.refusals import Json


def pod_spec(spec: Json) -> None:
    """Write the defaults of a pod spec, as core/v1 does for pods and for templates of built-in kinds."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        container.setdefault("resources", {})
        container.setdefault("imagePullPolicy", _pull_policy(container.get("image", "")))


def _pull_policy(image: str) -> str:
    _, _, tag = image.rpartition("/")[2].partition(":")
    return "Always" if tag in ("", "latest") and "@" not in image else "IfNotPresent"


def pod(item: Json) -> None:
    """Write the defaults of a pod; requests default to limits here only, not in the templates of jobs."""
    spec = item.setdefault("spec", {})
    pod_spec(spec)
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        limits = container["resources"].get("limits")
        if limits:
            container["resources"]["requests"] = {**limits, **(container["resources"].get("requests") or {})}
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _job_spec(spec: Json) -> None:
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    if spec.get("parallelism") is None:
        spec["parallelism"] = 1
    spec.setdefault("backoffLimit", 2**31 - 1 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    spec.setdefault("manualSelector", False)
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    pod_spec(template.setdefault("spec", {}))


def job(item: Json) -> None:
    """Write the defaults of a Job."""
    spec = item.setdefault("spec", {})
    _job_spec(spec)
    labels = spec["template"]["metadata"].get("labels")
    if labels and not item["metadata"].get("labels"):
        # One map for both on purpose, as in kube-apiserver: what is generated for the template then shows on the Job.
        item["metadata"]["labels"] = labels


def job_identity(item: Json) -> None:
    """Add the generated selector and template labels of a new Job; needs its uid and name."""
    spec = item["spec"]
    if spec.get("manualSelector"):
        return
    uid, name = item["metadata"]["uid"], item["metadata"]["name"]
    labels = spec["template"]["metadata"].setdefault("labels", {})
    for key in ("job-name", "batch.kubernetes.io/job-name"):
        labels.setdefault(key, name)
    for key in ("controller-uid", "batch.kubernetes.io/controller-uid"):
        labels.setdefault(key, uid)
    matched = spec.setdefault("selector", {}).setdefault("matchLabels", {})
    matched.setdefault("batch.kubernetes.io/controller-uid", uid)
    if not item["metadata"].get("labels"):
        item["metadata"]["labels"] = labels


def jobset(item: Json) -> None:
    """Write the defaults that the JobSet webhook and schema write."""
    spec = item.setdefault("spec", {})
    spec.setdefault("successPolicy", {"operator": "All"})
    spec.setdefault("startupPolicy", {"startupPolicyOrder": "AnyOrder"})
    network = spec.setdefault("network", {})
    network.setdefault("enableDNSHostnames", True)
    network.setdefault("publishNotReadyAddresses", True)
    for replicated in spec.get("replicatedJobs") or ():
        replicated.setdefault("replicas", 1)
        replicated.setdefault("groupName", "default")
        job_template = replicated.setdefault("template", {})
        job_template.setdefault("metadata", {})
        job_spec = job_template.setdefault("spec", {})
        job_spec.setdefault("completionMode", "Indexed")
        template = job_spec.setdefault("template", {})
        template.setdefault("metadata", {})
        template.setdefault("spec", {}).setdefault("restartPolicy", "OnFailure")


def workload(item: Json) -> None:
    """Write the defaults of a Deployment, ReplicaSet or StatefulSet."""
    spec = item.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    pod_spec(template.setdefault("spec", {}))


def namespace(item: Json) -> None:
    """Write the label and finalizer that every Namespace has."""
    name = item["metadata"].get("name")
    if name:
        item["metadata"].setdefault("labels", {}).setdefault("kubernetes.io/metadata.name", name)
    if "deletionTimestamp" not in item["metadata"]:
        item.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])


_EMPTY_METADATA: Final = ("labels", "annotations", "finalizers", "ownerReferences")
_EMPTY_POD_FIELDS: Final = ("nodeSelector", "tolerations", "schedulingGates", "affinity", "initContainers", "volumes")

_DEFAULTS: Final[dict[tuple[str, str], Callable[[Json], None]]] = {
    ("", "pods"): pod,
    ("", "namespaces"): namespace,
    ("batch", "jobs"): job,
    ("apps", "deployments"): workload,
    ("apps", "replicasets"): workload,
    ("apps", "statefulsets"): workload,
    ("jobset.x-k8s.io", "jobsets"): jobset,
}

_FIRST_STATUS: Final[dict[tuple[str, str], Json]] = {
    ("", "pods"): {"phase": "Pending"},
    ("", "namespaces"): {"phase": "Active"},
    ("", "resourcequotas"): {},
    ("batch", "jobs"): {},
    ("apps", "deployments"): {},
    ("apps", "replicasets"): {"replicas": 0},
    ("apps", "statefulsets"): {"replicas": 0},
}


def drop_empty(item: Json) -> None:
    """Take away what a typed object does not show when it is empty: a JSON patch cannot add to what is not there."""
    _drop(item["metadata"], _EMPTY_METADATA)
    spec = item.get("spec")
    if not isinstance(spec, dict):
        return
    _drop(spec, _EMPTY_POD_FIELDS)
    template = spec.get("template")
    if isinstance(template, dict):
        _drop(template.get("metadata"), _EMPTY_METADATA)
        _drop(template.get("spec"), _EMPTY_POD_FIELDS)


def _drop(fields: Any, names: tuple[str, ...]) -> None:
    if isinstance(fields, dict):
        for name in names:
            if name in fields and not fields[name]:
                del fields[name]


def apply(key: tuple[str, str], item: Json) -> None:
    """Write the defaults of an object of the kind ``key`` (group, plural)."""
    write = _DEFAULTS.get(key)
    if write is not None:
        write(item)


def first_status(key: tuple[str, str], item: Json) -> None:
    """Give a new object the status that its kind starts with, whatever its owner wrote."""
    status = _FIRST_STATUS.get(key)
    if status is None:
        item.pop("status", None)
    else:
        item["status"] = {**status}
    if key == ("", "pods"):
        item["status"]["qosClass"] = qos_class(item["spec"])


def qos_class(spec: Json) -> str:
    """Return the quality-of-service class of a pod."""
    guaranteed, any_amount = True, False
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources: dict[str, Any] = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            any_amount = any_amount or name in limits or name in requests
            guaranteed = guaranteed and name in limits and requests.get(name, limits[name]) == limits[name]
    return "BestEffort" if not any_amount else "Guaranteed" if guaranteed else "Burstable"
