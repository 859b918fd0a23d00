"""The garbage collector: dependents go when their last owner has gone; orphaning and foreground deletion.

Follows ``pkg/controller/garbagecollector``: owners are told apart by uid, so a recreated owner of the same name does
not keep the dependents of its predecessor, and an object that names an owner that never existed is collected too.
"""

from random import Random
from typing import Any, Final

from webhook.laboratory.simulated.controllers.base import Controller, Pace
from webhook.laboratory.simulated.objects.deletion import FOREGROUND, ORPHAN
from webhook.laboratory.simulated.objects.resources import Resource
from webhook.laboratory.simulated.objects.store import Event, Key, Storage, Stored
from webhook.laboratory.simulated.requests.identity import GARBAGE_COLLECTOR
from webhook.laboratory.simulated.requests.refusals import Json, Refused
from webhook.laboratory.simulated.server import SimulatedServer

_EVENTS: Final = ("", "events")


class GarbageCollector(Controller):
    """Follows ownerReferences through all kinds."""

    workers = 2

    def __init__(self, server: SimulatedServer, rng: Random, pace: Pace) -> None:
        super().__init__(server, GARBAGE_COLLECTOR, rng, pace)
        self._known: dict[str, None] = {}
        """Uids of everything that is stored."""
        self.store.subscribe(self._changed)

    def _changed(self, event: Event) -> None:
        if event.storage == _EVENTS:
            return
        stored = event.current
        if event.type == "DELETED":
            self._known.pop(stored.uid, None)
            for dependent in self.store.dependents(stored.uid):
                self.enqueue(("orphan?", _storage(self.server, dependent), dependent.key, dependent.uid))
            for reference in _owners(stored):
                if reference["uid"] in self._known:
                    self.enqueue(("owner", *self._locate(stored, reference)))
            return
        self._known[stored.uid] = None
        self._look_at(event.storage, stored, new=event.type == "ADDED")

    def _look_at(self, storage: Storage, stored: Stored, *, new: bool) -> None:
        metadata = stored.object["metadata"]
        if new and metadata.get("ownerReferences"):
            self.enqueue(("orphan?", storage, stored.key, stored.uid))
        if metadata.get("deletionTimestamp") and {ORPHAN, FOREGROUND} & set(metadata.get("finalizers") or ()):
            self.enqueue(("owner", storage, stored.key, stored.uid))

    def begin_again(self) -> None:
        """Look at everything: what was about to be deleted when a backup was made is in no event after that."""
        super().begin_again()
        for storage in self.store.storages():
            for stored in self.store.items(storage) if storage != _EVENTS else ():
                self._look_at(storage, stored, new=True)

    def _locate(self, stored: Stored, reference: Json) -> tuple[Storage, Key, str]:
        resource = self.server.registry.of_kind(reference["apiVersion"], reference["kind"])
        storage = resource.storage if resource is not None else ("", "")
        namespace = stored.key[0] if resource is not None and resource.namespaced else ""
        return storage, (namespace, reference["name"]), reference["uid"]

    async def reconcile(self, key: tuple[str, Storage, Key, str]) -> None:
        """Look at one dependent, or at one owner that waits for its dependents."""
        step, storage, name, uid = key
        stored = self.store.get(storage, *name)
        if stored is None or stored.uid != uid:
            return
        if step == "orphan?":
            await self._collect(stored)
        else:
            await self._release(stored)

    async def _collect(self, stored: Stored) -> None:
        owners = _owners(stored)
        if not owners or "deletionTimestamp" in stored.object["metadata"]:
            return
        living = [owner for owner in owners if owner["uid"] in self._known]
        if not living:
            options = {"propagationPolicy": "Background", "preconditions": {"uid": stored.uid}}
            await self._delete(stored, options)
        elif len(living) < len(owners):
            await self._set_owners(stored, living)

    async def _release(self, owner: Stored) -> None:
        """Let go of an owner whose dependents have been orphaned or have gone."""
        metadata = owner.object["metadata"]
        finalizers = metadata.get("finalizers") or ()
        dependents = self.store.dependents(owner.uid)
        if ORPHAN in finalizers:
            for dependent in dependents:
                await self._set_owners(dependent, [o for o in _owners(dependent) if o["uid"] != owner.uid])
            await self._unfinalize(owner, ORPHAN)
        elif FOREGROUND in finalizers:
            blocking = [
                d for d in dependents if any(o["uid"] == owner.uid and o.get("blockOwnerDeletion") for o in _owners(d))
            ]
            for dependent in dependents:
                if "deletionTimestamp" not in dependent.object["metadata"]:
                    await self._delete(
                        dependent, {"propagationPolicy": "Foreground", "preconditions": {"uid": dependent.uid}}
                    )
            if not blocking:
                await self._unfinalize(owner, FOREGROUND)

    async def _delete(self, stored: Stored, options: Json) -> None:
        try:
            await self.server.delete(self._resource(stored), *stored.key, options, self.call())
        except Refused as refused:
            if refused.code not in (404, 409):
                raise

    async def _set_owners(self, stored: Stored, owners: list[Json]) -> None:
        def change(now: Stored) -> Json:
            metadata: dict[str, Any] = {**now.object["metadata"], "ownerReferences": owners}
            if not owners:
                del metadata["ownerReferences"]
            return {**now.object, "metadata": metadata}

        await self.server.update(self._resource(stored), *stored.key, change, self.call())

    async def _unfinalize(self, stored: Stored, finalizer: str) -> None:
        def change(now: Stored) -> Json:
            metadata = {**now.object["metadata"]}
            metadata["finalizers"] = [f for f in metadata.get("finalizers") or () if f != finalizer]
            if not metadata["finalizers"]:
                del metadata["finalizers"]
            return {**now.object, "metadata": metadata}

        await self.server.update(self._resource(stored), *stored.key, change, self.call())

    def _resource(self, stored: Stored) -> Resource:
        resource = self.server.registry.of_kind(stored.object["apiVersion"], stored.object["kind"])
        assert resource is not None, "what is stored is served"
        return resource


def _storage(server: SimulatedServer, stored: Stored) -> Storage:
    resource = server.registry.of_kind(stored.object["apiVersion"], stored.object["kind"])
    assert resource is not None, "what is stored is served"
    return resource.storage


def _owners(stored: Stored) -> list[Json]:
    owners: list[Json] = stored.object["metadata"].get("ownerReferences") or []
    return owners
