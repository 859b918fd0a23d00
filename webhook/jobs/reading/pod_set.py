"""A pod set as found in an object to what one of its pods costs, how many there are, and where they may run."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import orjson

from webhook.core.model.gang import Nearness, PodPrice, PodSet, Requirement, Toleration
from webhook.core.notation import names
from webhook.core.notation.counted import counted
from webhook.core.notation.problem import Unreadable
from webhook.jobs.pod_sets.sites import PodSetSite
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.pricing.host_ports import host_ports
from webhook.jobs.pricing.pod_requests import named, price, with_limit_range_defaults
from webhook.jobs.reading.record import Admission
from webhook.untyped import paths
from webhook.untyped.kept_text import kept_text
from webhook.untyped.values import items, mapping, mappings, text

_TOPOLOGIES: Final = (names.REQUIRED_TOPOLOGY, names.PREFERRED_TOPOLOGY, names.UNCONSTRAINED_TOPOLOGY)
_SLICES: Final = (names.SLICE_TOPOLOGY, names.SLICE_SIZE, names.SLICE_LAYERS)
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_LABEL: Final = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII
)
_EMPTY: Final[dict[str, Any]] = {}
_NONE_ADDED: Final = frozenset[str]()
PLACING_MAX: Final = 1_000
"""Tolerations of one pod set, and parts of its node affinity: each is compared with nodes and flavors."""
PRICED_BYTES_MAX: Final = 8192
"""What is remembered of pod specs is bounded: the price of a longer one is worked out each time."""
_TERM_FIELDS: Final = ("matchExpressions", "matchFields")
_NEVER: Final = Requirement("", "In", ())
"""What a term says that lists nothing: no node is meant."""
_Term = tuple[Requirement, ...]
_AFFINITY_TERMS: Final = ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")


def pod_set_of(
    site: PodSetSite, namespace: str, context: ReadContext, undo: Admission | None = None, *, admitted: bool = False
) -> PodSet:
    """Return a pod set as it is priced and placed in ``namespace``. Raises Unreadable.

    ``undo`` is the start whose changes are still in the template; ``admitted`` pod sets may be at their fewest pods.
    """
    try:
        cost = own = _price(site.spec, namespace, context)
        if site.added or site.added_first:
            cost = _price(site.whole_spec, namespace, context)
    except Unreadable as error:
        raise Unreadable.of(error.problem.within(f"pod set {site.name}: ")) from None
    scheduling = _scheduling(site)
    pod_set = PodSet(
        name=site.name,
        count=site.count,
        price=cost,
        added=_NONE_ADDED if cost is own else frozenset(cost.requests.keys() - own.requests.keys()),
        min_count=_min_count(site, admitted),
        node_selector=_node_selector(site, scheduling.get("nodeSelector")),
        node_affinity=_node_affinity(site.spec.get("affinity")),
        tolerations=_tolerations(scheduling.get("tolerations")),
        near=_near(site, admitted),
        host_ports=host_ports(site.spec, site.opened_port),
        together=str(site.annotations.get(names.POD_SET_GROUP) or ""),
    )
    return _with_runtime_class(pod_set if undo is None else _undone(pod_set, undo), site, context)


def _with_runtime_class(pod_set: PodSet, site: PodSetSite, context: ReadContext) -> PodSet:
    """Return the pod set with what the API server adds to pods of its RuntimeClass: where they may run."""
    if not context.runtime_classes:
        return pod_set
    runtime = context.runtime_classes.get(named(site.spec, "runtimeClassName"))
    if runtime is None or not runtime.scheduling:
        return pod_set
    selector = {**pod_set.node_selector, **mapping(runtime.scheduling.get("nodeSelector"))}
    tolerations = (*pod_set.tolerations, *_tolerations(runtime.scheduling.get("tolerations")))
    return replace(pod_set, node_selector=selector, tolerations=tolerations)


def _near(site: PodSetSite, admitted: bool) -> Nearness | None:
    """Return the domain that a pod set has to be in, or had best be in, and its slices. Raises Unreadable."""
    annotations = site.annotations
    if not annotations:
        return None
    asked = [name for name in _TOPOLOGIES if annotations.get(name) not in (None, "")]
    if len(asked) > 1:
        why = f"cannot be combined with any of {', '.join(_TOPOLOGIES)}"
        raise Unreadable(f"pod set {site.name}: annotation {asked[1]}", annotations[asked[1]], why, "keep one of them")
    named = [name for name in asked if name != names.UNCONSTRAINED_TOPOLOGY]
    level = _label(site, annotations, named[0]) if named else ""
    slice_level, slice_size = _slices(site, annotations, admitted)
    if not level and not slice_size and annotations.get(names.UNCONSTRAINED_TOPOLOGY) != "true":
        return None
    return Nearness(level, named == [names.REQUIRED_TOPOLOGY], slice_level, slice_size)


def _label(site: PodSetSite, annotations: Mapping[str, Any], name: str) -> str:
    level = annotations[name]
    if not isinstance(level, str) or not _LABEL.fullmatch(level):
        why = "is not the name of a node label"
        fix = "name the label that tells racks or blocks apart"
        raise Unreadable(f"pod set {site.name}: annotation {name}", level, why, fix)
    return level


def _slices(site: PodSetSite, annotations: Mapping[str, Any], admitted: bool) -> tuple[str, int]:
    """Return the label that holds each slice together and its pods; empty and 0 where there are none."""
    stated = {name: annotations[name] for name in _SLICES if annotations.get(name) not in (None, "")}
    if not stated:
        return "", 0

    def wrong(name: str, why: str, fix: str) -> Unreadable:
        return Unreadable(f"pod set {site.name}: annotation {name}", stated[name], why, fix)

    if names.SLICE_LAYERS in stated:
        fix = f"name one level by {names.SLICE_TOPOLOGY} and {names.SLICE_SIZE}"
        raise wrong(names.SLICE_LAYERS, "is not carried out", fix)
    if len(stated) == 1:
        (one,) = stated
        other = names.SLICE_TOPOLOGY if one == names.SLICE_SIZE else names.SLICE_SIZE
        raise wrong(one, f"needs {other} with it", "write both, or neither")
    if annotations.get(names.POD_SET_GROUP):
        why = f"cannot be combined with {names.POD_SET_GROUP}"
        raise wrong(names.SLICE_TOPOLOGY, why, "keep one of them")
    level, size = _label(site, annotations, names.SLICE_TOPOLOGY), stated[names.SLICE_SIZE]
    if not isinstance(size, str) or not _NUMBER.fullmatch(size):
        raise wrong(names.SLICE_SIZE, "is not a number of pods", f"write 1 to {site.count}, in quotes")
    # A start may have written fewer pods than the owner did.
    if site.count % int(size) and not admitted:
        why = f"does not divide the {counted(site.count, 'pod')} of the set"
        raise wrong(names.SLICE_SIZE, why, "write a number that does, or change the number of pods")
    return (level, int(size)) if int(size) > 1 else ("", 0)


def _price(spec: Mapping[str, Any], namespace: str, context: ReadContext) -> PodPrice:
    if namespace in context.limit_ranges:
        spec = with_limit_range_defaults(spec, context.limit_ranges[namespace])
    runtime = context.runtime_classes.get(named(spec, "runtimeClassName"))
    overhead = None if runtime is None else runtime.overhead
    try:
        text, added = kept_text(spec), kept_text(overhead)
    except TypeError:
        text = added = b""  # No JSON, which no API server sends.
    if not text or len(text) + len(added) > PRICED_BYTES_MAX:
        return price(spec, overhead, default_priority_class=context.default_priority_class)
    return _priced(text, added, context.default_priority_class)


@lru_cache(maxsize=256)
def _priced(spec: bytes, overhead: bytes, default_priority_class: str) -> PodPrice:
    """Price a pod spec by its text: a job is read at each of its changes, and again by its reviews, and its pods cost
    the same. Raises Unreadable.
    """
    return price(orjson.loads(spec), orjson.loads(overhead), default_priority_class=default_priority_class)


def _scheduling(site: PodSetSite) -> Mapping[str, Any]:
    """Return node selector and tolerations of the pods: the template's, then those at the place patches write to."""
    if site.scheduling is site.spec:
        return site.scheduling
    selectors = [s for s in (site.spec.get("nodeSelector"), site.scheduling.get("nodeSelector")) if isinstance(s, dict)]
    merged = {key: value for selector in selectors for key, value in selector.items()}
    lists = [t for t in (site.spec.get("tolerations"), site.scheduling.get("tolerations")) if isinstance(t, list)]
    return {"nodeSelector": merged, "tolerations": [item for tolerations in lists for item in tolerations]}


