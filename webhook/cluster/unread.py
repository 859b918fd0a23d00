"""What the API server lets nobody list, and who needs it: one kind that cannot be read is a fault of its own."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from webhook.cluster.feed_names import job_feed, policy_feed
from webhook.cluster.read_again import TRAIN_JOB
from webhook.cluster.view import CHECKS, DAEMON_SETS, NAMESPACE_QUEUES, NODES, POD_GROUPS, POLICY
from webhook.dialects import elastic_quota_tree
from webhook.dialects import registry as policy_registry
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.plain_pods.pod_group import GENERATIONS
from webhook.kube.informer import Informer

JOBS: Final = "Job.batch/v1"
NEEDED: Final = ("namespaces", "pods", "resourcequotas", "priorityclasses", "limitranges", JOBS)
"""What every cluster serves, and nothing can be decided well without: it is waited for."""


def survey(informers: Mapping[str, Informer[Any]], kinds: Mapping[str, JobKind]) -> tuple[dict[str, str], set[str]]:
    """Return what is unread for good, as ``View.unread`` has it, and the names of feeds that are still waited for."""
    unread: dict[str, str] = {}
    unsynced = {name for name, informer in informers.items() if not informer.synced.is_set()}
    if not any(informers[name].refusal for name in unsynced):
        return unread, unsynced
    for topic, feeds in _topics(kinds):
        refused = [name for name in feeds if name in unsynced and informers[name].refusal]
        unsynced.difference_update(refused)
        # Of several versions, which show the same objects, one is enough.
        if refused and not any(informers[name].served for name in feeds):
            unread.setdefault(topic, f"{refused[0]}: {informers[refused[0]].refusal}")
    return unread, unsynced


def _topics(kinds: Mapping[str, JobKind]) -> Iterator[tuple[str, list[str]]]:
    """Yield what is not needed by all, by its name in ``View.unread``, and the feeds that show it."""
    for kind in kinds.values():
        feeds = [job_feed(served) for served in kind.every_version]
        if JOBS not in feeds:
            yield kind.key, feeds
    yield NODES, ["nodes"]
    yield DAEMON_SETS, ["daemonsets"]
    for generation in GENERATIONS:
        yield POD_GROUPS, [f"podgroups.{generation}"]
    for name in ("trainingruntimes", "clustertrainingruntimes"):
        yield TRAIN_JOB, [name]
    for resource in policy_registry.COMPILED:
        topic = NAMESPACE_QUEUES if resource.kind == elastic_quota_tree.KIND else POLICY
        yield topic, [policy_feed(resource, version) for version in resource.versions]
    # A queue that names one is inactive without them.
    yield CHECKS, [policy_feed(policy_registry.CHECKS, version) for version in policy_registry.CHECKS.versions]
