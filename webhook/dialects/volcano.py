"""Volcano's Queue (``scheduling.volcano.sh/v1beta1``): capability, deserved and guarantee, in a tree by parent.

``capability`` is the maximum, ``deserved`` the minimum that is taken back when needed, ``guarantee`` the part of it
that is never lent. A queue with children is a cohort and takes no gangs; what ran in it before it had any still counts.
One without a parent is a child of ``root``, which need not exist. Without a capability the root is unlimited: Volcano
would use the cluster's total there, which is not written in any object. The weight is the fair-sharing weight. A queue
that states neither capability nor deserved for a resource, on its whole path, is not limited in it. An inner queue that
states no deserved amount deserves what its children do together; a leaf deserves nothing of a resource that its
``deserved`` leaves out, and as a gang that would borrow anything takes nothing back, it has to list all that is bounded
above it (in Volcano one resource within its deserved amount is enough). ``reclaimable: false`` keeps what the queue
borrows from being taken back, and the dequeue strategy ``fifo`` is StrictFIFO, ``traverse`` BestEffortFIFO.

Newer Volcano webhooks are stricter: a guarantee needs a deserved amount with it, and children with a guarantee or a
deserved amount a parent that states one, except below ``root``. Here who states none has what the guarantees and the
children need, so that queues made before still work. A capability above that of a queue above is warned of only.

Unlike with Volcano's webhook, ``root``, ``default`` and a queue with children may be deleted; a queue that holds gangs,
or has one below it that does, may not. Gangs that wait in a deleted queue are told so.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook.core.model.policy import Flavor, LabelSelector, Preemption, PreemptionPolicy, Queue, StopPolicy, Strategy
from webhook.core.notation import amounts
from webhook.dialects.cohort_graph import MOST_LEVELS
from webhook.dialects.field import Field
from webhook.dialects.fragment import Fragment, Source, opened
from webhook.dialects.limit_tree import Compiled, LimitVertex, compile_tree

GROUP: Final = "scheduling.volcano.sh"
KIND: Final = "Queue"
DIALECT: Final = "volcano"
ROOT: Final = "root"
FLAVOR: Final = "default"

_STATES: Final = {
    "Open": StopPolicy.NONE,
    "Unknown": StopPolicy.NONE,
    "Closing": StopPolicy.HOLD,
    "Closed": StopPolicy.HOLD,
}
"""A closed queue keeps what runs. Volcano's controllers close what is below it too; here its state is enough."""


_WITHOUT_EFFECT: Final = {
    "priority": "give its gangs a priority class",
    "affinity": "choose the nodes in the pod templates",
    "extendClusters": "remove it",
}
"""Fields that would change who starts or where, and what to do instead."""
_FIELDS: Final = (
    *("capability", "deserved", "guarantee", "parent", "reclaimable", "weight", "dequeueStrategy", "type"),
    *_WITHOUT_EFFECT,
)


@dataclass(slots=True)
class _Queue:
    """One Queue object as read."""

    fragment: Fragment
    at: Field
    guarantee: dict[str, int]
    deserved: dict[str, int]
    capability: dict[str, int]
    parent: str
    weight_millis: int
    stop: StopPolicy
    reclaimable: bool
    strategy: Strategy
    children: list["_Queue"] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.fragment.source.name


def cohort_name(queue: str) -> str:
    """Return the name of the cohort that a queue with children becomes."""
    return f"volcano/{queue}"


