"""What a hub has told a job of late that its record does not say: that the record is refused, or its member silent."""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from webhook.core.notation import names
from webhook.errors import ApiError
from webhook.fleet.jobs import events
from webhook.kube.api import Api
from webhook.untyped import paths
from webhook.untyped.values import items, seconds, text
from webhook.wire.times import human_age

TOLD: Final = (events.RECORD_REFUSED, events.STATUS_REFUSED, events.SILENT, events.CHANGED, events.STRANGE_END)
LATE_SECONDS: Final = 3900.0
"""Events come once an hour, as long as there is reason for them."""


async def warned(api: Api, job: Mapping[str, Any], now: float) -> list[tuple[str, str]]:
    """Return the newest event of each of these reasons, with its age, while the job has the record that it had then.

    ``now`` is Unix time. Who may not read events is told nothing.
    """
    metadata = paths.find_mapping(job, ("metadata",))
    path, about = f"/api/v1/namespaces/{metadata['namespace']}/events", f"involvedObject.uid={metadata['uid']}"
    try:
        listed = orjson.loads(await api.request("GET", path, query={"fieldSelector": about}))
    except ApiError:
        return []
    newest: dict[str, tuple[float, str]] = {}
    for each in items(paths.find(listed, ("items",))):
        reason, when = text(paths.find(each, ("reason",))), seconds(paths.find(each, ("lastTimestamp",))) or 0.0
        if reason in TOLD and now - when < LATE_SECONDS and _record(each) == _record(job):
            newest[reason] = max(newest.get(reason, (0.0, "")), (when, text(paths.find(each, ("message",)))))
    latest = sorted(((when, reason, said) for reason, (when, said) in newest.items()), reverse=True)
    return [("warning", f"{human_age(max(0.0, now - when))} ago: {reason}: {said}") for when, reason, said in latest]


def _record(obj: Mapping[str, Any]) -> str:
    return text(paths.find_mapping(obj, ("metadata", "annotations")).get(names.DISPATCH))
