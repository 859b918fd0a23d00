"""Compute-class rules at the door.

What the catalog denies is refused, what it warns about is said, what it mutates is corrected in the mutating phase.
Objects without the compute-class label are not looked at.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from webhook.jobs.compute_class import catalog as compute_class_catalog
from webhook.jobs.compute_class.catalog import ComputeClassCatalog, Mode
from webhook.jobs.compute_class.rules import Finding, check
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.pod_sets.sites import PodSetSite
from webhook.jobs.reading.gang import GangReading
from webhook.jobs.reading.gating import pod_group_of, readable_sites
from webhook.server.review.answer import Answer, Refusal, deny
from webhook.server.review.job_facts import JobRules
from webhook.server.review.pod_facts import PodFacts
from webhook.untyped import editing, paths


@cache
def shipped() -> ComputeClassCatalog:
    """Return the catalog that comes with the package, parsed once."""
    return compute_class_catalog.shipped()


def judged(findings: list[Finding]) -> tuple[Answer | None, tuple[str, ...]]:
    """Return the refusal that the findings amount to, if any, and the warnings."""
    denied = [str(finding.problem) for finding in findings if finding.mode is Mode.DENY]
    warnings = tuple(str(finding.problem) for finding in findings if finding.mode is not Mode.DENY)
    return (deny(Refusal.COMPUTE_CLASS, "; ".join(denied), 422, warnings) if denied else None), warnings


def check_job(rules: JobRules, asking: GangReading) -> tuple[Answer | None, tuple[str, ...]]:
    """Return what the rules say about a job's gang: a refusal or None, and warnings."""
    catalog = rules.classes
    key, sites = catalog.labels.compute_class, asking.sites
    if not any(key in site.labels for site in sites) and key not in (asking.gang.labels if asking.gang else ()):
        return None, ()
    in_group = any(pod_group_of(site.pod_labels) is not None for site in sites)
    return judged(check([_template(site) for site in sites], catalog, in_group))


def check_pod(pod: PodFacts, catalog: ComputeClassCatalog) -> tuple[Answer | None, tuple[str, ...]]:
    """Return what the rules say about one pod."""
    if catalog.labels.compute_class not in pod.labels:
        return None, ()
    return judged(check([("", pod.document)], catalog, pod_group_of(pod.labels) is not None))


def corrects(catalog: ComputeClassCatalog) -> bool:
    """Return whether any rule is in mode ``mutate``."""
    return Mode.MUTATE in catalog.rules.values()


def corrected(rules: JobRules, kind: JobKind, obj: Any) -> Any:
    """Return ``obj`` with what the rules in mode ``mutate`` correct."""
    catalog = rules.classes
    key = catalog.labels.compute_class
    for site in readable_sites(kind, obj, rules.context()):
        if key not in site.pod_labels or site.template_path is None:
            continue
        for finding in check([_template(site)], catalog, False):
            for pointer, value in finding.changes.items():
                obj = editing.put_if_possible(obj, (*site.template_path, *_keys(pointer)), value)
    return obj


def _template(site: PodSetSite) -> tuple[str, Mapping[str, Any]]:
    metadata = {**(site.metadata or {}), "labels": site.pod_labels}
    return paths.render(tuple(map(str, site.template_path or ()))), {"metadata": metadata, "spec": site.spec}


def _keys(pointer: str) -> tuple[str | int, ...]:
    tokens = [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]
    return tuple(int(token) if token.isdecimal() else token for token in tokens)
