"""Proof that a gang is gone, its job and every pod of it, before its quota is given away (ledger rule 8).

Jobs and pods arrive over separate watches, and one can lag behind the other: a job may be seen to be gone before its
pods were seen to exist. How far each has come cannot be told apart from their resourceVersions, which mean something
within one resource only (pods may be kept in an etcd of their own). So one consistent list of pods, asked for after the
end was seen and for all gangs in question together, settles it.

A job that is not in the view may also be one that was never seen: the leader before this one may have read further. The
view proves that it is gone once its kind was read again since this leadership began.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from webhook.cluster.feeds import Feeds
from webhook.controllers.gang_record import GangRecords
from webhook.core.model.pods import holds_nothing
from webhook.core.notation import names
from webhook.errors import ApiError
from webhook.jobs.plain_pods.groups import POD_GROUP
from webhook.kube.api import Api
from webhook.wire import pods as wire

log = structlog.get_logger(__name__)

UIDS_A_LIST: Final = 50
"""Uids named in one label selector: the address stays under 2.5 kB."""
RETRY_SECONDS: Final = 1.0


class PodProof:
    """Which gangs are known to have no pod left."""

    def __init__(self, api: Api, feeds: Feeds, gangs: GangRecords, on_proved: Callable[[str], None]) -> None:
        """``on_proved`` is told each uid that may be looked at again."""
        self._api = api
        self._feeds = feeds
        self._on_proved = on_proved
        self._gangs = gangs
        self._asked: set[str] = set()
        self._unlabelled: set[str] = set()
        """The same for gangs whose pods no selector finds."""
        self._task: asyncio.Task[None] | None = None
        self._leads = False
        self._rereads: dict[str, asyncio.Task[None]] = {}
        """Kind to its being read again in this leadership."""

    def expect(self) -> None:
        """Take jobs and plain pods for gone only once they were read again: a leadership begins.

        What an earlier leader reserved for it had read before that: until then a gang that seems gone may only not have
        been seen yet.
        """
        self._leads = True
        for record in self._gangs:
            record.proved_gone = False
        self._cancel_rereads()

    def caught_up(self, kind: str) -> bool:
        """Return whether gangs of a kind were read since this leadership began; if not, have them listed."""
        if not self._leads:
            return True
        if kind not in self._rereads:
            # Of a kind that is not served the list is asked for, and answered by 404.
            self._rereads[kind] = asyncio.create_task(self._feeds.reread_jobs(kind), name=f"reread {kind}")
        return self._rereads[kind].done()

    def holds(self, uid: str, kind: str, *, labelled: bool = True) -> bool:
        """Return whether it is proved that the gang has no pod, given that none is known; if not, have it looked up.

        ``labelled``: its pods name it; those of an adopted one are told by their controllers alone.
        """
        if kind == POD_GROUP.key:
            # Its pods are all there is of it, and what is known of them comes from one watch.
            return self.caught_up(kind)
        if self._gangs.of(uid).proved_gone:
            return True
        (self._asked if labelled else self._unlabelled).add(uid)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look_up(), name="pod proof")
        return False

    async def stop(self) -> None:
        """Stop looking, and return when that has ended."""
        tasks = [*self._rereads.values(), *(() if self._task is None else (self._task,))]
        self._cancel_rereads()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _cancel_rereads(self) -> None:
        for task in self._rereads.values():
            task.cancel()
        self._rereads.clear()

    async def _look_up(self) -> None:
        while self._asked or self._unlabelled:
            if self._unlabelled:
                await self._read_again()
                continue
            uids = sorted(self._asked)[:UIDS_A_LIST]
            try:
                present = await self._present(uids)
            except ApiError as error:
                log.warning("pods.not_listed", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._asked.difference_update(uids)
            for uid in uids:
                if uid not in present:
                    self._take(uid)
                else:
                    # Its pods arrive over the watch, and so does their end; which may have come while this was asked.
                    asyncio.get_running_loop().call_later(RETRY_SECONDS, self._on_proved, uid)

    async def _read_again(self) -> None:
        """Have all pods read: whatever any of those asked for had when it ended is known then."""
        uids, self._unlabelled = sorted(self._unlabelled), set()
        await self._feeds.informers["pods"].reread()
        for uid in uids:
            self._take(uid)

    def _take(self, uid: str) -> None:
        record = self._gangs.find(uid)
        if record is not None:
            record.proved_gone = True
        self._on_proved(uid)

    async def _present(self, uids: Iterable[str]) -> set[str]:
        query = {"labelSelector": f"{names.GANG_LABEL} in ({','.join(uids)})"}
        raw = await self._api.request("GET", "/api/v1/pods", query=query)
        view, present = self._feeds.view, set()
        for pod in wire.decode_list(raw):
            gang = (pod.metadata.labels or {}).get(names.GANG_LABEL, "")
            controllers = [each.uid for each in pod.metadata.owner_references or () if each.controller]
            foreign = bool(controllers) and view.is_foreign(controllers[0], gang)
            terminating = pod.metadata.deletion_timestamp is not None
            node = str(wire.spec(pod).get("nodeName") or "") if terminating else ""
            if not foreign and not holds_nothing(pod.status.phase, terminating, node):
                present.add(gang)
        return present
