"""Whether an edit makes what a gang's controller made larger: a JobSet's Job, the RayCluster of a RayJob.

Pods whose template bears a gang's label are judged one by one, so their number may change: an autoscaler asks for more
than there is room for. All others would pass as loose pods, or as those of an adopted gang: they may only become fewer
or smaller. What cannot be read keeps its spec, since nobody can tell.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from webhook.core.notation import names
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.reading.gang import GangReading
from webhook.server.jobs.gang_checks import reading
from webhook.server.jobs.growth import growth
from webhook.server.review.job_facts import JobRules
from webhook.untyped.editing import drop


def child_growth(rules: JobRules, kind: JobKind, old: Mapping[str, Any], obj: Mapping[str, Any]) -> str | None:
    """Return how an edit lets a child have pods that nobody has reserved, else None. Who edits it was looked at."""
    before, now = _readings(rules, kind, old, obj)
    if before.asks is not None and now.asks is not None:
        judged_before, judged_now = (_judged_by_pod(each) for each in (before, now))
        # A name may have gone from pods that are judged to others: what was those' bound is none of these'.
        bare = tuple(each for each in before.asks.pod_sets if each.name not in judged_before)
        return growth(replace(before.asks, pod_sets=bare), now.asks, None, but=judged_now)
    if _spec(kind, old) == _spec(kind, obj):
        return None
    problem = now.problem or before.problem
    return f"nobody can tell whether it would grow, so its spec stays as it is: {problem}"


def _judged_by_pod(found: GangReading) -> set[str]:
    return {site.name for site in found.sites if site.labels.get(names.GANG_LABEL) is not None}


def _readings(rules: JobRules, kind: JobKind, *objects: Mapping[str, Any]) -> list[GangReading]:
    """Return both readings, of the bare templates and counts where one of them is no gang, as with an autoscaler."""
    found = [reading(rules, kind, obj) for obj in objects]
    if all(each.gang is not None for each in found) or not kind.pod_sets:
        return found
    bare = replace(kind, reader=None)
    return [reading(rules, bare, obj) for obj in objects]


def _spec(kind: JobKind, obj: Mapping[str, Any]) -> object:
    return (obj if kind.suspend is None else drop(obj, kind.suspend)).get("spec")
