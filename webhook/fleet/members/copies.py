"""The objects of a fleet, as values: the record on a hub's job, the copy made of it, and the copy read back. Pure."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from webhook.core.fleet.dispatch import NO_OFFER, NOWHERE, Dispatch, Offer
from webhook.core.fleet.permit import permits
from webhook.core.fleet.sight import Copy
from webhook.core.fleet.steps import Wish
from webhook.core.fleet.text import decode, offer_of
from webhook.core.notation import names
from webhook.dialects.field import is_subdomain
from webhook.fleet.members.shown import succeeds
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.reading import status
from webhook.jobs.reading.gating import gang_owner, owner_of
from webhook.untyped import editing, paths
from webhook.untyped.editing import Patch
from webhook.untyped.values import items, mappings, text

JobName = tuple[str, str, str]
"""(its kind in one version, as its feed is called, namespace, name)."""
TEXT_MAX: Final = 256
"""Characters of a text that identifies a copy: longer ones are written by no API server, and equal nothing."""
_NOT_COPIED: Final = (f"{names.DOMAIN}/", "kubectl.kubernetes.io/last-applied-configuration")
_OURS: Final = (names.GANG_LABEL, names.POD_SET_LABEL)
"""Labels of pod templates that name the hub's object."""
_MADE_BY_THE_SERVER: Final = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)
"""Those of a Job that has its API server make its selector."""
_ENDS_ITSELF: Final[Mapping[str, tuple[paths.Path, ...]]] = {
    "RayJob.ray.io": (("spec", "deletionPolicy"), ("spec", "deletionStrategy")),
    "SparkApplication.sparkoperator.k8s.io": (("spec", "timeToLiveSeconds"),),
    "AppWrapper.workload.codeflare.dev": (
        ("metadata", "annotations", "workload.codeflare.dev.appwrapper/successTTLDuration"),
    ),
}
"""By which a kind's controller deletes what has ended, apart from ``ttlSecondsAfterFinished``."""

_RAYCLUSTER: Final = (re.compile(r"-[a-z0-9]{5}$"), re.compile(r"-raycluster-[a-z0-9]{5}$"))
"""What KubeRay, by its version, adds to the name of a RayJob for that of its RayCluster. All else is called as its job.
"""


class FoundCopy(NamedTuple):
    """A copy in a member's list: what is kept of an object of up to 2 MiB."""

    kind: JobKind
    namespace: str
    name: str
    copy: Copy


class Listed(NamedTuple):
    """What a member lists of a hub's copies."""

    copies: list[FoundCopy]
    unlisted: Mapping[str, str]
    """Why a kind is not listed, by its feed."""


class Written(NamedTuple):
    """A copy as it was answered to be stored."""

    uid: str
    resourceVersion: str  # noqa: N815 - as it is called there


def dispatch_of(job: Mapping[str, Any]) -> Dispatch:
    """Return the record on a hub's job; ``NOWHERE`` where there is none. Raises UnreadableRecord."""
    written = paths.find_mapping(job, ("metadata", "annotations")).get(names.DISPATCH)
    return NOWHERE if written is None else decode(written)


def offer_text(job_uid: str, offer: Offer) -> str:
    """Return the annotation ``tutti.dev/offer`` of a copy."""
    return f"{job_uid} {offer}"


def placed_by_hub(kind: JobKind, job: Mapping[str, Any]) -> bool:
    """Return whether a job of the hub's cluster is one that the hub places: by what nobody can change, no label."""
    return kind.dispatchable and paths.find(job, kind.placed_by) == names.HUB_MANAGER


def why_over(kind: JobKind, job: Mapping[str, Any]) -> str:
    """Return, in words, why a job of the hub never runs again; nothing where it may."""
    if paths.find(job, ("metadata", "deletionTimestamp")) is not None:
        return "it is being deleted in the hub"
    return "it has ended" if status.finished(kind, job) is not None else ""


def why_unwanted(kind: JobKind, job: Mapping[str, Any]) -> str:
    """Return, in words, why a job of the hub is not to run; nothing where it is."""
    return why_over(kind, job) or ("it is suspended in the hub" if is_stopped(kind, job) else "")


