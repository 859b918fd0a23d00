"""SparkApplications in a fleet: a kind without ``managedBy``, which a hub places by its annotation.

Follows Spark operator 2: it makes the driver, the driver makes its executors and takes them along when it ends; who
suspends the application has the driver deleted. One is there in a hub with queues too, where somebody has left it: it
runs whatever is not suspended, and is refused every pod. Not modelled: that it writes how it failed.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from random import Random
from typing import Any, Final

import orjson

from tests.simulation.fleet.rules import Rules
from tests.unit.fleet.clusters import NAMESPACE, Side
from webhook.core.notation import names
from webhook.errors import Forbidden, NotFound
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.controllers import pods
from webhook.laboratory.simulated.controllers.base import Controller, Pace
from webhook.laboratory.simulated.controllers.nodes import RUNTIME
from webhook.laboratory.simulated.objects.resources import Resource
from webhook.laboratory.simulated.objects.store import Event, Stored
from webhook.laboratory.simulated.requests.identity import Call, User
from webhook.laboratory.simulated.requests.refusals import Json, Refused
from webhook.laboratory.simulated.server import SimulatedServer

SPARK: Final = Resource(
    "sparkoperator.k8s.io",
    "v1beta2",
    "sparkapplications",
    "SparkApplication",
    status=True,
    generation=True,
    custom=True,
)
WORLDS: Final = 0.35
"""In so many seeds there are some."""
JOBS: Final = 0.35
"""Of the jobs of these."""
MEDDLED: Final = 0.3
"""Of these somebody tries to take or change the annotation."""
_OPERATOR: Final = User.service_account("spark-operator", "spark-operator-controller")
_DRIVER: Final = User.service_account(NAMESPACE, "spark")
_TENANT: Final = User.named("tenant")
_POD: Final = {"requests": {"cpu": "1", "memory": "896Mi"}, "limits": {"memory": "896Mi"}}
"""What is priced of ``memory: 512m`` and the least overhead."""
_ENDED: Final = {"Succeeded": "COMPLETED", "Failed": "FAILED"}


def application(name: str, runtime: str) -> dict[str, Any]:
    """A driver and one executor, a cpu each."""
    role = {"cores": 1, "memory": "512m", "annotations": {RUNTIME: runtime}}
    return {
        "apiVersion": SPARK.api_version,
        "kind": SPARK.kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {names.QUEUE_LABELS[0]: "research"}},
        "spec": {"type": "Python", "mode": "cluster", "driver": {**role}, "executor": {**role, "instances": 1}},
    }


class SparkOperator(Controller):
    """Runs the SparkApplications of one cluster."""

    def __init__(self, server: SimulatedServer, rng: Random, pace: Pace) -> None:
        super().__init__(server, _OPERATOR, rng, pace)
        self._pods = server.registry.of("pods")
        self.store.subscribe(lambda event: self.enqueue((*event.current.key, event.current.uid)), SPARK.storage)
        self.store.subscribe(self._pod_changed, pods.PODS)

    def _pod_changed(self, event: Event) -> None:
        owner = pods.controller_of(event.current)
        if owner is not None and owner["kind"] == "Pod":
            driver = self.store.get(pods.PODS, event.current.key[0], owner["name"])
            owner = None if driver is None else pods.controller_of(driver)
        if owner is not None and owner["kind"] == SPARK.kind:
            self.enqueue((event.current.key[0], owner["name"], owner["uid"]))

    async def reconcile(self, key: tuple[str, str, str]) -> None:
        """Look at one application."""
        namespace, name, uid = key
        stored = self.store.get(SPARK.storage, namespace, name)
        if stored is None or stored.uid != uid or "deletionTimestamp" in stored.object["metadata"]:
            return
        before = stored.object.get("status") or {}
        if before and before["applicationState"]["state"] in _ENDED.values():
            return
        status = await self._advance(stored.object, before)
        if status != before:
            await self.server.update(
                SPARK, namespace, name, lambda now: {**now.object, "status": status}, self.call(), "status"
            )

    async def _advance(self, app: Json, before: Json) -> Json:
        """Take the next step, and return the status after it."""
        drivers = self.store.owned(pods.PODS, app["metadata"]["uid"])
        if app["spec"].get("suspend"):
            for driver in drivers:
                await self._delete(driver)
            return _state("SUSPENDING" if drivers else "SUSPENDED") if before else before
        if not drivers:
            await self._create(app, "driver", app, self.call())
            return _state("SUBMITTED")
        return await self._follow(app, drivers[0])

    async def _follow(self, app: Json, driver: Stored) -> Json:
        executors = self.store.owned(pods.PODS, driver.uid)
        if ended := _ENDED.get(pods.phase(driver)):
            for executor in executors:
                await self._delete(executor)
            return _state(ended)
        if not pods.is_ready(driver) or pods.is_terminating(driver):
            return _state("SUBMITTED")
        if not executors:
            await self._create(app, "executor", driver.object, Call(_DRIVER))
        return _state("RUNNING") | {"executorState": {each.key[1]: pods.phase(each).upper() for each in executors}}

    async def _create(self, app: Json, role: str, owner: Json, call: Call) -> None:
        described, name = app["spec"][role], f"{app['metadata']['name']}-{role}"
        container = {"name": role, "image": "spark:4", "resources": _POD}
        chosen = {key: described[key] for key in ("nodeSelector", "tolerations", "affinity") if key in described}
        template = {
            "metadata": {key: described.get(key) or {} for key in ("labels", "annotations")},
            "spec": {"containers": [container], "restartPolicy": "Never", **chosen},
        }
        owned = {"apiVersion": "v1", "kind": "Pod", **owner}
        pod = pods.from_template(template, owned, {"name": name})
        try:
            await self.server.create(self._pods, app["metadata"]["namespace"], pod, call)
        except Refused as refused:
            if refused.reason != "AlreadyExists":
                raise

    async def _delete(self, pod: Stored) -> None:
        if not pods.is_terminating(pod):
            with contextlib.suppress(Refused):
                await self.server.delete(self._pods, *pod.key, {"preconditions": {"uid": pod.uid}}, self.call())


def _state(state: str) -> Json:
    return {"applicationState": {"state": state}}


class Sparks:
    """Which jobs of a story are SparkApplications, and what must hold of them."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(f"sparks {seed}")
        """Its own: stories without any are told as before there were these."""
        self.some = self._chance.random() < WORLDS

    def serve(self, name: str, cluster: SimulatedCluster, *, hub_queues: bool) -> None:
        """Have a cluster know the kind, if some are to be there. The operator of a hub needs a Tutti to refuse it."""
        if self.some:
            cluster.server.registry.add(SPARK)
            if name != "hub" or hub_queues:
                cluster.controllers.append(SparkOperator(cluster.server, Random(f"spark {name}"), Pace()))

    async def plant(self, sides: Iterable[Side]) -> None:
        """Have queues cover memory, for which each application asks."""
        for side in sides if self.some else ():
            path = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/research"
            (group,) = orjson.loads(await side.admin.request("GET", path))["spec"]["resourceGroups"]
            group["coveredResources"].append("memory")
            group["flavors"][0]["resources"].append({"name": "memory", "nominalQuota": "1Ti"})
            change = orjson.dumps({"spec": {"resourceGroups": [group]}})
            await side.admin.request("PATCH", path, body=change, content_type=MERGE_PATCH)

    def instead(self, job: dict[str, Any], runtime: str, *, hub_queues: bool) -> dict[str, Any]:
        """Return what is created in place of a job: itself, mostly."""
        if not self.some or self._chance.random() >= JOBS:
            return job
        made = application(job["metadata"]["name"], runtime)
        if not hub_queues:
            # As the webhook of a hub has written it, where this one has none.
            made["metadata"]["annotations"] = {names.MANAGED_BY: names.HUB_MANAGER}
        return made

    def watch(self, hub: Side, rules: Rules) -> None:
        """See after each stored write that nobody changes who places them, and that no pod is in the hub."""

        def placed(event: Event) -> None:
            notes = event.current.object["metadata"].get("annotations") or {}
            if notes.get(names.MANAGED_BY) != names.HUB_MANAGER:
                rules.say(f"{event.current.key[1]} is placed by {notes.get(names.MANAGED_BY)}")

        store = hub.cluster.server.store
        store.subscribe(placed, SPARK.storage)
        store.subscribe(lambda event: rules.say(f"pod {event.current.key[1]} is in the hub"), pods.PODS)

    async def meddle(self, hub: Side, job: dict[str, Any]) -> None:
        """Have a tenant take the annotation off, or write another, at some time; the hub's webhook is to refuse it."""
        if job["kind"] != SPARK.kind or self._chance.random() >= MEDDLED:
            return
        await asyncio.sleep(self._chance.uniform(0, 30))
        change = {"metadata": {"annotations": {names.MANAGED_BY: self._chance.choice((None, "", "example.org/other"))}}}
        path = f"{SPARK.path}/namespaces/{NAMESPACE}/{SPARK.plural}/{job['metadata']['name']}"
        with contextlib.suppress(NotFound, Forbidden):
            await hub.cluster.api(_TENANT).request("PATCH", path, body=orjson.dumps(change), content_type=MERGE_PATCH)
