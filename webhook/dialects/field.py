"""Reading of objects that nobody has checked: a field of a document, and what is wrong there.

Policy objects come from free-form custom resources and from YAML in a ConfigMap, so any value may have any type. A
``Field`` is one value with its JSON pointer; each reader returns a usable value and notes a problem, with the path,
the value and how to mend it, when the document holds something else. Reading never raises.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import Final, TypeVar

from webhook.core.notation import quantity
from webhook.core.notation.problem import Problem, shown
from webhook.untyped.paths import escape

Choice = TypeVar("Choice", bound=StrEnum)

_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
PROBLEMS_MAX: Final = 100
"""Warnings that are noted of one document, and as many errors again: nobody reads thousands, and each costs time."""
LABEL_NAME: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)", re.ASCII)


class Field:
    """One value of a document, its JSON pointer, and the list that problems found below it are noted in."""

    __slots__ = ("path", "problems", "value")

    def __init__(self, value: object, path: str, problems: list[Problem]) -> None:
        self.value = value
        self.path = path
        self.problems = problems

    # -- problems ---------------------------------------------------------------------------------------------------

    def error(self, message: str, fix: str) -> None:
        """Note that the object does not compile because of this value."""
        if len(self.problems) < 2 * PROBLEMS_MAX:
            self.problems.append(Problem(self.path, shown(self.value), message, fix))

    def warn(self, message: str, fix: str) -> None:
        """Note something that the owner should know, though the object compiles."""
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(Problem(self.path, shown(self.value), message, fix, warning=True))

    # -- steps ------------------------------------------------------------------------------------------------------

    @property
    def present(self) -> bool:
        """Whether there is a value; JSON null counts as absent, as in the API server."""
        return self.value is not None

    def __getitem__(self, key: str) -> "Field":
        """Return the field of a member, which may be absent."""
        members = self.value if isinstance(self.value, Mapping) else {}
        return self._member(key, members.get(key))

    def mapping(self) -> dict[str, "Field"]:
        """Return the members; empty when absent."""
        if self.value is None:
            return {}
        if not isinstance(self.value, Mapping):
            self.error("is not an object", "write 'name: value' members here")
            return {}
        return {str(key): self._member(str(key), value) for key, value in self.value.items()}

    def items(self, least: int = 0, most: int | None = None) -> Iterator["Field"]:
        """Yield the elements of a list; notes an error when there are fewer than ``least`` or more than ``most``.

        What there is beyond that is not yielded: the object does not compile, and each element costs time.
        """
        if self.value is None and not least:
            return
        if not isinstance(self.value, Sequence) or isinstance(self.value, str | bytes):
            self.error("is not a list", "write a list here")
            return
        size = len(self.value)
        if size < least or (most is not None and size > most):
            self.error(f"has {size} entries", f"write {least} to {'any number' if most is None else most}")
        for index, value in enumerate(self.value[:most]):
            yield Field(value, f"{self.path}/{index}", self.problems)

    def _member(self, key: str, value: object) -> "Field":
        return Field(value, f"{self.path}/{escape(key)}", self.problems)

    def only(self, known: Sequence[str]) -> None:
        """Warn of members that are not among ``known``: they would be ignored in silence."""
        if not isinstance(self.value, Mapping):
            self.mapping()
            return
        for written, value in self.value.items():
            # An object may have thousands of members: of those that are not told nothing is made.
            if len(self.problems) >= PROBLEMS_MAX:
                return
            if (key := str(written)) not in known:
                close = get_close_matches(key, known, n=1)
                meant = f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(known)}"
                self._member(key, value).warn("is not a field that Tutti knows; it has no effect", meant)

    # -- scalars ----------------------------------------------------------------------------------------------------

    def text(self, default: str = "") -> str:
        """Return a string."""
        if self.value is None:
            return default
        if not isinstance(self.value, str):
            self.error("is not text", "write it in quotes")
            return default
        return self.value

    def subdomain(self) -> str:
        """Return the name of a cluster object (RFC 1123 subdomain), or the empty string."""
        name = self.text()
        if name and not is_subdomain(name):
            self.error("is not a name", "use lower-case letters, digits, '-' and '.', at most 253 characters")
            return ""
        return name

    def label_key(self) -> str:
        """Return a label key or resource name (``cpu``, ``nvidia.com/gpu``), or the empty string."""
        key = self.text()
        if not is_label_key(key):
            self.error("is not a qualified name", "write for example 'cpu' or 'nvidia.com/gpu'")
            return ""
        return key

    def boolean(self, default: bool) -> bool:
        """Return a boolean."""
        if self.value is None:
            return default
        if not isinstance(self.value, bool):
            self.error("is not a boolean", "write true or false")
            return default
        return self.value

    def integer(self, least: int = -(2**31), most: int = 2**31 - 1) -> int | None:
        """Return an integer within bounds; None when absent or wrong."""
        if self.value is None:
            return None
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not least <= self.value <= most:
            self.error("is not an allowed integer", f"write a whole number from {least} to {most}")
            return None
        return self.value

    def choice(self, default: Choice, allowed: Mapping[str, Choice]) -> Choice:
        """Return what the text stands for; an unknown text is an error."""
        if self.value is None or self.value == "":
            return default
        if not isinstance(self.value, str) or self.value not in allowed:
            self.error("is not an allowed value", f"write one of {', '.join(allowed)}")
            return default
        return allowed[self.value]

    def amount(self, *, signed: bool = False) -> int | None:
        """Return a quantity in thousandths, at least 0 unless ``signed``; None when absent or wrong."""
        if self.value is None:
            return None
        try:
            amount = quantity.parse(self.value)
        except quantity.QuantityError:
            self.error("is not a quantity", "write text such as '4', '500m' or '16Gi'")
            return None
        if amount < 0 and not signed:
            self.error("is negative", "write 0 or more")
            return None
        return amount


def is_subdomain(text: str) -> bool:
    """Return whether a cluster object may be called so (RFC 1123 subdomain)."""
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


def is_label_key(key: str) -> bool:
    """Return whether ``key`` is a qualified name: an optional DNS prefix, a slash, and up to 63 characters."""
    prefix, slash, name = key.rpartition("/")
    if slash and not is_subdomain(prefix):
        return False
    return 0 < len(name) <= 63 and LABEL_NAME.fullmatch(name) is not None


def is_label_value(value: str) -> bool:
    """Return whether ``value`` may be the value of a label."""
    return value == "" or (len(value) <= 63 and LABEL_NAME.fullmatch(value) is not None)
