"""Jobs whose namespace takes no events keep no other job from hearing of a fault."""

import asyncio
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import plain_job
from tests.unit.fleet.jobs.test_telling import GANGS, LOOK_SECONDS, RUNS, Events, telling_of
from webhook.clock import LoopClock
from webhook.errors import Forbidden
from webhook.fleet.jobs.fleet import Fleet
from webhook.fleet.members.member import Member
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time


class Refusing(Events):
    """One that refuses those of a namespace, as a quota on events does, or a namespace that ends."""

    async def request(self, method: str, path: str, *, body: bytes = b"", **how: Any) -> bytes:
        if "/namespaces/noisy/" in path:
            raise Forbidden(403, "Forbidden", "exceeded quota: no-events, requested: count/events=1, limited: 0")
        return await super().request(method, path, body=body, **how)


@pytest.mark.parametrize("noisy", [0, GANGS])
async def test_a_namespace_that_refuses_events_keeps_no_other_from_hearing_of_a_silent_member(noisy: int) -> None:
    async with SimulatedCluster(Random(1)) as cluster:
        events = Refusing()
        silent, answers = Member("a", cluster.api()), Member("b", cluster.api())
        silent.health.note("no route to host")
        fleet = Fleet(events, {"a": silent, "b": answers}, LoopClock())  # type: ignore[arg-type]
        there = RUNS.__class__(RUNS.phase, RUNS.offer, "b", "other", "copy", "1")
        jobs = []
        for number in range(noisy):
            job = plain_job(f"noisy-{number}")
            job["metadata"] |= {"uid": f"noisy-{number}", "namespace": "noisy"}
            telling = telling_of(fleet, "noisy")
            await telling.where(job, there, ["ConfigMap settings is not in the hub"])
            jobs.append((job, telling))
        await asyncio.sleep(300)
        quiet, told = plain_job("quiet"), telling_of(fleet)
        quiet["metadata"]["uid"] = "quiet"
        for _ in range(600 // LOOK_SECONDS):
            for job, telling in jobs:
                await telling.held_up(job, there, None)
            await told.held_up(quiet, RUNS, None)
            await asyncio.sleep(LOOK_SECONDS)
        assert [name for _, name in events.sent] == ["quiet"]
        assert orjson.dumps(events.sent)
