"""Read one object of a known job kind into a ``JobRecord``: its gang, where it stands, and where to patch it.

Pure, and total: odd input becomes a ``problem``.
"""

from collections.abc import Mapping, Sequence
from sys import intern
from typing import Any, Final

import orjson

from webhook.core.fleet import text as placed
from webhook.core.fleet.dispatch import NOWHERE, Dispatch, DispatchPhase
from webhook.core.fleet.permit import permits
from webhook.core.model.gang import Gang
from webhook.core.model.interning import interned
from webhook.core.notation import names
from webhook.core.notation.problem import Problem
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.pod_sets.sites import PodSetSite
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.pricing.injections import containers_of
from webhook.jobs.pricing.limit_ranges import out_of_bounds
from webhook.jobs.reading import annotations, status
from webhook.jobs.reading.gang import read_gang, run_limit_seconds
from webhook.jobs.reading.gating import for_a_member, gang_owner, managed_by_other, queue_label
from webhook.jobs.reading.made_for import made_for, owners_named
from webhook.jobs.reading.record import Bystander, JobRecord, Template
from webhook.untyped import paths
from webhook.untyped.values import integer, mapping, seconds, text

_EMPTY: Final[dict[str, Any]] = {}


def document_of(raw: bytes) -> dict[str, Any]:
    """Return the object in ``raw``. Raises ValueError where that is not JSON."""
    document: dict[str, Any] = orjson.loads(raw)
    return document


def read(
    kind: JobKind, obj: Mapping[str, Any], context: ReadContext, kinds: Mapping[str, JobKind] = KINDS
) -> JobRecord:
    """Return what ``obj`` asks and where it stands. Never raises: what cannot be read becomes ``problem``."""
    obj = mapping(obj)
    metadata = paths.find_mapping(obj, ("metadata",))
    own = metadata.get("annotations")
    marks = mapping(own)
    uid = text(metadata.get("uid"))
    given_up = is_given_up(marks, uid)
    asking, dispatch = read_gang(kind, obj, context), _dispatch(kind, marks)
    gang, sites, admission = asking.gang, asking.sites, asking.admission
    for pod_set in () if gang is None else gang.pod_sets:
        pod_set.share_price()
    suspended = admission is None if kind.suspend is None else paths.find(obj, kind.suspend) is True
    active, finished = status.active(kind, obj), _finished(kind, obj, dispatch)
    owner, queue = gang_owner(kind, obj, kinds), queue_label(obj, kind)
    asks_itself = queue is not None or (gang is not None and gang.pod_group is not None)
    by_label = owner is None and (not asks_itself or _is_bare(kind, sites))
    return JobRecord(
        kind=kind.key,
        version=kind.version,
        namespace=intern(text(metadata.get("namespace"))),
        name=text(metadata.get("name")),
        uid=uid,
        resource_version=integer(metadata.get("resourceVersion")),
        created_seconds=seconds(metadata.get("creationTimestamp")),
        gang=gang,
        problem=asking.problem,
        queue_label=queue,
        owner=owner,
        suspended=suspended,
        finished=finished,
        active=active,
        ready=finished is not None or (gang is not None and status.ready(kind, obj, gang.counts)),
        deleting=metadata.get("deletionTimestamp") is not None,
        marked=any(names.GANG_LABEL in site.labels for site in sites),
        restorable=status.restorable(kind, obj, suspended, active),
        start_time_left=status.start_time_left(kind, obj, suspended, active),
        for_a_member=for_a_member(kind, obj),
        managed_by_other=managed_by_other(kind, obj),
        has_annotations=isinstance(own, dict),
        admission=admission,
        requeue=asking.requeue,
        held=bool(marks) and annotations.decode_hold(marks.get(names.HOLD), uid),
        ended=interned(asking.ended),
        spared=asking.spared,
        gives_back=status.gives_back(kind),
        winding_down=status.winding_down(kind, obj),
        templates=tuple(_template(site, uid) for site in sites if site.metadata_path is not None),
        generation=integer(metadata.get("generation")),
        suspend_gap=_suspend_gap(kind, obj),
        out_of_bounds="" if gang is None else _out_of_bounds(gang, sites, context),
        missing_class=asking.missing_class,
        admission_gates=text(marks.get(names.ADMISSION_GATES)),
        dispatch=dispatch.phase,
        dispatching_suspended_by=dispatch.suspended_by,
        awaits_permit=awaits_permit(marks, uid),
        hub=text(paths.find_mapping(metadata, ("labels",)).get(names.ORIGIN_LABEL)) if names.OFFER in marks else "",
        given_up=given_up,
        ordered_start=any(status.holds(signal, obj) for signal in kind.ordered_start),
        finished_seconds=0.0 if finished is None else seconds(status.finished_at(kind, obj)),
        failure="" if finished is None else status.why_failed(kind, obj),
        run_limit_seconds=run_limit_seconds(kind, paths.find_mapping(metadata, ("labels",))),
        made_for="" if owner is not None else _made_for(metadata, sites, by_label=by_label),
        named=_owners_named(kind, metadata) if by_label and (suspended or not asks_itself) else (),
    )


