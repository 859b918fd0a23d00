"""A whole simulated cluster: server, router, controllers, nodes. The composition root of this package."""

from collections.abc import Callable, Iterable, Mapping
from random import Random
from types import TracebackType
from typing import Final

import orjson

from webhook.clock import Clock, LoopClock
from webhook.laboratory.simulated.api import SimulatedApi, WritePoint
from webhook.laboratory.simulated.controllers.base import Controller, Pace
from webhook.laboratory.simulated.controllers.garbage import GarbageCollector
from webhook.laboratory.simulated.controllers.jobs import JobController
from webhook.laboratory.simulated.controllers.jobsets import JobSetController
from webhook.laboratory.simulated.controllers.namespaces import NamespaceController, QuotaController
from webhook.laboratory.simulated.controllers.nodes import Kubelet, Scheduler
from webhook.laboratory.simulated.controllers.training import TrainingOperator
from webhook.laboratory.simulated.faults import FaultPlan
from webhook.laboratory.simulated.objects.resources import RELEASE
from webhook.laboratory.simulated.objects.store import DEFAULT_HISTORY, Backup, Stored
from webhook.laboratory.simulated.requests.identity import ADMIN, Call, User
from webhook.laboratory.simulated.requests.refusals import Json, Refused
from webhook.laboratory.simulated.requests.router import Router
from webhook.laboratory.simulated.server import SimulatedServer

_FIRST_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")


class SimulatedCluster:
    """Server and controllers of one cluster; ``async with`` starts and stops the controllers.

    Everything in it is a function of ``rng``, of what it is asked, and of the order in which the loop runs.
    """

    def __init__(
        self,
        rng: Random,
        *,
        clock: Clock | None = None,
        pace: Pace | None = None,
        history: int = DEFAULT_HISTORY,
        namespaces: Iterable[str] = (),
        release: int = RELEASE,
    ) -> None:
        """``release`` is the minor release of Kubernetes to be, where releases differ in what is modelled."""
        self.server = SimulatedServer(_child(rng), clock or LoopClock(), history=history, release=release)
        self.router = Router(self.server)
        pace = pace or Pace()
        self.controllers: list[Controller] = [
            JobController(self.server, _child(rng), pace),
            JobSetController(self.server, _child(rng), pace),
            TrainingOperator(self.server, _child(rng), pace),
            Scheduler(self.server, _child(rng), pace),
            Kubelet(self.server, _child(rng), pace),
            GarbageCollector(self.server, _child(rng), pace),
            NamespaceController(self.server, _child(rng), pace),
            QuotaController(self.server, _child(rng), pace),
        ]
        self._namespaces = (*_FIRST_NAMESPACES, *namespaces)

    async def start(self) -> None:
        """Create the first namespaces and start the controllers."""
        for name in self._namespaces:
            await self.create({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}})
        for controller in self.controllers:
            controller.start()

    async def stop(self) -> None:
        """Stop the controllers."""
        for controller in self.controllers:
            await controller.stop()

    async def __aenter__(self) -> "SimulatedCluster":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def restore(self, backup: Backup, *, bumped: bool = False) -> None:
        """Set the store back to ``backup``, as ``Store.restore`` says; the controllers start over."""
        self.server.store.restore(backup, bumped=bumped)
        for controller in self.controllers:
            controller.begin_again()

    def api(
        self,
        user: User = ADMIN,
        faults: FaultPlan | None = None,
        on_write: Callable[[WritePoint], None] | None = None,
        on_date: Callable[[float], object] | None = None,
    ) -> SimulatedApi:
        """Return a new connection to the server; ``on_date`` is told by each answer what time it is."""
        return SimulatedApi(self.router, user, faults, on_write, on_date)

    async def create(self, item: Json, user: User = ADMIN) -> Stored:
        """Create an object as ``user``; ``item`` is left as it is. Raises Refused."""
        resource = self.server.registry.of_kind(item["apiVersion"], item["kind"])
        if resource is None:
            raise Refused(404, "NotFound", f'no matches for kind "{item["kind"]}" in version "{item["apiVersion"]}"')
        namespace = item["metadata"].get("namespace", "default") if resource.namespaced else ""
        return await self.server.create(resource, namespace, orjson.loads(orjson.dumps(item)), Call(user))

    async def add_node(self, name: str, *, labels: Mapping[str, str] | None = None, **allocatable: str) -> Stored:
        """Add a node; ``allocatable`` keys are resource names with ``_`` for ``-`` where needed, plus ``gpu``."""
        room = {"cpu": "64", "memory": "512Gi", "pods": "110", **allocatable}
        gpus = room.pop("gpu", None)
        if gpus is not None:
            room["nvidia.com/gpu"] = gpus
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
        ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
        status = {"capacity": room, "allocatable": room, "conditions": ready}
        return await self.create(
            {"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": {}, "status": status}
        )


def _child(rng: Random) -> Random:
    return Random(rng.getrandbits(64))  # noqa: S311 - a simulation's chance, not a secret
