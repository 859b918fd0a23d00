"""The CEL expressions by which the API server itself sees whether an object is ours to judge.

What matters about CEL here: an expression that errors refuses the request without asking us, so every optional field
is reached through ``?``; ``oldObject`` is null on CREATE; ``object`` is untyped, so one expression can serve several
kinds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from webhook.core.notation import names
from webhook.jobs.kinds.kind import JobKind, Layout, PodSetSource
from webhook.jobs.reading.ours import MEANS_A_QUEUE, OWN_ANNOTATIONS, OWN_LABELS
from webhook.untyped.paths import Path, render

OTHER_PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    # Paths to what carries the pods' labels, for entries whose reader is code and cannot become CEL. ``[*]`` steps
    # through a list, ``{*}`` through a map.
    "TrainJob.trainer.kubeflow.org": (
        "spec",
        "spec.podTemplateOverrides[*].metadata",
        "spec.runtimePatches[*].trainingRuntimeSpec.template.spec.replicatedJobs[*].template.spec.template.metadata",
    ),
    "SparkApplication.sparkoperator.k8s.io": ("spec.driver", "spec.executor"),
    "AppWrapper.workload.codeflare.dev": (
        "spec.components[*].template.metadata",
        "spec.components[*].template.spec.template.metadata",
        "spec.components[*].podSetInfos[*]",
    ),
    "Workflow.argoproj.io": ("spec.podMetadata", "spec.templates[*].metadata"),
}
TEMPLATES_ELSEWHERE: Final = (
    "spec.template",
    "spec.jobTemplate.spec.template",
    "spec.leaderWorkerTemplate.leaderTemplate",
    "spec.leaderWorkerTemplate.workerTemplate",
)
"""Where kinds that cannot wait keep pod templates whose pods the API server's own controllers make."""
STEP: Final = {Layout.ONE: "", Layout.LIST: "[*]", Layout.MAP: "{*}"}


@dataclass(frozen=True, slots=True)
class Family:
    """The job kinds of one API group, which share their entries."""

    group: str
    kinds: tuple[JobKind, ...]

    @property
    def name(self) -> str:
        """A name within webhook and policy names: the kind's where there is one, the group's otherwise."""
        return (
            self.kinds[0].singular if len(self.kinds) == 1 and self.group != "batch.volcano.sh" else _short(self.group)
        )

    @property
    def resources(self) -> tuple[str, ...]:
        """Plural names."""
        return tuple(kind.plural for kind in self.kinds)

    @property
    def label_paths(self) -> tuple[str, ...]:
        """Where the kinds keep the labels of their pods."""
        return tuple(dict.fromkeys(path for kind in self.kinds for path in label_paths(kind)))

    @property
    def dispatchable(self) -> bool:
        """Whether a hub places any of the kinds."""
        return any(kind.dispatchable for kind in self.kinds)

    @property
    def suspends(self) -> tuple[Path, ...]:
        """Where the kinds keep their suspend field; empty for kinds held by scheduling gates."""
        return tuple(sorted({kind.suspend for kind in self.kinds if kind.suspend}))


def families(kinds: Iterable[JobKind]) -> list[Family]:
    """Return the kinds by API group."""
    by_group = groupby(sorted(kinds, key=lambda kind: (kind.group, kind.kind)), key=lambda kind: kind.group)
    return [Family(group, tuple(members)) for group, members in by_group]


def label_paths(kind: JobKind) -> tuple[str, ...]:
    """Return the paths to what carries the labels of the kind's pods."""
    if kind.key in OTHER_PLACES:
        return OTHER_PLACES[kind.key]
    assert kind.pod_sets, f"{kind.key} has a reader: say in OTHER_PLACES where its pods' labels are"
    return tuple(_metadata_path(source) for source in kind.pod_sets)


def one_of(keys: Sequence[str], where: str) -> str:
    """Return an expression: the map ``where`` has one of the keys."""
    return f"[{', '.join(repr(key) for key in keys)}].exists(key, key in {where})"


def step(root: str, path: str) -> str:
    """Return an expression that reaches a dotted path from ``root``, absent or not."""
    return root + "".join(f".?{part}" for part in path.split(".") if part)


