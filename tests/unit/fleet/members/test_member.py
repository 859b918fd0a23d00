"""What a hub keeps of a member's answers is bounded, however much a member says."""

import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
import pytest

from webhook.core.fleet.dispatch import Dispatch, DispatchPhase, Offer
from webhook.core.fleet.proof import Evidence
from webhook.core.notation.names import HEARD, ORIGIN_LABEL
from webhook.errors import NotFound, Unavailable
from webhook.fleet.members.copies import TEXT_MAX
from webhook.fleet.members.member import COPIES_MAX, Member, NoAnswer
from webhook.fleet.members.told import Stop
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.kinds.rest_paths import object_path
from webhook.wire.times import micro_time_text

pytestmark = pytest.mark.virtual_time
JOB, PYTORCH_JOB = KINDS["Job.batch"], KINDS["PyTorchJob.kubeflow.org"]
TRAIN_JOB, RAY_JOB = KINDS["TrainJob.trainer.kubeflow.org"], KINDS["RayJob.ray.io"]
NAMESPACE = "team-a"
MEBIBYTE = 1 << 20
DISPATCH = Dispatch(DispatchPhase.GRANTED, Offer(1, 1), "m1", "cluster", "job-1", "4", "", ())


class Speaker:
    """A member that says so many pages of every list."""

    def __init__(self, pages: int, objects: int, **spec: Any) -> None:
        self._pages, self._objects, self._spec = pages, objects, spec
        self.metadata: dict[str, Any] = {"namespace": "team-a", "uid": "copy", "resourceVersion": "4"}
        self.queries: list[Mapping[str, str]] = []

    async def request(self, method: str, path: str, *, query: Mapping[str, str], **_: Any) -> bytes:
        if path.endswith("/kube-system"):
            return b'{"metadata":{"uid":"cluster"}}'
        self.queries.append(query)
        page = int(query.get("continue", 0)) + 1
        metadata = [{"name": f"job-{page}-{number}", **self.metadata} for number in range(self._objects)]
        items = [{"metadata": each, "spec": self._spec} for each in metadata]
        return orjson.dumps({"metadata": {"continue": str(page) if page < self._pages else ""}, "items": items})


def member(speaker: Any) -> Member:
    return Member("m1", speaker)


async def test_of_copies_as_large_as_they_come_little_is_kept_and_the_list_is_never_in_memory() -> None:
    pages = 60
    speaker = Speaker(pages, 3, filler="x" * MEBIBYTE)
    tracemalloc.start()
    try:
        found, _ = await member(speaker).copies([JOB], "hub")
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == 3 * pages
    assert kept < MEBIBYTE
    # A page as it is made, as it was answered, and its objects; the one before; of 180 MiB in all.
    assert most < 60 * MEBIBYTE


async def test_the_copies_of_all_kinds_together_are_as_many_as_a_member_can_have_or_it_has_not_answered() -> None:
    each = COPIES_MAX // 1_000 // 2
    found, _ = await member(Speaker(each, 1_000)).copies([JOB, PYTORCH_JOB], "hub")
    assert len(found) == COPIES_MAX
    with pytest.raises(NoAnswer, match="m1: it has more than 50,000 copies of this hub"):
        await member(Speaker(each + 1, 1_000)).copies([JOB, PYTORCH_JOB], "hub")


@pytest.mark.parametrize(
    "odd", [{"name": "x" * 254}, {"name": ""}, {"name": 5}, {"namespace": "a/../../b"}, {"namespace": None}]
)
async def test_a_copy_whose_name_no_api_server_takes_is_asked_for_nowhere(odd: dict[str, Any]) -> None:
    """By that name the hub would ask its own cluster."""
    speaker = Speaker(1, 1)
    speaker.metadata |= odd
    with pytest.raises(NoAnswer, match="namespace or name"):
        await member(speaker).copies([JOB], "hub")


