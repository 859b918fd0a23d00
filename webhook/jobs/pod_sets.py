"""Find the pod sets of a job object of any kind: by paths, then by the kind's built-in reader where it has one."""

from collections.abc import Mapping
from typing import Any

from webhook.jobs.context import NO_CONTEXT, ReadContext
from webhook.jobs.kinds import JobKind
from webhook.jobs.pod_set_sites import Place, PodSetSite, UnreadableJob, from_source
from webhook.jobs.readers import READERS

__all__ = ["Place", "PodSetSite", "UnreadableJob", "find_pod_sets"]


def find_pod_sets(kind: JobKind, obj: Mapping[str, Any], context: ReadContext = NO_CONTEXT) -> list[PodSetSite]:
    """Return the pod sets of ``obj`` in their fixed order. Raises UnreadableJob."""
    sites: list[PodSetSite] = []
    for source in kind.pod_sets:
        sites.extend(from_source(source, obj))
    return sites if kind.reader is None else READERS[kind.reader](obj, context, sites)
