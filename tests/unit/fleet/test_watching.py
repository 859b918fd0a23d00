"""What a hub's watches keep of a member is names, and no more of them than an honest member has."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from tests.unit.kube.fake_api import FakeApi, thing
from webhook import errors
from webhook.fleet import watching
from webhook.fleet.members.member import Member
from webhook.fleet.watching import KEY_CHARACTERS_MAX, PAGE_KEYS_MAX
from webhook.jobs.kinds.registry import KINDS
from webhook.kube.informer import Informer

pytestmark = pytest.mark.virtual_time
PLACED = [KINDS["Job.batch"], KINDS["PyTorchJob.kubeflow.org"]]


@asynccontextmanager
async def running(informers: Iterable[Informer[Any]]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(each.run()) for each in informers]
    await asyncio.sleep(1)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_copies_that_are_followed_are_bounded_over_all_kinds_and_those_go_on_being_followed() -> None:
    api, changes = FakeApi(), []
    api.objects = [thing(f"job-{number}", 1) for number in range(5)]

    def changed(kind: str, old: Any, new: Any) -> None:
        changes.append((kind, None if old is None else old.name, None if new is None else new.name))

    informers = watching.copies(api, PLACED, "hub", changed, name="m1", rng=Random(1), most=7)
    async with running(informers):
        assert sum(len(each.records) for each in informers) == 7
        assert len(changes) == 7
        followed = next(iter(informers[0].records.values())).name
        del changes[:]
        for watch in api.watches:
            watch.say("ADDED", thing("another", 2))
            watch.say("MODIFIED", thing(followed, 3))
        await asyncio.sleep(1)
        assert ("Job.batch/v1", followed, followed) in changes
        assert "another" not in {new for _, _, new in changes}
        del changes[:]
        for watch in api.watches:
            watch.say("DELETED", thing(followed, 4))
            watch.say("ADDED", thing("another", 5))
        await asyncio.sleep(1)
        assert ("Job.batch/v1", None, "another") in changes
        assert sum(len(each.records) for each in informers) <= 7


async def test_of_a_ledgers_page_no_more_entries_are_kept_than_one_can_have_and_no_long_names() -> None:
    api = FakeApi()
    page = thing("tutti-ledger-1", 1)
    api.objects = [{**page, "data": {f"{number:04}": "" for number in range(2 * PAGE_KEYS_MAX)} | {"k" * 65: ""}}]
    index, pages = watching.ledger(api, lambda came, went: None, name="m1", rng=Random(1))
    async with running([index, pages]):
        (seen,) = pages.records.values()
        assert len(seen.keys) == PAGE_KEYS_MAX
        assert max(map(len, seen.keys)) <= KEY_CHARACTERS_MAX


async def test_a_list_of_a_member_is_read_in_pages_even_after_its_pages_ran_out() -> None:
    """An informer asks for all at once then, and the length of that answer is not bounded."""
    api = FakeApi()
    api.objects = [thing(f"job-{number}", 1) for number in range(1_200)]
    informers = watching.copies(Member("m1", api), PLACED[:1], "hub", lambda *_: None, name="m1", rng=Random(1))
    gone, asked = errors.Gone(410, "Expired", "the continue token is too old"), api.request

    async def request(method: str, path: str, **how: Any) -> bytes:
        if len(api.lists) == 1:
            api.faults.append(gone)
        return await asked(method, path, **how)

    api.request = request  # type: ignore[method-assign]
    async with running(informers):
        assert len(informers[0].records) == 1_200
        assert [query.get("limit") for query in api.lists] == ["500"] * 5