def _out_of_bounds(gang: Gang, sites: Sequence[PodSetSite], context: ReadContext) -> str:
    specs = ((site.name, site.whole_spec) for site in sites)
    return out_of_bounds(specs, context.limit_ranges.get(gang.namespace, ()))


def is_given_up(marks: Mapping[str, Any], uid: str) -> bool:
    """Return whether these are the annotations of a copy that was stopped because its hub was silent."""
    return bool(uid) and names.OFFER in marks and marks.get(names.GIVEN_UP) == uid


def awaits_permit(marks: Mapping[str, Any], uid: str) -> bool:
    """Return whether these are the annotations of a copy that may not start: without its permit, or given up."""
    permitted = permits(text(marks.get(names.PERMIT)), text(marks.get(names.OFFER)), uid)
    return names.OFFER in marks and (is_given_up(marks, uid) or not permitted)


def _is_bare(kind: JobKind, sites: Sequence[PodSetSite]) -> bool:
    """Return whether a job never passed our mutation, as all that asks for a queue does but what an owner's controller
    makes. A label of the controller is believed on it. So is a name while it is suspended, for the pods that it has
    still: by that, one that runs could be charged to another gang, though it was always one of its own.
    """
    return bool(sites) and not kind.loose_pods and not any(names.GANG_LABEL in site.labels for site in sites)


def _owners_named(kind: JobKind, metadata: Mapping[str, Any]) -> tuple[str, ...]:
    labels = paths.find_mapping(metadata, ("labels",))
    return owners_named(kind, text(metadata.get("namespace")), text(metadata.get("name")), labels)


def _made_for(metadata: Mapping[str, Any], sites: Sequence[PodSetSite], *, by_label: bool) -> str:
    """Return the gang that an object without an owner was made for, by what it bears.

    Our own mark tells always: its controller copied that from what Tutti started. Its controller's label does so only
    where its author cannot have written it to be charged elsewhere than in the queue that it asks for.
    """
    own = (*names.NOT_ADMITTED, metadata.get("uid"), None)
    marks = (site.labels.get(names.GANG_LABEL) for site in sites)
    marked = next((mark for mark in marks if isinstance(mark, str) and mark not in own), "")
    return marked or (made_for(paths.find_mapping(metadata, ("labels",))) if by_label else "")


def _finished(kind: JobKind, obj: Mapping[str, Any], dispatch: Dispatch) -> str | None:
    """Return how a job has ended. Of one that a hub offers, no member has said anything yet.

    Where no ``managedBy`` keeps it away, an operator in the hub may have.
    """
    if kind.managed_by is None and dispatch.phase is DispatchPhase.OFFERED:
        return None
    return status.finished(kind, obj)


def _dispatch(kind: JobKind, marks: Mapping[str, Any]) -> Dispatch:
    if not kind.given_manager or names.DISPATCH not in marks:
        return NOWHERE
    try:
        return placed.decode(marks[names.DISPATCH])
    except placed.UnreadableRecord:
        # The hub leaves it alone until somebody has looked, and so does the quota that it holds.
        return Dispatch(DispatchPhase.GRANTED)


