"""Stories of jobs that refer to objects, which come along into their members (``propagateDeps``)."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Iterator
from random import Random
from typing import Any

import orjson

from tests.simulation.fleet.rules import STORAGES, Json, stored_jobs
from tests.simulation.fleet.story import Story
from tests.unit.fleet.clusters import NAMESPACE, Side, plain_job
from tests.unit.fleet.failing import failover_policy
from webhook.core.notation import names
from webhook.errors import NotFound
from webhook.fleet.jobs.dependencies.dependency import PLURALS
from webhook.fleet.jobs.dependencies.references import references
from webhook.jobs.kinds.registry import KINDS
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.objects.store import Stored

SHARED = ("rates", "words", "paths")
OWN = "rates"
"""A ConfigMap of that name is one member's own."""
ABSENT = "nowhere"
"""A ConfigMap that neither the hub nor a member has."""
CHANGED_SECONDS = (2.0, 20.0)
_STORAGES = {kind: ("", plural) for kind, plural in PLURALS.items()}


class Needing(Story):
    """Everything at once, and jobs start only where there is what they refer to, as far as the hub has it."""

    def __init__(self, seed: int, processes: int = 1, *, bare: bool = False) -> None:
        super().__init__(seed, processes, bare=bare)
        self.dice = Random(f"needs {seed}")
        self._own: tuple[str, Stored]

    async def _plant_foreign(self) -> None:
        await super()._plant_foreign()
        world = self.world
        for name in SHARED:
            await world.hub.cluster.create(_object("ConfigMap", name, data={"version": "0"}))
        await world.hub.cluster.create(_object("Secret", "registry", type="Opaque", data={"key": "e30="}))
        await world.hub.cluster.create(_object("ServiceAccount", "trainer", imagePullSecrets=[{"name": "registry"}]))
        member = self.dice.choice(sorted(world.members))
        own = await world.members[member].cluster.create(_object("ConfigMap", OWN, data={"version": "its own"}))
        self._own = member, own
        for kind in ("Job", "PyTorchJob"):
            # Without failover: a job that fails here has failed.
            await world.hub.cluster.create(failover_policy(kind, failover=None))
        for side in world.members.values():
            for storage in (*_STORAGES.values(), *STORAGES.values()):
                side.cluster.server.store.subscribe(lambda event, side=side: self._look(side), storage)

    def _made(self, make: Callable[..., dict[str, Any]], number: int) -> dict[str, Any]:
        job = super()._made(make, number)
        found = self.dice.sample((*SHARED, ABSENT), self.dice.randint(0, 3))
        volumes = [{"name": name, "configMap": {"name": name, "optional": name == ABSENT}} for name in found]
        account = {"serviceAccountName": "trainer"} if self.dice.random() < 0.5 else {}
        replicas = job["spec"].get("pytorchReplicaSpecs", {}).values()
        for pods in [each["template"]["spec"] for each in (replicas if make is not plain_job else (job["spec"],))]:
            pods |= {"volumes": volumes, **account}
        return job

    def _weather(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (*super()._weather(), self._change_what_is_needed())

    async def _change_what_is_needed(self) -> None:
        for version in range(1, 1000):
            await asyncio.sleep(self.dice.uniform(*CHANGED_SECONDS))
            where = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{self.dice.choice(SHARED)}"
            change = {"data": {"version": str(version)}, "metadata": {"annotations": {"version": str(version)}}}
            with contextlib.suppress(NotFound):
                body = orjson.dumps(change)
                await self.world.hub.admin.request("PATCH", where, body=body, content_type=MERGE_PATCH)

    def _look(self, side: Side) -> None:
        """See after each write in a member that what runs there has what it refers to, and nothing else was touched."""
        member, own = self._own
        there = self.world.members[member].cluster.server.store.get(_STORAGES["ConfigMap"], NAMESPACE, OWN)
        if there is None or there.object != own.object:
            self.rules.say(f"ConfigMap {OWN} of {member} was touched")
        for kind, stored in stored_jobs(side):
            if _runs(kind, stored) and (missing := [str(each) for each in _missing(side, stored.object)]):
                self.rules.say(f"{stored.object['metadata']['name']} may run in {side.name} without {missing}")

    async def _come_to_rest(self) -> None:
        await super()._come_to_rest()
        for name, side in self.world.members.items():
            for kind, storage in _STORAGES.items():
                left = [
                    each.object["metadata"]["name"]
                    for each in side.cluster.server.store.items(storage, NAMESPACE)
                    if names.ORIGIN_LABEL in each.labels
                ]
                assert not left, f"{kind} {left} is left in {name}"


def _object(kind: str, name: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, **content}


def _runs(kind: str, stored: Stored) -> bool:
    notes, suspend = stored.object["metadata"].get("annotations") or {}, KINDS[kind].suspend
    policy: Json = stored.object["spec"] if suspend == ("spec", "suspend") else stored.object["spec"]["runPolicy"]
    ended = stored.object["metadata"].get("deletionTimestamp") or stored.object.get("status", {}).get("completionTime")
    return names.PERMIT in notes and not policy.get("suspend") and not ended


def _missing(side: Side, job: Json) -> Iterator[object]:
    for each in references(job["spec"]):
        found = side.cluster.server.store.get(_STORAGES[each.kind], NAMESPACE, each.name)
        if found is None and each.name != ABSENT:
            yield each
