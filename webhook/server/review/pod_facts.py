"""A pod as a review shows it: the few facts that decide, read without trusting the shape of anything."""

from collections.abc import Mapping
from typing import Any, Final

from webhook.core.model.frozen import frozen
from webhook.core.notation import names
from webhook.core.notation.problem import Problem
from webhook.jobs.plain_pods.group_names import (
    group_of,
    held_by_kueue,
    kueue_group_named,
    misgrouped,
    pod_group_named,
    size_of_group,
)
from webhook.jobs.reading.ours import OWN_ANNOTATIONS
from webhook.jobs.reading.record import Owner
from webhook.wire.admission_review import ReviewRequest

_KUEUES: Final = frozenset({names.KUEUE_POD_GROUP, names.KUEUE_POD_COUNT})
_NOTHING: Final[Mapping[str, Any]] = {}


class Misshapen(ValueError):
    """A field is not of the type that the API server would send; the message names it."""


def mapping(node: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    """Return ``node[key]`` as a map, an absent or null one as empty. Raises Misshapen naming ``path``."""
    value = node.get(key)
    if value is None:
        return _NOTHING
    if not isinstance(value, dict):
        raise Misshapen(f"{path}{key} must be an object, not {type(value).__name__}")
    return value


@frozen
class PodFacts:
    """What one version of a pod says about itself."""

    uid: str
    name: str
    namespace: str
    gang: str | None
    """Value of the gang label: ``pending`` or a uid."""
    pod_set: str
    ledger_version: tuple[int, int] | None
    """From its annotation; None where it is absent or not one of ours."""
    labels: Mapping[str, Any]
    annotations: Mapping[str, Any]
    controller: Owner | None
    controllers: int
    gated: bool
    """It carries our scheduling gate."""
    node: str
    mirror: bool
    spec: Mapping[str, Any]
    document: Mapping[str, Any]

    @property
    def own(self) -> dict[str, str]:
        """Our labels and annotations, all of them, for comparing two versions."""
        labels, annotations = self.labels, self.annotations
        return {
            **{key: str(labels[key]) for key in (names.GANG_LABEL, names.POD_SET_LABEL) if key in labels},
            **{key: str(annotations[key]) for key in OWN_ANNOTATIONS if key in annotations},
        }

    @property
    def group(self) -> str | None:
        """The group that it joins: a PodGroup of whichever generation, or one of Kueue's."""
        return group_of(self.document) if self._names_kueues else pod_group_named(self.document)

    @property
    def group_size(self) -> int:
        """How many pods its group has in all, where it is one of Kueue's; 0 for any other."""
        return size_of_group(self.document) if self._names_kueues else 0

    @property
    def kueue_group(self) -> str | None:
        """The group of Kueue's that it names, even if it has no queue and so joins none."""
        return kueue_group_named(self.document) if self._names_kueues else None

    @property
    def misgrouped(self) -> Problem | None:
        """What is wrong with how it names a group of Kueue's."""
        return misgrouped(self.document) if self._names_kueues else None

    @property
    def held_by_kueue(self) -> bool:
        """It carries Kueue's own scheduling gate, and joins no PodGroup."""
        return names.KUEUE_GATE in _gates(self.spec) and held_by_kueue(self.document)

    @property
    def _names_kueues(self) -> bool:
        # Most pods name none, and thousands are reviewed a second.
        return names.KUEUE_POD_GROUP in self.labels or not _KUEUES.isdisjoint(self.annotations)


def read(pod: Mapping[str, Any]) -> PodFacts:
    """Return the facts of a pod object. Raises Misshapen."""
    metadata = mapping(pod, "metadata", "")
    spec = mapping(pod, "spec", "")
    labels = mapping(metadata, "labels", "metadata.")
    annotations = mapping(metadata, "annotations", "metadata.")
    controllers = _controllers(metadata)
    return PodFacts(
        uid=_text(metadata, "uid"),
        name=_text(metadata, "name") or _text(metadata, "generateName"),
        namespace=_text(metadata, "namespace"),
        gang=_optional(labels.get(names.GANG_LABEL)),
        pod_set=_optional(labels.get(names.POD_SET_LABEL)) or "",
        ledger_version=parse_version(annotations.get(names.LEDGER_VERSION)),
        labels=labels,
        annotations=annotations,
        controller=controllers[0] if controllers else None,
        controllers=len(controllers),
        gated=names.SCHEDULING_GATE in _gates(spec),
        node=_text(spec, "nodeName"),
        mirror=names.MIRROR_ANNOTATION in annotations,
        spec=spec,
        document=pod,
    )


def mirrors_static_pod(pod: PodFacts, request: ReviewRequest) -> bool:
    """Return whether a node tells of a static pod that it runs already: so does only its own account.

    Anybody may write the annotation, and a node's name.
    """
    return pod.mirror and request.username == f"system:node:{pod.node}" and "system:nodes" in request.groups


def parse_version(text: object) -> tuple[int, int] | None:
    """Return the ledger version written as ``epoch.seq``, None for anything else."""
    if not isinstance(text, str) or len(text) > 40:
        return None
    epoch, _, seq = text.partition(".")
    return (int(epoch), int(seq)) if epoch.isascii() and epoch.isdigit() and seq.isascii() and seq.isdigit() else None


def render_version(version: tuple[int, int]) -> str:
    """Return a ledger version as it is written in the annotation."""
    return f"{version[0]}.{version[1]}"


def _controllers(metadata: Mapping[str, Any]) -> list[Owner]:
    references = metadata.get("ownerReferences") or ()
    if not isinstance(references, list | tuple):
        raise Misshapen("metadata.ownerReferences must be a list")
    found = []
    for reference in references:
        if isinstance(reference, dict) and reference.get("controller") is True:
            group = _text(reference, "apiVersion").rpartition("/")[0]
            kind = f"{_text(reference, 'kind')}.{group}"
            found.append(Owner(kind, _text(reference, "name"), _text(reference, "uid")))
    return found


def _gates(spec: Mapping[str, Any]) -> list[object]:
    gates = spec.get("schedulingGates") or ()
    if not isinstance(gates, list | tuple):
        raise Misshapen("spec.schedulingGates must be a list")
    return [gate.get("name") for gate in gates if isinstance(gate, dict)]


def _text(node: Mapping[str, Any], key: str) -> str:
    value = node.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Misshapen(f"{key} must be text, not {type(value).__name__}")
    return value


def _optional(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise Misshapen(f"label values must be text, not {type(value).__name__}")
    return value
