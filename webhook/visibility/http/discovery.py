"""Discovery documents: which group, version and resources are served, in the plain and the aggregated form.

The API server merges the aggregated form (KEP-3352) into its own answer; older ones, and people, read the plain one.
"""

from typing import Any, Final

from webhook.visibility.http.group import API_VERSION, GROUP, RESOURCES, VERBS, VERSION, Resource

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_GROUP_VERSION: Final = {"groupVersion": API_VERSION, "version": VERSION}


def group() -> dict[str, Any]:
    """Return the APIGroup, as at ``/apis/visibility.tutti.dev``."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group()}


def group_list() -> dict[str, Any]:
    """Return the APIGroupList, as at ``/apis``."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group()]}


def resource_list() -> dict[str, Any]:
    """Return the APIResourceList, as at ``/apis/visibility.tutti.dev/v1alpha1``."""
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": API_VERSION,
        "resources": [_resource(resource) for resource in RESOURCES.values()],
    }


def aggregated() -> dict[str, Any]:
    """Return everything as one APIGroupDiscoveryList, as at ``/apis`` for who asks for it."""
    version = {
        "version": VERSION,
        "resources": [_aggregated_resource(resource) for resource in RESOURCES.values()],
        "freshness": "Current",
    }
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [{"metadata": {"name": GROUP}, "versions": [version]}],
    }


def _group() -> dict[str, Any]:
    return {"name": GROUP, "versions": [_GROUP_VERSION], "preferredVersion": _GROUP_VERSION}


def _resource(resource: Resource) -> dict[str, Any]:
    return {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": True,
        "kind": resource.kind,
        "verbs": list(VERBS),
        "shortNames": list(resource.short_names),
    }


def _aggregated_resource(resource: Resource) -> dict[str, Any]:
    return {
        "resource": resource.plural,
        "responseKind": {"group": GROUP, "version": VERSION, "kind": resource.kind},
        "scope": "Namespaced",
        "singularResource": resource.singular,
        "verbs": list(VERBS),
        "shortNames": list(resource.short_names),
    }
