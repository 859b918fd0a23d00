"""Whoever changes a registration of ours is told at once, also who puts it back before anybody looks."""

import asyncio
import copy
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import orjson
import pytest

from webhook import metrics
from webhook.clock import LoopClock
from webhook.controllers.reporting.events import EventRecorder
from webhook.controllers.reporting.registration_faults import certificates_in, path_of, shipped
from webhook.controllers.reporting.registration_watch import AGAIN_SECONDS, RegistrationWatch
from webhook.jobs.kinds.registry import KINDS
from webhook.kube.api import JSON_PATCH
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time

KIND = "ValidatingWebhookConfiguration"
OURS = b"-----BEGIN CERTIFICATE-----\nb3Vycw==\n-----END CERTIFICATE-----\n"
NEXT = OURS.replace(b"b3Vycw==", b"bmV4dA==")
THEIRS = OURS.replace(b"b3Vycw==", b"dGhlaXJz")


class Watched:
    """What a reconciler says of a cluster's registrations."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.leads = True
        self.told: list[str] = []
        self.lapses = metrics.REGISTRATION_LAPSES._value.get()
        self.mounted = OURS
        api = cluster.api()
        recorder = EventRecorder(api, "me", LoopClock().now, 20)
        recorder.note = lambda regarding, reason, note, **_: self.told.append(note)  # type: ignore[method-assign]
        self.watch = RegistrationWatch(
            api,
            recorder,
            kinds=KINDS,
            exempt=(),
            leading=lambda: self.leads,
            authorities=lambda: certificates_in(self.mounted),
            rng=Random(1),
        )

    async def write(self, *operations: dict[str, Any], kind: str = KIND) -> None:
        """Change a registration."""
        body = orjson.dumps(operations)
        await self.cluster.api().request("PATCH", f"{path_of(kind)}/tutti", body=body, content_type=JSON_PATCH)

    async def announce(self, authority: bytes, kind: str = KIND) -> None:
        """Write an authority into each webhook of a registration."""
        bundle = b64encode(authority).decode()
        document = next(each for each in shipped() if each["kind"] == kind)
        places = [f"/webhooks/{index}/clientConfig/caBundle" for index in range(len(document["webhooks"]))]
        await self.write(*({"op": "add", "path": place, "value": bundle} for place in places), kind=kind)

    @property
    def counted(self) -> tuple[float, float]:
        """Faults that stand, and lapses since the start."""
        return metrics.REGISTRATION_FAULTS._value.get(), metrics.REGISTRATION_LAPSES._value.get() - self.lapses


@asynccontextmanager
async def watched() -> AsyncIterator[Watched]:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        for document in copy.deepcopy(shipped()):
            await cluster.create(document)
        watched = Watched(cluster)
        running = asyncio.create_task(watched.watch.run())
        await asyncio.sleep(1)
        yield watched
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


OUT = {"op": "remove", "path": "/webhooks/0"}


def back() -> dict[str, Any]:
    return {"op": "add", "path": "/webhooks/0", "value": copy.deepcopy(shipped()[1]["webhooks"][0])}


async def test_a_webhook_that_is_taken_out_is_told_at_once_and_counted() -> None:
    async with watched() as seen:
        assert (seen.told, seen.counted) == ([], (0, 0))
        await seen.write(OUT)
        await asyncio.sleep(1)
        assert seen.counted == (1, 0)
        (note,) = seen.told
        assert f"{KIND} tutti: webhook tutti-queue.tutti.dev is missing" in note
        await asyncio.sleep(10 * AGAIN_SECONDS)
        assert len(seen.told) == 1


async def test_who_puts_it_back_at_once_is_told_and_counted_all_the_same() -> None:
    async with watched() as seen:
        await seen.write(OUT)
        await seen.write(back())
        await asyncio.sleep(1)
        taken, put_back = seen.told
        assert "is missing" in taken
        assert f"{KIND} tutti is complete again" in put_back
        assert seen.counted == (0, 1)


async def test_a_registration_that_is_deleted_and_made_again_is_told() -> None:
    async with watched() as seen:
        await seen.cluster.api().request("DELETE", f"{path_of(KIND)}/tutti")
        await seen.cluster.create(copy.deepcopy(shipped()[1]))
        await asyncio.sleep(1)
        gone, put_back = seen.told
        assert f"there is no {KIND} tutti" in gone
        assert "complete again" in put_back
        assert seen.counted == (0, 1)


async def test_a_registration_that_is_not_there_at_the_start_is_told() -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        seen = Watched(cluster)
        running = asyncio.create_task(seen.watch.run())
        await asyncio.sleep(1)
        running.cancel()
        assert sorted(note.partition(" tutti,")[0] for note in seen.told) == [
            "jobs may bypass their queues: there is no MutatingWebhookConfiguration",
            f"jobs may bypass their queues: there is no {KIND}",
        ]
        assert seen.counted == (2, 0)


async def test_states_that_came_and_went_while_nobody_watched_show_in_the_generation() -> None:
    """A list, after a watch was lost, has the last of them alone."""
    async with watched() as seen:
        before = seen.watch._last[KIND]
        assert before is not None
        stored: dict[str, Any] = dict(before.document)
        stored["metadata"]["generation"] += 3
        changed = replace(before, resource_version=before.resource_version + 1, text=orjson.dumps(stored))
        seen.watch._changed(KIND, before, changed)
        await asyncio.sleep(1)
        assert seen.told == [
            f"2 versions of {KIND} tutti came and went while it could not be watched;"
            " check the audit log for who wrote it"
        ]
        assert seen.counted == (0, 1)


async def test_a_write_that_changes_no_webhook_is_nobodys_business() -> None:
    async with watched() as seen:
        await seen.write({"op": "add", "path": "/metadata/labels", "value": {"team": "platform"}})
        await seen.write({"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 9})
        await asyncio.sleep(1)
        assert (seen.told, seen.counted) == ([], (0, 0))


async def test_another_authority_than_ours_is_told_and_the_steps_of_its_rotation_are_not() -> None:
    """Nobody could ask our webhooks: what lets pass when they do not answer would let all pass."""
    async with watched() as seen:
        hooks = len(shipped()[1]["webhooks"])
        for trusted, mounted in ((OURS, OURS), (OURS + NEXT, OURS), (OURS + NEXT, OURS + NEXT), (NEXT, OURS + NEXT)):
            seen.mounted = mounted
            await seen.announce(trusted)
            await asyncio.sleep(1)
            assert (seen.told, seen.counted) == ([], (0, 0)), (trusted, mounted)
        for wrong in (THEIRS, b""):
            seen.told.clear()
            await seen.announce(wrong)
            await asyncio.sleep(1)
            assert "trusts no authority that signs our certificates" in seen.told[0]
            assert seen.counted[0] == hooks
            await seen.announce(NEXT)
            await asyncio.sleep(1)
        assert seen.counted == (0, 2)


async def test_who_comes_to_lead_says_what_stands() -> None:
    async with watched() as seen:
        seen.leads = False
        await seen.write(OUT)
        await asyncio.sleep(1)
        assert (seen.told, seen.counted) == ([], (1, 0))
        seen.leads = True
        await asyncio.sleep(2 * AGAIN_SECONDS)
        assert len(seen.told) == 1
