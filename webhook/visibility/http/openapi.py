"""The OpenAPI 3 document of the read API: what ``kubectl explain`` and kube-apiserver read."""

import hashlib
from typing import Any, Final

import orjson

from webhook.visibility.http.group import API_VERSION, GROUP, RESOURCES, VERSION, Resource
from webhook.visibility.http.schemas import DESCRIPTIONS, SCHEMAS

_PREFIX: Final = f"dev.tutti.visibility.{VERSION}"
_ROOT: Final = f"/apis/{API_VERSION}"
_GVK: Final = "x-kubernetes-group-version-kind"
_ACTION: Final = "x-kubernetes-action"


def index() -> dict[str, Any]:
    """Return the index at ``/openapi/v3``; the hash in it lets clients cache the document."""
    digest = hashlib.sha256(orjson.dumps(document())).hexdigest().upper()
    return {"paths": {_ROOT.lstrip("/"): {"serverRelativeURL": f"/openapi/v3{_ROOT}?hash={digest}"}}}


def document() -> dict[str, Any]:
    """Return the OpenAPI 3 document of our group and version."""
    return {
        "openapi": "3.0.0",
        "info": {"title": "Tutti", "version": VERSION},
        "paths": _paths(),
        "components": {"schemas": _definitions()},
    }


def _definitions() -> dict[str, Any]:
    definitions: dict[str, Any] = {}
    for resource in RESOURCES.values():
        kind = resource.kind
        common = {
            "apiVersion": {"type": "string", "description": f"Always {API_VERSION}."},
            "kind": {"type": "string", "description": "Name of this schema."},
        }
        metadata = {"type": "object", "description": "Standard object metadata."}
        definitions[f"{_PREFIX}.{kind}"] = {
            "type": "object",
            "description": DESCRIPTIONS[kind],
            "properties": {**common, "metadata": metadata, **SCHEMAS[kind]},
            _GVK: [_group_version_kind(kind)],
        }
        items = {"type": "array", "items": _reference(kind)}
        definitions[f"{_PREFIX}.{kind}List"] = {
            "type": "object",
            "description": f"A list of {resource.plural}.",
            "properties": {**common, "metadata": metadata, "items": items},
            "required": ["items"],
            _GVK: [_group_version_kind(f"{kind}List")],
        }
    return definitions


def _paths() -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for resource in RESOURCES.values():
        namespaced = f"{_ROOT}/namespaces/{{namespace}}/{resource.plural}"
        for path, action, schema in (
            (f"{_ROOT}/{resource.plural}", "list", f"{resource.kind}List"),
            (namespaced, "list", f"{resource.kind}List"),
            (f"{namespaced}/{{name}}", "get", resource.kind),
        ):
            paths[path] = {"get": _operation(resource, path, action, schema)}
    return paths


def _operation(resource: Resource, path: str, action: str, schema: str) -> dict[str, Any]:
    scope = "Namespaced" if "{namespace}" in path else ""
    names = [name for name in ("namespace", "name") if f"{{{name}}}" in path]
    return {
        "operationId": f"{action}VisibilityTuttiDevV1alpha1{scope}{resource.kind}",
        "description": f"{action} {resource.plural}",
        "tags": ["visibilityTuttiDev_v1alpha1"],
        "parameters": [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names],
        "responses": {
            "200": {"description": "OK", "content": {"application/json": {"schema": _reference(schema)}}},
            "401": {"description": "Unauthorized"},
        },
        _ACTION: action,
        _GVK: _group_version_kind(resource.kind),
    }


def _reference(kind: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{_PREFIX}.{kind}"}


def _group_version_kind(kind: str) -> dict[str, str]:
    return {"group": GROUP, "version": VERSION, "kind": kind}
