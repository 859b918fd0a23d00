"""Keeps a View current: one informer per kind of object, each of them writing into one place.

Both processes run the same feeds. A listener learns what changed, by a few callbacks, and never sees raw objects.

Each object is read by itself, and one that cannot be read stops nobody: it is logged and counted. What was read of it
before stands; where nothing was read before:

    a job of ours           waits, or is stopped if it runs without a reservation; what is reserved for it stays so
    a pod                   is there and asks nothing: its gang is not taken for gone
    a PodGroup              is not there: gangs that name it wait
    a namespace             has no labels: nothing is gated by them, and what asks for a queue waits
    a ResourceQuota         bounds nothing here; the API server holds to it, pod by pod
    a policy object         is not there: its queues are not, and who asks for them waits
    a Node                  is not there
    a DaemonSet             is not there: no pods of it are expected on new nodes
    a priority class,       is not there: jobs that name it wait
    training runtime
    a LimitRange,           adds nothing to what jobs ask
    RuntimeClass
    the ledger              is corrupt: it is rebuilt from jobs and pods
"""

import asyncio
import random
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import structlog

from webhook import metrics
from webhook.cluster.gathering import Gathering, Group
from webhook.cluster.kept_objects import KeptObjects
from webhook.cluster.ledger_feed import LedgerFeed
from webhook.cluster.listener import Listener
from webhook.cluster.nodes import daemon_set, node
from webhook.cluster.nodes.node import StoredNode
from webhook.cluster.nodes.occupancy import Occupancy
from webhook.cluster.read_again import changed_kinds
from webhook.cluster.unread import NEEDED, survey
from webhook.cluster.view import View
from webhook.config import Config
from webhook.core.ledger.text import Decoder
from webhook.core.model.pods import PodRecord
from webhook.core.model.policy import Policy
from webhook.core.notation import names
from webhook.dialects import compiler, config_map, deleted, resource_quota
from webhook.dialects import registry as policy_registry
from webhook.dialects.registry import PolicyResource
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.rest_paths import collection_path
from webhook.jobs.plain_pods import groups as pod_groups
from webhook.jobs.plain_pods import pod as pod_record
from webhook.jobs.plain_pods import pod_group
from webhook.jobs.plain_pods.pod_group import GENERATIONS, NO_GROUP, PodGroupRecord
from webhook.jobs.pricing.context import CONTEXT_PATHS, ReadContext
from webhook.jobs.reading import gating
from webhook.jobs.reading import job as reading
from webhook.jobs.reading.record import Bystander, JobRecord
from webhook.kube.api import Api
from webhook.kube.informer import Informer
from webhook.kube.plain import Plain, plain

log = structlog.get_logger(__name__)

RECOMPILE_SECONDS: Final = 0.05
"""How long changes of policy gather before they are compiled."""


