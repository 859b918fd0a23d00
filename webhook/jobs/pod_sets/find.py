"""Find the pod sets of a job object of any kind: by paths, then by the kind's built-in reader where it has one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.pod_sets.added import with_added
from webhook.jobs.pod_sets.readers import READERS, STATED_LABELS
from webhook.jobs.pod_sets.sites import PodSetSite, from_source
from webhook.jobs.pricing.context import NO_CONTEXT, ReadContext
from webhook.untyped import paths


def find_pod_sets(kind: JobKind, obj: Mapping[str, Any], context: ReadContext = NO_CONTEXT) -> list[PodSetSite]:
    """Return the pod sets of ``obj`` in their fixed order. Raises Unreadable."""
    sites: list[PodSetSite] = []
    for source in kind.pod_sets:
        sites.extend(from_source(source, obj))
    if kind.reader is not None:
        sites = READERS[kind.reader](obj, context, sites)
    if kind.added or kind.opens is not None:
        sites = with_added(kind, sites)
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
