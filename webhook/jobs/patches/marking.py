"""The patches made from a whole object: ``mark`` at creation, ``strip`` at uninstallation.

``mark`` is what the mutating webhook answers: hold the job at its kind's suspend field (or with a scheduling gate on
its pod templates), put the gang and pod set labels on every pod template, drop whatever a user wrote in our name.
Both are computed as "what the object should be" and then as the difference, so both are idempotent and smallest.
"""

from collections.abc import Collection, Mapping
from typing import Any

from webhook.core.notation import names
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.pod_sets.sites import JsonPath, PodSetSite
from webhook.jobs.pricing.context import NO_CONTEXT, ReadContext
from webhook.jobs.reading import annotations, status
from webhook.jobs.reading.gating import readable_sites
from webhook.jobs.reading.ours import OWN_ANNOTATIONS
from webhook.jobs.reading.record import Admission
from webhook.untyped import editing, paths
from webhook.untyped.editing import Patch, put_if_possible

GATE = {"name": names.SCHEDULING_GATE}


def mark(
    kind: JobKind, obj: Mapping[str, Any], context: ReadContext = NO_CONTEXT, gang: str = names.GANG_PENDING
) -> Patch:
    """Return the patch that holds ``obj`` until it is admitted; empty when it is held already.

    ``gang`` is the gang label, which says by which rule it waits.
    ``context`` matters to kinds whose pods another object describes (TrainJob): without it they are held, not labelled.
    """
    plain = _plain_patch(kind, obj, context, gang)
    return editing.diff(obj, marked(kind, obj, context, gang)) if plain is None else plain


def _plain_patch(kind: JobKind, obj: Mapping[str, Any], context: ReadContext, gang: str) -> Patch | None:
    """Return the patch of the ordinary case, written down without making the object it leads to; None for any other.

    The webhook answers thousands of these a second. Ordinary is: a suspend field whose parent exists, pod templates
    with nothing of ours in them. The general way says the same, only slower; a test holds the two together.
    """
    special = kind.suspend is None or kind.scheduling_gated or kind.given_manager
    parent = None if special or kind.suspend is None else paths.find(obj, kind.suspend[:-1])
    if kind.suspend is None or not isinstance(parent, dict) or _has_own_annotations(obj.get("metadata")):
        return None
    patch: Patch = []
    if parent.get(kind.suspend[-1]) is not True:
        patch.append(_set(parent, kind.suspend[-1], paths.pointer(*kind.suspend), True))
    for site in readable_sites(kind, obj, context):
        if site.metadata_path is None:
            continue
        template = None if site.template_path is None or site.scaffold else paths.find_at(obj, site.template_path)
        if not isinstance(template, dict) or _has_own_annotations(template.get("metadata")):
            return None
        wanted = {names.GANG_LABEL: gang, names.POD_SET_LABEL: site.name}
        where, metadata = paths.pointer(*site.metadata_path), template.get("metadata")
        if metadata is None:
            patch.append(_set(template, "metadata", where, {"labels": wanted}))
            continue
        labels = metadata.get("labels")
        if labels is None:
            patch.append(_set(metadata, "labels", f"{where}/labels", wanted))
            continue
        if not isinstance(labels, dict):
            return None
        for key, value in wanted.items():
            if labels.get(key) != value:
                patch.append(_set(labels, key, f"{where}/labels/{paths.escape(key)}", value))
    return patch


def _has_own_annotations(metadata: object) -> bool:
    """Return whether there is something of ours to drop; true for what is too malformed to tell."""
    if not isinstance(metadata, dict):
        return metadata is not None
    annotations = metadata.get("annotations")
    return annotations is not None and (
        not isinstance(annotations, dict) or not OWN_ANNOTATIONS.isdisjoint(annotations)
    )


def _set(parent: Mapping[str, Any], key: str, pointer: str, value: object) -> editing.Operation:
    return {"op": "replace" if key in parent else "add", "path": pointer, "value": value}


