"""Keeps Tutti's two namespace labels: ``fenced`` before the first reservation, ``gated`` where policy says so.

Labelling namespaces is a strong right; a ValidatingAdmissionPolicy of the manifests holds our account to these two.
"""

from collections.abc import Iterable, Mapping

import orjson
import structlog

from webhook.core import names
from webhook.errors import ApiError
from webhook.kube.api import MERGE_PATCH, Api
from webhook.view import View

log = structlog.get_logger(__name__)


def wanted_labels(view: View, gang_namespaces: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the labels to add, by namespace. Labels are only ever added: a fence without reservations costs little,
    and taking one away while a pod review is under way would open a gap.
    """
    wanted: dict[str, dict[str, str]] = {}
    for namespace in gang_namespaces:
        if view.fences.fences(namespace):
            wanted.setdefault(namespace, {})[names.FENCED_NAMESPACE] = "true"
    for namespace in view.policy.namespace_queues:
        wanted.setdefault(namespace, {})[names.GATED_NAMESPACE] = "true"
    return {
        namespace: missing
        for namespace, labels in wanted.items()
        if (stored := view.namespaces.get(namespace)) is not None
        and (missing := {key: value for key, value in labels.items() if stored.get(key) != value})
    }


async def write_labels(api: Api, wanted: Mapping[str, Mapping[str, str]]) -> None:
    """Store ``wanted`` labels; what fails is found missing again at the next look."""
    for namespace, labels in sorted(wanted.items()):
        body = orjson.dumps({"metadata": {"labels": labels}})
        try:
            await api.request("PATCH", f"/api/v1/namespaces/{namespace}", body=body, content_type=MERGE_PATCH)
        except ApiError as error:
            log.warning("namespace.label_failed", namespace=namespace, error=str(error))
