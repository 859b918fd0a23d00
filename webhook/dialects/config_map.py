"""Policy from a ConfigMap: works in a cluster without a single policy CRD.

The ConfigMap ``tutti-policy`` in ``tutti-system`` holds YAML documents, any number an entry, each a policy object of
any dialect exactly as it would be applied, or a list of such.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from webhook.core.notation import names
from webhook.core.notation.problem import Problem
from webhook.dialects.field import Field
from webhook.untyped.yaml_text import Measure, UnreadableYaml, documents

NAME: Final = "tutti-policy"
NAMESPACE: Final = names.SYSTEM_NAMESPACE
LENGTH_MAX: Final = 64 << 10
"""Characters of policy that a ConfigMap may be given, some 500 LocalQueues: all is read in one turn of a loop."""


def objects_of(config_map: Mapping[str, object]) -> tuple[tuple[Mapping[str, object], ...], tuple[Problem, ...]]:
    """Return the policy objects in a ConfigMap, by entry name and order, and what could not be read.

    An entry that is not YAML, or a document that is not an object, is left out with a problem; the others count. A text
    that is too long has a problem and counts all the same: no stored policy may vanish.
    """
    problems: list[Problem] = []
    objects: list[Mapping[str, object]] = []
    measure = Measure()
    entries = Field(config_map, "", problems)["data"].mapping()
    if sum(len(each.value) for each in entries.values() if isinstance(each.value, str)) > LENGTH_MAX:
        Field("", "/data", problems).error(
            f"is longer than {LENGTH_MAX} characters together", "apply some of its objects by themselves instead"
        )
    for _, entry in sorted(entries.items()):
        for index, document in enumerate(each for whole in _documents(entry, measure) for each in _flat(whole)):
            if isinstance(document, Mapping):
                objects.append(document)
            elif document is not None:
                Field(document, f"{entry.path}#{index}", problems).error("is not an object", "write a policy object")
    return tuple(objects), tuple(problems)


class Reader:
    """Reads one ConfigMap again only when it is another object: YAML of 100,000 values takes seconds."""

    def __init__(self) -> None:
        self._read: tuple[object, tuple[Mapping[str, object], ...]] = (None, ())

    def objects_of(self, config_map: Mapping[str, object]) -> tuple[Mapping[str, object], ...]:
        """Return the policy objects in a ConfigMap, the same ones as long as it is the same Python object."""
        if self._read[0] is not config_map:
            self._read = (config_map, objects_of(config_map)[0])
        return self._read[1]


def _flat(document: object) -> Iterator[object]:
    items = document.get("items") if isinstance(document, Mapping) and document.get("kind") == "List" else None
    if not isinstance(items, list):
        yield document
        return
    for item in items:
        yield from _flat(item)


def _documents(entry: Field, measure: Measure) -> list[object]:
    try:
        return documents(entry.text(), measure)
    except UnreadableYaml as error:
        entry.error(f"is not YAML: {error}", "correct it; its policy is left out until then")
        return []
