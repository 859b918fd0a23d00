"""Volcano's ``networkTopology`` of a Job and of its tasks' partitions, as the annotations that say the same.

Volcano keeps a job within one HyperNode of a tier at most (``hard``), or tries to (``soft``). The configuration says
which node label tells those of a tier apart, or the HyperNodes themselves do. Of all domains up to the tier the
narrowest that holds the job is taken. What has no tier, or cannot be said by annotations, is left out, and its author
is told why. Annotations that the owner wrote on a task count instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from webhook.core.model.gang import Nearness, PodSet
from webhook.core.model.policy import HyperNode
from webhook.core.nodes.tiers import is_tier, tier_label
from webhook.core.notation import names
from webhook.core.notation.problem import Unreadable
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.pod_sets.sites import PodSetSite
from webhook.jobs.pricing.context import NetworkTier, ReadContext
from webhook.untyped import paths
from webhook.untyped.values import items

GROUP: Final = "batch.volcano.sh"
_HARD, _SOFT = "hard", "soft"
_TOGETHER: Final = "network-topology"
"""Name of the group of all tasks of a job that has to be in one domain."""
_PARTS: Final = "spec.tasks[].partitionPolicy"
_OWN: Final = (
    names.REQUIRED_TOPOLOGY,
    names.PREFERRED_TOPOLOGY,
    names.UNCONSTRAINED_TOPOLOGY,
    names.SLICE_TOPOLOGY,
    names.POD_SET_GROUP,
)
_NO_TIER: Final = "there is no HyperNode of its tier or of a lower one, and no networkTiers of the configuration"


def tiers(configured: tuple[NetworkTier, ...], hyper_nodes: Sequence[HyperNode]) -> tuple[NetworkTier, ...]:
    """Return the tiers that jobs may name: those of the configuration, or where it has none, of the HyperNodes."""
    found: dict[int, NetworkTier] = {}
    for each in hyper_nodes:
        known = found.get(each.tier)
        if known is None or (each.tier_name and not known.name):
            found[each.tier] = NetworkTier(tier=each.tier, nodeLabel=tier_label(each.tier), name=each.tier_name)
    return configured or tuple(found[number] for number in sorted(found))


@dataclass(slots=True)
class Wanted:
    """What a job says about where its pods go."""

    annotations: dict[str, dict[str, str]] = field(default_factory=dict)
    """By pod set."""
    left: dict[str, str] = field(default_factory=dict)
    """Field to why it is not followed."""


def wanted(kind: JobKind, obj: Mapping[str, Any], sites: Sequence[PodSetSite], context: ReadContext) -> Wanted:
    """Return what a job's fields of Volcano's come to. Total: what is of another type is left."""
    found = Wanted()
    if kind.group != GROUP:
        return found
    stated = paths.find(obj, ("spec", "networkTopology"))
    counted = [site for site in sites if site.count]
    if stated is not None:
        of_all = _of_job(stated, context.network_tiers)
        if isinstance(of_all, str):
            found.left["spec.networkTopology"] = of_all
        else:
            group = {names.POD_SET_GROUP: _TOGETHER} if len(counted) > 1 else {}
            found.annotations = {site.name: {**of_all, **group} for site in counted}
    tasks = [task for task in items(paths.find(obj, ("spec", "tasks"))) if isinstance(task, dict)]
    if any(task.get("networkTopology") for task in tasks):
        found.left["spec.tasks[].networkTopology"] = "it is not a field of a task: partitionPolicy has one"
    for task in tasks:
        policy = task.get("partitionPolicy")
        if policy:
            of_parts = _of_parts(policy, context.network_tiers)
            own = found.annotations.setdefault(str(task.get("name")).lower(), {})
            if isinstance(of_parts, str):
                found.left[_PARTS] = of_parts
            elif names.POD_SET_GROUP in own:
                found.left[_PARTS] = "all tasks of the job have to be in one domain together"
            else:
                own |= of_parts
    return found


def of_group(pod_sets: tuple[PodSet, ...], stated: object, context: ReadContext) -> tuple[PodSet, ...]:
    """Return the pod sets of a PodGroup's plain pods, placed as the ``networkTopology`` that it has ``stated``."""
    asked = _of_job(stated, context.network_tiers) if stated else ""
    if isinstance(asked, str):
        return pod_sets
    ((name, label),) = asked.items()
    near, together = Nearness(label, name == names.REQUIRED_TOPOLOGY), _TOGETHER if len(pod_sets) > 1 else ""
    return nested(tuple(replace(each, near=near, together=together) for each in pod_sets), context.network_tiers)


