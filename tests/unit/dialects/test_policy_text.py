"""A policy written down as Kueue's objects, in the ConfigMap's text, and read back is the same policy."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml
from hypothesis import given, settings

from tests.unit.core.random_worlds import vertices
from tests.unit.core.worlds import policy
from webhook.core.model.policy import Cohort, Policy, Preemption, Queue, ResourceGroup, Strategy
from webhook.core.notation import quantity
from webhook.dialects import config_map
from webhook.dialects.compiler import compile_policy
from webhook.dialects.kueue import objects as kueue

VERSION = "kueue.x-k8s.io/v1beta2"


def encoded(found: Policy) -> dict[str, str]:
    """Return the data of a ConfigMap that says the same as ``found``, an entry an object."""
    objects = [
        *(_object("ResourceFlavor", name, {}) for name in found.flavors),
        *(_object("Cohort", cohort.name, _cohort(cohort)) for cohort in found.cohorts.values()),
        *(_object("ClusterQueue", queue.name, _queue(queue)) for queue in found.queues.values()),
    ]
    return {f"{obj['kind']}-{obj['metadata']['name']}": yaml.safe_dump(obj) for obj in objects}


def _object(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}


def _cohort(cohort: Cohort) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "resourceGroups": [_group(group) for group in cohort.resource_groups],
        "fairSharing": {"weight": quantity.render(cohort.weight_millis)},
    }
    return spec | ({} if cohort.parent is None else {"parentName": cohort.parent})


def _queue(queue: Queue) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "resourceGroups": [_group(group) for group in queue.resource_groups],
        "queueingStrategy": str(queue.strategy),
        "stopPolicy": str(queue.stop_policy),
        "namespaceSelector": {},
        "preemption": _preemption(queue.preemption),
        "flavorFungibility": {
            "whenCanBorrow": str(queue.fungibility.when_can_borrow),
            "whenCanPreempt": str(queue.fungibility.when_can_preempt),
        },
        "fairSharing": {"weight": quantity.render(queue.weight_millis)},
    }
    return spec | ({} if queue.cohort is None else {"cohortName": queue.cohort})


def _preemption(rules: Preemption) -> dict[str, Any]:
    borrow: dict[str, Any] = {"policy": str(rules.borrow_within_cohort)}
    if rules.max_priority_threshold is not None:
        borrow["maxPriorityThreshold"] = rules.max_priority_threshold
    return {
        "withinClusterQueue": str(rules.within_queue),
        "reclaimWithinCohort": str(rules.reclaim_within_cohort),
        "borrowWithinCohort": borrow,
    }


def _group(group: ResourceGroup) -> dict[str, Any]:
    def quota(name: str, quotas: Mapping[str, Any]) -> dict[str, Any]:
        found = quotas[name]
        stated = {
            "nominalQuota": found.nominal,
            "borrowingLimit": found.borrowing_limit,
            "lendingLimit": found.lending_limit,
        }
        return {"name": name} | {k: quantity.render(v, name) for k, v in stated.items() if v is not None}

    return {
        "coveredResources": list(group.resources),
        "flavors": [
            {"name": flavor.flavor, "resources": [quota(name, flavor.quotas) for name in group.resources]}
            for flavor in group.flavors
        ],
    }


def _valid(drawn: Policy) -> Policy:
    """Return ``drawn`` as Kueue would have it: no limits without a cohort, and no more lent than owned."""

    def mended(group: ResourceGroup, *, is_queue: bool, has_parent: bool) -> ResourceGroup:
        def mend(quota: Any) -> Any:
            lending = quota.lending_limit
            if is_queue and lending is not None:
                lending = min(lending, quota.nominal)
            return replace(quota, lending_limit=lending) if has_parent else type(quota)(quota.nominal)

        flavors = tuple(replace(f, quotas={name: mend(q) for name, q in f.quotas.items()}) for f in group.flavors)
        return replace(group, flavors=flavors)

    def node(found: Any, parent: str | None) -> Any:
        is_queue = isinstance(found, Queue)
        groups = tuple(mended(g, is_queue=is_queue, has_parent=parent is not None) for g in found.resource_groups)
        return replace(found, resource_groups=groups)

    queues = {
        name: replace(node(queue, queue.cohort), dialect=kueue.DIALECT, reclaimable=True, guards_borrowing=False)
        for name, queue in drawn.queues.items()
    }
    return replace(
        drawn, queues=queues, cohorts={name: node(cohort, cohort.parent) for name, cohort in drawn.cohorts.items()}
    )


@settings(max_examples=60)
@given(vertices(strategies=tuple(Strategy), draining=True))
def test_decoding_an_encoded_policy_gives_the_same_policy(drawn: list[Any]) -> None:
    written = _valid(policy(*drawn))
    objects, problems = config_map.objects_of({"data": encoded(written)})
    assert problems == ()
    read = compile_policy(objects)
    assert read.problems == ()
    assert read == written
