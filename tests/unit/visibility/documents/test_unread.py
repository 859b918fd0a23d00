"""A client that has read at one replica and goes on at another, which nobody has read, holds nothing that is gone."""

import asyncio
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.visibility.reflector import Reflector
from tests.unit.visibility.world import World, two_queues
from webhook.jobs.reading.record import JobRecord
from webhook.visibility.documents import workload_writer
from webhook.visibility.documents.watch_cache import Expired
from webhook.visibility.documents.workload import workload_name
from webhook.visibility.http.selecting import selection
from webhook.visibility.http.watching import Watch, WatchRequest

pytestmark = pytest.mark.virtual_time


class Replicas:
    """One that is read, and one that is not: both know the same."""

    def __init__(self) -> None:
        self.both = [World(replica=number) for number in (1, 2)]
        self.read, self.idle = self.both

    async def looked_at(self) -> None:
        """Let both note what there is, and then time pass."""
        for world in self.both:
            world.reporter.workloads.note()
            world.reporter.queues.note()
        await self.later(60)

    async def later(self, seconds: float) -> None:
        for world in self.both:
            world.now += seconds
        await asyncio.sleep(seconds)

    def each(self, change: Callable[[World], Any]) -> Any:
        """Let both see a change."""
        job, _ = (change(world) for world in self.both)
        return job

    async def listed(self, resource: str = "workloads") -> int:
        """Read at the one; return the version that its list has."""
        await self.read.reporter.fresh(resource)
        version = self.read.cache.advance()
        await self.later(1)
        return version

    async def told(
        self, version: int, query: dict[str, str] | None = None, resource: str = "workloads"
    ) -> list[tuple[str, str]]:
        """Return what a watch from a version is told at the other."""
        chosen = selection(resource, None, query or {})
        await self.idle.reporter.fresh(resource)
        request = WatchRequest(chosen, version, include="Object", seconds=2)
        lines = [line async for line in Watch(self.idle.cache, request, lambda: self.idle.now).lines()]
        events = [json.loads(line) for line in lines]
        return [(event["type"], event["object"]["rows"][0]["object"]["metadata"]["name"]) for event in events]


def name_of(job: JobRecord) -> str:
    return workload_name(World().reporter.workloads.kinds[job.kind], job.name, job.uid)


def labelled(job: JobRecord, app: str) -> JobRecord:
    assert job.gang is not None
    return replace(job, gang=replace(job.gang, labels={"app": app}))


@pytest.fixture
async def replicas() -> Replicas:
    made = Replicas()
    await made.looked_at()
    return made


async def test_what_went_away_unread_is_deleted(replicas: Replicas) -> None:
    job = replicas.each(lambda world: world.waits("job"))
    version = await replicas.listed()
    replicas.idle.reporter.workloads.note()
    replicas.each(lambda world: world.view.drop_job(job))
    replicas.idle.reporter.workloads.note()
    assert await replicas.told(version) == [("DELETED", name_of(job))]


async def test_what_came_and_went_between_two_looks_is_deleted(replicas: Replicas) -> None:
    job = replicas.each(lambda world: world.waits("job"))
    version = await replicas.listed()
    replicas.each(lambda world: world.view.drop_job(job))
    assert await replicas.told(version) == [("DELETED", name_of(job))]


async def test_what_goes_away_before_an_open_watch_has_looked_at_it_is_deleted(replicas: Replicas) -> None:
    job = replicas.each(lambda world: world.waits("job"))
    version = await replicas.listed()
    request = WatchRequest(selection("workloads", None, {}), version, seconds=5)
    lines = Watch(replicas.idle.cache, request, lambda: replicas.idle.now).lines()
    first = asyncio.create_task(anext(lines))  # type: ignore[arg-type]
    await asyncio.sleep(1)
    replicas.each(lambda world: world.view.drop_job(job))
    replicas.idle.reporter.workloads.note()
    assert json.loads(await first)["type"] == "DELETED"


