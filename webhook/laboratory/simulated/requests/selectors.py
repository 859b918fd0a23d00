"""Label and field selectors as an API server reads them: query text, or the LabelSelector of a registration.

Grammar of the text form: ``a=b``, ``a==b``, ``a!=b``, ``a in (b,c)``, ``a notin (b,c)``, ``a``, ``!a``, joined by
commas (``k8s.io/apimachinery/pkg/labels``). ``!=`` and ``notin`` also match objects that lack the key.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from webhook.laboratory.simulated.requests.refusals import Json, bad_request

Predicate = Callable[[Mapping[str, str]], bool]
ObjectPredicate = Callable[[Json], bool]

_TERM: Final = re.compile(
    r"\s*(?:(?P<absent>!)\s*)?(?P<key>[A-Za-z0-9._/\-]+)\s*"
    r"(?:(?P<op>==|!=|=)\s*(?P<value>[A-Za-z0-9._\-]*)|(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?\s*(?:,|$)"
)


def everything(labels: Mapping[str, str]) -> bool:
    """Match any labels."""
    return True


@lru_cache(maxsize=1024)
def parse_labels(text: str) -> Predicate:
    """Return the predicate of a ``labelSelector`` query value. Raises Refused (400) when it cannot be read."""
    terms: list[Predicate] = []
    at = 0
    while at < len(text):
        match = _TERM.match(text, at)
        if match is None or match.end() == at:
            raise bad_request(f'unable to parse requirement: found "{text[at : at + 64]}"')
        terms.append(_term(match))
        at = match.end()
    if not terms:
        return everything
    if len(terms) == 1:
        return terms[0]
    return lambda labels: all(term(labels) for term in terms)


def _term(match: re.Match[str]) -> Predicate:
    key, op, value = match["key"], match["op"], match["value"]
    if match["absent"]:
        return lambda labels: key not in labels
    if op in ("=", "=="):
        return lambda labels: labels.get(key) == value
    if op == "!=":
        return lambda labels: labels.get(key) != value
    if match["set"]:
        values = frozenset(part.strip() for part in match["values"].split(","))
        return _one_of(key, values, match["set"] == "in")
    return lambda labels: key in labels


def _one_of(key: str, values: frozenset[str], wanted: bool) -> Predicate:
    if wanted:
        return lambda labels: labels.get(key) in values
    return lambda labels: labels.get(key) not in values


def compile_selector(selector: Mapping[str, Any] | None) -> Predicate:
    """Return the predicate of a LabelSelector object; an absent or empty one matches everything."""
    if not selector:
        return everything
    equal: dict[str, str] = dict(selector.get("matchLabels") or {})
    terms = [_expression(expression) for expression in selector.get("matchExpressions") or ()]
    return lambda labels: all(labels.get(k) == v for k, v in equal.items()) and all(term(labels) for term in terms)


def _expression(expression: Mapping[str, Any]) -> Predicate:
    key, values = expression["key"], frozenset(expression.get("values") or ())
    match expression["operator"]:
        case "In":
            return _one_of(key, values, True)
        case "NotIn":
            return _one_of(key, values, False)
        case "Exists":
            return lambda labels: key in labels
        case "DoesNotExist":
            return lambda labels: key not in labels
    raise bad_request(f'"{expression["operator"]}" is not a valid label selector operator')


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
