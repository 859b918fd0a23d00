"""Gangs that lose a pod and end in some way while another in its stead is being reviewed."""

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, Final

import orjson

from tests.simulation.load import USER, template_of
from tests.simulation.queues import QUEUES
from tests.simulation.shapes import PATHS, document_of
from webhook.errors import ApiError
from webhook.laboratory.simulated.admission.webhooks import Registration, Rule

if TYPE_CHECKING:
    from tests.simulation.world import World

NAMESPACE: Final = "team-b"
"""Nothing bounds its pods but the queues."""
DRIVER_SECONDS: Final = 25
LONG_SECONDS: Final = 60
RETRIED_AFTER_SECONDS: Final = 10
"""So much later than it lost one the controller of a Job makes another pod; that of a PyTorchJob at once."""
PATIENCE_SECONDS: Final = 60
WRITTEN_SECONDS: Final = 1.5
"""How long the ledger is written at most while a gang is deleted, well below what costs its lease."""


async def lose_pods(world: "World", busy_seconds: float) -> None:
    """Let as many gangs as the weather says lose a pod, and end each in some way then."""
    chance, gangs, ledger = Random(world.seed), list[asyncio.Task[Any]](), _SlowLedger()
    if world.weather.replaced:
        world.cluster.server.admission.register(ledger.registration)
    for number in range(world.weather.replaced):
        await asyncio.sleep(chance.uniform(0, busy_seconds / world.weather.replaced))
        gang = _Gang(world, f"replaced-{number}", Random(chance.getrandbits(64)), ledger)
        gangs.append(world.spawn(gang.run()))
    await asyncio.gather(*gangs)


class _SlowLedger:
    """Lets no write of the ledger be stored before a time."""

    def __init__(self) -> None:
        self.stored_from = 0.0
        """Loop time."""
        written = Rule(frozenset({"UPDATE"}), frozenset({""}), frozenset({"*"}), frozenset({"configmaps"}))
        self.registration = Registration("ledger", False, "/ledger", self._review, (written,), "ledger")

    async def _review(self, _path: str, body: bytes) -> bytes:
        await asyncio.sleep(max(0.0, self.stored_from - asyncio.get_running_loop().time()))
        asked = orjson.loads(body)
        return orjson.dumps({**asked, "response": {"uid": asked["request"]["uid"], "allowed": True}})


class _Gang:
    """A driver and a worker."""

    def __init__(self, world: "World", name: str, chance: Random, ledger: _SlowLedger) -> None:
        self._ledger = ledger
        self._world = world
        self._name = name
        self._chance = chance
        self._api = world.cluster.api(USER)
        self._end = chance.choice((self._ends, self._is_suspended, self._is_deleted))
        kinds = ("JobSet", "PyTorchJob") if self._end == self._is_deleted else ("JobSet", "JobSet", "PyTorchJob")
        self._kind = chance.choice(kinds)
        self._path = f"{PATHS[self._kind].format(NAMESPACE)}/{name}"

    async def run(self) -> None:
        """Tell its story; whatever is refused meanwhile ends that."""
        key = NAMESPACE, self._name
        try:
            body = orjson.dumps(self._document())
            await self._api.request("POST", PATHS[self._kind].format(NAMESPACE), body=body)
            self._world.load.quiet.add(key)
            self._world.load.jobs[key] = self._kind
            for _ in range(PATIENCE_SECONDS):
                await asyncio.sleep(0.5)
                if len(self._running()) == 2:
                    await self._end()
                    return
        except ApiError:
            pass

    def _document(self) -> dict[str, Any]:
        lasts = DRIVER_SECONDS if self._end == self._ends else LONG_SECONDS
        document = document_of(self._kind, self._name, 2, template_of(LONG_SECONDS))
        driver = template_of(lasts)
        document["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": self._chance.choice(QUEUES)}
        if self._kind == "PyTorchJob":
            document["spec"]["pytorchReplicaSpecs"]["Master"]["template"] = driver
            return document
        driver["metadata"]["annotations"]["tutti.dev/simulated-fate"] = self._chance.choice(("succeeds", "fails"))
        one = {"parallelism": 1, "completions": 1, "backoffLimit": 3, "template": template_of(LONG_SECONDS)}
        first = one | {"backoffLimit": 0, "template": driver}
        document["spec"] = {
            "successPolicy": {"operator": "All", "targetReplicatedJobs": ["driver"]},
            "replicatedJobs": [
                {"name": name, "replicas": 1, "template": {"spec": spec}}
                for name, spec in (("driver", first), ("worker", one))
            ],
        }
        return document

    async def _ends(self) -> None:
        """Let its driver end a moment after another worker was asked for."""
        await asyncio.sleep(DRIVER_SECONDS - 1 - self._retried_after_seconds - self._chance.uniform(0, 2))
        await self._lose_worker()

    async def _is_suspended(self) -> None:
        """Let its owner suspend it, most often under a leader that did not start it; later it goes on."""
        if self._chance.random() < 0.7:
            for name in self._world.end_reconcilers():
                self._world.restart_later(name)
            await asyncio.sleep(16)
        await self._lose_worker()
        await asyncio.sleep(self._retried_after_seconds + self._chance.uniform(0, 2))
        await self._world.load.suspend(NAMESPACE, self._name, True)
        await asyncio.sleep(15)
        for _ in range(PATIENCE_SECONDS):
            with suppress(ApiError):
                await self._world.load.suspend(NAMESPACE, self._name, False)
                return
            await asyncio.sleep(1)

    async def _is_deleted(self) -> None:
        """Let its owner delete it, while the ledger is written for another."""
        seconds = max(0.6, self._retried_after_seconds) + self._chance.uniform(0, 0.6)
        if not self._retried_after_seconds:
            self._ledger.stored_from = asyncio.get_running_loop().time() + WRITTEN_SECONDS
            await self._world.load.create_one("Job")
        await self._lose_worker()
        await asyncio.sleep(seconds)
        await self._api.request("DELETE", self._path, body=b'{"propagationPolicy": "Background"}')
        self._world.load.lose((NAMESPACE, self._name))

    @property
    def _retried_after_seconds(self) -> int:
        return 0 if self._kind == "PyTorchJob" else RETRIED_AFTER_SECONDS

    async def _lose_worker(self) -> None:
        worker = next((pod for pod in self._running() if "worker" in pod), None)
        if worker is not None:
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{worker}"
            await self._world.cluster.api().request("DELETE", path, body=b'{"gracePeriodSeconds": 0}')

    def _running(self) -> list[str]:
        """Return the names of its pods that run."""
        pods = self._world.cluster.server.store.items(("", "pods"))
        mine = (pod for pod in pods if pod.key[1].startswith(f"{self._name}-"))
        return [pod.key[1] for pod in mine if pod.object["status"].get("phase") == "Running"]
