"""AdmissionReviews, jobs and pods as short builders, and a handler over a view that a test can fill."""

import base64
import copy
from collections.abc import Mapping
from typing import Any

import jsonpatch
import orjson

from webhook.cluster.view import View
from webhook.core.ledger.record import Ledger, Reservation, ReservedPodSet
from webhook.core.model.gang import PodPrice
from webhook.core.model.pods import PodRecord
from webhook.core.notation import names
from webhook.core.quota.fence import Fence
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.patches.marking import marked
from webhook.server.handler import ReviewHandler
from webhook.server.review.settings import ReviewSettings

ACCOUNT = ReviewSettings().account
ALICE = "alice@example.com"
JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"
JOBSET_CONTROLLER = "system:serviceaccount:jobset-system:jobset-controller-manager"
SECONDS = 2.0

GPU = "nvidia.com/gpu"


def containers(**resources: str) -> list[dict[str, Any]]:
    """Return one container that asks ``resources`` (``gpu``, ``cpu``, ``memory``) in its limits."""
    limits = {GPU if name == "gpu" else name: amount for name, amount in resources.items()}
    return [{"name": "main", "image": "train:1", "resources": {"limits": limits}}]


def job(name: str = "train", *, queue: str | None = "research", parallelism: int = 4, gpu: str = "1") -> dict[str, Any]:
    """Return a batch/v1 Job as a user writes it and the API server completes it."""
    labels = {} if queue is None else {"kueue.x-k8s.io/queue-name": queue}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "team-a", "labels": labels},
        "spec": {
            "parallelism": parallelism,
            "completions": parallelism,
            "suspend": False,
            "template": {
                "metadata": {},
                "spec": {"restartPolicy": "Never", "containers": containers(gpu=gpu, cpu="4", memory="16Gi")},
            },
        },
    }


def pod(
    name: str = "train-0",
    *,
    uid: str = "pod-1",
    gang: str | None = None,
    pod_set: str = "main",
    version: str | None = None,
    owner: str | None = "job-1",
    gpu: str = "1",
    **spec: Any,
) -> dict[str, Any]:
    """Return a pod; with ``gang`` one of a Job's, owned by the Job with uid ``owner``."""
    metadata: dict[str, Any] = {"name": name, "namespace": "team-a", "uid": uid, "labels": {}, "annotations": {}}
    if gang is not None:
        metadata["labels"] |= {names.GANG_LABEL: gang, names.POD_SET_LABEL: pod_set}
        if owner is not None:
            metadata["ownerReferences"] = [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": owner, "controller": True}
            ]
    if version is not None:
        metadata["annotations"][names.LEDGER_VERSION] = version
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers(gpu=gpu), **spec},
    }


def review(
    obj: Mapping[str, Any] | None,
    *,
    operation: str = "CREATE",
    old: Mapping[str, Any] | None = None,
    user: str = ALICE,
    resource: str | None = None,
    subresource: str = "",
    namespace: str = "team-a",
    uid: str = "review-1",
    **request: Any,
) -> bytes:
    """Return an AdmissionReview as kube-apiserver sends it."""
    shown = obj if obj is not None else old or {}
    group, _, version = str(shown.get("apiVersion", "")).rpartition("/")
    kind = str(shown.get("kind", ""))
    document = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "kind": {"group": group, "version": version, "kind": kind},
            "resource": {"group": group, "version": version, "resource": resource or f"{kind.lower()}s"},
            "subResource": subresource,
            "name": (shown.get("metadata") or {}).get("name", ""),
            "namespace": namespace,
            "operation": operation,
            "userInfo": {"username": user, "groups": ["system:authenticated", *_groups(user)]},
            "object": obj,
            "oldObject": old,
            "dryRun": False,
            "options": {"kind": "CreateOptions"},
            **request,
        },
    }
    return orjson.dumps(document)


def _groups(user: str) -> list[str]:
    return ["system:nodes"] if user.startswith("system:node:") else []


