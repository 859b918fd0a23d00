"""Histories full of ties, told in any order: what an engine decides must not depend on that order.

Everything is as alike as can be: priorities and times are the same for most gangs, queues of one cohort own the same,
and two flavors serve both resources. ``python -m tests.unit.core.histories NUMBER`` prints what so many histories
decide, for a comparison between processes that hash differently.
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from tests.unit.core.worlds import cohort, gang, group, policy, queue
from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import Gang
from webhook.core.model.policy import (
    Fungibility,
    LocalQueue,
    Policy,
    Preemption,
    PreemptionPolicy,
    SearchPolicy,
    StopPolicy,
    Strategy,
)
from webhook.core.model.settings import EngineSettings, UsageDecay
from webhook.core.notation.quantity import MILLI
from webhook.core.quota.fence import Fence
from webhook.core.quota.fences import Fences
from webhook.core.scheduler.engine import Engine
from webhook.core.scheduler.plan import Plan
from webhook.laboratory.dry_run.one_head import OneHeadEngine

FAIR = EngineSettings(fair_sharing=("LessThanOrEqualToFinalShare", "LessThanInitialShare"))
RULES: dict[str, Callable[[], Engine]] = {
    "classical": Engine,
    "fair": partial(Engine, FAIR),
    "decay": partial(
        Engine, EngineSettings(usage_decay=UsageDecay(half_life_seconds=10.0, sampling_interval_seconds=2.0))
    ),
    "one head": OneHeadEngine,
}
NAMESPACES = {name: {"kubernetes.io/metadata.name": name, "tier": "one"} for name in ("team", "other")}


def history(seed: int, order: int, rules: Callable[[], Engine]) -> list[object]:
    """Return what is decided in the history ``seed``, told in the order ``order``; 0 is the plain one."""
    return History(seed, order, rules).run()


class History:
    """One engine, and dice of two kinds: for what happens, and for the order in which it is told."""

    def __init__(self, seed: int, order: int, rules: Callable[[], Engine]) -> None:
        self.what, self.order = Random(seed), Random(order) if order else None
        self.rules, self.engine, self.fences = rules, rules(), Fences()
        self.decay = self.engine.state.usage.decayed is not None
        self.now, self.number = 0.0, 0
        self.known: dict[str, Gang] = {}
        self.admitted: dict[str, Reservation] = {}
        self.found: list[object] = []

    def run(self) -> list[object]:
        """Let things happen, a cycle after each, and return all that was decided and why the others wait."""
        self._set_policy()
        for _ in range(4):
            happens = (self._end, self._end, self._restart, self._restart, self._fence, self._set_policy)
            self.what.choice(happens)()
            self._submit()
            self._cycle()
            self._cycle()
            self.now += self.what.choice((0.0, 1.0, 3.0))
        return self.found

    # -- what happens ------------------------------------------------------------------------------------------------

    def _set_policy(self) -> None:
        drawn = _policy(self.what, decay=self.decay)
        self.names = sorted(drawn.queues)
        namespaces = {name: self._mixed_map(NAMESPACES[name]) for name in self._mixed(NAMESPACES)}
        self.engine.set_policy(self._turned(drawn), namespaces, self.now)

    def _submit(self) -> None:
        gangs = [self._gang() for _ in range(self.what.choice((3, 5, 8)))]
        for each in self._mixed(gangs):
            self.engine.submit(each, self.now)

    def _gang(self) -> Gang:
        self.number += 1
        pods = self.what.choice((1, 2, 2, 3))
        cpu = self.what.choice((1, 1, 2))
        queue_name = self.what.choice(self.names)
        found = gang(
            # Neither the order of names nor that of their coming is the other one.
            f"{self.what.randrange(1000):03}-{self.number}",
            f"local-{queue_name[-1]}{self.what.choice('xy')}" if self.decay else queue_name,
            cpu,
            pods=pods,
            also={"gpu": self.what.choice((0, 1))},
            priority=self.what.choice((0, 0, 0, 1, 2)),
            namespace=self.what.choice(("team", "team", "other")),
            created=self.what.choice((0.0, 0.0, 1.0)),
            quorum=self.what.choice((None, 1)),
            min_count=self.what.choice((None, None, None, 1)),
            max_run_seconds=self.what.choice((None, 4, 9)),
        )
        self.known[found.uid] = found
        return found

    def _end(self) -> None:
        ended = self.what.sample(sorted(self.admitted), len(self.admitted) // 2)
        for uid in self._mixed(ended):
            self._release(uid)

    def _release(self, uid: str) -> None:
        reservation = self.admitted.pop(uid)
        self.engine.release(uid)
        self.fences.drop_reservation(reservation.namespace, uid)
        self.engine.wake_namespace(reservation.namespace)

    def _fence(self) -> None:
        hard = {name: self.what.choice((4, 8, 16)) * MILLI for name in ("pods", "requests.cpu")}
        self.fences.put_fence(Fence("team", "hard", self._mixed_map(hard)))
        self.engine.wake_namespace("team")

    def _restart(self) -> None:
        """Another leader reads the ledger and what waits, in whatever order they are listed."""
        waiting = [each.uid for each in self.engine.waiting()]
        former, self.engine, self.fences = self.engine, self.rules(), Fences()
        self.engine.set_policy(self._turned(former.state.policy), NAMESPACES, self.now)
        for uid in self._mixed(self.admitted):
            self.engine.restore(self.admitted[uid], self.known[uid])
            self.fences.put_reservation(self.admitted[uid])
        for uid in self._mixed(waiting):
            self.engine.submit(self.known[uid], self.now)

    def decide(self) -> Plan:
        """Run a cycle."""
        return self.engine.cycle(self.now, self.fences, 1)

    # -- what is decided ---------------------------------------------------------------------------------------------

    def _cycle(self) -> None:
        plan = self.decide()
        self.found.append(_told(plan))
        for reservation in (*plan.admitted, *plan.grown):
            self.admitted[reservation.uid] = reservation
        self.found += [(each.uid, str(self.engine.reason(each.uid))) for each in self.engine.waiting()]
        stops = sorted({*(p.uid for p in plan.preempted), *(each.uid for each in plan.stopped)})
        for uid in self._mixed(stops):
            self.admitted[uid] = replace(self.admitted[uid], stopping="Preempted")
            self.engine.restore(self.admitted[uid])
            self.fences.put_reservation(self.admitted[uid])
        gone = [uid for uid, entry in sorted(self.admitted.items()) if entry.stopping and self.what.random() < 0.5]
        for uid in self._mixed(gone):
            self._release(uid)
            self.engine.submit(self.known[uid], self.now)

    # -- the order in which it is told -------------------------------------------------------------------------------

    def _mixed(self, found: Iterable[Any]) -> list[Any]:
        mixed = list(found)
        if self.order is not None:
            self.order.shuffle(mixed)
        return mixed

    def _mixed_map(self, found: Any) -> dict[Any, Any]:
        return {key: found[key] for key in self._mixed(found)}

    def _turned(self, found: Policy) -> Policy:
        """Return the same policy with every mapping in another order; the order of flavors in a group is a rule."""

        def groups(node: Any) -> Any:
            turned = tuple(
                replace(g, flavors=tuple(replace(f, quotas=self._mixed_map(f.quotas)) for f in g.flavors))
                for g in node.resource_groups
            )
            return replace(node, resource_groups=turned)

        return replace(
            found,
            queues={name: groups(node) for name, node in self._mixed_map(found.queues).items()},
            cohorts={name: groups(node) for name, node in self._mixed_map(found.cohorts).items()},
            flavors=self._mixed_map(found.flavors),
            local_queues=self._mixed_map(found.local_queues),
        )


def _told(plan: Plan) -> tuple[object, ...]:
    # Admissions are told in their order. What is counted is a mapping: equal whatever the order of its keys.
    return (
        [(r.uid, sorted(r.counts.items()), [sorted(s.flavors.items()) for s in r.pod_sets]) for r in plan.admitted],
        [(r.uid, sorted(r.counts.items())) for r in plan.grown],
        [(p.uid, p.by, p.reason, p.message) for p in plan.preempted],
        plan.stopped,
    )


def _policy(what: Random, *, decay: bool) -> Policy:
    """Return four queues of a cohort, or of those below it, that mostly own the same."""
    nominal = what.choice((1, 2, 4))
    never, lower, anyone = PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY

    def quotas() -> Any:
        gpu = what.choice((nominal, 2))
        return group(**{flavor: {"cpu": what.choice((nominal, nominal, 0)), "gpu": gpu} for flavor in ("b", "a")})

    strategies = (Strategy.BEST_EFFORT_FIFO, Strategy.BEST_EFFORT_FIFO, Strategy.STRICT_FIFO, Strategy.BACKFILL)
    parents = what.choice((("root",), ("root", "left"), ("left", "right")))
    stops = (*[StopPolicy.NONE] * 7, StopPolicy.HOLD_AND_DRAIN)
    queues = [
        queue(
            f"q{letter}",
            None,
            quotas(),
            cohort=what.choice(parents),
            strategy=what.choice(strategies),
            preemption=Preemption(what.choice((lower, never)), what.choice((anyone, anyone, lower, never))),
            fungibility=Fungibility(what.choice(list(SearchPolicy)), what.choice(list(SearchPolicy))),
            usage_based_ordering=decay,
            stop_policy=what.choice(stops),
        )
        for letter in "dbca"
    ]
    locals_ = {
        (namespace, f"local-{letter}{side}"): LocalQueue(namespace, f"local-{letter}{side}", f"q{letter}")
        for namespace in NAMESPACES
        for letter in "dbca"
        for side in "xy"
    }
    shared = replace(cohort("root"), resource_groups=(quotas(),))
    return policy(
        *queues, shared, cohort("right", "root"), cohort("left", "root"), local_queues=locals_ if decay else {}
    )


if __name__ == "__main__":
    for rules_name, settings in RULES.items():
        for each_seed in range(int(sys.argv[1])):
            print(rules_name, each_seed, history(each_seed, 0, settings))
