"""Which gang a pod of a file belongs to, where no label of Tutti's says so.

The pods of a job that a Workload of Kueue's stands for hold what is reserved for that Workload, and the pods of a gang
go when it is stopped. Kueue's own label and annotation tell, or the controllers above the pod, as far as they are among
the files.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook.jobs.plain_pods import group_names
from webhook.jobs.reading import gating
from webhook.laboratory.dry_run.files.objects import Object
from webhook.untyped import paths

Key = tuple[str, str, str]
"""Kind, namespace and name."""
_MOST_OWNERS: Final = 10
_WORKLOAD: Final = "kueue.x-k8s.io/workload"
_POD_SET: Final = "kueue.x-k8s.io/podset"


def key_of(obj: Object) -> Key:
    """Return what identifies an object of a namespace among files."""
    return obj["kind"], str(obj["metadata"].get("namespace")), obj["metadata"]["name"]


def owned_by(obj: Object) -> Key | None:
    """Return the controller that an object names, in its own namespace."""
    owner = gating.owner_of(obj)
    return None if owner is None else (owner.kind.partition(".")[0], str(obj["metadata"].get("namespace")), owner.name)


@dataclass(frozen=True, slots=True)
class Belonging:
    """Objects of files by what identifies them."""

    objects: Mapping[Key, Object] = field(default_factory=dict)
    """Everything that may stand above a pod."""
    workloads: Mapping[Key, Object] = field(default_factory=dict)
    """Workloads by themselves, and by the jobs that they stand for."""

    def workload_of(self, pod: Object) -> tuple[str, str] | None:
        """Return uid and pod set of the Workload whose pods ``pod`` is one of."""
        found = next((self.workloads[key] for key in self._claims(pod) if key in self.workloads), None)
        return None if found is None else (found["metadata"]["uid"], _pod_set(pod, found))

    def owners(self, pod: Object) -> Iterator[str]:
        """Yield the uids of the objects above ``pod``, nearest first."""
        for key in self._chain(pod):
            if key in self.objects:
                yield str(self.objects[key]["metadata"].get("uid"))

    def _claims(self, pod: Object) -> Iterator[Key]:
        namespace = str(pod["metadata"].get("namespace"))
        for stated in (paths.find(pod, ("metadata", "annotations", _WORKLOAD)), group_names.kueue_group_named(pod)):
            if isinstance(stated, str):
                yield "Workload", namespace, stated
        yield key_of(pod)
        yield from self._chain(pod)

    def _chain(self, pod: Object) -> Iterator[Key]:
        at: Object | None = pod
        for _ in range(_MOST_OWNERS):
            above = None if at is None else owned_by(at)
            if above is None:
                return
            yield above
            at = self.objects.get(above)


def belonging(objects: Iterable[Object]) -> Belonging:
    """Return how pods find their gangs among ``objects``."""
    known = {key_of(obj): obj for obj in objects}
    workloads = {key: obj for key, obj in known.items() if key[0] == "Workload"}
    owners = {owner: obj for obj in workloads.values() if (owner := owned_by(obj)) is not None}
    return Belonging(known, {**workloads, **owners})


def _pod_set(pod: Object, workload: Object) -> str:
    """Return the pod set that the pod's labels name, by Kueue's label or by what operators write; else the first."""
    listed = paths.find_each(workload, ("spec", "podSets", paths.EACH))
    names = [str(item.get("name") or "main") for item in listed if isinstance(item, dict)]
    labels = paths.find_mapping(pod, ("metadata", "labels"))
    stated = [labels.get(_POD_SET), *labels.values()]
    return next((name for name in stated if name in names), names[0] if names else "")
