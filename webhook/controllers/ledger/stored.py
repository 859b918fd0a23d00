"""One object of the ledger, the index or a page: as it was read, as this term wrote it last, and its requests."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from webhook import metrics
from webhook.core.ledger import text as ledger_text
from webhook.core.notation import names
from webhook.core.notation.names import CONFIG_MAPS
from webhook.errors import NotFound
from webhook.kube.api import METADATA, STRATEGIC_PATCH, Api
from webhook.kube.finding import every
from webhook.wire.watch import version_number

READ_AT_ONCE: Final = 50
"""Pages a request: all of a big ledger in one would take longer than the lease has left."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A ConfigMap as last read."""

    resource_version: str
    lease: str | None
    data: Mapping[str, str]
    uid: str = ""
    name: str = ""


def project(raw: bytes) -> Stored:
    """Return the ledger's parts of a ConfigMap's JSON."""
    return _stored(orjson.loads(raw))


def _stored(document: Mapping[str, Any]) -> Stored:
    metadata = document["metadata"]
    annotations = metadata.get("annotations") or {}
    lease, data = annotations.get(names.LEASE_ANNOTATION), document.get("data") or {}
    return Stored(metadata["resourceVersion"], lease, data, metadata.get("uid", ""), metadata.get("name", ""))


@dataclass(slots=True)
class Kept:
    """What this term knows of one object, because it wrote it."""

    name: str
    uid: str = ""
    """Of a page; the index is known by its name."""
    resource_version: str = ""
    texts: dict[str, str] = field(default_factory=dict)
    """All keys but ``meta``."""
    digest: int = 0
    meta: str | None = None
    known: bool = False
    """What is stored is what this says. It is not while a ledger is rebuilt, which replaces whatever is there."""

    @property
    def version(self) -> int:
        """``resource_version`` as a number."""
        return version_number(self.resource_version)

    def take(self, data: Mapping[str, str]) -> None:
        """Know the object as it was read."""
        self.texts = {key: text for key, text in data.items() if key != ledger_text.META}
        self.digest, self.meta = ledger_text.checksum(data), data.get(ledger_text.META)
        self.known = True

    def forget(self) -> None:
        """Know nothing of what is stored."""
        self.texts, self.digest, self.meta, self.known = {}, 0, None, False

    def digest_with(self, changes: Mapping[str, str | None]) -> int:
        """Return the checksum of the object once ``changes`` are made; None removes a key."""
        digest = self.digest
        for key, text in changes.items():
            if key in self.texts:
                digest ^= ledger_text.entry_digest(key, self.texts[key])
            if text is not None:
                digest ^= ledger_text.entry_digest(key, text)
        return digest

    def changed(self, changes: Mapping[str, str | None], digest: int, meta: str) -> None:
        """Know the object with ``changes``, which are stored."""
        for key, text in changes.items():
            if text is None:
                self.texts.pop(key, None)
            else:
                self.texts[key] = text
        self.digest, self.meta = digest, meta

    @property
    def data(self) -> dict[str, str]:
        """All of it, as it should be stored."""
        return self.texts if self.meta is None else self.texts | {ledger_text.META: self.meta}

    def data_with(self, changes: Mapping[str, str | None]) -> dict[str, str]:
        """Return what should be stored once ``changes`` are; None removes a key."""
        return {key: text for key, text in (self.data | dict(changes)).items() if text is not None}


class Objects:
    """The requests for the objects of one ledger."""

    def __init__(self, api: Api, attempt_seconds: float) -> None:
        """``attempt_seconds`` is how long one request may take."""
        self._api = api
        self._attempt_seconds = attempt_seconds

    async def read(self, name: str) -> Stored | None:
        """Return what is stored, None where there is nothing."""
        try:
            path = f"{CONFIG_MAPS}/{name}"
            return project(await self._api.request("GET", path, timeout_seconds=self._attempt_seconds))
        except NotFound:
            return None

    async def pages(self) -> AsyncIterator[Stored]:
        """Yield every page of the ledger, listed in its index or not, with a request for each :data:`READ_AT_ONCE`."""
        pages, seconds = names.LEDGER_PAGES, self._attempt_seconds
        async for page in every(self._api, CONFIG_MAPS, pages, page_size=READ_AT_ONCE, timeout_seconds=seconds):
            yield _stored(page)

    async def create(self, name: str, lease: str | None = None, data: Mapping[str, str] | None = None) -> Stored:
        """Create the index, with the lease alone, or a page, which has none."""
        metadata: dict[str, Any] = {"name": name, "namespace": names.SYSTEM_NAMESPACE}
        if lease is None:
            metadata["labels"] = {names.LEDGER_PAGE: names.LEDGER_NAME}
        else:
            metadata["annotations"] = {names.LEASE_ANNOTATION: lease}
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        if data:
            body["data"] = dict(data)
        sent = orjson.dumps(body)
        metrics.LEDGER_SENT.inc(len(sent))
        return project(await self._api.request("POST", CONFIG_MAPS, body=sent, timeout_seconds=self._attempt_seconds))

    async def patch(
        self, name: str, resource_version: str, changes: Mapping[str, str | None], lease: str | None
    ) -> str:
        """Write ``changes``, and the lease into the index, if the object is of that version still; return its next.

        Nobody's fields are kept track of: who set each of a hundred keys takes longer to work out than all the rest.
        """
        metadata: dict[str, Any] = {"resourceVersion": resource_version, "managedFields": [{}]}
        if lease is not None:
            metadata["annotations"] = {names.LEASE_ANNOTATION: lease}
        body: dict[str, Any] = {"metadata": metadata}
        if changes:
            body["data"] = changes
        sent = orjson.dumps(body)
        metrics.LEDGER_SENT.inc(len(sent))
        written = await self._api.request(
            "PATCH",
            f"{CONFIG_MAPS}/{name}",
            body=sent,
            content_type=STRATEGIC_PATCH,
            accept=METADATA,
            timeout_seconds=self._attempt_seconds,
        )
        return project(written).resource_version

    async def delete(self, name: str, uid: str) -> None:
        """Delete a page, this one and no other of its name; one that is gone is fine."""
        body = orjson.dumps({"preconditions": {"uid": uid}})
        try:
            await self._api.request("DELETE", f"{CONFIG_MAPS}/{name}", body=body, timeout_seconds=self._attempt_seconds)
        except NotFound:
            return