def strip(kind: JobKind, obj: Mapping[str, Any], context: ReadContext, *, suspend: bool | None) -> Patch:
    """Return the patch that takes everything of ours off ``obj``: annotations, labels, gates, what a start injected.

    Pod templates are touched only while the API server accepts that; the labels that stay on a running Job do nothing
    without Tutti. ``suspend`` sets the suspend field as well (False lets a waiting job go); None leaves it. That a hub
    places the job stays, as its ``managedBy`` would: a member may have it.
    """
    return editing.diff(obj, stripped(kind, obj, context, suspend=suspend))


def marked(
    kind: JobKind, obj: Mapping[str, Any], context: ReadContext = NO_CONTEXT, gang: str = names.GANG_PENDING
) -> Mapping[str, Any]:
    """Return ``obj`` as ``mark`` makes it. What is too malformed to edit stays: validation will refuse it."""
    changed: Any = _without_own_annotations(obj, ("metadata",))
    if kind.suspend is not None and paths.find(obj, kind.suspend) is not True:
        changed = put_if_possible(changed, kind.suspend, True)
    if kind.given_manager and _is_ordinary(kind, paths.find(changed, kind.placed_by)):
        changed = put_if_possible(changed, kind.placed_by, kind.given_manager)
    for site in readable_sites(kind, obj, context):
        if site.metadata_path is None:
            continue
        changed = with_scaffold(changed, site)
        changed = put_if_possible(changed, (*site.metadata_path, "labels", names.GANG_LABEL), gang)
        changed = put_if_possible(changed, (*site.metadata_path, "labels", names.POD_SET_LABEL), site.name)
        changed = _without_own_annotations(changed, site.metadata_path)
        if kind.scheduling_gated:
            changed = _gated(changed, site)
    return changed if isinstance(changed, dict) else obj


def with_scaffold(node: Any, site: PodSetSite) -> Any:
    """Return an object with what has to be there before its pod set can be marked."""
    for part in site.scaffold:
        if paths.find_at(node, part.place) is None:
            node = put_if_possible(node, part.place, part.value)
    return node


def _is_ordinary(kind: JobKind, manager: object) -> bool:
    """Return whether a job is left to its kind's ordinary controller: a definition may write that one by default."""
    return not manager or manager in kind.managers


def stripped(kind: JobKind, obj: Mapping[str, Any], context: ReadContext, *, suspend: bool | None) -> Mapping[str, Any]:
    """Return ``obj`` as ``strip`` makes it."""
    changed: Any = obj
    suspended = kind.suspend is None or paths.find(obj, kind.suspend) is True
    if status.restorable(kind, obj, suspended, status.active(kind, obj)):
        start = last_start(obj)
        sites = readable_sites(kind, obj, context)
        for site in sites:
            changed = _without_ours(changed, kind, site)
            changed = changed if start is None else _undone(changed, site, start)
        for site in sites:
            for part in reversed(site.scaffold):
                changed = _without_scaffold(changed, part.place, part.value)
    changed = _without_own_annotations(changed, ("metadata",), prune=True, but=names.MANAGED_BY)
    if suspend is not None and kind.suspend is not None and suspended is not suspend:
        changed = put_if_possible(changed, kind.suspend, suspend)
    return changed if isinstance(changed, dict) else obj


def gate_pod(pod: Mapping[str, Any], gang: str) -> Patch:
    """Return the patch that holds a plain pod of a PodGroup at creation: our scheduling gate and its gang's uid.

    A pod that names its node already could not be gated; it is labelled all the same, and refused for it.
    """
    changed: Any = _without_own_annotations(pod, ("metadata",))
    changed = put_if_possible(changed, ("metadata", "labels", names.GANG_LABEL), gang)
    changed = editing.drop(changed, ("metadata", "labels", names.POD_SET_LABEL))
    gates = paths.find(pod, ("spec", "schedulingGates"))
    if paths.find(pod, ("spec", "nodeName")):
        return editing.diff(pod, changed)
    if not isinstance(gates, list):
        changed = put_if_possible(changed, ("spec", "schedulingGates"), [GATE])
    elif GATE not in gates:
        changed = put_if_possible(changed, ("spec", "schedulingGates"), [*gates, GATE])
    return editing.diff(pod, changed)


