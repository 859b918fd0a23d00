"""Label and field selectors in the text form of list and watch queries, as ``kubectl -l`` writes them.

Matching itself is ``core.policy.LabelSelector``; here is only its text: ``app=web,tier in (a,b),!canary``.
"""

import re
from collections.abc import Mapping
from typing import Final

from webhook.core.gang import Requirement
from webhook.core.policy import LabelSelector

_KEY: Final = r"(?P<key>[A-Za-z0-9][-A-Za-z0-9_./]*)"
_SET: Final = re.compile(_KEY + r"\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_COMPARISON: Final = re.compile(_KEY + r"\s*(?P<operator>==|=|!=|>|<)\s*(?P<value>[-A-Za-z0-9_.]*)")
_EXISTENCE: Final = re.compile(r"(?P<negation>!?)\s*" + _KEY)
_SEPARATOR: Final = re.compile(r",(?![^(]*\))")
_SET_OPERATORS: Final = {"in": "In", "notin": "NotIn"}
_COMPARISON_OPERATORS: Final = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}


def label_query(selector: LabelSelector) -> str:
    """Return ``selector`` as the value of ``labelSelector=``; an empty selector gives an empty text."""
    equalities = [f"{key}={value}" for key, value in selector.match_labels.items()]
    return ",".join(equalities + [_requirement_text(requirement) for requirement in selector.match_expressions])


def _requirement_text(requirement: Requirement) -> str:
    match requirement.operator:
        case "Exists":
            return requirement.key
        case "DoesNotExist":
            return f"!{requirement.key}"
        case "Gt" | "Lt" as operator:
            return f"{requirement.key}{'>' if operator == 'Gt' else '<'}{requirement.values[0]}"
        case operator:
            return f"{requirement.key} {operator.lower()} ({','.join(requirement.values)})"


def field_query(fields: Mapping[str, str]) -> str:
    """Return the value of ``fieldSelector=`` that selects objects whose ``fields`` have these values."""
    return ",".join(f"{path}={_escape(value)}" for path, value in fields.items())


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


def parse_labels(text: str) -> LabelSelector:
    """Return the selector that ``text`` writes. Raises ValueError naming the term that is not one."""
    terms = [term.strip() for term in _SEPARATOR.split(text)] if text.strip() else []
    return LabelSelector(match_expressions=tuple(_parse_term(term) for term in terms))


def _parse_term(term: str) -> Requirement:
    if found := _SET.fullmatch(term):
        values = tuple(value.strip() for value in found["values"].split(","))
        return Requirement(found["key"], _SET_OPERATORS[found["operator"]], values)
    if found := _COMPARISON.fullmatch(term):
        return Requirement(found["key"], _COMPARISON_OPERATORS[found["operator"]], (found["value"],))
    if found := _EXISTENCE.fullmatch(term):
        return Requirement(found["key"], "DoesNotExist" if found["negation"] else "Exists", ())
    raise ValueError(f"not a label selector term: {term!r}")
