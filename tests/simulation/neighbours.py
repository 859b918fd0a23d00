"""Where names are hidden across namespaces: nothing that leaves Tutti for one of them bears a name of another.

Looked at is all that it tells: what it stores in a namespace (events, annotations of jobs, status of queues), answers
of the webhook, documents of the read API. Texts are searched for names, not for the way in which one is written.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Set
from typing import Any, Final

import orjson

from webhook.assembly.reconciler import ReconcilerParts
from webhook.core.notation import names
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.objects.store import Event

HIDDEN: Final = frozenset({"Job", "JobSet", "PyTorchJob", "Pod", "PodGroup"})
"""Kinds whose names are nobody's business in another namespace."""
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
SECONDS: Final = 3.0


class Neighbours:
    """Names of each namespace, and what was told."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._owners: dict[str, set[str]] = {}
        """Name to the namespaces that have had something by it."""
        self.looked_at = Counter[str]()
        self.leaks: list[str] = []
        cluster.server.store.subscribe(self._stored)

    def _stored(self, event: Event) -> None:
        document = event.current.object
        kind, namespace = document["kind"], document["metadata"].get("namespace", "")
        if kind in HIDDEN:
            self._owners.setdefault(document["metadata"]["name"], set()).add(namespace)
            notes = document["metadata"].get("annotations") or {}
            uid = document["metadata"]["uid"]
            # What names another object was copied here by a tenant, who had seen it there.
            ours = [text for name, text in notes.items() if name.startswith("tutti.dev/") and _is_of(text, uid)]
            if kind != "Pod":
                self._told("annotations", namespace, " ".join(ours))
        elif kind == "Event":
            self._told("events", namespace, document.get("note") or document.get("message") or "")
        elif kind == "LocalQueue":
            self._told("status", namespace, orjson.dumps(document.get("status")).decode())

    def answered(self, body: bytes, answer: bytes) -> None:
        """Look at the words of one answer of the webhook. What was in the question is no news to who asked."""
        namespace, asked = orjson.loads(body)["request"].get("namespace", ""), set(_NAME.findall(body.decode()))
        response: dict[str, Any] = orjson.loads(answer)["response"]
        words = [(response.get("status") or {}).get("message", ""), *(response.get("warnings") or ())]
        self._told("answers", namespace, " ".join(words), asked)

    async def listen(self, replicas: Mapping[str, ReconcilerParts]) -> None:
        """Read the read API of each replica now and again, until cancelled."""
        while True:
            await asyncio.sleep(SECONDS)
            for parts in list(replicas.values()):
                if not parts.view.synced:
                    continue
                for resource in ("workloads", "queues"):
                    await parts.read_api.reporter.fresh(resource)
                    for key, document in parts.read_api.cache.documents(resource, None):
                        self._told(resource, key.namespace, orjson.dumps(document.parse()).decode())

    def _told(self, where: str, namespace: str, text: str, known: Set[str] = frozenset()) -> None:
        # Administrators are told of everybody.
        if namespace in ("", names.SYSTEM_NAMESPACE):
            return
        self.looked_at[where] += 1
        for name in _NAME.findall(text):
            owners = self._owners.get(name)
            if owners and namespace not in owners and name not in known:
                self.leaks.append(f"{where} told {namespace} of {name}, which is of {owners}: {text}")

    def close(self) -> None:
        """Fail if anything was told that should not have been, or nothing was looked at.

        Of answers those without words count too: there are stories in which everything is allowed.
        """
        assert not self.leaks, self.leaks[:3]
        assert all(self.looked_at[each] for each in ("answers", "events", "workloads")), self.looked_at


def _is_of(note: str, uid: str) -> bool:
    """Return whether a note is of the object that has it, as far as it says of which it is."""
    return '"uid":' not in note or uid in note
