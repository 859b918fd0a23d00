"""Tenants who write whatever the API server lets them write into their own objects, at every moment.

They have `edit` in the namespaces that everybody uses: labels, ours among them, owners, managedBy, sizes, templates and
annotations of their jobs, of the children and of the pods of these; forged pods; deletion that leaves orphans. What may
run without Tutti by design (a job that names no queue) is not counted against it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, Final

import orjson

from tests.simulation.load import how_it_ended, stored_job, template_of
from tests.simulation.queues import NAMESPACES, QUEUES
from tests.simulation.shapes import (
    KINDS,
    PATHS,
    STORAGES,
    SUSPEND,
    TRAINING,
    document_of,
    is_suspended,
    managed,
    resized,
    templates,
)
from webhook.core.notation import names
from webhook.errors import ApiError
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.objects.store import Stored
from webhook.laboratory.simulated.requests.identity import User
from webhook.laboratory.simulated.requests.refusals import Refused

MALLORY: Final = User.named("mallory")
PREFIX: Final = "evil-"
LIVING_TRIES: Final = 6
"""Most jobs are soon over, and to these little can be done."""
LEAVING_TRIES: Final = 10
LEAVING_SECONDS: Final = 2.0
JOBS: Final = ("batch", "jobs")
PODS: Final = ("", "pods")
PODS_PATH: Final = "/api/v1/namespaces/{}/pods"
QUEUE: Final = "kueue.x-k8s.io/queue-name"
OTHERS: Final = "kueue.x-k8s.io/multikueue"
KEEPER: Final = "example.com/keeps"
RESTARTS: Final = "jobset.sigs.k8s.io/restart-attempt"
SOME_KINDS: Final = ("Job", "Job", "JobSet", "PyTorchJob")
Key = tuple[str, str, str]
"""Kind, namespace and name of a job."""


class HostileTenants:
    """They do one thing after another, by one seed, and in the end they go."""

    def __init__(self, cluster: SimulatedCluster, rng: Random, *, every_kind: bool = False) -> None:
        """With ``every_kind`` their jobs are of each kind that the cluster runs, and scaled as well."""
        self.did = Counter[str]()
        """What they did to what, and when in its life; and how often it was stored."""
        self._subjects: list[tuple[str, str]] = []
        """What the present act is done to: its kind, and where in its life it is."""
        self._every_kind = every_kind
        self._kinds = KINDS if every_kind else SOME_KINDS
        self._cluster = cluster
        self._rng = rng
        self._api = cluster.api(MALLORY)
        self._jobs: list[Key] = []
        self._number = 0

    async def run(self, acts: int, seconds: float) -> None:
        """Do so many things over ``seconds``."""
        for _ in range(acts):
            await asyncio.sleep(self._rng.uniform(0, 2 * seconds / acts))
            act = self._rng.choice(self._acts()) if self._jobs else self._create
            self._subjects.clear()
            stored = False
            with suppress(ApiError, Refused):
                await act()
                stored = True
            self._note(act.__name__.strip("_"), stored)

    def _note(self, act: str, stored: bool) -> None:
        for kind, moment in self._subjects[:1]:
            self.did[f"{act} {kind}"] += 1
            self.did[f"{act} {moment}"] += 1
            self.did[f"{act} stored"] += stored

    async def leave(self) -> None:
        """Delete all that is theirs, whatever keeps it."""
        for _ in range(LEAVING_TRIES):
            left = [f"{PATHS[kind].format(namespace)}/{name}" for kind, namespace, name in self._jobs]
            for storage, path in ((JOBS, PATHS["Job"]), (PODS, PODS_PATH)):
                left += [f"{path.format(stored.key[0])}/{stored.key[1]}" for stored in self._theirs(storage)]
            for path in dict.fromkeys(left):
                with suppress(ApiError, Refused):
                    await self._write(path, {"metadata": {"finalizers": []}})
                    await self._api.request("DELETE", path)
            self._jobs = [each for each in self._jobs if stored_job(self._cluster, *each) is not None]
            if not self._jobs and not self._theirs(JOBS) and not self._theirs(PODS):
                return
            # While no webhook answers nothing goes; and what an owner that is not theirs makes again comes back.
            await asyncio.sleep(LEAVING_SECONDS)

    def _acts(self) -> tuple[Callable[[], Any], ...]:
        return (
            self._create,
            self._create,
            self._move,
            self._label,
            self._own,
            self._hand_over,
            self._resize,
            self._resize,
            self._ask_more,
            self._suspend,
            self._suspend,
            self._annotate,
            self._delete,
            self._touch_child,
            self._touch_child,
            self._delete_child,
            self._keep,
            self._keep,
            self._say_how_it_ends,
            self._touch_pod,
            self._touch_pod,
            self._forge_pod,
        )

    # -- jobs --------------------------------------------------------------------------------------------------------

    async def _create(self) -> None:
        self._number += 1
        kind = self._rng.choice(self._kinds)
        self._subjects.append((kind, "new"))
        namespace, name = self._rng.choice(NAMESPACES), f"{PREFIX}{self._number}"
        document = document_of(kind, name, self._rng.randint(1, 3), template_of(self._rng.choice((3, 8, 20))))
        if self._rng.random() < 0.85:
            document["metadata"]["labels"] = {QUEUE: self._rng.choice(QUEUES)}
        if self._rng.random() < 0.2:
            document["metadata"]["ownerReferences"] = [self._owner()]
        if self._rng.random() < 0.2:
            for key, value in managed(kind, OTHERS).items():
                document["spec"].setdefault(key, value)
        await self._api.request("POST", PATHS[kind].format(namespace), body=orjson.dumps(document))
        self._jobs.append((kind, namespace, name))

    async def _move(self) -> None:
        await self._patch(self._any(), {"metadata": {"labels": {QUEUE: self._rng.choice(QUEUES)}}})

    async def _label(self) -> None:
        job = self._any()
        labels = {names.GANG_LABEL: self._rng.choice((None, "pending", self._uid())), names.POD_SET_LABEL: "main"}
        template = {"metadata": {"labels": labels}}
        await self._patch(job, self._rng.choice(({"metadata": {"labels": labels}}, templates(job[0], template))))

    async def _own(self) -> None:
        owners = self._rng.choice(([self._owner()], None))
        await self._patch(self._any(), {"metadata": {"ownerReferences": owners}})

    async def _hand_over(self) -> None:
        job = self._any()
        await self._patch(job, {"spec": managed(job[0], self._rng.choice((OTHERS, None)))})

    async def _resize(self) -> None:
        kind, namespace, name = job = self._any()
        pods = self._rng.choice((0, 1, 2, 5, 9))
        if self._every_kind and kind in TRAINING and self._rng.random() < 0.5:
            await self._write(f"{PATHS[kind].format(namespace)}/{name}/scale", {"spec": {"replicas": pods}})
        else:
            await self._patch(job, resized(kind, name, pods, template_of(8)))

    async def _ask_more(self) -> None:
        job = self._any()
        template = template_of(8)
        for of in ("requests", "limits"):
            template["spec"]["containers"][0]["resources"][of]["nvidia.com/gpu"] = "2"
        await self._patch(job, templates(job[0], template))

    async def _suspend(self) -> None:
        job = self._any()
        await self._patch(job, SUSPEND[job[0]](self._rng.random() < 0.4))

    async def _annotate(self) -> None:
        found = [stored.object["metadata"].get("annotations") or {} for stored in self._stored(JOBS)]
        marks = [each[names.ADMISSION] for each in found if names.ADMISSION in each]
        name = self._rng.choice((names.ADMISSION, names.REQUEUE, names.HOLD, names.VOIDED))
        value = self._rng.choice((None, "{}", *marks[:1]))
        await self._patch(self._any(), {"metadata": {"annotations": {name: value}}})

    async def _delete(self) -> None:
        kind, namespace, name = job = self._any()
        policy = self._rng.choice(("Orphan", "Orphan", "Background", "Foreground"))
        if policy == "Orphan" and self._is_admitted(kind, namespace, name):
            # An admission policy, of which this API server has none, refuses that.
            policy = "Background"
        options = {"propagationPolicy": policy}
        await self._api.request("DELETE", f"{PATHS[kind].format(namespace)}/{name}", body=orjson.dumps(options))
        self._jobs.remove(job)

    async def _delete_child(self) -> None:
        children = [stored for stored in self._theirs(JOBS) if stored.object["metadata"].get("ownerReferences")]
        if not children:
            return
        child = self._rng.choice(children)
        self._subjects.append(("Job of another", self._moment("Job", *child.key)))
        labels = (child.object["spec"]["template"].get("metadata") or {}).get("labels") or {}
        policy = self._rng.choice(("Orphan", "Orphan", "Background", "Foreground"))
        if policy == "Orphan" and not labels.get(names.GANG_LABEL, "pending").startswith("pending"):
            # As above.
            policy = "Foreground"
        path = f"{PATHS['Job'].format(child.key[0])}/{child.key[1]}"
        await self._api.request("DELETE", path, body=orjson.dumps({"propagationPolicy": policy}))

    async def _keep(self) -> None:
        """Put a finalizer on something of theirs, or take all away: the controllers' own too."""
        children = [stored.key for stored in self._theirs(JOBS)]
        pods = [stored.key for stored in self._theirs(PODS)]
        kind, namespace, name = self._any()
        paths = [f"{PATHS[kind].format(namespace)}/{name}"]
        paths += [f"{PATHS['Job'].format(each[0])}/{each[1]}" for each in children]
        paths += 2 * [f"{PODS_PATH.format(each[0])}/{each[1]}" for each in pods]
        finalizers = self._rng.choice(([KEEPER], [KEEPER], []))
        await self._write(self._rng.choice(paths), {"metadata": {"finalizers": finalizers}})

    async def _say_how_it_ends(self) -> None:
        """Write the status of a kind that is no built-in one, as who holds a too wide role may."""
        kind, namespace, name = self._any()
        if kind == "Job":
            self._subjects.clear()
            return
        ends = ("Succeeded" if kind in TRAINING else "Completed", "Failed")
        condition = {"type": self._rng.choice(ends), "status": "True", "reason": "x", "message": "x"}
        condition |= {"lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z"}
        body = {"status": {"conditions": [condition]}}
        await self._write(f"{PATHS[kind].format(namespace)}/{name}/status", body)

    def _is_admitted(self, kind: str, namespace: str, name: str) -> bool:
        stored = stored_job(self._cluster, kind, namespace, name)
        return stored is not None and names.ADMISSION in (stored["metadata"].get("annotations") or {})

    # -- what jobs made ----------------------------------------------------------------------------------------------

    async def _touch_child(self) -> None:
        children = [stored for stored in self._theirs(JOBS) if stored.object["metadata"].get("ownerReferences")]
        if not children:
            return
        child = self._rng.choice(children)
        self._subjects.append(("Job of another", self._moment("Job", *child.key)))
        change = self._rng.choice(
            (
                {"spec": {"suspend": False}},
                {"spec": {"parallelism": 5}},
                {"metadata": {"ownerReferences": None}},
                {"metadata": {"ownerReferences": [self._owner()]}},
                {"metadata": {"labels": {QUEUE: self._rng.choice(QUEUES)}}},
                # The JobSet's controller reads this, and fails on what it cannot read.
                {"metadata": {"labels": {RESTARTS: self._rng.choice((None, "x"))}}},
                {
                    "spec": {
                        "template": {"metadata": {"labels": {names.GANG_LABEL: self._rng.choice((None, self._uid()))}}}
                    }
                },
            )
        )
        await self._patch(("Job", *child.key), change)

    async def _touch_pod(self) -> None:
        pods = self._theirs(PODS)
        if not pods:
            return
        pod = self._rng.choice(pods)
        self._subjects.append(("Pod", (pod.object.get("status") or {}).get("phase", "new")))
        path = f"{PODS_PATH.format(pod.key[0])}/{pod.key[1]}"
        change: dict[str, Any] = self._rng.choice(
            (
                {"metadata": {"labels": {names.GANG_LABEL: self._rng.choice((None, self._uid()))}}},
                {"metadata": {"labels": {names.POD_SET_LABEL: self._rng.choice((None, "other"))}}},
                {"metadata": {"ownerReferences": None}},
                {"metadata": {"ownerReferences": [self._owner()]}},
                {},
            )
        )
        if change:
            await self._write(path, change)
        else:
            await self._api.request("DELETE", path)

    async def _forge_pod(self) -> None:
        self._number += 1
        namespace = self._rng.choice(NAMESPACES)
        self._subjects.append(("Pod", "new"))
        labels = {names.GANG_LABEL: self._uid(), names.POD_SET_LABEL: self._rng.choice(("main", "worker"))}
        pod = template_of(8, labels)
        pod["metadata"]["name"] = f"{PREFIX}{self._number}"
        if self._rng.random() < 0.5:
            pod["metadata"]["ownerReferences"] = [self._owner()]
        body = orjson.dumps({"apiVersion": "v1", "kind": "Pod", **pod})
        await self._api.request("POST", PODS_PATH.format(namespace), body=body)

    # -- choices -----------------------------------------------------------------------------------------------------

    def _any(self) -> Key:
        job = self._rng.choice(self._jobs)
        for _ in range(LIVING_TRIES if self._every_kind else 0):
            if self._moment(*job) != "over":
                break
            job = self._rng.choice(self._jobs)
        self._subjects.append((job[0], self._moment(*job)))
        return job

    def _moment(self, kind: str, namespace: str, name: str) -> str:
        """Return where in its life a job is."""
        job = stored_job(self._cluster, kind, namespace, name)
        if job is None or how_it_ended(job) is not None:
            return "over"
        if job["metadata"].get("deletionTimestamp"):
            return "going"
        return "waiting" if is_suspended(kind, job) else "running"

    def _stored(self, storage: tuple[str, str]) -> list[Stored]:
        return list(self._cluster.server.store.items(storage))

    def _theirs(self, storage: tuple[str, str]) -> list[Stored]:
        return [stored for stored in self._stored(storage) if stored.key[1].startswith(PREFIX)]

    def _uid(self) -> str:
        """Return the uid of somebody's job, or of nothing."""
        storages = STORAGES.values() if self._every_kind else (JOBS,)
        return self._rng.choice([each.uid for storage in storages for each in self._stored(storage)] or ["nobody"])

    def _owner(self) -> dict[str, Any]:
        """Return a reference to somebody's job, or to one that is not there."""
        found: list[tuple[str, str, str, str]] = [("batch/v1", "Job", "ghost", "ghost")]
        for kind, namespace, name in self._jobs:
            job = stored_job(self._cluster, kind, namespace, name)
            if job is not None:
                found.append((job["apiVersion"], kind, name, job["metadata"]["uid"]))
        found += [("batch/v1", "Job", stored.key[1], stored.uid) for stored in self._stored(JOBS)[:3]]
        version, kind, name, uid = self._rng.choice(found)
        return {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": self._rng.random() < 0.8}

    async def _patch(self, job: Key, change: dict[str, Any]) -> None:
        kind, namespace, name = job
        await self._write(f"{PATHS[kind].format(namespace)}/{name}", change)

    async def _write(self, path: str, change: dict[str, Any]) -> None:
        await self._api.request("PATCH", path, body=orjson.dumps(change), content_type=MERGE_PATCH)
