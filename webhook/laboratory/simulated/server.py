"""The verbs of the simulated API server: every write goes through defaulting, admission, validation and one commit.

Order of a CREATE, as in kube-apiserver: namespace check, defaults, mutating webhooks (the object has no uid yet, and
no name when it is to be generated), defaults, name and uid, validation, validating webhooks, ResourceQuota, commit.
An UPDATE or PATCH runs inside an optimistic loop: when somebody else wrote meanwhile it starts again, admission
included, unless the request named a resourceVersion. Between the last check and the commit nothing is awaited, so a
commit is atomic.
"""

import uuid
from collections.abc import Callable
from random import Random
from typing import Final

from webhook.clock import Clock
from webhook.core.notation.moments import time_text
from webhook.laboratory.simulated.admission import pods
from webhook.laboratory.simulated.admission.quota import Quotas
from webhook.laboratory.simulated.admission.webhooks import Admission, Attributes
from webhook.laboratory.simulated.objects import defaults, deletion, validation
from webhook.laboratory.simulated.objects.conditions import with_condition
from webhook.laboratory.simulated.objects.conversion import as_served, to_stored
from webhook.laboratory.simulated.objects.resources import RELEASE, Registry, Resource
from webhook.laboratory.simulated.objects.store import DEFAULT_HISTORY, Store, Stored
from webhook.laboratory.simulated.objects.watches import Selection, Watch
from webhook.laboratory.simulated.requests.identity import Call
from webhook.laboratory.simulated.requests.refusals import (
    Json,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    internal,
    invalid,
    not_found,
)

Change = Callable[[Stored], Json]
"""Makes the wanted object (a new dict) from the stored one; may raise Refused."""

_NAME_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_ATTEMPTS: Final = 20
_SYSTEM_METADATA: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
NAMESPACES: Final = ("", "namespaces")
PODS: Final = ("", "pods")
NODES: Final = ("", "nodes")


