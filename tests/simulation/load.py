"""Users at random: they create, scale, hold, delete jobs of several kinds, change quota and run loose pods."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final

import orjson

from tests.simulation import flavors, racks
from tests.simulation.many_shapes import vary
from tests.simulation.queues import NAMESPACES, NOMINAL_GPUS, PRIORITIES, QUEUES, namespaces, policy
from tests.simulation.shapes import PATHS, SUSPEND, TRAINING, VERSION_KIND, document_of, is_suspended
from tests.simulation.weather import Weather
from webhook.core.notation import names
from webhook.errors import ApiError
from webhook.kube.api import MERGE_PATCH
from webhook.kube.list_watch import IDLE_SECONDS
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.controllers.nodes import FATE, RUNTIME
from webhook.laboratory.simulated.requests.identity import User
from webhook.laboratory.simulated.requests.refusals import Refused

USER: Final = User.named("researcher")
USUAL_KINDS: Final = ("Job", "Job", "JobSet", "PyTorchJob")
OLD: Final = "old-"
"""How the names begin of what ran before Tutti came."""
MESH: Final = "mesh"
"""Label of pods to which an injector adds a sidecar of that name."""
MESH_RESOURCE: Final = "example.com/mesh"
"""What the sidecar asks one of; no queue counts it."""
PLENTY: Final = {MESH_RESOURCE: "64", "ephemeral-storage": "1Ti"}
"""What each node has of that."""
ELASTIC_PODS: Final = 3
"""A queue has hardly ever as much left."""
PATIENCE_SECONDS: Final = round(IDLE_SECONDS) + 60
"""For how long an owner tries to lift a hold."""


class Load:
    """Everything users do, by one seed."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        rng: Random,
        weather: Weather,
        label_children: Callable[[dict[str, Any], str], None],
        kinds: Sequence[str] | None = None,
    ) -> None:
        """``label_children`` is given each job's document and queue; jobs are of these ``kinds``, or of the usual."""
        self._cluster = cluster
        self._rng = rng
        self._weather = weather
        self._unlabelled = 1.0 if weather.quota_tree else 0.5 if weather.ungated else 0.0
        self._label_children = label_children
        self._kinds = kinds or USUAL_KINDS
        self.elastic: dict[tuple[str, str], bool] = {}
        """Jobs that may start with fewer pods, and whether their completions go with these."""
        self._keeping: dict[tuple[str, str], str] = {}
        """Jobs that a finalizer of somebody else keeps."""
        self._too_short: dict[tuple[str, str], str] = {}
        """Jobs whose run-time limit is shorter than they run."""
        self._api = cluster.api(USER)
        self.jobs: dict[tuple[str, str], str] = {}
        self.quiet: set[tuple[str, str]] = set()
        """Jobs that are left alone for now."""
        self._held: set[tuple[str, str]] = set()
        self._number = 0
        self._controllers: dict[str, dict[str, Any]] = {}
        """By namespace: the CronJob that controls some of the jobs."""

    async def prepare(self) -> None:
        """Create nodes, namespaces, queues and quotas."""
        for number, gpus in enumerate(self._weather.nodes):
            labels = racks.labels_of(number) if self._weather.racked else {}
            if self._weather.two_flavors:
                labels |= flavors.labels_of(number)
            await self._cluster.add_node(f"node-{number}", labels=labels, gpu=str(gpus), **PLENTY)
        for document in namespaces():
            await self._cluster.create(document)
        for namespace in NAMESPACES if self._weather.scheduled else ():
            self._controllers[namespace] = await self._schedule(namespace)
        for document in policy(self._weather, self._rng):
            await self._cluster.create(document)

    async def run_before(self, kinds: Sequence[str], seconds: int = 40) -> None:
        """Fill every queue with a job of pods that run already, without anything of ours on it."""
        for queue, kind in zip(QUEUES, kinds, strict=True):
            document = document_of(kind, f"{OLD}{queue}", NOMINAL_GPUS[queue], template_of(seconds))
            document["metadata"] |= {"namespace": "team-b", "labels": {"kueue.x-k8s.io/queue-name": queue}}
            self._label_children(document, queue)
            await self._cluster.create(document)
            self.jobs["team-b", f"{OLD}{queue}"] = kind
        await asyncio.sleep(2)

    async def create_unlabelled(self, namespace: str, pods: int, seconds: int) -> None:
        """Create a Job that names no queue, if it is not refused."""
        self._number += 1
        document = document_of("Job", f"job-{self._number}", pods, template_of(seconds))
        with suppress(ApiError):
            await self._api.request("POST", PATHS["Job"].format(namespace), body=orjson.dumps(document))
            self.jobs[namespace, document["metadata"]["name"]] = "Job"

    async def _schedule(self, namespace: str) -> dict[str, Any]:
        """Create a CronJob; return the reference by which it controls what it makes."""
        item = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly", "namespace": namespace}}
        body = orjson.dumps({**item, "spec": {"schedule": "0 3 * * *"}})
        path = f"/apis/batch/v1/namespaces/{namespace}/cronjobs"
        uid = orjson.loads(await self._cluster.api().request("POST", path, body=body))["metadata"]["uid"]
        return {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": uid, "controller": True}

    async def run(self, jobs: int, seconds: float, upto: int) -> None:
        """Do ``jobs`` creations and as many other things over ``seconds``, of which only the first ``upto``."""
        for _ in range(upto):
            await asyncio.sleep(self._rng.uniform(0, 2 * seconds / jobs))
            await self._attempt(self._create())
            if self.jobs and self._rng.random() < 0.5:
                await self._attempt(self._disturb())
            if self._weather.long:
                await self._attempt(self._interrupt())
            if self._weather.elastic:
                await self._attempt(self._scale())

    async def lift_holds(self) -> None:
        """Un-suspend what users hold, again and again: a hold cannot be lifted before it is written down.

        They look at what is stored: a restored backup may hold what they had let go. And they wait for as long as a
        silent watch may keep from a leader what they did: after a restore that is all that tells it.
        """
        for namespace, name in sorted(self._held | {key for key in self.jobs if self._is_held(*key)}):
            for _ in range(PATIENCE_SECONDS):
                try:
                    await self.suspend(namespace, name, False)
                except ApiError:
                    await asyncio.sleep(1)
                else:
                    break
        self._held.clear()

    def _is_held(self, namespace: str, name: str) -> bool:
        kind = self.jobs[namespace, name]
        stored = stored_job(self._cluster, kind, namespace, name)
        if stored is None:
            return False
        notes = stored["metadata"].get("annotations") or {}
        # Or it is to be written down yet.
        suspended = is_suspended(kind, stored) and names.ADMISSION in notes
        return suspended or stored["metadata"]["uid"] in notes.get(names.HOLD, "")

    def lose(self, key: tuple[str, str]) -> bool:
        """Take note that somebody else deleted a job; return whether it was one of these."""
        self._held.discard(key)
        return self.jobs.pop(key, None) is not None

    async def let_go(self) -> None:
        """Remove the finalizers of somebody else."""
        for (namespace, name), kind in self._keeping.items():
            path, none = f"{PATHS[kind].format(namespace)}/{name}", b'{"metadata": {"finalizers": null}}'
            with suppress(ApiError):
                await self._cluster.api().request("PATCH", path, body=none, content_type=MERGE_PATCH)

    def any_job(self) -> tuple[str, str] | None:
        """Return the namespace and the name of a job."""
        return self._rng.choice(sorted(self.jobs)) if self.jobs else None

    def unfinished(self) -> dict[tuple[str, str], str]:
        """Return the jobs that have not ended and are not held at their limit, as (namespace, name) to kind."""
        return {
            key: kind
            for key, kind in self.jobs.items()
            if not self._finished(kind, *key) and not self._held_at_limit(kind, *key)
        }

    def overran(self) -> list[str]:
        """Return the jobs that ran to their end although their limit is shorter than that. One may fail earlier."""
        return [
            name
            for (namespace, name), kind in self._too_short.items()
            if (namespace, name) in self.jobs and self._end_of(kind, namespace, name) not in {None, "Failed"}
        ]

    async def _attempt(self, work: Any) -> None:
        # Users are refused all the time, among others while no webhook has read its caches yet.
        with suppress(ApiError, Refused):
            await work

    async def create_one(self, kind: str) -> None:
        """Create a job of a kind, beside those that ``run`` creates."""
        await self._attempt(self._create(kind))

    async def _create(self, kind: str = "") -> None:
        self._number += 1
        kind = kind or self._rng.choice(self._kinds)
        namespace, name = self._rng.choice(NAMESPACES), f"job-{self._number}"
        pods, queue = self._rng.randint(1, 3), self._rng.choice(QUEUES)
        document = document_of(kind, name, pods, self._template(1 if kind in TRAINING else pods))
        if self._weather.many_shapes:
            vary(document, kind, self._rng)
        if kind == "Job" and self._happens(self._weather.long):
            document["spec"]["completions"] += self._rng.choice((1, 2, 4))
        if kind == "Job" and self._happens(self._weather.elastic):
            self.elastic[namespace, name] = _make_elastic(document, indexed=self._rng.random() < 0.5)
        if kind == "Job" and self._happens(self._weather.work_queues):
            del document["spec"]["completions"]
        indexed = kind == "JobSet" or (kind == "Job" and "completions" in document["spec"])
        if indexed and self._happens(self._weather.failing):
            _have_indexes_fail(document, self._rng.randint(0, 1))
        document["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue}
        if self._happens(self._unlabelled):
            del document["metadata"]["labels"]
        if self._weather.priorities and (priority := self._rng.choice((None, *PRIORITIES))) is not None:
            document["metadata"].setdefault("labels", {})[names.PRIORITY_CLASS_LABEL] = priority
        self._label_children(document, queue)
        if self._happens(self._weather.scheduled):
            document["metadata"]["ownerReferences"] = [self._controllers[namespace]]
        if "labels" in document["metadata"] and self._happens(self._weather.limited):
            limit = self._rng.choice((5, 15, 60))
            document["metadata"]["labels"][names.MAX_EXECUTION_LABEL] = str(limit)
            # Some pods of one that may start with fewer run for less.
            if limit + 3 < self._seconds and (namespace, name) not in self.elastic:
                self._too_short[namespace, name] = kind
        if self._happens(self._weather.kept):
            document["metadata"]["finalizers"] = ["example.org/accounting"]
            self._keeping[namespace, name] = kind
        for _ in range(20):
            try:
                await self._api.request("POST", PATHS[kind].format(namespace), body=orjson.dumps(document))
            except ApiError:
                await asyncio.sleep(1)
                continue
            self.jobs[namespace, name] = kind
            return

    def _happens(self, chance: float) -> bool:
        # What never happens takes no number of the generator: a new thing leaves the stories without it as they are.
        return chance > 0 and self._rng.random() < chance

    def _template(self, pods: int) -> dict[str, Any]:
        self._seconds = self._rng.choice((3, 8, 20))
        meshed = self._happens(self._weather.meshed)
        template = template_of(self._seconds, {MESH: "true"} if meshed else None)
        if self._happens(self._weather.racked):
            template["metadata"]["annotations"] |= racks.asked(self._rng, pods)
        return template

    async def _disturb(self) -> None:
        (namespace, name), kind = self._rng.choice(sorted(self.jobs.items()))
        if (namespace, name) in self.quiet:
            return
        match self._rng.randrange(5):
            case 0:
                options = None if self._weather.leaves_orphans else b'{"propagationPolicy": "Background"}'
                if (namespace, name) in self._keeping:
                    options = b'{"propagationPolicy": "Foreground"}'
                await self._api.request("DELETE", f"{PATHS[kind].format(namespace)}/{name}", body=options)
                self.jobs.pop((namespace, name), None)
                self._held.discard((namespace, name))
            case 1 if self._is_charged(kind, namespace, name):
                await self.suspend(namespace, name, True)
                self._held.add((namespace, name))
            case 2:
                await self.suspend(namespace, name, False)
                self._held.discard((namespace, name))
            case 3:
                await self._loose_pod(namespace)
            case 4:
                await self._cluster.create(_loose(namespace, f"loose-{self._number}"), USER)

    def _is_charged(self, kind: str, namespace: str, name: str) -> bool:
        """Return whether what runs of a job is charged: of one that ran before Tutti, which is not adopted when it is
        suspended, nothing is.
        """
        notes = ((stored_job(self._cluster, kind, namespace, name) or {}).get("metadata") or {}).get("annotations")
        return not name.startswith(OLD) or names.ADMISSION in (notes or {})

    async def _interrupt(self) -> None:
        """Stop a Job in its last round, with less left than it does at a time, and soon let it go on."""
        for (namespace, name), kind in sorted(self.jobs.items()):
            job = stored_job(self._cluster, kind, namespace, name) if kind == "Job" else None
            if job is None or job["spec"].get("suspend") or "completions" not in job["spec"]:
                continue
            left = job["spec"].get("completions", 0) - (job.get("status") or {}).get("succeeded", 0)
            if 0 < left < job["spec"]["parallelism"]:
                await self._hold_for_a_moment(namespace, name)
                return

    async def _hold_for_a_moment(self, namespace: str, name: str) -> None:
        self._held.add((namespace, name))
        await self.suspend(namespace, name, True)
        await asyncio.sleep(self._rng.choice((1, 4)))
        if (namespace, name) in self.jobs:
            await self.suspend(namespace, name, False)
        self._held.discard((namespace, name))

    async def _scale(self) -> None:
        """Have an owner scale a Job that may start with fewer pods, or stop it for a moment; it waits or runs."""
        living = sorted(self.elastic.keys() & self.jobs.keys())
        if not living:
            return
        namespace, name = key = self._rng.choice(living)
        if self._rng.random() < 0.4:
            await self._hold_for_a_moment(namespace, name)
            return
        pods = self._rng.randint(1, ELASTIC_PODS)
        stored = stored_job(self._cluster, "Job", namespace, name)
        marks = {} if stored is None else stored["spec"]["template"]["metadata"]["annotations"]
        if pods % int(marks.get(names.SLICE_SIZE, 1)):
            # It would wait until its size was one of whole slices again.
            return
        spec = {"parallelism": pods, "completions": pods} if self.elastic[key] else {"parallelism": pods}
        path = f"{PATHS['Job'].format(namespace)}/{name}"
        await self._api.request("PATCH", path, body=orjson.dumps({"spec": spec}), content_type=MERGE_PATCH)

    async def suspend(self, namespace: str, name: str, value: bool) -> None:
        """Suspend a job, or let it go on. Raises ApiError."""
        kind = self.jobs[namespace, name]
        await self._api.request(
            "PATCH",
            f"{PATHS[kind].format(namespace)}/{name}",
            body=orjson.dumps(SUSPEND[kind](value)),
            content_type=MERGE_PATCH,
        )

    async def _loose_pod(self, namespace: str) -> None:
        body = orjson.dumps(_loose(namespace, f"loose-{self._rng.getrandbits(24):x}"))
        await self._api.request("POST", f"/api/v1/namespaces/{namespace}/pods", body=body)

    def _held_at_limit(self, kind: str, namespace: str, name: str) -> bool:
        marks = ((stored_job(self._cluster, kind, namespace, name) or {}).get("metadata") or {}).get(
            "annotations"
        ) or {}
        return names.HOLD in marks and "DeactivatedDueToMaximumExecutionTimeExceeded" in marks.get(names.REQUEUE, "")

    def _finished(self, kind: str, namespace: str, name: str) -> bool:
        return self._end_of(kind, namespace, name) is not None

    def _end_of(self, kind: str, namespace: str, name: str) -> str | None:
        stored = stored_job(self._cluster, kind, namespace, name)
        return "Gone" if stored is None else how_it_ended(stored)


def _make_elastic(job: dict[str, Any], *, indexed: bool) -> bool:
    """Have a Job of three pods start with one if need be; return whether its completions go with its pods."""
    spec, annotations = job["spec"], {names.MIN_PARALLELISM: "1"}
    together = indexed and spec["completions"] == spec["parallelism"]
    spec |= {"parallelism": ELASTIC_PODS, "completions": max(ELASTIC_PODS, spec["completions"])}
    if together:
        annotations[names.COMPLETIONS_FOLLOW] = "true"
        spec["completionMode"] = "Indexed"
        spec["template"]["metadata"]["annotations"][RUNTIME] = "3s 25s 10s"
    job["metadata"]["annotations"] = annotations
    return together


def _have_indexes_fail(document: dict[str, Any], retries: int) -> None:
    """Have a Job go on without its odd indexes once each has failed so often, and a JobSet start again as one has."""
    spec, more = document["spec"], {"backoffLimitPerIndex": retries}
    if document["kind"] == "JobSet":
        spec["failurePolicy"] = {"maxRestarts": retries + 1}
        spec, more = spec["replicatedJobs"][0]["template"]["spec"], {"backoffLimit": 0}
    template = spec["template"]
    annotations = {**template["metadata"]["annotations"], FATE: "odd-indexes-fail"}
    spec |= {"completionMode": "Indexed", **more}
    spec["template"] = {**template, "metadata": {**template["metadata"], "annotations": annotations}}


def stored_job(cluster: SimulatedCluster, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
    """Return a job as the server has it, if it is there; not to be changed."""
    resource = cluster.server.registry.of_kind(*VERSION_KIND[kind])
    assert resource is not None
    stored = cluster.server.store.get(resource.storage, namespace, name)
    return None if stored is None else stored.object


def how_it_ended(job: dict[str, Any]) -> str | None:
    """Return the condition by which a job of any kind has ended, if it has."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    ended = {"Complete", "Failed", "Completed", "Succeeded"}
    return next((c["type"] for c in conditions if c["type"] in ended and c["status"] == "True"), None)


def _loose(namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": {"tutti.dev/simulated-runtime": "5s"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]},
    }


def template_of(seconds: int, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the template of pods that ask a GPU and run for so long."""
    resources = {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    return {
        "metadata": {"annotations": {"tutti.dev/simulated-runtime": f"{seconds}s"}, "labels": labels or {}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "pytorch", "image": "x", "resources": resources}]},
    }
