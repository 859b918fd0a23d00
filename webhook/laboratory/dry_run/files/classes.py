"""PriorityClasses, LimitRanges and RuntimeClasses of files. The API server would refuse a malformed one: it is told and
left out.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from webhook.core.notation.problem import Problem
from webhook.dialects.field import Field
from webhook.jobs.pricing.context import ReadContext, context_from
from webhook.laboratory.dry_run.files.objects import Object, label

KINDS: Final = ("PriorityClass", "LimitRange", "RuntimeClass", "TrainingRuntime", "ClusterTrainingRuntime")
_SCOPES: Final = ("Container", "Pod", "PersistentVolumeClaim")
_BOUNDS: Final = ("min", "max", "default", "defaultRequest", "maxLimitRequestRatio")


def read(
    found: Mapping[str, Sequence[Object]], workload_classes: Mapping[str, int]
) -> tuple[ReadContext, list[Problem]]:
    """Return what gangs are priced and ranked with, of objects by kind, and what is wrong with these."""
    problems: list[Problem] = []
    sound = {kind: [obj for obj in found.get(kind, ()) if _is_sound(obj, problems)] for kind in KINDS}
    context = context_from(
        priority_classes=sound["PriorityClass"],
        workload_priority_classes=workload_classes,
        limit_ranges=sound["LimitRange"],
        runtime_classes=sound["RuntimeClass"],
        training_runtimes=[*sound["TrainingRuntime"], *sound["ClusterTrainingRuntime"]],
    )
    return context, problems


def _is_sound(obj: Object, problems: list[Problem]) -> bool:
    wrong: list[Problem] = []
    at = Field(obj, "", wrong)
    if obj["kind"] == "PriorityClass":
        if not at["value"].present:
            at["value"].error("is missing", "write a whole number")
        at["value"].integer()
        at["globalDefault"].boolean(default=False)
    elif obj["kind"] == "LimitRange":
        _check_limit_range(at["spec"])
    elif obj["kind"] == "RuntimeClass":
        at["overhead"].mapping()
        _check_amounts(at["overhead"]["podFixed"])
        at["scheduling"].mapping()
        for value in at["scheduling"]["nodeSelector"].mapping().values():
            value.text()
        for toleration in at["scheduling"]["tolerations"].items():
            toleration.mapping()
    problems += [problem.within(f"{label(obj)}#") for problem in wrong]
    return not wrong


def _check_limit_range(spec: Field) -> None:
    spec.mapping()
    for item in spec["limits"].items():
        item.mapping()
        if item["type"].value not in _SCOPES:
            item["type"].error("is not what a LimitRange bounds", f"write one of {', '.join(_SCOPES)}")
        for bound in _BOUNDS:
            _check_amounts(item[bound])


def _check_amounts(at: Field) -> None:
    for amount in at.mapping().values():
        if not amount.present:
            amount.error("is not a quantity", "write one, or leave it out")
        amount.amount()
