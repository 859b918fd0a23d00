"""Finds what is asked for: a job's workloads, the queues that one may see, the namespace of the context."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import orjson
import yaml

from webhook.core.notation import names
from webhook.core.notation.problem import Problem
from webhook.dialects.field import is_subdomain
from webhook.errors import ApiError, Forbidden, NotFound, TuttiError, Unavailable, WrongInput, WrongName
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import by_name
from webhook.jobs.kinds.rest_paths import object_path
from webhook.jobs.plain_pods.groups import POD_GROUP
from webhook.jobs.reading.gating import gang_owner
from webhook.kube.api import Api
from webhook.kube.finding import find
from webhook.visibility.http.group import JOB_UID_LABEL, ROOT, Document

_IN_POD: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_NAMES_HAVE: Final = "names have lower-case letters, digits, '-' and '.' alone"


def namespace_of(given: str | None, kubeconfig: Path | None) -> str:
    """Return the namespace that was given, else that of the current context. Raises WrongInput for what is no name."""
    if given and not is_subdomain(given):
        raise WrongInput((Problem("--namespace", given, "is no name of a namespace", _NAMES_HAVE),))
    return given or _default_namespace(kubeconfig)


def _default_namespace(kubeconfig: Path | None) -> str:
    """Return the namespace of the current context, as kubectl takes it."""
    paths = str(kubeconfig or os.environ.get("KUBECONFIG") or "")
    if not paths and _IN_POD.exists():
        return _IN_POD.read_text().strip()
    contexts: dict[str, Any] = {}
    current = ""
    for path in (paths or str(Path.home() / ".kube" / "config")).split(os.pathsep):
        if path and Path(path).is_file():
            config = yaml.safe_load(Path(path).read_text()) or {}
            current = current or config.get("current-context") or ""
            for entry in config.get("contexts") or ():
                contexts.setdefault(entry.get("name"), entry.get("context") or {})
    return str(contexts.get(current, {}).get("namespace") or "default")


async def workloads_of(api: Api, job: str, namespace: str) -> list[Document]:
    """Return the workloads of ``job`` (KIND/NAME); of a pod that of its gang. Raises WrongName when there is none."""
    kind, name = kind_and_name(job)
    documents = await read_api(api, f"{ROOT}/namespaces/{namespace}/workloads")
    if _names("Pod", kind) or kind.lower() == "po":
        found = await _of_pod(api, documents, namespace, name)
    else:
        found = [document for document in documents if _is_of(document, kind, name)]
    if not found:
        raise await _unknown(api, kind, namespace, name)
    return found


def kind_and_name(job: str) -> tuple[str, str]:
    """Return what KIND/NAME names. Raises WrongName."""
    kind, slash, name = job.partition("/")
    if not slash or not kind or not name:
        raise WrongName(f"{job!r} names no job; write KIND/NAME, for example job/train")
    if not is_subdomain(name):
        raise WrongName(f"{job!r}: {name!r} is no name of an object; {_NAMES_HAVE}")
    return kind, name


async def _of_pod(api: Api, documents: Sequence[Document], namespace: str, name: str) -> list[Document]:
    """Return the workload of a pod's gang, by its gang label, or by its owner while the gang is not admitted."""
    try:
        pod = orjson.loads(await api.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}"))["metadata"]
    except NotFound as error:
        raise WrongName(f"there is no pod {name!r} in namespace {namespace}") from error
    uids = {(pod.get("labels") or {}).get(names.GANG_LABEL)}
    uids |= {owner["uid"] for owner in pod.get("ownerReferences") or ()}
    found = [document for document in documents if document["metadata"]["labels"][JOB_UID_LABEL] in uids]
    if not found:
        raise WrongName(f"pod {namespace}/{name} belongs to no gang that Tutti knows")
    return found


async def visible_queues(api: Api, namespace: str) -> list[Document]:
    """Return all queues, or those of ``namespace`` for who may not see the whole cluster. Raises ApiError."""
    try:
        return await read_api(api, f"{ROOT}/queues")
    except Forbidden:
        try:
            return await read_api(api, f"{ROOT}/namespaces/{namespace}/queues")
        except Forbidden as error:
            fix = "name a namespace of yours with -n, or ask its administrator for the role view"
            raise Forbidden(error.status, error.reason, f"{error.message}; {fix}") from error


async def read_api(api: Api, path: str) -> list[Document]:
    """Return the items of a list of the read API. Raises ApiError with a sentence when it does not answer."""
    try:
        items: list[Document] = orjson.loads(await api.request("GET", path))["items"]
    except NotFound as error:
        raise NotFound(
            0, "NotInstalled", "this cluster does not serve visibility.tutti.dev: Tutti is not installed here"
        ) from error
    except Unavailable as error:
        if not error.status:  # nobody at the API server's own address
            raise
        why = f"Tutti's read API does not answer: {error.message.strip()}; `tutti status` says what is down"
        raise Unavailable(error.status, error.reason, why) from error
    return items


def _is_of(document: Document, kind: str, name: str) -> bool:
    owner = document["metadata"]["ownerReferences"][0]
    if owner["name"] != name:
        return False
    known = by_name(kind)
    group = owner["apiVersion"].rpartition("/")[0]
    if known is not None and (known.kind, known.group) == (owner["kind"], group):
        return True
    # Kinds that only the installation's configuration knows.
    return _names(owner["kind"], kind) or (owner["kind"] == POD_GROUP.kind and _is_pod_group(kind))


def _is_pod_group(word: str) -> bool:
    return _names(POD_GROUP.kind, word) or word.lower() == "pg"


def _names(kind: str, word: str) -> bool:
    """Whether ``word`` is what kubectl would take for a kind."""
    return word.lower().partition(".")[0] in (kind.lower(), f"{kind.lower()}s")


async def _unknown(api: Api, kind: str, namespace: str, name: str) -> TuttiError:
    """Return the error for a job that the read API does not show."""
    known = by_name(kind)
    if _is_pod_group(kind):
        why = f"no plain pods wait or run as PodGroup {name!r} in namespace {namespace}; a job goes by its own name"
        return WrongName(why)
    if known is None:
        return WrongName(f"{kind!r} is not a job kind that Tutti knows, and none of that name waits")
    try:
        found = await stored(api, known, namespace, name)
    except ApiError as error:
        return error
    if found is None:
        return WrongName(f"there is no {known.kind} {name!r} in namespace {namespace}")
    owner = gang_owner(*found)
    if owner is not None:
        kind = owner.kind.partition(".")[0]
        return WrongName(
            f"{known.kind} {namespace}/{name} is a part of {kind} {owner.name}, whose controller starts and stops it: "
            f"`tutti explain {kind.lower()}/{owner.name} -n {namespace}` says where that stands. If {kind} "
            f"{owner.name} did not make it, nobody starts it: remove its metadata.ownerReferences, or delete it",
        )
    return WrongName(
        f"{known.kind} {namespace}/{name} exists but is not gated: it has no queue label "
        f"({' or '.join(names.QUEUE_LABELS)}), names no PodGroup, and its namespace maps to no queue",
    )


async def stored(api: Api, kind: JobKind, namespace: str, name: str) -> tuple[JobKind, dict[str, Any]] | None:
    """Return an object, and its kind in the version that is served; None where there is none. Raises ApiError."""
    for served in kind.every_version:
        found = await find(api, object_path(served, namespace, name))
        if found is not None:
            return served, found
    return None
