"""Job kinds that an operator adds in configuration, for their own CRDs; and corrections of shipped ones.

    kinds:
      - group: example.com
        version: v1
        kind: Sweep
        plural: sweeps
        suspend: spec.suspend
        podSets:
          - {list: spec.workers, template: template, count: replicas}
        succeeded: {condition: Done}
        active: {path: status.running}
      - {extends: JobSet.jobset.x-k8s.io, controllerUsers: ["system:serviceaccount:jobs:jobset"]}

Paths are dotted; ``*`` stands for every item. Whatever is misspelt or contradicts itself is refused with its place.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from webhook.core.notation.problem import Problem, Unreadable
from webhook.errors import WrongInput
from webhook.jobs.kinds.kind import (
    AddedContainer,
    Factor,
    JobKind,
    Layout,
    PodSetSource,
    ReadyCount,
    Signal,
    TemplateChange,
)
from webhook.untyped import paths
from webhook.untyped.operator_files import Amounts, Section, problems_of
from webhook.untyped.paths import Path


def _path(text: object) -> Path:
    if not isinstance(text, str) or not text or not all(text.split(".")):
        raise Unreadable("", text, "is no path", "write it dotted, for example spec.template")
    return paths.parse(text)


def _plain_path(text: object) -> Path:
    path = _path(text)
    if paths.EACH in path:
        raise Unreadable("", text, "leads to more than one place", "write a path without *")
    return path


def _listed(value: object) -> object:
    return list(value) if isinstance(value, list | tuple) else [value]


Dotted = Annotated[Path, BeforeValidator(_path)]
Plain = Annotated[Path, BeforeValidator(_plain_path)]
Plains = Annotated[tuple[Plain, ...], BeforeValidator(_listed)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_listed)]


class _Strict(Section):
    model_config = ConfigDict(alias_generator=to_camel)


class _SignalForm(_Strict):
    condition: str = ""
    path: Dotted = ()
    values: Texts = ()
    other_than: Texts = ()

    @model_validator(mode="after")
    def _one(self) -> "_SignalForm":
        if bool(self.condition) == bool(self.path):
            raise ValueError("says nothing or two things; write either condition or path")
        return self

    def build(self) -> Signal:
        return Signal(self.condition, self.path, self.values, self.other_than)


class _TallyForm(_Strict):
    sum_: Annotated[tuple[Dotted, ...], BeforeValidator(_listed)] = Field(alias="sum")
    wanted: Dotted | None = None

    def build(self) -> ReadyCount:
        return ReadyCount(self.sum_, self.wanted)


Signals = Annotated[tuple[_SignalForm, ...], BeforeValidator(_listed)]


class _ManagedByForm(_Strict):
    path: Plain
    controller: str


class _PodSetForm(_Strict):
    template: Plain
    list_: Plain | None = Field(None, alias="list")
    map_: Plain | None = Field(None, alias="map")
    name: str | None = None
    order: Texts = ()
    count: Plains = ()
    at_most: Plains = ()
    minimum: Plain | None = None
    lowerable: bool = False
    """The API lets a running count be lowered: partial admission may write the first count."""
    optional: bool = False

    @model_validator(mode="after")
    def _coherent(self) -> "_PodSetForm":
        if self.list_ and self.map_:
            raise Unreadable("", "", "is a list and a map", "write one of them")
        if (self.lowerable or self.at_most) and not self.count:
            raise Unreadable("", "", "has no count to bound or lower", "write count")
        return self

    def build(self) -> PodSetSource:
        layout = Layout.LIST if self.list_ else Layout.MAP if self.map_ else Layout.ONE
        factors = tuple(Factor(path, at_most=self.at_most if i == 0 else ()) for i, path in enumerate(self.count))
        return PodSetSource(
            template=self.template,
            factors=factors,
            layout=layout,
            items=self.list_ or self.map_ or (),
            name=self.name or ("name" if layout is Layout.LIST else "main"),
            order=self.order,
            minimum=self.minimum,
            count=self.count[0] if self.lowerable else None,
            optional=self.optional,
        )


class _AddedForm(_Strict):
    requests: Amounts = Field(default={})
    limits: Amounts = Field(default={})
    pod_sets: Texts = ()
    but: Texts = ()
    beside: str = ""
    name: str = ""

    def build(self) -> AddedContainer:
        sets, but = (tuple(name.lower() for name in names) for names in (self.pod_sets, self.but))
        return AddedContainer(self.requests, self.limits, sets, but, self.beside.lower(), name=self.name)


class _KindForm(_Strict):
    extends: str | None = None
    group: str | None = None
    version: str | None = None
    kind: str | None = None
    plural: str | None = None
    suspend: Plain | None = None
    scheduling_gated: bool = False
    pod_sets: tuple[_PodSetForm, ...] = ()
    added: tuple[_AddedForm, ...] = Field((), alias="addedContainers")
    priority_class: Plains = ()
    queue: Plain | None = None
    quorum: Plain | None = None
    deadline_seconds: Plain | None = None
    managed_by: _ManagedByForm | None = None
    succeeded: Signals = ()
    failed: Signals = ()
    active: Signals = ()
    ready: _TallyForm | _SignalForm | None = None
    ordered_start: Signals = ()
    template_change: TemplateChange = TemplateChange.SUSPENDED
    controller_users: Texts = ()
    child_kinds: Texts = ()
    evictable: bool = True

    def fields(self) -> dict[str, Any]:
        """Return what the form states, as fields of JobKind."""
        stated: dict[str, Any] = {}
        for name in self.model_fields_set - {"extends", "managed_by", "priority_class"}:
            value = getattr(self, name)
            if isinstance(value, _SignalForm | _TallyForm):
                value = value.build()
            elif name in ("pod_sets", "added", "succeeded", "failed", "active", "ordered_start"):
                value = tuple(item.build() for item in value)
            elif name in ("controller_users", "child_kinds"):
                value = frozenset(value)
            stated[name] = value
        if self.managed_by is not None:
            stated |= {"managed_by": self.managed_by.path, "managers": (self.managed_by.controller,)}
        if self.priority_class:
            stated["priority_classes"] = self.priority_class
        if self.scheduling_gated:
            # A gate that was lifted cannot be put back.
            stated["evictable"] = False
        return stated


def load_custom(config: Mapping[str, Any], kinds: Mapping[str, JobKind], where: str = "kinds") -> JobKind:
    """Return the job kind that ``config`` describes; ``extends`` names one of ``kinds`` to start from.

    Raises WrongInput whose problems begin with ``where``.
    """
    try:
        form = _KindForm.model_validate(config)
    except ValidationError as error:
        raise WrongInput(problems_of(error, where, ".")) from error
    stated = form.fields()
    if form.extends is not None:
        if form.extends not in kinds:
            fix = f"write one of {', '.join(kinds)}"
            raise WrongInput((Problem(f"{where}.extends", form.extends, "is not a job kind", fix),))
        kind = replace(kinds[form.extends], **stated)
    else:
        missing = [name for name in ("group", "version", "kind", "plural") if not stated.get(name)]
        if missing:
            raise WrongInput(tuple(Problem(f"{where}.{name}", "", "is missing", "write it") for name in missing))
        kind = JobKind(**stated)
    problems = tuple(_incoherent(kind, where))
    if problems:
        raise WrongInput(problems)
    return kind


def with_custom(configs: Iterable[Mapping[str, Any]], kinds: Mapping[str, JobKind]) -> dict[str, JobKind]:
    """Return ``kinds`` with those of ``configs`` added or replaced. Raises WrongInput with all problems."""
    merged, problems = dict(kinds), list[Problem]()
    for index, config in enumerate(configs):
        try:
            kind = load_custom(config, merged, f"kinds[{index}]")
        except WrongInput as error:
            problems += error.problems
            continue
        merged[kind.key] = kind
    if problems:
        raise WrongInput(tuple(problems))
    return merged


def _incoherent(kind: JobKind, where: str) -> Iterable[Problem]:
    if (kind.suspend is None) is not kind.scheduling_gated:
        fix = "write suspend, or schedulingGated: true for a kind without such a field, not both"
        yield Problem(
            f"{where}.suspend", paths.render(kind.suspend or ()), "nothing holds it back, or two things do", fix
        )
    if not kind.pod_sets and kind.reader is None:
        yield Problem(f"{where}.podSets", "", "names no pods", "write where the pod templates are")
    if kind.template_change is TemplateChange.NEVER and not (kind.scheduling_gated or kind.loose_pods):
        fix = "write when they may change; only pods that a scheduling gate holds are marked by themselves"
        yield Problem(f"{where}.templateChange", "never", "no start could mark its pod templates", fix)
    if not kind.succeeded:
        fix = "write the condition or value that ends it; without one its quota is never returned"
        yield Problem(f"{where}.succeeded", "", "nothing says when it has ended", fix)