def _undone(pod_set: PodSet, undo: Admission) -> PodSet:
    """Return the pod set as its owner wrote it, before the start that ``undo`` records."""
    injected = undo.injected.get(pod_set.name, _EMPTY)
    keys = injected.get("nodeSelector")
    count = injected.get("tolerations")
    keep = len(pod_set.tolerations) - (count if isinstance(count, int) else 0)
    return replace(
        pod_set,
        node_selector={
            key: value
            for key, value in pod_set.node_selector.items()
            if not (isinstance(keys, (list, tuple)) and key in keys)
        },
        tolerations=pod_set.tolerations[: max(keep, 0)],
    )


def _min_count(site: PodSetSite, admitted: bool) -> int | None:
    least = site.min_count
    if least is None or (admitted and least >= site.count):
        return None
    # Where a start writes the number of pods down, none at all would be the end of the set.
    fewest = 0 if site.count_path is None else 1
    if fewest <= least <= site.count:
        return least
    message = f"fewest pods worth starting must be from {fewest} to the number of pods"
    raise Unreadable(site.min_count_at, least, message, f"write {fewest} to {site.count}")


def _node_selector(site: PodSetSite, stated: object) -> Mapping[str, str]:
    """Return the labels that nodes have to bear. Raises Unreadable: some kinds' templates may hold anything."""
    selector = mapping(stated)
    if not selector:
        return selector
    wrong = next((key for key, value in selector.items() if not isinstance(value, str)), None)
    if wrong is not None:
        where = f"pod set {site.name}: {paths.render(('spec', 'nodeSelector', wrong))}"
        raise Unreadable(where, selector[wrong], "is not the value of a label", "write it in quotes")
    return selector


