"""Kubernetes objects from files: several documents, lists, directories; and which of them are policy.

What cannot be read becomes a problem and the rest counts. Documents are reduced to plain JSON data, as an API server
would store them; a time stays the text that was written.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
import yaml

from webhook.core.notation.problem import Problem
from webhook.dialects import config_map, resource_quota
from webhook.dialects.registry import RESOURCE_QUOTA, RESOURCES, resource_of
from webhook.errors import in_words
from webhook.laboratory.dry_run.files.documents import documents_in

Object = dict[str, Any]
STDIN: Final = Path("-")

_ENDINGS: Final = (".json", ".yaml", ".yml")
"""Of files in a directory, as for kubectl."""


def read(files: Iterable[Path]) -> tuple[list[Object], list[Problem]]:
    """Return the objects of ``files`` in order, and what could not be read.

    ``-`` is standard input; of a directory its YAML and JSON files count, by name.
    """
    located, problems = read_located(files)
    return [each.object for each in located], problems


class Located(NamedTuple):
    """An object, and where it was read."""

    object: Object
    origin: str
    """File and number of the document, from 1."""


def read_located(files: Iterable[Path]) -> tuple[list[Located], list[Problem]]:
    """Return what ``read`` does, with the origin of each object."""
    located: list[Located] = []
    problems: list[Problem] = []
    for file in _single(files, problems):
        try:
            documents = documents_in(sys.stdin.read() if file == STDIN else file.read_text())
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            problems.append(Problem(str(file), "", in_words(error), "give a readable YAML file"))
            continue
        for key in documents.repeated:
            fix = "write '---' between two objects, a key once in each map"
            problems.append(Problem(str(file), key, "a key is written twice; the last one counts", fix))
        name = "standard input" if file == STDIN else str(file)
        for number, document in enumerate(documents.found, 1):
            if document is not None:
                origin = f"{name}, document {number}"
                located += [Located(obj, origin) for obj in _objects_of(document, origin, problems)]
    return located, problems


def _single(files: Iterable[Path], problems: list[Problem]) -> Iterator[Path]:
    """Yield ``files`` with the files of directories in their places."""
    for file in files:
        if file == STDIN or not file.is_dir():
            yield file
            continue
        try:
            found = sorted(entry for entry in file.iterdir() if entry.suffix in _ENDINGS and entry.is_file())
        except OSError as error:
            problems.append(Problem(str(file), "", in_words(error), "give a readable directory"))
            continue
        if not found:
            fix = f"give files, or a directory of files that end in {', '.join(_ENDINGS)}"
            problems.append(Problem(str(file), "", "is a directory without YAML or JSON files", fix))
        yield from found


def _objects_of(document: object, where: str, problems: list[Problem]) -> list[Object]:
    try:
        plain = orjson.loads(orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS))
    except (TypeError, ValueError, RecursionError) as error:
        problems.append(Problem(where, "", f"is not JSON data: {error}", "write plain maps, lists, text and numbers"))
        return []
    return list(_flat(plain, where, problems))


def _flat(document: object, where: str, problems: list[Problem]) -> Iterator[Object]:
    if isinstance(document, list):
        document = {"kind": "List", "items": document}
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        shown = repr(document)[:80]
        problems.append(Problem(where, shown, "is not a Kubernetes object", "write apiVersion, kind and metadata"))
        return
    kind = document["kind"]
    if not kind.endswith("List") or "items" not in document:
        if document.get("apiVersion"):
            yield document
        else:
            problems.append(Problem(where, f"kind {kind}", "has no apiVersion", "write it, as for kubectl"))
        return
    items = document["items"]
    if items is not None and not isinstance(items, list):
        problems.append(Problem(f"{where}/items", repr(items)[:80], "is not a list", "write a list of objects"))
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
    problems: list[Problem] = field(default_factory=list)
    """What is wrong with ConfigMaps that hold policy, and with ResourceQuotas."""

    def take(self, more: "PolicyFiles") -> None:
        """Add what another one has."""
        self.objects.extend(more.objects)
        self.quotas.extend(more.quotas)
        self.others.extend(more.others)
        self.problems.extend(more.problems)


def sort_policy(found: Iterable[Object]) -> PolicyFiles:
    """Return ``found`` sorted."""
    result = PolicyFiles()
    for stated in found:
        resource = resource_of(group_of(stated), str(stated.get("kind", "")))
        obj = in_namespace(stated) if resource is not None and resource.namespaced else stated
        if resource is RESOURCE_QUOTA:
            result.quotas.append(obj)
            name = f"ResourceQuota {_metadata(obj).get('namespace')}/{_metadata(obj).get('name')}"
            result.problems.extend(problem.within(f"{name}#") for problem in resource_quota.compile_object(obj)[1])
        elif resource is not None:
            result.objects.append(obj)
        elif obj.get("kind") == "ConfigMap" and _metadata(obj).get("name") == config_map.NAME:
            inside, wrong = config_map.objects_of(obj)
            result.objects.extend(dict(each) for each in inside)
            result.problems.extend(problem.within(f"ConfigMap {config_map.NAME}#") for problem in wrong)
        else:
            result.others.append(obj)
            result.problems.extend(_misspelt(obj))
    return result


def named(objects: Iterable[Object], problems: list[Problem]) -> list[Object]:
    """Return the objects that have a name, each once; one that is there twice word for word is no problem."""
    found: dict[tuple[str, str, str, str], Object] = {}
    for obj in objects:
        metadata = _metadata(obj)
        name = metadata.get("name")
        if not isinstance(name, str) or not name:
            problems.append(Problem(f"{obj['kind']}#/metadata/name", "", "the object has no name", "set metadata.name"))
            continue
        key = (group_of(obj), obj["kind"], str(metadata.get("namespace") or ""), name)
        if found.get(key) == obj:
            continue
        if key in found:
            text = "is written twice, not the same; the first one counts"
            problems.append(Problem(f"{label(obj)}#/metadata/name", name, text, "remove one of them"))
            continue
        found[key] = obj
    return list(found.values())


def label(obj: Mapping[str, Any]) -> str:
    """Return ``Kind namespace/name`` of an object."""
    metadata = _metadata(obj)
    namespace = metadata.get("namespace")
    return f"{obj['kind']} {namespace}/{metadata.get('name')}" if namespace else f"{obj['kind']} {metadata.get('name')}"


def group_of(obj: Mapping[str, Any]) -> str:
    """Return the API group of an object, without the version."""
    return str(obj.get("apiVersion") or "").rpartition("/")[0]


def _misspelt(obj: Object) -> Iterator[Problem]:
    """Yield an error where the kind is nearly that of a policy object of its group."""
    group, kind = group_of(obj), str(obj.get("kind"))
    for close in get_close_matches(kind, [known.kind for known in RESOURCES if known.group == group], 1, 0.8):
        where = f"{kind} {_metadata(obj).get('name')}#/kind"
        yield Problem(where, kind, "is not a kind of policy object", f"did you mean {close!r}?")


def in_namespace(obj: Object) -> Object:
    """Return an object of a namespaced kind in the namespace that kubectl would put it into."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or isinstance(metadata.get("namespace"), str):
        return obj
    return {**obj, "metadata": {**metadata, "namespace": "default"}}


def _metadata(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = obj.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
