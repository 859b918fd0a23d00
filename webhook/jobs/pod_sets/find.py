"""Find the pod sets of a job object of any kind: by paths, then by the kind's built-in reader where it has one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from webhook.jobs.kinds.kind import AddedContainer, JobKind, OpenedPort
from webhook.jobs.pod_sets.readers import READERS, STATED_LABELS
from webhook.jobs.pod_sets.sites import PodSetSite, from_source
from webhook.jobs.pricing.context import NO_CONTEXT, ReadContext
from webhook.jobs.pricing.host_ports import ports_of
from webhook.untyped import paths

BY_CONTROLLER: Final = "added-by-controller/"
"""Before the name of a container that its kind's controller adds; no container's own name has a slash."""


def find_pod_sets(kind: JobKind, obj: Mapping[str, Any], context: ReadContext = NO_CONTEXT) -> list[PodSetSite]:
    """Return the pod sets of ``obj`` in their fixed order. Raises Unreadable."""
    sites: list[PodSetSite] = []
    for source in kind.pod_sets:
        sites.extend(from_source(source, obj))
    if kind.reader is not None:
        sites = READERS[kind.reader](obj, context, sites)
    names = {site.name for site in sites} if kind.added else ()
    for added in kind.added:
        if added.version in ("", kind.version) and (not added.beside or added.beside in names):
            sites = [_with_added(site, added) if _gets(site.name, added) else site for site in sites]
    if kind.opens is not None:
        sites = [_with_port(site, kind.opens) for site in sites]
    return [_with_injections(site, obj, context) for site in sites] if context.injections else sites


def _with_injections(site: PodSetSite, obj: Mapping[str, Any], context: ReadContext) -> PodSetSite:
    namespace = context.namespace_labels.get(str(paths.find(obj, ("metadata", "namespace"))), {})
    found = [each for each in context.injections if each.concerns(site.spec, site.pod_labels, namespace)]
    if not found:
        return site
    # Where injectors put them nobody knows: a pod asks most where sidecars are first, and what ends comes last.
    last = (each.container() for each in found if each.ends)
    first = tuple(each.container() for each in found if not each.ends)
    return replace(site, added=(*site.added, *last), added_first=first)


def stated_labels(kind: JobKind, obj: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the pod labels that ``obj`` brings by itself, where another object is needed to find its pod sets."""
    stated = STATED_LABELS.get(kind.reader or "")
    return [] if stated is None else stated(obj)


def _gets(name: str, added: AddedContainer) -> bool:
    return name not in added.but and (not added.pod_sets or name in added.pod_sets)


def _with_port(site: PodSetSite, opened: OpenedPort) -> PodSetSite:
    has = any(port.get("name") == opened.name for port in ports_of(site.spec))
    return site if has else replace(site, opened_port=opened.number)


def _with_added(site: PodSetSite, added: AddedContainer) -> PodSetSite:
    resources = {"requests": dict(added.requests), "limits": dict(added.limits)}
    return replace(site, added=(*site.added, {"name": BY_CONTROLLER + added.name, "resources": resources}))
