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
    changed, start = obj, last_start(old)
    for site in readable_sites(kind, obj, context):
        was = before.get(site.name)
        if names.GANG_LABEL not in site.labels:
            changed = _with_marks(with_scaffold(changed, site), site, was, gang)
        if was is not None and start is not None:
            changed = _with_schedule(changed, site, was, start)
    return changed if isinstance(changed, dict) else obj


def _with_marks(node: Any, site: PodSetSite, was: PodSetSite | None, gang: str) -> Any:
    labels = {names.GANG_LABEL: gang, names.POD_SET_LABEL: site.name}
    notes: Mapping[str, Any] = {}
    if was is not None:
        labels = {key: was.labels[key] for key in sorted(OWN_LABELS & was.labels.keys())}
        notes = {key: was.annotations[key] for key in sorted(OWN_ANNOTATIONS & was.annotations.keys())}
    if site.metadata_path is not None:
        for form, marks in (("labels", labels), ("annotations", notes)):
            for key, value in marks.items():
                node = put_if_possible(node, (*site.metadata_path, form, key), value)
    return node


def _with_schedule(node: Any, site: PodSetSite, was: PodSetSite, start: Admission) -> Any:
    """Put back the node labels and tolerations that a start injected: its pods may go nowhere else.

    These tolerations stay the last ones. A stop takes as many away, from the end.
    """
    injected = start.injected.get(site.name, {})
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
            theirs = [each for each in own if each not in last]
            node = put_if_possible(node, (*site.spec_path, "tolerations"), [*theirs, *last])
    return node
