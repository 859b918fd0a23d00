"""The scale subresource: a Scale object is read from, and written to, one path of the scaled object.

An admission review of it carries the Scale, which has no labels of the scaled object: a webhook has to look it up.
"""

from collections.abc import Callable
from typing import Any

from webhook.laboratory.simulated.admission.webhooks import Attributes
from webhook.laboratory.simulated.objects.resources import Resource
from webhook.laboratory.simulated.objects.store import Stored
from webhook.laboratory.simulated.requests.identity import Call
from webhook.laboratory.simulated.requests.refusals import Json, conflict, invalid
from webhook.laboratory.simulated.server import SimulatedServer

_SCALE_KIND = ("autoscaling", "v1", "Scale")


def view(resource: Resource, item: Json) -> Json:
    """Return the Scale of an object."""
    replicas: Any = item
    for step in resource.scale_path:
        replicas = replicas.get(step) if isinstance(replicas, dict) else None
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: item["metadata"][key] for key in kept if key in item["metadata"]},
        "spec": {"replicas": replicas} if replicas else {},
        "status": {"replicas": (item.get("status") or {}).get("replicas", 0)},
    }


async def update(  # noqa: PLR0917
    server: SimulatedServer, resource: Resource, namespace: str, name: str, change: Callable[[Json], Json], call: Call
) -> Stored:
    """Set the number of replicas to what ``change`` makes of the Scale. Raises Refused."""
    while True:
        stored = server.get(resource, namespace, name)
        old = view(resource, stored.object)
        new = change(view(resource, stored.object))
        version = (new.get("metadata") or {}).get("resourceVersion")
        if version and version != str(stored.revision):
            raise conflict(resource, name)
        replicas = (new.get("spec") or {}).get("replicas", 0)
        if not isinstance(replicas, int) or replicas < 0:
            raise invalid(
                resource, name, "spec.replicas", f"Invalid value: {replicas}: must be greater than or equal to 0"
            )
        if server.admission.wanted("UPDATE", resource, "scale"):
            attributes = Attributes("UPDATE", resource, "scale", namespace, name, new, old, call, _SCALE_KIND)
            await server.admission.mutate(attributes)
            await server.admission.validate(attributes)
        if server.store.get(resource.storage, namespace, name) is not stored:
            continue
        if call.dry_run or replicas == (old.get("spec") or {}).get("replicas", 0):
            return stored
        item = _with(stored.object, resource.scale_path, replicas)
        metadata = {**item["metadata"], "generation": item["metadata"].get("generation", 1) + 1}
        return server.store.put(resource.storage, {**item, "metadata": metadata})


def _with(item: Json, path: tuple[str, ...], value: Any) -> Json:
    if len(path) == 1:
        return {**item, path[0]: value}
    return {**item, path[0]: _with(item.get(path[0]) or {}, path[1:], value)}
