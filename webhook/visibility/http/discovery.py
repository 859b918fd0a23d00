"""Discovery documents: the resources of our version, and all that is served in the aggregated form (KEP-3352).

The API server merges the aggregated form into its own answer; groups in the plain form it lists by itself.
"""

from typing import Any, Final

from webhook.visibility.http.group import API_VERSION, GROUP, RESOURCES, VERBS, VERSION, Resource

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def resource_list() -> dict[str, Any]:
    """Return the APIResourceList, as at ``/apis/visibility.tutti.dev/v1alpha1``."""
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": API_VERSION,
        "resources": [_resource(resource) for resource in RESOURCES.values()],
    }


def aggregated() -> dict[str, Any]:
    """Return everything as one APIGroupDiscoveryList, as at ``/apis``."""
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
