"""OpenAPI documents of the read API, versions 2 and 3: what ``kubectl explain`` and kube-apiserver read."""

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
    digest = hashlib.sha256(orjson.dumps(version_3())).hexdigest().upper()
    return {"paths": {_ROOT.lstrip("/"): {"serverRelativeURL": f"/openapi/v3{_ROOT}?hash={digest}"}}}


def version_3() -> dict[str, Any]:
    """Return the OpenAPI 3 document of our group and version."""
    return {
        "openapi": "3.0.0",
        "info": {"title": "Tutti", "version": VERSION},
        "paths": _paths(lambda schema: {"content": {"application/json": {"schema": schema}}}, "#/components/schemas/"),
        "components": {"schemas": _definitions("#/components/schemas/")},
    }


def version_2() -> dict[str, Any]:
    """Return the OpenAPI 2 document."""
    return {
        "swagger": "2.0",
        "info": {"title": "Tutti", "version": VERSION},
        "paths": _paths(lambda schema: {"schema": schema}, "#/definitions/", version_2=True),
        "definitions": _definitions("#/definitions/"),
    }


def _definitions(prefix: str) -> dict[str, Any]:
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
        items = {"type": "array", "items": {"$ref": f"{prefix}{_PREFIX}.{kind}"}}
        definitions[f"{_PREFIX}.{kind}List"] = {
            "type": "object",
            "description": f"A list of {resource.plural}.",
            "properties": {**common, "metadata": metadata, "items": items},
            "required": ["items"],
            _GVK: [_group_version_kind(f"{kind}List")],
        }
    return definitions


def _paths(content: Any, prefix: str, *, version_2: bool = False) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for resource in RESOURCES.values():
        one, many = f"{_PREFIX}.{resource.kind}", f"{_PREFIX}.{resource.kind}List"
        namespaced = f"{_ROOT}/namespaces/{{namespace}}/{resource.plural}"
        for path, action, schema in (
            (f"{_ROOT}/{resource.plural}", "list", many),
            (namespaced, "list", many),
            (f"{namespaced}/{{name}}", "get", one),
        ):
            paths[path] = {"get": _operation(resource, path, action, content({"$ref": prefix + schema}), version_2)}
    return paths


def _operation(resource: Resource, path: str, action: str, answer: Any, version_2: bool) -> dict[str, Any]:
    scope = "Namespaced" if "{namespace}" in path else ""
    names = [name for name in ("namespace", "name") if f"{{{name}}}" in path]
    kind: dict[str, Any] = {"type": "string"} if version_2 else {"schema": {"type": "string"}}
    return {
        "operationId": f"{action}VisibilityTuttiDevV1alpha1{scope}{resource.kind}",
        "description": f"{action} {resource.plural}",
        "tags": ["visibilityTuttiDev_v1alpha1"],
        **({"produces": ["application/json"]} if version_2 else {}),
        "parameters": [{"name": name, "in": "path", "required": True, **kind} for name in names],
        "responses": {"200": {"description": "OK", **answer}, "401": {"description": "Unauthorized"}},
        _ACTION: action,
        _GVK: _group_version_kind(resource.kind),
    }


def _group_version_kind(kind: str) -> dict[str, str]:
    return {"group": GROUP, "version": VERSION, "kind": kind}
