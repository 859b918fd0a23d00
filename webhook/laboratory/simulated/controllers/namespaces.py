"""The namespace controller: empties a namespace that is being deleted, then lets it go. And quota's status writer."""

from random import Random
from typing import Final

from webhook.laboratory.simulated.admission.quota import PODS, QUOTAS
from webhook.laboratory.simulated.controllers.base import Controller, Pace
from webhook.laboratory.simulated.objects.store import Event, Stored
from webhook.laboratory.simulated.objects.watches import Selection
from webhook.laboratory.simulated.requests.identity import NAMESPACE_CONTROLLER, QUOTA_CONTROLLER
from webhook.laboratory.simulated.requests.refusals import Json, Refused
from webhook.laboratory.simulated.server import NAMESPACES, SimulatedServer

_LOOK_AGAIN_SECONDS: Final = 1.0


class NamespaceController(Controller):
    """Deletes what is in a terminating namespace, kind by kind."""

    workers = 2

    def __init__(self, server: SimulatedServer, rng: Random, pace: Pace) -> None:
        super().__init__(server, NAMESPACE_CONTROLLER, rng, pace)
        self._namespaces = server.registry.of("namespaces")
        self.store.subscribe(self._changed, NAMESPACES)

    def _changed(self, event: Event) -> None:
        if event.type != "DELETED" and "deletionTimestamp" in event.current.object["metadata"]:
            self.enqueue((event.current.key[1], event.current.uid))

    async def reconcile(self, key: tuple[str, str]) -> None:
        """Empty one namespace further."""
        name, uid = key
        namespace = self.store.get(NAMESPACES, "", name)
        if namespace is None or namespace.uid != uid:
            return
        left = 0
        seen = set()
        for resource in list(self.server.registry):
            if not resource.namespaced or resource.storage in seen:
                continue
            seen.add(resource.storage)
            for stored in self.server.select(resource, Selection(name)):
                left += 1
                if "deletionTimestamp" not in stored.object["metadata"]:
                    await self._delete(stored)
        if left:
            self.enqueue_after(key, _LOOK_AGAIN_SECONDS)
            return
        await self.server.update(self._namespaces, "", name, _without_finalizers, self.call(), "finalize")

    async def _delete(self, stored: Stored) -> None:
        resource = self.server.registry.of_kind(stored.object["apiVersion"], stored.object["kind"])
        assert resource is not None, "what is stored is served"
        options = {"propagationPolicy": "Background"}
        try:
            await self.server.delete(resource, *stored.key, options, self.call())
        except Refused as refused:
            if refused.code != 404:
                raise


def _without_finalizers(stored: Stored) -> Json:
    spec = {key: value for key, value in (stored.object.get("spec") or {}).items() if key != "finalizers"}
    return {**stored.object, "spec": spec}


class QuotaController(Controller):
    """Writes the used amounts into the status of ResourceQuotas, some time after the fact, as the real one does."""

    def __init__(self, server: SimulatedServer, rng: Random, pace: Pace) -> None:
        super().__init__(server, QUOTA_CONTROLLER, rng, pace)
        self._quotas = server.registry.of("resourcequotas")
        self.store.subscribe(self._quota_changed, QUOTAS)
        self.store.subscribe(self._pod_changed, PODS)

    def _quota_changed(self, event: Event) -> None:
        if event.type != "DELETED":
            self.enqueue(event.current.key)

    def _pod_changed(self, event: Event) -> None:
        for quota in self.store.unordered(QUOTAS, event.current.key[0]):
            self.enqueue(quota.key)

    async def reconcile(self, key: tuple[str, str]) -> None:
        """Bring one quota's status up to date."""
        status = self.server.quotas.status(*key)
        stored = self.store.get(QUOTAS, *key)
        if status is not None and stored is not None and stored.object.get("status") != status:
            await self.server.update(
                self._quotas, *key, lambda now: {**now.object, "status": status}, self.call(), "status"
            )
