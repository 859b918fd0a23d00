"""Objects of each kind, as an API server would hand them out, and the applying of patches to them."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonpatch
import yaml

from webhook.core.ledger.record import Reservation, reserve
from webhook.core.model.policy import Flavor
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.reading.job import read
from webhook.jobs.reading.record import JobRecord

DIRECTORY = Path(__file__).parent / "objects"
NAMES = sorted(path.stem for path in DIRECTORY.glob("*.yaml"))
CONTEXT = ReadContext()


def load(name: str) -> dict[str, Any]:
    return yaml.safe_load((DIRECTORY / f"{name}.yaml").read_text())


def special(name: str) -> dict[str, Any]:
    """An object of a kind that needs tests of its own, or of what describes its pods."""
    return yaml.safe_load((DIRECTORY.parent / "special" / f"{name}.yaml").read_text())


def kind_of(obj: dict[str, Any]) -> JobKind:
    group = obj["apiVersion"].rpartition("/")[0]
    return KINDS[f"{obj['kind']}.{group}"]


def record_of(obj: dict[str, Any], context: ReadContext = CONTEXT, kinds: Mapping[str, JobKind] = KINDS) -> JobRecord:
    return read(kind_of(obj), obj, context, kinds)


def apply(obj: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    """Apply as the API server does: a moved-on resourceVersion conflicts, an accepted write moves it."""
    changed = jsonpatch.apply_patch(copy.deepcopy(obj), patch)
    if "resourceVersion" in obj["metadata"]:
        assert changed["metadata"]["resourceVersion"] == obj["metadata"]["resourceVersion"], "409"
        changed["metadata"]["resourceVersion"] = str(int(obj["metadata"]["resourceVersion"]) + 1)
    return changed


def reservation_of(
    record: JobRecord,
    counts: dict[str, int] | None = None,
    flavors: dict[str, dict[str, str]] | None = None,
) -> Reservation:
    assert record.gang is not None, record.problem
    return reserve(record.gang, "gpu", counts or record.gang.counts, flavors or {}, epoch=3, now_seconds=1000.0)


def flavor(name: str, labels: dict[str, str], *tolerations: Any) -> Flavor:
    return Flavor(name, node_labels=labels, tolerations=tuple(tolerations))
