"""Driver and executors of a SparkApplication, priced as the Spark operator and Spark on Kubernetes make their pods.

CPU is ``coreRequest`` or ``cores``; memory is ``memory`` plus ``memoryOverhead``, which by default is a factor of the
memory (0.1 for JVM languages, 0.4 for others) and at least 384 MiB; both are requested and limited alike, unless
``memoryLimit`` says more. Spark counts memory in whole MiB, rounded down at each step. Settings in
``sparkConf`` that would change any of it are refused by name: they would bypass the fields that are counted.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from webhook.core.notation.problem import Unreadable
from webhook.jobs.pod_sets.sites import PodSetSite, read_count
from webhook.jobs.pricing.context import ReadContext
from webhook.untyped import paths

_OVERHEAD_LEAST_MIB: Final = 384
_FACTORS: Final = {"Java": Fraction(1, 10), "Scala": Fraction(1, 10), "Python": Fraction(4, 10), "R": Fraction(4, 10)}
_SIZE: Final = re.compile(r"(?i)(\d{1,12})(b|[kmgtp]b?)?", re.ASCII)
_UNITS: Final[Mapping[str, int]] = {letter: 1024**power for power, letter in enumerate("bkmgtp")}
_MIB: Final = 1024**2
_SIZING: Final = re.compile(
    r"spark\.(driver|executor)\.(cores|memory|memoryOverhead|memoryOverheadFactor|instances|resource\..*|pyspark\.memory)"
    r"|spark\.kubernetes\.(driver|executor)\.((request|limit)\.cores|podTemplateFile)"
    r"|spark\.(dynamicAllocation\.enabled|memory\.offHeap\..*|kubernetes\.memoryOverheadFactor)"
    r"|spark\.executor\.pyspark\.memory"
)


def pod_sets(obj: Mapping[str, Any], _context: ReadContext, _sites: list[PodSetSite]) -> list[PodSetSite]:
    """Return driver and executors. Raises Unreadable for what cannot be sized in advance."""
    spec = paths.find_mapping(obj, ("spec",))
    if spec.get("mode") not in (None, "cluster"):
        raise Unreadable("spec.mode", spec["mode"], "its driver is no pod of the gang", "write cluster")
    if paths.find(spec, ("dynamicAllocation", "enabled")) is True:
        raise Unreadable(
            "spec.dynamicAllocation.enabled", "true", "executors would outgrow what is reserved", "write false"
        )
    if spec.get("nodeSelector"):
        fix = "write it in spec.driver and spec.executor, which take a flavor's labels as well"
        raise Unreadable("spec.nodeSelector", "", "the operator refuses it together with theirs", fix)
    for name in paths.find_mapping(spec, ("sparkConf",)):
        if _SIZING.fullmatch(name):
            raise Unreadable(f"spec.sparkConf.{name}", "", "sizes pods past what is counted", "write the field instead")
    instances = read_count(spec, ("executor", "instances"), ("spec",))
    if instances is None:
        raise Unreadable("spec.executor.instances", "", "is missing", "write the number of executors")
    return [_site(spec, "driver", 1), _site(spec, "executor", instances)]


def _site(spec: Mapping[str, Any], role: str, count: int) -> PodSetSite:
    described = spec.get(role)
    if not isinstance(described, dict):
        raise Unreadable(f"spec.{role}", "", "is missing", "write cores and memory")
    template = paths.find_mapping(described, ("template", "spec"))
    if template.get("containers") or template.get("resources"):
        raise Unreadable(f"spec.{role}.template.spec", "", "may resize the pod", "write cores, memory, sidecars")
    pod: dict[str, Any] = {
        "containers": [{"resources": _resources(spec, described, role)}, *_containers(described, "sidecars", role)],
        "initContainers": _containers(described, "initContainers", role),
    }
    batch = paths.find(spec, ("batchSchedulerOptions", "priorityClassName"))
    pod["priorityClassName"] = described.get("priorityClassName") or batch
    for name in ("nodeSelector", "tolerations", "affinity"):
        if described.get(name) is not None:
            pod[name] = described[name]
    return PodSetSite(
        name=role,
        count=count,
        metadata=described,
        spec=pod,
        scheduling=pod,
        metadata_path=("spec", role),
        spec_path=("spec", role),
    )


def _containers(described: Mapping[str, Any], field: str, role: str) -> list[Any]:
    containers = described.get(field) or []
    if not isinstance(containers, list):
        raise Unreadable(f"spec.{role}.{field}", "", "is not a list", "write a list of containers")
    return containers


def _resources(spec: Mapping[str, Any], described: Mapping[str, Any], role: str) -> dict[str, Any]:
    memory = _mib(described.get("memory") or "1g", f"spec.{role}.memory")
    overhead = described.get("memoryOverhead")
    if overhead is None:
        memory += max(int(memory * _factor(spec)), _OVERHEAD_LEAST_MIB)
    else:
        memory += _mib(overhead, f"spec.{role}.memoryOverhead")
    cores = described.get("coreRequest") or described.get("cores") or 1
    limits: dict[str, Any] = {"memory": f"{memory}Mi"}
    if described.get("memoryLimit"):
        limits["memory"] = f"{_mib(described['memoryLimit'], f'spec.{role}.memoryLimit')}Mi"
    if described.get("coreLimit"):
        limits["cpu"] = described["coreLimit"]
    gpu = paths.find_mapping(described, ("gpu",))
    if gpu.get("name"):
        limits[str(gpu["name"])] = gpu.get("quantity", 0)
    return {"requests": {"cpu": cores, "memory": f"{memory}Mi"}, "limits": limits}


def _factor(spec: Mapping[str, Any]) -> Fraction:
    stated = spec.get("memoryOverheadFactor")
    if stated is None:
        return _FACTORS.get(str(spec.get("type")), Fraction(4, 10))
    try:
        factor = Fraction(str(stated))
    except (ValueError, ZeroDivisionError):
        factor = Fraction(-1)
    if not 0 <= factor <= 100:
        raise Unreadable("spec.memoryOverheadFactor", stated, "is no factor", "write for example '0.1'")
    return factor


def _mib(text: object, where: str) -> int:
    """Return a JVM memory size in whole MiB: ``4g`` is 4096 of them, and so is a bare ``4096``."""
    match = _SIZE.fullmatch(str(text).strip())
    if match is None:
        raise Unreadable(where, text, "is not a memory size of Spark's", "write for example '4g'")
    return int(match[1]) * _UNITS[(match[2] or "m")[0].lower()] // _MIB
