"""What Tutti wrote into pod templates, put back where a change leaves it out.

Who applies a manifest again does not mean to take it away: of a custom resource ``kubectl apply`` replaces whole lists,
and so does server-side apply where a list is atomic, with all that others had written into their items.
"""

from collections.abc import Mapping
from typing import Any

from webhook.core.notation import names
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.patches.marking import last_start, with_scaffold
from webhook.jobs.pod_sets.sites import PodSetSite
from webhook.jobs.pricing.context import NO_CONTEXT, ReadContext
from webhook.jobs.reading.gating import readable_sites
from webhook.jobs.reading.ours import OWN_ANNOTATIONS, OWN_LABELS
from webhook.jobs.reading.record import Admission
from webhook.untyped.editing import put_if_possible
from webhook.untyped.values import mapping


def with_kept_marks(
    kind: JobKind, obj: Mapping[str, Any], old: Mapping[str, Any], context: ReadContext = NO_CONTEXT
) -> Mapping[str, Any]:
    """Return ``obj`` with the marks that pod sets had in ``old``, and what their start injected, where these are gone.

    A pod set that is new is marked as the others. What is there with another value stays: validation refuses it.
    """
    before = {site.name: site for site in readable_sites(kind, old, context)}
    gang = next((site.labels[names.GANG_LABEL] for site in before.values() if names.GANG_LABEL in site.labels), None)
    if gang is None:
        return obj
    changed: Any = obj
    for site in readable_sites(kind, obj, context):
        if site.metadata_path is None or names.GANG_LABEL in site.labels:
            continue
        was, changed = before.get(site.name), with_scaffold(changed, site)
        marks = {names.GANG_LABEL: gang, names.POD_SET_LABEL: site.name}
        if was is not None:
            marks = {key: was.labels[key] for key in sorted(OWN_LABELS & was.labels.keys())}
            changed = _with_annotations(changed, site, was)
            changed = _with_schedule(changed, site, was, last_start(old))
        for key, value in marks.items():
            changed = put_if_possible(changed, (*site.metadata_path, "labels", key), value)
    return changed if isinstance(changed, dict) else obj


def _with_annotations(node: Any, site: PodSetSite, was: PodSetSite) -> Any:
    for key in sorted(OWN_ANNOTATIONS & was.annotations.keys()):
        node = put_if_possible(node, (*(site.metadata_path or ()), "annotations", key), was.annotations[key])
    return node


def _with_schedule(node: Any, site: PodSetSite, was: PodSetSite, start: Admission | None) -> Any:
    """Put back the node labels and tolerations that a start injected: its pods may go nowhere else."""
    injected = {} if start is None else start.injected.get(site.name, {})
    keys, count = injected.get("nodeSelector"), injected.get("tolerations")
    if site.spec_path is None:
        return node
    had, has = (mapping(each.scheduling.get("nodeSelector")) for each in (was, site))
    for key in keys if isinstance(keys, list) else ():
        if key in had and key not in has:
            node = put_if_possible(node, (*site.spec_path, "nodeSelector", key), had[key])
    last, own = (each.scheduling.get("tolerations") or [] for each in (was, site))
    if isinstance(count, int) and count > 0 and isinstance(last, list) and isinstance(own, list):
        last = last[-count:]
        if own[-count:] != last:
            node = put_if_possible(node, (*site.spec_path, "tolerations"), [*own, *last])
    return node
