"""Pod sets as found in a job object by the paths of its kind: names, counts, templates, and where patches reach."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from webhook.core.model.frozen import frozen
from webhook.core.notation.counted import counted
from webhook.core.notation.problem import Unreadable
from webhook.jobs.kinds.kind import Factor, Layout, PodSetSource
from webhook.untyped import paths
from webhook.untyped.paths import Path
from webhook.untyped.values import mapping

JsonPath = tuple[str | int, ...]
"""Map keys and list indexes from the root of an object."""
PODS_MAX: Final = 1_000_000
"""More pods than any cluster runs: a count beyond it is a typing error, and arithmetic on it helps nobody."""
POD_SETS_MAX: Final = 512
"""Of one job; a reservation holds fewer (``core.ledger.bounds``)."""


@dataclass(frozen=True, slots=True)
class Scaffold:
    """A list or map on the way to the place that patches write to, outside of any pod template."""

    place: JsonPath
    value: Any
    """What a patch puts there when it is absent."""
    stands: bool


@frozen
class PodSetSite:
    """One pod set as found in an object.

    ``metadata`` and ``spec`` are the pod template's; the two paths lead to the maps that take labels and annotations,
    and node selector and tolerations. They are list and map keys from the root; None where the kind has no such place.
    """

    name: str
    count: int
    metadata: Mapping[str, Any] | None
    """What is at ``metadata_path`` now; None when absent."""
    spec: Mapping[str, Any]
    """The pod spec that is priced."""
    scheduling: Mapping[str, Any]
    """What is at ``spec_path`` now; the pod spec itself for ordinary templates."""
    owner_labels: Mapping[str, Any] = field(default_factory=dict)
    """Labels of the pod template, where it is not ``metadata`` that carries them."""
    scaffold: tuple[Scaffold, ...] = ()
    template_path: JsonPath | None = None
    """The pod template itself, where the two paths below are its ``metadata`` and ``spec``."""
    metadata_path: JsonPath | None = None
    spec_path: JsonPath | None = None
    added: tuple[Mapping[str, Any], ...] = ()
    """Init containers, or sidecars, that the kind's controller adds behind the template's own, or an injector does."""
    added_first: tuple[Mapping[str, Any], ...] = ()
    """Sidecars that an injector may put before all others: what ends before the others start then runs with them."""
    opened_port: int | None = None
    """A port that the kind's controller opens in addition to the template's own."""
    min_count: int | None = None
    min_count_at: str = ""
    """Where ``min_count`` is written, for people."""
    count_path: JsonPath | None = None
    count_written: int | None = None
    """The number at ``count_path`` as written; None when absent."""
    count_follower: JsonPath | None = None
    """Another number that is always the one at ``count_path``."""
    tolerations_along: tuple[Mapping[str, Any], ...] = ()
    """The pods' own tolerations, where those at ``spec_path`` take their place."""

    @property
    def path(self) -> str:
        """JSON pointer of the template, or of the place that takes labels where there is no template."""
        return paths.pointer(*(self.template_path or self.metadata_path or ()))

    @property
    def whole_spec(self) -> Mapping[str, Any]:
        """The pod spec with what others add; ``spec`` must be one that can be priced."""
        if not self.added and not self.added_first:
            return self.spec
        containers = [*self.added_first, *(self.spec.get("initContainers") or ()), *self.added]
        return {**self.spec, "initContainers": containers}

    @property
    def labels(self) -> Mapping[str, Any]:
        """Labels at the place where patches write them."""
        return mapping(self.metadata and self.metadata.get("labels"))

    @property
    def annotations(self) -> Mapping[str, Any]:
        """Annotations at the same place."""
        return mapping(self.metadata and self.metadata.get("annotations"))

    @property
    def pod_labels(self) -> Mapping[str, Any]:
        """Labels that the pods will carry."""
        return {**self.owner_labels, **self.labels} if self.owner_labels else self.labels


def from_source(source: PodSetSource, obj: Mapping[str, Any]) -> Iterator[PodSetSite]:
    """Yield the pod sets that one source describes. Raises Unreadable."""
    if source.layout is Layout.ONE:
        if source.optional and paths.find(obj, source.template) is None:
            return
        yield _site(source, obj, obj, (), source.name)
        return
    items = paths.find(obj, source.items)
    if items is None and source.optional:
        return
    if source.layout is Layout.LIST:
        yield from _from_list(source, obj, items)
    else:
        yield from _from_map(source, obj, items)


