"""What gangs are told that do not go on: each of them, and not all at once."""

import asyncio
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import NAMESPACE, plain_job
from webhook.clock import LoopClock
from webhook.core.fleet.dispatch import NOWHERE, Dispatch, DispatchPhase, Offer
from webhook.errors import Conflict
from webhook.fleet.jobs.allowance import AT_ONCE, EACH_SECONDS
from webhook.fleet.jobs.cluster_names import ClusterNames
from webhook.fleet.jobs.fleet import Fleet
from webhook.fleet.jobs.telling import Telling
from webhook.fleet.members.member import Member
from webhook.jobs.kinds.registry import KINDS
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
GANGS = 400
LOOK_SECONDS = 5
RUNS = Dispatch(DispatchPhase.GRANTED, Offer(1, 1), "a", "cluster", "copy", "1")


class Events:
    """An API server that is sent events alone, and has one of each name."""

    def __init__(self) -> None:
        self.stored: set[str] = set()
        self.sent: list[tuple[float, str]] = []
        """When, and on which job."""

    async def request(self, method: str, path: str, *, body: bytes = b"", **how: Any) -> bytes:
        event = orjson.loads(body)
        self.sent.append((asyncio.get_running_loop().time(), event["involvedObject"]["name"]))
        if event["metadata"]["name"] in self.stored:
            raise Conflict(409, "AlreadyExists", event["metadata"]["name"])
        self.stored.add(event["metadata"]["name"])
        return b"{}"


def telling_of(fleet: Fleet, namespace: str = NAMESPACE) -> Telling:
    """Return what tells one Job of what it waits for."""
    kind = KINDS["Job.batch"]
    return Telling(fleet, kind, namespace, ClusterNames(fleet, kind, namespace, "train"))


class Hub:
    """A process of a hub with many gangs in one member, which does not answer."""

    def __init__(self, events: Events, cluster: SimulatedCluster) -> None:
        silent = Member("a", cluster.api())
        silent.health.note("no route to host")
        self.fleet = Fleet(events, {"a": silent}, LoopClock())  # type: ignore[arg-type]
        self._jobs = [plain_job(f"job-{number}") for number in range(GANGS)]
        for number, job in enumerate(self._jobs):
            job["metadata"]["uid"] = f"uid-{number}"
        self._told = [telling_of(self.fleet) for _ in self._jobs]

    async def look(self, seconds: int) -> None:
        """Look at every gang as a hub does that hears nothing."""
        for _ in range(seconds // LOOK_SECONDS):
            for job, telling in zip(self._jobs, self._told, strict=True):
                await telling.held_up(job, RUNS, None)
            await asyncio.sleep(LOOK_SECONDS)


async def test_each_gang_of_a_silent_member_is_told_once_an_hour_and_never_all_at_once() -> None:
    async with SimulatedCluster(Random(1)) as cluster:
        events = Events()
        hub = Hub(events, cluster)
        for hour in (1, 2):
            await hub.look(3600)
            told = Counter(name for _, name in events.sent)
            assert len(told) == GANGS
            assert set(told.values()) <= {hour, hour - 1} - {0}, "each, and nobody twice in an hour"
        at_once = Counter(int(when) // LOOK_SECONDS for when, _ in events.sent)
        assert max(at_once.values()) <= AT_ONCE + LOOK_SECONDS / EACH_SECONDS


async def test_what_another_process_has_told_is_not_told_again_and_again() -> None:
    async with SimulatedCluster(Random(1)) as cluster:
        events = Events()
        for hub in (Hub(events, cluster), Hub(events, cluster)):
            await hub.look(1200)
        assert len(events.stored) == GANGS
        assert max(Counter(name for _, name in events.sent).values()) <= 2


async def test_gangs_that_only_wait_keep_none_from_hearing_of_a_silent_member() -> None:
    """A tenant may have thousands wait."""
    async with SimulatedCluster(Random(1)) as cluster:
        events = Events()
        hub = Hub(events, cluster)
        waits = [telling_of(hub.fleet) for _ in range(GANGS)]
        for _ in range(20):
            for number, telling in enumerate(waits):
                job = plain_job(f"waits-{number}")
                job["metadata"]["uid"] = f"waits-{number}"
                await telling.held_up(job, NOWHERE, None)
            await asyncio.sleep(LOOK_SECONDS)
        before = len(events.sent)
        assert AT_ONCE < before < GANGS, "they are still being told"
        await hub.look(LOOK_SECONDS)
        assert len(events.sent) - before >= AT_ONCE


async def test_what_is_told_from_two_places_at_once_breaks_no_look_and_is_told_in_the_end() -> None:
    """As by a look at the job, and by who gives its member up."""
    events = Events()
    fleet = Fleet(events, {}, LoopClock())  # type: ignore[arg-type]
    job, leaves = plain_job("train"), replace(RUNS, phase=DispatchPhase.RECALLED, why="it has ended in a")
    job["metadata"]["uid"] = "uid"
    telling, stored = telling_of(fleet), events.request

    async def slow(method: str, path: str, **how: Any) -> bytes:
        await asyncio.sleep(1)
        return await stored(method, path, **how)

    events.request = slow  # type: ignore[method-assign]
    while fleet.telling.takes(asyncio.get_running_loop().time()):
        pass
    await telling.leaves(job, leaves)
    assert not events.stored, "many others are told first"
    await asyncio.sleep(AT_ONCE * EACH_SECONDS)
    await asyncio.gather(*(telling.held_up(job, NOWHERE, None) for _ in range(2)), telling.leaves(job, leaves))
    assert len(events.stored) == 1
    before = len(events.sent)
    await telling.held_up(job, NOWHERE, None)
    assert len(events.sent) == before, "once told, it is not sent again"
