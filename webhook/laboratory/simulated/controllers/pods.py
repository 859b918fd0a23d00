"""Questions about pods that several controllers ask, and pods made from a template."""

from typing import Any, Final

import orjson

from webhook.laboratory.simulated.objects.store import Stored
from webhook.laboratory.simulated.requests.refusals import Json

PODS: Final = ("", "pods")
TRACKING: Final = "batch.kubernetes.io/job-tracking"
"""Finalizer by which the Job controller counts each pod exactly once."""


def phase(pod: Stored) -> str:
    """Return the phase of a pod."""
    return str(pod.object["status"].get("phase", "Pending"))


def has_ended(pod: Stored) -> bool:
    """Return whether its containers have ended for good."""
    return phase(pod) in ("Succeeded", "Failed")


def is_terminating(pod: Stored) -> bool:
    """Return whether it is being deleted."""
    return "deletionTimestamp" in pod.object["metadata"]


def is_active(pod: Stored) -> bool:
    """Return whether it runs or may still run."""
    return not has_ended(pod) and not is_terminating(pod)


def is_ready(pod: Stored) -> bool:
    """Return whether it says that it is ready."""
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod.object["status"].get("conditions") or ())


def without_finalizer(finalizer: str) -> Any:
    """Return the change that takes one finalizer off an object."""

    def change(stored: Stored) -> Json:
        metadata = {**stored.object["metadata"]}
        kept = [f for f in metadata.pop("finalizers", None) or () if f != finalizer]
        return {**stored.object, "metadata": {**metadata, "finalizers": kept} if kept else metadata}

    return change


def without_owner(uid: str) -> Any:
    """Return the change that takes one owner off an object."""

    def change(stored: Stored) -> Json:
        metadata = {**stored.object["metadata"]}
        kept = [each for each in metadata.pop("ownerReferences", None) or () if each["uid"] != uid]
        return {**stored.object, "metadata": {**metadata, "ownerReferences": kept} if kept else metadata}

    return change


def adopted_by(owner: Json) -> Any:
    """Return the change by which a Job takes a pod that nobody controls for its own.

    It is a strategic merge: owners are told apart by uid, so one that is named already is named as its controller now.
    """

    def change(stored: Stored) -> Json:
        metadata = stored.object["metadata"]
        others = [each for each in metadata.get("ownerReferences") or () if each["uid"] != owner["metadata"]["uid"]]
        added = {
            "ownerReferences": [*others, controller_reference(owner)],
            "finalizers": [*dict.fromkeys((*(metadata.get("finalizers") or ()), TRACKING))],
        }
        return {**stored.object, "metadata": {**metadata, **added}}

    return change


def from_template(template: Json, owner: Json, metadata: Json) -> Json:
    """Return a new pod: the template's labels and annotations, completed by ``metadata``, controlled by ``owner``."""
    pod: Json = orjson.loads(orjson.dumps({"metadata": template.get("metadata") or {}, "spec": template["spec"]}))
    meta = pod["metadata"]
    for key in ("labels", "annotations"):
        if metadata.get(key):
            meta[key] = {**(meta.get(key) or {}), **metadata[key]}
    meta.update({key: value for key, value in metadata.items() if key not in ("labels", "annotations")})
    meta["ownerReferences"] = [controller_reference(owner)]
    return pod


def controller_reference(owner: Json) -> Json:
    """Return the ownerReference by which ``owner`` controls a new object."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(stored: Stored) -> Json | None:
    """Return the ownerReference of an object's controller."""
    references = stored.object["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), None)