def refuse_too_many(where: str, pod_sets: int) -> None:
    """Refuse more pod sets than a reservation holds before they are read: each takes time. Raises Unreadable."""
    if pod_sets > POD_SETS_MAX:
        message = f"are more than {POD_SETS_MAX} pod sets, which no reservation holds"
        raise Unreadable(where, pod_sets, message, "use fewer with more replicas, or split the job")


def _from_list(source: PodSetSource, obj: Mapping[str, Any], items: object) -> Iterator[PodSetSite]:
    if not isinstance(items, list):
        raise Unreadable(paths.render(source.items), items, "is not a list", "write a list")
    refuse_too_many(paths.render(source.items), len(items))
    for index, item in enumerate(items):
        name = item.get(source.name) if isinstance(item, dict) else None
        if not isinstance(name, str) or not name:
            where = f"{paths.render(source.items)}[{index}].{source.name}"
            raise Unreadable(where, name, "names no pod set", "write a name")
        yield _site(source, obj, item, (*source.items, index), name.lower())


def _from_map(source: PodSetSource, obj: Mapping[str, Any], items: object) -> Iterator[PodSetSite]:
    where = paths.render(source.items)
    if not isinstance(items, dict) or not items:
        raise Unreadable(where, items, "has no replicas", f"write one of {', '.join(source.order)}")
    # The operators accept any spelling of case and rewrite it, so an unnormalised object is read the same way.
    keys = {str(key).lower(): key for key in items}
    known = [name.lower() for name in source.order] or list(keys)
    for name in keys.keys() - set(known):
        raise Unreadable(
            f"{where}.{keys[name]}", "", "is not a replica type", f"write one of {', '.join(source.order)}"
        )
    for name in known:
        if name in keys and items[keys[name]] is not None:
            yield _site(source, obj, items[keys[name]], (*source.items, keys[name]), name)


def _site(source: PodSetSource, obj: Mapping[str, Any], item: Any, at: JsonPath, name: str) -> PodSetSite:
    template = paths.find(item, source.template)
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        where = paths.render(tuple(map(str, (*at, *source.template))))
        raise Unreadable(where, "", "has no pod template", "write one with a spec")
    count = 1
    for factor in source.factors:
        count *= _factor(item, factor, at)
    if count > PODS_MAX:
        raise Unreadable(name, f"{counted(count, 'pod')}", "more than any cluster runs", f"write at most {PODS_MAX}")
    metadata, spec, site = template.get("metadata"), template["spec"], (*at, *source.template)
    minimum = _minimum(source, obj, item, at)
    return PodSetSite(
        name=name,
        count=count,
        metadata=metadata if isinstance(metadata, dict) else None,
        spec=spec,
        scheduling=spec,
        template_path=site,
        metadata_path=(*site, "metadata"),
        spec_path=(*site, "spec"),
        min_count=minimum,
        min_count_at="" if minimum is None else _minimum_at(source, at),
        count_path=None if source.count is None else (*at, *source.count),
        count_written=None if source.count is None else paths.find(item, source.count),
    )


def _factor(item: Any, factor: Factor, at: JsonPath) -> int:
    number = read_count(item, factor.path, at)
    least = None if factor.no_less is None else read_count(item, factor.no_less, at)
    number = max(factor.default if number is None else number, factor.at_least, least or 0)
    for path in factor.at_most:
        bound = read_count(item, path, at)
        if bound is not None:
            number = min(number, bound)
    return number


def read_count(item: Any, path: Path, at: JsonPath = ()) -> int | None:
    """Return the number of pods (or the like) at ``path``, None when absent. Raises Unreadable for a non-count."""
    number = paths.find(item, path)
    if number is None or (type(number) is int and number >= 0):
        return number
    where = paths.render(tuple(map(str, (*at, *path))))
    raise Unreadable(where, number, "is not a number of pods", "write 0 or more")


def _minimum(source: PodSetSource, obj: Mapping[str, Any], item: Any, at: JsonPath) -> int | None:
    if source.minimum is not None:
        return read_count(item, source.minimum, at)
    if source.minimum_annotation is None:
        return None
    text = paths.find(obj, ("metadata", "annotations", source.minimum_annotation))
    if text is None:
        return None
    try:
        return int(text)
    except (TypeError, ValueError):
        where = _minimum_at(source, at)
        raise Unreadable(where, text, "is not a number of pods", "write 1 or more") from None


def _minimum_at(source: PodSetSource, at: JsonPath) -> str:
    if source.minimum is not None:
        return paths.render(tuple(map(str, (*at, *source.minimum))))
    return f"annotation {source.minimum_annotation}" if source.minimum_annotation is not None else ""
