"""Finds what the pods of a job refer to by name, wherever in whatever kind of job they stand. Pure, and total.

It goes by the shapes of a pod spec and of Spark's own fields, not by where they stand, so kinds that wrap others need
no entry of their own. What cannot be a name is no reference: no pod with it is ever made.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from webhook.dialects.field import is_subdomain
from webhook.fleet.jobs.dependencies.dependency import CONFIG_MAP, OWN_EVERYWHERE, SECRET, SERVICE_ACCOUNT, Dependency
from webhook.untyped.values import items, mapping

REFERENCES_MAX: Final = 1000
"""That are looked for in one job; many more than are brought."""
_Found = tuple[object, bool]
"""What stands where a name is expected, and whether the pod starts without it."""


def references(spec: object) -> dict[Dependency, bool]:
    """Return what a job's spec refers to, as it stands there, each with whether its pods start without it."""
    found: dict[Dependency, bool] = {}
    left = [spec]
    while left and len(found) < REFERENCES_MAX:
        node = left.pop()
        if isinstance(node, list):
            left.extend(reversed(node))
        elif isinstance(node, dict):
            for key, value in node.items():
                if key in _SHAPES:
                    _note(found, key, value)
            left.extend(value for key, value in reversed(node.items()) if key not in _TEXTS)
    return found


def _note(found: dict[Dependency, bool], key: str, value: object) -> None:
    kind, read = _SHAPES[key]
    for name, optional in read(value):
        if isinstance(name, str) and (kind, name) not in OWN_EVERYWHERE and is_subdomain(name):
            dependency = Dependency(kind, name)
            found[dependency] = optional and found.get(dependency, True)


def _itself(value: object) -> Iterator[_Found]:
    yield value, False


def _by(field: str) -> Callable[[object], Iterator[_Found]]:
    def read(value: object) -> Iterator[_Found]:
        source = mapping(value)
        yield source.get(field), source.get("optional") is True

    return read


def _secret(value: object) -> Iterator[_Found]:
    """A volume names it one way, a source of a projected volume the other."""
    source = mapping(value)
    yield source.get("secretName", source.get("name")), source.get("optional") is True


def _each(value: object) -> Iterator[_Found]:
    """Each has a name, or is one, as in a SparkApplication."""
    for each in items(value):
        yield each if isinstance(each, str) else mapping(each).get("name"), False


def _of_each(value: object) -> Iterator[_Found]:
    """Each environment variable has a Secret and its key, as in a SparkApplication."""
    for each in mapping(value).values():
        yield mapping(each).get("name"), False


_TEXTS: Final = frozenset({"labels", "annotations", "matchLabels", "nodeSelector", "sparkConf", "hadoopConf"})
"""Maps of texts with keys of anybody's choice."""
_SHAPES: Final[Mapping[str, tuple[str, Callable[[Any], Iterator[_Found]]]]] = {
    "configMap": (CONFIG_MAP, _by("name")),
    "configMapRef": (CONFIG_MAP, _by("name")),
    "configMapKeyRef": (CONFIG_MAP, _by("name")),
    "configMaps": (CONFIG_MAP, _each),
    "sparkConfigMap": (CONFIG_MAP, _itself),
    "hadoopConfigMap": (CONFIG_MAP, _itself),
    "secret": (SECRET, _secret),
    "secretRef": (SECRET, _by("name")),
    "secretKeyRef": (SECRET, _by("name")),
    "nodePublishSecretRef": (SECRET, _by("name")),
    "azureFile": (SECRET, _by("secretName")),
    "secrets": (SECRET, _each),
    "envSecretKeyRefs": (SECRET, _of_each),
    "imagePullSecrets": (SECRET, _each),
    "serviceAccountName": (SERVICE_ACCOUNT, _itself),
    "serviceAccount": (SERVICE_ACCOUNT, _itself),
}
"""By the key under which it stands, what is named there and how."""
