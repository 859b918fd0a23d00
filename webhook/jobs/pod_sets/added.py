"""What the controller of a kind adds to the pods that it makes: containers, and a port."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from webhook.jobs.kinds.kind import AddedContainer, JobKind, OpenedPort
from webhook.jobs.pod_sets.sites import PodSetSite
from webhook.jobs.pricing.host_ports import ports_of

BY_CONTROLLER: Final = "added-by-controller/"
"""Before the name of a container that its kind's controller adds; no container's own name has a slash."""


def with_added(kind: JobKind, sites: Sequence[PodSetSite]) -> list[PodSetSite]:
    """Return pod sets of a kind with what its controller adds to each."""
    names, found = {site.name for site in sites} if kind.added else (), [*sites]
    for added in kind.added:
        if added.version in ("", kind.version) and (not added.beside or added.beside in names):
            found = [_with_added(site, added) if _gets(site.name, added) else site for site in found]
    return found if kind.opens is None else [_with_port(site, kind.opens) for site in found]


def _gets(name: str, added: AddedContainer) -> bool:
    return name not in added.but and (not added.pod_sets or name in added.pod_sets)


def _with_port(site: PodSetSite, opened: OpenedPort) -> PodSetSite:
    has = any(port.get("name") == opened.name for port in ports_of(site.spec))
    return site if has else replace(site, opened_port=opened.number)


def _with_added(site: PodSetSite, added: AddedContainer) -> PodSetSite:
    resources = {"requests": dict(added.requests), "limits": dict(added.limits)}
    return replace(site, added=(*site.added, {"name": BY_CONTROLLER + added.name, "resources": resources}))