class Answered:
    """A decoded answer that has passed the API server's own checks (``VerifyAdmissionResponse``)."""

    def __init__(self, status: int, body: bytes, uid: str | None = "review-1") -> None:
        assert status == 200, (status, body)
        document = orjson.loads(body)
        assert document["apiVersion"] == "admission.k8s.io/v1"
        assert document["kind"] == "AdmissionReview"
        self.response = document["response"]
        assert uid is None or self.response["uid"] == uid
        assert isinstance(self.response["allowed"], bool)
        assert ("patch" in self.response) == ("patchType" in self.response)
        assert self.response.get("patchType", "JSONPatch") == "JSONPatch"
        if not self.allowed:
            assert 400 <= self.code < 600
            assert "patch" not in self.response
        for text in (self.message, *self.warnings):
            assert text.isprintable(), text

    @property
    def allowed(self) -> bool:
        return bool(self.response["allowed"])

    @property
    def code(self) -> int:
        return int(self.response.get("status", {}).get("code", 200))

    @property
    def message(self) -> str:
        return str(self.response.get("status", {}).get("message", ""))

    @property
    def warnings(self) -> list[str]:
        return list(self.response.get("warnings", []))

    @property
    def patch(self) -> list[dict[str, Any]]:
        return list(orjson.loads(base64.b64decode(self.response.get("patch", "W10="))))

    def applied(self, obj: Mapping[str, Any]) -> Any:
        """Return ``obj`` with the patch applied by a strict RFC 6902 library."""
        return jsonpatch.apply_patch(obj, self.patch)


async def ask(handler: ReviewHandler, path: str, body: bytes, seconds: float = SECONDS) -> Answered:
    """Send one review and return the verified answer."""
    return Answered(*await handler.review(path, body, seconds), uid=None)


def view(*, fenced: bool = True, trusted: bool = True) -> View:
    """Return a synced view with the namespace team-a."""
    seen = View()
    seen.namespaces["team-a"] = {names.FENCED_NAMESPACE: "true"} if fenced else {}
    seen.ledger_trusted = trusted
    return seen


def price(gpu: int = 1, **units: int) -> PodPrice:
    """Return the price of a pod that asks whole units."""
    asked = {GPU: gpu * 1000, **{name: amount * 1000 for name, amount in units.items()}}
    return PodPrice(requests=asked, limits=asked, best_effort=not units)


def reservation(uid: str = "job-1", *, count: int = 4, gpu: int = 1, name: str = "train", **more: Any) -> Reservation:
    """Return the reservation of a Job with one pod set."""
    pod_sets = (ReservedPodSet("main", count, price(gpu), {GPU: "default"}),)
    fields: dict[str, Any] = {"kind": "Job.batch", "namespace": "team-a", "queue": "research", "epoch": 1} | more
    return Reservation(uid=uid, name=name, pod_sets=pod_sets, since_seconds=0.0, **fields)


def with_ledger(seen: View, *reservations: Reservation, epoch: int = 1, seq: int = 1) -> View:
    """Give the view a ledger of these reservations."""
    seen.set_ledger(Ledger(epoch, seq, {entry.uid: entry for entry in reservations}))
    return seen


def with_quota(seen: View, **hard: int) -> View:
    """Give team-a a ResourceQuota of whole units: ``pods=4``, ``gpu=8``."""
    keys = {"requests.nvidia.com/gpu" if key == "gpu" else key: amount * 1000 for key, amount in hard.items()}
    seen.fences.put_fence(Fence("team-a", "quota", keys))
    return seen


def record(uid: str, *, gang: str | None = None, gpu: int = 1, phase: str = "Running") -> PodRecord:
    """Return a pod as the view has it."""
    return PodRecord(uid, "team-a", uid, 1, price(gpu), gang=gang, pod_set="main" if gang else "", phase=phase)


def stored(name: str = "train", *, suspend: bool = True, uid: str = "job-1", **more: Any) -> dict[str, Any]:
    """Return a Job as the mutating phase leaves it."""
    obj = copy.deepcopy(marked(KINDS["Job.batch"], job(name, **more)))
    obj["metadata"]["uid"] = uid
    obj["spec"]["suspend"] = suspend
    return obj


async def create(handler: ReviewHandler, obj: dict[str, Any], user: str = ALICE) -> Answered:
    """Return the answer to the creation of a job."""
    return await ask(handler, "/validate/jobs", review(obj, user=user))
