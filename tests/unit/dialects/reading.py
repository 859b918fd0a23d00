"""Cases in YAML: reading them, changing objects by path, and summing policies up for comparison."""

import copy
from pathlib import Path
from typing import Any

import yaml

from webhook.core.model.policy import ResourceGroup
from webhook.core.notation.amounts import FlavorResource
from webhook.core.notation.problem import Problem

CASES = Path(__file__).parent / "cases"


def cases(name: str) -> Any:
    """Return the content of a file of cases."""
    return yaml.safe_load((CASES / name).read_text())


def changed(obj: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of ``obj`` with values set by dotted paths; None removes."""
    result = copy.deepcopy(obj)
    for path, value in changes.items():
        *way, last = path.split(".")
        at: Any = result
        for step in way:
            at = at[int(step)] if isinstance(at, list) else at[step]
        key = int(last) if isinstance(at, list) else last
        if value is None:
            del at[key]
        else:
            at[key] = value
    return result


def quotas(groups: tuple[ResourceGroup, ...]) -> dict[str, list[float | None]]:
    """Return resource to [nominal, borrowing limit, lending limit] in whole units, pseudo-resources left out."""
    return {
        resource: [None if n is None else n / 1000 for n in (q.nominal, q.borrowing_limit, q.lending_limit)]
        for group in groups
        for flavor in group.flavors
        for resource, q in flavor.quotas.items()
        if not FlavorResource(flavor.flavor, resource).is_internal
    }


def summary(problem: Problem) -> str:
    """Return how grave a problem is and where."""
    return f"{'warning' if problem.warning else 'error'} {problem.path}"
