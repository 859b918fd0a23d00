"""Kubernetes objects from files: YAML or JSON, several documents, lists; and which of them are policy.

What cannot be read becomes a diagnostic and the rest counts. Documents are reduced to plain JSON data, as an API server
would store them; a time stays the text that was written.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson
import yaml

from webhook.core.policy import Diagnostic
from webhook.dialects import config_map, resource_quota
from webhook.dialects.registry import RESOURCE_QUOTA, resource_of
from webhook.errors import in_words

Object = dict[str, Any]
STDIN: Final = Path("-")

# libyaml reads ten times faster, but wheels without it exist.
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """YAML without timestamps: Kubernetes knows them as text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Base.yaml_implicit_resolvers.items()
}


def read(files: Iterable[Path]) -> tuple[list[Object], list[Diagnostic]]:
    """Return the objects of ``files`` (``-`` is standard input) in order, and what could not be read."""
    objects: list[Object] = []
    problems: list[Diagnostic] = []
    for file in files:
        try:
            text = sys.stdin.read() if file == STDIN else file.read_text()
            documents = documents_in(text)
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            problems.append(Diagnostic(str(file), "", in_words(error), "give a readable YAML file"))
            continue
        for index, document in enumerate(documents):
            if document is not None:
                objects += _objects_of(document, f"{file}#{index}", problems)
    return objects, problems


def documents_in(text: str) -> list[object]:
    """Return the YAML documents of ``text``. Raises yaml.YAMLError, ValueError or RecursionError."""
    return list(yaml.load_all(text, _Loader))


def _objects_of(document: object, where: str, problems: list[Diagnostic]) -> list[Object]:
    try:
        plain = orjson.loads(orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS))
    except (TypeError, ValueError, RecursionError) as error:
        problems.append(
            Diagnostic(where, "", f"is not JSON data: {error}", "write plain maps, lists, text and numbers")
        )
        return []
    return list(_flat(plain, where, problems))


def _flat(document: object, where: str, problems: list[Diagnostic]) -> Iterator[Object]:
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        shown = repr(document)[:80]
        problems.append(Diagnostic(where, shown, "is not a Kubernetes object", "write apiVersion, kind and metadata"))
        return
    kind = document["kind"]
    if not kind.endswith("List") or "items" not in document:
        yield document
        return
    items = document["items"]
    if items is not None and not isinstance(items, list):
        problems.append(Diagnostic(f"{where}/items", repr(items)[:80], "is not a list", "write a list of objects"))
        return
    # The API server leaves these two out of the items of a typed list.
    known = {} if kind == "List" else {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")}
    for index, item in enumerate(items or ()):
        yield from _flat({**known, **item} if isinstance(item, dict) else item, f"{where}/items/{index}", problems)


@dataclass(frozen=True, slots=True)
class PolicyFiles:
    """Objects sorted by what they are to policy."""

    objects: list[Object] = field(default_factory=list)
    """Policy objects of every dialect, those in the ConfigMap ``tutti-policy`` included."""
    quotas: list[Object] = field(default_factory=list)
    """ResourceQuotas."""
    others: list[Object] = field(default_factory=list)
    problems: list[Diagnostic] = field(default_factory=list)
    """What is wrong with ConfigMaps that hold policy, and with ResourceQuotas."""


def sort_policy(found: Iterable[Object]) -> PolicyFiles:
    """Return ``found`` sorted."""
    result = PolicyFiles()
    for obj in found:
        group = str(obj.get("apiVersion") or "").rpartition("/")[0]
        resource = resource_of(group, str(obj.get("kind", "")))
        if resource is RESOURCE_QUOTA:
            result.quotas.append(obj)
            name = f"ResourceQuota {_metadata(obj).get('namespace', 'default')}/{_metadata(obj).get('name')}"
            result.problems.extend(_at(name, problem) for problem in resource_quota.compile_object(obj)[1])
        elif resource is not None:
            result.objects.append(obj)
        elif obj.get("kind") == "ConfigMap" and _metadata(obj).get("name") == config_map.NAME:
            inside, wrong = config_map.objects_of(obj)
            result.objects.extend(dict(each) for each in inside)
            result.problems.extend(_at(f"ConfigMap {config_map.NAME}", problem) for problem in wrong)
        else:
            result.others.append(obj)
    return result


def _metadata(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = obj.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _at(name: str, problem: Diagnostic) -> Diagnostic:
    return Diagnostic(f"{name}#{problem.path}", problem.value, problem.message, problem.fix, problem.warning)
