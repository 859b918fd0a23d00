"""Built-in readers, for kinds whose pods paths alone do not show: Job, Ray, Spark, AppWrapper, Workflow, TrainJob.

A reader completes or checks what the paths of an entry found. It refuses by name what it cannot price: autoscalers,
dynamic allocation, settings passed through free-form configuration.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from webhook.core.notation import names, quantity
from webhook.core.notation.problem import Unreadable
from webhook.jobs.pod_sets import app_wrapper, spark, train_job
from webhook.jobs.pod_sets.sites import PodSetSite, read_count
from webhook.jobs.pricing.context import ReadContext
from webhook.untyped import paths

MIN_RESOURCES: Final = ("kube-queue/min-resources", "koord-queue/min-resources")
"""Annotations by which the owner of a Workflow says what it needs as a whole; spellings of two releases."""
_RAY_SUBMITTER: Final[Mapping[str, Any]] = {
    "name": "ray-job-submitter",
    "restartPolicy": "Always",
    "resources": {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
}
"""What KubeRay puts next to the head in SidecarMode; running as long as it, it costs what a sidecar costs."""
_REDIS_CLEANUP: Final[Mapping[str, str]] = {"cpu": "200m", "memory": "256Mi"}
"""What KubeRay lets the first container of a head ask that cleans up Redis after a cluster of its own is gone."""
_FAULT_TOLERANT: Final = "ray.io/ft-enabled"
SIZING_ANNOTATIONS: Final = (*MIN_RESOURCES, names.MIN_PARALLELISM, names.COMPLETIONS_FOLLOW, _FAULT_TOLERANT)
"""Every annotation that the size of a gang is read from."""

_COMPLETIONS: Final = ("spec", "completions")
FOLLOWERS: Final[Mapping[str, tuple[paths.Path, str]]] = {"job": (_COMPLETIONS, names.COMPLETIONS_FOLLOW)}
"""By reader, a number that follows the count of a pod set, and the annotation of the object that says so."""

_TRUE: Final = frozenset({"1", "t", "T", "true", "True", "TRUE"})
_BOOLEANS: Final = _TRUE | {"0", "f", "F", "false", "False", "FALSE"}

Reader = Callable[[Mapping[str, Any], ReadContext, list[PodSetSite]], list[PodSetSite]]
"""Completes or checks the pod sets found by paths. Raises Unreadable."""


def read_job(obj: Mapping[str, Any], _context: ReadContext, sites: list[PodSetSite]) -> list[PodSetSite]:
    """Return the pod set of a Job; its owner may say that the completions follow the number of pods."""
    text = paths.find(obj, ("metadata", "annotations", names.COMPLETIONS_FOLLOW))
    if text is None:
        return sites
    where = f"annotation {names.COMPLETIONS_FOLLOW}"
    if not isinstance(text, str) or text not in _BOOLEANS:
        raise Unreadable(where, text, "is neither true nor false", "write one of them")
    if text not in _TRUE:
        return sites
    completions = read_count(obj, _COMPLETIONS)
    if paths.find(obj, ("spec", "completionMode")) != "Indexed" or completions != sites[0].count_written:
        message = "only the completions of an Indexed Job can follow its parallelism, and be as many"
        raise Unreadable(where, text, message, "write spec.completions as spec.parallelism, or remove the annotation")
    return [replace(site, count_follower=_COMPLETIONS) for site in sites]


def read_ray_cluster(obj: Mapping[str, Any], _context: ReadContext, sites: list[PodSetSite]) -> list[PodSetSite]:
    """Return the pod sets of a RayCluster; an autoscaler would outgrow any reservation."""
    _refuse_autoscaling(obj, ("spec", "enableInTreeAutoscaling"))
    return _with_redis_cleanup(obj, ("spec",), sites)


def read_ray_job(obj: Mapping[str, Any], _context: ReadContext, sites: list[PodSetSite]) -> list[PodSetSite]:
    """Return the pod sets of a RayJob.

    The default submitter (a pod without a template of its own) cannot be labelled: it is left to the fences. In
    SidecarMode it is a container of the head instead, unless the head brings one of its name.
    """
    if paths.find(obj, ("spec", "clusterSelector")):
        message = "uses a cluster that is already running, so there is nothing to hold back"
        raise Unreadable("spec.clusterSelector", "", message, "remove it, or the queue label")
    if paths.find(obj, ("spec", "shutdownAfterJobFinishes")) is not True:
        message = "its cluster would hold quota after the job has ended"
        raise Unreadable("spec.shutdownAfterJobFinishes", "", message, "write true")
    _refuse_autoscaling(obj, ("spec", "rayClusterSpec", "enableInTreeAutoscaling"))
    sites = _with_redis_cleanup(obj, ("spec", "rayClusterSpec"), sites)
    mode = paths.find(obj, ("spec", "submissionMode"))
    if mode in (None, "", "K8sJobMode"):
        return sites
    sites = [site for site in sites if site.name != "submitter"]
    return (
        [_with_submitter(site) if site.name == "head" else site for site in sites] if mode == "SidecarMode" else sites
    )


def _with_submitter(head: PodSetSite) -> PodSetSite:
    containers = head.spec.get("containers")
    for container in containers if isinstance(containers, list) else ():
        if paths.find(container, ("name",)) == _RAY_SUBMITTER["name"]:
            return head
    return replace(head, added=(*head.added, _RAY_SUBMITTER))


def _with_redis_cleanup(obj: Mapping[str, Any], cluster: paths.Path, sites: list[PodSetSite]) -> list[PodSetSite]:
    """Return the pod sets with a head that covers the clean-up of a fault-tolerant cluster, which runs in its place."""
    text = paths.find(obj, ("metadata", "annotations", _FAULT_TOLERANT))
    stated = paths.find(obj, (*cluster, "gcsFaultToleranceOptions")) is not None
    if not stated and str(text).lower() != "true":
        return sites
    return [_raised(site) if site.name == "head" else site for site in sites]


def _raised(head: PodSetSite) -> PodSetSite:
    containers = head.spec.get("containers")
    if not isinstance(containers, list) or not containers or not isinstance(containers[0], dict):
        return head
    first = containers[0]
    resources = paths.find_mapping(first, ("resources",))
    limits, requests = (paths.find_mapping(resources, (side,)) for side in ("limits", "requests"))
    requests = quantity.largest({**limits, **requests}, _REDIS_CLEANUP)
    limits = quantity.largest(limits, {name: least for name, least in _REDIS_CLEANUP.items() if name in limits})
    first = {**first, "resources": {**resources, "requests": requests, "limits": limits}}
    spec = {**head.spec, "containers": [first, *containers[1:]]}
    return replace(head, spec=spec, scheduling=spec)


def _refuse_autoscaling(obj: Mapping[str, Any], path: paths.Path) -> None:
    if paths.find(obj, path) is True:
        raise Unreadable(paths.render(path), "true", "pods would come beyond the reservation", "write false")


def read_workflow(obj: Mapping[str, Any], _context: ReadContext, _sites: list[PodSetSite]) -> list[PodSetSite]:
    """Return one pod set that stands for the whole of an Argo Workflow, at the size its owner declares."""
    own = paths.find_mapping(obj, ("metadata", "annotations"))
    text = next((own[name] for name in MIN_RESOURCES if name in own), None)
    if not isinstance(text, str):
        fix = "write what the workflow needs at once, for example 'cpu: 4'"
        raise Unreadable(f"annotation {MIN_RESOURCES[0]}", "", "does not say what the whole workflow needs", fix)
    spec = {"containers": [{"resources": {"requests": dict(_resource_lines(text))}}]}
    scheduling = paths.find_mapping(obj, ("spec",))
    return [PodSetSite("main", 1, None, spec, {key: scheduling.get(key) for key in ("nodeSelector", "tolerations")})]


def _resource_lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield the resources that an annotation lists as ``name: quantity``, by lines or commas, in braces or not."""
    for part in re.split(r"[,\n]", text.strip().strip("{}")):
        name, colon, amount = part.rpartition(":")
        if colon:
            yield name.strip().strip("\"'"), amount.strip().strip("\"'")
        elif part.strip():
            raise Unreadable(f"annotation {MIN_RESOURCES[0]}", part, "is no resource", "write 'cpu: 4'")


STATED_LABELS: Final[Mapping[str, Callable[[Mapping[str, Any]], list[Mapping[str, Any]]]]] = {
    "train-job": train_job.stated_labels
}
"""By reader: the pod labels that an object brings, where another object is needed to read its pod sets."""

READERS: Final[Mapping[str, Reader]] = {
    "job": read_job,
    "ray-cluster": read_ray_cluster,
    "ray-job": read_ray_job,
    "spark": spark.pod_sets,
    "app-wrapper": app_wrapper.pod_sets,
    "workflow": read_workflow,
    "train-job": train_job.pod_sets,
}
"""Built-in readers by the name that entries use."""
