"""The pod sets of a TrainJob: what its (Cluster)TrainingRuntime's JobSet template becomes with the job's own sizes.

Kubeflow Trainer renders a JobSet from the runtime; the job overrides the number of nodes and each node's resources.
Labels and node selectors reach its pods through an entry of our own in ``spec.runtimePatches``, keyed by manager. The
entries of others may bring labels too, those of a PodGroup among them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from webhook.core.notation.problem import Unreadable
from webhook.jobs.kinds.kind import Factor, Layout, PodSetSource
from webhook.jobs.pod_sets.sites import JsonPath, PodSetSite, Scaffold, from_source, read_count
from webhook.jobs.pricing.context import ReadContext
from webhook.untyped import paths
from webhook.untyped.paths import parse

MANAGER: Final = "tutti.dev/manager"
_ANCESTOR: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
_PATCHES: Final = parse("spec.runtimePatches")
_JOBS: Final = parse("trainingRuntimeSpec.template.spec.replicatedJobs")
_TEMPLATE: Final = parse("template.spec.template")
_RUNTIME: Final = PodSetSource(
    layout=Layout.LIST,
    items=parse("spec.template.spec.replicatedJobs"),
    name="name",
    template=parse("template.spec.template"),
    factors=(
        Factor(parse("replicas")),
        Factor(parse("template.spec.parallelism"), at_most=(parse("template.spec.completions"),)),
    ),
)


def pod_sets(obj: Mapping[str, Any], context: ReadContext, _sites: list[PodSetSite]) -> list[PodSetSite]:
    """Return the pod sets. Raises Unreadable when the runtime is unknown or cannot be read."""
    runtime = runtime_of(obj, context)
    found, jobs = list(from_source(_RUNTIME, runtime)), paths.find(runtime, _RUNTIME.items)
    nodes, entry = _nodes(obj, runtime), _our_entry(obj, [str(job.get("name")) for job in jobs])
    stated, sites = _patched_labels(obj), []
    for index, (site, job) in enumerate(zip(found, jobs, strict=True)):
        trains = _is_trainer(job)
        spec = _with_node_resources(site.spec, obj) if trains else site.spec
        count = nodes if trains and site.name != "launcher" else site.count
        labels = {**site.labels, **stated.get(str(job.get("name")), {})}
        spec = _with_scheduling(spec, obj, str(job.get("name")))
        sites.append(_patchable(replace(site, spec=spec, count=count, owner_labels=labels), entry, index))
    return sites


def stated_labels(obj: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the pod labels that the object itself brings, whatever its runtime says."""
    return list(_patched_labels(obj).values())


