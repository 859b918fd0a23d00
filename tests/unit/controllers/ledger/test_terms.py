"""A process that loses its lease steps down, follows, answers, and leads again with nothing of its last term."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.ledger.keepers import LossyApi, reservation
from tests.unit.controllers.stage import JOB, LEDGER, queued_cluster, stage, waiting_job
from tests.unit.samples import sample
from webhook import metrics
from webhook.assembly.reconciler import ReconcilerParts, reconciler
from webhook.clock import LoopClock
from webhook.config import Config, Lease
from webhook.controllers.ledger.errors import LeaseLost
from webhook.controllers.ledger.leased_writer import CONFLICTS_MAX
from webhook.controllers.ledger.quarantine import KEPT_SECONDS, PLACES, SINCE, Quarantine
from webhook.controllers.ledger.stored import READ_AT_ONCE, Objects, Stored, project
from webhook.controllers.ledger.terms import Terms
from webhook.controllers.loop.leadership import REST_MAX_SECONDS
from webhook.core.ledger import pages
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.record import Ledger
from webhook.core.notation import names
from webhook.core.notation.moments import time_text
from webhook.core.reasons.reasons import Code
from webhook.errors import ApiError, Conflict, Forbidden, Gone, Invalid, NotFound, Unavailable
from webhook.kube.api import MERGE_PATCH, REQUEST_TIMEOUT_SECONDS
from webhook.kube.election import parse
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time


class Failing:
    """A connection on which writes of the ledger fail, or nothing is answered, as long as a test says so."""

    def __init__(self, api: Any) -> None:
        self._api = api
        self.failure: ApiError | None = None
        self.failed = 0
        """Writes that failed so."""
        self.gone = False
        self.delay_seconds = 0.0
        self.silent: tuple[str, ...] = ()
        """Requests of paths that end so are never answered."""
        self.pages_fail: ApiError | None = None
        """How pages of the ledger are answered when they are changed, or listed by a leader."""
        self.denied: tuple[str, ...] = ()
        """Verbs that are forbidden on ConfigMaps."""
        self.denials = 0
        """Requests of a leader that were, lists and watches left out."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        if self.gone:
            raise Unavailable(0, "ConnectionRefused", "nobody listens")
        try:
            async with asyncio.timeout(more.get("timeout_seconds", REQUEST_TIMEOUT_SECONDS)):
                await asyncio.sleep(self.delay_seconds)
                while path.endswith(self.silent or ("nothing",)):
                    await asyncio.sleep(0.1)
        except TimeoutError as error:
            raise Unavailable(0, "Timeout", "no answer in time", outcome_unknown=method != "GET") from error
        if method in self.denied and "/configmaps" in path:
            self.denials += "query" not in more
            raise Forbidden(403, "Forbidden", "a policy says no")
        listed = method == "GET" and path.endswith("/configmaps") and "watch" not in more["query"]
        by_leader = listed and more["query"].get("limit") == str(READ_AT_ONCE)
        if self.pages_fail is not None and (by_leader or (method == "PATCH" and "-page-" in path)):
            self.failed += 1
            raise self.pages_fail
        # The take-over itself may pass.
        if method == "PATCH" and path == LEDGER and self.failure is not None and b'"job' in more["body"]:
            self.failed += 1
            raise self.failure
        answer: bytes = await self._api.request(method, path, **more)
        return answer