def template_labels(root: str, family: Family) -> str:
    """Return an expression: the labels of every pod template that is not in a list of lists, as a list of maps."""
    return " +\n".join(_maps_at(root, path) for path in family.label_paths if not _nested(path))


def template_values(root: str, family: Family, key: str) -> str:
    """Return an expression: the values of one label of the pod templates, as a list."""
    marked = f".filter(labels, '{key}' in labels).map(labels, labels['{key}'])"
    return f"({template_labels(root, family)})\n{marked}"


def changes_what_was_started() -> str:
    """Return an expression: the spec of a job changes into which a start wrote, and may have been stopped since."""
    return (
        f"{one_of((names.ADMISSION, names.REQUEUE), annotations_of('oldObject'))}\n&& object.?spec != oldObject.?spec"
    )


def lost_marks(family: Family) -> str:
    """Return an expression: fewer pod templates than before bear our labels."""
    now, before = (_marked(root, family) for root in ("object", "oldObject"))
    return f"{now} <\n{before}"


def _marked(root: str, family: Family) -> str:
    """Return an expression: how many pod templates bear our labels."""
    lists_of_lists = (_marked_below(root, path) for path in family.label_paths if _nested(path))
    return " +\n".join([f"{template_values(root, family, names.GANG_LABEL)}.size()", *lists_of_lists])


def _marked_below(root: str, path: str, depth: int = 0) -> str:
    head, found, tail = path.partition("[*]")
    if not found:
        return f"('{names.GANG_LABEL}' in {step(root, path)}.?labels.orValue({{}}) ? 1 : 0)"
    item = f"item{depth}"
    return f"{step(root, head)}.orValue([]).map({item}, {_marked_below(item, tail, depth + 1)}).sum()"


def marked_elsewhere() -> str:
    """Return an expression: a pod template of a kind that cannot wait bears a label that Tutti alone writes, newly."""
    own = f"[{', '.join(repr(key) for key in sorted(OWN_LABELS))}]"
    now, before = (_labels_elsewhere(root) for root in ("object", "oldObject"))
    values = f".map(labels, {own}.map(key, labels[?key].orValue('')))"
    bears = f"{now}.exists(labels, {own}.exists(key, key in labels))"
    return f"{bears}\n&& (oldObject == null ||\n{now}{values} !=\n{before}{values})"


def _labels_elsewhere(root: str) -> str:
    places = [f"{step(root, place)}.?metadata.?labels.orValue({{}})" for place in TEMPLATES_ELSEWHERE]
    return f"[{', '.join(places)}]"


def templates_carry(root: str, family: Family, keys: Sequence[str]) -> str:
    """Return an expression: some pod template has a label with one of the keys."""
    listed = f"({template_labels(root, family)}).exists(labels, {one_of(keys, 'labels')})"
    return either(listed, *(_carried_below(root, path, keys) for path in family.label_paths if _nested(path)))


def labels_of(root: str) -> str:
    """Return an expression: the object's own labels."""
    return f"{root}.metadata.?labels.orValue({{}})"


def annotations_of(root: str) -> str:
    """Return an expression: the object's own annotations."""
    return f"{root}.metadata.?annotations.orValue({{}})"


def placed_by(root: str, kind: JobKind) -> str:
    """Return an expression: which hub's manager an object names, where it names one; an optional."""
    if kind.managed_by is None:
        return f"{annotations_of(root)}[?'{names.MANAGED_BY}']"
    return step(root, render(kind.managed_by))


def same_but_status() -> list[str]:
    """Return what holds together when an update leaves all but the status as it was."""
    return [
        *_same(),
        f"{annotations_of('object')} == {annotations_of('oldObject')}",
        "object.metadata.?finalizers == oldObject.metadata.?finalizers",
    ]


def _same() -> list[str]:
    return [
        f"{labels_of('object')} == {labels_of('oldObject')}",
        "object.?spec == oldObject.?spec",
        "object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences",
    ]