def unread(kind: JobKind, obj: Mapping[str, Any], error: Exception) -> JobRecord:
    """Return the record of an object that ``read`` failed on, which nobody asked for: it waits, or what it holds stays
    charged to it until its pods are gone.

    Nothing of it is believed but who it is and whether it is suspended. It is not taken for one that ran before Tutti.
    """
    metadata = paths.find_mapping(obj, ("metadata",))
    return JobRecord(
        kind=kind.key,
        version=kind.version,
        namespace=text(metadata.get("namespace")),
        name=text(metadata.get("name")),
        uid=text(metadata.get("uid")),
        resource_version=integer(metadata.get("resourceVersion")),
        created_seconds=seconds(metadata.get("creationTimestamp")),
        problem=Problem("", "", f"Tutti failed to read the object ({type(error).__name__})", "its log has the reason"),
        suspended=kind.suspend is not None and paths.find(obj, kind.suspend) is True,
        deleting=metadata.get("deletionTimestamp") is not None,
        marked=True,
        has_annotations=isinstance(metadata.get("annotations"), dict),
    )


def bystander(kind: JobKind, obj: Mapping[str, Any], kinds: Mapping[str, JobKind] = KINDS) -> Bystander:
    """Return what is kept of an object that does not wait for us."""
    metadata = paths.find_mapping(obj, ("metadata",))
    place = intern(text(metadata.get("namespace"))), text(metadata.get("name")), text(metadata.get("uid"))
    owner = gang_owner(kind, obj, kinds)
    made = "" if owner else made_for(paths.find_mapping(metadata, ("labels",)))
    suspended = kind.suspend is not None and paths.find(obj, kind.suspend) is True
    going = metadata.get("deletionTimestamp") is not None
    running = not suspended and not going and status.finished(kind, obj) is None
    names_borne = () if owner else _owners_named(kind, metadata)
    return Bystander(*place, integer(metadata.get("resourceVersion")), owner, made, names_borne, running)


def _template(site: PodSetSite, uid: str) -> Template:
    metadata, scheduling = site.metadata, site.scheduling
    tolerations = scheduling.get("tolerations")
    selector = scheduling.get("nodeSelector")
    labels = None if metadata is None else metadata.get("labels")
    return Template(
        pod_set=site.name,
        path=site.path,
        has_metadata=metadata is not None,
        marks=_marks(labels, uid, site.name) if isinstance(labels, dict) else None,
        has_annotations=metadata is not None and isinstance(metadata.get("annotations"), dict),
        node_selector=selector if isinstance(selector, dict) else None,
        tolerations=len(tolerations) if isinstance(tolerations, list) else None,
        count_path=None if site.count_path is None else paths.pointer(*site.count_path),
        count_written=site.count_written,
        count_follower=None if site.count_follower is None else paths.pointer(*site.count_follower),
        metadata_path=None if site.template_path else paths.pointer(*(site.metadata_path or ())),
        spec_path=None if site.template_path else paths.pointer(*(site.spec_path or ())),
        missing=tuple((paths.pointer(*part.place), part.value) for part in site.scaffold if not part.stands),
        tolerations_along=site.tolerations_along,
        node=str(site.spec.get("nodeName") or ""),
        containers=tuple(str(each.get("name")) for each in (*containers_of(site.spec), *site.added, *site.added_first)),
    )


def _marks(labels: Mapping[str, object], *known: str) -> dict[str, Any]:
    """Return our labels among ``labels``; what they say is mostly ``known`` already, and then kept once."""
    marks = {key: labels[key] for key in (names.GANG_LABEL, names.POD_SET_LABEL) if key in labels}
    return {key: next((word for word in known if word == value), value) for key, value in marks.items()}


def _suspend_gap(kind: JobKind, obj: Mapping[str, Any]) -> str | None:
    gap = None if kind.suspend is None else paths.find_gap(obj, kind.suspend)
    return None if gap is None else paths.pointer(*gap)
