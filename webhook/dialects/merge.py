"""Policy objects of all dialects together: the way into this package.

``compile_policy`` makes the Policy that the engine decides by; ``validate`` answers the policy webhook.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from webhook.core.policy import Diagnostic, Policy
from webhook.dialects import elastic_quota_tree, kueue, resource_quota, volcano
from webhook.dialects.fragment import Fragment, Source, source_of
from webhook.dialects.place import Place
from webhook.dialects.union import PolicyUnion

PolicyObject = Mapping[str, object]
_RESOURCE_QUOTA: Final = ("", "ResourceQuota")


def compile_policy(objects: Iterable[PolicyObject]) -> Policy:
    """Return the Policy that ``objects`` make together. Never raises: what is wrong is in ``Policy.diagnostics``.

    A diagnostic's path is the object and a JSON pointer into it: ``ClusterQueue research#/spec/cohortName``.
    """
    return PolicyUnion(_fragments(objects)).policy()


def validate(obj: PolicyObject, others: Iterable[PolicyObject]) -> tuple[Diagnostic, ...]:
    """Return what would be wrong if ``obj`` were stored beside ``others``; errors refuse it, warnings do not.

    ``others`` may hold the stored version of the same object, which it replaces. Reported is what ``obj`` adds, in
    itself (paths are JSON pointers into it) or to other objects (paths name them).
    """
    source = source_of(obj)
    if (source.group, source.kind) == _RESOURCE_QUOTA:
        return resource_quota.compile_object(obj)[1]
    changes: list[Diagnostic] = []
    rest = []
    for other in others:
        if source_of(other) == source:
            changes += kueue.immutable_changes(other, obj)
        else:
            rest.append(other)
    before = set(compile_policy(rest).diagnostics)
    added = [found for found in compile_policy([*rest, obj]).diagnostics if found not in before]
    return (*changes, *(replace(found, path=found.path.removeprefix(f"{source}#")) for found in added))


def _fragments(objects: Iterable[PolicyObject]) -> list[Fragment]:
    """Return each object's fragment. An object given twice alike (as resource and in the ConfigMap) counts once."""
    seen: dict[Source, PolicyObject] = {}
    fragments: list[Fragment] = []
    queues: list[PolicyObject] = []
    for obj in objects:
        source = source_of(obj)
        twin = seen.get(source)
        seen.setdefault(source, obj)
        if twin is not None:
            if any(twin.get(key) != obj.get(key) for key in ("spec", "value")):
                fragments.append(_twice(obj, source))
        elif (source.group, source.kind) == (volcano.GROUP, volcano.KIND):
            queues.append(obj)
        elif (source.group, source.kind) != _RESOURCE_QUOTA:
            fragments.append(_compile(obj, source))
    return [*fragments, *volcano.compile_objects(queues)]


def _compile(obj: PolicyObject, source: Source) -> Fragment:
    if source.group == kueue.GROUP:
        return kueue.compile_object(obj)
    if (source.group, source.kind) == (elastic_quota_tree.GROUP, elastic_quota_tree.KIND):
        return elastic_quota_tree.compile_object(obj)
    fragment = Fragment(source)
    Place(obj.get("kind"), "/kind", fragment.problems).warn(
        f"is not a policy kind of the group {source.group!r}", "write a kind of Kueue, ElasticQuotaTree or Volcano"
    )
    return fragment


def _twice(obj: PolicyObject, source: Source) -> Fragment:
    """Return a fragment that clashes with the other object of this name, so that neither of them is believed."""
    fragment = _compile(obj, source) if source.group != volcano.GROUP else Fragment(source)
    Place(source.name, "/metadata/name", fragment.problems).error(
        "a different object of this kind and name exists, for example in the ConfigMap", "remove one of them"
    )
    return fragment
