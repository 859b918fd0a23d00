"""Between the version a client speaks and the version that is stored, for resources that share a store.

Events are stored as core/v1 and spoken as events.k8s.io/v1 too, field by field as the API server converts them. The
versions of other kinds are taken to have the same fields: only ``apiVersion`` is replaced.
"""

from typing import Final

from webhook.laboratory.simulated.objects.resources import Resource
from webhook.laboratory.simulated.objects.store import Stored
from webhook.laboratory.simulated.requests.refusals import Json

_EVENTS: Final = ("", "events")
_RENAMED: Final = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
"""Field of events.k8s.io/v1 to field of core/v1."""
_BACK: Final = {core: new for new, core in _RENAMED.items()}


def to_stored(resource: Resource, item: Json) -> Json:
    """Return an object as it is stored, from what a client of ``resource`` wrote."""
    if resource.storage == _EVENTS and resource.group:
        return {_RENAMED.get(key, key): value for key, value in item.items()} | {"apiVersion": "v1"}
    return item


def as_served(resource: Resource, stored: Stored) -> Stored:
    """Return an object as a client of ``resource`` reads it; mostly that is the stored one itself."""
    item = stored.object
    if item["apiVersion"] == resource.api_version:
        return stored
    if resource.storage == _EVENTS:
        item = {_BACK.get(key, key): value for key, value in item.items()}
    return Stored({**item, "apiVersion": resource.api_version}, stored.revision)
