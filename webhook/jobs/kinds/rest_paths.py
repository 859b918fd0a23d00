"""Where objects of a job kind live in the REST API."""

from webhook.jobs.kinds.kind import JobKind


def collection_path(kind: JobKind) -> str:
    """Return the path that lists and watches the kind in all namespaces."""
    prefix = f"/apis/{kind.group}" if kind.group else "/api"
    return f"{prefix}/{kind.version}/{kind.plural}"


def object_path(kind: JobKind, namespace: str, name: str) -> str:
    """Return the path of one object."""
    prefix = f"/apis/{kind.group}" if kind.group else "/api"
    return f"{prefix}/{kind.version}/namespaces/{namespace}/{kind.plural}/{name}"
