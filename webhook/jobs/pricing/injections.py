"""Containers that others add to pods when these are created (Istio, Vault, a VPA's agent): no template shows them.

An operator names them in configuration, with what they ask and which pods get them; they are priced with those pods,
and so reserved, charged and let pass. A container that nobody named makes its pod ask for more than its place holds.
"""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final

from pydantic import Field

from webhook.untyped.operator_files import Amounts, Section
from webhook.untyped.values import mappings

_LISTS: Final = ("containers", "initContainers")


class AddedContainer(Section):
    """One container that an injector adds to the pods that it picks by their labels or their namespace's: to all where
    nothing says which.
    """

    name: Annotated[str, Field(min_length=1)]
    requests: Amounts = Field(default={})
    limits: Amounts = Field(default={})
    pod_labels: dict[str, str] = Field(default={}, alias="podLabels")
    namespace_labels: dict[str, str] = Field(default={}, alias="namespaceLabels")
    images: tuple[str, ...] = ()
    """Patterns of its image: a template that has such a container, or one of its name, does not get another."""
    ends: bool = False
    """It is an init container that ends before the others start."""

    def concerns(
        self, spec: Mapping[str, Any], pod_labels: Mapping[str, Any], namespace_labels: Mapping[str, str]
    ) -> bool:
        """Return whether a pod of a template gets it."""
        picked = _has(pod_labels, self.pod_labels) and _has(namespace_labels, self.namespace_labels)
        return picked and not any(self._is(container) for container in containers_of(spec))

    def container(self) -> Mapping[str, Any]:
        """Return it as it is priced: what runs together with the others is a sidecar."""
        resources = {"requests": dict(self.requests), "limits": dict(self.limits)}
        made: dict[str, Any] = {"name": self.name, "resources": resources}
        return made if self.ends else made | {"restartPolicy": "Always"}

    def _is(self, container: Mapping[str, Any]) -> bool:
        image = str(container.get("image") or "")
        return container.get("name") == self.name or any(fnmatchcase(image, pattern) for pattern in self.images)


def containers_of(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the containers of a pod spec, init containers included; what is none is left out."""
    for key in _LISTS:
        yield from mappings(spec.get(key))


def _has(labels: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())