async def test_what_held_quota_without_a_job_and_gave_it_back_unread_is_deleted(replicas: Replicas) -> None:
    job = replicas.each(lambda world: world.waits("job"))
    reservations = [world.admits(job) for world in replicas.both]
    replicas.each(lambda world: world.view.drop_job(job))
    version = await replicas.listed()
    replicas.idle.reporter.workloads.note()
    for world, reservation in zip(replicas.both, reservations, strict=True):
        world.releases(reservation)
    assert await replicas.told(version) == [("DELETED", name_of(job))]


@pytest.mark.parametrize("was_read", [False, True])
async def test_what_left_the_selection_unread_is_deleted(replicas: Replicas, was_read: bool) -> None:
    job = replicas.each(lambda world: world.waits("job"))
    if was_read:
        await replicas.idle.reporter.fresh("workloads")
    reservations = [world.admits(job) for world in replicas.both]
    query = {"fieldSelector": "status.admission.clusterQueue=vision"}
    version = await replicas.listed()
    replicas.idle.reporter.workloads.note()
    for world, reservation in zip(replicas.both, reservations, strict=True):
        world.releases(reservation)
        world.view.put_job(replace(job, resource_version=9))
    assert await replicas.told(version, query) == [("DELETED", name_of(job))]


@pytest.mark.parametrize("leaves", [False, True])
async def test_what_was_first_written_here_long_after_it_was_read_elsewhere_is_deleted(
    replicas: Replicas, leaves: bool
) -> None:
    job = replicas.each(lambda world: world.waits("job", labels={"app": "a"}))
    version = await replicas.listed()
    await replicas.later(10)
    await replicas.idle.reporter.fresh("workloads")
    await replicas.later(10)
    if leaves:
        replicas.each(lambda world: world.view.put_job(labelled(job, "b")))
    else:
        replicas.each(lambda world: world.view.drop_job(job))
    assert await replicas.told(version, {"labelSelector": "app=a"}) == [("DELETED", name_of(job))]


async def test_a_queue_that_was_first_written_here_long_after_it_was_read_elsewhere_is_deleted(
    replicas: Replicas,
) -> None:
    version = await replicas.listed("queues")
    await replicas.later(10)
    await replicas.idle.reporter.fresh("queues")
    await replicas.later(10)
    policy = two_queues()
    for world in replicas.both:
        world.view.policy = replace(policy, local_queues={})
    found = await replicas.told(version, resource="queues")
    assert [name for kind, name in found if kind == "DELETED"] == ["jobs", "jobs"]


async def test_what_was_selected_for_a_while_unread_is_deleted_though_it_is_written_as_before(
    replicas: Replicas,
) -> None:
    job = replicas.each(lambda world: world.waits("job", labels={"app": "b"}))
    await replicas.idle.reporter.fresh("workloads")
    await replicas.later(30)
    replicas.each(lambda world: world.view.put_job(labelled(job, "a")))
    replicas.idle.reporter.workloads.note()
    version = await replicas.listed()
    await replicas.later(20)
    replicas.each(lambda world: world.view.put_job(job))
    assert await replicas.told(version, {"labelSelector": "app=a"}) == [("DELETED", name_of(job))]


class Uncopied(Mapping[str, str]):
    """Labels that nobody may go through."""

    def __getitem__(self, label: str) -> str:
        raise AssertionError(label)

    def __iter__(self) -> Iterator[str]:
        raise AssertionError

    def __len__(self) -> int:
        return 10_000


async def test_what_went_away_unread_costs_no_more_where_it_had_many_labels(replicas: Replicas) -> None:
    job = replicas.each(lambda world: world.waits("job", labels={"app": "a"}))
    version = await replicas.listed()
    assert job.gang is not None
    replicas.idle.view.put_job(replace(job, gang=replace(job.gang, labels=Uncopied())))
    replicas.idle.reporter.workloads.note()
    replicas.each(lambda world: world.view.drop_job(job))
    replicas.idle.reporter.workloads.note()
    assert await replicas.told(version, {"fieldSelector": "metadata.name=other"}) == []
    for query in ({"labelSelector": "app=a"}, {"fieldSelector": f"metadata.name={name_of(job)}"}):
        assert await replicas.told(version, query) == [("DELETED", name_of(job))]