def compile_objects(objects: Iterable[Mapping[str, object]]) -> list[Fragment]:
    """Return what all Queue objects of a cluster define together: a fragment an object, the tree's cohorts in one."""
    queues = {queue.name: queue for queue in map(_read, objects) if queue.name}
    if not queues:
        return []
    tree = Fragment(Source(GROUP, KIND, "", ROOT), flavors=[Flavor(FLAVOR)])
    root = queues.get(ROOT) or _read({"metadata": {"name": ROOT}})
    for queue in queues.values():
        parent = queues.get(queue.parent, root if queue.parent == ROOT else None)
        if parent is not None and parent is not queue and queue is not root:
            parent.children.append(queue)
    in_tree = _grow(root)
    weights = {cohort_name(queue.name): queue.weight_millis for queue in queues.values()}
    compiled = compile_tree(in_tree, FLAVOR, weights)
    tree.cohorts.extend(compiled.cohorts)
    inside = {vertex.name for vertex in in_tree.walk()}
    for queue in queues.values():
        if queue.name != ROOT:
            queue.stop = _stop(queue, queues)
            _define(
                queue, compiled, None if inside & {queue.name, cohort_name(queue.name)} else _why_outside(queue, queues)
            )
    return [tree, *(queue.fragment for queue in queues.values())]


# -- reading -----------------------------------------------------------------------------------------------------------


def _read(obj: Mapping[str, object]) -> _Queue:
    fragment, at = opened(obj)
    spec = at["spec"]
    parent = spec["parent"].subdomain() or ROOT
    if fragment.source.name == ROOT:
        if spec["parent"].text():
            spec["parent"].error("the root has no parent", "remove it")
    elif fragment.source.name == parent:
        spec["parent"].error("a queue cannot be its own parent", "name another queue")
    spec.only(_FIELDS)
    spec["guarantee"].only(("resource",))
    for name, instead in _WITHOUT_EFFECT.items():
        if spec[name].value:
            spec[name].warn("has no effect in Tutti", instead)
    weight = spec["weight"].integer(least=1, most=65535)
    queue = _Queue(
        fragment=fragment,
        at=at,
        guarantee=_amounts(spec["guarantee"]["resource"]),
        deserved=_amounts(spec["deserved"]),
        capability=_amounts(spec["capability"]),
        parent=parent,
        weight_millis=1000 * (weight or 1),
        stop=at["status"]["state"].choice(StopPolicy.NONE, _STATES),
        reclaimable=spec["reclaimable"].boolean(True),
        strategy=_strategy(spec["dequeueStrategy"]),
    )
    _check_limits(queue)
    return queue


def _amounts(at: Field) -> dict[str, int]:
    return {key: amount for key, member in at.mapping().items() if (amount := member.amount()) is not None}


def _strategy(at: Field) -> Strategy:
    """Return the strategy: ``fifo`` lets nobody pass the head, ``traverse`` (the default) does."""
    if at.present and at.value not in ("fifo", "traverse"):
        at.error("is not a dequeue strategy", "write fifo or traverse")
    return Strategy.STRICT_FIFO if at.value == "fifo" else Strategy.BEST_EFFORT_FIFO


# -- rules -------------------------------------------------------------------------------------------------------------


def _check_limits(queue: _Queue) -> None:
    spec = queue.at["spec"]
    for resource, amount in sorted(queue.guarantee.items()):
        if queue.deserved and resource not in queue.deserved:
            spec["deserved"].error(f"does not list {resource}, for which a guarantee is given", "list it")
        for name, limits in (("deserved", queue.deserved), ("capability", queue.capability)):
            if amount > limits.get(resource, amount):
                spec["guarantee"]["resource"][resource].error(f"guarantee exceeds {name}", f"raise {name}")
    for resource, amount in sorted(queue.deserved.items()):
        if amount > queue.capability.get(resource, amount):
            spec["deserved"][resource].error("deserved exceeds capability", "raise capability")


def _check_children(queue: _Queue, promised: Mapping[str, int], ceiling: Mapping[str, int]) -> bool:
    """Note where the children are promised more than their parent has; return whether the parent can keep it."""
    spec, kept = queue.at["spec"], True
    for name, limits in (("deserved", queue.deserved), ("capability", queue.capability)):
        for resource, amount in sorted(promised.items()):
            if amount > limits.get(resource, amount):
                spec[name][resource].error("its children together deserve more", f"raise {name} or lower theirs")
                kept = False
    guaranteed = amounts.total(child.guarantee for child in queue.children if child.fragment.broken is None)
    for resource, amount in sorted(guaranteed.items()):
        if amount > queue.guarantee.get(resource, amount):
            at = spec["guarantee"]["resource"][resource]
            at.error("its children together are guaranteed more", "raise guarantee or lower theirs")
            kept = False
    for child in queue.children:
        for resource, amount in sorted(child.capability.items()):
            if amount > ceiling.get(resource, amount):
                child.at["spec"]["capability"][resource].warn(
                    "exceeds the capability of a queue above", "the lower of both holds"
                )
    return kept


