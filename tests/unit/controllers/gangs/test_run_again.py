"""A Workflow that has ended, and whose owner writes that it has not, waits again: it is not adopted above its quota."""

import asyncio
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import stage
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.objects.resources import Resource

pytestmark = pytest.mark.virtual_time
PATH = "/apis/argoproj.io/v1alpha1/namespaces/team-a/workflows/"


def workflow(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "labels": {"tutti.dev/queue-name": "research"},
            "annotations": {"kube-queue/min-resources": "cpu: 4"},
        },
        "spec": {"suspend": True, "entrypoint": "x", "templates": [{"name": "x", "suspend": {}}]},
    }


async def test_what_had_ended_takes_no_quota_of_others_when_it_is_run_again() -> None:
    async with stage() as play:
        play.cluster.server.registry.add(Resource("argoproj.io", "v1alpha1", "workflows", "Workflow", custom=True))
        await play.cluster.create(workflow("one"))
        await play.take_over()

        async def phase(name: str, text: str) -> None:
            body = orjson.dumps({"status": {"phase": text}})
            try:
                await play.admin.request("PATCH", PATH + name, body=body, content_type=MERGE_PATCH)
            finally:
                await asyncio.sleep(20)

        await asyncio.sleep(20)
        assert [str(each.name) for each in (await play.ledger()).entries.values()] == ["one"]
        await phase("one", "Succeeded")
        assert not (await play.ledger()).entries
        await play.cluster.create(workflow("two"))
        await asyncio.sleep(20)
        assert [str(each.name) for each in (await play.ledger()).entries.values()] == ["two"]
        # As ``argo retry`` does; the status of a Workflow is no subresource, and ``edit`` may write it.
        await phase("one", "Running")
        entries = (await play.ledger()).entries.values()
        assert [each.name for each in entries] == ["two"], [(each.name, each.adopted) for each in entries]