def _tolerations(tolerations: object) -> tuple[Toleration, ...]:
    if not isinstance(tolerations, list):
        return ()
    _refuse_too_many("spec.tolerations", len(tolerations), "tolerations")
    return tuple(
        Toleration(
            key=text(item.get("key")),
            operator=text(item.get("operator")) or "Equal",
            value=text(item.get("value")),
            effect=text(item.get("effect")),
            seconds=item["tolerationSeconds"] if type(item.get("tolerationSeconds")) is int else None,
        )
        for item in mappings(tolerations)
    )


def _node_affinity(affinity: object) -> tuple[_Term, ...]:
    if not isinstance(affinity, dict):
        return ()
    terms = paths.find(affinity, _AFFINITY_TERMS)
    if not isinstance(terms, list):
        return ()
    # Each term counts, and each requirement and value in it.
    described = [each for term in mappings(terms) for field in _TERM_FIELDS for each in items(term.get(field))]
    values = sum(len(items(each.get("values"))) for each in mappings(described))
    where = paths.render(("spec", "affinity", *_AFFINITY_TERMS))
    _refuse_too_many(where, len(terms) + len(described) + values, "terms, requirements and values")
    return _merged(_term(term) for term in mappings(terms))


def _merged(terms: Iterable[_Term]) -> tuple[_Term, ...]:
    """Return the same in fewer terms: any may hold, so those that each only list values of one label are one list."""
    found: dict[str | _Term, dict[str, None]] = {}
    for term in terms:
        if len(term) == 1 and term[0].operator == "In":
            found.setdefault(term[0].key, {}).update(dict.fromkeys(term[0].values))
        else:
            found[term] = {}
    return tuple(
        (Requirement(each, "In", tuple(values)),) if isinstance(each, str) else each for each, values in found.items()
    )


def _refuse_too_many(where: str, number: int, what: str) -> None:
    if number > PLACING_MAX:
        raise Unreadable(where, number, f"is more than {PLACING_MAX} {what}", "say it by a label of the nodes")


def _term(term: Mapping[str, Any]) -> _Term:
    # The API server takes no other field of a node than its name.
    of_labels = (_requirement(item, str(item.get("key"))) for item in mappings(term.get("matchExpressions")))
    of_name = (_requirement(item, names.NODE_NAME) for item in mappings(term.get("matchFields")))
    return (*of_labels, *of_name) or (_NEVER,)


def _requirement(item: Mapping[str, Any], key: str) -> Requirement:
    return Requirement(key, str(item.get("operator")), tuple(map(str, items(item.get("values")))))
