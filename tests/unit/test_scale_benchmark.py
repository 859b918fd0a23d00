"""What the scale benchmark sees of its jobs, and what makes it fail: a job admitted twice, stopped or lost."""

import asyncio
import json
from typing import Any

import pytest

from benchmarks.running import AGAIN_SECONDS, TTL_SECONDS, UNDER_WAY_MAX, Running
from tests.unit.kube.fake_api import FakeApi
from webhook.core.notation.names import ADMISSION
from webhook.errors import Unavailable


class Stored(FakeApi):
    """Takes what a load writes, and remembers what was deleted, with the loop time."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[tuple[float, str]] = []
        self.write_seconds = 0.0
        self.creating = self.creating_most = 0

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        if method == "GET":
            return await super().request(method, path, **options)
        self._arrived()
        name = path.removesuffix("/status").rpartition("/")[2]
        if method == "POST":
            self.creating += 1
            self.creating_most = max(self.creating_most, self.creating)
            await asyncio.sleep(self.write_seconds)
            self.creating -= 1
            document = json.loads(options["body"])
            document["metadata"] |= {"uid": f"uid-{document['metadata']['name']}", "resourceVersion": "1"}
            self.objects.append(document)
        elif method == "DELETE":
            self.deleted.append((asyncio.get_running_loop().time(), name))
        return b"{}"

    def start(self, number: int, epoch: int = 1) -> None:
        """Start a job as Tutti does, and show it."""
        document = self.objects[number]
        document["spec"]["suspend"] = False
        document["metadata"]["annotations"] = {ADMISSION: json.dumps({"epoch": epoch, "seq": 5})}
        self.now.say("MODIFIED", document)


@pytest.fixture
async def api() -> Stored:
    """Return an API server without jobs."""
    return Stored()


@pytest.fixture
async def jobs(api: Stored):  # type: ignore[no-untyped-def]
    """Yield two jobs that run."""
    found = Running(api, "ours", [("cohort", "queue")])
    following = asyncio.create_task(found.follow())
    bursting = asyncio.create_task(found.burst(2))
    await asyncio.sleep(1)
    for number in range(2):
        api.start(number)
    await bursting
    yield found
    following.cancel()


LEDGER = [{"meta": "{}", "uid-ours-1": "{}"}, {"meta": "{}", "uid-ours-2": "{}"}]


@pytest.mark.virtual_time
async def test_a_job_that_has_ended_is_deleted_as_late_as_its_ttl_says(api: Stored, jobs: Running) -> None:
    letting_go = asyncio.create_task(jobs.let_go())
    began, enough = asyncio.get_running_loop().time(), asyncio.Event()
    loading = asyncio.create_task(jobs.steady(1.0, 60.0, enough))
    await asyncio.sleep(TTL_SECONDS + 0.5)
    letting_go.cancel()
    loading.cancel()
    ((at, name),) = api.deleted
    assert name in ("ours-1", "ours-2")
    assert TTL_SECONDS <= at - began <= TTL_SECONDS + 0.2
    assert jobs.deleted == 1


@pytest.mark.virtual_time
async def test_a_slow_api_server_has_few_requests_of_the_load_and_deletions_wait_for_none(
    api: Stored, jobs: Running
) -> None:
    ending = asyncio.create_task(jobs.steady(1.0, 2.0))
    await asyncio.sleep(3)
    api.write_seconds = 1000.0
    bursting = asyncio.create_task(jobs.burst(2 * UNDER_WAY_MAX))
    await asyncio.sleep(1)
    async with asyncio.timeout(10):
        await jobs.delete_ended()
    assert api.creating_most == UNDER_WAY_MAX
    assert len(api.deleted) == 2
    ending.cancel()
    bursting.cancel()


@pytest.mark.virtual_time
async def test_a_creation_that_the_api_server_cannot_take_is_sent_again_and_told(api: Stored, jobs: Running) -> None:
    api.faults = [Unavailable(500, "InternalError", "failed calling webhook")]
    bursting = asyncio.create_task(jobs.burst(1))
    await asyncio.sleep(2 * AGAIN_SECONDS)
    api.start(2)
    await bursting
    assert jobs.refused.total() == 1
    assert len(api.objects) == 3


@pytest.mark.virtual_time
async def test_what_was_started_once_and_is_in_the_ledger_once_is_as_it_should_be(api: Stored, jobs: Running) -> None:
    assert await jobs.differences(LEDGER) == []
    assert not jobs.faults
    assert list(jobs.first_starts) == [1]


@pytest.mark.virtual_time
async def test_a_job_that_is_admitted_again_or_stopped_is_a_fault(api: Stored, jobs: Running) -> None:
    api.start(0, epoch=2)
    await asyncio.sleep(0.1)
    assert jobs.faults == ["ours-1 was admitted twice: by (1, 5) and by (2, 5)"]
    api.objects[1]["spec"]["suspend"] = True
    api.now.say("MODIFIED", api.objects[1])
    await asyncio.sleep(0.1)
    assert jobs.faults[1:] == ["ours-2 was stopped"]


@pytest.mark.virtual_time
async def test_a_job_that_is_gone_or_has_not_one_entry_is_a_difference(api: Stored, jobs: Running) -> None:
    twice = [*LEDGER, {"meta": "{}", "uid-ours-2": "{}"}]
    assert await jobs.differences(twice) == ["the ledger has uid-ours-2 2 times"]
    assert await jobs.differences(LEDGER[1:]) == ["ours-1 runs without an entry"]
    del api.objects[0]
    assert await jobs.differences(LEDGER) == ["ours-1 is lost", "the ledger has uid-ours-1, which does not run"]