@pytest.mark.parametrize("seed", range(30))
async def test_who_goes_from_one_replica_to_the_other_holds_what_is_selected(seed: int) -> None:
    """Each replica writes only when it is read, and sees every change at once."""
    chance, replicas = random.Random(seed), Replicas()
    await replicas.looked_at()
    jobs: dict[str, JobRecord] = {}
    client = Reflector()
    chosen = selection("workloads", None, {"labelSelector": "app=a"})
    for number in range(120):
        name, app = chance.choice("xyz"), chance.choice("aab")
        if name not in jobs:
            jobs[name] = replicas.each(
                lambda world, key=f"{name}{number}", app=app: world.waits(key, labels={"app": app})
            )  # type: ignore[misc]
        elif chance.random() < 0.4:
            gone = jobs.pop(name)
            replicas.each(lambda world, gone=gone: world.view.drop_job(gone))  # type: ignore[misc]
        else:
            changed = jobs[name] = labelled(jobs[name], app)
            replicas.each(lambda world, changed=changed: world.view.put_job(changed))  # type: ignore[misc]
        for world in replicas.both:
            world.reporter.workloads.note()
        await replicas.later(chance.choice((0.2, 1, 10)))
        if chance.random() < 0.5:
            continue
        world = chance.choice(replicas.both)
        await world.reporter.fresh("workloads")
        if chance.random() < 0.3:
            # It reads without the client.
            continue
        seconds = chance.choice((0.2, 31))
        request = WatchRequest(chosen, client.version, initial_end=True, bookmarks=True, seconds=seconds)
        await client.follow(Watch(world.cache, request, lambda world=world: world.now))  # type: ignore[misc]
        assert client.held == {
            name_of(it) for it in jobs.values() if it.gang is not None and it.gang.labels["app"] == "a"
        }


async def test_a_queue_that_went_away_unread_is_deleted(replicas: Replicas) -> None:
    version = await replicas.listed("queues")
    policy = two_queues()
    (place, handle), _ = policy.local_queues.items()
    for world in replicas.both:
        world.view.policy = replace(policy, queues={"vision": policy.queues["vision"]}, local_queues={place: handle})
    found = await replicas.told(version, resource="queues")
    assert [name for kind, name in found if kind == "DELETED"] == ["speech", "jobs"]


async def test_nothing_is_written_of_what_changes_unread(replicas: Replicas) -> None:
    job = replicas.each(lambda world: world.waits("job"))
    replicas.idle.reporter.workloads.note()
    replicas.each(lambda world: world.view.put_job(replace(job, resource_version=9)))
    before = replicas.idle.cache.version
    replicas.idle.reporter.workloads.note()
    assert replicas.idle.cache.version == before
    assert replicas.idle.cache.documents("workloads", None) == []


async def test_a_watch_lists_again_where_more_went_away_unread_than_is_noted(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload_writer, "BEFORE_MAX", 1)
    jobs = [replicas.each(lambda world, name=name: world.waits(name)) for name in ("a", "b")]  # type: ignore[misc]
    version, own = await replicas.listed(), replicas.idle.cache.advance()
    replicas.idle.reporter.workloads.note()
    for job in jobs:
        replicas.idle.view.drop_job(job)
    replicas.idle.reporter.workloads.note()
    with pytest.raises(Expired):
        replicas.idle.cache.position(version)
    assert replicas.idle.cache.position(own) == own
    await replicas.later(60)
    assert replicas.idle.cache.position(await replicas.listed())


async def test_a_watch_lists_again_where_a_replica_had_not_read_everything_yet() -> None:
    replicas = Replicas()
    await replicas.later(60)
    version = await replicas.listed()
    replicas.idle.view.unsynced.add("Jobs")
    for _ in range(2):
        replicas.idle.reporter.workloads.note()
        with pytest.raises(Expired):
            replicas.idle.cache.position(version)
        await replicas.later(60)
        version = await replicas.listed()
    replicas.idle.view.unsynced.clear()
    replicas.idle.reporter.workloads.note()
    assert replicas.idle.cache.position(version)
