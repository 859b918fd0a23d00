"""Reviews as kube-apiserver sends them for a training Job of kubectl's, and a handler that admits its pods.

In namespace team-a the Job's queue is not known yet, which is warned of. In team-b it is, and so is a ResourceQuota: as
in production the handler asks the engine and the fences whether such a gang can ever start.
"""

import base64
import copy
from typing import Any

import jsonpatch
import orjson

from webhook.cluster.view import View
from webhook.core.ledger.record import Ledger, Reservation, ReservedPodSet
from webhook.core.model.gang import PodPrice
from webhook.core.notation import names
from webhook.core.quota.fence import Fence
from webhook.core.scheduler.engine import Engine
from webhook.dialects.compiler import compile_policy
from webhook.server.handler import ReviewHandler

GPU = "nvidia.com/gpu"
USER = "alice@example.com"
CONTROLLER = "system:serviceaccount:kube-system:job-controller"
QUEUE = "research"
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


def job(namespace: str = "team-a") -> dict[str, Any]:
    """Return a Job with the API server's defaults and managed fields."""
    manager = {"manager": "kubectl-create", "operation": "Update", "apiVersion": "batch/v1", "fieldsType": "FieldsV1"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "llama-pretrain-7",
            "namespace": namespace,
            "generation": 1,
            "creationTimestamp": "2026-08-01T08:00:00Z",
            "labels": {"kueue.x-k8s.io/queue-name": QUEUE},
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


def review(obj: dict[str, Any], user: str, old: dict[str, Any] | None = None) -> bytes:
    """Return the CREATE review of ``obj``, or the UPDATE review where it was ``old`` before."""
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
        "operation": "CREATE" if old is None else "UPDATE",
        "userInfo": {"username": user, "groups": ["system:authenticated"]},
        "object": obj,
        "oldObject": old,
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
    entry = Reservation("job-1", "Job.batch", "team-a", "llama-pretrain-7", QUEUE, (pod_set,), 1, 0.0)
    view = View()
    view.namespaces["team-a"] = {names.FENCED_NAMESPACE: "true"}
    view.set_ledger(Ledger(1, 1, {"job-1": entry}))
    return view


def policy() -> list[dict[str, Any]]:
    """Return the policy objects by which the Job of team-b can start."""
    version = "kueue.x-k8s.io/v1beta2"
    quotas = [{"name": name, "nominalQuota": "100Ti"} for name in RESOURCES]
    groups = [{"coveredResources": [*RESOURCES], "flavors": [{"name": "default", "resources": quotas}]}]
    spec = {"cohortName": "all", "namespaceSelector": {}, "resourceGroups": groups}
    return [
        {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": "default"}},
        {"apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": QUEUE}, "spec": spec},
        {
            "apiVersion": version,
            "kind": "LocalQueue",
            "metadata": {"name": QUEUE, "namespace": "team-b"},
            "spec": {"clusterQueue": QUEUE},
        },
    ]


def handler() -> ReviewHandler:
    """Return a handler that is asked as in production."""
    view, engine = admitted_view(), Engine()
    view.namespaces["team-b"] = {}
    view.policy = compile_policy(policy())
    view.fences.put_fence(Fence("team-b", "quota", {f"requests.{GPU}": 10**9, "pods": 10**9}))
    engine.set_policy(view.policy, view.namespaces, 0.0)
    return ReviewHandler(view, potential=engine.potential)


async def stored(obj: dict[str, Any]) -> dict[str, Any]:
    """Return a Job as the mutating phase leaves it and the API server stores it."""
    _, answer = await ReviewHandler(View()).review("/mutate/jobs", review(obj, USER), 1.0)
    patch = orjson.loads(base64.b64decode(orjson.loads(answer)["response"]["patch"]))
    patched: dict[str, Any] = jsonpatch.apply_patch(copy.deepcopy(obj), patch)
    patched["metadata"]["uid"] = "job-2"
    return patched


async def bodies() -> dict[tuple[str, str], bytes]:
    """Return what is asked, by path and by what it is; a validated Job is the mutated one.

    Controllers and collectors change finalizers and annotations of what is stored, and leave the spec as it is.
    """
    unknown, known = await stored(job()), await stored(job("team-b"))
    noted = known | {"metadata": known["metadata"] | {"annotations": {"example.com/seen": "1"}}}
    return {
        ("/mutate/jobs", "created"): review(job(), USER),
        ("/validate/jobs", "created"): review(unknown, USER),
        ("/validate/jobs", "created, queue known"): review(known, USER),
        ("/validate/jobs", "updated, same spec"): review(noted, CONTROLLER, known),
        ("/validate/pods", "created"): review(pod(), CONTROLLER),
    }
