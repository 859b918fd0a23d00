"""``tutti explain`` in a hub: which member has the job, and why not the others."""

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from tests.unit.commands.test_views import Answers
from tests.unit.visibility.world import World
from webhook.commands.show.dispatched import dispatched
from webhook.commands.show.gang import print_placed, print_workload
from webhook.commands.show.reading import workloads_of
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.core.notation import names
from webhook.core.notation.moments import time_text
from webhook.errors import Forbidden
from webhook.visibility.http.group import ROOT

pytestmark = pytest.mark.virtual_time
PATH = "/apis/batch/v1/namespaces/team-vision/jobs/train"
SUSPENDED = "none: it is suspended, and is offered to members once its queue admits it, or its owner resumes it"
DESCRIBE = "kubectl amc describe job train -n team-vision -m left"
NOW = 1_800_000_000.0
EVENTS = "/api/v1/namespaces/team-vision/events"
WHY = "right says WaitingForQuota: needs 2 more cpu"


def job(record: dict[str, Any] | str | None = None, **spec: Any) -> dict[str, Any]:
    notes = {} if record is None else {names.DISPATCH: record if isinstance(record, str) else json.dumps(record)}
    metadata = {"name": "train", "namespace": "team-vision", "uid": "u", "annotations": notes}
    return {"metadata": metadata, "spec": {"managedBy": names.HUB_MANAGER, **spec}}


