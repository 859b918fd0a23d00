"""Jobs each of whose pod sets asks for something of its own, so that the nodes are looked at for each of them."""

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from tests.simulation.shapes import TRAINING
from webhook.core.notation import names

DIFFERENT: Final = 40
"""How many shapes there are at most."""


def vary(document: dict[str, Any], kind: str, rng: Random) -> None:
    """Have a JobSet make a Job for each of its pods, and each pod set of any job avoid a node that is not there."""
    if kind == "JobSet":
        (one,) = document["spec"]["replicatedJobs"]
        job = one["template"]["spec"]
        alone = {**job, "parallelism": 1, "completions": 1}
        parts = ({**one, "name": f"part-{n}", "template": {"spec": {**alone}}} for n in range(job["parallelism"]))
        document["spec"]["replicatedJobs"] = [*parts]
    for owner in _with_templates(document["spec"], kind):
        owner["template"] = _avoiding(owner["template"], f"gone-{rng.randint(1, DIFFERENT)}")


def _with_templates(spec: dict[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    if kind in TRAINING:
        yield from spec[TRAINING[kind].replicas].values()
    elif kind == "JobSet":
        yield from (replicated["template"]["spec"] for replicated in spec["replicatedJobs"])
    else:
        yield spec


def _avoiding(template: dict[str, Any], node: str) -> dict[str, Any]:
    elsewhere = {"key": names.HOSTNAME, "operator": "NotIn", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [elsewhere]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return {**template, "spec": {**template["spec"], "affinity": affinity}}
