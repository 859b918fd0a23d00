"""Keeps Tutti's two namespace labels: ``fenced`` before the first reservation, ``gated`` where policy says so.

Anybody may gate a namespace by hand; the value tells their label from ours, which goes when policy no longer asks for
it and nothing in the namespace waits or runs only because of it. Without it such a job would be suspended for ever.

Labelling namespaces is a strong right; a ValidatingAdmissionPolicy of the manifests limits our account to these two.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import orjson
import structlog

from webhook.cluster.view import View
from webhook.core.notation import names
from webhook.errors import ApiError, Unavailable
from webhook.jobs.reading.gating import record_gated_by
from webhook.jobs.reading.record import JobRecord
from webhook.kube.api import JSON_PATCH, MERGE_PATCH, Api
from webhook.untyped import paths

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 1.0
REFUSED_SECONDS: Final = 30.0
"""One that somebody else's webhook or policy keeps as it is, or that our account may not write, is asked so often."""
BY_POLICY: Final = "policy"
"""Value of the label ``gated`` where policy, not a person, asked for it."""


class NamespaceLabels:
    """Stores the labels that are missing and removes those that are outdated, as the view says."""

    def __init__(self, api: Api, view: View) -> None:
        self._api = api
        self._view = view
        self._resting: dict[str, float] = {}
        """Namespaces whose last write failed, and until when (loop time) they are left alone."""

    async def keep(self) -> None:
        """Look once. What fails is found missing again at a later look."""
        view, now = self._view, asyncio.get_running_loop().time()
        self._resting = {name: until for name, until in self._resting.items() if until > now}
        wanted, outdated = wanted_labels(view, {job.namespace for job in view.jobs.values()}), outdated_labels(view)
        for namespace, labels in sorted(wanted.items()):
            await self._patch(namespace, {"metadata": {"labels": labels}}, MERGE_PATCH)
        # Only where our label still is ours when the patch arrives.
        place = paths.pointer("metadata", "labels", names.GATED_NAMESPACE)
        removal = [{"op": "test", "path": place, "value": BY_POLICY}, {"op": "remove", "path": place}]
        for namespace in outdated:
            await self._patch(namespace, removal, JSON_PATCH)

    async def _patch(self, namespace: str, patch: Any, content_type: str) -> None:
        if namespace in self._resting:
            return
        try:
            path, body = f"/api/v1/namespaces/{namespace}", orjson.dumps(patch)
            await self._api.request("PATCH", path, body=body, content_type=content_type)
        except ApiError as error:
            log.warning("namespace.label_failed", namespace=namespace, error=str(error))
            rest_seconds = RETRY_SECONDS if isinstance(error, Unavailable) else REFUSED_SECONDS
            self._resting[namespace] = asyncio.get_running_loop().time() + rest_seconds


def wanted_labels(view: View, gang_namespaces: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the labels to add, by namespace. A fence's is never taken away: without reservations it costs little, and
    while a pod review is under way it would open a gap.
    """
    wanted: dict[str, dict[str, str]] = {}
    for namespace in gang_namespaces:
        if view.fences.fences(namespace):
            wanted.setdefault(namespace, {})[names.FENCED_NAMESPACE] = "true"
    for namespace in view.policy.namespace_queues:
        if view.namespaces.get(namespace, {}).get(names.GATED_NAMESPACE, "false") == "false":
            wanted.setdefault(namespace, {})[names.GATED_NAMESPACE] = BY_POLICY
    return {
        namespace: missing
        for namespace, labels in wanted.items()
        if (stored := view.namespaces.get(namespace)) is not None
        and (missing := {key: value for key, value in labels.items() if stored.get(key) != value})
    }


def outdated_labels(view: View) -> list[str]:
    """Return the namespaces that are gated by our label alone, although neither policy nor a job needs it."""
    ours = {name for name, labels in view.namespaces.items() if labels.get(names.GATED_NAMESPACE) == BY_POLICY}
    candidates = ours - view.policy.namespace_queues.keys()
    if candidates:
        candidates -= {job.namespace for job in view.jobs.values() if _gated_by_namespace(job)}
    return sorted(candidates)


def _gated_by_namespace(job: JobRecord) -> bool:
    return job.finished is None and job.is_ours and record_gated_by(job, {}, ()) is None