@asynccontextmanager
async def led(lease: Lease | None = None) -> AsyncIterator[tuple[SimulatedCluster, Failing, ReconcilerParts]]:
    """Yield a cluster with a queue, a connection, and the only leader there is, on it."""
    async with queued_cluster() as cluster:
        line = Failing(cluster.api())
        parts = reconciler(line, Config(lease=lease or Lease()), identity="me", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(3)
        assert parts.reconciler.leading
        yield cluster, line, parts
        assert not running.done(), "the process ended"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def index_of(cluster: SimulatedCluster) -> Stored:
    return project(await cluster.api().request("GET", LEDGER))


async def terms(cluster: SimulatedCluster) -> int:
    record = parse((await index_of(cluster)).lease or "")
    assert record is not None
    return record.transitions


async def stored(cluster: SimulatedCluster) -> Ledger:
    return ledger_text.decode((await index_of(cluster)).data)


async def pages_of(cluster: SimulatedCluster) -> list[Stored]:
    return [page async for page in Objects(cluster.api(), 1.0).pages()]


async def test_an_api_server_that_is_gone_for_minutes_ends_no_process_and_work_goes_on_soon_after() -> None:
    async with led() as (cluster, line, parts):
        line.gone = True
        await asyncio.sleep(600)
        assert not parts.reconciler.leading
        await cluster.create(waiting_job())
        line.gone = False
        await asyncio.sleep(2)
        assert parts.reconciler.leading
        # The watches are opened again less often the longer there was no answer.
        await asyncio.sleep(40)
        assert [entry.name for entry in (await stored(cluster)).entries.values()] == ["train"]


async def test_what_only_a_leader_shows_ends_with_its_term() -> None:
    """Another replica leads by then: shown by both it would be counted twice, and by this one for ever."""

    def shown() -> list[float]:
        return [sample(f"tutti_{name}") for name in ("reservations", "ledger_bytes")]

    def waiting() -> float:
        return sample("tutti_waiting_gangs", reason=Code.EXCEEDS_MAX_QUOTA)

    async with led() as (cluster, line, parts):
        await cluster.create(waiting_job())
        await cluster.create(waiting_job("large", pods=50))
        await asyncio.sleep(5)
        leads, epoch = shown(), sample("tutti_ledger_epoch")
        assert (leads[0], waiting()) == (1, 1)
        assert leads[1] > 0
        metrics.LEDGER_PAGES.set(1)
        line.gone = True
        await asyncio.sleep(30)
        assert not parts.reconciler.leading
        assert [*shown(), sample("tutti_ledger_pages"), waiting()] == [0, 0, 0, 0]
        assert sample("tutti_ledger_epoch") == epoch, "what grows goes on from where it was"
        line.gone = False
        await asyncio.sleep(60)
        assert parts.reconciler.leading
        assert (shown(), waiting()) == (leads, 1)


async def test_a_longer_lease_leads_through_an_api_server_that_is_slower_than_the_usual_one() -> None:
    async with led(Lease(lease_seconds=30, renew_seconds=20)) as (cluster, line, parts):
        before = await terms(cluster)
        line.delay_seconds = 3
        await cluster.create(waiting_job())
        await asyncio.sleep(120)
        assert parts.reconciler.leading
        assert await terms(cluster) == before
        assert [entry.name for entry in (await stored(cluster)).entries.values()] == ["train"]


async def test_a_term_is_over_when_its_lease_ran_out_whatever_it_waits_for() -> None:
    """Here for lists that a rebuild of the ledger reads, which are never answered."""
    async with led() as (cluster, line, parts):
        line.silent = ("/pods", "/jobs")
        await cluster.api().request("DELETE", LEDGER)
        await asyncio.sleep(3)
        line.silent = ("/pods", "/jobs", "/tutti-ledger")
        # It was renewed before that, and a renewal that has no answer is on its way when four seconds have passed.
        await asyncio.sleep(4.1)
        assert not parts.reconciler.leading
        line.silent = ()
        await asyncio.sleep(20)
        assert parts.reconciler.leading


@pytest.mark.parametrize(
    "failure",
    [Forbidden(403, "Forbidden", "a policy says no"), Invalid(422, "Invalid", "too long")],
    ids=["forbidden", "invalid"],
)
async def test_a_ledger_that_must_not_be_written_ends_no_process(failure: ApiError) -> None:
    """It steps down, says so, answers why jobs wait, tries again ever more rarely, and goes on once it may."""
    before = sample("tutti_stepped_down_total", why="refused")
    async with led() as (cluster, line, parts):
        line.failure = failure
        uid = (await cluster.create(waiting_job())).uid
        await asyncio.sleep(300)
        tried = sample("tutti_stepped_down_total", why="refused") - before
        assert 3 <= tried <= 12
        assert parts.view.jobs[uid].suspended
        (said,) = await told(cluster, "SteppedDown")
        assert str(failure) in said["note"]
        line.failure = None
        await asyncio.sleep(70)
        assert [entry.name for entry in (await stored(cluster)).entries.values()] == ["train"]
        assert not parts.view.jobs[uid].suspended


@pytest.mark.parametrize(
    "failure",
    [Conflict(409, "Conflict", "another version"), NotFound(404, "NotFound", "not here")],
    ids=["conflict", "not found"],
)
async def test_a_ledger_that_is_never_of_the_version_just_read_is_refused_and_not_asked_as_fast_as_it_answers(
    failure: ApiError,
) -> None:
    async with led() as (cluster, line, parts):
        line.failure = failure
        uid = (await cluster.create(waiting_job())).uid
        await asyncio.sleep(30)
        soon = line.failed
        # Ten a second, and one more at the beginning of each term.
        assert soon < 2 * 30 / 0.1
        await asyncio.sleep(270)
        # As of any other refusal: ever more rarely, and told once.
        assert line.failed - soon <= CONFLICTS_MAX * 270 / (REST_MAX_SECONDS / 2) + CONFLICTS_MAX
        (said,) = await told(cluster, "SteppedDown")
        assert str(failure) in said["note"]
        assert parts.view.jobs[uid].suspended
        line.failure = None
        await asyncio.sleep(70)
        assert [entry.name for entry in (await stored(cluster)).entries.values()] == ["train"]


@pytest.mark.parametrize(
    "failure",
    [
        Gone(410, "Gone", "nothing of that age"),
        Conflict(409, "Conflict", "another version"),
        Unavailable(500, "InternalError", "a webhook is dead"),
    ],
    ids=["gone", "conflict", "unavailable"],
)
async def test_pages_that_cannot_be_taken_over_are_asked_for_ever_more_rarely_and_that_is_told(
    failure: ApiError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "INDEX_BYTES", 10)
    async with led() as (cluster, line, _):
        await cluster.create(waiting_job())
        await asyncio.sleep(10)
        line.pages_fail = failure
        await cluster.create(waiting_job("second"))
        await asyncio.sleep(120)
        soon = line.failed
        await asyncio.sleep(600)
        assert line.failed - soon <= 3 * 600 / (REST_MAX_SECONDS / 2) + 10
        told_of = [*await told(cluster, "LeadingDenied"), *await told(cluster, "SteppedDown")]
        assert any(str(failure) in event["note"] for event in told_of)
        line.pages_fail = None
        await asyncio.sleep(REST_MAX_SECONDS + 20)
        (page,) = await pages_of(cluster)
        assert len(page.data.keys() - {"meta"}) == 2


async def test_a_rebuild_that_cannot_list_the_old_pages_asks_ever_more_rarely_and_says_for_what_it_waits() -> None:
    async with led() as (cluster, line, parts):
        line.pages_fail = Unavailable(500, "InternalError", "its etcd is dead")
        await cluster.api().request("DELETE", LEDGER)
        await cluster.create(waiting_job())
        await asyncio.sleep(100)
        # After 0.5, 1, 2 and 4 s, and each 8 s from then on.
        assert 3 <= line.failed <= 5 + 100 / 8 + 1
        (said,) = await told(cluster, "LedgerRebuildWaits")
        assert "its old pages stay" in said["note"]
        assert "its etcd is dead" in said["note"]
        line.pages_fail = None
        await asyncio.sleep(15)
        assert parts.reconciler.leading
        assert [entry.name for entry in (await stored(cluster)).entries.values()] == ["train"]


DENIED = [("GET",), ("POST",), ("DELETE",), ("PATCH",), ("POST", "DELETE", "PATCH")]


@pytest.mark.parametrize("denied", DENIED, ids="+".join)
@pytest.mark.parametrize("lost", [False, True], ids=["whole", "deleted"])
async def test_whatever_is_denied_on_the_ledgers_objects_ends_no_process(denied: tuple[str, ...], lost: bool) -> None:
    """Neither while it decides nor while it makes the ledger again; it goes on once it may."""
    async with led() as (cluster, line, parts):
        line.denied = denied
        if lost:
            await cluster.api().request("DELETE", LEDGER)
        await cluster.create(waiting_job())
        await asyncio.sleep(200)
        line.denied = ()
        await asyncio.sleep(100)
        assert parts.reconciler.leading
        assert [entry.name for entry in (await stored(cluster)).entries.values()] == ["train"]


async def told(cluster: SimulatedCluster, reason: str) -> list[Any]:
    path = "/apis/events.k8s.io/v1/namespaces/tutti-system/events"
    events = orjson.loads(await cluster.api().request("GET", path))["items"]
    return [event for event in events if event["reason"] == reason]


@pytest.mark.parametrize("denied", [("GET",), ("POST",), ("PATCH",), ("GET", "POST", "DELETE", "PATCH")], ids="+".join)
async def test_who_may_not_lead_says_so_once_and_tries_ever_more_rarely(denied: tuple[str, ...]) -> None:
    async with led() as (cluster, line, parts):
        line.denied = denied
        await cluster.api().request("DELETE", LEDGER)
        await asyncio.sleep(20)
        soon = line.denials
        assert soon >= 2
        await asyncio.sleep(880)
        # A term that ends is followed by a campaign, and by one more request that hands the lease over.
        assert 880 / REST_MAX_SECONDS <= line.denials - soon <= 3 * 880 / (REST_MAX_SECONDS / 2) + 10
        assert not parts.reconciler.leading
        said = [*await told(cluster, "LeadingDenied"), *await told(cluster, "SteppedDown")]
        assert any("a policy says no" in event["note"] for event in said)
        if denied != ("PATCH",):
            assert len(await told(cluster, "LeadingDenied")) == 1
            assert sample("tutti_leading_denied") == 1
        line.denied = ()
        await asyncio.sleep(REST_MAX_SECONDS + 5)
        assert parts.reconciler.leading
        assert sample("tutti_leading_denied") == 0


@pytest.mark.parametrize(
    "failure",
    [Forbidden(403, "Forbidden", "a policy says no"), Unavailable(500, "InternalError", "a webhook is dead")],
    ids=["refused", "unanswered"],
)
async def test_replicas_that_lead_in_turn_and_fail_the_same_way_say_so_once_each(failure: ApiError) -> None:
    """The short term of another is no proof that the ledger can be written again."""
    async with led() as (cluster, line, parts):
        second = Failing(cluster.api())
        other = reconciler(second, Config(), identity="other", clock=LoopClock(), rng=Random(2))
        running = asyncio.create_task(other.run())
        line.failure = second.failure = failure
        await cluster.create(waiting_job())
        await asyncio.sleep(300)
        assert min(line.failed, second.failed) > 1
        notes = {event["note"] for event in await told(cluster, "SteppedDown")}
        assert len(await told(cluster, "SteppedDown")) == 2, notes
        line.failure = second.failure = None
        await asyncio.sleep(70)
        assert parts.reconciler.leading or other.reconciler.leading
        assert [entry.name for entry in (await stored(cluster)).entries.values()] == ["train"]
        assert not running.done(), "the process ended"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_who_alone_is_never_answered_does_not_keep_the_lease_from_the_others() -> None:
    async with led() as (cluster, line, parts):
        other = reconciler(cluster.api(), Config(), identity="other", clock=LoopClock(), rng=Random(2))
        running = asyncio.create_task(other.run())
        line.failure = Unavailable(0, "Timeout", "what is long never arrives")
        await cluster.create(waiting_job())
        await asyncio.sleep(60)
        assert other.reconciler.leading
        assert not parts.reconciler.leading
        assert [entry.name for entry in (await stored(cluster)).entries.values()] == ["train"]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_who_is_denied_for_a_moment_leads_soon_after() -> None:
    async with led() as (cluster, line, parts):
        for _ in range(3):
            line.denied = ("GET", "POST", "PATCH")
            await cluster.api().request("DELETE", LEDGER)
            await asyncio.sleep(3)
            line.denied = ()
            await asyncio.sleep(5)
            assert parts.reconciler.leading
            # A term that has lasted is proof that it may.
            await asyncio.sleep(REST_MAX_SECONDS)


@pytest.mark.parametrize("schema", ["99", "2.5", "1.5", "0", '"3"', '"1"', "true", "[1]"])
async def test_a_ledger_of_another_release_is_left_as_it_is(schema: str) -> None:
    async with led() as (cluster, _, parts):
        newer = {"meta": f'{{"schema":{schema},"epoch":1,"seq":9}}', "something": "else"}
        body = orjson.dumps({"data": newer})
        await cluster.api().request("PATCH", LEDGER, body=body, content_type=MERGE_PATCH)
        await cluster.create(waiting_job())
        await asyncio.sleep(120)
        assert not parts.reconciler.leading
        assert project(await cluster.api().request("GET", LEDGER)).data == newer
        assert not parts.view.ledger_trusted


async def test_pages_of_another_release_stay_though_their_index_is_gone() -> None:
    """To make a ledger again is to delete the pages of the old one: they are all that is left of it."""
    async with led() as (cluster, _, parts):
        meta = '{"schema":3,"epoch":1,"seq":9,"checksum":"0"}'
        metadata = {"name": "tutti-ledger-page-9-1", "namespace": "tutti-system"}
        labels = {names.LEDGER_PAGE: "tutti-ledger"}
        page = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**metadata, "labels": labels}}
        await cluster.create({**page, "data": {"meta": meta, "uid": "what only it knows"}})
        await cluster.api().request("DELETE", LEDGER)
        await cluster.create(waiting_job())
        await asyncio.sleep(120)
        assert [found.data["uid"] for found in await pages_of(cluster)] == ["what only it knows"]
        assert not parts.reconciler.leading
        notes = [event["note"] for event in await told(cluster, "SteppedDown")]
        assert any("tutti-ledger-page-9-1 is left as it is" in note and "delete it" in note for note in notes), notes
        await cluster.api().request("DELETE", LEDGER.replace("tutti-ledger", "tutti-ledger-page-9-1"))
        await asyncio.sleep(REST_MAX_SECONDS + 5)
        assert [entry.name for entry in (await stored(cluster)).entries.values()] == ["train"]


