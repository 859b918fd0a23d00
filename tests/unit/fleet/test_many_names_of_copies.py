"""A member that lists other copies each time fills no memory, and copies that come and go delay nobody for long."""

import asyncio
import itertools
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import NAMESPACE, Fleet, fleet, plain_job
from webhook.core.notation import names
from webhook.errors import Forbidden

pytestmark = pytest.mark.virtual_time
LISTED = 20


async def test_of_copies_that_a_member_lists_no_more_is_kept_than_it_lists() -> None:
    async with fleet("a", "b") as world:
        number = itertools.count()
        lists(world, "a", lambda: [f"forged-{next(number)}" for _ in range(LISTED)])
        await asyncio.sleep(300)
        assert next(number) > 10 * LISTED
        assert len(world.running_hub._sweeper._delayed["a"]) <= LISTED


async def test_copies_of_jobs_that_come_and_go_delay_the_others_once_each() -> None:
    async with fleet("a", "b", starts=False) as world:
        for name in ("one", "two", "train"):
            await world.hub.cluster.create(plain_job(name, runtime="6000s"))
        shown = itertools.cycle([["one"], ["two"]])
        world.start()
        lists(world, "a", lambda: next(shown))
        await world.until(lambda: world.places("Job", "train"), 60)


def lists(world: Fleet, member: str, copies: Any) -> None:
    """Let a member list copies by these names each time, and let none of them be deleted."""
    link = world.links[member]
    request = link.request

    def copy(name: str) -> dict[str, Any]:
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "uid": "u-" + name,
                "resourceVersion": "5",
                "labels": {names.ORIGIN_LABEL: world.running_hub.fleet.uid},
                "annotations": {names.OFFER: "x 1.1"},
            },
            "spec": {"suspend": True},
        }

    async def asked(method: str, path: str, **how: Any) -> bytes:
        *_, plural, name = path.split("/")
        if plural == "jobs" and name.startswith(("forged-", "one", "two")):
            if method == "DELETE":
                raise Forbidden(403, "Forbidden", "no")
            return orjson.dumps(copy(name))
        if method == "GET" and path == "/apis/batch/v1/jobs":
            items = [copy(each) for each in copies()]
            found = {"kind": "JobList", "apiVersion": "batch/v1", "metadata": {"resourceVersion": "9"}, "items": items}
            return orjson.dumps(found)
        return await request(method, path, **how)

    link.request = asked  # type: ignore[method-assign]
