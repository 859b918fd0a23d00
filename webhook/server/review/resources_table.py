"""Every resource and subresource that can bring pods about, and which endpoint answers for it: one table.

A bypass through a subresource nobody thought of is the classic hole in quota webhooks, so nothing falls through: a
review for a resource that is not in the table is refused, and a test walks a live API server's discovery document and
fails on a served pod-bearing resource that the table does not classify.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple


class Handling(StrEnum):
    """What we do about a resource."""

    JOB = "job"
    """A job kind: /mutate/jobs and /validate/jobs."""
    SCALE = "scale"
    """The scale subresource of a job kind: /validate/jobs resolves the parent."""
    POD = "pod"
    """/validate/pods prices it."""
    POLICY = "policy"
    """/validate/policy compiles it."""
    WARN = "warn"
    """Makes pods but cannot be gated: an opt-in label on it is answered with a warning; its pods are loose pods."""
    NONE = "none"
    """Cannot add pods or raise what they ask; ``why`` says so."""


class Row(NamedTuple):
    """One resource or subresource of one API group."""

    group: str
    resource: str
    """``pods`` or ``pods/resize``."""
    handling: Handling
    why: str = ""


_STATUS: Final = "status is written by its controller; pods are made from spec"
_TEMPLATE: Final = "a stored template makes no pods by itself"
_QUORUM: Final = "how many pods a gang needs; makes none"
_PODS_SEEN: Final = "its pods are seen as they are created"

BUILT_IN: Final = (
    Row("", "pods", Handling.POD),
    Row("", "pods/ephemeralcontainers", Handling.POD),
    Row("", "pods/resize", Handling.POD),
    Row(
        "", "pods/binding", Handling.NONE, "places a pod that was priced; the API server refuses it while gates remain"
    ),
    Row("", "bindings", Handling.NONE, "the older form of pods/binding"),
    Row("", "pods/status", Handling.NONE, _STATUS),
    Row("", "pods/eviction", Handling.NONE, "only removes a pod"),
    Row("", "pods/attach", Handling.NONE, "a stream to a running pod"),
    Row("", "pods/exec", Handling.NONE, "a stream to a running pod"),
    Row("", "pods/portforward", Handling.NONE, "a stream to a running pod"),
    Row("", "pods/proxy", Handling.NONE, "a request to a running pod"),
    Row("", "pods/log", Handling.NONE, "reads"),
    Row("", "podtemplates", Handling.NONE, _TEMPLATE),
    Row("", "replicationcontrollers", Handling.WARN),
    Row("", "replicationcontrollers/scale", Handling.NONE, _PODS_SEEN),
    Row("", "replicationcontrollers/status", Handling.NONE, _STATUS),
    Row("apps", "deployments", Handling.WARN),
    Row("apps", "deployments/scale", Handling.NONE, _PODS_SEEN),
    Row("apps", "deployments/status", Handling.NONE, _STATUS),
    Row("apps", "replicasets", Handling.WARN),
    Row("apps", "replicasets/scale", Handling.NONE, _PODS_SEEN),
    Row("apps", "replicasets/status", Handling.NONE, _STATUS),
    Row("apps", "statefulsets", Handling.WARN),
    Row("apps", "statefulsets/scale", Handling.NONE, _PODS_SEEN),
    Row("apps", "statefulsets/status", Handling.NONE, _STATUS),
    Row("apps", "daemonsets", Handling.WARN),
    Row("apps", "daemonsets/status", Handling.NONE, _STATUS),
    Row("apps", "controllerrevisions", Handling.NONE, "history of templates; makes no pods"),
    Row("batch", "cronjobs", Handling.WARN, "the Jobs it makes are gated by their own labels"),
    Row("batch", "cronjobs/status", Handling.NONE, _STATUS),
    Row("leaderworkerset.x-k8s.io", "leaderworkersets", Handling.WARN),
    Row("leaderworkerset.x-k8s.io", "leaderworkersets/scale", Handling.NONE, _PODS_SEEN),
    Row("leaderworkerset.x-k8s.io", "leaderworkersets/status", Handling.NONE, _STATUS),
    Row("ray.io", "rayservices", Handling.WARN),
    Row("ray.io", "rayservices/status", Handling.NONE, _STATUS),
    Row("ray.io", "raycronjobs", Handling.WARN, "the RayJobs it makes are gated by their own labels"),
    Row("ray.io", "raycronjobs/status", Handling.NONE, _STATUS),
    Row("sparkoperator.k8s.io", "scheduledsparkapplications", Handling.WARN, "its applications are gated themselves"),
    Row("sparkoperator.k8s.io", "scheduledsparkapplications/status", Handling.NONE, _STATUS),
    Row("sparkoperator.k8s.io", "sparkconnects", Handling.WARN),
    Row("sparkoperator.k8s.io", "sparkconnects/status", Handling.NONE, _STATUS),
    Row("argoproj.io", "cronworkflows", Handling.WARN, "the Workflows it makes are gated by their own labels"),
    Row("argoproj.io", "workflowtemplates", Handling.NONE, _TEMPLATE),
    Row("argoproj.io", "clusterworkflowtemplates", Handling.NONE, _TEMPLATE),
    Row("argoproj.io", "workflowtasksets", Handling.NONE, "hands steps to an agent pod that exists"),
    Row("argoproj.io", "workflowtasksets/status", Handling.NONE, _STATUS),
    Row("argoproj.io", "workflowtaskresults", Handling.NONE, "what a step's pod reports"),
    Row("argoproj.io", "workflowartifactgctasks", Handling.NONE, "hands artifacts to a clean-up pod that exists"),
    Row("argoproj.io", "workflowartifactgctasks/status", Handling.NONE, _STATUS),
    Row("argoproj.io", "workfloweventbindings", Handling.NONE, "its Workflows are gated by their own labels"),
    Row("trainer.kubeflow.org", "trainingruntimes", Handling.NONE, _TEMPLATE),
    Row("trainer.kubeflow.org", "clustertrainingruntimes", Handling.NONE, _TEMPLATE),
    Row("kubeflow.org", "notebooks", Handling.WARN),
    Row("serving.knative.dev", "services", Handling.WARN),
    Row("kueue.x-k8s.io", "clusterqueues", Handling.POLICY),
    Row("kueue.x-k8s.io", "localqueues", Handling.POLICY),
    Row("kueue.x-k8s.io", "cohorts", Handling.POLICY),
    Row("kueue.x-k8s.io", "resourceflavors", Handling.POLICY),
    Row("kueue.x-k8s.io", "topologies", Handling.POLICY),
    Row("kueue.x-k8s.io", "workloadpriorityclasses", Handling.POLICY),
    Row("scheduling.sigs.k8s.io", "elasticquotatrees", Handling.POLICY),
    Row("scheduling.volcano.sh", "queues", Handling.POLICY),
    Row("topology.volcano.sh", "hypernodes", Handling.POLICY),
    Row("scheduling.volcano.sh", "podgroups", Handling.NONE, _QUORUM),
    Row("scheduling.volcano.sh", "podgroups/status", Handling.NONE, _STATUS),
    Row("scheduling.sigs.k8s.io", "podgroups", Handling.NONE, _QUORUM),
    Row("scheduling.sigs.k8s.io", "podgroups/status", Handling.NONE, _STATUS),
    Row("", "resourcequotas", Handling.POLICY),
)


class ResourcesTable:
    """The built-in rows and those of the registered job kinds."""

    def __init__(self, job_resources: Iterable[tuple[str, str]] = ()) -> None:
        self._rows = {(row.group, row.resource): row for row in BUILT_IN}
        for row in BUILT_IN:
            if row.handling is Handling.POLICY:
                of_status = Row(row.group, f"{row.resource}/status", Handling.NONE, "counts that are shown")
                self._rows[(row.group, of_status.resource)] = of_status
        for group, resource in job_resources:
            for row in (
                Row(group, resource, Handling.JOB),
                Row(group, f"{resource}/scale", Handling.SCALE),
                Row(group, f"{resource}/status", Handling.NONE, _STATUS),
                Row(group, f"{resource}/finalizers", Handling.NONE, "a permission, never stored"),
            ):
                if self._rows.get((group, row.resource), row).handling is not Handling.POD:
                    self._rows[(group, row.resource)] = row

    def handling(self, group: str, resource: str, subresource: str = "") -> Handling | None:
        """Return what is done about a resource, None when nobody classified it."""
        row = self._rows.get((group, f"{resource}/{subresource}" if subresource else resource))
        return None if row is None else row.handling

    def rows(self) -> list[Row]:
        """Return all rows, by group and resource."""
        return [self._rows[key] for key in sorted(self._rows)]
