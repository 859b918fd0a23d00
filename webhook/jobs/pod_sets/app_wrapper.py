"""The pod sets of an AppWrapper: those that its components declare, else those that their kinds are known to make.

Its controller infers them for a few kinds, and takes any other component without a declaration as one without pods. So
does this reader, unless the component looks as if it had some: what cannot be counted is refused by name. The inferred
pod sets must be as many, and in the same order, as the controller's own, because ``podSetInfos`` are matched to them by
position.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from webhook.core.notation.problem import Unreadable
from webhook.jobs.kinds.kind import Factor, PodSetSource
from webhook.jobs.kinds.shipped import ENTRIES, JOB, JOBSET, PYTORCHJOB, RAYCLUSTER, RAYJOB
from webhook.jobs.pod_sets.added import with_added
from webhook.jobs.pod_sets.sites import JsonPath, PodSetSite, Scaffold, from_source, read_count, refuse_too_many
from webhook.jobs.pricing.context import ReadContext
from webhook.untyped import paths
from webhook.untyped.paths import parse

Pods = tuple[Mapping[str, Any], int]
"""A pod template and how many pods are made of it."""
_SCALED: Final = (PodSetSource(template=parse("spec.template"), factors=(Factor(parse("spec.replicas")),)),)
_INFERRED: Final[Mapping[tuple[str, str], tuple[PodSetSource, ...]]] = {
    ("v1", "Pod"): (PodSetSource(template=()),),
    ("apps/v1", "Deployment"): _SCALED,
    ("apps/v1", "StatefulSet"): _SCALED,
    **{(kind.api_version, kind.kind): kind.pod_sets for kind in (JOB, JOBSET, PYTORCHJOB, RAYCLUSTER)},
    (RAYJOB.api_version, RAYJOB.kind): RAYJOB.pod_sets[:2],
}
"""By version and kind. The submitter of a RayJob is not inferred."""
_KNOWN: Final = frozenset(kind.key for kind in ENTRIES)
_ADDING: Final = {(kind.api_version, kind.kind): kind for kind in ENTRIES if kind.added or kind.opens}
"""Kinds whose controllers add something to their pods, by version and kind."""


def pod_sets(obj: Mapping[str, Any], _context: ReadContext, _sites: list[PodSetSite]) -> list[PodSetSite]:
    """Return the pod sets in order. Raises Unreadable, also when no component has any."""
    components = paths.find(obj, ("spec", "components"))
    if not isinstance(components, list) or not components:
        raise Unreadable("spec.components", "", "has no component", "write at least one")
    refuse_too_many("spec.components", len(components))
    name = paths.find(obj, ("metadata", "name")) or "component"
    sites: list[PodSetSite] = []
    for index, component in enumerate(components):
        at: JsonPath = ("spec", "components", index)
        found = list(_templates(component, at))
        refuse_too_many("spec.components", len(sites) + len(found))
        sites += _wrapped(component, at, found)
    if not sites:
        raise Unreadable("spec.components", "", "none has pods", "write podSets with replicas and path of each")
    return [replace(site, name=f"{name}-{position}") for position, site in enumerate(sites)]


def _templates(component: Any, at: JsonPath) -> Iterator[Pods]:
    declared = paths.find(component, ("podSets",))
    if isinstance(declared, list) and declared:
        refuse_too_many(paths.render((*map(str, at), "podSets")), len(declared))
        for position, pod_set in enumerate(declared):
            yield _declared(component, pod_set, (*at, "podSets", position))
        return
    template = paths.find_mapping(component, ("template",))
    version, kind = str(template.get("apiVersion")), str(template.get("kind"))
    sources = _INFERRED.get((version, kind))
    if sources is None and (f"{kind}.{version.rpartition('/')[0]}" in _KNOWN or _has_containers(template)):
        where = f"{paths.render(tuple(map(str, at)))}.podSets"
        raise Unreadable(where, "", f"declares no pods of {kind:.60}", "write replicas and path of each")
    for source in sources or ():
        for site in from_source(source, template):
            yield {"metadata": site.metadata, "spec": site.spec}, site.count


def _has_containers(node: Any) -> bool:
    if isinstance(node, dict):
        return isinstance(node.get("containers"), list) or any(map(_has_containers, node.values()))
    return isinstance(node, list) and any(map(_has_containers, node))


def _declared(component: Any, pod_set: Any, at: JsonPath) -> Pods:
    text = paths.find(pod_set, ("path",))
    template = _follow(component, text) if isinstance(text, str) else None
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        where = paths.render(tuple(map(str, at)))
        raise Unreadable(f"{where}.path", text, "leads to no pod template", "write its path")
    replicas = read_count(pod_set, ("replicas",), at)
    return template, 1 if replicas is None else replicas


def _wrapped(component: Any, at: JsonPath, found: Sequence[Pods]) -> Iterator[PodSetSite]:
    infos, place = paths.find(component, ("podSetInfos",)), (*at, "podSetInfos")
    ready = isinstance(infos, list) and len(infos) == len(found)
    scaffold = (Scaffold(place, [{} for _ in found], ready),)
    by_spec = _made(paths.find_mapping(component, ("template",)))
    for position, (template, count) in enumerate(found):
        info = infos[position] if ready and isinstance(infos[position], dict) else {}
        made = by_spec.get(id(template["spec"]))
        yield PodSetSite(
            name="",
            count=count,
            metadata=info if ready else None,
            spec=template["spec"],
            scheduling=info,
            owner_labels=paths.find_mapping(template, ("metadata", "labels")),
            scaffold=scaffold,
            metadata_path=(*place, position),
            spec_path=(*place, position),
            added=() if made is None else made.added,
            opened_port=None if made is None else made.opened_port,
        )


def _made(template: Mapping[str, Any]) -> dict[int, PodSetSite]:
    """Return by its pod spec's identity what the controller of a wrapped kind makes of each of its pod sets."""
    kind = _ADDING.get((str(template.get("apiVersion")), str(template.get("kind"))))
    sites: list[PodSetSite] = []
    with contextlib.suppress(Unreadable):
        # What cannot be read by its kind has been declared, and is counted as it was.
        for source in kind.pod_sets if kind is not None else ():
            sites += from_source(source, template)
    return {id(site.spec): site for site in with_added(kind, sites)} if kind is not None else {}


_STEP: Final = re.compile(r"([^.\[\]]+)|\[(\d{1,6})\]")


def _follow(node: Any, text: str) -> Any:
    """Return what an AppWrapper path (``template.spec.replicatedJobs[0].template``) leads to, None when nothing."""
    return paths.find_at(node, (match[1] or int(match[2]) for match in _STEP.finditer(text)))
