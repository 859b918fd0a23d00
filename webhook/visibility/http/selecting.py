"""Which documents a request asks for: resource, namespace, name, label and field selectors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from webhook.core.model.policy import LabelSelector
from webhook.kube.selectors import parse_labels
from webhook.untyped import paths
from webhook.visibility.documents.watch_cache import Key
from webhook.visibility.http.group import FIELDS

SELECTOR_BYTES_MAX: Final = 4096
TERMS_MAX: Final = 64
"""Of each selector of a request. Every document is compared with every term."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What one request asks for."""

    resource: str
    namespace: str | None
    """None: all of them."""
    labels: LabelSelector = field(default_factory=LabelSelector)
    fields: tuple[tuple[paths.Path, str, bool], ...] = ()
    """(path, value, whether it must be equal)."""

    @property
    def everything(self) -> bool:
        """Nothing but the namespace selects."""
        return not self.fields and not self.labels.match_labels and not self.labels.match_expressions

    @property
    def terms(self) -> int:
        """What each document is compared with: requirements, their values, and fields."""
        expressions = self.labels.match_expressions
        return len(self.fields) + len(self.labels.match_labels) + sum(1 + len(it.values) for it in expressions)

    def has_place(self, key: Key) -> bool:
        """Return whether a document of that place may be meant."""
        return key.resource == self.resource and self.namespace in (None, key.namespace)

    def matches(self, document: Mapping[str, Any], *, labels_known: bool = True) -> bool:
        """Return whether a document of the right place is meant, or may be if its labels are not known."""
        labels = document["metadata"].get("labels") or {}
        return (not labels_known or self.labels.matches(labels)) and all(
            (_text(paths.find(document, path)) == value) is equal for path, value, equal in self.fields
        )


def selection(resource: str, namespace: str | None, query: Mapping[str, str], name: str = "") -> Selection:
    """Return what a request's path and query ask for. Raises ValueError for a selector that cannot be read."""
    fields = _parse_fields(_selector_text(query, "fieldSelector"))
    labels = parse_labels(_selector_text(query, "labelSelector"))
    _check_terms("fieldSelector", len(fields))
    _check_terms("labelSelector", len(labels.match_expressions))
    if name:
        fields.append((("metadata", "name"), name, True))
    return Selection(resource, namespace, labels, tuple(fields))


def _selector_text(query: Mapping[str, str], parameter: str) -> str:
    text = query.get(parameter, "")
    if (size := len(text.encode(errors="surrogatepass"))) > SELECTOR_BYTES_MAX:
        raise ValueError(f"{parameter}: Too long: has {size} bytes; at most {SELECTOR_BYTES_MAX} are read")
    return text


def _check_terms(parameter: str, terms: int) -> None:
    if terms > TERMS_MAX:
        raise ValueError(f"{parameter}: Too many: has {terms} terms; at most {TERMS_MAX} are read")


def _parse_fields(text: str) -> list[tuple[paths.Path, str, bool]]:
    found = []
    for term in filter(None, (part.strip() for part in text.split(","))):
        path, separator, value = term.partition("=")
        if not separator:
            raise ValueError(f"{term!r} is not a field selector; write for example metadata.name=train")
        equal = not path.endswith("!")
        path = path.removesuffix("!")
        if path not in FIELDS:
            raise ValueError(f"field label not supported: {path}; supported are {', '.join(FIELDS)}")
        found.append((paths.parse(path), value.removeprefix("="), equal))
    return found


def _text(found: object) -> str:
    return "" if found is None else str(found)