def same_but(annotation: str) -> list[str]:
    """Return what holds together when an update leaves all but one annotation, finalizers and status as they were."""
    notes, noted = annotations_of("object"), annotations_of("oldObject")
    kept = f"key == '{annotation}' || (key in {{1}} && {{0}}[key] == {{1}}[key])"
    return [
        *_same(),
        f"{notes}.all(key, {kept.format(notes, noted)})",
        f"{noted}.all(key, {kept.format(noted, notes)})",
    ]


def records_only() -> str:
    """Return an expression: an update changes nothing but where a gang of a fleet is, and what keeps its job."""
    here, before = (f"{it}.metadata.?finalizers.orValue([])" for it in ("object", "oldObject"))
    kept = f"key == '{names.DISPATCH}' || key in"
    return "\n&& ".join(
        [*same_but(names.DISPATCH), f"{here}.all(key, {kept} {before})", f"{before}.all(key, {kept} {here})"]
    )


def asks(root: str, family: Family) -> str:
    """Return an expression: the object opts in, by a queue label or by a PodGroup label on a template."""
    return either(
        one_of(names.QUEUE_LABELS, labels_of(root)),
        templates_carry(root, family, names.POD_GROUP_LABELS),
    )


def mirrors_static_pod() -> str:
    """Return an expression: a node tells of a static pod that it runs already. Anybody may write the annotation."""
    return (
        f"'{names.MIRROR_ANNOTATION}' in {annotations_of('object')}\n"
        "&& request.userInfo.username == 'system:node:' + object.spec.?nodeName.orValue('')\n"
        "&& 'system:nodes' in request.userInfo.groups"
    )


def joins_pod_group(root: str) -> str:
    """Return an expression: the pod joins a PodGroup, of whichever generation, or with a queue a group of Kueue's."""
    return either(
        one_of(names.POD_GROUP_LABELS, labels_of(root)),
        one_of(names.POD_GROUP_ANNOTATIONS, annotations_of(root)),
        f"{step(root, 'spec.schedulingGroup.podGroupName')}.orValue('') != ''",
        f"[{labels_of(root)}, {annotations_of(root)}].exists(place, '{names.KUEUE_POD_GROUP}' in place)\n"
        f"&& {one_of(names.QUEUE_LABELS, labels_of(root))}",
    )


def means_a_queue(where: str) -> str:
    """Return an expression: the map ``where`` has a key by which people mean a queue, one of ours among them."""
    return f"{where}.exists(key, key.matches('{MEANS_A_QUEUE}'))"


def mislabelled(root: str, family: Family) -> str:
    """Return an expression: an object that is in no queue names one where that has no effect."""
    inside = [path for path in family.label_paths if not _nested(path)]
    # The Jobs that a JobSet makes are described between it and the pod templates.
    inside += [path.replace(".template.spec.template.", ".template.") for path in inside if "[*]" in path]
    below = (_maps_at(root, path, form) for path in inside for form in ("labels", "annotations"))
    places = " +\n".join(dict.fromkeys(below))
    return either(
        means_a_queue(labels_of(root)),
        means_a_queue(annotations_of(root)),
        f"({places}).exists(place, {means_a_queue('place')})",
    )


def astray_in_schedule(root: str) -> str:
    """Return an expression: a CronJob names a queue where the Jobs that it makes do not wait by it.

    One of these Jobs without labels of its own gets those of its pod template.
    """
    places = (step(root, f"spec.jobTemplate.{where}metadata") for where in ("", "spec.template."))
    (own, notes), (inner, inner_notes) = (
        [f"{place}.?{form}.orValue({{}})" for form in ("labels", "annotations")] for place in places
    )
    astray = either(
        means_a_queue(own),
        means_a_queue(notes),
        means_a_queue(inner_notes),
        f"({means_a_queue(inner)} && ({own}.size() > 0 || !{one_of(names.QUEUE_LABELS, inner)}))",
    )
    return f"!{one_of(names.QUEUE_LABELS, own)} &&\n({astray})"


