"""Find the pod sets of a job object of any kind: by paths, then by the kind's built-in reader where it has one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from webhook.jobs.kinds.kind import AddedContainer, JobKind
from webhook.jobs.pod_sets.readers import READERS, STATED_LABELS
from webhook.jobs.pod_sets.sites import PodSetSite, from_source
from webhook.jobs.pricing.context import NO_CONTEXT, ReadContext


def find_pod_sets(kind: JobKind, obj: Mapping[str, Any], context: ReadContext = NO_CONTEXT) -> list[PodSetSite]:
    """Return the pod sets of ``obj`` in their fixed order. Raises Unreadable."""
    sites: list[PodSetSite] = []
    for source in kind.pod_sets:
        sites.extend(from_source(source, obj))
    if kind.reader is not None:
        sites = READERS[kind.reader](obj, context, sites)
    names = {site.name for site in sites}
    for added in kind.added:
        if added.version in ("", kind.version) and (not added.beside or added.beside in names):
            sites = [_with_added(site, added) if _gets(site.name, added) else site for site in sites]
    return sites


def stated_labels(kind: JobKind, obj: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the pod labels that ``obj`` brings by itself, where another object is needed to find its pod sets."""
    stated = STATED_LABELS.get(kind.reader or "")
    return [] if stated is None else stated(obj)


def _gets(name: str, added: AddedContainer) -> bool:
    return name not in added.but and (not added.pod_sets or name in added.pod_sets)


def _with_added(site: PodSetSite, added: AddedContainer) -> PodSetSite:
    resources = {"requests": dict(added.requests), "limits": dict(added.limits)}
    return replace(site, added=(*site.added, {"name": "added-by-controller", "resources": resources}))