async def test_the_texts_that_are_kept_of_a_copy_are_cut() -> None:
    long = "x" * (MEBIBYTE // 4)
    speaker = Speaker(1, 1)
    speaker.metadata |= {
        "uid": long,
        "resourceVersion": long,
        "labels": {ORIGIN_LABEL: long},
        "annotations": {"tutti.dev/offer": f"{long} 1.1"},
    }
    ((found,), _) = await member(speaker).copies([JOB], "hub")
    assert {len(each) for each in (found.copy.uid, found.copy.version, found.copy.hub, found.copy.job)} == {TEXT_MAX}


async def test_a_kind_that_a_member_cannot_show_yet_does_not_make_it_silent() -> None:
    """So an API server answers who reads first a kind that was just defined, as a sweep reads all of them."""

    class Begins(Speaker):
        async def request(self, method: str, path: str, *, query: Mapping[str, str], **how: Any) -> bytes:
            if path.endswith("/pytorchjobs"):
                raise Unavailable(429, "TooManyRequests", "storage is (re)initializing")
            return await super().request(method, path, query=query, **how)

    begins = member(Begins(1, 0))
    with pytest.raises(NoAnswer, match="m1: 429 TooManyRequests: storage is"):
        await begins.copies([PYTORCH_JOB], "hub")
    assert not begins.health.failure
    assert await begins.copies([JOB], "hub") == ([], {})


async def test_of_pods_that_are_left_the_first_is_enough() -> None:
    speaker = Speaker(1_000, 1)
    assert not await member(speaker).gone(Evidence.PODS, JOB, "team-a", "train", DISPATCH)
    assert len(speaker.queries) == 1


async def test_what_another_cluster_by_its_name_does_not_have_is_not_known_to_be_gone() -> None:
    empty, which = member(Speaker(1, 0)), (JOB, "team-a", "job-1")
    assert await empty.gone(Evidence.PODS, *which, DISPATCH)
    assert not await empty.gone(Evidence.PODS, *which, replace(DISPATCH, cluster="another cluster"))


async def test_pods_are_gone_only_where_the_list_is_read_to_its_end_and_served() -> None:
    class Absent(Speaker):
        async def request(self, method: str, path: str, *, query: Mapping[str, str], **how: Any) -> bytes:
            if path.endswith("/pods"):
                raise NotFound(404, "NotFound", "the server could not find the requested resource")
            return await super().request(method, path, query=query, **how)

    where = (Evidence.PODS, JOB, "team-a", "train", DISPATCH)
    assert await member(Speaker(1, 0)).gone(*where)
    with pytest.raises(NoAnswer, match="does not end"):
        await member(Speaker(2, 0)).gone(*where)
    assert not await member(Absent(1, 0)).gone(*where)


async def test_the_last_word_on_why_a_copy_waits_is_taken_of_events_in_any_order() -> None:
    class Events(Speaker):
        async def request(self, method: str, path: str, **_: Any) -> bytes:
            items = [{"lastTimestamp": f"2026-01-01T00:00:0{each}Z", "message": f"word {each}"} for each in (1, 3, 2)]
            return orjson.dumps({"metadata": {}, "items": items})

    assert (await member(Events(1, 1)).told.why_waiting("team-a", "copy")).why == "word 3"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({}, ""),
        ({"FailedCreate": "no account nobody"}, ""),
        ({"Evicted": "PodsReadyTimeout: only 0 of 1"}, "PodsReadyTimeout: only 0 of 1"),
        (
            {"Evicted": "PodsReadyTimeout: only 0 of 1", "FailedCreate": "no account nobody"},
            "PodsReadyTimeout: only 0 of 1; no account nobody",
        ),
        *(
            (
                {"Evicted": "PodsReadyTimeout: only 0 of 1", reason: "it exists", "Unhealthy": "no matter"},
                "PodsReadyTimeout: only 0 of 1; it exists",
            )
            for reason in ("FailedCreatePod", "FailedToCreateRayCluster", "TrainJobResourcesCreationFailed")
        ),
    ],
    ids=str,
)
async def test_why_a_copy_was_stopped_is_told_with_what_its_controller_could_not_create(
    said: dict[str, str], told: str
) -> None:
    class Events(Speaker):
        async def request(self, method: str, path: str, *, query: Mapping[str, str], **_: Any) -> bytes:
            _, _, reason = query["fieldSelector"].partition(",reason=")
            kept = {each for each in said if (each == reason if reason else each != "Evicted")}
            when = (
                {"eventTime": "2026-01-01T00:00:00.5Z"} if len(said) > 2 else {"lastTimestamp": "2026-01-01T00:00:00Z"}
            )
            items = [{**when, "reason": each, "message": said[each]} for each in sorted(kept)]
            return orjson.dumps({"metadata": {}, "items": items})

    tells = member(Events(1, 1)).told
    stop = await tells.why_stopped("team-a", "copy")
    assert stop.why == told
    assert bool(stop.which) is bool(told)
    assert await tells.why_stopped("team-a", "copy", earlier=stop.which) == Stop(), "that is known"


