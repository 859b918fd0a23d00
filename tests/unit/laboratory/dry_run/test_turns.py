"""Whose turn it is, cycle by cycle: random queues against a model of Kueue's queues.

The model is written from Kueue's rules as plainly as can be: one resource of one flavor, one cohort without limits,
preemption within a queue, everything computed again. It knows where gangs wait (in the queue, or set aside until
something ends), who goes first, which steps aside for which, and in Kueue's words what each was told.
"""

from dataclasses import dataclass, field
from random import Random

import pytest

from tests.unit.core.worlds import World, gang, queue
from webhook.core.model.policy import LabelSelector, Preemption, PreemptionPolicy, Strategy
from webhook.core.reasons.reasons import Code, Reason
from webhook.laboratory.dry_run.one_head import OneHeadEngine

TEAM = LabelSelector({"kubernetes.io/metadata.name": "team"})
ODD = Reason(Code.MISCONFIGURED, "its pods could not be created")


@dataclass(frozen=True)
class Asks:
    uid: str
    queue: str
    cpu: int
    priority: int
    created: int
    known: bool
    """Its namespace is selected."""
    sound: bool

    @property
    def place(self) -> tuple[int, int, str]:
        return (-self.priority, self.created, self.uid)

    def like(self, other: "Asks") -> bool:
        return (self.cpu, self.priority) == (other.cpu, other.priority)


@dataclass
class Turns:
    nominal: dict[str, int]
    strict: set[str]
    preempting: set[str]
    cohort: set[str]
    queued: dict[str, list[Asks]]
    ineligible: dict[str, list[Asks]]
    running: dict[str, list[Asks]]
    first: dict[str, str] = field(default_factory=dict)
    """Queue to the gang for which others were stopped."""
    told: dict[str, str] = field(default_factory=dict)

    def used(self, name: str) -> int:
        return sum(each.cpu for each in self.running[name])

    def tree(self, name: str) -> set[str]:
        return self.cohort if name in self.cohort else {name}

    def owned(self, name: str) -> int:
        return sum(self.nominal[each] for each in self.tree(name))

    def room(self, used: dict[str, int], name: str) -> int:
        return max(0, self.owned(name) - sum(used[each] for each in self.tree(name)))

    def borrows(self, used: dict[str, int], gang: Asks) -> bool:
        return gang.queue in self.cohort and used[gang.queue] + gang.cpu > self.nominal[gang.queue]

    def victims(self, used: dict[str, int], gang: Asks) -> list[Asks]:
        found: list[Asks] = []
        used = dict(used)
        lower = [each for each in self.running[gang.queue] if each.priority < gang.priority]
        for each in sorted(lower, key=lambda each: (each.priority, each.uid)):
            if gang.cpu <= self.room(used, gang.queue):
                break
            used[gang.queue] -= each.cpu
            found.append(each)
        if gang.queue not in self.preempting or gang.cpu > self.room(used, gang.queue):
            return []
        for number in range(len(found) - 2, -1, -1):
            used[gang.queue] += found[number].cpu
            if gang.cpu <= self.room(used, gang.queue):
                found[number] = found[-1]
                found.pop()
            else:
                used[gang.queue] -= found[number].cpu
        return found

    def pop(self, name: str) -> Asks | None:
        def place(each: Asks) -> tuple[bool, tuple[int, int, str]]:
            return (name in self.strict or self.first.get(name) != each.uid, each.place)

        head = min(self.queued[name], key=place, default=None)
        if head is not None:
            self.queued[name].remove(head)
        return head

    def cycle(self) -> tuple[list[str], set[tuple[str, str]]]:
        used = {name: self.used(name) for name in self.nominal}
        heads = [head for name in self.nominal if (head := self.pop(name)) is not None]
        nominated = []
        for head in heads:
            if not head.known or not head.sound:
                self.told[head.uid] = "Misconfigured"
                self.put_back(head, "" if head.known else "strange")
                continue
            level, victims, mode = self.nominate(used, head)
            nominated.append((level, head.place, head, victims, mode))
        admitted: list[Asks] = []
        stopped: list[tuple[Asks, Asks]] = []
        for level, _, head, victims, mode in sorted(nominated, key=lambda each: each[:2]):
            if mode in ("no", "nobody"):
                if mode == "nobody":
                    own = max(0, min(head.cpu, self.nominal[head.queue] - used[head.queue]))
                    used[head.queue] += head.cpu if level else own
                self.put_back(head, "like")
                continue
            left = dict(used)
            for victim in [*(victim for victim, _ in stopped), *victims]:
                left[victim.queue] -= victim.cpu
            if head.cpu > self.room(left, head.queue):
                self.told[head.uid] = "WaitingForQuota"
                self.put_back(head, "again")
                continue
            used[head.queue] += head.cpu
            if mode == "fits":
                admitted.append(head)
            else:
                stopped += [(victim, head) for victim in victims]
                self.told[head.uid] = "WaitingForPreemptedWorkloads"
                self.put_back(head, "preempts")
        for each in admitted:
            self.running[each.queue].append(each)
        self.let_go([victim for victim, _ in stopped])
        return [each.uid for each in admitted], {(victim.uid, by.uid) for victim, by in stopped}

    def nominate(self, used: dict[str, int], head: Asks) -> tuple[int, list[Asks], str]:
        level = int(self.borrows(used, head))
        if head.cpu > self.owned(head.queue):
            self.told[head.uid] = "ExceedsMaxQuota"
            return 0, [], "no"
        if head.cpu <= self.room(used, head.queue):
            return level, [], "fits"
        self.told[head.uid] = "WaitingForQuota"
        if self.nominal[head.queue] < head.cpu and (level or head.queue not in self.cohort):
            return 0, [], "no"
        victims = self.victims(used, head)
        if not victims:
            return level, [], "nobody"
        left = {**used, head.queue: used[head.queue] - sum(each.cpu for each in victims)}
        return int(self.borrows(left, head)), victims, "preempts"

    def put_back(self, head: Asks, why: str) -> None:
        name = head.queue
        if why == "preempts":
            self.first[name] = head.uid
        elif self.first.get(name) == head.uid:
            del self.first[name]
        if why in ("again", "preempts") or (name in self.strict and why != "strange"):
            self.queued[name].append(head)
            return
        self.ineligible[name].append(head)
        for other in [each for each in self.queued[name] if why == "like" and each.like(head)]:
            self.told[other.uid] = self.told[head.uid]
            self.queued[name].remove(other)
            self.ineligible[name].append(other)

    def let_go(self, victims: list[Asks]) -> None:
        for name in {name for victim in victims for name in self.tree(victim.queue)}:
            self.queued[name] += [each for each in self.ineligible[name] if each.known]
            self.ineligible[name] = [each for each in self.ineligible[name] if not each.known]
        for victim in victims:
            self.running[victim.queue].remove(victim)
            self.queued[victim.queue].append(victim)
            self.told.pop(victim.uid, None)


