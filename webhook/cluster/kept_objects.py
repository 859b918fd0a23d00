"""Objects that are kept as they were read: policy, and what jobs are read with (priorities, limits, runtimes)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from webhook.cluster.read_again import meaning
from webhook.cluster.view import View
from webhook.config import Config
from webhook.jobs.pricing.context import ReadContext, context_from, with_injections
from webhook.jobs.reading.network_topology import tiers
from webhook.kube.plain import Plain


@dataclass(slots=True)
class KeptObjects:
    """The objects of one cluster, by feed."""

    by_feed: dict[str, dict[str, Plain]] = field(default_factory=dict)
    """Feed name to uid to object."""
    _in_order: dict[tuple[str, ...], list[Mapping[str, Any]]] = field(default_factory=dict)
    """What ``documents`` says until one of these feeds changes: it is asked every second, of thousands of queues."""
    _read: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    """Feed and uid to what the object says, of those that somebody asked for."""

    def keep(self, feed: str, old: Plain | None, new: Plain | None) -> None:
        """Take note of a change."""
        self._in_order = {feeds: known for feeds, known in self._in_order.items() if feed not in feeds}
        for each in (old, new):
            if each is not None:
                self._read.pop((feed, each.uid), None)
        table = self.by_feed.setdefault(feed, {})
        if new is not None:
            table[new.uid] = new
        elif old is not None:
            table.pop(old.uid, None)

    def keep_changed(self, feed: str, old: Plain | None, new: Plain | None) -> bool:
        """Take note of a change; return whether the object means something else than before."""
        before = None if old is None else self._read.get((feed, old.uid))
        self.keep(feed, old, new)
        if old is None or new is None:
            return True
        now = new.document
        if before is not None:
            # Whoever asked for it will ask again.
            self._read[feed, new.uid] = now
        return meaning(old.document if before is None else before) != meaning(now)

    def documents(self, *feeds: str) -> list[Mapping[str, Any]]:
        """Return the objects of some feeds, by namespace and name. The list is not to be changed."""
        known = self._in_order.get(feeds)
        if known is None:
            kept = [(feed, item) for feed in feeds for item in self.by_feed.get(feed, {}).values()]
            kept.sort(key=lambda each: (each[1].namespace, each[1].name, each[1].uid))
            known = self._in_order[feeds] = [self.document(feed, item) for feed, item in kept]
        return known

    def document(self, feed: str, item: Plain) -> Mapping[str, Any]:
        """Return what an object says that is kept: read once, however often somebody asks."""
        key = feed, item.uid
        if key not in self._read:
            self._read[key] = item.document
        return self._read[key]

    def read_context(self, view: View, config: Config) -> ReadContext:
        """Return what jobs are read with as of now."""
        context = context_from(
            priority_classes=self._meanings("priorityclasses"),
            workload_priority_classes=view.policy.priority_classes,
            limit_ranges=self._meanings("limitranges"),
            runtime_classes=self._meanings("runtimeclasses"),
            training_runtimes=self._meanings("trainingruntimes", "clustertrainingruntimes"),
        )
        context = replace(context, network_tiers=tiers(config.network_tiers, view.policy.hyper_nodes))
        return with_injections(context, config.added_containers, view.namespaces)

    def _meanings(self, *feeds: str) -> list[Mapping[str, Any]]:
        return [meaning(document) for document in self.documents(*feeds)]