@dataclass(slots=True)
class Feeds:
    """All informers of one cluster."""

    api: Api
    view: View
    config: Config
    kinds: Mapping[str, JobKind]
    rng: random.Random
    listener: Listener = field(default_factory=Listener)
    index_seen: Callable[[int, str | None], None] = lambda version, lease: None
    """Is told the resourceVersion of the ledger's index and the record of the lease as they are read."""
    informers: dict[str, Informer[Any]] = field(default_factory=dict)
    context: ReadContext = field(default_factory=ReadContext)
    kept: KeptObjects = field(default_factory=KeptObjects)
    _ledger: LedgerFeed = field(init=False)
    _config_map: config_map.Reader = field(default_factory=config_map.Reader)
    _compiler: compiler.PolicyCompiler = field(init=False)
    _compiled: Policy = field(default_factory=Policy)
    """What the policy objects say, without queues that are gone."""
    _known: deleted.Known = field(default_factory=deleted.Known)
    """What has to be remembered of earlier policies."""
    _gathering: Gathering = field(init=False)
    _recompile_timer: asyncio.TimerHandle | None = None
    _context_timer: asyncio.TimerHandle | None = None
    _labelling: asyncio.Handle | None = None
    _moved: asyncio.Event = field(default_factory=asyncio.Event)
    """What is not read yet has changed."""
    _refused: set[str] = field(default_factory=set)
    """Feeds whose lists or watches are refused."""
    _jobs_running: bool = False
    """Jobs are being read already, so a change of what they are read with must be applied to them."""

    def __post_init__(self) -> None:
        config = self.config
        self._gathering = Gathering(self._gather)
        self._compiler = compiler.PolicyCompiler(hub=config.hub)
        self._ledger = LedgerFeed(self.view, lambda: self.listener, self._holding_moved, self._index_read)
        self._add("namespaces", "/api/v1/namespaces", plain, self._namespace)
        self._add("pods", "/api/v1/pods", pod_record.decode, self._pod, stand_in=_pod_unread)
        self._add("resourcequotas", "/api/v1/resourcequotas", plain, self._quota)
        maps, ledger, one = names.CONFIG_MAPS, self._ledger, "metadata.name="
        self._add("ledger", maps, plain, ledger.index_changed, field_selector=one + names.LEDGER_NAME)
        self._add("ledger-pages", maps, ledger.read_page, ledger.page_changed, label_selector=names.LEDGER_PAGES)
        self._add("policy-config-map", maps, plain, self._policy, field_selector=one + config_map.NAME)
        if (nodes := self.view.nodes) is not None:
            self._add("nodes", "/api/v1/nodes", node.decode, self._node)
            self._add("daemonsets", "/apis/apps/v1/daemonsets", daemon_set.decode, nodes.take_daemon_set)
        for group, path in GENERATIONS.items():
            self._add(f"podgroups.{group}", path, plain, self._pod_group)
        for resource in policy_registry.compiled(hub=config.hub):
            for version in resource.versions:
                self._add(resource.feed(version), resource.path(version), plain, self._policy)
        for name, path in CONTEXT_PATHS.items():
            self._add(name, path, plain, self._context_object)
        for kind in self.kinds.values():
            for served in kind.every_version:
                path, decode = collection_path(served), self._job_decoder(served)
                self._add(served.feed, path, decode, self._job, stand_in=self._job_stand_in(served))
        self.view.unsynced.update(self.informers)

    def _add(
        self,
        name: str,
        path: str,
        decode: Callable[[bytes], Any],
        on_change: Callable[[str, Any, Any], None],
        *,
        field_selector: str = "",
        label_selector: str = "",
        stand_in: Callable[[bytes, Exception], Any] | None = None,
    ) -> None:
        self.informers[name] = Informer(
            self.api,
            path,
            decode,
            name=name,
            on_change=partial(on_change, name),
            field_selector=field_selector,
            label_selector=label_selector,
            rng=self.rng,
            missing_retry_seconds=self.config.missing_kind_retry_seconds,
            audit_seconds=self.config.audit_seconds,
            stand_in=stand_in,
            on_refusal=lambda: self._refusal_changed(name),
            # Not within a list that is taken in: what comes of it may fail, or look at other feeds.
            on_synced=lambda: asyncio.get_running_loop().call_soon(self._note_synced, name),
        )
        metrics.UNREAD_KINDS.labels(name).set(False)

    async def run(self) -> None:
        """Run every informer until cancelled. What jobs are read with (priorities, limits, namespaces) comes first."""
        first = self._first
        async with asyncio.TaskGroup() as tasks:
            for name in first:
                tasks.create_task(self.informers[name].run(), name=f"feed {name}")
            while not self.view.unsynced.isdisjoint(first):
                await self._moved.wait()
            self._jobs_running = True
            self._recompile()
            self._rebuild_context()
            for name in sorted(self.informers.keys() - set(first)):
                tasks.create_task(self.informers[name].run(), name=f"feed {name}")

    @property
    def _first(self) -> list[str]:
        """Feeds that jobs are read with: they are filled before any job is."""
        resources = policy_registry.compiled(hub=self.config.hub)
        policies = (feed for each in resources for feed in each.feeds)
        return ["namespaces", *CONTEXT_PATHS, "policy-config-map", *policies]

    def unreadable(self) -> Iterator[tuple[str, str, str, str, str]]:
        """Yield apiVersion, kind, namespace and name of objects that cannot be read, and why; of many only some."""
        for informer in self.informers.values():
            for (namespace, name), why in informer.unreadable.items():
                yield (*informer.type, namespace, name, why)

    async def relist_all(self) -> None:
        """Read every job and every pod again; return when that is done, but for what is refused (``View``) then."""
        served = [informer for name in ("pods", *self._job_feeds()) if (informer := self.informers[name]).served]
        while True:
            read = await asyncio.gather(*(informer.reread(unless_refused=True) for informer in served))
            if all(done or each.refusal for done, each in zip(read, served, strict=True)):
                return

    async def reread_jobs(self, kind: str) -> None:
        """Read every job of a kind again, or the pods that make them, and return when that is done."""
        plain_pods = kind == pod_groups.POD_GROUP.key
        feeds = ["pods"] if plain_pods else [each.feed for each in self.kinds[kind].every_version]
        await asyncio.gather(*(self.informers[feed].reread() for feed in feeds))

    def _note_synced(self, name: str) -> None:
        if self._refused or self.view.unread or self.view.outdated:
            self._survey()
        else:
            # With a hundred feeds a start would look a hundred times at each.
            self.view.unsynced.discard(name)
            self._wake()
        if name in NEEDED and not self.informers[name].served:
            log.error(
                "feed.needed_not_served", feed=name, remedy="run Kubernetes 1.30 or newer; look at its API server"
            )
        if name == "ledger":
            self.listener.ledger_changed()

    def _refusal_changed(self, name: str) -> None:
        refused = bool(self.informers[name].refusal)
        (self._refused.add if refused else self._refused.discard)(name)
        metrics.UNREAD_KINDS.labels(name).set(refused)
        self._survey()

    def _survey(self) -> None:
        """Say again what is not read yet, and what cannot be read (``View.unread``, ``View.outdated``)."""
        found = survey(self.informers, self.kinds)
        self.view.unsynced.clear()
        self.view.unsynced.update(found.unsynced)
        self._wake()
        if (found.unread, found.outdated) != (self.view.unread, self.view.outdated):
            if found.unread or found.outdated:
                log.error("feed.unread", unread=found.unread, outdated=found.outdated)
            else:
                log.info("feed.all_read")
            self.view.unread, self.view.outdated = found.unread, found.outdated
            self.listener.unread_changed()

    def _wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    # -- one method a kind of object --------------------------------------------------------------------------------

    def _job_decoder(self, kind: JobKind) -> Callable[[bytes], JobRecord | Bystander]:
        def decode(raw: bytes) -> JobRecord | Bystander:
            document = reading.document_of(raw)
            concerns_us = self._concerns_us(kind, document)
            return (
                reading.read(kind, document, self.context, self.kinds)
                if concerns_us
                else reading.bystander(kind, document, self.kinds)
            )

        return decode

    def _job_stand_in(self, kind: JobKind) -> Callable[[bytes, Exception], JobRecord | None]:
        def unread(raw: bytes, error: Exception) -> JobRecord | None:
            record = reading.unread(kind, reading.document_of(raw), error)
            labels, mapped = self.view.namespaces.get(record.namespace, {}), self.view.policy.namespace_queues
            gated = gating.gated_by_namespace(record.namespace, labels, mapped)
            ours = gated or record.uid in self.view.ledger.entries
            return record if ours and record.namespace not in self.config.exempt_namespaces else None

        return unread

    def _concerns_us(self, kind: JobKind, document: Mapping[str, Any]) -> bool:
        namespace = document["metadata"].get("namespace", "")
        if namespace in self.config.exempt_namespaces:
            return False
        if document["metadata"]["uid"] in self.view.ledger.entries:
            return True
        if not (self.config.left_to_kueue and gating.left_to_kueue(document)):
            labels, mapped = self.view.namespaces.get(namespace, {}), self.view.policy.namespace_queues
            if gating.gated_by(kind, document, labels, mapped, kinds=self.kinds) is not None:
                return True
        return gating.is_marked(kind, document, self.kinds)

    def _job(self, _feed: str, old: JobRecord | Bystander | None, new: JobRecord | Bystander | None) -> None:
        try:
            if new is not None:
                # One without our marks is adopted, where it waits for us at all and was not made for another gang. What
                # was is part of that one for as long as it holds room: pods run there that are charged to nobody else.
                alone = isinstance(new, JobRecord) and not (new.marked or new.made_for or new.named)
                alone = alone and self.view.holder(new.namespace, new.uid) in ("", new.uid)
                owner = new.owner.uid if new.owner else ""
                self.view.put_controller(new.uid, new.namespace, owner, alone=alone, made_for=new.made_for)
                self.view.note_made(new.uid, new.named, running=new.running)
            elif old is not None:
                self.view.drop_controller(old.uid)
        finally:
            self._gang(old if isinstance(old, JobRecord) else None, new if isinstance(new, JobRecord) else None)

    def _gang(self, old: JobRecord | None, new: JobRecord | None) -> None:
        if new is not None:
            if old is not None:
                new.share_with(old)
            self.view.put_job(new)
        elif old is not None:
            self.view.drop_job(old)
        if old is not None or new is not None:
            self.listener.job_changed(old, new)

    def _pod(self, _feed: str, old: PodRecord | None, new: PodRecord | None) -> None:
        try:
            if new is not None:
                self.view.put_pod(new)
            elif old is not None:
                self.view.drop_pod(old.namespace, old.uid)
        finally:
            groups = {(pod.namespace, pod.group) for pod in (old, new) if pod is not None and pod.group}
            for namespace, group in sorted(groups):
                pods = self.view.fences.number_of(namespace, pod_groups.gang_uid(namespace, group))
                self._gathering.changed((namespace, group), pods)
            self.listener.pod_changed(old, new)

    def _node(self, _feed: str, old: StoredNode | None, new: StoredNode | None) -> None:
        assert self.view.nodes is not None
        if self.view.nodes.take_node(old, new):
            self.listener.nodes_changed()

    def _gather(self, key: Group) -> None:
        """Read the gang that the plain pods of a PodGroup make, after one of them changed."""
        namespace, group = key
        uid = pod_groups.gang_uid(namespace, group)
        old = self.view.jobs.get(uid)
        pods = () if namespace in self.config.exempt_namespaces else self.view.fences.pods_of(namespace, uid)
        known = self.view.pod_groups.get((namespace, group), NO_GROUP)
        new = pod_groups.read(namespace, group, pods, self.context, known)
        if new != old:
            self._gang(old, new)

    def _quota(self, _feed: str, old: Plain | None, new: Plain | None) -> None:
        if old is not None and new is not None and old.document.get("spec") == new.document.get("spec"):
            # Its status says what is used after every pod; what it bounds has not changed.
            return
        fence = None if new is None else resource_quota.compile_object(new.document)[0]
        if new is not None and fence is not None:
            self.view.fences.put_fence(fence)
        elif (gone := new or old) is not None:
            self.view.fences.drop_fence(gone.namespace, gone.name)
        if (changed := new or old) is not None:
            self.listener.fences_changed(changed.namespace)

    def _namespace(self, _feed: str, old: Plain | None, new: Plain | None) -> None:
        name = (new or old).name  # type: ignore[union-attr]
        before = self.view.namespaces.get(name, {})
        labels = {} if new is None else dict(new.document["metadata"].get("labels") or {})
        if new is None:
            self.view.namespaces.pop(name, None)
        else:
            self.view.namespaces[name] = labels
        mapped = self.view.policy.namespace_queues
        regated = len({gating.gated_by_namespace(name, each, mapped) for each in (before, labels)}) > 1
        if self._jobs_running and regated and new is not None:
            self._relist_jobs(namespace=name)
        if self.config.added_containers and before != labels:
            self._read_with_others()
        if old is None or new is None or before != labels:
            self.listener.namespace_changed(name)

    def _pod_group(self, feed: str, old: Plain | None, new: Plain | None) -> None:
        self.kept.keep(feed, old, new)
        changed = new or old
        assert changed is not None
        key = (changed.namespace, changed.name)
        # Of one name there may be a PodGroup of each generation, and one API shows the same object in two versions.
        found = ((generation, self.informers[f"podgroups.{generation}"].get(*key)) for generation in GENERATIONS)
        first = next(
            (pod_group.read(generation, stored.document) for generation, stored in found if stored is not None),
            None,
        )
        before = self.view.pod_groups.pop(key, None)
        if first is not None and first == before:
            # A scheduler counts in its status.
            self.view.pod_groups[key] = first
            return
        if first is not None:
            self.view.pod_groups[key] = first
        was, now = before or NO_GROUP, first or NO_GROUP
        if (was.queue, was.network_topology) != (now.queue, now.network_topology):
            self._gather(key)
        self.listener.pod_group_changed(*key)

    def _policy(self, feed: str, old: Plain | None, new: Plain | None) -> None:
        # The status of a queue changes with every count that is written into it.
        if self.kept.keep_changed(feed, old, new):
            self._recompile_soon()

    def _recompile_soon(self) -> None:
        if self._jobs_running and self._recompile_timer is None:
            # A thousand queues applied at once are one compilation.
            self._recompile_timer = asyncio.get_running_loop().call_later(RECOMPILE_SECONDS, self._recompile)

    def _context_object(self, feed: str, old: Plain | None, new: Plain | None) -> None:
        self.kept.keep(feed, old, new)
        self._read_with_others()

    def _read_with_others(self) -> None:
        """Work out soon what jobs are read with, and read those again for which that has changed."""
        if self._jobs_running and self._context_timer is None:
            self._context_timer = asyncio.get_running_loop().call_later(RECOMPILE_SECONDS, self._rebuild_context)

    def _index_read(self, version: int, lease: str | None) -> None:
        self.index_seen(version, lease)

    def _holding_moved(self) -> None:
        if deleted.outdated(self.view.policy, self._known, self.view.holding):
            # At once: the room of a queue that is gone must not be taken for free.
            self._take_policy()

    def ledger_decoder(self, name: str) -> Decoder:
        """Return what has decoded an object of the ledger so far: what did not change is not decoded again."""
        return self._ledger.decoder(name)

    def follow_ledger(self) -> None:
        """Take the ledger that is read from now on, where a leader here said what it is."""
        self._ledger.follow()

    # -- what jobs are read with ------------------------------------------------------------------------------------

    def _rebuild_context(self) -> None:
        self._context_timer = None
        context = self.kept.read_context(self.view, self.config)
        before, self.context = self.context, context
        if self._jobs_running and context != before:
            self._relist_jobs(changed_kinds(before, context, self.view.jobs.values()))

    def _recompile(self) -> None:
        self._recompile_timer = None
        self._compiled = self._compiler.compile(self.policy_objects())
        self._take_policy()

    def _take_policy(self) -> None:
        view = self.view
        entries = view.ledger.entries.values()
        policy, self._known = deleted.with_deleted(self._compiled, self._known, view.holding, entries)
        if policy == self.view.policy:
            return
        regated = policy.namespace_queues.keys() != self.view.policy.namespace_queues.keys()
        self.view.policy = policy
        if view.nodes is not None and view.nodes.take_hyper_nodes(policy.hyper_nodes) and self._labelling is None:
            self._label_nodes(view.nodes)
        self._rebuild_context()
        if regated and self._jobs_running:
            self._relist_jobs()
        self.listener.policy_changed()

    def _label_nodes(self, nodes: Occupancy) -> None:
        # In parts: with rules for thousands of nodes the whole would outlast the lease.
        more = nodes.label_nodes()
        self._labelling = asyncio.get_running_loop().call_soon(self._label_nodes, nodes) if more else None
        self.listener.nodes_changed()

    def policy_objects(self) -> list[Mapping[str, Any]]:
        """Return every policy object of every dialect, those of the ConfigMap included."""
        return self._policy_documents(policy_registry.compiled(hub=self.config.hub))

    def policy_objects_beside(self, plural: str) -> list[Mapping[str, Any]]:
        """Return what a change of an object of a resource may break or be broken by.

        Of LocalQueues, of which there are thousands, only a ConfigMap full of policy can: another may stand in it.
        """
        compiled = policy_registry.compiled(hub=self.config.hub)
        return self._policy_documents(each for each in compiled if plural == "configmaps" or each.kind != "LocalQueue")

    def _policy_documents(self, resources: Iterable[PolicyResource]) -> list[Mapping[str, Any]]:
        documents: list[Mapping[str, Any]] = []
        for resource in resources:
            # Of several served versions the preferred one alone is read: they show the same objects.
            served = next((feed for feed in resource.feeds if self.informers[feed].served), None)
            if served is not None:
                documents.extend(self.kept.documents(served))
        for config in self.kept.documents("policy-config-map"):
            documents.extend(self._config_map.objects_of(config))
        return documents

    def pod_group_object(self, record: PodGroupRecord) -> Mapping[str, Any] | None:
        """Return the PodGroup that ``record`` was read from, if it is still there."""
        feed = f"podgroups.{record.generation}"
        found = self.informers[feed].get(record.namespace, record.name)
        return None if found is None else self.kept.document(feed, found)

    def _relist_jobs(self, keys: Container[str] | None = None, namespace: str | None = None) -> None:
        """Read all jobs again, or those of the kinds with these keys, or those that have objects in a namespace."""
        for kind in self.kinds.values():
            for informer in (self.informers[served.feed] for served in kind.every_version):
                if (keys is None or kind.key in keys) and (namespace is None or informer.holds(namespace)):
                    informer.relist()
        if keys is None or pod_groups.POD_GROUP.key in keys:
            for job in [job for job in self.view.jobs.values() if job.kind == pod_groups.POD_GROUP.key]:
                if namespace in (None, job.namespace):
                    self._gather((job.namespace, job.name))

    def _job_feeds(self) -> Iterator[str]:
        return (served.feed for kind in self.kinds.values() for served in kind.every_version)


def _pod_unread(raw: bytes, _error: Exception) -> PodRecord:
    return pod_record.unread(raw)