def drawn(dice: Random) -> Turns:
    names = [f"q{i}" for i in range(dice.choice((1, 2, 3)))]

    def some(chance: float) -> set[str]:
        return {name for name in names if dice.random() < chance}

    def asks(uid: str, *, runs: bool) -> Asks:
        sizes, priorities = ((1, 2, 3), (0, 0, 1)) if runs else ((1, 1, 2, 2, 3, 5, 9), (0, 0, 1, 2))
        known, sound = runs or dice.random() < 0.75, runs or dice.random() < 0.85
        created = 0 if runs else dice.choice((1, 1, 2, 3))
        return Asks(uid, dice.choice(names), dice.choice(sizes), dice.choice(priorities), created, known, sound)

    waiting = [asks(f"{dice.randrange(100):02}-{i}", runs=False) for i in range(dice.randint(2, 9))]
    running = [asks(f"r{i}", runs=True) for i in range(dice.randint(0, 4))]
    return Turns(
        {name: dice.choice((0, 2, 3, 4)) for name in names},
        some(0.35),
        some(0.6),
        some(0.8),
        {name: [each for each in waiting if each.queue == name] for name in names},
        {name: [] for name in names},
        {name: [each for each in running if each.queue == name] for name in names},
    )


def world_of(model: Turns) -> tuple[World, dict[str, Asks]]:
    roomy = {name: nominal + 99 for name, nominal in model.nominal.items()}

    def queues(nominal: dict[str, int]) -> list[object]:
        lower = Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY)
        return [
            queue(
                name,
                amount,
                cohort="all" if name in model.cohort else None,
                strategy=Strategy.STRICT_FIFO if name in model.strict else Strategy.BEST_EFFORT_FIFO,
                preemption=lower if name in model.preempting else Preemption(),
                namespace_selector=TEAM,
            )
            for name, amount in nominal.items()
        ]

    world = World(*queues(roomy), engine=OneHeadEngine())
    for running in model.running.values():
        for each in running:
            submit(world, each)
            assert world.cycle() == [each.uid]
    world.set_policy(*queues(model.nominal))
    everybody = {each.uid: each for lists in (model.queued, model.running) for some in lists.values() for each in some}
    for waiting in model.queued.values():
        for each in waiting:
            submit(world, each)
    return world, everybody


def submit(world: World, each: Asks) -> None:
    world.submit(
        gang(
            each.uid,
            each.queue,
            each.cpu,
            priority=each.priority,
            created=float(each.created),
            namespace="team" if each.known else "strange",
            refusal=None if each.sound else ODD,
        )
    )


@pytest.mark.parametrize("seed", range(80))
def test_each_cycle_is_the_one_of_a_model_of_kueues_queues(seed: int) -> None:
    model = drawn(Random(seed))
    world, everybody = world_of(model)
    for number in range(12):
        plan = world.plan()
        stopped = {(each.uid, each.by) for each in plan.preempted}
        assert ([each.uid for each in plan.admitted], stopped) == model.cycle(), f"cycle {number}"
        for uid, _ in stopped:
            world.end(uid)
            submit(world, everybody[uid])
        for each in world.engine.waiting():
            reason = world.engine.reason(each.uid)
            assert reason is not None
            assert reason.code == model.told.get(each.uid, "PendingEvaluation"), f"{each.name} after cycle {number}"
