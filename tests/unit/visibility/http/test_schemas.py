"""Every field that documents carry is described, so that kubectl explain leaves nothing out."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.visibility.documents.test_queues import seeds_tree
from tests.unit.visibility.world import NOW, World
from webhook.jobs.reading.ended import Ended
from webhook.jobs.reading.record import Requeue
from webhook.visibility.http.schemas import SCHEMAS


def undescribed(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    if isinstance(value, dict):
        if "additionalProperties" in schema:
            return
        for name, part in value.items():
            if name not in schema.get("properties", {}):
                yield f"{path}.{name}"
            else:
                yield from undescribed(part, schema["properties"][name], f"{path}.{name}")
    elif isinstance(value, list):
        for part in value:
            yield from undescribed(part, schema.get("items", {}), path)


@pytest.mark.virtual_time
async def test_every_field_of_every_document_is_described() -> None:
    world = World()
    world.admits(world.waits("first", cpu=3, pods=2, quorum=1))
    job = world.waits("late", cpu=3, pods=1)
    requeue = Requeue("PodsReadyTimeout", NOW, 1, NOW + 60, "too slow")
    world.view.put_job(replace(job, requeue=requeue, ended={"main": Ended(1, 1)}, gives_back=True))
    documents = await world.documents("workloads") + await world.documents("queues")
    documents += await seeds_tree().documents("queues")
    assert len(documents) > 6
    for document in documents:
        for part in ("spec", "status"):
            assert not list(undescribed(document[part], SCHEMAS[document["kind"]][part], part))
