"""Every name under ``tutti.dev/``: on which objects it means something, and who writes it there. One closed table.

What only Tutti writes is written by its account, and at creation by the mutating webhook; on an object that waits for
nobody it is refused, whoever writes it and wherever in the object it is. The webhook and the generated admission
policies both read this table, and a test walks ``core.notation.names`` for names that it lacks.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from webhook.core.notation import names
from webhook.untyped import paths
from webhook.untyped.values import mapping


class Form(StrEnum):
    """What kind of name it is."""

    LABEL = "label"
    ANNOTATION = "annotation"
    SCHEDULING_GATE = "scheduling gate"
    RESOURCE = "resource"


class Bearer(StrEnum):
    """On what it stands."""

    JOB = "job"
    TEMPLATE = "pod template"
    POD = "pod"
    NAMESPACE = "namespace"
    QUEUE = "queue"
    FLAVOR = "flavor"
    LEDGER = "page of the ledger"
    EVENT = "event"
    LEASE = "Lease of a hub"


class Writer(StrEnum):
    """Who writes it."""

    TUTTI = "Tutti's account"
    EDITOR = "whoever may edit the object"
    CLOSER = "whoever may edit the object adds it, the verb ungate takes it away"
    TOPPER = "whoever may edit the object and has the verb top"
    ADDER = "whoever may create the pod adds it, Tutti takes it away"


class Ours(NamedTuple):
    """One name. Where ``writers`` has no place, it means nothing; what is Tutti's own is refused there too."""

    key: str
    form: Form
    writers: Mapping[Bearer, Writer]


_BY_TUTTI: Final = Writer.TUTTI
OURS: Final = (
    Ours(names.QUEUE_LABELS[0], Form.LABEL, {Bearer.JOB: Writer.EDITOR, Bearer.POD: Writer.EDITOR}),
    Ours(names.GANG_LABEL, Form.LABEL, {Bearer.TEMPLATE: _BY_TUTTI, Bearer.POD: _BY_TUTTI}),
    Ours(names.POD_SET_LABEL, Form.LABEL, {Bearer.TEMPLATE: _BY_TUTTI, Bearer.POD: _BY_TUTTI}),
    Ours(names.LEDGER_VERSION, Form.ANNOTATION, {Bearer.TEMPLATE: _BY_TUTTI, Bearer.POD: _BY_TUTTI}),
    Ours(names.ADMISSION, Form.ANNOTATION, {Bearer.JOB: _BY_TUTTI, Bearer.POD: _BY_TUTTI}),
    Ours(names.REQUEUE, Form.ANNOTATION, {Bearer.JOB: _BY_TUTTI, Bearer.POD: _BY_TUTTI}),
    Ours(names.HOLD, Form.ANNOTATION, {Bearer.JOB: _BY_TUTTI}),
    Ours(names.VOIDED, Form.ANNOTATION, {Bearer.JOB: _BY_TUTTI, Bearer.POD: _BY_TUTTI}),
    # Its editors can take a copy for a job of their own, which they could have created as well.
    Ours(names.OFFER, Form.ANNOTATION, {Bearer.JOB: Writer.EDITOR}),
    Ours(names.STOPS_NOBODY, Form.ANNOTATION, {Bearer.JOB: Writer.EDITOR}),
    Ours(names.DISPATCH, Form.ANNOTATION, {Bearer.JOB: Writer.EDITOR}),
    Ours(names.PERMIT, Form.ANNOTATION, {Bearer.JOB: Writer.EDITOR}),
    Ours(names.GIVEN_UP, Form.ANNOTATION, {Bearer.JOB: _BY_TUTTI}),
    Ours(names.MANAGED_BY, Form.ANNOTATION, {Bearer.JOB: _BY_TUTTI}),
    Ours(names.TOP, Form.ANNOTATION, {Bearer.JOB: Writer.TOPPER}),
    Ours(names.GATED_NAMESPACE, Form.LABEL, {Bearer.NAMESPACE: Writer.CLOSER}),
    Ours(names.FENCED_NAMESPACE, Form.LABEL, {Bearer.NAMESPACE: Writer.CLOSER}),
    Ours(names.LEDGER_PAGE, Form.LABEL, {Bearer.LEDGER: _BY_TUTTI}),
    Ours(names.SCHEDULING_GATE, Form.SCHEDULING_GATE, {Bearer.TEMPLATE: Writer.ADDER, Bearer.POD: Writer.ADDER}),
    Ours(names.HEARD, Form.ANNOTATION, {Bearer.LEASE: Writer.EDITOR}),
    Ours(names.STARTS_BY, Form.ANNOTATION, {Bearer.EVENT: Writer.EDITOR}),
    Ours(names.NEVER_STARTS, Form.ANNOTATION, {Bearer.EVENT: Writer.EDITOR}),
    Ours(names.NODE_FIT, Form.ANNOTATION, {Bearer.FLAVOR: Writer.EDITOR}),
    Ours(names.MAX_JOBS, Form.RESOURCE, {Bearer.QUEUE: Writer.EDITOR}),
)


