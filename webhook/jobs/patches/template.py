"""Patches of one pod template: stamp it with its gang, give it the flavors' node selector and tolerations, undo that.

Built from what the record remembers of a template, so that the record need not keep the object. All operations stand
under the precondition that the object has not moved on, which is why removals and list indexes are safe.
"""

from collections.abc import Mapping

from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import Toleration
from webhook.core.model.pods import PodRecord
from webhook.core.model.policy import Flavor
from webhook.core.nodes.tiers import is_tier
from webhook.core.notation import names
from webhook.jobs.reading.record import Admission, JobRecord, Template
from webhook.untyped import paths
from webhook.untyped.editing import Patch


def preconditions(record: JobRecord | PodRecord) -> Patch:
    """Return what fails, and with it the whole patch, once the object is another one or has moved on."""
    return [
        {"op": "test", "path": "/metadata/uid", "value": record.uid},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": str(record.resource_version)},
    ]


def _metadata_pointer(template: Template) -> str:
    return f"{template.path}/metadata" if template.metadata_path is None else template.metadata_path


def _spec_pointer(template: Template) -> str:
    return f"{template.path}/spec" if template.spec_path is None else template.spec_path


def stamp(template: Template, uid: str, version: tuple[int, int]) -> Patch:
    """Write gang, pod set and ledger version on one pod template."""
    labels = {names.GANG_LABEL: uid, names.POD_SET_LABEL: template.pod_set}
    marks = {names.LEDGER_VERSION: f"{version[0]}.{version[1]}"}
    at = _metadata_pointer(template)
    if not template.has_metadata:
        return [{"op": "add", "path": at, "value": {"labels": labels, "annotations": marks}}]
    operations = _put_all(f"{at}/labels", labels, template.marks)
    return operations + _put_all(f"{at}/annotations", marks, {} if template.has_annotations else None)


def _put_all(pointer: str, wanted: Mapping[str, str], current: Mapping[str, str] | None) -> Patch:
    if current is None:
        return [{"op": "add", "path": pointer, "value": dict(wanted)}] if wanted else []
    return [
        {"op": "add", "path": f"{pointer}/{paths.escape(key)}", "value": value}
        for key, value in wanted.items()
        if current.get(key) != value
    ]


def wanted_of(
    reservation: Reservation, pod_set: str, flavors: Mapping[str, Flavor]
) -> tuple[dict[str, str], list[Toleration]]:
    """Return the node labels of the flavors and the domain assigned to one pod set, and the flavors' tolerations.

    No node bears the labels of a HyperNode: pods that have to be in one are held to its nodes by name (``pod.lift``).
    """
    reserved = reservation.pod_set(pod_set)
    assigned = [] if reserved is None else [flavors[f] for f in sorted(set(reserved.flavors.values())) if f in flavors]
    labels: dict[str, str] = {}
    tolerations: list[Toleration] = []
    for flavor in assigned:
        labels.update(flavor.node_labels)
        tolerations += [t for t in flavor.tolerations if t not in tolerations]
    if reserved is not None:
        labels.update({label: value for label, value in reserved.domain.items() if not is_tier(label)})
    return labels, tolerations


def schedule(
    template: Template,
    owners: tuple[Toleration, ...],
    wanted: tuple[dict[str, str], list[Toleration]],
    undo: Admission | None,
) -> tuple[Patch, dict[str, object]]:
    """Return the patch that takes back the last start's node selector and tolerations and writes the ``wanted`` ones,
    and what the template gains over what its owner wrote. An owner's own selector is never overwritten.
    """
    old_keys, old_count = _injections(undo, template.pod_set)
    current = template.node_selector
    theirs = {key: value for key, value in (current or {}).items() if key not in old_keys}
    labels = {key: value for key, value in wanted[0].items() if key not in theirs}
    tolerations: list[Mapping[str, object]] = [_toleration(t) for t in wanted[1] if t not in owners]
    if tolerations:
        tolerations = [*template.tolerations_along, *tolerations]
    at = _spec_pointer(template)
    operations = _replace_map(f"{at}/nodeSelector", current, {**theirs, **labels})
    operations += _replace_tail(f"{at}/tolerations", template.tolerations, old_count, tolerations)
    gained: dict[str, object] = {}
    if labels:
        gained["nodeSelector"] = sorted(labels)
    if tolerations:
        gained["tolerations"] = len(tolerations)
    return operations, gained


def _injections(undo: Admission | None, pod_set: str) -> tuple[list[str], int]:
    injected = {} if undo is None else undo.injected.get(pod_set, {})
    keys, count = injected.get("nodeSelector"), injected.get("tolerations")
    return (keys if isinstance(keys, list) else []), (count if isinstance(count, int) else 0)


def _replace_map(pointer: str, current: Mapping[str, str] | None, wanted: Mapping[str, str]) -> Patch:
    if current is None:
        return _put_all(pointer, wanted, None)
    if current and not wanted:
        return [{"op": "remove", "path": pointer}]
    gone = [{"op": "remove", "path": f"{pointer}/{paths.escape(key)}"} for key in current if key not in wanted]
    return gone + _put_all(pointer, wanted, current)


def _replace_tail(pointer: str, length: int | None, gone: int, tail: list[Mapping[str, object]]) -> Patch:
    """Replace the last ``gone`` items of a list by ``tail``."""
    if length is None:
        return [{"op": "add", "path": pointer, "value": tail}] if tail else []
    gone = min(gone, length)
    if gone and gone == length and not tail:
        return [{"op": "remove", "path": pointer}]
    operations: Patch = [{"op": "remove", "path": f"{pointer}/{length - 1 - index}"} for index in range(gone)]
    return operations + [{"op": "add", "path": f"{pointer}/-", "value": item} for item in tail]


def _toleration(toleration: Toleration) -> dict[str, object]:
    fields = ("key", "operator", "value", "effect")
    stated: dict[str, object] = {name: value for name in fields if (value := getattr(toleration, name))}
    return stated if toleration.seconds is None else {**stated, "tolerationSeconds": toleration.seconds}