# -- meaning -----------------------------------------------------------------------------------------------------------


def _grow(queue: _Queue, above: Mapping[str, int] | None = None, level: int = 1) -> LimitVertex:
    """Return the queue with its subtree; children that do not compile, or promise too much, are left out."""
    ceiling = {**(above or {}), **queue.capability}
    for child in queue.children if level == MOST_LEVELS else ():
        child.at["spec"]["parent"].error(f"is more than {MOST_LEVELS} levels deep", "name a parent higher up")
    children = [_grow(child, ceiling, level + 1) for child in queue.children if child.fragment.broken is None]
    promised = amounts.total(child.minimum for child in children)
    if not _check_children(queue, promised, ceiling):
        children, promised = [], {}
    minimum = amounts.maximum(amounts.maximum(promised, queue.deserved), queue.guarantee)
    lendable = {name: minimum[name] - kept for name, kept in queue.guarantee.items()}
    name = cohort_name(queue.name) if queue.children or queue.name == ROOT else queue.name
    return LimitVertex(name, minimum, queue.capability, lendable, children)


def _define(queue: _Queue, compiled: Compiled, outside: str | None) -> None:
    """Make the queue that a leaf is; a queue with children takes no gangs. ``outside`` is why it is in no tree."""
    inactive = queue.fragment.broken or outside
    if inactive is outside is not None:
        queue.at["spec"]["parent"].warn(outside, "correct the parent or name another")
    if queue.children:
        queue.fragment.queues.append(_inner(queue, None if inactive else cohort_name(queue.name)))
        return
    queue.fragment.queues.append(
        Queue(
            name=queue.name,
            dialect=DIALECT,
            cohort=None if inactive else compiled.parents[queue.name],
            resource_groups=() if inactive else compiled.groups[queue.name],
            strategy=queue.strategy,
            stop_policy=queue.stop,
            reclaimable=queue.reclaimable,
            namespace_selector=LabelSelector(),
            preemption=Preemption(PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY),
            weight_millis=queue.weight_millis,
            ignores_undeclared=True,
            inactive=inactive,
        )
    )


def _inner(queue: _Queue, cohort: str | None) -> Queue:
    """Return the queue that takes no gangs, and counts those that ran when it was given children.

    Volcano refuses children to a queue in which pods run. Which of two objects came first says nothing here.
    """
    why = queue.fragment.broken or "it has children, and gangs wait in queues without any"
    return Queue(name=queue.name, dialect=DIALECT, cohort=cohort, namespace_selector=LabelSelector(), inactive=why)


def _stop(queue: _Queue, queues: Mapping[str, _Queue]) -> StopPolicy:
    """Return whether a queue, or one above it, is closed."""
    seen: set[str] = set()
    at: _Queue | None = queue
    while at is not None and at.name not in seen and at.stop is StopPolicy.NONE:
        seen.add(at.name)
        at = queues.get(at.parent)
    return StopPolicy.NONE if at is None else at.stop


def _why_outside(queue: _Queue, queues: Mapping[str, _Queue]) -> str:
    """Return why a queue hangs in no tree: a parent above that is missing, broken or its own descendant."""
    seen = {queue.name}
    while queue.parent != ROOT or ROOT in queues:
        if queue.parent not in queues:
            return f"there is no queue {queue.parent!r}"
        queue = queues[queue.parent]
        if queue.fragment.broken is not None:
            return f"the parent queue does not compile: {queue.fragment.broken}"
        if queue.name in seen:
            break
        seen.add(queue.name)
    return "the parents form a cycle"
