"""Kubernetes quantity text to exact integers and back.

Every amount in Tutti is an integer in thousandths of a unit (a CPU is 1000, a GPU is 1000, a byte is 1000), so that
4.8 + 2.4 + 0.8 GPUs are 8 and nothing is ever rounded up by accident. The grammar is that of
``k8s.io/apimachinery/pkg/api/resource``: sign, digits with at most one point, then one of the binary suffixes, one of
the decimal suffixes, or an exponent. Finer than a thousandth is rounded away from zero, as the API server does.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from math import isfinite
from typing import Any, Final

from webhook.core.notation.problem import Unreadable

MILLI: Final = 1000
"""Thousandths in one unit."""

_SYNTAX: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,3}))?",
    re.ASCII,
)
_BINARY: Final = {f"{letter}i": 1024 ** (i + 1) for i, letter in enumerate("KMGTPE")}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


_FIX: Final = "write text such as '4', '500m' or '16Gi'"


class QuantityError(Unreadable):
    """The text is not a Kubernetes quantity."""


def parse(value: object) -> int:
    """Return ``value`` (quantity text, or a JSON number) in thousandths of a unit.

    A number that is no integer means its shortest text, as in the API server's own reader: 0.1 is exactly a tenth.
    Raises QuantityError for anything the API server would refuse, and for booleans.
    """
    if isinstance(value, str):
        return _parse_text(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value * MILLI
    if isinstance(value, float) and isfinite(value):
        return _parse_text(repr(value))
    raise QuantityError("", value, "is not a quantity", _FIX)


@lru_cache(maxsize=4096)
def _parse_text(text: str) -> int:
    match = _SYNTAX.fullmatch(text)
    if match is None or len(text) > 64:
        raise QuantityError("", text, "is not a quantity", _FIX)
    number = Fraction(match["number"]) * MILLI
    if match["suffix"] in _BINARY:
        number *= _BINARY[match["suffix"]]
    else:
        power = _DECIMAL.get(match["suffix"] or "", 0) + int(match["exponent"] or 0)
        number *= Fraction(10) ** power
    thousandths = -(-number.numerator // number.denominator)
    return -thousandths if match["sign"] == "-" else thousandths


def largest(left: Mapping[str, Any] | None, right: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the larger quantities, as written. What is no quantity stays on the left: pricing will say so."""
    larger = dict(left or {})
    for name, amount in (right or {}).items():
        with suppress(QuantityError):
            if name not in larger or parse(larger[name]) < parse(amount):
                larger[name] = amount
    return larger


def render(thousandths: int, resource: str = "") -> str:
    """Return the shortest exact text of an amount; memory takes a binary suffix where it divides evenly."""
    whole, rest = divmod(abs(thousandths), MILLI)
    sign = "-" if thousandths < 0 else ""
    if rest:
        if resource == "cpu":
            return f"{sign}{abs(thousandths)}m"
        return f"{sign}{whole}.{rest:03d}".rstrip("0")
    if "memory" in resource or "storage" in resource or resource.startswith("hugepages-"):
        for suffix, size in reversed(_BINARY.items()):
            if whole and whole % size == 0:
                return f"{sign}{whole // size}{suffix}"
    return f"{sign}{whole}"
