"""Writes a document for every queue, cohort and local queue of one view, where its numbers changed."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from webhook.cluster.queue_counts import Counts, QueueCounts, QueueTotals
from webhook.cluster.view import View
from webhook.core.assignment.fair_sharing import NO_SHARE, Share, share
from webhook.core.model.policy import LocalQueue, Policy
from webhook.core.quota.loans import Loans, loans
from webhook.core.quota.tree import QuotaTree, Usage, Vertex, for_people
from webhook.visibility.documents.queue import (
    Listed,
    Source,
    creation_times,
    listed_vertices,
    local_queue_document,
    owned,
    queue_document,
)
from webhook.visibility.documents.watch_cache import Key, WatchCache
from webhook.visibility.documents.workload_writer import BATCH
from webhook.visibility.http.group import QUEUES


class _Numbers(NamedTuple):
    """What one document is written from."""

    totals: QueueTotals
    loans: Loans
    share: Share
    free: Mapping[str, int]


@dataclass(slots=True)
class QueueWriter:
    """Keeps the queues in a watch cache like those of a view."""

    cache: WatchCache
    view: View
    queue_counts: QueueCounts
    policy_objects: Callable[[], Iterable[Mapping[str, Any]]]
    """Read for their creation times only."""
    _policy: Policy | None = None
    _counts: Counts | None = None
    _listed: list[Listed] = field(default_factory=list)
    _locals: dict[Key, LocalQueue] = field(default_factory=dict)
    _created: dict[Source, str] = field(default_factory=dict)
    _numbers: dict[Key, _Numbers] = field(default_factory=dict)
    """What each document was last written from."""
    _tree: QuotaTree = field(default_factory=lambda: QuotaTree(Policy()))

    def note(self) -> None:
        """Note which queues there are, whether anybody reads or not."""
        if self.view.policy is not self._policy:
            self._take_policy(self.view.policy)

    async def write(self, max_age_seconds: float) -> None:
        """Bring the watch cache up to date with counts of at most that age; others have their turns in between."""
        self.note()
        counts, policy = self.queue_counts.take(max_age_seconds), self.view.policy
        if counts is self._counts:
            return
        self._counts = counts
        usage, borrowing = self._usage(counts)
        for number, listed in enumerate(self._listed, start=1):
            key, vertex = Key(QUEUES.plural, listed.namespace, listed.name), listed.vertex
            totals = replace(counts.below(vertex), usage=usage.all_of(vertex))
            numbers = _Numbers(totals, borrowing[vertex], share(usage, vertex), _free(usage, vertex))
            if self._changed(key, numbers):
                created = self._created.get(listed.source)
                document = queue_document(listed, totals, numbers.loans, numbers.share, numbers.free, created=created)
                self.cache.put(key, document)
            if number % BATCH == 0:
                await asyncio.sleep(0)
        for number, (key, local) in enumerate(self._locals.items(), start=1):
            totals = counts.local_queues.get((local.namespace, local.name), QueueTotals())
            queue, behind = policy.queues.get(local.queue), self._tree.queues.get(local.queue)
            held, free = ({}, {}) if behind is None else (usage.all_of(behind), _free(usage, behind))
            if self._changed(key, _Numbers(totals, Loans(borrowed=held), NO_SHARE, free)):
                created = self._created.get(("LocalQueue", local.namespace, local.name))
                document = local_queue_document(local, queue, behind, totals, held, free, created=created)
                self.cache.put(key, document)
            if number % BATCH == 0:
                await asyncio.sleep(0)

    def _changed(self, key: Key, numbers: _Numbers) -> bool:
        if self._numbers.get(key) == numbers:
            return False
        self._numbers[key] = numbers
        return True

    def _usage(self, counts: Counts) -> tuple[Usage, dict[Vertex, Loans]]:
        """Return what is charged to each vertex, and which queue lends to which."""
        usage = Usage(self._tree)
        for vertex in self._tree.vertices:
            usage.charge(vertex, counts.charged(vertex))
        return usage, loans((vertex for vertex in self._tree.vertices if vertex.parent is None), usage.all_of)

    def _take_policy(self, policy: Policy) -> None:
        before = self._unread()
        self._policy, self._counts, self._numbers, self._tree = policy, None, {}, self.queue_counts.tree(policy)
        self._listed = listed_vertices(policy, self._tree)
        self._created = creation_times(self.policy_objects())
        present = {Key(QUEUES.plural, listed.namespace, listed.name) for listed in self._listed}
        handles = {Key(QUEUES.plural, local.namespace, local.name): local for local in policy.local_queues.values()}
        self._locals = {key: local for key, local in handles.items() if key not in present}
        for key, document in before.items():
            if key not in present and key not in self._locals:
                if self.cache.get(key) is None:
                    self.cache.drop_unwritten(key, document())
                self.cache.drop(key)

    def _unread(self) -> dict[Key, Callable[[], Mapping[str, Any]]]:
        """Return all queues, each with what makes a document of it without its numbers."""
        nothing, created = QueueTotals(), self._created
        found: dict[Key, Callable[[], Mapping[str, Any]]] = {}
        for listed in self._listed:
            found[Key(QUEUES.plural, listed.namespace, listed.name)] = partial(
                queue_document, listed, nothing, Loans(), NO_SHARE, {}, created=created.get(listed.source)
            )
        for key, local in self._locals.items():
            found[key] = partial(local_queue_document, local, None, None, nothing, {}, {}, created=None)
        return found


def _free(usage: Usage, vertex: Vertex) -> dict[str, int]:
    """Return what a vertex could take now of each resource without anybody being stopped for it."""
    return for_people({key: max(0, usage.available(vertex, key)) for key in owned(vertex)})
