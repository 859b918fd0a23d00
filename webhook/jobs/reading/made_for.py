"""For which object something was made, by labels that its controller wrote: the owner is taken away where an object is
deleted with ``--cascade=orphan``, the labels stay.

Anybody may write such a label. A uid is believed only of an owner that this process never saw (``cluster.lineage``), a
name only of a gang whose pods bear no label of ours (``cluster.by_name``).
"""

from collections.abc import Mapping
from typing import Any, Final

from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import KINDS
from webhook.untyped.values import text

_LABELS: Final = ("jobset.sigs.k8s.io/jobset-uid", "batch.kubernetes.io/controller-uid", "controller-uid")
"""The outermost first. Other controllers write names alone, which a successor may have too."""
_UID: Final = "uid"
_NAME_LABELS: Final = tuple(sorted({kind.name_label for kind in KINDS.values() if kind.name_label}))


def made_for(labels: Mapping[str, Any]) -> str:
    """Return the uid of the object that what bears ``labels`` was made for; empty where no label says it."""
    return next((uid for key in _LABELS if (uid := text(labels.get(key)))), "")


def named(namespace: str, labels: Mapping[str, Any], uid: str) -> tuple[str, ...]:
    """Return the names of objects that what bears ``labels`` was made for, each with the label that has it.

    ``uid``, where it is not empty, is that of one for which it was made; it stands for a name.
    """
    names = tuple(kind_of(key, namespace, name) for key in _NAME_LABELS if (name := text(labels.get(key))))
    return (*names, kind_of(_UID, namespace, uid)) if uid else names


def names_of(kind: str, namespace: str, name: str, uid: str) -> tuple[str, ...]:
    """Return by which names, and by the uid, what was made for an object may name it."""
    known = name_of(kind, namespace, name), kind_of(kind, namespace, name), kind_of(_UID, namespace, uid)
    return tuple(each for each in known if each)


def owners_named(kind: JobKind, namespace: str, name: str, labels: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of objects for which one of ``kind`` may have been made, each with the kind of those."""
    found = []
    for parent in KINDS.values():
        if kind.key in parent.child_kinds and parent.name_label:
            # Some make it by their own name; then its pods bear it.
            other = name if parent.name_label == kind.name_label else ""
            found.append(kind_of(parent.key, namespace, text(labels.get(parent.name_label)) or other))
    return tuple(each for each in found if not each.endswith("/"))


def name_of(kind: str, namespace: str, name: str) -> str:
    """Return how pods that were made for an object of a kind name it; empty where they do not."""
    known = KINDS.get(kind)
    return kind_of(known.name_label, namespace, name) if known is not None and known.name_label else ""


def kind_of(label: str, namespace: str, name: str) -> str:
    """Return how objects that were made for an object of a kind name it."""
    return f"{label}={namespace}/{name}"
