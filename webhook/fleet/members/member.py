"""One member of a fleet: what a hub asks of it and writes there.

Every read goes to the member's API server and is consistent; every write is bound to what was read, or to a uid. A
member that does not answer gives no sight, and is not asked again for a moment: its faults are its own.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import orjson
import structlog

from webhook.core.fleet.dispatch import Dispatch, DispatchPhase
from webhook.core.fleet.permit import permit_text, revoked_text
from webhook.core.fleet.proof import Evidence
from webhook.core.fleet.sight import Copy, Sight
from webhook.core.fleet.silence import Heard
from webhook.core.ledger.pages import Found
from webhook.core.notation import names
from webhook.core.notation.shortened import shortened
from webhook.errors import ApiError, NotFound, TooLarge, Unavailable
from webhook.fleet.members import answers, words
from webhook.fleet.members.copies import (
    FoundCopy,
    JobName,
    Listed,
    Written,
    collected_with,
    copy_read,
    found_copy,
    made_for_a_copy,
    made_for_one_of,
    noted,
    offer_text,
    pods_listed,
)
from webhook.fleet.members.health import Health
from webhook.fleet.members.leader import Leader
from webhook.fleet.members.ledger import NO_LEDGER, LedgerReader, MemberLedger, reserves, why_unread
from webhook.fleet.members.promise import Promise
from webhook.fleet.members.shared_read import SharedRead
from webhook.fleet.members.told import REASON_CHARACTERS, Told
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.rest_paths import collection_path, object_path
from webhook.kube.api import JSON_PATCH, MERGE_PATCH, METADATA, Api
from webhook.kube.list_watch import PAGE_SIZE
from webhook.untyped import paths
from webhook.untyped.values import text
from webhook.wire.times import micro_time_text

log = structlog.get_logger(__name__)

ANSWER_SECONDS: Final = 5.0
COPIES_MAX: Final = 50_000
"""Of all kinds in one member, that one sweep looks at; each takes about a kilobyte of memory."""
UID_CHARACTERS_MAX: Final = 64
"""Of a cluster: it is written into the records of gangs, which have to fit on their jobs."""
SOONER: Final[Mapping[str, str]] = {"timeout": f"{ANSWER_SECONDS - 0.5:g}s"}
"""Has an API server give up a write before the hub does, and so say that something behind it hangs."""
_JSON: Final = "application/json"
_LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{names.SYSTEM_NAMESPACE}/leases"
_KUBE_SYSTEM: Final = "/api/v1/namespaces/kube-system"
_CONFIG_MAPS: Final = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps"
_LEDGER: Final = f"{_CONFIG_MAPS}/{names.LEDGER_NAME}"


class NoAnswer(Exception):
    """A member did not answer, or said what a member cannot say."""


class Refused(NoAnswer):
    """A member answered, and does not take what was to be written; the message is its own."""


@dataclass(frozen=True, slots=True)
class Look:
    """A look at one gang's copy, and the object itself."""

    sight: Sight
    object: Mapping[str, Any] | None