def _written_by_tutti(form: Form) -> frozenset[str]:
    return frozenset(
        row.key
        for row in OURS
        if row.form is form and Writer.TUTTI in (row.writers[place] for place in row.writers if place != Bearer.LEDGER)
    )


OWN_LABELS: Final = _written_by_tutti(Form.LABEL)
OWN_ANNOTATIONS: Final = _written_by_tutti(Form.ANNOTATION)
_OWN: Final = {"labels": OWN_LABELS.__contains__, "annotations": OWN_ANNOTATIONS.__contains__}


_KNOWN: Final = frozenset(row.key for row in OURS)


_OURS: Final = f"{names.DOMAIN}/"
_SIMULATED: Final = f"{names.DOMAIN}/simulated-"
"""Beginning of what simulated nodes read on pods."""


def _is_unknown(key: str) -> bool:
    return key not in _KNOWN and not key.startswith(_SIMULATED)


class Mark(NamedTuple):
    """A label or annotation somewhere in an object."""

    form: str
    key: str
    where: str
    """The map that it is in, such as ``spec.template.metadata.labels``."""

    def __str__(self) -> str:
        return f"{self.form} {self.key} at {self.where}"


def own_marks(obj: Mapping[str, Any]) -> dict[Mark, object]:
    """Return all that Tutti alone writes and that stands anywhere in ``obj``, with its values."""
    return dict(_named(obj, _OWN))


def unknown_names(obj: Mapping[str, Any]) -> tuple[Mark, ...]:
    """Return what stands under ``tutti.dev/`` on ``obj`` itself and is no name of ours: a slip of whoever wrote it.

    It is asked of every new job: pod templates are not searched for it.
    """
    metadata = mapping(obj.get("metadata"))
    found = [
        Mark(form.removesuffix("s"), key, f"metadata.{form}")
        for form in ("labels", "annotations")
        for key in mapping(metadata.get(form))
        if key.startswith(_OURS) and _is_unknown(key)
    ]
    return tuple(found)


def _named(obj: object, wanted: Mapping[str, Callable[[str], object]]) -> Iterator[tuple[Mark, object]]:
    """Yield all labels and annotations of ``wanted`` names in an object.

    The object need not be readable as a job: what is nested deep, or where no reader looks, is found too.
    """
    left: list[tuple[str, object]] = [("", obj)]
    while left:
        where, node = left.pop()
        if isinstance(node, dict):
            for key, child in node.items():
                if key in wanted and isinstance(child, dict):
                    for name in sorted(filter(wanted[key], child)):
                        yield Mark(key.removesuffix("s"), name, f"{where}{key}"), child[name]
                if isinstance(child, dict | list):
                    left.append((f"{where}{key}.", child))
        elif isinstance(node, list):
            left.extend((f"{where}{index}.", child) for index, child in enumerate(node))


MEANS_A_QUEUE: Final = (
    "(?i)^(([^/]*/)?((local|cluster)[-_.]?)?queue[-_.]?names?|(tutti|kueue)[.][^/]*/((local|cluster)[-_.]?)?queue)$"
)
"""Keys of labels and annotations by which people mean a queue: only ``QUEUE_LABELS`` name one. Also read by CEL."""
VOLCANOS: Final = ("scheduling.volcano.sh/queue-name", "volcano.sh/queue-name")
"""Such keys that mean something to others: Volcano reads the first of the annotations of pods that it schedules,
KubeRay the second of the labels of its kinds.
"""
means_a_queue: Final = re.compile(MEANS_A_QUEUE).match
_MEANT: Final = dict.fromkeys(("labels", "annotations"), means_a_queue)


def misplaced_queues(obj: Mapping[str, Any]) -> tuple[Mark, ...]:
    """Return where ``obj`` names a queue by a label or annotation that has no effect there."""
    return tuple(mark for mark, _ in _named(obj, _MEANT) if not _takes_effect(obj, mark))


def _takes_effect(obj: Mapping[str, Any], mark: Mark) -> bool:
    if mark.key == VOLCANOS[0]:
        pod = mark.form == "annotation" and mark.where.removesuffix("metadata.annotations")
        return bool(pod) and paths.find_at(obj, f"{pod}spec.schedulerName".split(".")) == "volcano"
    if mark.key == VOLCANOS[1]:
        return mark.where == "metadata.labels" and str(obj.get("apiVersion")).startswith("ray.io/")
    return mark.key in names.QUEUE_LABELS and mark.where == "metadata.labels"
