"""In a hub no pod starts of a gang that runs in a member: some controllers do not read ``managedBy``, or have none."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.jobs.objects_of_kinds import NAMES, kind_of, load
from tests.unit.server.reviews import ask, pod, reservation, review, view, with_ledger
from webhook.core.notation import names
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import KINDS, of_hub
from webhook.jobs.patches.marking import marked
from webhook.jobs.pricing.context import NO_CONTEXT
from webhook.jobs.reading.job import read
from webhook.server.handler import ReviewHandler
from webhook.untyped.editing import put

pytestmark = pytest.mark.virtual_time
PLACED = [name for name in NAMES if kind_of(load(name)).dispatchable]


def made_in_hub(name: str) -> tuple[JobKind, Mapping[str, Any]]:
    """Return an object of a kind as a hub stores it."""
    kind = of_hub(KINDS)[kind_of(load(name)).key]
    return kind, marked(kind, put(load(name), ("metadata", "namespace"), "team-a"))


async def answer_to_a_pod(kind: JobKind, obj: Mapping[str, Any], kinds: Mapping[str, JobKind]) -> str:
    """Have the kind's own controller make a pod of a started gang; return why not, nothing where it may."""
    uid = obj["metadata"]["uid"]
    seen = with_ledger(view(fenced=False), reservation(uid, kind=kind.key, name="train"))
    assert kind.suspend is not None
    seen.put_job(read(kinds[kind.key], put(obj, kind.suspend, False), NO_CONTEXT, kinds))
    made = pod(gang=uid, owner=uid)
    made["metadata"]["ownerReferences"][0] |= {"apiVersion": kind.api_version, "kind": kind.kind}
    asked = review(made, user=min(kind.controller_users))
    answer = await ask(ReviewHandler(seen, kinds=kinds), "/validate/pods", asked)
    assert answer.allowed is (not answer.message)
    return answer.message


@pytest.mark.parametrize("name", PLACED)
async def test_a_controller_in_a_hub_makes_no_pod_of_what_runs_in_a_member(name: str) -> None:
    kind, obj = made_in_hub(name)
    said = await answer_to_a_pod(kind, obj, of_hub(KINDS))
    assert "is placed by this hub and runs in a member" in said
    assert said.endswith(f"remove the one that makes pods of {kind.kind}")


@pytest.mark.parametrize("name", PLACED)
async def test_what_no_hub_places_has_its_pods(name: str) -> None:
    """In a hub that is what was stored before it was one."""
    kind, obj = made_in_hub(name)
    before = marked(KINDS[kind.key], put(load(name), ("metadata", "namespace"), "team-a"))
    assert await answer_to_a_pod(kind, before, of_hub(KINDS)) == ""
    if kind.managed_by is None:
        assert await answer_to_a_pod(kind, obj, KINDS) == "", "where no hub is, the annotation means nothing"
    assert names.MANAGED_BY not in before["metadata"].get("annotations", {})
