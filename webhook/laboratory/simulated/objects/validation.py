"""What the API server refuses in an object itself: names, sizes, labels, and fields that may not change.

Only rules that Tutti or its users can run into are here, worded as Kubernetes 1.36 words them; the rules about Jobs
are those of ``pkg/apis/batch/validation`` and ``pkg/registry/batch/job``, the one about JobSets is their webhook's.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final

import orjson

from webhook.laboratory.simulated.objects.conditions import is_true
from webhook.laboratory.simulated.objects.resources import Resource
from webhook.laboratory.simulated.requests.refusals import Json, invalid

MAX_ANNOTATION_BYTES: Final = 256 * 1024
MAX_CONFIGMAP_BYTES: Final = 1024 * 1024

_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([a-z0-9.\-]{0,251}[a-z0-9])?")
_LABEL_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._\-]{0,61}[A-Za-z0-9])?")
_LABEL_LENGTH: Final = 63
_LABEL_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_POD_RULE: Final = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)"
)
_IMMUTABLE: Final = "field is immutable"
CLEARS_START_TIME: Final = 36
"""Since this release of Kubernetes a stopped Job's template may change though it ran before, its controller clears its
start time (gate ``MutableSchedulingDirectivesForSuspendedJobs``), and what its containers ask may change too."""
_NEVER_DISABLED: Final = ("Failed", "Complete", "FailureTarget", "SuccessCriteriaMet")
"""Conditions of a Job."""
_MUTABLE_POD_FIELDS: Final = (
    "activeDeadlineSeconds",
    "terminationGracePeriodSeconds",
    "tolerations",
    "schedulingGates",
)


@lru_cache(maxsize=8192)
def _bad_label(key: str, value: object) -> str | None:
    prefix, slash, name = key.rpartition("/")
    if not _LABEL_NAME.fullmatch(name) or (slash and not _SUBDOMAIN.fullmatch(prefix)):
        return f"Invalid value: \"{key}\": name part must consist of alphanumeric characters, '-', '_' or '.'"
    if not isinstance(value, str):
        return f"Invalid value: {value!r}: must be a string"
    if value and not _LABEL_NAME.fullmatch(value):
        if len(value) > _LABEL_LENGTH:
            return f'Invalid value: "{value}": must be no more than {_LABEL_LENGTH} bytes'
        return f'Invalid value: "{value}": {_LABEL_RULE}'
    return None


def metadata(resource: Resource, item: Json) -> None:
    """Refuse a name, label or annotation that cannot be. Raises Refused (422)."""
    meta = item["metadata"]
    name = meta.get("name", "")
    if not _SUBDOMAIN.fullmatch(name):
        why = f'Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of lower case alphanumerics'
        raise invalid(resource, name, "metadata.name", why)
    for path, labels in _label_maps(item):
        for key, value in labels.items():
            bad = _bad_label(key, value)
            if bad is not None:
                raise invalid(resource, name, path, bad)
    annotations = meta.get("annotations") or {}
    if sum(len(key) + len(value) for key, value in annotations.items()) > MAX_ANNOTATION_BYTES:
        why = f"Too long: may not be more than {MAX_ANNOTATION_BYTES} bytes"
        raise invalid(resource, name, "metadata.annotations", why, "FieldValueTooLong")


def _label_maps(item: Json) -> Iterable[tuple[str, dict[str, Any]]]:
    labels = item["metadata"].get("labels")
    if labels:
        yield "metadata.labels", labels
    template = (item.get("spec") or {}).get("template")
    if isinstance(template, dict) and (template.get("metadata") or {}).get("labels"):
        yield "spec.template.labels", template["metadata"]["labels"]


def create(resource: Resource, item: Json) -> None:
    """Refuse a new object that does not validate. Raises Refused (422)."""
    metadata(resource, item)
    check = _CREATE.get((resource.group, resource.plural))
    if check is not None:
        check(resource, item)


def update(resource: Resource, old: Json, new: Json, release: int) -> None:
    """Refuse a change of the main resource that ``release`` does not allow. Raises Refused (422)."""
    metadata(resource, new)
    check = _UPDATE.get((resource.group, resource.plural))
    if check is not None:
        check(resource, old, new)
    if (resource.group, resource.plural) == ("batch", "jobs"):
        _job_template_update(resource, old, new, release)


def update_status(resource: Resource, old: Json, new: Json) -> None:
    """Refuse a change of the status that is not allowed. Raises Refused (422)."""
    if (resource.group, resource.plural) != ("batch", "jobs"):
        return
    name, before, after = new["metadata"]["name"], old.get("status") or {}, new.get("status") or {}
    _job_counts(resource, new, before, after)
    for kind in _NEVER_DISABLED:
        if is_true(before, kind) and not is_true(after, kind):
            why = f"Invalid value: cannot disable the {kind}=True condition"
            raise invalid(resource, name, "status.conditions", why)
    start, end = after.get("startTime"), after.get("completionTime")
    if start and end and end < start:
        why = f'Invalid value: "{end}": must be equal to or after `startTime`'
        raise invalid(resource, name, "status.completionTime", why)
    if new["spec"].get("suspend") or not before.get("startTime") or before["startTime"] == start:
        return
    why, cause = "Required value: startTime cannot be removed for unsuspended job", "FieldValueRequired"
    if start:
        why, cause = "Invalid value: startTime cannot be updated for unsuspended job", "FieldValueInvalid"
    raise invalid(resource, name, "status.startTime", why, cause)


def _job_counts(resource: Resource, job: Json, before: Json, after: Json) -> None:
    name, spec = job["metadata"]["name"], job["spec"]
    shrinks = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    for key in ("failed",) if shrinks else ("failed", "succeeded"):
        if after.get(key, 0) < before.get(key, 0):
            why = f"Invalid value: {after.get(key, 0)}: cannot decrease the {key} counter"
            raise invalid(resource, name, f"status.{key}", why)
    indexes, completions = after.get("completedIndexes"), spec.get("completions")
    if indexes and indexes != before.get("completedIndexes") and completions is not None:
        last = indexes.replace("-", ",").split(",")[-1]
        if int(last) >= completions:
            why = f'Invalid value: "{indexes}": error parsing completedIndexes: too large index: "{last}"'
            raise invalid(resource, name, "status.completedIndexes", why)


def _configmap(resource: Resource, item: Json) -> None:
    size = sum(len(key) + len(value.encode()) for key, value in (item.get("data") or {}).items())
    size += sum(len(key) + len(value) * 3 // 4 for key, value in (item.get("binaryData") or {}).items())
    if size > MAX_CONFIGMAP_BYTES:
        why = f"Too long: may not be more than {MAX_CONFIGMAP_BYTES} bytes"
        raise invalid(resource, item["metadata"]["name"], "[]", why, "FieldValueTooLong")


def _pod(resource: Resource, item: Json) -> None:
    if not item["spec"].get("containers"):
        raise invalid(resource, item["metadata"]["name"], "spec.containers", "Required value", "FieldValueRequired")
    if item["spec"].get("nodeName") and item["spec"].get("schedulingGates"):
        why = "Forbidden: cannot be set until all schedulingGates have been cleared"
        raise invalid(resource, item["metadata"]["name"], "spec.nodeName", why, "FieldValueForbidden")


def _job(resource: Resource, item: Json) -> None:
    name, spec = item["metadata"]["name"], item["spec"]
    for field in ("parallelism", "completions", "backoffLimit"):
        value = spec.get(field)
        if value is not None and (not isinstance(value, int) or value < 0):
            raise invalid(
                resource, name, f"spec.{field}", f"Invalid value: {value}: must be greater than or equal to 0"
            )
    template = spec["template"]["spec"]
    if template.get("restartPolicy") not in ("Never", "OnFailure"):
        why = 'Required value: valid values: "OnFailure", "Never"'
        raise invalid(resource, name, "spec.template.spec.restartPolicy", why, "FieldValueRequired")
    if not template.get("containers"):
        raise invalid(resource, name, "spec.template.spec.containers", "Required value", "FieldValueRequired")
    if spec["completionMode"] == "Indexed" and spec.get("completions") is None:
        why = "Required value: when completion mode is Indexed"
        raise invalid(resource, name, "spec.completions", why, "FieldValueRequired")


def _job_update(resource: Resource, old: Json, new: Json) -> None:
    _job(resource, new)
    name, before, after = new["metadata"]["name"], old["spec"], new["spec"]
    for field in (
        "selector",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ):
        if before.get(field) != after.get(field):
            raise invalid(resource, name, f"spec.{field}", f"Invalid value: {_shown(after.get(field))}: {_IMMUTABLE}")
    if before.get("completions") != after.get("completions"):
        elastic = after["completionMode"] == "Indexed" and after.get("completions") == after["parallelism"]
        if not elastic:
            why = f"Invalid value: {after.get('completions')}: {_IMMUTABLE}"
            raise invalid(resource, name, "spec.completions", why)


def _job_template_update(resource: Resource, old: Json, new: Json, release: int) -> None:
    name, before, after = new["metadata"]["name"], old["spec"], new["spec"]
    if before["template"] == after["template"]:
        return
    status = old.get("status") or {}
    stopped = not status.get("startTime") or (release >= CLEARS_START_TIME and is_true(status, "Suspended"))
    frozen = f"Invalid value: {_shown(after['template'])}: {_IMMUTABLE}"
    if not (before.get("suspend") and stopped and not status.get("active")):
        raise invalid(resource, name, "spec.template", frozen)
    if _fixed(before, release) != _fixed(after, release):
        raise invalid(resource, name, "spec.template.spec" if release >= CLEARS_START_TIME else "spec.template", frozen)


def _jobset_update(resource: Resource, old: Json, new: Json) -> None:
    if old["spec"].get("managedBy") != new["spec"].get("managedBy"):
        raise invalid(resource, new["metadata"]["name"], "spec.managedBy", f"Invalid value: {_IMMUTABLE}")
    before, after = old["spec"].get("replicatedJobs") or [], new["spec"].get("replicatedJobs") or []
    if before == after:
        return
    if old["spec"].get("suspend") or new["spec"].get("suspend"):
        before, after = [_munged(job) for job in before], [_munged(job) for job in after]
    if before != after:
        raise invalid(resource, new["metadata"]["name"], "spec.replicatedJobs", f"Invalid value: {_IMMUTABLE}")


def _munged(replicated: Json) -> Json:
    spec = replicated["template"]["spec"]
    template = _without_scheduling(spec["template"], resources=False)
    return {**replicated, "template": {**replicated["template"], "spec": {**spec, "template": template}}}


def _fixed(spec: Json, release: int) -> Json:
    fixed = _without_scheduling(spec["template"], resources=True)
    if release < CLEARS_START_TIME:
        fixed["spec"] |= {kind: spec["template"]["spec"].get(kind) for kind in ("containers", "initContainers")}
    return fixed


def _without_scheduling(template: Json, *, resources: bool) -> Json:
    """Return a pod template without the fields that may change while its job is stopped."""
    meta = {k: v for k, v in (template.get("metadata") or {}).items() if k not in ("labels", "annotations")}
    spec = {k: v for k, v in template["spec"].items() if k not in ("nodeSelector", "tolerations", "schedulingGates")}
    if resources:
        affinity = {k: v for k, v in (spec.pop("affinity", None) or {}).items() if k != "nodeAffinity"}
        spec["affinity"] = affinity
        for kind in ("containers", "initContainers"):
            spec[kind] = [{**c, "resources": None} for c in spec.get(kind) or ()]
    return {"metadata": meta, "spec": spec}


def _pod_update(resource: Resource, old: Json, new: Json) -> None:
    before, after = old["spec"], new["spec"]
    if before == after:
        return
    name = new["metadata"]["name"]
    gates_before = [gate["name"] for gate in before.get("schedulingGates") or ()]
    gates_after = [gate["name"] for gate in after.get("schedulingGates") or ()]
    if any(gate not in gates_before for gate in gates_after):
        why = "Forbidden: only deletion is allowed, but found new scheduling gate"
        raise invalid(resource, name, "spec.schedulingGates", why, "FieldValueForbidden")
    kept = before.get("tolerations") or []
    if any(toleration not in (after.get("tolerations") or []) for toleration in kept):
        why = "Forbidden: existing toleration can not be modified except its tolerationSeconds"
        raise invalid(resource, name, "spec.tolerations", why, "FieldValueForbidden")
    mutable = (*_MUTABLE_POD_FIELDS, *(("nodeSelector", "affinity") if gates_before else ()))
    if _frozen_pod(before, mutable) != _frozen_pod(after, mutable):
        why = f"Forbidden: pod updates may not change fields other than {_POD_RULE}"
        raise invalid(resource, name, "spec", why, "FieldValueForbidden")


def _frozen_pod(spec: Json, mutable: tuple[str, ...]) -> Json:
    frozen = {key: value for key, value in spec.items() if key not in mutable}
    for kind in ("containers", "initContainers"):
        if kind in frozen:
            frozen[kind] = [{**container, "image": None} for container in frozen[kind]]
    return frozen


def _shown(value: Any) -> str:
    return orjson.dumps(value)[:256].decode(errors="replace")


_CREATE: Final[dict[tuple[str, str], Callable[[Resource, Json], None]]] = {
    ("", "configmaps"): _configmap,
    ("", "pods"): _pod,
    ("batch", "jobs"): _job,
}
_UPDATE: Final[dict[tuple[str, str], Callable[[Resource, Json, Json], None]]] = {
    ("", "configmaps"): lambda resource, old, new: _configmap(resource, new),
    ("", "pods"): _pod_update,
    ("batch", "jobs"): _job_update,
    ("jobset.x-k8s.io", "jobsets"): _jobset_update,
}
