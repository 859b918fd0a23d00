"""How jobs are written of each kind that the simulated cluster runs: where they are served, and what stands where."""

from typing import Any, Final

from webhook.laboratory.simulated.controllers.training import FRAMEWORKS

TRAINING: Final = {framework.kind: framework for framework in FRAMEWORKS}
KINDS: Final = ("Job", "JobSet", *TRAINING)
VERSION_KIND: Final = {
    "Job": ("batch/v1", "Job"),
    "JobSet": ("jobset.x-k8s.io/v1alpha2", "JobSet"),
} | {kind: ("kubeflow.org/v1", kind) for kind in TRAINING}
STORAGES: Final = {"Job": ("batch", "jobs"), "JobSet": ("jobset.x-k8s.io", "jobsets")} | {
    kind: ("kubeflow.org", framework.plural) for kind, framework in TRAINING.items()
}
"""Kind to group and plural name."""
PATHS: Final = {
    kind: f"/apis/{VERSION_KIND[kind][0]}/namespaces/{{}}/{plural}" for kind, (_, plural) in STORAGES.items()
}


def _suspend(value: bool) -> dict[str, Any]:
    return {"spec": {"suspend": value}}


def _suspend_training(value: bool) -> dict[str, Any]:
    return {"spec": {"runPolicy": {"suspend": value}}}


SUSPEND: Final = {kind: _suspend_training if kind in TRAINING else _suspend for kind in KINDS}


def is_suspended(kind: str, job: dict[str, Any]) -> bool:
    """Return whether a job of a kind is stored suspended."""
    spec = job["spec"].get("runPolicy") or {} if kind in TRAINING else job["spec"]
    return bool(spec.get("suspend"))


def managed(kind: str, by: str | None) -> dict[str, Any]:
    """Return the part of a spec that says whose controller runs a job of ``kind``."""
    return {"runPolicy": {"managedBy": by}} if kind in TRAINING else {"managedBy": by}


def templates(kind: str, template: dict[str, Any]) -> dict[str, Any]:
    """Return the change that gives a job of ``kind`` another pod template."""
    if kind in TRAINING:
        framework = TRAINING[kind]
        return {"spec": {framework.replicas: {(*framework.leaders, "Worker")[0]: {"template": template}}}}
    if kind == "Job":
        return {"spec": {"template": template}}
    job = {"parallelism": 2, "completions": 2, "template": template}
    return {"spec": {"replicatedJobs": [{"name": "worker", "replicas": 1, "template": {"spec": job}}]}}


def resized(kind: str, name: str, pods: int, template: dict[str, Any]) -> dict[str, Any]:
    """Return the change that gives a job of ``kind`` so many pods, or workers."""
    if kind in TRAINING:
        return {"spec": {TRAINING[kind].replicas: {"Worker": {"replicas": pods, "template": template}}}}
    if kind == "JobSet":
        return {"spec": {"replicatedJobs": document_of(kind, name, pods, template)["spec"]["replicatedJobs"]}}
    return {"spec": {"parallelism": pods}}


def document_of(kind: str, name: str, pods: int, template: dict[str, Any]) -> dict[str, Any]:
    """Return a job of ``kind`` with so many pods."""
    api_version, _ = VERSION_KIND[kind]
    document: dict[str, Any] = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}
    job = {"parallelism": pods, "completions": pods, "template": template}
    if kind == "Job":
        document["spec"] = job
    elif kind == "JobSet":
        document["spec"] = {"replicatedJobs": [{"name": "worker", "replicas": 1, "template": {"spec": job}}]}
    else:
        framework = TRAINING[kind]
        replicas = {leader: {"replicas": 1, "template": template} for leader in framework.leaders[:1]}
        if pods > len(replicas):
            replicas["Worker"] = {"replicas": pods - len(replicas), "template": template}
        document["spec"] = {framework.replicas: replicas}
    return document
