"""Label selectors in the text form of list and watch queries, as ``kubectl -l`` writes them.

Matching itself is ``core.model.policy.LabelSelector``; here is only its text: ``app=web,tier in (a,b),!canary``.
"""

import re
from collections.abc import Iterator
from typing import Final

from webhook.core.model.gang import Requirement
from webhook.core.model.policy import LabelSelector

_KEY: Final = r"(?P<key>[A-Za-z0-9][-A-Za-z0-9_./]*)"
_SET: Final = re.compile(_KEY + r"\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_COMPARISON: Final = re.compile(_KEY + r"\s*(?P<operator>==|=|!=|>|<)\s*(?P<value>[-A-Za-z0-9_.]*)")
_EXISTENCE: Final = re.compile(r"(?P<negation>!?)\s*" + _KEY)
_MARKS: Final = re.compile(r"[,()]")
_SET_OPERATORS: Final = {"in": "In", "notin": "NotIn"}
_COMPARISON_OPERATORS: Final = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}


def parse_labels(text: str) -> LabelSelector:
    """Return the selector that ``text`` writes. Raises ValueError naming the term that is not one."""
    terms = [term.strip() for term in _split(text)] if text.strip() else []
    return LabelSelector(match_expressions=tuple(_parse_term(term) for term in terms))


def _split(text: str) -> Iterator[str]:
    """Yield what stands between the commas outside parentheses, in one pass however many there are."""
    began, inside = 0, False
    for mark in _MARKS.finditer(text):
        if mark[0] != ",":
            inside = mark[0] == "("
        elif not inside:
            yield text[began : mark.start()]
            began = mark.end()
    yield text[began:]


def _parse_term(term: str) -> Requirement:
    if found := _SET.fullmatch(term):
        values = tuple(value.strip() for value in found["values"].split(","))
        return Requirement(found["key"], _SET_OPERATORS[found["operator"]], values)
    if found := _COMPARISON.fullmatch(term):
        return Requirement(found["key"], _COMPARISON_OPERATORS[found["operator"]], (found["value"],))
    if found := _EXISTENCE.fullmatch(term):
        return Requirement(found["key"], "DoesNotExist" if found["negation"] else "Exists", ())
    raise ValueError(f"not a label selector term: {term!r}")