class Member:
    """One member, by the name that the hub knows it by."""

    def __init__(self, name: str, api: Api, *, hides_neighbours: bool = False) -> None:
        """``hides_neighbours``: what it says of one namespace is told with no name of another in it."""
        self.name = name
        self._api = api
        self.told = Told(self._objects, hides_neighbours=hides_neighbours)
        self.health = Health(name)
        self.uid = ""
        """Of the kube-system to which its name led when it answered last; empty before it did."""
        self.stops_after_seconds = 0
        """Of silence: the promise of that cluster by its last word; 0 where it gives none."""
        self._promise = Promise()
        self.knows_permits: bool | None = None
        """What its ledger said of that last; None before it was read."""
        self.cluster = SharedRead(self._cluster)
        """Returns the uid of its kube-system. Raises NoAnswer."""
        self._ledger = SharedRead(self._ledger_shown)
        self._reader, self._leader = LedgerReader(), Leader()

    def reach(self, api: Api) -> Api:
        """Ask by another connection from now on; return the one before, on which requests may be under way."""
        before, self._api = self._api, api
        self.health.reached()
        return before

    def stop(self) -> None:
        """Ask nothing more: its hub ends, or no longer follows it."""
        for read in (self.cluster, self._ledger):
            read.stop(NoAnswer(f"{self.name} is no longer asked"))

    async def close(self) -> None:
        """Release its connection."""
        await self._api.close()

    # -- as an Api, for watches: by whatever connection is in use ----------------------------------------------------

    async def request(self, method: str, path: str, *, query: Mapping[str, str] | None = None, **how: Any) -> bytes:
        """As ``Api.request``, and a list always in pages, for the length of no other is bounded."""
        paged = {"limit": str(PAGE_SIZE), **(query or {})}
        return await self._api.request(method, path, query=paged, **how)

    def watch(self, path: str, *, query: Mapping[str, str], idle_seconds: float) -> AsyncIterator[bytes]:
        """As ``Api.watch``."""
        return self._api.watch(path, query=query, idle_seconds=idle_seconds)

    # -- reading ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def one_cluster(self) -> Iterator[None]:
        """Read what has to be of one cluster. Raises NoAnswer where new credentials may have led to another one."""
        before = self._api
        yield
        if self._api is not before:
            raise NoAnswer(f"{self.name}: its credentials changed while it was asked")

    @contextlib.contextmanager
    def rested_on(self, what: str) -> Iterator[None]:
        """Read what all gangs of this member rest on, and show it where no answer to that can be used."""
        try:
            yield
        except NoAnswer as error:
            self.health.read(what, shortened(str(error), REASON_CHARACTERS))
            raise
        self.health.read(what)

    async def _cluster(self) -> str:
        with self.one_cluster():
            namespace = await self.get(_KUBE_SYSTEM)
        uid = paths.find(namespace, ("metadata", "uid"))
        if not isinstance(uid, str) or not 0 < len(uid) <= UID_CHARACTERS_MAX:
            raise NoAnswer(f"{self.name}: it has no namespace kube-system with a uid that an API server gives")
        if uid != self.uid:
            self.uid, self.stops_after_seconds, self._promise = uid, 0, Promise()
        return uid

    async def check(self) -> None:
        """Find out whether it is a member: it answers, and its Tutti knows permits. Raises NoAnswer."""
        await self.cluster()
        await self._ledger()

    async def see_leader(self) -> None:
        """Find out whether somebody leads its Tutti, and show it where nobody does. Raises NoAnswer."""
        index = await self.get(_LEDGER, METADATA)
        self.health.leads(self._leader.why_none(index, asyncio.get_running_loop().time()))

    async def look(
        self, kind: JobKind, namespace: str, name: str, phase: DispatchPhase = DispatchPhase.NOWHERE
    ) -> Look:
        """Return what it has of one gang, which is in this ``phase``. Raises NoAnswer.

        Of one that was granted, and has its permit, it does not matter what its ledger says.
        """
        begins = phase in (DispatchPhase.NOWHERE, DispatchPhase.OFFERED)
        with self.one_cluster():
            cluster, found, ledger, taken_by = await asyncio.gather(
                self.cluster(),
                self.get(object_path(kind, namespace, name)),
                self._ledger() if begins else asyncio.sleep(0, None),
                self._taken_by(kind, namespace, name) if begins else asyncio.sleep(0, ""),
            )
            copy = None if found is None else copy_read(kind, found)
            if phase is DispatchPhase.GRANTED and copy is not None and not copy.permitted:
                ledger = await self._ledger()
                if not reserves(ledger, copy):
                    # Its permit may have come after the first read, and it may have run to its end before the second.
                    found = await self.get(object_path(kind, namespace, name))
                    copy = None if found is None else copy_read(kind, found)
        reserved, knows = reserves(ledger, copy), ledger is not None and ledger.knows_permits
        unread = why_unread(ledger) if begins else ""
        return Look(Sight(cluster, knows, copy, reserved, taken_by, unread), found)

    async def _taken_by(self, kind: JobKind, namespace: str, name: str) -> str:
        """Return the kind of what has the name that a copy's controller needs for its own; nothing where it is free."""
        if kind.namesake is None:
            return ""
        found = await self.get(object_path(kind.namesake, namespace, name))
        return "" if found is None or made_for_one_of(kind, name, found) else kind.namesake.kind

    async def gone(self, evidence: Evidence, kind: JobKind, namespace: str, name: str, dispatch: Dispatch) -> bool:
        """Return whether what a look does not show of the copy of ``dispatch`` is gone too. Raises NoAnswer."""
        assert evidence in (Evidence.RESERVATION, Evidence.PODS), evidence
        uid = dispatch.copy_uid
        with self.one_cluster():
            if evidence is Evidence.RESERVATION:
                cluster, ledger = await asyncio.gather(self.cluster(), self._ledger())
                gone = ledger is not None and ledger.stands and uid not in ledger.entries
            else:
                cluster, gone = await asyncio.gather(self.cluster(), self._has_none(*pods_listed(namespace, uid)))
        return gone and cluster == dispatch.cluster

    async def pods_of(self, namespace: str, uid: str, most: int) -> list[dict[str, Any]]:
        """Return so many of the pods of a gang. Raises NoAnswer."""
        found: list[dict[str, Any]] = []
        with contextlib.suppress(NotFound):
            async with contextlib.aclosing(self._objects(*pods_listed(namespace, uid))) as pods:
                async for pod in pods:
                    found.append(pod)
                    if len(found) == most:
                        break
        return found

    async def copies(self, kinds: Iterable[JobKind], hub: str) -> Listed:
        """Return all its objects of these kinds that say they are copies from this hub.

        Not what was made for a copy, which may have the copy's own labels. Raises NoAnswer, also if it lists no kind.
        """
        ours, seen = {"labelSelector": f"{names.ORIGIN_LABEL}={quote(hub)}", **SOONER}, itertools.count(1)
        placed, unlisted = list(kinds), dict[str, str]()
        by_key = {each.key: each for each in placed}

        async def of(kind: JobKind) -> list[FoundCopy]:
            found: list[FoundCopy] = []
            try:
                async for each in self._objects(collection_path(kind), ours, answers.LONG, of_itself=True):
                    if next(seen) > COPIES_MAX:
                        raise NoAnswer(f"{self.name}: it has more than {COPIES_MAX:,} copies of this hub")
                    if not made_for_a_copy(kind, each, by_key):
                        found.append(found_copy(kind, each))
            except ValueError as error:
                raise NoAnswer(f"{self.name}: {error}") from error
            except NotFound:
                return found
            except ApiError as error:
                unlisted[kind.feed] = shortened(str(error), REASON_CHARACTERS)
            return found

        found = [*itertools.chain.from_iterable(await asyncio.gather(*map(of, placed)))]
        if unlisted and len(unlisted) == len(placed):
            raise NoAnswer(f"{self.name}: {next(iter(unlisted.values()))}")
        return Listed(found, unlisted)

    async def lets_list(self, kinds: Iterable[JobKind], hub: str) -> None:
        """See that what each sweep reads may be listed, by a list of one copy of each kind. Raises NoAnswer."""
        one = {"labelSelector": f"{names.ORIGIN_LABEL}={quote(hub)}", **answers.ONE}

        async def of(kind: JobKind) -> None:
            ask = self._api.request("GET", collection_path(kind), query=one, timeout_seconds=ANSWER_SECONDS)
            with contextlib.suppress(NotFound):
                await self._asked(ask)

        await asyncio.gather(*map(of, kinds))

    async def leftovers(self, jobs: Collection[tuple[JobKind, str, str]]) -> set[JobName]:
        """Return those of the hub's jobs of which something is left here, and no copy. Raises NoAnswer."""
        ledger, left = await self._ledger(), set()
        if ledger is None:
            raise NoAnswer(f"{self.name}: its ledger cannot be read")
        held: dict[tuple[str, str], set[str]] = {}
        for entry in ledger.entries.values():
            held.setdefault((entry.kind, entry.key), set()).add(entry.uid)
        for kind, namespace, name in jobs:
            if uids := held.get((kind.key, f"{namespace}/{name}")):
                found = await self.get(object_path(kind, namespace, name))
                if uids - {text(paths.find(found, ("metadata", "uid")))}:
                    left.add((kind.feed, namespace, name))
        kinds = {kind.key: kind for kind, _, _ in jobs}.values()
        for namespace in sorted({namespace for _, namespace, _ in jobs}):
            path, of_gangs = f"/api/v1/namespaces/{namespace}/pods", {"labelSelector": names.GANG_LABEL}
            named = {(kind.kind, name): kind.feed for kind, where, name in jobs if where == namespace}
            with contextlib.suppress(NotFound):
                async for pod in self._objects(path, of_gangs, answers.LONG):
                    left |= {(named[each], namespace, each[1]) for each in collected_with(pod, kinds) & named.keys()}
        return left

    # -- writing ------------------------------------------------------------------------------------------------------

    async def create(self, kind: JobKind, copy: Mapping[str, Any]) -> Written | None:
        """Create a copy; None where one of that name is there already, which is to be looked at again."""
        path, name = object_path(kind, copy["metadata"]["namespace"], ""), copy["metadata"]["name"]
        return await self.write("POST", path.rstrip("/"), orjson.dumps(copy), name=name)

    async def permit(self, kind: JobKind, namespace: str, name: str, job: str, dispatch: Dispatch) -> Written | None:
        """Write the permit of a granted copy, bound to the uid and the version in the record (rule P1).

        Returns None where the copy is not as the record says.
        """
        permit = permit_text(offer_text(job, dispatch.offer), dispatch.copy_uid)
        only = dispatch.copy_uid, dispatch.copy_version
        path, patch = object_path(kind, namespace, name), orjson.dumps(noted(*only, permit))
        return await self.write("PATCH", path, patch, JSON_PATCH, only)

    async def revoke(self, kind: JobKind, namespace: str, name: str, copy: Copy) -> Written | None:
        """Write to a copy, so that no permit reaches it that is on its way (rule P4).

        Returns None where it is not as it was read.
        """
        only = copy.uid, copy.version
        path, patch = object_path(kind, namespace, name), orjson.dumps(noted(*only, revoked_text(copy.version)))
        return await self.write("PATCH", path, patch, JSON_PATCH, only)

    async def delete(self, kind: JobKind, namespace: str, name: str, copy: Copy, *, as_read: bool) -> None:
        """Delete a copy by its uid; ``as_read``: only in the version that was read."""
        only = {"uid": copy.uid} | ({"resourceVersion": copy.version} if as_read else {})
        path, body = object_path(kind, namespace, name), {"propagationPolicy": "Background", "preconditions": only}
        await self.write("DELETE", path, orjson.dumps(body), only=(copy.uid, copy.version if as_read else ""))

    async def renew(self, hub: str, now: float) -> None:
        """Show the member that the hub is there, and take note of what it promises. Raises NoAnswer, Refused."""
        with self.one_cluster(), self.rested_on("Lease"):
            lease = await self._lease(hub, {"spec": {"holderIdentity": hub, "renewTime": micro_time_text(now)}})
        if lease is None:
            return
        heard = Heard.read(paths.find_mapping(orjson.loads(lease), ("metadata", "annotations")).get(names.HEARD))
        self.stops_after_seconds = self._promise.seconds(heard, now, asyncio.get_running_loop().time())

    async def _lease(self, hub: str, renewed: Mapping[str, Any]) -> bytes | None:
        """Return the Lease of a hub as it was renewed; None where it was made. Raises NoAnswer, Refused."""
        name = f"{names.HUB_LEASE}{hub}"
        try:
            return await self._sent("PATCH", f"{_LEASES}/{name}", orjson.dumps(renewed), MERGE_PATCH)
        except NotFound:
            made = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, **renewed}
            await self.write("POST", _LEASES, orjson.dumps(made), name=name)
            return None
        except ApiError as error:
            raise Refused(f"{self.name} does not let this hub renew the Lease {name}: {error}") from error

    # -- parts --------------------------------------------------------------------------------------------------------

    async def _ledger_shown(self) -> MemberLedger | None:
        with self.rested_on("ledger"):
            ledger = await self._ledger_read()
        if ledger is not None:
            self.knows_permits = ledger.knows_permits
        return ledger

    async def _ledger_read(self) -> MemberLedger | None:
        """Return what its ledger says; None where it cannot be read, which proves nothing.

        The index is read first: an entry never moves, so what stood before stands on a page that the index lists.
        """
        index = await self.get(_LEDGER)
        if index is None:
            return NO_LEDGER
        pages = dict[str, Found]()
        with contextlib.suppress(NotFound):
            async for page in self._objects(_CONFIG_MAPS, {"labelSelector": names.LEDGER_PAGE}):
                pages |= self._reader.page(page)
        return self._reader.read(index, pages)

    async def _has_none(self, path: str, query: Mapping[str, str]) -> bool:
        """Return whether a list is empty; not of a kind that is not served. Raises NoAnswer."""
        try:
            async with contextlib.aclosing(self._objects(path, query)) as objects:
                async for _ in objects:
                    return False
        except NotFound:
            return False
        return True

    async def _objects(
        self, path: str, query: Mapping[str, str], bounds: answers.Bounds = answers.SHORT, *, of_itself: bool = False
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the objects of a list, of which no more is to be kept than is used.

        Raises NotFound for a kind that is not served, NoAnswer for what is no list; ``of_itself``: as ``_asked``.
        """

        def ask(query: Mapping[str, str]) -> Awaitable[bytes]:
            page = self._api.request("GET", path, query=query, timeout_seconds=ANSWER_SECONDS)
            return self._asked(page, may_be_slow=bounds is answers.LONG, of_itself=of_itself)

        try:
            async for each in answers.objects_of(ask, query, bounds):
                yield each
        except ValueError as error:
            raise NoAnswer(f"{self.name}: its answer is not a list of objects: {error}") from error

    async def get(self, path: str, accept: str = _JSON, *, of_itself: bool = False) -> dict[str, Any] | None:
        """Return one object; None where there is none. Raises NoAnswer; ``of_itself``: ApiError too, as ``_asked``."""
        ask = self._api.request("GET", path, query=answers.ONE, accept=accept, timeout_seconds=ANSWER_SECONDS)
        try:
            found = await answers.object_of(await self._asked(ask, of_itself=of_itself))
        except NotFound:
            return None
        except (TooLarge, ValueError) as error:
            raise NoAnswer(f"{self.name}: its answer is not an object: {error}") from error
        return found if isinstance(found, dict) else None

    async def _refuses(self, error: ApiError, method: str, where: str, only: tuple[str, str] | None) -> bool:
        """Return whether a write was refused; False where what it was for is to be read again.

        An admission webhook may refuse by any status: so it is seen whether that fits what is there. Raises NoAnswer
        where reads are not answered either.
        """
        if not words.may_be_of_the_object(error, method):
            if not words.is_of_the_write(error):
                await self.get(where)
            return True
        metadata = paths.find_mapping(await self.get(where), ("metadata",))
        if only is None:
            return not metadata
        is_there = metadata.get("uid") == only[0] and metadata.get("deletionTimestamp") is None
        return is_there and only[1] in ("", metadata.get("resourceVersion"))

    async def write(
        self,
        method: str,
        path: str,
        body: bytes,
        content_type: str = _JSON,
        only: tuple[str, str] | None = None,
        *,
        name: str = "",
    ) -> Written | None:
        """Return what is stored; None where it is to be read again. Raises NoAnswer, Refused.

        ``only`` is the uid that it is bound to, and the version if that is not empty; ``name`` that of what is made.
        """
        try:
            answer = await self._sent(method, path, body, content_type, of_itself=True)
        except ApiError as error:
            if await self._refuses(error, method, f"{path}/{name}" if name else path, only):
                log.info("fleet.refused", member=self.name, method=method, path=path, error=str(error))
                raise Refused(shortened(words.told(error, path), REASON_CHARACTERS)) from error
            # Taken, or the copy moved on or is gone: it is read again before anything else is decided.
            log.info("fleet.moved_on", member=self.name, method=method, path=path, error=str(error))
            return None
        try:
            stored = await answers.object_of(answer)
        except ValueError as error:
            raise NoAnswer(f"{self.name}: its answer is not an object: {error}") from error
        return Written(*(text(paths.find(stored, ("metadata", key))) for key in Written._fields))

    def _sent(
        self, method: str, path: str, body: bytes, content_type: str, *, of_itself: bool = False
    ) -> Awaitable[bytes]:
        """Write; of what is stored the metadata is answered. Raises NoAnswer, and what is an answer too."""
        how: dict[str, Any] = {"query": SOONER, "accept": METADATA, "timeout_seconds": ANSWER_SECONDS}
        written = self._api.request(method, path, body=body, content_type=content_type, **how)
        return self._asked(written, words.is_of_the_write, of_itself=of_itself)

    async def _asked(
        self,
        request: Awaitable[bytes],
        is_answer: Callable[[ApiError], bool] = words.is_of_the_read,
        *,
        may_be_slow: bool = False,
        of_itself: bool = False,
    ) -> bytes:
        """Return the answer of a member that is not resting. Raises NoAnswer, and what is an answer too.

        ``of_itself``: and whatever may be said of this request alone, though nobody knows: it is not noted.
        """
        if self.health.rests:
            if hasattr(request, "close"):
                request.close()
            raise NoAnswer(f"{self.name} did not answer a moment ago: {self.health.failure}")
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(ANSWER_SECONDS + 1):
                answer = await request
        except TimeoutError as error:
            self.health.rest()
            self.health.note(f"no answer in {ANSWER_SECONDS:.0f} s")
            raise NoAnswer(f"{self.name}: no answer in {ANSWER_SECONDS:.0f} s") from error
        except ApiError as error:
            if is_answer(error):
                self.health.note("")
                raise
            if of_itself and error.status:
                raise
            if isinstance(error, Unavailable) and not words.is_of_the_kind(error):
                self.health.rest()
            self.health.note("" if words.is_of_the_kind(error) else shortened(str(error), REASON_CHARACTERS))
            raise NoAnswer(f"{self.name}: {error}") from error
        finally:
            if not may_be_slow:
                self.health.took(asyncio.get_running_loop().time() - began)
        self.health.note("")
        return answer
