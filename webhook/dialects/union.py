"""The union of what all policy objects define: one Policy.

A bad object only deactivates itself. Two objects that define the same thing are a conflict: what they define is
inactive until one of them goes, because choosing one would be a guess. References that dangle (a flavor, a cluster
queue) and cycles of cohorts deactivate what depends on them, as in Kueue, and are mended by a later object. Quota trees
are closed: a Kueue queue or cohort cannot join one.
"""

from collections.abc import Iterable, MutableMapping
from dataclasses import replace
from typing import Final, TypeVar

from webhook.core.policy import Cohort, Diagnostic, Flavor, LocalQueue, Policy, Queue, ResourceGroup
from webhook.dialects import kueue
from webhook.dialects.cohort_graph import cycles
from webhook.dialects.fragment import Fragment
from webhook.dialects.place import Place

Key = TypeVar("Key")
Thing = TypeVar("Thing")

_FLAVOR_OF_TREE: Final = "/spec/root/attributes/resourceflavors"


class PolicyUnion:
    """Fragments on their way to a Policy."""

    def __init__(self, fragments: Iterable[Fragment]) -> None:
        self._fragments = list(fragments)
        self._queues: dict[str, tuple[Queue, Fragment]] = {}
        self._cohorts: dict[str, tuple[Cohort, Fragment]] = {}
        self._flavors: dict[str, tuple[Flavor, Fragment]] = {}
        self._local_queues: dict[tuple[str, str], tuple[LocalQueue, Fragment]] = {}
        self._priority_classes: dict[str, tuple[int, Fragment]] = {}
        self._barred: dict[str, str] = {}
        """Cohort to why no queue at or below it may admit."""

    def policy(self) -> Policy:
        """Return the Policy."""
        self._gather()
        self._imply_flavors()
        self._bar_cohorts()
        cohorts = self._cohort_tree()
        queues = {name: self._settled(queue, fragment) for name, (queue, fragment) in self._queues.items()}
        for local, fragment in self._local_queues.values():
            if local.queue not in self._queues or self._queues[local.queue][0].dialect != kueue.DIALECT:
                _note(fragment, "/spec/clusterQueue", local.queue, "there is no such ClusterQueue yet", "create it")
        return Policy(
            queues=queues,
            cohorts=cohorts,
            flavors={name: flavor for name, (flavor, _) in self._flavors.items()},
            local_queues={key: local for key, (local, _) in self._local_queues.items()},
            namespace_queues={k: v for f in self._fragments for k, v in f.namespace_queues.items()},
            queue_aliases={k: v for f in self._fragments for k, v in f.queue_aliases.items()},
            priority_classes={name: value for name, (value, _) in self._priority_classes.items()},
            diagnostics=self._diagnostics(),
        )

    # -- collecting ----------------------------------------------------------------------------------------------------

    def _gather(self) -> None:
        parts = self._fragments
        for name in _collect(self._queues, ((queue.name, queue, f) for f in parts for queue in f.queues)):
            queue, fragment = self._queues[name]
            why = f"two objects define the queue {name!r}; remove one of them"
            self._queues[name] = (Queue(name, queue.dialect, inactive=why), fragment)
        kueues = [fragment for fragment in parts if fragment.source.group == kueue.GROUP]
        for flavor in _collect(self._flavors, ((flavor.name, flavor, f) for f in kueues for flavor in f.flavors)):
            del self._flavors[flavor]
        for handle in _collect(
            self._local_queues, (((local.namespace, local.name), local, f) for f in parts for local in f.local_queues)
        ):
            del self._local_queues[handle]
        for name in _collect(
            self._priority_classes, ((name, value, f) for f in parts for name, value in f.priority_classes.items())
        ):
            del self._priority_classes[name]
        for fragment in parts:
            for cohort in fragment.cohorts:
                self._add_cohort(cohort, fragment)

    def _add_cohort(self, cohort: Cohort, fragment: Fragment) -> None:
        known = self._cohorts.get(cohort.name)
        if known is None:
            self._cohorts[cohort.name] = (cohort, fragment)
            if fragment.broken is not None:
                self._barred[cohort.name] = fragment.broken
            return
        # A quota tree keeps its cohorts whatever Kueue objects call themselves; whichever came first.
        if fragment.source.group == known[1].source.group:
            self._barred[cohort.name] = f"two objects define the cohort {cohort.name!r}; remove one of them"
        intruder = fragment if fragment.source.group == kueue.GROUP else known[1]
        if fragment is not intruder:
            self._cohorts[cohort.name] = (cohort, fragment)
        _note(intruder, "/metadata/name", cohort.name, "is a cohort of another object too", "rename it", warning=False)

    def _imply_flavors(self) -> None:
        """Define the flavors that quota trees are accounted in, unless a ResourceFlavor of the name exists."""
        for fragment in self._fragments:
            for flavor in fragment.flavors if fragment.source.group != kueue.GROUP else ():
                known = self._flavors.setdefault(flavor.name, (flavor, fragment))[0]
                if known != flavor:
                    _note(
                        fragment,
                        _FLAVOR_OF_TREE,
                        flavor.name,
                        "a ResourceFlavor of this name ties its gangs to nodes",
                        "rename that ResourceFlavor if this is not meant",
                    )

    # -- what depends on what ------------------------------------------------------------------------------------------

    def _bar_cohorts(self) -> None:
        for cohort, fragment in self._cohorts.values():
            owner = self._cohorts.get(cohort.parent or "")
            if owner is not None and owner[1].source.group != fragment.source.group:
                why = f"the cohort {cohort.parent!r} belongs to {owner[1].source}"
                _note(fragment, "/spec/parentName", cohort.parent or "", why, "name another cohort", warning=False)
                self._barred[cohort.name] = why
        for name, loop in cycles({name: cohort.parent for name, (cohort, _) in self._cohorts.items()}).items():
            why = f"the cohorts form a cycle: {' -> '.join((*loop, loop[0]))}"
            self._barred[name] = why
            cohort, fragment = self._cohorts[name]
            if name in loop:
                _note(fragment, "/spec/parentName", cohort.parent or "", why, "name another parent")
                self._cohorts[name] = (replace(cohort, parent=None), fragment)

    def _cohort_tree(self) -> dict[str, Cohort]:
        """Return all cohorts, those too that are only named; no cycle and no foreign parent is left."""
        result = {}
        for name, (cohort, fragment) in self._cohorts.items():
            barred_group = self._cohorts.get(cohort.parent or "", (cohort, fragment))[1].source.group
            foreign = barred_group != fragment.source.group
            result[name] = replace(cohort, parent=None) if foreign else cohort
            for index, flavor in _flavors_of(cohort.resource_groups):
                if flavor not in self._flavors:
                    _note(fragment, index, flavor, "there is no such ResourceFlavor yet", "create it")
        named = [cohort.parent for cohort in result.values()] + [queue.cohort for queue, _ in self._queues.values()]
        for name_or_none in named:
            if name_or_none is not None:
                result.setdefault(name_or_none, Cohort(name_or_none))
        return result

    def _settled(self, queue: Queue, fragment: Fragment) -> Queue:
        """Return the queue as it takes part: inactive when something that it depends on is missing or barred."""
        if queue.inactive is not None:
            return queue
        path, value, why = self._obstacle(queue)
        if not why:
            return queue
        if path == "foreign":
            _note(fragment, "/spec/cohortName", value, why, "name another cohort", warning=False)
            return replace(queue, cohort=None, inactive=why)
        _note(fragment, path, value, why, "the queue is inactive until this is mended")
        return replace(queue, inactive=why)

    def _obstacle(self, queue: Queue) -> tuple[str, str, str]:
        """Return where, what and why a queue cannot admit; empty texts when nothing is in its way."""
        for path, flavor in _flavors_of(queue.resource_groups):
            if flavor not in self._flavors:
                where = path if queue.dialect == kueue.DIALECT else _FLAVOR_OF_TREE
                return where, flavor, f"there is no ResourceFlavor {flavor!r}"
        owner = self._cohorts.get(queue.cohort or "")
        if queue.dialect == kueue.DIALECT and owner is not None and owner[1].source.group != kueue.GROUP:
            return "foreign", queue.cohort or "", f"the cohort {queue.cohort!r} belongs to {owner[1].source}"
        at = queue.cohort
        while at is not None:
            if at in self._barred:
                return "/spec/cohortName", queue.cohort or "", self._barred[at]
            at = self._cohorts[at][0].parent if at in self._cohorts else None
        return "", "", ""

    def _diagnostics(self) -> tuple[Diagnostic, ...]:
        return tuple(
            dict.fromkeys(
                replace(problem, path=f"{fragment.source}#{problem.path}")
                for fragment in self._fragments
                for problem in fragment.problems
            )
        )


def _collect(
    table: MutableMapping[Key, tuple[Thing, Fragment]], things: Iterable[tuple[Key, Thing, Fragment]]
) -> set[Key]:
    """Fill a table; note at both objects what two of them define, and return the keys of it."""
    clashes = set()
    for key, thing, fragment in things:
        known = table.setdefault(key, (thing, fragment))[1]
        if known is fragment:
            continue
        clashes.add(key)
        for one, other in ((fragment, known), (known, fragment)):
            if one.source != other.source:
                message = f"{other.source} defines it too, so neither is used"
                _note(one, "/metadata/name", one.source.name, message, "rename one of them", warning=False)
    return clashes


def _note(fragment: Fragment, path: str, value: str, message: str, fix: str, *, warning: bool = True) -> None:
    place = Place(value, path, fragment.problems)
    (place.warn if warning else place.error)(message, fix)


def _flavors_of(groups: tuple[ResourceGroup, ...]) -> Iterable[tuple[str, str]]:
    """Yield the flavors of resource groups with the JSON pointers that they stand at."""
    for i, group in enumerate(groups):
        for j, quotas in enumerate(group.flavors):
            yield f"/spec/resourceGroups/{i}/flavors/{j}/name", quotas.flavor