def is_stopped(kind: JobKind, job: Mapping[str, Any]) -> bool:
    """Return whether a job of the hub is suspended there, and may go on."""
    return not why_over(kind, job) and kind.suspend is not None and paths.find(job, kind.suspend) is True


def wish_of(kind: JobKind, job: Mapping[str, Any], hub: str) -> Wish:
    """Return what a hub of this uid wants of a job."""
    uid = paths.find(job, ("metadata", "uid"))
    return Wish(hub, uid, not why_unwanted(kind, job), stopped=is_stopped(kind, job))


def stops_nobody(copy: Mapping[str, Any] | None) -> bool:
    """Return whether a copy may only have room that nobody else has."""
    return paths.find_mapping(copy, ("metadata", "annotations")).get(names.STOPS_NOBODY) == "true"


def copy_made(
    kind: JobKind, job: Mapping[str, Any], hub: str, dispatch: Dispatch, *, stops_nobody: bool = False
) -> dict[str, Any]:
    """Return the copy of a hub's job for its open offer: suspended, without a permit, for its ordinary controller."""
    metadata = paths.find_mapping(job, ("metadata",))
    labels = {key: value for key, value in paths.find_mapping(metadata, ("labels",)).items() if _carried(key)}
    notes = {key: value for key, value in paths.find_mapping(metadata, ("annotations",)).items() if _carried(key)}
    if stops_nobody:
        notes[names.STOPS_NOBODY] = "true"
    queue = paths.find_mapping(metadata, ("labels",)).get(names.QUEUE_LABELS[0])
    if queue is not None:
        labels[names.QUEUE_LABELS[0]] = queue
    copied: dict[str, Any] = {
        "apiVersion": job["apiVersion"],
        "kind": kind.kind,
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": {**labels, names.ORIGIN_LABEL: hub},
            "annotations": {**notes, names.OFFER: offer_text(metadata["uid"], dispatch.offer)},
        },
        "spec": job["spec"],
    }
    assert kind.suspend is not None
    copied = editing.put(editing.drop(copied, kind.placed_by), kind.suspend, True)
    # The hub deletes it when its job shows the end; who deletes it before that has it run again.
    for path in ((*kind.suspend[:-1], "ttlSecondsAfterFinished"), *_ENDS_ITSELF.get(kind.key, ())):
        copied = editing.drop(copied, path)
    unwanted: tuple[str, ...] = _OURS
    if kind.key == "Job.batch" and not copied["spec"].get("manualSelector"):
        copied, unwanted = editing.drop(copied, ("spec", "selector")), (*_OURS, *_MADE_BY_THE_SERVER)
    copied["spec"] = _without_labels(copied["spec"], unwanted)
    return copied


def _carried(key: str) -> bool:
    return not key.startswith(_NOT_COPIED)


def _without_labels(node: Any, unwanted: Collection[str]) -> Any:
    """Return a spec without some labels of its pod templates."""
    if isinstance(node, list):
        return [_without_labels(each, unwanted) for each in node]
    if not isinstance(node, dict):
        return node
    made: dict[str, Any] = {}
    for key, value in node.items():
        # Not below ``metadata`` alone: a SparkApplication has them on its driver and executor themselves.
        if key == "labels" and isinstance(value, dict):
            made[key] = {name: label for name, label in value.items() if name not in unwanted}
        else:
            made[key] = _without_labels(value, unwanted)
    return made


def copy_read(kind: JobKind, obj: Mapping[str, Any]) -> Copy:
    """Return what an object of a member says it is; whatever is odd about it makes it somebody else's."""
    metadata = paths.find_mapping(obj, ("metadata",))
    notes = paths.find_mapping(metadata, ("annotations",))
    offered, uid = text(notes.get(names.OFFER)), _cut(metadata.get("uid"))
    job, _, number = offered.partition(" ")
    try:
        offer = offer_of(number)
    except ValueError:
        job, offer = "", NO_OFFER
    given_up, ended = bool(uid) and notes.get(names.GIVEN_UP) == uid, status.finished(kind, obj)
    return Copy(
        uid=uid,
        version=_cut(metadata.get("resourceVersion")),
        hub=_cut(paths.find_mapping(metadata, ("labels",)).get(names.ORIGIN_LABEL)),
        job=_cut(job),
        offer=offer,
        permitted=bool(uid) and not given_up and permits(text(notes.get(names.PERMIT)), offered, uid),
        suspended=kind.suspend is not None and paths.find(obj, kind.suspend) is True,
        deleting=metadata.get("deletionTimestamp") is not None,
        finished=ended is not None,
        failed=ended == "Failed",
        given_up=given_up,
        succeeds=ended is None and succeeds(kind, obj),
    )


