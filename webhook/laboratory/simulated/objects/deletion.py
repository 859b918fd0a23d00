"""What deleting an object means: preconditions, finalizers, grace periods, and what becomes of its dependents.

``propagationPolicy`` is carried by the finalizers that the garbage collector knows: ``orphan`` and
``foregroundDeletion``. Without a policy the dependents of a ``batch/v1`` Job are orphaned and those of everything else
are collected, as the kinds' strategies say.
"""

from typing import Final

from webhook.core.notation.moments import time_text
from webhook.laboratory.simulated.objects.resources import Resource
from webhook.laboratory.simulated.objects.store import Stored
from webhook.laboratory.simulated.requests.refusals import Json, delete_conflict

ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"
DEFAULT_GRACE_SECONDS: Final = 30


def check_preconditions(resource: Resource, stored: Stored, options: Json) -> None:
    """Compare uid and resourceVersion of DeleteOptions. Raises Refused (409)."""
    preconditions = options.get("preconditions") or {}
    name = stored.object["metadata"]["name"]
    uid, version = preconditions.get("uid"), preconditions.get("resourceVersion")
    if uid and uid != stored.uid:
        why = f"the UID in the precondition ({uid}) does not match the UID in record ({stored.uid})."
        raise delete_conflict(resource, name, f"{why} The object might have been deleted and then recreated")
    if version and version != str(stored.revision):
        why = f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record"
        raise delete_conflict(resource, name, f"{why} ({stored.revision}). The object might have been modified")


def marked(resource: Resource, item: Json, options: Json, now: float) -> Json | None:
    """Return the object as it waits for its end, or None when it can be removed at once.

    A pod is always marked first, even one that can be removed at once (``is_over`` says so then).
    """
    metadata = {**item["metadata"]}
    finalizers = [f for f in metadata.get("finalizers") or () if f not in (ORPHAN, FOREGROUND)]
    propagation = _propagation(resource, item, options)
    if propagation is not None:
        finalizers.append(propagation)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    grace = _grace_seconds(resource, item, options)
    waits = bool(finalizers) or grace > 0 or resource.storage == ("", "namespaces")
    if not waits and resource.storage != ("", "pods"):
        return None
    since = metadata.get("deletionTimestamp")
    if since is None or grace < metadata.get("deletionGracePeriodSeconds", 0):
        metadata["deletionTimestamp"] = time_text(int(now + grace))
        metadata["deletionGracePeriodSeconds"] = grace
        if "generation" in metadata:
            metadata["generation"] += 1
    result = {**item, "metadata": metadata}
    if resource.storage == ("", "namespaces"):
        result["status"] = {**(item.get("status") or {}), "phase": "Terminating"}
    return result


def is_over(item: Json) -> bool:
    """Return whether nothing keeps an object that is being deleted: no finalizer and no grace period."""
    metadata = item["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if item["kind"] == "Namespace" and (item.get("spec") or {}).get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")


def _propagation(resource: Resource, item: Json, options: Json) -> str | None:
    policy = options.get("propagationPolicy")
    if policy is None and options.get("orphanDependents") is not None:
        policy = "Orphan" if options["orphanDependents"] else "Background"
    if policy is None:
        existing = item["metadata"].get("finalizers") or ()
        if ORPHAN in existing or FOREGROUND in existing:
            return ORPHAN if ORPHAN in existing else FOREGROUND
        policy = (
            "Orphan" if (resource.group, resource.version, resource.plural) == ("batch", "v1", "jobs") else "Background"
        )
    return {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(policy)


def _grace_seconds(resource: Resource, item: Json, options: Json) -> int:
    """Return how long a pod may take to stop; only pods on a node take any time."""
    if resource.storage != ("", "pods"):
        return 0
    if not item["spec"].get("nodeName") or item["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    asked = options.get("gracePeriodSeconds")
    if asked is None:
        asked = item["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
    known = item["metadata"].get("deletionGracePeriodSeconds")
    return int(asked) if known is None else min(int(asked), int(known))
