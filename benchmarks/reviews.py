"""Reviews as kube-apiserver sends them for a training Job of kubectl's, and a view that admits its pods."""

import base64
import copy
from typing import Any

import jsonpatch
import orjson

from webhook.core import names
from webhook.core.gang import PodPrice
from webhook.core.ledger import Ledger, Reservation, ReservedPodSet
from webhook.server.gate import Gate
from webhook.view import View

GPU = "nvidia.com/gpu"
CONTROLLER = "system:serviceaccount:kube-system:job-controller"
RESOURCES = {"cpu": "4", "memory": "16Gi", GPU: "1"}
POD_SPEC: dict[str, Any] = {
    "containers": [
        {
            "name": "main",
            "image": "registry.example.com/research/train:1.4",
            "command": ["python", "-m", "torch.distributed.run", "--nproc-per-node=1", "/workspace/train.py"],
            "args": ["--config=/workspace/configs/llama-7b.yaml", "--data=/data/tokens", "--epochs=3", "--lr=0.0003"],
            "env": [{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "OMP_NUM_THREADS", "value": "4"}],
            "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}],
            "resources": {"limits": RESOURCES, "requests": RESOURCES},
            "imagePullPolicy": "IfNotPresent",
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }
    ],
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "tokens"}}],
    "restartPolicy": "Never",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
}
_CONTAINER_FIELDS = {
    f"f:{field}": {}
    for field in ("command", "env", "image", "imagePullPolicy", "name", "resources", "terminationMessagePath")
}
FIELDS: dict[str, Any] = {
    "f:metadata": {"f:labels": {".": {}, "f:kueue.x-k8s.io/queue-name": {}}},
    "f:spec": {
        **{f"f:{field}": {} for field in ("backoffLimit", "completionMode", "completions", "parallelism", "suspend")},
        "f:template": {
            "f:spec": {
                "f:containers": {'k:{"name":"main"}': {".": {}, **_CONTAINER_FIELDS}},
                **{f"f:{field}": {} for field in ("dnsPolicy", "restartPolicy", "schedulerName", "securityContext")},
            }
        },
    },
}


def job() -> dict[str, Any]:
    """Return a Job with the API server's defaults and managed fields."""
    manager = {"manager": "kubectl-create", "operation": "Update", "apiVersion": "batch/v1", "fieldsType": "FieldsV1"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "llama-pretrain-7",
            "namespace": "team-a",
            "generation": 1,
            "creationTimestamp": "2026-08-01T08:00:00Z",
            "labels": {"kueue.x-k8s.io/queue-name": "research"},
            "managedFields": [manager | {"time": "2026-08-01T08:00:00Z", "fieldsV1": FIELDS}],
        },
        "spec": {
            "parallelism": 4,
            "completions": 4,
            "backoffLimit": 6,
            "completionMode": "Indexed",
            "manualSelector": False,
            "podReplacementPolicy": "TerminatingOrFailed",
            "suspend": False,
            "template": {"metadata": {"creationTimestamp": None}, "spec": POD_SPEC},
        },
    }


def pod() -> dict[str, Any]:
    """Return one pod of an admitted gang."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "llama-pretrain-7", "uid": "job-1", "controller": True}
    metadata = {
        "name": "llama-pretrain-7-0-x7k2p",
        "namespace": "team-a",
        "uid": "pod-1",
        "labels": {names.GANG_LABEL: "job-1", names.POD_SET_LABEL: "main"},
        "annotations": {names.LEDGER_VERSION: "1.1"},
        "ownerReferences": [owner],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": POD_SPEC}


def review(obj: dict[str, Any], user: str) -> bytes:
    """Return the CREATE review of ``obj``."""
    group, _, version = obj["apiVersion"].rpartition("/")
    kind = {"group": group, "version": version, "kind": obj["kind"]}
    resource = {"group": group, "version": version, "resource": f"{obj['kind'].lower()}s"}
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": obj["metadata"]["name"],
        "namespace": obj["metadata"]["namespace"],
        "operation": "CREATE",
        "userInfo": {"username": user, "groups": ["system:authenticated"]},
        "object": obj,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "kubectl-create"},
    }
    return orjson.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})


def admitted_view() -> View:
    """Return a view in which team-a is fenced and the pod's gang has more room than any benchmark asks."""
    amounts = {"cpu": 4_000, "memory": 16 * 2**30 * 1000, GPU: 1_000}
    pod_set = ReservedPodSet(
        "main", 10**9, PodPrice(requests=amounts, limits=amounts), dict.fromkeys(amounts, "default")
    )
    entry = Reservation("job-1", "Job.batch", "team-a", "llama-pretrain-7", "research", (pod_set,), 1, 0.0)
    view = View()
    view.namespaces["team-a"] = {names.FENCED_NAMESPACE: "true"}
    view.set_ledger(Ledger(1, 1, {"job-1": entry}))
    return view


async def bodies() -> dict[str, bytes]:
    """Return one review for each endpoint; the validated Job is the mutated one."""
    created = review(job(), "alice@example.com")
    _, answer = await Gate(View()).review("/mutate/jobs", created, 1.0)
    patch = orjson.loads(base64.b64decode(orjson.loads(answer)["response"]["patch"]))
    stored = jsonpatch.apply_patch(copy.deepcopy(job()), patch)
    stored["metadata"]["uid"] = "job-2"
    return {
        "/mutate/jobs": created,
        "/validate/jobs": review(stored, "alice@example.com"),
        "/validate/pods": review(pod(), CONTROLLER),
    }