def prefer_nodes(pod: Mapping[str, Any], nodes: Collection[str], own: str | None = None) -> Patch:
    """Return the patch by which a pod prefers ``nodes``, given by name, and its ``own`` before the others."""
    place = ("spec", "affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution")
    before = paths.find(pod, place) or []
    if not isinstance(before, list):
        return []
    wishes = [_wish(nodes), *([] if own is None or len(nodes) == 1 else [_wish([own])])]
    added = [wish for wish in wishes if wish not in before]
    return editing.diff(pod, put_if_possible(pod, place, [*before, *added])) if added else []


def _wish(nodes: Collection[str]) -> dict[str, Any]:
    asked = {"key": names.HOSTNAME, "operator": "In", "values": sorted(nodes)}
    return {"weight": 100, "preference": {"matchExpressions": [asked]}}


def _gated(node: Any, site: PodSetSite) -> Any:
    gates = site.scheduling.get("schedulingGates") or []
    if site.spec_path is None or not isinstance(gates, list) or GATE in gates:
        return node
    return put_if_possible(node, (*site.spec_path, "schedulingGates"), [*gates, GATE])


def _without_own_annotations(node: Any, metadata_path: JsonPath, *, prune: bool = False, but: str = "") -> Any:
    own = paths.find_at(node, (*metadata_path, "annotations"))
    if isinstance(own, dict):
        for name in sorted((OWN_ANNOTATIONS & own.keys()) - {but}):
            node = editing.drop(node, (*metadata_path, "annotations", name), prune=prune)
    return node


def _without_ours(node: Any, kind: JobKind, site: PodSetSite) -> Any:
    if site.metadata_path is None:
        return node
    for label in (names.GANG_LABEL, names.POD_SET_LABEL):
        node = editing.drop(node, (*site.metadata_path, "labels", label), prune=True)
    node = _without_own_annotations(node, site.metadata_path, prune=True)
    gates = site.scheduling.get("schedulingGates")
    if kind.scheduling_gated and site.spec_path is not None and isinstance(gates, list) and GATE in gates:
        node = editing.drop(node, (*site.spec_path, "schedulingGates", gates.index(GATE)), prune=True)
    return node


def _without_scaffold(node: Any, place: JsonPath, value: Any) -> Any:
    """Drop a scaffold that holds nothing any more."""
    found = paths.find_at(node, place)
    return editing.drop(node, place) if found is not None and _essence(found) == _essence(value) else node


def _essence(node: Any) -> Any:
    if isinstance(node, dict):
        kept = {key: _essence(value) for key, value in node.items()}
        return {key: value for key, value in kept.items() if value not in ({}, None)}
    return [_essence(item) for item in node] if isinstance(node, list) else node


def _undone(node: Any, site: PodSetSite, start: Admission) -> Any:
    """Take back what a start injected into one pod set."""
    injected = start.injected.get(site.name, {})
    keys, count = injected.get("nodeSelector"), injected.get("tolerations")
    if site.spec_path is not None:
        for key in keys if isinstance(keys, list) else ():
            node = editing.drop(node, (*site.spec_path, "nodeSelector", key), prune=True)
        tolerations = site.scheduling.get("tolerations")
        if isinstance(count, int) and count > 0 and isinstance(tolerations, list):
            kept = tolerations[:-count]
            place = (*site.spec_path, "tolerations")
            node = put_if_possible(node, place, kept) if kept else editing.drop(node, place)
    original = annotations.original_count(start, site.name, site.count_written)
    if original is not None and site.count_path is not None:
        node = put_if_possible(node, site.count_path, original)
        node = node if site.count_follower is None else put_if_possible(node, site.count_follower, original)
    return node


def last_start(obj: Mapping[str, Any]) -> Admission | None:
    """Return the start whose injections are still in the object, whether it runs or was stopped."""
    own = paths.find_mapping(obj, ("metadata", "annotations"))
    uid = paths.find(obj, ("metadata", "uid"))
    if not isinstance(uid, str):
        return None
    requeue = annotations.decode_requeue(own.get(names.REQUEUE), uid)
    return annotations.decode_admission(own.get(names.ADMISSION), uid) or (requeue.undo if requeue else None)
