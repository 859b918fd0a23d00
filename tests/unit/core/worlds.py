"""Short ways to write policies and gangs in tests of the engine. Amounts are whole units, not thousandths."""

from collections.abc import Mapping
from random import Random
from typing import Any

from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.core.model.policy import Cohort, Flavor, FlavorQuotas, LabelSelector, Policy, Queue, Quota, ResourceGroup
from webhook.core.model.settings import EngineSettings
from webhook.core.notation.quantity import MILLI
from webhook.core.quota.fences import Fences
from webhook.core.scheduler.engine import Engine
from webhook.core.scheduler.plan import Plan

LABELS = {"team": {"kubernetes.io/metadata.name": "team"}}
"""Of all namespaces."""

Cell = int | tuple[int, int | None] | tuple[int, int | None, int | None]
"""nominal, or (nominal, borrowing limit), or (nominal, borrowing limit, lending limit)."""


def quota(cell: Cell) -> Quota:
    nominal, borrowing, lending = (*((cell,) if isinstance(cell, int) else cell), None, None)[:3]
    return Quota(
        (nominal or 0) * MILLI,
        None if borrowing is None else borrowing * MILLI,
        None if lending is None else lending * MILLI,
    )


def group(**flavors: Mapping[str, Cell]) -> ResourceGroup:
    """``group(spot={"cpu": 4}, reserved={"cpu": (2, 1)})``"""
    resources = tuple(next(iter(flavors.values())))
    return ResourceGroup(
        resources, tuple(FlavorQuotas(name, {r: quota(c) for r, c in cells.items()}) for name, cells in flavors.items())
    )


def queue(name: str, cpu: Cell | None = None, *groups: ResourceGroup, **settings: Any) -> Queue:
    """A queue with ``cpu`` of flavor ``default`` and whatever more ``groups`` say; every namespace may use it."""
    own = () if cpu is None else (group(default={"cpu": cpu}),)
    settings.setdefault("namespace_selector", LabelSelector())
    return Queue(name, settings.pop("dialect", "tutti"), resource_groups=(*own, *groups), **settings)


def cohort(name: str, parent: str | None = None, cpu: Cell | None = None, **settings: Any) -> Cohort:
    own = () if cpu is None else (group(default={"cpu": cpu}),)
    return Cohort(name, parent, own, **settings)


def policy(*nodes: Queue | Cohort, flavors: tuple[Flavor, ...] = (), **more: Any) -> Policy:
    queues = {node.name: node for node in nodes if isinstance(node, Queue)}
    cohorts = {node.name: node for node in nodes if isinstance(node, Cohort)}
    named = {f.flavor for node in nodes for g in node.resource_groups for f in g.flavors}
    known = {name: Flavor(name) for name in sorted(named)} | {flavor.name: flavor for flavor in flavors}
    return Policy(queues=queues, cohorts=cohorts, flavors=known, **more)


def gang(name: str, queue: str | None, cpu: int = 1, pods: int = 1, **settings: Any) -> Gang:
    """A gang of ``pods`` pods of ``cpu`` each, called and identified by ``name``."""
    requests = {"cpu": cpu * MILLI, **{r: a * MILLI for r, a in settings.pop("also", {}).items()}}
    pod_set = PodSet("main", pods, PodPrice(requests), settings.pop("min_count", None), **settings.pop("placement", {}))
    return Gang(
        uid=name,
        kind="Job.batch",
        namespace=settings.pop("namespace", "team"),
        name=name,
        queue=queue,
        pod_sets=settings.pop("pod_sets", (pod_set,)),
        created_seconds=settings.pop("created", 0.0),
        **settings,
    )


class World:
    """An engine with its fences and a clock that stands still until told."""

    def __init__(
        self, *nodes: Queue | Cohort, settings: EngineSettings | None = None, engine: Engine | None = None, **more: Any
    ) -> None:
        self.engine = engine or Engine(settings)
        self.fences = Fences()
        self.now = 0.0
        self.set_policy(*nodes, **more)

    def set_policy(self, *nodes: Queue | Cohort, **more: Any) -> None:
        self.policy = policy(*nodes, **more)
        self.engine.set_policy(self.policy, LABELS, self.now)

    def submit(self, *gangs: Gang) -> "World":
        for each in gangs:
            self.engine.submit(each, self.now)
        return self

    def plan(self, **options: Any) -> Plan:
        return self.engine.cycle(self.now, self.fences, epoch=1, **options)

    def cycle(self, **options: Any) -> list[str]:
        """Run a cycle and return the names of what it admitted, in order."""
        return [reservation.name for reservation in self.plan(**options).admitted]

    def end(self, *names: str) -> "World":
        for name in names:
            self.engine.release(name)
            self.fences.drop_reservation("team", name)
            self.engine.wake_namespace("team")
        return self

    def why(self, name: str) -> str:
        return str(self.engine.reason(name))

    def used(self, node: str, resource: str = "cpu") -> float:
        return sum(a for key, a in self.engine.usage(node).items() if key.resource == resource) / MILLI


def run_to_rest(made: Engine, gangs: list[Gang], chance: Random) -> None:
    """Decide until nothing moves: whoever is stopped waits again, and nobody else comes or ends."""
    waiting = {each.uid: each for each in gangs}
    going, stops, now, quiet = list[str](), 0, 1.0, 0
    owed: set[str] = set()
    coming = list(gangs)
    while quiet < 3:
        if coming:
            made.submit(coming.pop(0), now)
        now += 1
        plan = made.cycle(now, Fences(), epoch=1)
        going += [each.uid for each in plan.preempted]
        owed = (owed | {each.by for each in plan.preempted}) - {each.uid for each in plan.admitted}
        stops += len(plan.preempted)
        assert stops <= len(gangs) ** 2, "it has no end"
        quiet = 0 if plan.preempted or plan.admitted or going or coming else quiet + 1
        if going and chance.random() < 0.7:
            uid = going.pop(chance.randrange(len(going)))
            made.release(uid)
            made.submit(waiting[uid], now)
    assert not owed, "others were stopped for nothing"
    assert made.claims() == {}
