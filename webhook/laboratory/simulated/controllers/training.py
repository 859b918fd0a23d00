"""The training operator: pods of PyTorchJob, TFJob and their kin, straight from replica specs.

Follows training-operator 1.9: one pod per replica index, named for it; suspending deletes the pods, resuming starts
them again; the master (or chief, or worker 0) decides success; ``cleanPodPolicy`` defaults to None, so workers outlive
a job that has Succeeded; a PyTorchJob's workers get an init container that waits for its master. Not modelled:
services, elastic policies, gang scheduling plug-ins.
"""

from dataclasses import dataclass
from random import Random
from typing import Final

from webhook.laboratory.simulated.controllers import pods
from webhook.laboratory.simulated.controllers.base import Controller, Pace
from webhook.laboratory.simulated.objects.conditions import is_true
from webhook.laboratory.simulated.objects.store import Event, Stored
from webhook.laboratory.simulated.requests.identity import TRAINING_OPERATOR
from webhook.laboratory.simulated.requests.refusals import Json, Refused
from webhook.laboratory.simulated.server import SimulatedServer

_GROUP: Final = "kubeflow.org"
_PREFIX: Final = "training.kubeflow.org"
_MANAGER: Final = "kubeflow.org/training-operator"
_WAIT_FOR_MASTER: Final = {
    "name": "init-pytorch",
    "image": "alpine:3.10",
    "resources": {"limits": {"cpu": "100m", "memory": "20Mi"}, "requests": {"cpu": "50m", "memory": "10Mi"}},
}


@dataclass(frozen=True, slots=True)
class Framework:
    """One kind of training job."""

    kind: str
    plural: str
    replicas: str
    """Key of its replica specs."""
    order: tuple[str, ...]
    leaders: tuple[str, ...]
    """Replica types of which the first one present decides success; without any the workers do."""

    @property
    def operator_name(self) -> str:
        """Value of the operator-name label."""
        return f"{self.kind.lower()}-controller"


FRAMEWORKS: Final = (
    Framework("PyTorchJob", "pytorchjobs", "pytorchReplicaSpecs", ("Master", "Worker"), ("Master",)),
    Framework(
        "TFJob", "tfjobs", "tfReplicaSpecs", ("Chief", "Master", "PS", "Worker", "Evaluator"), ("Chief", "Master")
    ),
    Framework("XGBoostJob", "xgboostjobs", "xgbReplicaSpecs", ("Master", "Worker"), ("Master",)),
    Framework("PaddleJob", "paddlejobs", "paddleReplicaSpecs", ("Master", "Worker"), ("Master",)),
    Framework("JAXJob", "jaxjobs", "jaxReplicaSpecs", ("Worker",), ()),
    Framework("MPIJob", "mpijobs", "mpiReplicaSpecs", ("Launcher", "Worker"), ("Launcher",)),
)

Key = tuple[str, str, str, str]
"""(plural, namespace, name, uid)."""


