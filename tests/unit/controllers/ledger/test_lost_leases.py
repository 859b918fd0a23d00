"""A lease that was lost is told with a time, by whoever lost it."""

import asyncio
import re

import orjson
import pytest

from tests.unit.controllers.ledger.test_terms import led, told
from tests.unit.controllers.stage import LEDGER
from webhook.clock import LoopClock
from webhook.config import Lease
from webhook.controllers.loop.leadership import REST_MAX_SECONDS
from webhook.core.notation import names
from webhook.kube.api import MERGE_PATCH
from webhook.kube.election import LeaderRecord, render
from webhook.wire.times import unix_seconds

pytestmark = pytest.mark.virtual_time


async def test_a_lost_lease_is_told_with_the_time_of_its_last_renewal_though_nothing_could_be_written_then() -> None:
    """The usual cause, an API server that does not answer, keeps the event from being written at first."""
    async with led() as (cluster, line, parts):
        line.gone = True
        lost_at = LoopClock().now()
        await asyncio.sleep(60)
        assert await told(cluster, "SteppedDown") == []
        line.gone = False
        await asyncio.sleep(30)
        assert parts.reconciler.leading
        (said,) = await told(cluster, "SteppedDown")
    found = re.fullmatch(r"(.*); the lease was renewed last at (\S+Z), ([0-9.]+) s ago", said["note"])
    assert found is not None, said["note"]
    assert found[1] == "the lease could not be renewed in time"
    assert unix_seconds(found[2]) == pytest.approx(lost_at, abs=Lease().renew_seconds)
    assert float(found[3]) == pytest.approx(Lease().renew_seconds, abs=1)
    assert unix_seconds(said["eventTime"]) < lost_at + 10, "when it was lost, not when it could be told"


@pytest.mark.parametrize(
    ("holder", "named"),
    [("somebody", "'somebody' leads, since"), ("\x1b[31m" + "x" * 3000, "xxx")],
    ids=["a name", "no name"],
)
async def test_a_lease_that_another_has_taken_is_told_with_its_name_and_since_when(holder: str, named: str) -> None:
    """Whoever may edit the ledger writes what he likes there: it is told as what it is, and not at length."""
    async with led() as (cluster, _, parts):
        theirs = LeaderRecord(holder, 6, "2026-11-26T06:10:00Z", "2026-11-26T06:10:00Z", 9)
        note = {"metadata": {"annotations": {names.LEASE_ANNOTATION: render(theirs)}}}
        await cluster.api().request("PATCH", LEDGER, body=orjson.dumps(note), content_type=MERGE_PATCH)
        await asyncio.sleep(3)
        assert not parts.reconciler.leading
        (said,) = await told(cluster, "SteppedDown")
        assert said["note"].startswith("the lease is not ours any more: ")
        assert named in said["note"]
        assert "leads, since 2026-11-26T06:10:00Z; the lease was renewed last at 20" in said["note"]
        assert said["note"].isprintable()
        assert "{" not in said["note"]


async def test_a_lease_that_others_take_again_and_again_is_told_once_until_a_term_has_lasted() -> None:
    """Who leads, and since when, differs each time."""
    async with led() as (cluster, _, parts):
        for taken in range(6):
            since = f"2026-11-26T06:1{taken}:00Z"
            theirs = LeaderRecord(f"other_{taken}", 1, since, since, 100 + 10 * taken)
            note = {"metadata": {"annotations": {names.LEASE_ANNOTATION: render(theirs)}}}
            await cluster.api().request("PATCH", LEDGER, body=orjson.dumps(note), content_type=MERGE_PATCH)
            await asyncio.sleep(3)
            assert not parts.reconciler.leading
            # The last one comes after a term that has lasted.
            await asyncio.sleep(REST_MAX_SECONDS + 10 if taken == 4 else 15)
            assert parts.reconciler.leading
        said = [event["note"] for event in await told(cluster, "SteppedDown")]
        assert [note.partition("' leads")[0].partition("'")[2] for note in said] == ["other_0", "other_5"]
