"""Keepers of a ledger on a simulated cluster, and a wire that loses what they send or are answered."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import orjson

from webhook.clock import LoopClock
from webhook.controllers.ledger.keeper import LedgerKeeper
from webhook.controllers.ledger.stored import project
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.pages import INDEX
from webhook.core.ledger.record import Ledger, Reservation, reserve
from webhook.core.ledger.text import Decoder
from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.errors import Conflict, Unavailable
from webhook.kube.api import JSON, MERGE_PATCH, REQUEST_TIMEOUT_SECONDS
from webhook.kube.election import Elector
from webhook.laboratory.simulated.api import SimulatedApi
from webhook.laboratory.simulated.cluster import SimulatedCluster

PATH = "/api/v1/namespaces/tutti-system/configmaps/tutti-ledger"


class LossyApi:
    """Applies a write late, loses its reply, or loses or refuses the write, where a test says so."""

    def __init__(self, api: SimulatedApi) -> None:
        self._api = api
        self.lose_replies = 0
        self.lose_requests = 0
        self.writes = 0
        self.write_seconds = 0.0
        """How long each write takes."""
        self.conflicts = ""
        """A write of an object with this in its name conflicts."""
        self.before_answering: Callable[[], Awaitable[None]] | None = None
        """What is done once between the next read and its answer."""

    async def request(
        self,
        method,
        path,
        *,
        query=None,
        body=None,
        content_type=JSON,
        accept=JSON,
        timeout_seconds=REQUEST_TIMEOUT_SECONDS,
    ):  # type: ignore[no-untyped-def]
        if method == "GET":
            answer = await self._api.request(method, path, query=query)
            meanwhile, self.before_answering = self.before_answering, None
            if meanwhile is not None:
                await meanwhile()
            return answer
        if self.lose_requests:
            self.lose_requests -= 1
            raise Unavailable(0, "Timeout", "lost", outcome_unknown=True)
        self.writes += 1
        if self.conflicts and self.conflicts in path:
            raise Conflict(409, "Conflict", "a late write of the leader before")
        await asyncio.sleep(self.write_seconds)
        answer = await self._api.request(method, path, query=query, body=body, content_type=content_type, accept=accept)
        if self.lose_replies:
            self.lose_replies -= 1
            raise Unavailable(0, "ConnectionReset", "lost", outcome_unknown=True)
        return answer


def reservation(uid: str) -> Reservation:
    gang = Gang(uid, "Job.batch", "ns", uid, "q", (PodSet("main", 2, PodPrice({"cpu": 1000})),))
    return reserve(gang, "q", {"main": 2}, {}, epoch=1, now_seconds=0)


class Stage:
    """A cluster and keepers on it."""

    def __init__(self) -> None:
        self.cluster = SimulatedCluster(Random(1), namespaces=("tutti-system",))
        self.admin = self.cluster.api()
        self.electors: dict[str, Elector] = {}

    def keeper(self, name: str, index: Decoder | None = None) -> tuple[LedgerKeeper, LossyApi]:
        """Return a keeper; ``index`` knows what its process has read of the index."""
        api = LossyApi(self.cluster.api())
        self.electors[name] = Elector(name)

        def decoder(name: str) -> Decoder:
            return index if index is not None and name == INDEX else Decoder()

        keeper = LedgerKeeper(api, self.electors[name], now=LoopClock().now, decoder=decoder)  # type: ignore[arg-type]
        return keeper, api

    async def leader(self, name: str = "one") -> tuple[LedgerKeeper, LossyApi]:
        keeper, api = self.keeper(name)
        assert await keeper.campaign()
        if keeper.ledger is None:
            await keeper.replace(Ledger(1, 1))
        return keeper, api

    async def stored(self) -> Ledger:
        return ledger_text.decode(project(await self.admin.request("GET", PATH)).data)

    async def edit(self, **data: str | None) -> None:
        await self.admin.request("PATCH", PATH, body=orjson.dumps({"data": data}), content_type=MERGE_PATCH)


async def elect(keeper: LedgerKeeper) -> None:
    while not await keeper.campaign():
        await asyncio.sleep(1)
