"""Label and field selectors as an API server reads them: query text, or the LabelSelector of a registration.

Label selectors are those of the product; here are the server's refusals, and field selectors.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from webhook.core.model.gang import Requirement
from webhook.core.model.policy import LabelSelector
from webhook.kube import selectors
from webhook.laboratory.simulated.requests.refusals import Json, bad_request

Predicate = Callable[[Mapping[str, str]], bool]
ObjectPredicate = Callable[[Json], bool]

_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")


def everything(labels: Mapping[str, str]) -> bool:
    """Match any labels."""
    return True


@lru_cache(maxsize=1024)
def parse_labels(text: str) -> Predicate:
    """Return the predicate of a ``labelSelector`` query value. Raises Refused (400) when it cannot be read."""
    try:
        return selectors.parse_labels(text).matches if text.strip() else everything
    except ValueError as error:
        raise bad_request(f"unable to parse requirement: {error}") from error


def compile_selector(selector: Mapping[str, Any] | None) -> Predicate:
    """Return the predicate of a LabelSelector object; an absent or empty one matches everything."""
    if not selector:
        return everything
    expressions = selector.get("matchExpressions") or ()
    if unknown := [each["operator"] for each in expressions if each["operator"] not in _OPERATORS]:
        raise bad_request(f'"{unknown[0]}" is not a valid label selector operator')
    requirements = (Requirement(each["key"], each["operator"], tuple(each.get("values") or ())) for each in expressions)
    return LabelSelector(dict(selector.get("matchLabels") or {}), tuple(requirements)).matches


def parse_fields(text: str, allowed: tuple[str, ...]) -> ObjectPredicate | None:
    """Return the predicate of a ``fieldSelector`` query value, None when it is empty.

    Raises Refused (400) for a field that the resource cannot be selected by.
    """
    terms: list[tuple[tuple[str, ...], str, bool]] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        field, sign, value = re.split(r"(!=|==|=)", part, maxsplit=1) if "=" in part else (part, "", "")
        if not sign or field not in allowed:
            raise bad_request(f'field label not supported: "{field}"')
        terms.append((tuple(field.split(".")), value, sign != "!="))
    if not terms:
        return None
    return lambda item: all((_field(item, path) == value) is wanted for path, value, wanted in terms)


def _field(item: Json, path: tuple[str, ...]) -> str:
    found: Any = item
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    if isinstance(found, bool):
        return str(found).lower()
    return "" if found is None else str(found)
