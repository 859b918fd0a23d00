"""Kinds that our processes have read and that are refused from one moment on: to us, or to everybody."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from random import Random
from typing import Any, Final

import orjson

from tests.simulation.invariants import Invariants
from tests.simulation.load import how_it_ended
from tests.simulation.queues import QUEUES
from tests.simulation.shapes import STORAGES, is_suspended
from webhook.clock import LoopClock
from webhook.core.ledger.record import Reservation
from webhook.kube.api import MERGE_PATCH
from webhook.kube.backoff import MOST_SECONDS
from webhook.kube.list_watch import HEALTHY_SECONDS
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.objects.store import Event

RESOURCES: Final = {"JobSet": "jobsets.jobset.x-k8s.io", "PyTorchJob": "pytorchjobs.kubeflow.org"}
KINDS: Final = ("Job", "JobSet", "JobSet", "PyTorchJob")
"""Those that jobs are of."""
MOMENTS: Final = ("waiting", "starting", "running")
"""Where a gang of the kind is when that is refused."""
NOTICED_SECONDS: Final = 30.0
"""Four watches that are put off, and three refusals in a row, where nothing else is in the way."""
WORKS_AGAIN_SECONDS: Final = MOST_SECONDS + HEALTHY_SECONDS
"""Who is answered for so long has a watch again that has worked. For less, its waits go on growing."""
STILL_WAITS_SECONDS: Final = 4 * MOST_SECONDS
"""Until a refusal is known then: the end of the watch, and three refusals in a row."""
ROOM_SECONDS: Final = 20.0
"""How long a kind is still refused once its gangs have their queues again."""
ALONE_SECONDS: Final = 300.0


class ShutKinds:
    """Refuses kinds, and checks that nothing of them is admitted once that is known."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        rng: Random,
        invariants: Invariants,
        create: Callable[[str], Awaitable[None]],
        known_after: float,
    ) -> None:
        """``create`` makes a job of a kind; ``known_after`` seconds a watch may go on as if nothing had happened."""
        self._cluster = cluster
        self._create = create
        self._rng = rng
        self._invariants = invariants
        self._known_after = known_after + NOTICED_SECONDS
        self._known_at: dict[str, float] = {}
        """Kind that is refused to from when on all of ours know that."""
        self._answered_at: dict[str, float] = {}
        self._held: dict[str, Reservation] = {}
        self._found: asyncio.Future[str] | None = None
        self._sought = ""
        self.met: list[str] = []
        """Where a gang was of each kind that was refused."""

    async def run(self, times: int, seconds: float, *, last_stays: bool) -> None:
        """Refuse a kind so often over ``seconds``, and answer again later; ``last_stays`` is once more, for long."""
        if times:
            self._cluster.server.store.subscribe(self._stored)
        for turn in range(times):
            await asyncio.sleep(self._rng.uniform(0, 2 * seconds / times))
            moment = MOMENTS[turn % len(MOMENTS)]
            # It lasts as long as all do: where that is longer than the story, nothing else would be met.
            kept_waiting = moment == "waiting" and self._known_after < seconds
            if kept_waiting:
                # Or it would have started before anybody knew.
                await self._stop_queues("Hold")
                await asyncio.sleep(self._known_after - NOTICED_SECONDS)
            kind = await self._of_which_one_is(moment, seconds / 2)
            self._refuse(kind)
            if kept_waiting:
                await asyncio.sleep(self._known_after)
                # From now on nothing else keeps it waiting.
                await self._stop_queues("None")
                await asyncio.sleep(ROOM_SECONDS)
            await asyncio.sleep(self._rng.uniform(0.5, 2 * self._known_after))
            self._answer(kind)
        if times and last_stays:
            await self._shut_while_one_waits()

    async def _shut_while_one_waits(self) -> None:
        """Refuse a kind of which a gang waits until all of ours know it: only then is there one to be admitted."""
        kind = self._rng.choice(list(RESOURCES))
        await self._stop_queues("Hold")
        await asyncio.sleep(self._known_after - NOTICED_SECONDS)  # until the hold is known, or it would start
        await self._create(kind)
        await asyncio.sleep(self._known_after - NOTICED_SECONDS)  # until it is known to wait
        self._refuse(kind)

    def _refuse(self, kind: str) -> None:
        now = asyncio.get_running_loop().time()
        works = now - self._answered_at.get(kind, -inf) > WORKS_AGAIN_SECONDS
        self._known_at[kind] = now + self._known_after + (0 if works else STILL_WAITS_SECONDS)
        self._cluster.router.shut_off(RESOURCES[kind], self._rng.choice((403, 500)))

    async def _stop_queues(self, policy: str) -> None:
        for queue in QUEUES:
            path = f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{queue}"
            body = orjson.dumps({"spec": {"stopPolicy": policy}})
            await self._cluster.api().request("PATCH", path, body=body, content_type=MERGE_PATCH)

    async def answer_again(self) -> None:
        """Let all that is left go on alone for some minutes once the refusal is known, and answer then."""
        if self._known_at:
            await asyncio.sleep(self._known_after)
            await self._stop_queues("None")
            await asyncio.sleep(ALONE_SECONDS)
        for kind in list(self._known_at):
            self._answer(kind)

    def _answer(self, kind: str) -> None:
        del self._known_at[kind]
        self._answered_at[kind] = asyncio.get_running_loop().time()
        del self._cluster.router.shut[RESOURCES[kind]]

    async def _of_which_one_is(self, moment: str, seconds: float) -> str:
        """Return a kind of which a gang is at that ``moment``, as soon as there is one; any, if there never is."""
        self._found, self._sought = asyncio.get_running_loop().create_future(), moment
        self._look()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                kind = await self._found
                self.met.append(moment)
                return kind
        return self._rng.choice(list(RESOURCES))

    def _look(self) -> None:
        """See whether a gang is where one is sought; after each write, for it may be there for a moment only."""
        if self._found is not None and not self._found.done():
            jobs = [(kind, job) for kind in RESOURCES for job in self._stored_of(kind)]
            found = [kind for kind, job in jobs if self._where(kind, job) == self._sought]
            if found:
                self._found.set_result(self._rng.choice(found))

    def _stored_of(self, kind: str) -> list[dict[str, Any]]:
        return [stored.object for stored in self._cluster.server.store.items(STORAGES[kind])]

    def _where(self, kind: str, job: dict[str, Any]) -> str:
        if how_it_ended(job) is not None or job["metadata"].get("deletionTimestamp"):
            return ""
        entry, suspended = self._invariants.ledger.entries.get(job["metadata"]["uid"]), is_suspended(kind, job)
        if entry is None:
            return "waiting" if suspended else ""
        return "" if entry.stopping else "starting" if suspended else "running"

    def _stored(self, event: Event) -> None:
        """Check, when the ledger is written, that no gang of a kind has come in that is refused for long enough."""
        self._look()
        if event.current.object["kind"] != "ConfigMap":
            return
        before, self._held = self._held, dict(self._invariants.ledger.entries)
        now = asyncio.get_running_loop().time()
        began = LoopClock().now() - now
        for uid, entry in self._held.items():
            known_at = self._known_at.get(entry.kind.partition(".")[0])
            # An old copy of the ledger that is put back has gangs that came in long ago.
            late = 0.0 if known_at is None else min(now, entry.since_seconds - began) - known_at
            if uid not in before and late > 0:
                self._invariants.note(f"{entry} was admitted {late:.0f} s after its kind must be known to be refused")
