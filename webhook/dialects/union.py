"""The union of what all policy objects define: one Policy.

A bad object only deactivates itself. Two objects that define the same thing are a conflict: what they define is
inactive until one of them goes, because choosing one would be a guess. References that dangle (a flavor, its topology,
a cluster queue) and cycles of cohorts deactivate what depends on them, as in Kueue, and are mended by a later object.
Quota trees are closed: a Kueue queue or cohort cannot join one.
"""

from collections.abc import Iterable, MutableMapping
from dataclasses import replace
from typing import Final, TypeVar

from webhook.core.model.policy import Cohort, Flavor, HyperNode, LocalQueue, Policy, Queue, ResourceGroup, Topology
from webhook.core.notation.problem import Problem
from webhook.dialects.cohort_graph import MOST_LEVELS, cycles, too_deep
from webhook.dialects.fragment import Fragment
from webhook.dialects.kueue import checks as kueue_checks
from webhook.dialects.kueue import objects as kueue

Key = TypeVar("Key")
Thing = TypeVar("Thing")

_FLAVOR_OF_TREE: Final = "/spec/root/attributes/resourceflavors"


class PolicyUnion:
    """Fragments on their way to a Policy."""

    def __init__(self, fragments: Iterable[Fragment], *, hub: bool = False) -> None:
        """``hub``: as of a ``PolicyCompiler``."""
        self._fragments = list(fragments)
        self._hub = hub
        self._queues: dict[str, tuple[Queue, Fragment]] = {}
        self._cohorts: dict[str, tuple[Cohort, Fragment]] = {}
        self._flavors: dict[str, tuple[Flavor, Fragment]] = {}
        self._topologies: dict[str, tuple[Topology, Fragment]] = {}
        self._hyper_nodes: dict[str, tuple[HyperNode, Fragment]] = {}
        self._local_queues: dict[tuple[str, str], tuple[LocalQueue, Fragment]] = {}
        self._priority_classes: dict[str, tuple[int, Fragment]] = {}
        self._checks = {name: check for f in self._fragments for name, check in f.admission_checks.items()}
        self._barred: dict[str, str] = {}
        """Cohort to why no queue at or below it may admit."""
        self._notes: dict[Fragment, list[Problem]] = {fragment: [] for fragment in self._fragments}
        """What is wrong beyond the object itself; fragments are not changed, so that they can be kept."""

    def policy(self) -> Policy:
        """Return the Policy."""
        self._gather()
        self._give_levels()
        self._imply_flavors()
        self._bar_cohorts()
        cohorts = self._cohort_tree()
        queues = {name: self._settled(queue, fragment) for name, (queue, fragment) in self._queues.items()}
        for local, fragment in self._local_queues.values():
            if local.queue and local.queue not in self._queues:
                self._note(
                    fragment, "/spec/clusterQueue", local.queue, "there is no such ClusterQueue yet", "create it"
                )
        return Policy(
            queues=queues,
            cohorts=cohorts,
            flavors={name: flavor for name, (flavor, _) in self._flavors.items()},
            local_queues={key: local for key, (local, _) in self._local_queues.items()},
            namespace_queues={k: v for f in self._fragments for k, v in f.namespace_queues.items()},
            queue_aliases={k: v for f in self._fragments for k, v in f.queue_aliases.items()},
            priority_classes={name: value for name, (value, _) in self._priority_classes.items()},
            hyper_nodes=tuple(each for _, (each, _) in sorted(self._hyper_nodes.items())),
            problems=self._problems(),
        )

    # -- collecting ----------------------------------------------------------------------------------------------------

    def _gather(self) -> None:
        parts = self._fragments
        clashes = self._collect(self._queues, ((queue.name, queue, f) for f in parts for queue in f.queues))
        for name, (queue, fragment) in clashes.items():
            why = f"two objects define the queue {name!r}; remove one of them"
            self._queues[name] = (Queue(name, queue.dialect, inactive=why), fragment)
        kueues = [fragment for fragment in parts if fragment.source.group == kueue.GROUP]
        self._collect(self._flavors, ((each.name, each, f) for f in kueues for each in f.flavors))
        self._collect(self._topologies, ((each.name, each, f) for f in parts for each in f.topologies))
        self._collect(self._hyper_nodes, ((each.name, each, f) for f in parts for each in f.hyper_nodes))
        self._collect(
            self._local_queues, (((local.namespace, local.name), local, f) for f in parts for local in f.local_queues)
        )
        classes = ((name, value, f) for f in parts for name, value in f.priority_classes.items())
        self._collect(self._priority_classes, classes)
        for fragment in parts:
            for cohort in fragment.cohorts:
                self._add_cohort(cohort, fragment)

    def _collect(
        self, table: MutableMapping[Key, tuple[Thing, Fragment]], things: Iterable[tuple[Key, Thing, Fragment]]
    ) -> dict[Key, tuple[Thing, Fragment]]:
        """Fill a table but for what two objects define: that is noted at both, and returned."""
        clashes = set()
        for key, thing, fragment in things:
            known = table.setdefault(key, (thing, fragment))[1]
            if known is fragment:
                continue
            clashes.add(key)
            for one, other in ((fragment, known), (known, fragment)):
                if one.source != other.source:
                    message = f"{other.source} defines it too, so neither is used"
                    self._note(one, "/metadata/name", one.source.name, message, "rename one of them", warning=False)
        return {key: table.pop(key) for key in clashes}

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
        self._note(
            intruder, "/metadata/name", cohort.name, "is a cohort of another object too", "rename it", warning=False
        )

    def _give_levels(self) -> None:
        """Give flavors the levels of their topologies."""
        for name, (flavor, fragment) in self._flavors.items():
            if flavor.topology in self._topologies:
                levels = self._topologies[flavor.topology][0].levels
                self._flavors[name] = (replace(flavor, levels=levels), fragment)
            elif flavor.topology is not None:
                why, fix = "there is no such Topology yet", "create it; queues of the flavor are inactive until then"
                self._note(fragment, "/spec/topologyName", flavor.topology, why, fix)

    def _imply_flavors(self) -> None:
        """Define the flavors that quota trees are accounted in, unless a ResourceFlavor of the name exists."""
        for fragment in self._fragments:
            for flavor in fragment.flavors if fragment.source.group != kueue.GROUP else ():
                known = self._flavors.setdefault(flavor.name, (flavor, fragment))[0]
                if known != flavor:
                    self._note(
                        fragment,
                        _FLAVOR_OF_TREE,
                        flavor.name,
                        "a ResourceFlavor of this name ties its gangs to nodes",
                        "rename that ResourceFlavor if this is not meant",
                    )

    # -- what depends on what ------------------------------------------------------------------------------------------

    def _bar_cohorts(self) -> None:
        for cohort, fragment in list(self._cohorts.values()):
            foreign = self._foreign(cohort.parent, fragment)
            if foreign is not None:
                self._note(
                    fragment, "/spec/parentName", cohort.parent or "", foreign, "name another cohort", warning=False
                )
                self._barred[cohort.name] = foreign
                self._cohorts[cohort.name] = (replace(cohort, parent=None), fragment)
        for name, loop in cycles(self._parents()).items():
            why = f"the cohorts form a cycle: {' -> '.join((*loop, loop[0]))}"
            self._barred[name] = why
            cohort, fragment = self._cohorts[name]
            if name in loop:
                self._note(fragment, "/spec/parentName", cohort.parent or "", why, "name another parent")
                self._cohorts[name] = (replace(cohort, parent=None), fragment)
        for name in too_deep(self._parents()):
            self._barred[name] = why = f"the cohort {name!r} is more than {MOST_LEVELS} levels deep"
            cohort, fragment = self._cohorts[name]
            self._note(fragment, "/spec/parentName", cohort.parent or "", why, "name a parent higher up")
            self._cohorts[name] = (replace(cohort, parent=None), fragment)

    def _parents(self) -> dict[str, str | None]:
        return {name: cohort.parent for name, (cohort, _) in self._cohorts.items()}

    def _foreign(self, cohort: str | None, fragment: Fragment) -> str | None:
        """Return why an object of this dialect cannot join ``cohort``, or None when it can."""
        owner = self._cohorts.get(cohort or "")
        if owner is None or owner[1].source.group == fragment.source.group:
            return None
        return f"the cohort {cohort!r} belongs to {owner[1].source}"

    def _cohort_tree(self) -> dict[str, Cohort]:
        """Return all cohorts, those too that are only named."""
        result = {name: cohort for name, (cohort, _) in self._cohorts.items()}
        for cohort, fragment in self._cohorts.values():
            self._note_missing_flavors(cohort, fragment, "the cohort has no such quota until then")
        named = [cohort.parent for cohort in result.values()] + [queue.cohort for queue, _ in self._queues.values()]
        for name in named:
            if name is not None:
                result.setdefault(name, Cohort(name))
        return result

    def _note_missing_flavors(self, node: Queue | Cohort, fragment: Fragment, until: str) -> list[str]:
        missing = [(path, name) for path, name in _flavors_of(node.resource_groups) if name not in self._flavors]
        for path, name in missing:
            where = path if fragment.source.group == kueue.GROUP else _FLAVOR_OF_TREE
            self._note(fragment, where, name, "there is no such ResourceFlavor yet", f"create it; {until}")
        return [name for _, name in missing]

    def _note_missing_topologies(self, queue: Queue, fragment: Fragment) -> list[str]:
        missing = []
        for path, name in _flavors_of(queue.resource_groups):
            flavor = self._flavors[name][0]
            if flavor.topology is not None and not flavor.levels:
                why = f"there is no Topology {flavor.topology!r}, which ResourceFlavor {name!r} names"
                where = path if fragment.source.group == kueue.GROUP else _FLAVOR_OF_TREE
                self._note(fragment, where, name, why, "create it; the queue is inactive until then")
                missing.append(why)
        return missing

    def _settled(self, queue: Queue, fragment: Fragment) -> Queue:
        """Return the queue as it takes part: inactive when something that it depends on is missing or barred."""
        checks = fragment.check_rules.get(queue.name, ())
        unchecked = kueue_checks.verdict(checks, self._checks, hub=self._hub)
        if unchecked is not None:
            self._note(fragment, checks[0].path, checks[0].name, unchecked.why, unchecked.fix)
        if queue.inactive is not None:
            return queue
        if unchecked is not None:
            return replace(queue, inactive=unchecked.why, inactive_reason=unchecked.reason)
        missing = self._note_missing_flavors(queue, fragment, "the queue is inactive until then")
        if missing:
            why = f"there is no ResourceFlavor {', '.join(map(repr, missing))}"
            return replace(queue, inactive=why, inactive_reason="FlavorNotFound")
        dangling = self._note_missing_topologies(queue, fragment)
        if dangling:
            return replace(queue, inactive="; ".join(dangling), inactive_reason="TopologyNotFound")
        named = queue.cohort or ""
        foreign = self._foreign(queue.cohort, fragment)
        if foreign is not None:
            self._note(fragment, "/spec/cohortName", named, foreign, "name another cohort", warning=False)
            return replace(queue, cohort=None, inactive=foreign)
        barred = self._barred_above(queue.cohort)
        if barred is None:
            return queue
        where = "/spec/cohortName" if fragment.source.group == kueue.GROUP else "/spec"
        self._note(fragment, where, named, barred, "the queue is inactive until this is corrected")
        return replace(queue, inactive=barred)

    def _barred_above(self, cohort: str | None) -> str | None:
        at = cohort
        while at is not None and at not in self._barred:
            at = self._cohorts[at][0].parent if at in self._cohorts else None
        return None if at is None else self._barred[at]

    def _note(self, fragment: Fragment, path: str, value: str, message: str, fix: str, *, warning: bool = True) -> None:
        self._notes[fragment].append(Problem(path, value, message, fix, warning))

    def _problems(self) -> tuple[Problem, ...]:
        return tuple(
            dict.fromkeys(
                replace(problem, path=f"{fragment.source}#{problem.path}")
                for fragment in self._fragments
                for problem in (*fragment.problems, *self._notes[fragment])
            )
        )


def _flavors_of(groups: tuple[ResourceGroup, ...]) -> Iterable[tuple[str, str]]:
    """Yield the flavors of resource groups with the JSON pointers that they stand at."""
    for i, group in enumerate(groups):
        for j, quotas in enumerate(group.flavors):
            yield f"/spec/resourceGroups/{i}/flavors/{j}/name", quotas.flavor