class SimulatedServer:
    """One API server: storage, admission and quota behind the verbs. Controllers are apart, in ``cluster``."""

    def __init__(self, rng: Random, clock: Clock, *, history: int = DEFAULT_HISTORY, release: int = RELEASE) -> None:
        self.release = release
        """The minor release of Kubernetes whose rules are followed, where releases differ."""
        self.rng = rng
        self.clock = clock
        self.registry = Registry()
        self.store = Store(history)
        self.admission = Admission(rng, self.namespace_labels)
        self.quotas = Quotas(self.store)
        self.injected: dict[str, Json] = {}
        """Label to the sidecar that somebody adds to new pods that have it."""
        self.store.subscribe(
            lambda event: None if event.type == "DELETED" else self.registry.add_definition(event.current.object),
            ("apiextensions.k8s.io", "customresourcedefinitions"),
        )

    # -- reading ----------------------------------------------------------------------------------------------------

    def get(self, resource: Resource, namespace: str, name: str) -> Stored:
        """Return one object. Raises Refused (404)."""
        stored = self.store.get(resource.storage, namespace, name)
        if stored is None:
            raise not_found(resource, name)
        return stored

    def select(self, resource: Resource, selection: Selection) -> list[Stored]:
        """Return the selected objects in key order."""
        return [s for s in self.store.items(resource.storage, selection.namespace) if selection.holds(s)]

    def watch(self, resource: Resource, selection: Selection, *, bookmarks: bool, timeout_seconds: float) -> Watch:
        """Open a watch; ``Watch.start`` says from where."""
        return Watch(self.store, resource, selection, bookmarks=bookmarks, timeout_seconds=timeout_seconds)

    def namespace_labels(self, name: str) -> dict[str, str]:
        """Return the labels of a namespace."""
        stored = self.store.get(NAMESPACES, "", name)
        return {} if stored is None else stored.labels

    def timestamp(self) -> str:
        """Return now as the API writes times."""
        return time_text(int(self.clock.now()))

    # -- create -----------------------------------------------------------------------------------------------------

    async def create(self, resource: Resource, namespace: str, item: Json, call: Call) -> Stored:
        """Store a new object; ``item`` then belongs to the server. Raises Refused."""
        restores = self.store.restores
        item = self._incoming(resource, namespace, item)
        self._check_namespace(resource, namespace, item)
        metadata = item["metadata"]
        for field in (*_SYSTEM_METADATA, "resourceVersion", "selfLink", "managedFields"):
            metadata.pop(field, None)
        if not metadata.get("name") and not metadata.get("generateName"):
            why = "Required value: name or generateName is required"
            raise invalid(resource, "", "metadata.name", why, "FieldValueRequired")
        self._default(resource, item)
        attributes = Attributes("CREATE", resource, "", namespace, metadata.get("name", ""), item, None, call)
        reviewed = self.admission.wanted("CREATE", resource, "")
        if reviewed:
            await self.admission.mutate(attributes)
            item = self._mutated(resource, namespace, item, attributes)
            self._default(resource, item)
        self._identify(resource, item)
        validation.create(resource, item)
        if reviewed:
            attributes.object, attributes.name = item, item["metadata"]["name"]
            await self.admission.validate(attributes)
        self._check_lived(restores)
        return self._commit_new(resource, namespace, item, call)

    def _check_lived(self, restores: int) -> None:
        if self.store.restores != restores:
            raise internal("the API server was stopped for a backup to be restored")

    def _commit_new(self, resource: Resource, namespace: str, item: Json, call: Call) -> Stored:
        name = item["metadata"]["name"]
        # Again: the namespace may have gone while webhooks were thinking.
        self._check_namespace(resource, namespace, item)
        self.quotas.charge(resource, item)
        taken = self.store.get(resource.storage, namespace, name)
        if taken is not None:
            raise already_exists(resource, name, going="deletionTimestamp" in taken.object["metadata"])
        if call.dry_run:
            return Stored(item, 0)
        return self.store.put(resource.storage, item)

    def _incoming(self, resource: Resource, namespace: str, item: Json) -> Json:
        """Return ``item`` with kind, apiVersion and metadata first, checked against the path. Raises Refused (400)."""
        kind, version = item.get("kind", resource.kind), item.get("apiVersion", resource.api_version)
        if kind != resource.kind:
            raise bad_request(f"{kind} in version {version!r} cannot be handled as a {resource.kind}")
        if version != resource.api_version:
            expected = resource.api_version
            raise bad_request(f"the API version in the data ({version}) does not match the expected one ({expected})")
        metadata = item.get("metadata")
        if metadata is None:
            metadata = {}
        # Copied below: a change may hand in the stored object's own metadata, which must not be written to.
        if not isinstance(metadata, dict):
            raise bad_request("metadata is not an object")
        metadata = {**metadata}
        if resource.namespaced:
            if metadata.setdefault("namespace", namespace) != namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
        else:
            metadata.pop("namespace", None)
        rest = {key: value for key, value in item.items() if key not in ("kind", "apiVersion", "metadata")}
        return to_stored(resource, {"kind": kind, "apiVersion": version, "metadata": metadata, **rest})

    def _mutated(self, resource: Resource, namespace: str, before: Json, attributes: Attributes) -> Json:
        """Return what mutating webhooks made of ``before``."""
        after = attributes.object or {}
        return before if after is before else self._incoming(resource, namespace, after)

    def _check_namespace(self, resource: Resource, namespace: str, item: Json) -> None:
        if not resource.namespaced:
            return
        stored = self.store.get(NAMESPACES, "", namespace)
        if stored is None:
            raise not_found(self.registry.of("namespaces"), namespace)
        if stored.object["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            causes = [
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {namespace} is being terminated",
                    "field": "metadata.namespace",
                }
            ]
            raise forbidden(resource, item["metadata"].get("name", ""), why, causes)

    def _default(self, resource: Resource, item: Json) -> None:
        _drop_empty(resource, item)
        defaults.apply(resource.storage, item)
        if resource.storage == PODS:
            pods.inject(self.injected, item)
            pods.fill(self.store, item)

    def _identify(self, resource: Resource, item: Json) -> None:
        metadata = item["metadata"]
        if not metadata.get("name"):
            suffix = "".join(self.rng.choices(_NAME_ALPHABET, k=5))
            metadata["name"] = metadata["generateName"][:58] + suffix
        metadata["uid"] = str(uuid.UUID(int=self.rng.getrandbits(128), version=4))
        metadata["creationTimestamp"] = self.timestamp()
        if resource.generation:
            metadata["generation"] = 1
        if resource.storage == ("batch", "jobs"):
            defaults.job_identity(item)
        if resource.status and resource.storage != NODES:
            defaults.first_status(resource.storage, item)

    # -- update -----------------------------------------------------------------------------------------------------

    async def update(  # noqa: PLR0917
        self, resource: Resource, namespace: str, name: str, change: Change, call: Call, subresource: str = ""
    ) -> Stored:
        """Replace an object by what ``change`` makes of it. Raises Refused.

        ``change`` sees the stored object and may be asked again when somebody else wrote meanwhile. The result's
        resourceVersion, where it differs from the stored one, is a precondition.
        """
        restores = self.store.restores
        for _ in range(_ATTEMPTS):
            stored = self.get(resource, namespace, name)
            wanted = self._incoming(resource, namespace, change(as_served(resource, stored)))
            new = self._prepared(resource, stored, wanted, subresource)
            new = await self._admit_update(resource, namespace, stored, new, call, subresource)
            self._check_lived(restores)
            if self.store.get(resource.storage, namespace, name) is stored:
                return self._commit_update(resource, stored, new, call)
        raise conflict(resource, name)

    async def _admit_update(  # noqa: PLR0917
        self, resource: Resource, namespace: str, stored: Stored, new: Json, call: Call, subresource: str
    ) -> Json:
        reviewed = self.admission.wanted("UPDATE", resource, subresource)
        name = stored.object["metadata"]["name"]
        attributes = Attributes("UPDATE", resource, subresource, namespace, name, new, stored.object, call)
        if reviewed:
            await self.admission.mutate(attributes)
            mutated = self._mutated(resource, namespace, new, attributes)
            new = self._prepared(resource, stored, mutated, subresource)
        if not subresource:
            validation.update(resource, stored.object, new, self.release)
        elif subresource == "status":
            validation.update_status(resource, stored.object, new)
        if reviewed:
            attributes.object = new
            await self.admission.validate(attributes)
        return new

    def _prepared(self, resource: Resource, stored: Stored, new: Json, subresource: str) -> Json:
        """Return ``new`` with everything taken back that this request may not change."""
        old = stored.object
        metadata, before = new["metadata"], old["metadata"]
        name = before["name"]
        if metadata.setdefault("name", name) != name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            )
        if metadata.get("uid", before["uid"]) != before["uid"]:
            raise invalid(resource, name, "metadata.uid", f'Invalid value: "{metadata["uid"]}": field is immutable')
        version = metadata.get("resourceVersion") or before["resourceVersion"]
        if version != before["resourceVersion"]:
            raise conflict(resource, name)
        if subresource == "status":
            said = {"status": new.get("status") or {}} if "status" in new or not resource.custom else {}
            return {key: value for key, value in old.items() if key != "status"} | {"metadata": {**before}} | said
        for field in _SYSTEM_METADATA:
            if field in before:
                metadata[field] = before[field]
            else:
                metadata.pop(field, None)
        metadata["resourceVersion"] = before["resourceVersion"]
        metadata.pop("managedFields", None)
        new["apiVersion"] = old["apiVersion"]
        _drop_empty(resource, new)
        if resource.status and "status" in old:
            new["status"] = old["status"]
        elif resource.status:
            new.pop("status", None)
        defaults.apply(resource.storage, new)
        if resource.storage == PODS:
            pods.tolerate(new)
        if metadata.get("deletionTimestamp") and any(
            f not in (before.get("finalizers") or ()) for f in metadata.get("finalizers") or ()
        ):
            why = "Forbidden: no new finalizers can be added if the object is being deleted"
            raise invalid(resource, name, "metadata.finalizers", why, "FieldValueForbidden")
        if resource.generation and _content(new) != _content(old):
            metadata["generation"] = before.get("generation", 1) + 1
        return new

    def _commit_update(self, resource: Resource, stored: Stored, new: Json, call: Call) -> Stored:
        if new == stored.object:
            return stored
        if call.dry_run:
            return Stored(new, 0)
        if deletion.is_over(new):
            self.store.put(resource.storage, new)
            return self.store.remove(resource.storage, *stored.key)
        return self.store.put(resource.storage, new)

    # -- delete -----------------------------------------------------------------------------------------------------

    async def delete(
        self, resource: Resource, namespace: str, name: str, options: Json, call: Call
    ) -> tuple[Stored, bool]:
        """Delete an object or begin to. Returns its last state and whether it is gone. Raises Refused."""
        stored = await self._admit_delete(resource, namespace, name, options, call)
        marked = deletion.marked(resource, stored.object, options, self.clock.now())
        if call.dry_run:
            return stored, marked is None
        if marked is not None and marked != stored.object:
            stored = self.store.put(resource.storage, marked)
        if marked is None or deletion.is_over(marked):
            return self.store.remove(resource.storage, namespace, name), True
        return stored, False

    async def _admit_delete(self, resource: Resource, namespace: str, name: str, options: Json, call: Call) -> Stored:
        """Return the object that may be deleted; it has not changed since it was checked and reviewed."""
        while True:
            stored = self.get(resource, namespace, name)
            deletion.check_preconditions(resource, stored, options)
            if not self.admission.wanted("DELETE", resource, ""):
                return stored
            attributes = Attributes("DELETE", resource, "", namespace, name, None, stored.object, call)
            await self.admission.mutate(attributes)
            await self.admission.validate(attributes)
            if self.store.get(resource.storage, namespace, name) is stored:
                return stored

    async def delete_collection(
        self, resource: Resource, selection: Selection, options: Json, call: Call
    ) -> list[Stored]:
        """Delete every selected object, one review each; returns them as they were."""
        found = self.select(resource, selection)
        for stored in found:
            if self.store.get(resource.storage, *stored.key) is not None:
                await self.delete(resource, *stored.key, options, call)
        return found

    # -- subresources -----------------------------------------------------------------------------------------------

    async def bind(self, namespace: str, name: str, node: str, call: Call) -> Stored:
        """Assign a pod to a node, as the binding subresource does. Raises Refused."""
        resource = self.registry.of("pods")
        while True:
            stored = self.get(resource, namespace, name)
            if stored.object["spec"].get("nodeName"):
                raise conflict(
                    resource, name, f'pod {name} is already assigned to node "{stored.object["spec"]["nodeName"]}"'
                )
            if stored.object["spec"].get("schedulingGates"):
                raise conflict(resource, name, f"pod {name} has non-empty .spec.schedulingGates")
            if self.admission.wanted("CREATE", resource, "binding"):
                body = {
                    "kind": "Binding",
                    "apiVersion": "v1",
                    "metadata": {"name": name, "namespace": namespace},
                    "target": {"kind": "Node", "name": node},
                }
                attributes = Attributes(
                    "CREATE", resource, "binding", namespace, name, body, None, call, ("", "v1", "Binding")
                )
                await self.admission.mutate(attributes)
                await self.admission.validate(attributes)
            if self.store.get(PODS, namespace, name) is stored:
                break
        status = with_condition(stored.object["status"], "PodScheduled", "True", self.timestamp())
        bound = {
            **stored.object,
            "metadata": {**stored.object["metadata"]},
            "spec": {**stored.object["spec"], "nodeName": node},
        }
        return self.store.put(PODS, {**bound, "status": status})


def _drop_empty(resource: Resource, item: Json) -> None:
    """Custom resources lose empty maps in their metadata only, the rest of them is theirs."""
    defaults.drop_empty({"metadata": item["metadata"]} if resource.custom else item)


def _content(item: Json) -> Json:
    return {key: value for key, value in item.items() if key not in ("metadata", "status")}