def concerns(root: str, family: Family) -> str:
    """Return an expression: the object opts in, or carries what only Tutti writes."""
    own = sorted(OWN_LABELS)
    ours = (*names.POD_GROUP_LABELS, *own)
    return either(
        one_of((*names.QUEUE_LABELS, *own), labels_of(root)),
        one_of(sorted(OWN_ANNOTATIONS), annotations_of(root)),
        templates_carry(root, family, ours),
    )


def makers(family: Family, known: Iterable[Family]) -> list[str]:
    """Return the kinds whose controllers make objects of the family, as ``Kind.group``."""
    made = {kind.key for kind in family.kinds}
    return sorted(kind.key for each in known for kind in each.kinds if kind.child_kinds & made)


def made_by(owner: str, kinds: Sequence[str]) -> str:
    """Return an expression: ``owner``, an ownerReference, is the controller's, and of one of the kinds."""
    listed = ", ".join(repr(kind) for kind in kinds)
    return f"{owner}.?controller.orValue(false)\n&& {_kind_of(owner)} in [{listed}]"


def loses_maker(kinds: Sequence[str]) -> str:
    """Return an expression: an update takes what a controller of one of the kinds made from its owner.

    So it does by naming another kind there: after that nobody would know it for what the first one made.
    """
    same = f"owner.uid == before.uid && owner.?controller.orValue(false) && {_kind_of('owner')} == {_kind_of('before')}"
    kept = f"{references_of('object')}.exists(owner, {same})"
    return f"{references_of('oldObject')}.exists(before, {made_by('before', kinds)}\n&& !{kept})"


def orphans() -> str:
    """Return an expression: a deletion leaves behind what the object owns, as of a Job where nothing is said."""
    return (
        "request.?options.?orphanDependents.orValue(false)\n"
        "|| (request.?options.?propagationPolicy.hasValue() ? request.options.propagationPolicy == 'Orphan'\n"
        ": request.resource.group == 'batch' || 'orphan' in oldObject.metadata.?finalizers.orValue([]))"
    )


def references_of(root: str) -> str:
    """Return an expression: the object's ownerReferences."""
    return f"{root}.metadata.?ownerReferences.orValue([])"


def _kind_of(owner: str) -> str:
    return f"{owner}.kind + '.' + {owner}.apiVersion.split('/')[0]"


def suspended(root: str, suspends: Sequence[Path]) -> str:
    """Return an expression: one of the suspend fields says so. Absent means that the job runs."""
    return " || ".join(f"{step(root, render(path))}.orValue(false) == true" for path in suspends)


def held(root: str) -> str:
    """Return an expression: the owner of a job holds it."""
    return f"'{names.HOLD}' in {annotations_of(root)}"


def either(*alternatives: str) -> str:
    """Return the alternatives, one a line."""
    return " ||\n".join(alternatives)


def _metadata_path(source: PodSetSource) -> str:
    parts = [render(source.items) + STEP[source.layout] if source.items else "", render(source.template), "metadata"]
    return ".".join(part for part in parts if part)


def _maps_at(root: str, path: str, form: str = "labels") -> str:
    for mark, empty in (("[*]", "[]"), ("{*}", "{}")):
        head, found, tail = path.partition(mark)
        if found:
            items = f"{step(root, head)}.orValue({empty})"
            item = "item" if mark == "[*]" else f"{items}[item]"
            return f"{items}.map(item, {step(item, tail)}.?{form}.orValue({{}}))"
    return f"[{step(root, path)}.?{form}.orValue({{}})]"


def _nested(path: str) -> bool:
    return path.count("[*]") > 1


def _carried_below(root: str, path: str, keys: Sequence[str], depth: int = 0) -> str:
    """Return an expression for labels in lists of lists, which CEL cannot flatten."""
    head, found, tail = path.partition("[*]")
    if not found:
        return one_of(keys, f"{step(root, path)}.?labels.orValue({{}})")
    item = f"item{depth}"
    return f"{step(root, head)}.orValue([]).exists({item}, {_carried_below(item, tail, keys, depth + 1)})"


def _short(group: str) -> str:
    """``ray.io`` is ray, ``batch.volcano.sh`` is volcano."""
    return group.split(".")[-2]