def record(phase: str, **more: Any) -> dict[str, Any]:
    return {"phase": phase, "offer": "1.1", "member": "left", "cluster": "c", "copy": "d", **more}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (job(), [("member", "none yet: the log of tutti hub says which member it waits for")]),
        (
            job(suspend=True),
            [("member", SUSPENDED)],
        ),
        (job(record("offered", elsewhere=[WHY])), [("member", "left is asked for room"), ("elsewhere", WHY)]),
        (
            job(record("offered", waits="says WaitingForQuota: 1 more", elsewhere=["middle does not answer", WHY])),
            [
                ("member", "left is asked for room, and says WaitingForQuota: 1 more"),
                ("elsewhere", "middle does not answer"),
                ("", WHY),
            ],
        ),
        (
            job({"phase": "nowhere", "offer": "1.1", "elsewhere": ["middle does not answer", WHY]}),
            [("member", "none yet: middle does not answer"), ("", WHY)],
        ),
        (
            job({"phase": "nowhere", "offer": "1.1", "elsewhere": ["middle does not answer", WHY]}, suspend=True),
            [("member", SUSPENDED)],
        ),
        (
            job(record("granted"), suspend=True),
            [("member", "left has it, and stops it as soon as it hears of this: it is suspended in the hub")],
        ),
        (
            job(record("offered", waits="does not answer")),
            [("member", "left is asked for room, and does not answer")],
        ),
        (
            job(record("offered", elsewhere=[WHY], never="true")),
            [
                ("member", "left is asked for room"),
                ("elsewhere", WHY),
                (
                    "in all",
                    "it can start in no member that it may run in, whatever ends: change the job, or what they have",
                ),
            ],
        ),
        (job(record("granted", never="true")), [("member", "left has it")]),
        (job(record("granted", elsewhere=[WHY])), [("member", "left has it"), ("passed over", WHY)]),
        (
            job(record("granted", waits="has stopped it (Preempted)", elsewhere=[WHY])),
            [("member", "it is granted to left, which has stopped it (Preempted)")],
        ),
        (
            job(record("granted", waits="refuses its permit (403 Forbidden), and is asked again every 5 s")),
            [
                (
                    "member",
                    "it is granted to left, which refuses its permit (403 Forbidden), and is asked again every 5 s",
                )
            ],
        ),
        (
            job(record("granted", waits="has stopped it (PodsReadyTimeout: only 0 of the 1 pod it needs ran)")),
            [
                (
                    "member",
                    "it is granted to left, which has stopped it (PodsReadyTimeout: only 0 of the 1 pod it needs ran)",
                )
            ],
        ),
        (
            job(record("granted")) | {"status": {"conditions": [{"type": "Suspended", "status": "True"}]}},
            [("member", f"left has it, and has stopped it for now: {DESCRIBE}")],
        ),
        (
            job(record("granted")) | {"status": {"conditions": [{"type": "Suspended", "status": "False"}]}},
            [("member", "left has it")],
        ),
        (
            job(record("granted", failed=["right"])),
            [("member", "left has it"), ("failed in", "right")],
        ),
        (
            job({"phase": "nowhere", "offer": "0.0", "suspended": "PropagationPolicy team-vision/p"}, suspend=True),
            [("member", "none: PropagationPolicy team-vision/p suspends dispatching")],
        ),
        (job(record("recalled", why="it has ended in left")), [("member", "it leaves left: it has ended in left")]),
        (
            job(record("recalled", why="it has ended in left", waits="still has pod train-0, which nothing deletes")),
            [("member", "it leaves left: it has ended in left; left still has pod train-0, which nothing deletes")],
        ),
        (
            job({"phase": "nowhere", "offer": "1.1", "why": "left lost it"}),
            [("member", "none yet: left lost it")],
        ),
    ],
)
async def test_each_phase_names_the_member_and_why_not_the_others(
    found: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert await dispatched(Answers(**{PATH: found}), "job/train", "team-vision", NOW) == expected  # type: ignore[arg-type]


async def test_a_job_that_was_made_of_a_copy_is_told_what_keeps_it() -> None:
    found = job(suspend=True)
    found["metadata"]["annotations"][names.OFFER] = "u 1.1"
    ((_, text),) = await dispatched(Answers(**{PATH: found}), "job/train", "team-vision", NOW) or ()  # type: ignore[arg-type]
    assert text == "none: its annotation tutti.dev/offer says that it is a copy, so it waits for a permit: remove that"


async def test_a_broken_record_is_said_to_be_one() -> None:
    ((name, text),) = await dispatched(Answers(**{PATH: job("{")}), "job/train", "team-vision", NOW) or ()  # type: ignore[arg-type]
    assert name == "member"
    assert names.DISPATCH in text
    assert "DispatchUnreadable" in text


@pytest.mark.parametrize(
    "found", [job(managedBy="x.io/y"), job(managedBy=None), Forbidden(403, "Forbidden", "no")], ids=str
)
async def test_of_a_job_that_no_hub_places_or_that_one_may_not_read_nothing_is_said(found: Any) -> None:
    assert await dispatched(Answers(**{PATH: found}), "job/train", "team-vision", NOW) is None  # type: ignore[arg-type]


async def test_pods_that_run_in_a_member_are_not_said_to_be_missing() -> None:
    world = World()
    world.admits(world.waits("train"))
    workloads = {"items": await world.documents("workloads", "team-vision")}
    api = Answers(
        **{f"{ROOT}/namespaces/team-vision/workloads": workloads, PATH: job(record("granted", elsewhere=[WHY]))}
    )
    (document,) = await workloads_of(api, "job/train", "team-vision")  # type: ignore[arg-type]
    out = io.StringIO()
    print_workload(
        Console(file=out, width=160),
        document,
        world.now,
        await dispatched(api, "job/train", "team-vision", NOW),  # type: ignore[arg-type]
    )
    assert "member       left has it" in out.getvalue()
    assert f"passed over  {WHY}" in out.getvalue()
    assert "0 of 2 exist" not in out.getvalue()
    assert "0 exist of 2 pods" not in out.getvalue()


async def test_a_gang_that_no_member_has_taken_waits_though_the_hub_has_room() -> None:
    world = World()
    gang = world.waits("train")
    world.admits(gang)
    known = world.view.jobs[gang.uid]
    world.view.put_job(replace(known, suspended=False, for_a_member=True, resource_version=known.resource_version + 1))
    (document,) = await world.documents("workloads", "team-vision")
    out = io.StringIO()
    print_workload(Console(file=out, width=160), document, world.now, [("member", "left is asked for room")])
    assert out.getvalue().startswith("Job team-vision/train  has waited for ")


async def test_a_gang_that_is_deleted_while_its_member_is_silent_does_not_seem_to_run() -> None:
    world = World()
    gang = world.waits("train")
    world.admits(gang)
    known = world.view.jobs[gang.uid]
    gone = replace(known, for_a_member=True, dispatch=DispatchPhase.GRANTED, deleting=True, ready=True)
    world.view.put_job(replace(gone, resource_version=known.resource_version + 1))
    (document,) = await world.documents("workloads", "team-vision")
    assert printed(document, world).startswith("Job team-vision/train  is being deleted, and was admitted ")


def printed(document: Any, world: World) -> str:
    out = io.StringIO()
    print_workload(Console(file=out, width=160), document, world.now, [("member", "left has it")])
    return out.getvalue()


def test_a_job_of_no_queue_is_shown_with_its_member() -> None:
    out = io.StringIO()
    print_placed(Console(file=out, width=160), "pytorchjob/[x]", "default", [("member", "left has it")])
    assert out.getvalue().splitlines() == [
        "pytorchjob/[x] of namespace default  has no queue here",
        "member  left has it",
    ]


def event(reason: str, age_seconds: int, noted: dict[str, Any] | None, said: str = "no notes on Thursdays") -> Any:
    notes = {} if noted is None else {names.DISPATCH: json.dumps(noted)}
    when = time_text(int(NOW) - age_seconds)
    return {"metadata": {"annotations": notes}, "reason": reason, "message": said, "lastTimestamp": when}


async def warnings(found: dict[str, Any], *events: Any) -> list[str]:
    api = Answers(**{PATH: found, EVENTS: {"items": list(events)}})
    lines = await dispatched(api, "job/train", "team-vision", NOW)  # type: ignore[arg-type]
    return [text for name, text in lines or () if name == "warning"]


async def test_a_refusal_of_the_record_is_named_until_another_one_is_stored() -> None:
    said = ["12s ago: DispatchRefused: no notes on Thursdays"]
    granted = record("granted")
    assert await warnings(job(), event("DispatchRefused", 12, None)) == said
    assert await warnings(job(granted), event("DispatchRefused", 12, granted)) == said
    assert await warnings(job(granted), event("DispatchRefused", 12, None)) == []


async def test_a_member_that_is_none_any_more_is_named_beside_the_one_that_has_the_job() -> None:
    granted = record("granted")
    told = event("MemberSilent", 700, granted, "left is not a member of this hub")
    assert await warnings(job(granted), told) == ["11m ago: MemberSilent: left is not a member of this hub"]


async def test_of_each_reason_the_newest_event_is_shown_and_none_that_is_over() -> None:
    told = [event("StatusRefused", age, None, f"{age}") for age in (3601, 1, 5000)]
    assert await warnings(job(), *told) == ["1s ago: StatusRefused: 1"]
    assert await warnings(job(), event("StatusRefused", 5000, None), event("Queued", 1, None)) == []


async def test_an_operator_that_writes_statuses_in_the_hub_is_named_beside_who_has_the_job() -> None:
    granted = record("granted")
    told = event("OperatorInHub", 60, granted, "no member has said that")
    assert await warnings(job(granted), told) == ["60s ago: OperatorInHub: no member has said that"]


async def test_who_may_not_read_events_is_shown_the_member_all_the_same() -> None:
    api = Answers(**{PATH: job(record("granted")), EVENTS: Forbidden(403, "Forbidden", "no")})
    assert await dispatched(api, "job/train", "team-vision", NOW) == [("member", "left has it")]  # type: ignore[arg-type]