def _patched_labels(obj: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the pod labels that ``spec.runtimePatches`` brings, by the name of the replicated job."""
    found: dict[str, dict[str, Any]] = {}
    for _, job in _patched_jobs(obj):
        labels = paths.find_mapping(job, (*_TEMPLATE, "metadata", "labels"))
        found.setdefault(str(paths.find(job, ("name",))), {}).update(labels)
    return found


def _patched_jobs(obj: Mapping[str, Any]) -> Iterator[tuple[object, Any]]:
    """Yield manager and replicated job of all that ``spec.runtimePatches`` changes."""
    patches = paths.find(obj, _PATCHES)
    for patch in patches if isinstance(patches, list) else ():
        jobs = paths.find(patch, _JOBS)
        for job in jobs if isinstance(jobs, list) else ():
            yield paths.find(patch, ("manager",)), job


def _with_scheduling(spec: Mapping[str, Any], obj: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the pod spec with what others' patches say about nodes: selectors add up, the rest is replaced."""
    changed = dict(spec)
    for manager, job in _patched_jobs(obj):
        if manager == MANAGER or paths.find(job, ("name",)) != name:
            continue
        patched = paths.find_mapping(job, (*_TEMPLATE, "spec"))
        selectors = [s.get("nodeSelector") for s in (changed, patched)]
        changed["nodeSelector"] = {key: value for s in selectors if isinstance(s, dict) for key, value in s.items()}
        changed |= {field: patched[field] for field in ("affinity", "tolerations") if patched.get(field) is not None}
    return changed


def runtime_of(obj: Mapping[str, Any], context: ReadContext) -> Mapping[str, Any]:
    """Return the (Cluster)TrainingRuntime that a TrainJob names. Raises Unreadable where there is none."""
    reference = paths.find_mapping(obj, ("spec", "runtimeRef"))
    name, kind = reference.get("name"), reference.get("kind") or "ClusterTrainingRuntime"
    namespace = "" if kind == "ClusterTrainingRuntime" else paths.find(obj, ("metadata", "namespace"))
    runtime = context.training_runtimes.get((str(namespace), str(name)))
    if runtime is None:
        raise Unreadable("spec.runtimeRef", f"{kind} {name!r:.80}", "does not exist", "create it or name another")
    return runtime


def _nodes(obj: Mapping[str, Any], runtime: Mapping[str, Any]) -> int:
    stated = read_count(obj, ("spec", "trainer", "numNodes"))
    nodes = read_count(runtime, ("spec", "mlPolicy", "numNodes")) if stated is None else stated
    nodes = 1 if nodes is None else nodes
    launcher_works = paths.find(runtime, ("spec", "mlPolicy", "mpi", "runLauncherAsNode")) is True
    return max(nodes - 1, 0) if launcher_works else nodes


def _is_trainer(job: Mapping[str, Any]) -> bool:
    labels = paths.find_mapping(job, ("template", "metadata", "labels"))
    return labels.get(_ANCESTOR) == "trainer" or job.get("name") == "node"


@dataclass(frozen=True, slots=True)
class _Entry:
    """Our entry of ``spec.runtimePatches``, whether it stands or is yet to be made."""

    place: JsonPath
    found: Any
    scaffold: tuple[Scaffold, ...]


def _our_entry(obj: Mapping[str, Any], names: list[str]) -> _Entry:
    patches = paths.find(obj, _PATCHES)
    listed = isinstance(patches, list)
    entries = patches if isinstance(patches, list) else []
    index = next((i for i, item in enumerate(entries) if paths.find(item, ("manager",)) == MANAGER), len(entries))
    stands = index < len(entries)
    jobs = [{"name": name, **paths.nest(_TEMPLATE, {"spec": {}})} for name in names]
    value = {"manager": MANAGER, **paths.nest(_JOBS, jobs)}
    place: JsonPath = (*_PATCHES, index)
    scaffold = (Scaffold(_PATCHES, [], listed), Scaffold(place, value, stands))
    return _Entry(place, entries[index] if stands else value, scaffold)


def _patchable(site: PodSetSite, entry: _Entry, index: int) -> PodSetSite:
    """Return ``site`` with the places of our entry instead of the runtime's, which belongs to everybody."""
    jobs = paths.find(entry.found, _JOBS)
    job = jobs[index] if isinstance(jobs, list) and index < len(jobs) else None
    template = paths.find_mapping(job, _TEMPLATE)
    metadata = template.get("metadata")
    place: JsonPath = (*entry.place, *_JOBS, index, *_TEMPLATE)
    own = site.spec.get("tolerations")
    return replace(
        site,
        metadata=metadata if isinstance(metadata, dict) else None,
        scheduling=paths.find_mapping(template, ("spec",)),
        scaffold=entry.scaffold,
        template_path=None,
        metadata_path=(*place, "metadata"),
        spec_path=(*place, "spec"),
        # A patch replaces the whole list.
        tolerations_along=tuple(own) if isinstance(own, list) else (),
        min_count=None,
        count_path=None,
        count_written=None,
    )


def _with_node_resources(spec: Mapping[str, Any], obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the pod spec with the job's ``resourcesPerNode`` on the container that trains."""
    resources = paths.find(obj, ("spec", "trainer", "resourcesPerNode"))
    containers = spec.get("containers")
    if not resources or not isinstance(containers, list):
        return spec
    trained = [{**c, "resources": resources} if paths.find(c, ("name",)) == "node" else c for c in containers]
    return {**spec, "containers": trained}