def nested(pod_sets: tuple[PodSet, ...], tiers: Sequence[NetworkTier]) -> tuple[PodSet, ...]:
    """Return the pod sets, of which those that are placed by tiers know how these lie in each other."""
    labels = [each.node_label for each in sorted(tiers, key=lambda each: -each.tier)]

    def knowing(near: Nearness) -> Nearness:
        named = [label for label in (near.level, near.slice_level) if label]
        if not named or not {*named} <= {*labels}:
            return near
        return replace(near, path=tuple(labels[labels.index(near.level) if near.required else 0 :]))

    return tuple(each if each.near is None else replace(each, near=knowing(each.near)) for each in pod_sets)


def why_left(stated: object, tiers: Sequence[NetworkTier]) -> str | None:
    """Return why what a PodGroup says is not followed for plain pods; None where it is, or says nothing."""
    asked = _of_job(stated, tiers) if stated else None
    return asked if isinstance(asked, str) else None


def with_annotations(
    kind: JobKind, obj: Mapping[str, Any], sites: Sequence[PodSetSite], context: ReadContext
) -> Sequence[PodSetSite]:
    """Return the pod sets as if their owner had written annotations for what Volcano's fields say.

    Raises Unreadable where the owner names a tier of HyperNodes: no kind but Volcano's is held to them.
    """
    for site in sites:
        for name, value in site.annotations.items():
            if name in _OWN and isinstance(value, str) and is_tier(value):
                why, fix = "is a tier of HyperNodes and no node bears it", "name a label that nodes have"
                raise Unreadable(f"pod set {site.name}: annotation {name}", value, why, fix)
    if kind.group != GROUP:
        return sites
    asked = wanted(kind, obj, sites, context).annotations
    return [_annotated(site, asked.get(site.name, {})) for site in sites]


def _annotated(site: PodSetSite, annotations: Mapping[str, str]) -> PodSetSite:
    metadata, own = site.metadata or {}, site.annotations
    if not annotations or any(own.get(name) for name in _OWN):
        return site
    return replace(site, metadata={**metadata, "annotations": {**own, **annotations}})


def _of_job(stated: object, tiers: Sequence[NetworkTier]) -> dict[str, str] | str:
    mode, label = _mode(stated), _label(stated, tiers)
    if mode == _SOFT:
        # The lower the better; from the lowest on wider ones are looked at where none holds the job.
        lowest = min(tiers, key=lambda each: each.tier, default=None)
        return _NO_TIER if lowest is None else {names.PREFERRED_TOPOLOGY: lowest.node_label}
    if mode != _HARD:
        return f"mode is neither {_HARD} nor {_SOFT}"
    return _NO_TIER if label is None else {names.REQUIRED_TOPOLOGY: label}


def _of_parts(policy: object, tiers: Sequence[NetworkTier]) -> dict[str, str] | str:
    stated, size = paths.find(policy, ("networkTopology",)), paths.find(policy, ("partitionSize",))
    if stated is None:
        return "it names no networkTopology"
    if _mode(stated) != _HARD:
        return f"mode {_mode(stated)} of a partition is not carried out"
    label = _label(stated, tiers)
    if label is None:
        return _NO_TIER
    if type(size) is not int or size < 1:
        return "partitionSize is not a number of pods"
    return {names.SLICE_TOPOLOGY: label, names.SLICE_SIZE: str(size)}


def _mode(stated: object) -> object:
    return paths.find(stated, ("mode",)) or _HARD


def _label(stated: object, tiers: Sequence[NetworkTier]) -> str | None:
    """Return the label of the highest tier that is allowed, by its number or its name; None where there is none."""
    number, name = (paths.find(stated, (key,)) for key in ("highestTierAllowed", "highestTierName"))
    if name:
        return next((each.node_label for each in tiers if each.name == name), None)
    allowed = [each for each in tiers if type(number) is int and each.tier <= number]
    return max(allowed, key=lambda each: each.tier).node_label if allowed else None
