"""What the API server lets nobody list, and who needs it: a kind that cannot be read is a fault of that kind alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

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
KEPT: Final = frozenset({NODES, DAEMON_SETS, POLICY, NAMESPACE_QUEUES, CHECKS})
"""What was read of these is gone by where it may be old; jobs and their PodGroups have to be as they are."""


@dataclass(slots=True)
class Survey:
    """What is not read as it is now, by name, and why: as ``View`` has it."""

    unsynced: set[str] = field(default_factory=set)
    unread: dict[str, str] = field(default_factory=dict)
    outdated: dict[str, str] = field(default_factory=dict)


def survey(informers: Mapping[str, Informer[Any]], kinds: Mapping[str, JobKind]) -> Survey:
    """Return how far the feeds have come, and what of them is refused for good."""
    found = Survey(unsynced={name for name, informer in informers.items() if not informer.synced.is_set()})
    refused = {name: informer.refusal for name, informer in informers.items() if informer.refusal}
    if not refused:
        return found
    others = refused.keys() - found.unsynced
    for topic, feeds in _topics(kinds):
        here = [name for name in feeds if name in refused]
        found.unsynced.difference_update(here)
        others = others - set(here)
        # Of several versions, which show the same objects, one is enough.
        if here and not any(informers[name].served for name in feeds if name not in refused):
            known = topic in KEPT and any(informers[name].served for name in feeds)
            (found.outdated if known else found.unread).setdefault(topic, f"{here[0]}: {refused[here[0]]}")
    found.outdated |= {name: refused[name] for name in sorted(others)}
    return found


def _topics(kinds: Mapping[str, JobKind]) -> Iterator[tuple[str, list[str]]]:
    """Yield what is not needed by all, by its name in ``View.unread``, and the feeds that show it."""
    for kind in kinds.values():
        feeds = [served.feed for served in kind.every_version]
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
        yield topic, list(resource.feeds)
    # A queue that names one is inactive without them.
    yield CHECKS, list(policy_registry.CHECKS.feeds)
