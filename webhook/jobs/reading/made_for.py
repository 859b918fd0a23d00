"""For which object something was made, by a label that its controller wrote: the owner is taken away where an object is
deleted with ``--cascade=orphan``, the labels stay.

Anybody may write such a label. It is believed of an owner alone that this process never saw (``cluster.lineage``).
"""

from collections.abc import Mapping
from typing import Any, Final

from webhook.untyped.values import text

_LABELS: Final = ("jobset.sigs.k8s.io/jobset-uid", "batch.kubernetes.io/controller-uid", "controller-uid")
"""The outermost first. Other controllers write names alone, which a successor may have too."""


def made_for(labels: Mapping[str, Any]) -> str:
    """Return the uid of the object that what bears ``labels`` was made for; empty where no label says it."""
    return next((uid for key in _LABELS if (uid := text(labels.get(key)))), "")