def made_for_a_copy(kind: JobKind, obj: Mapping[str, Any], kinds: Mapping[str, JobKind]) -> bool:
    """Return whether an object was made by the controller of a copy, with that one's labels and annotations.

    KubeRay makes the RayCluster of a RayJob so. Whoever writes such an owner on a copy hides nothing: the permit on it,
    if there is one, names the copy itself.
    """
    owner, notes = gang_owner(kind, obj, kinds), paths.find_mapping(obj, ("metadata", "annotations"))
    return owner is not None and permits(text(notes.get(names.PERMIT)), text(notes.get(names.OFFER)), owner.uid)


def made_for_one_of(kind: JobKind, name: str, obj: Mapping[str, Any]) -> bool:
    """Return whether an object is controlled by a job of that kind and name, also one that is gone by now."""
    owner = owner_of(obj)
    return owner is not None and (owner.kind, owner.name) == (kind.key, name)


def found_copy(kind: JobKind, obj: Mapping[str, Any]) -> FoundCopy:
    """Return what is kept of a member's object. Raises ValueError for one that no API server has by that name.

    The hub asks its own cluster by the name that a member says.
    """
    namespace, name = (paths.find(obj, ("metadata", key)) for key in ("namespace", "name"))
    if not (isinstance(namespace, str) and isinstance(name, str) and is_subdomain(namespace) and is_subdomain(name)):
        raise ValueError("it has an object whose namespace or name is not valid")
    return FoundCopy(kind, namespace, name, copy_read(kind, obj))


def pods_listed(namespace: str, uid: str) -> tuple[str, dict[str, str]]:
    """Return where the pods of a gang are listed, and by what."""
    return f"/api/v1/namespaces/{namespace}/pods", {"labelSelector": f"{names.GANG_LABEL}={uid}"}


def collected_with(pod: Mapping[str, Any], kinds: Iterable[JobKind]) -> set[tuple[str, str]]:
    """Return (kind, name) of what a pod is of, if it is being collected with that: its owners, and jobs of ``kinds``.

    Where its gang label names none of its owners, something stands between it and its job, and may be gone like that.
    Then the job is named by the label that its controller writes on pods; where there is none, by the owner's name.
    """
    if paths.find(pod, ("metadata", "deletionTimestamp")) is None:
        return set()
    owners = mappings(items(paths.find(pod, ("metadata", "ownerReferences"))))
    found = {(text(each.get("kind")), text(each.get("name"))) for each in owners}
    labels = paths.find_mapping(pod, ("metadata", "labels"))
    if labels.get(names.GANG_LABEL) in [each.get("uid") for each in owners]:
        return found
    for kind in kinds:
        if not (kind.child_kinds or kind.pod_owners or kind.pods_make_pods):
            continue
        if name := text(labels.get(kind.name_label)):
            found.add((kind.kind, name))
            continue
        for each in owners:
            group, _, _ = text(each.get("apiVersion")).rpartition("/")
            if f"{text(each.get('kind'))}.{group}" in kind.child_kinds:
                found |= {(kind.kind, name) for name in _made_for(text(each.get("kind")), text(each.get("name")))}
    return found


def _made_for(kind: str, name: str) -> set[str]:
    """Return what the job may be called for which its controller made something of this kind and name."""
    return {added.sub("", name) for added in _RAYCLUSTER} if kind == "RayCluster" else {name}


def noted(uid: str, version: str, note: str) -> Patch:
    """Return the patch that writes the one annotation of a copy that a hub may write, while it is as it was read."""
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": paths.pointer("metadata", "annotations", names.PERMIT), "value": note},
    ]


def _cut(value: object) -> str:
    return text(value)[:TEXT_MAX]
