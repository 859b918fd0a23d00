"""Policy objects of all dialects together: the way into this package.

``compile_policy`` makes the Policy that the engine decides by; ``validate`` answers the policy webhook.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from webhook.core.model.policy import Policy, Queue
from webhook.core.notation.problem import Problem
from webhook.dialects import elastic_quota_tree, hyper_nodes, resource_quota, volcano
from webhook.dialects.field import Field
from webhook.dialects.fragment import Fragment, Source, source_of
from webhook.dialects.kueue import objects as kueue
from webhook.dialects.kueue import updates as kueue_updates
from webhook.dialects.union import PolicyUnion

PolicyObject = Mapping[str, object]
_RESOURCE_QUOTA: Final = ("", "ResourceQuota")


class PolicyCompiler:
    """Compiles policies one after another; objects that are the same Python object as last time are not read again."""

    def __init__(self, *, hub: bool = False) -> None:
        """``hub``: of a hub's cluster, in which AdmissionChecks are among the objects."""
        self._hub = hub
        self._kept: dict[Source, tuple[PolicyObject, Fragment]] = {}

    def compile(self, objects: Iterable[PolicyObject]) -> Policy:
        """Return the Policy that ``objects`` make together. Never raises: what is wrong is in its problems.

        A problem's path is the object and a JSON pointer into it: ``ClusterQueue research#/spec/cohortName``.
        """
        kept: dict[Source, tuple[PolicyObject, Fragment]] = {}
        clashes: list[Fragment] = []
        queues: dict[Source, PolicyObject] = {}
        for obj in objects:
            source = source_of(obj)
            if (source.group, source.kind) == _RESOURCE_QUOTA:
                continue
            twin = queues.get(source) or kept.get(source, (None,))[0]
            if twin is not None:
                clashes += _clash(twin, obj, source)
            elif (source.group, source.kind) == (volcano.GROUP, volcano.KIND):
                queues[source] = obj
            else:
                known = self._kept.get(source)
                kept[source] = known if known is not None and known[0] is obj else (obj, _compile(obj, source))
        self._kept = kept
        fragments = [fragment for _, fragment in kept.values()]
        return PolicyUnion([*fragments, *clashes, *volcano.compile_objects(queues.values())], hub=self._hub).policy()


def compile_policy(objects: Iterable[PolicyObject]) -> Policy:
    """Return the Policy that ``objects`` make together, as ``PolicyCompiler.compile`` does."""
    return PolicyCompiler().compile(objects)


def validate(
    obj: PolicyObject,
    others: Iterable[PolicyObject],
    compiler: PolicyCompiler | None = None,
    old: PolicyObject | None = None,
) -> tuple[Problem, ...]:
    """Return what would be wrong if ``obj`` were stored together with ``others``; errors refuse it, warnings do not.

    ``others`` may hold the stored version of the same object, which it replaces; ``old`` is that where they do not.
    Reported is what ``obj`` adds, in itself (paths are JSON pointers into it) or to other objects (paths name them).
    A ``compiler`` that is kept from one call to the next reads only what has changed.
    """
    source = source_of(obj)
    if (source.group, source.kind) == _RESOURCE_QUOTA:
        return resource_quota.compile_object(obj)[1]
    changes: list[Problem] = []
    tolerated: set[str] = set()
    rest, twins = [], []
    for other in others:
        of_other = source_of(other)
        if of_other == source:
            twins.append(other)
        elif _concerned(of_other, source):
            rest.append(other)
    for twin in twins or ([] if old is None else [old]):
        changes += kueue_updates.immutable_changes(twin, obj)
        tolerated |= kueue_updates.tolerated_paths(twin, obj)
    compiler = compiler or PolicyCompiler()
    before = set(compiler.compile(rest).problems)
    added = [found for found in compiler.compile([*rest, obj]).problems if found not in before]
    own = [replace(found, path=found.path.removeprefix(f"{source}#")) for found in added]
    return (*changes, *(replace(found, warning=found.warning or found.path in tolerated) for found in own))


def _concerned(other: Source, changed: Source) -> bool:
    """Return whether a change of one object can make another wrong, or be wrong because of it.

    Of LocalQueues there are thousands: each hangs on its ClusterQueue alone, and that on none of them.
    """
    if other.kind == "LocalQueue":
        return False
    if changed.group != kueue.GROUP:
        return True
    return changed.kind != "WorkloadPriorityClass" or other.kind == changed.kind


def _compile(obj: PolicyObject, source: Source) -> Fragment:
    if source.group == kueue.GROUP:
        return kueue.compile_object(obj)
    if (source.group, source.kind) == (elastic_quota_tree.GROUP, elastic_quota_tree.KIND):
        return elastic_quota_tree.compile_object(obj)
    if (source.group, source.kind) == (hyper_nodes.GROUP, hyper_nodes.KIND):
        return hyper_nodes.compile_object(obj)
    fragment = Fragment(source)
    Field(obj.get("kind"), "/kind", fragment.problems).warn(
        f"is not a policy kind of the group {source.group!r}", "write a kind of Kueue, ElasticQuotaTree or Volcano"
    )
    return fragment


def _clash(one: PolicyObject, other: PolicyObject, source: Source) -> list[Fragment]:
    """Return a fragment that keeps both objects of one name from being believed; none when they say the same."""
    if all(one.get(key) == other.get(key) for key in ("spec", "value")):
        return []
    if (source.group, source.kind) == (volcano.GROUP, volcano.KIND):
        fragment = Fragment(source, queues=[Queue(source.name, volcano.DIALECT)])
    else:
        fragment = _compile(other, source)
    Field(source.name, "/metadata/name", fragment.problems).error(
        "a different object of this kind and name exists, for example in the ConfigMap", "remove one of them"
    )
    return [fragment]
