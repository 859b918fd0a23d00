"""Finds the resources that an API server serves and nobody classified."""

from collections.abc import Iterable
from typing import Final

from webhook.server.review.resources_table import ResourcesTable

MAKES_PODS: Final = frozenset({"pods", "replicationcontrollers", "podtemplates", "bindings"})
"""Resources of the core group that have to be classified, with all their subresources."""


def unclassified(table: ResourcesTable, served: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the served (group, resource or resource/subresource) of groups we know that no row classifies.

    ``served`` comes from discovery. A group is known when the table has a row of it; of the core group only what makes
    pods is asked for.
    """
    rows = {(row.group, row.resource) for row in table.rows()}
    groups = {group for group, _ in rows} - {""}
    return sorted(
        (group, resource)
        for group, resource in served
        if (group, resource) not in rows and (group in groups if group else resource.partition("/")[0] in MAKES_PODS)
    )