class TrainingOperator(Controller):
    """Runs the kinds of ``kubeflow.org``."""

    def __init__(self, server: SimulatedServer, rng: Random, pace: Pace) -> None:
        super().__init__(server, TRAINING_OPERATOR, rng, pace)
        self._pods = server.registry.of("pods")
        self._frameworks = {framework.plural: framework for framework in FRAMEWORKS}
        self._plurals = {framework.kind: framework.plural for framework in FRAMEWORKS}
        for framework in FRAMEWORKS:
            self.store.subscribe(self._job_changed, (_GROUP, framework.plural))
        self.store.subscribe(self._pod_changed, pods.PODS)

    def _job_changed(self, event: Event) -> None:
        self.enqueue((event.storage[1], *event.current.key, event.current.uid))

    def _pod_changed(self, event: Event) -> None:
        owner = pods.controller_of(event.current)
        if owner is not None and owner["apiVersion"].startswith(f"{_GROUP}/"):
            self.enqueue((self._plurals[owner["kind"]], event.current.key[0], owner["name"], owner["uid"]))

    async def reconcile(self, key: Key) -> None:
        """Look at one training job."""
        plural, namespace, name, uid = key
        stored = self.store.get((_GROUP, plural), namespace, name)
        if stored is None or stored.uid != uid or "deletionTimestamp" in stored.object["metadata"]:
            return
        job, framework = stored.object, self._frameworks[plural]
        if _run_policy(job).get("managedBy") not in (None, _MANAGER):
            return
        before = job.get("status") or {}
        status = self._say(before, framework, "Created", "created", job)
        error: Refused | None = None
        try:
            status = await self._advance(framework, job, status)
        except Refused as refused:
            error = refused
        if status != before:
            resource = self.server.registry.of(plural, _GROUP)
            await self.server.update(
                resource, namespace, name, lambda now: {**now.object, "status": status}, self.call(), "status"
            )
        if error is not None:
            raise error

    async def _advance(self, framework: Framework, job: Json, status: Json) -> Json:
        owned = self.store.owned(pods.PODS, job["metadata"]["uid"])
        if is_true(status, "Succeeded") or is_true(status, "Failed"):
            await self._clean(job, owned)
            return _settled(status)
        if _run_policy(job).get("suspend"):
            return await self._suspend(framework, job, status, owned)
        if is_true(status, "Suspended"):
            status = self._say(status, framework, "Suspended", "resumed", job, holds=False, reason="Resumed")
            status["startTime"] = self.server.timestamp()
        status.setdefault("startTime", self.server.timestamp())
        counts: dict[str, Json] = {}
        for kind, spec in self._replica_specs(framework, job):
            counts[kind] = await self._reconcile_replicas(framework, job, kind, spec, owned)
        status["replicaStatuses"] = counts
        return self._judge(framework, job, status, counts)

    async def _suspend(self, framework: Framework, job: Json, status: Json, owned: list[Stored]) -> Json:
        for pod in owned:
            await self._delete(pod)
        replicas = status.get("replicaStatuses") or {}
        if replicas:
            idle = {kind: {k: v for k, v in counts.items() if k != "active"} for kind, counts in replicas.items()}
            status = {**status, "replicaStatuses": idle}
        if is_true(status, "Running"):
            status = self._say(status, framework, "Running", "suspended", job, holds=False, reason="Suspended")
        if not is_true(status, "Suspended"):
            status = self._say(status, framework, "Suspended", "suspended", job)
        return status

    async def _reconcile_replicas(
        self, framework: Framework, job: Json, kind: str, spec: Json, owned: list[Stored]
    ) -> Json:
        """Create what is missing of one replica type and return its counts."""
        wanted = _count(spec)
        mine = [pod for pod in owned if pod.labels.get(f"{_PREFIX}/replica-type") == kind.lower()]
        by_index = {int(pod.labels[f"{_PREFIX}/replica-index"]): pod for pod in mine}
        counts = {"active": 0, "succeeded": 0, "failed": 0}
        for index in range(wanted):
            pod = by_index.pop(index, None)
            if pod is None:
                await self._create(framework, job, kind, spec, index)
                continue
            if pods.phase(pod) == "Failed" and spec.get("restartPolicy", "OnFailure") in ("OnFailure", "Always"):
                await self._delete(pod)
            counted = {"Running": "active", "Succeeded": "succeeded", "Failed": "failed"}.get(pods.phase(pod))
            if counted is not None:
                counts[counted] += 1
        for pod in by_index.values():
            await self._delete(pod)
        selector = ",".join(f"{key}={value}" for key, value in sorted(self._labels(framework, job, kind).items()))
        return {**{key: value for key, value in counts.items() if value}, "selector": selector}

    def _judge(self, framework: Framework, job: Json, status: Json, counts: dict[str, Json]) -> Json:
        specs = dict(self._replica_specs(framework, job))
        leader = next((kind for kind in framework.leaders if kind in specs), "Worker")
        if leader in counts:
            if counts[leader].get("succeeded", 0) >= _count(specs[leader]):
                status.setdefault("completionTime", self.server.timestamp())
                return self._say(status, framework, "Succeeded", "successfully completed", job)
            if counts[leader].get("active", 0) > 0:
                status = self._say(status, framework, "Running", "running", job)
        for kind, entry in counts.items():
            alive = entry.get("succeeded", 0) + entry.get("active", 0)
            if not entry.get("failed") or _count(specs[kind]) <= alive:
                continue
            if specs[kind].get("restartPolicy", "OnFailure") != "Never":
                return self._say(status, framework, "Restarting", "restarting", job)
            status.setdefault("completionTime", self.server.timestamp())
            return self._say(status, framework, "Failed", "failed", job)
        return status

    # -- pods -------------------------------------------------------------------------------------------------------

    def _labels(self, framework: Framework, job: Json, kind: str) -> dict[str, str]:
        return {
            f"{_PREFIX}/job-name": job["metadata"]["name"],
            f"{_PREFIX}/operator-name": framework.operator_name,
            f"{_PREFIX}/replica-type": kind.lower(),
        }

    async def _create(self, framework: Framework, job: Json, kind: str, spec: Json, index: int) -> None:
        labels = {**self._labels(framework, job, kind), f"{_PREFIX}/replica-index": str(index)}
        if kind in framework.leaders:
            labels[f"{_PREFIX}/job-role"] = "master"
        name = f"{job['metadata']['name']}-{kind.lower()}-{index}"
        pod = pods.from_template(spec["template"], job, {"name": name, "labels": labels})
        if framework.kind == "PyTorchJob" and kind == "Worker" and "Master" in job["spec"][framework.replicas]:
            pod["spec"]["initContainers"] = [*(pod["spec"].get("initContainers") or ()), _WAIT_FOR_MASTER]
        policy = spec.get("restartPolicy", "OnFailure")
        pod["spec"]["restartPolicy"] = "Never" if policy == "ExitCode" else policy
        try:
            await self.server.create(self._pods, job["metadata"]["namespace"], pod, self.call())
        except Refused as refused:
            if refused.reason != "AlreadyExists":
                raise

    async def _delete(self, pod: Stored) -> None:
        if pods.is_terminating(pod):
            return
        try:
            await self.server.delete(self._pods, *pod.key, {"preconditions": {"uid": pod.uid}}, self.call())
        except Refused as refused:
            if refused.code != 404:
                raise

    async def _clean(self, job: Json, owned: list[Stored]) -> None:
        policy = _run_policy(job).get("cleanPodPolicy", "None")
        for pod in owned:
            if policy == "All" or (policy == "Running" and not pods.has_ended(pod)):
                await self._delete(pod)

    # -- reading ----------------------------------------------------------------------------------------------------

    def _replica_specs(self, framework: Framework, job: Json) -> list[tuple[str, Json]]:
        specs = job["spec"].get(framework.replicas) or {}
        return [(kind, specs[kind]) for kind in framework.order if kind in specs]

    def _say(
        self,
        status: Json,
        framework: Framework,
        kind: str,
        verb: str,
        job: Json,
        *,
        holds: bool = True,
        reason: str = "",
    ) -> Json:
        """Return the status with one condition set, as the operator's ``setCondition`` does it."""
        conditions = list(status.get("conditions") or ())
        value, reason = "True" if holds else "False", f"{framework.kind}{reason or kind}"
        known = next((c for c in conditions if c["type"] == kind), None)
        if known is not None and (known["status"], known["reason"]) == (value, reason):
            return {**status}
        now = self.server.timestamp()
        since = known["lastTransitionTime"] if known is not None and known["status"] == value else now
        dropped = {"Running": "Restarting", "Restarting": "Running"}.get(kind)
        kept = [c for c in conditions if c["type"] not in (kind, dropped)]
        if kind in ("Succeeded", "Failed"):
            kept = [{**c, "status": "False"} if c["type"] == "Running" else c for c in kept]
        message = f"{framework.kind} {job['metadata']['name']} is {verb}."
        fresh = {"type": kind, "status": value, "reason": reason, "message": message}
        return {**status, "conditions": [*kept, {**fresh, "lastUpdateTime": now, "lastTransitionTime": since}]}


def _run_policy(job: Json) -> Json:
    policy: Json = job["spec"].get("runPolicy") or {}
    return policy


def _count(spec: Json) -> int:
    replicas = spec.get("replicas")
    return 1 if replicas is None else int(replicas)


def _settled(status: Json) -> Json:
    """Count what was still active when the job succeeded as succeeded, as the operator does."""
    if not is_true(status, "Succeeded"):
        return status
    replicas = {}
    for kind, counts in (status.get("replicaStatuses") or {}).items():
        total = counts.get("succeeded", 0) + counts.get("active", 0)
        settled = {key: value for key, value in counts.items() if key != "active"}
        replicas[kind] = {**settled, "succeeded": total} if total else settled
    return {**status, "replicaStatuses": replicas}
