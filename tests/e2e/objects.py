"""Objects that tests create: they pass the restricted Pod Security level, and say as little as they can."""

from typing import Any, Final

from tests.e2e.controlplane.nodes import RUNTIME_ANNOTATION

GPU: Final = "nvidia.com/gpu"
POD_SECURITY: Final = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER_SECURITY: Final = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def pod_template(
    gpus: int = 1, runtime: str = "", container: str = "main", labels: dict[str, str] | None = None, cpu: str = "100m"
) -> dict[str, Any]:
    """Return a pod template of one container; ``runtime`` such as ``5s``, or for ever."""
    resources: dict[str, Any] = {"requests": {"cpu": cpu}}
    if gpus:
        resources = {"requests": {"cpu": cpu, GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
    main = {"name": container, "image": "registry.example/training:1", "resources": resources}
    return {
        "metadata": {"labels": labels or {}, "annotations": {RUNTIME_ANNOTATION: runtime} if runtime else {}},
        "spec": {
            "restartPolicy": "Never",
            "securityContext": POD_SECURITY,
            "containers": [main | {"securityContext": CONTAINER_SECURITY}],
        },
    }


def pod(name: str, template: dict[str, Any]) -> dict[str, Any]:
    """Return a bare pod from a template."""
    metadata = {"name": name, **template["metadata"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def job(name: str, pods: int, template: dict[str, Any], queue: str = "", **spec: Any) -> dict[str, Any]:
    """Return a Job whose pods all run at once; ``spec`` adds or replaces fields of its spec."""
    body = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(name, queue), "spec": body}


def jobset(name: str, pods: int, template: dict[str, Any], queue: str = "", **spec: Any) -> dict[str, Any]:
    """Return a JobSet with one replicated Job, ``workers``."""
    child = {"spec": {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template}}
    body = {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": child}], **spec}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _metadata(name, queue),
        "spec": body,
    }


def pytorchjob(name: str, workers: int, template: dict[str, Any], queue: str = "", **run_policy: Any) -> dict[str, Any]:
    """Return a PyTorchJob of one master and some workers; the template's container must be called ``pytorch``."""
    return _training_job(
        "PyTorchJob", _metadata(name, queue), _replicas(template, Master=1, Worker=workers), run_policy
    )


def tfjob(name: str, workers: int, template: dict[str, Any], queue: str = "", **run_policy: Any) -> dict[str, Any]:
    """Return a TFJob of one chief and some workers; the template's container must be called ``tensorflow``."""
    return _training_job("TFJob", _metadata(name, queue), _replicas(template, Chief=1, Worker=workers), run_policy)


def mpijob(name: str, workers: int, template: dict[str, Any], queue: str = "", **run_policy: Any) -> dict[str, Any]:
    """Return an MPIJob of one launcher and some workers, as the training operator serves it."""
    return _training_job("MPIJob", _metadata(name, queue), _replicas(template, Launcher=1, Worker=workers), run_policy)


def xgboostjob(name: str, workers: int, template: dict[str, Any], queue: str = "", **run_policy: Any) -> dict[str, Any]:
    """Return an XGBoostJob of one master and some workers; the template's container must be called ``xgboost``."""
    replicas = _replicas(template, Master=1, Worker=workers)
    return _training_job("XGBoostJob", _metadata(name, queue), replicas, run_policy)


def deployment(name: str, replicas: int, template: dict[str, Any]) -> dict[str, Any]:
    """Return a Deployment; its pods restart, as a Deployment's must."""
    labels = {"app": name}
    spec = template["spec"] | {"restartPolicy": "Always"}
    metadata = template["metadata"] | {"labels": template["metadata"].get("labels", {}) | labels}
    body = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {"metadata": metadata, "spec": spec}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": body}


def resource_quota(name: str, **hard: str) -> dict[str, Any]:
    """Return a ResourceQuota; give resources whose names are no Python names by ``**{...}``."""
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": hard}}


def _replicas(template: dict[str, Any], **counts: int) -> dict[str, Any]:
    return {role: {"replicas": count, "restartPolicy": "Never", "template": template} for role, count in counts.items()}


_REPLICAS = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
}


def _training_job(
    kind: str, metadata: dict[str, Any], replicas: dict[str, Any], run_policy: dict[str, Any]
) -> dict[str, Any]:
    spec: dict[str, Any] = {_REPLICAS[kind]: replicas}
    if run_policy:
        spec["runPolicy"] = run_policy
    return {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": metadata, "spec": spec}


def _metadata(name: str, queue: str) -> dict[str, Any]:
    return {"name": name, "labels": {"tutti.dev/queue-name": queue} if queue else {}}