async def test_a_late_retry_of_an_earlier_term_of_the_same_process_does_not_find_its_own_lease() -> None:
    """Nothing is cancelled here, as if a request had been stuck below everything."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        api = LossyApi(cluster.api())
        terms = Terms(
            api,  # type: ignore[arg-type]
            "me",
            Lease(),
            now=LoopClock().now,
        )
        first = terms.begin()
        assert await first.campaign()
        await first.replace(Ledger(1, 1))
        async with terms.held():
            pass
        api.lose_requests = 12
        stuck = asyncio.create_task(first.commit([reservation("a")]))
        await asyncio.sleep(0)
        second = terms.begin()
        while not await second.campaign():
            await asyncio.sleep(0.05)
        with pytest.raises(LeaseLost):
            await stuck
        await second.commit([reservation("b")])
        assert (await stored(cluster)).entries.keys() == {"b"}


async def test_what_a_term_has_begun_has_ended_before_the_next_one_begins() -> None:
    async with stage() as play:
        ended: list[bool] = []

        async def never() -> None:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                ended.append(play.parts.reconciler.leading)
                raise

        play.line.instead_of_start = never
        await play.take_over()
        await play.cluster.create(waiting_job())
        await asyncio.sleep(2)
        begun = play.parts.terms.keeper
        await play.depose(JOB)
        async with asyncio.timeout(30):
            while play.parts.terms.keeper is begun:
                await asyncio.sleep(0)
        assert ended == [False]


async def test_copies_of_broken_ledgers_are_few_and_none_is_kept_for_ever() -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        quarantine, now = Quarantine(cluster.api()), LoopClock().now()

        async def copies() -> list[str]:
            found = orjson.loads(await cluster.api().request("GET", LEDGER.rpartition("/")[0]))["items"]
            return sorted(item["data"]["meta"] for item in found if "quarantine" in item["metadata"]["name"])

        for number in range(len(PLACES) + 3):
            await quarantine.keep({"meta": str(number)}, now + number)
        assert await copies() == [str(number) for number in range(3, len(PLACES) + 3)]
        first = orjson.loads(await cluster.api().request("GET", f"{LEDGER}-quarantine-3"))
        assert first["metadata"]["annotations"] == {SINCE: time_text(int(now) + 3)}, "as any time that people read"
        await quarantine.tidy(now + KEPT_SECONDS + 5)
        assert await copies() == ["5", "6", "7"]


async def test_a_copy_that_a_clock_which_was_ahead_has_dated_is_the_first_to_go_and_no_reason_to_drop_newer_ones() -> (
    None
):
    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        quarantine, now = Quarantine(cluster.api()), LoopClock().now()
        await quarantine.keep({"meta": "ahead"}, now + 10 * KEPT_SECONDS)
        for number in range(len(PLACES)):
            await quarantine.keep({"meta": str(number)}, now + number)
        path = "/api/v1/namespaces/tutti-system/configmaps"
        found = orjson.loads(await cluster.api().request("GET", path))["items"]
        assert sorted(item["data"]["meta"] for item in found if "quarantine" in item["metadata"]["name"]) == list(
            "01234"
        )
