"""Writes a document for every queue, cohort and local queue of one view, where its numbers changed."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from webhook.cluster.queue_counts import Counts, QueueCounts, Tally
from webhook.cluster.view import View
from webhook.core.model.policy import LocalQueue, Policy
from webhook.core.quota.tree import QuotaTree
from webhook.visibility.documents.queue import (
    Listed,
    Source,
    creation_times,
    listed_nodes,
    local_queue_document,
    queue_document,
)
from webhook.visibility.documents.watch_cache import Key, WatchCache
from webhook.visibility.http.group import QUEUES


@dataclass(slots=True)
class QueueWriter:
    """Keeps the queues in a watch cache like those of a view."""

    cache: WatchCache
    view: View
    queue_counts: QueueCounts
    policy_objects: Callable[[], Iterable[Mapping[str, Any]]]
    """Read for their creation times only."""
    system_namespace: str
    _policy: Policy | None = None
    _counts: Counts | None = None
    _listed: list[Listed] = field(default_factory=list)
    _locals: dict[Key, LocalQueue] = field(default_factory=dict)
    _created: dict[Source, str] = field(default_factory=dict)
    _tallies: dict[Key, Tally] = field(default_factory=dict)
    """What each document was last written from."""

    def write(self, max_age_seconds: float) -> None:
        """Bring the watch cache up to date with counts of at most that age."""
        counts, policy = self.queue_counts.take(max_age_seconds), self.view.policy
        if counts is self._counts and policy is self._policy:
            return
        if policy is not self._policy:
            self._take_policy(policy)
        self._counts = counts
        for listed in self._listed:
            key = Key(QUEUES.plural, listed.namespace, listed.name)
            tally = replace(counts.below(listed.node), usage=counts.charged(listed.node))
            if self._tallies.get(key) != tally:
                self._tallies[key] = tally
                self.cache.put(key, queue_document(listed, tally, self._created.get(listed.source)))
        for key, local in self._locals.items():
            tally = counts.local_queues.get((local.namespace, local.name), Tally())
            if key not in self._tallies or self._tallies[key] != tally:
                self._tallies[key] = tally
                created = self._created.get(("LocalQueue", local.namespace, local.name))
                self.cache.put(key, local_queue_document(local, policy.queues.get(local.queue), tally, created))

    def _take_policy(self, policy: Policy) -> None:
        before = set(self._tallies)
        self._policy, self._tallies = policy, {}
        self._listed = listed_nodes(policy, QuotaTree(policy), self.system_namespace)
        self._created = creation_times(self.policy_objects())
        present = {Key(QUEUES.plural, listed.namespace, listed.name) for listed in self._listed}
        handles = {Key(QUEUES.plural, local.namespace, local.name): local for local in policy.local_queues.values()}
        self._locals = {key: local for key, local in handles.items() if key not in present}
        for key in before - present - self._locals.keys():
            self.cache.drop(key)
