"""What the reconciler writes to pods is asked for once, however late the watch tells what became of it."""

from dataclasses import replace
from typing import Any, cast

from webhook.controllers.gang_record import GangRecords
from webhook.controllers.writes.effects import Effect, Effects, PodWrite
from webhook.core.model.gang import PodPrice
from webhook.core.model.pods import PodRecord
from webhook.errors import ApiError, Conflict, NotFound, Unavailable
from webhook.jobs.reading.record import JobRecord
from webhook.kube.api import Api

POD = PodRecord("p1", "team-a", "train-0", 7, cast(PodPrice, None), gang="g1")


class Empty:
    """A server on which the pod is gone already."""

    async def request(self, *_asked: object, **_more: object) -> bytes:
        """Find nothing."""
        raise NotFound(404, "NotFound", "pods train-0 not found")


async def test_a_pod_that_is_found_gone_is_left_alone_until_the_watch_says_so_too() -> None:
    done: list[ApiError | None] = []
    effects = Effects(cast(Api, Empty()), {}, GangRecords(), 1, lambda _effect, failure: done.append(failure))
    job = cast(JobRecord, _Job())
    effects.start(Effect("stop", job, pods=(PodWrite(POD, None),)))
    await effects.drain()
    assert done == [None], "what was asked for has come about"
    assert effects.stale_pods("g1", [POD])
    assert effects.stale_pods("g1", [replace(POD, resource_version=70, terminating=True)]), "also what is read late"
    assert not effects.stale_pods("g1", [])
    assert not effects.stale_pods("g1", [replace(POD, uid="p2")]), "one of the same name is another"


class Ahead:
    """A server on which the pod was written since it was read."""

    async def request(self, method: str, *_asked: object, **_more: object) -> bytes:
        """Say so to who deletes what was read."""
        if method == "GET":
            return b'{"metadata":{"resourceVersion":"9"}}'
        raise Conflict(409, "Conflict", "the object might have been modified")


async def test_a_pod_that_was_written_since_it_was_read_is_not_asked_for_again_before_it_is_read_again() -> None:
    """While the watch says nothing the API server would be asked as fast as it answers."""
    done: list[ApiError | None] = []
    effects = Effects(cast(Api, Ahead()), {}, GangRecords(), 1, lambda _effect, failure: done.append(failure))
    effects.start(Effect("stop", cast(JobRecord, _Job()), pods=(PodWrite(POD, None),)))
    await effects.drain()
    assert isinstance(done[0], Conflict)
    assert effects.stale_pods("g1", [POD])
    assert not effects.stale_pods("g1", [replace(POD, resource_version=9)])


class Overloaded:
    """A server that says the same as ``Ahead``, and is too busy to show the pod."""

    async def request(self, method: str, *_asked: object, **_more: object) -> bytes:
        """Say so to who deletes what was read."""
        if method == "GET":
            raise Unavailable(429, "TooManyRequests", "retry later")
        raise Conflict(409, "Conflict", "the object might have been modified")


async def test_a_pod_whose_stored_version_cannot_be_read_is_not_asked_for_again_at_once() -> None:
    done: list[ApiError | None] = []
    gangs, job = GangRecords(), cast(JobRecord, _Job())
    effects = Effects(cast(Api, Overloaded()), {}, gangs, 1, lambda _effect, failure: done.append(failure))
    effects.start(Effect("stop", job, pods=(PodWrite(POD, None),)))
    await effects.drain()
    assert isinstance(done[0], Unavailable)
    assert not effects.stale_pods("g1", [POD]), "nobody knows"
    assert effects.resting(job)
    assert effects.retry_delay_seconds("g1") > 0


class _Job:
    uid, key, kind, resource_version = "g1", "team-a/train", "Job", 5

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)