@pytest.mark.parametrize(("ago", "promised"), [(10, 300), (-1, 300), (61, 0), (-3600, 0)])
async def test_a_promise_for_a_renewal_of_another_time_is_none_though_the_hubs_clock_was_set_back(
    ago: int, promised: int
) -> None:
    """Else a member whose Tutti is down would seem to promise something until the clock is there again."""
    now = 1_800_000_000.0

    class Lease:
        async def request(self, method: str, path: str, **_: Any) -> bytes:
            heard = f"{micro_time_text(now - ago)} {now:.3f} 300"
            return orjson.dumps({"metadata": {"annotations": {HEARD: heard}}})

    asked = member(Lease())
    await asked.renew("hub", now)
    assert asked.stops_after_seconds == promised


class Stored:
    """A member in which something may have the name that the controller of a copy needs for what it makes."""

    def __init__(self, kind: JobKind = TRAIN_JOB, **taken: Any) -> None:
        self._found = {"/api/v1/namespaces/kube-system": {"metadata": {"uid": "cluster"}}}
        if taken and kind.namesake is not None:
            self._found[object_path(kind.namesake, NAMESPACE, "train")] = {"metadata": taken}
        self.asked: list[str] = []

    async def request(self, method: str, path: str, **_: Any) -> bytes:
        self.asked.append(path)
        if path not in self._found:
            raise NotFound(404, "NotFound", f"{path} not found")
        return orjson.dumps(self._found[path])


def controlled_by(kind: JobKind, name: str) -> dict[str, Any]:
    owner = {"apiVersion": kind.api_version, "kind": kind.kind, "name": name, "uid": "job-1"}
    return {"ownerReferences": [owner | {"controller": True}]}


@pytest.mark.parametrize(("kind", "needed"), [(TRAIN_JOB, "JobSet"), (RAY_JOB, "Job")], ids=["TrainJob", "RayJob"])
async def test_a_job_is_not_offered_where_what_its_controller_makes_by_its_name_is_somebody_elses(
    kind: JobKind, needed: str
) -> None:
    for taken, by in (
        ({}, ""),
        ({"uid": "a tenant's"}, needed),
        ({"uid": "of the copy", **controlled_by(kind, "train")}, ""),
        ({"uid": "of another", **controlled_by(kind, "eval")}, needed),
    ):
        for phase in (DispatchPhase.NOWHERE, DispatchPhase.OFFERED):
            sight = (await member(Stored(kind, **taken)).look(kind, NAMESPACE, "train", phase)).sight
            assert sight.taken_by == by


async def test_what_has_the_name_is_asked_only_while_the_gang_may_go_elsewhere_and_of_no_other_kind() -> None:
    for kind, phase in ((TRAIN_JOB, DispatchPhase.GRANTED), (PYTORCH_JOB, DispatchPhase.NOWHERE)):
        stored = Stored(uid="a tenant's")
        assert not (await member(stored).look(kind, NAMESPACE, "train", phase)).sight.taken_by
        assert not [path for path in stored.asked if "jobsets" in path]
