"""What the command line tells people about a job, the queues and the ledger."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.unit.core.worlds import gang, policy, queue
from tests.unit.visibility.world import NOW, World
from webhook.commands import terminal
from webhook.commands.show.gang import print_workload
from webhook.commands.show.ledger import print_ledger
from webhook.commands.show.queue import find_queues, print_queue
from webhook.commands.show.queues import print_queues
from webhook.commands.show.reading import namespace_of, visible_queues, workloads_of
from webhook.core.ledger.record import Claim, Ledger, reserve
from webhook.core.ledger.text import encode
from webhook.core.model.policy import StopPolicy
from webhook.core.notation import names
from webhook.errors import Forbidden, NotFound, Unavailable, WrongName
from webhook.jobs.reading.record import Requeue
from webhook.kube.election import LeaderRecord, render
from webhook.visibility.http.group import ROOT
from webhook.wire.times import micro_time_text

pytestmark = pytest.mark.virtual_time
DEFAULT = {"main": {"cpu": "default"}}


class Answers:
    """An API server with fixed answers; an exception is raised."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        assert method == "GET" or more["query"] == {"dryRun": "All"}
        found = self.answers.get(path, NotFound(404, "NotFound", "not found"))
        if isinstance(found, Exception):
            raise found
        return json.dumps(found).encode()


def printed(write: Any, *arguments: Any) -> str:
    out = io.StringIO()
    write(Console(file=out, width=160), *arguments)
    return out.getvalue()


async def shown(world: World, name: str) -> str:
    workloads = {"items": await world.documents("workloads", "team-vision")}
    api = Answers(**{f"{ROOT}/namespaces/team-vision/workloads": workloads})
    (document,) = await workloads_of(api, f"job/{name}", "team-vision")  # type: ignore[arg-type]
    return printed(print_workload, document, world.now)


async def test_a_waiting_gang_is_explained_with_numbers_holders_and_what_would_help() -> None:
    world = World()
    world.admits(world.waits("first", cpu=3, pods=2))
    world.waits("late", cpu=3, pods=1, created=NOW - 90)
    text = await shown(world, "late")
    assert "Job team-vision/late  has waited for 90s" in text
    assert "first of its queue" in text
    assert "1 × main: 3 cpu" in text
    assert "why       WaitingForQuota" in text
    assert "cpu of flavor default at queue vision: asked 3, used 6, limit 8" in text
    assert "held by   team-vision/first (6)" in text
    assert "needs 1 more cpu" in text


async def test_an_evicted_gang_says_why_and_when_it_is_tried_again() -> None:
    world = World()
    job = world.waits("train")
    world.view.put_job(replace(job, requeue=Requeue("PodsReadyTimeout", NOW, 2, NOW + 60, "only 1 of 2 pods ran")))
    text = await shown(world, "train")
    assert "evicted   PodsReadyTimeout: only 1 of 2 pods ran" in text
    assert "2027-01-15T08:01:00Z (attempt 2)" in text


async def test_a_running_gang_says_where_its_quota_comes_from() -> None:
    world = World()
    world.admits(world.waits("train"))
    text = await shown(world, "train")
    assert "Job team-vision/train  has been starting for" in text
    assert "jobs, of vision" in text
    assert "0 of 2 exist" in text


async def test_a_gang_that_was_scaled_down_says_whose_room_it_holds() -> None:
    world = World()
    job = world.waits("train", pods=8)
    world.admits(job)
    assert job.gang is not None
    assert "holds" not in await shown(world, "train")
    (pod_set,) = job.gang.pod_sets
    smaller = replace(job.gang, pod_sets=(replace(pod_set, count=3),))
    world.view.put_job(replace(job, suspended=False, gang=smaller, resource_version=job.resource_version + 1))
    assert "the room of 8 pods, as admitted, until it ends or is held" in await shown(world, "train")


async def test_a_gang_that_lost_pods_does_not_seem_to_start() -> None:
    world = World()
    job = world.waits("train")
    world.admits(job)
    for ready in (True, False):
        world.now += 10
        job = replace(job, suspended=False, ready=ready, resource_version=job.resource_version + 1)
        world.view.put_job(job)
        text = await shown(world, "train")
    assert "Job team-vision/train  has lacked pods for 0s" in text


SET = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "u", "controller": True}


@pytest.mark.parametrize(
    ("job", "part"),
    [
        ("train", "write KIND/NAME"),
        ("job/", "write KIND/NAME"),
        ("job/nope", "there is no Job 'nope' in namespace team-vision"),
        ("gizmo/nope", "'gizmo' is not a job kind"),
        ("job/free", "exists but is not gated"),
        (
            "job/set-w-0",
            "is a part of JobSet set, .*`tutti explain jobset/set -n team-vision`.*remove its metadata.ownerReferences",
        ),
        ("pod/train-0", "there is no pod 'train-0' in namespace team-vision"),
        ("podgroup/nope", "no plain pods wait or run as PodGroup 'nope' in namespace team-vision"),
    ],
)
async def test_a_job_that_is_not_shown_is_explained_too(job: str, part: str) -> None:
    api = Answers(
        **{
            f"{ROOT}/namespaces/team-vision/workloads": {"items": []},
            "/apis/batch/v1/namespaces/team-vision/jobs/free": {},
            "/apis/batch/v1/namespaces/team-vision/jobs/set-w-0": {"metadata": {"ownerReferences": [SET]}},
        }
    )
    with pytest.raises(WrongName, match=part):
        await workloads_of(api, job, "team-vision")  # type: ignore[arg-type]


async def test_an_absent_and_a_silent_installation_are_told_apart() -> None:
    with pytest.raises(NotFound, match="Tutti is not installed"):
        await workloads_of(Answers(), "job/train", "team-vision")  # type: ignore[arg-type]
    silent = Answers(**{f"{ROOT}/queues": Unavailable(503, "ServiceUnavailable", "no endpoints")})
    with pytest.raises(Unavailable, match="does not answer: no endpoints; `tutti status` says what is down"):
        await visible_queues(silent, "team-vision")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["job", "jobs", "Job", "job.batch", "Job.batch"])
async def test_a_kind_may_be_written_as_kubectl_takes_it(kind: str) -> None:
    world = World()
    world.waits("train")
    api = Answers(**{f"{ROOT}/namespaces/team-vision/workloads": {"items": await world.documents("workloads")}})
    assert len(await workloads_of(api, f"{kind}/train", "team-vision")) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("by", ["label", "owner"])
async def test_a_pod_stands_for_its_gang(by: str) -> None:
    world = World()
    uid = world.waits("train").uid
    told = {"labels": {names.GANG_LABEL: uid}} if by == "label" else {"ownerReferences": [{"uid": uid}]}
    at = "/api/v1/namespaces/team-vision/pods"
    api = Answers(
        **{
            f"{ROOT}/namespaces/team-vision/workloads": {"items": await world.documents("workloads")},
            f"{at}/train-0": {"metadata": told},
            f"{at}/stray": {"metadata": {}},
        }
    )
    (found,) = await workloads_of(api, "pod/train-0", "team-vision")  # type: ignore[arg-type]
    assert found["metadata"]["ownerReferences"][0]["name"] == "train"
    with pytest.raises(WrongName, match="belongs to no gang"):
        await workloads_of(api, "pod/stray", "team-vision")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["podgroup", "PodGroups", "pg"])
async def test_a_gang_of_plain_pods_goes_by_its_pod_group(kind: str) -> None:
    document = {"metadata": {"ownerReferences": [{"kind": "PodGroup", "name": "ring", "apiVersion": "v1"}]}}
    api = Answers(**{f"{ROOT}/namespaces/team-vision/workloads": {"items": [document]}})
    assert await workloads_of(api, f"{kind}/ring", "team-vision") == [document]  # type: ignore[arg-type]


async def test_queues_are_printed_below_their_cohort_with_what_they_borrow() -> None:
    world = World()
    world.admits(world.waits("big", cpu=3, pods=2))
    world.waits("late", cpu=8, pods=1)
    api = Answers(**{f"{ROOT}/queues": {"items": await world.documents("queues")}})
    text = printed(print_queues, await visible_queues(api, "team-vision"))  # type: ignore[arg-type]
    lines = [line.split() for line in text.splitlines()]
    assert lines[1] == ["research", "cohort", "1", "1", "cpu", "6/8"]
    assert ["vision", "BestEffortFIFO", "1", "1", "cpu", "6/4", "≤8", "(+2)"] in lines
    assert text.splitlines()[3].startswith("  vision")


async def test_a_gang_that_is_being_stopped_is_counted_beside_those_that_run() -> None:
    world = World()
    world.admits(world.waits("big", cpu=3, pods=1))
    world.stops(world.admits(world.waits("small", cpu=1, pods=1)), "Preempted")
    documents = await world.documents("queues")
    lines = [line.split() for line in printed(print_queues, documents).splitlines()]
    assert ["vision", "BestEffortFIFO", "0", "1", "(1", "stopping)", "cpu", "4/4", "≤8"] in lines
    (vision,) = find_queues(documents, "vision")
    assert "running   1 (1 stopping)" in printed(print_queue, vision)


async def test_who_may_not_see_the_cluster_sees_the_queues_of_the_namespace() -> None:
    world = World()
    api = Answers(
        **{
            f"{ROOT}/queues": Forbidden(403, "Forbidden", "no"),
            f"{ROOT}/namespaces/team-vision/queues": {"items": await world.documents("queues", "team-vision")},
        }
    )
    text = printed(print_queues, await visible_queues(api, "team-vision"))  # type: ignore[arg-type]
    assert "jobs, of vision" in text


async def test_who_may_see_no_queue_is_told_to_name_a_namespace() -> None:
    forbidden = Forbidden(403, "Forbidden", "no")
    api = Answers(**{f"{ROOT}/queues": forbidden, f"{ROOT}/namespaces/default/queues": forbidden})
    with pytest.raises(Forbidden, match="name a namespace of yours with -n"):
        await visible_queues(api, "default")  # type: ignore[arg-type]


async def test_a_stopped_queue_says_so_and_what_is_in_use_all_the_same() -> None:
    stopped = queue("held", 4, dialect="volcano", stop_policy=StopPolicy.HOLD)
    world = World(policy(stopped))
    world.view.set_ledger(Ledger(1, 1, {"uid": reserve(gang("uid", "held"), "held", {"main": 1}, DEFAULT, 1, NOW)}))
    text = printed(print_queues, await world.documents("queues"))
    assert "Queue held is stopped: Hold; cpu 1/4" in text


async def test_in_a_pipe_no_sentence_is_folded(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    world = World()
    world.admits(world.waits("first", cpu=3, pods=2))
    world.waits("late", cpu=3, pods=1)
    print_workload(terminal.console(), (await world.documents("workloads", "team-vision"))[1], world.now)
    assert "needs 1 more cpu" in capsys.readouterr().out


async def test_gangs_that_wait_for_a_member_of_the_fleet_wait() -> None:
    world = World()
    gang = world.waits("train")
    world.admits(gang)
    known = world.view.jobs[gang.uid]
    world.view.put_job(replace(known, for_a_member=True, resource_version=known.resource_version + 1))
    world.waits("next")
    documents = await world.documents("queues")
    vision = next(line for line in printed(print_queues, documents).splitlines() if "vision" in line)
    assert "2 (1 for a member)" in vision
    assert " 0 " in vision
    (queue,) = [each for each in documents if each["metadata"]["name"] == "vision"]
    assert "waiting   2 (1 for a member)" in printed(print_queue, queue)


async def test_queues_are_listed_with_the_longest_line_first() -> None:
    world = World()
    world.waits("late")
    documents = await world.documents("queues")
    text = printed(print_queues, documents, "waiting")
    waiting = [int(line.split()[2]) for line in text.splitlines()[1:]]
    assert waiting == sorted(waiting, reverse=True)
    assert not any(line.startswith(" ") for line in text.splitlines())


async def test_one_queue_says_from_whom_it_borrows_and_the_other_what_it_lends() -> None:
    world = World()
    world.admits(world.waits("big", cpu=3, pods=2))
    world.waits("late", cpu=8, pods=1)
    documents = await world.documents("queues")
    (borrower,), (lender,) = find_queues(documents, "vision"), find_queues(documents, "speech")
    text = printed(print_queue, borrower)
    assert "borrows   2 cpu from speech" in text
    assert "share     250 of weight 1" in text
    assert text.splitlines()[-2:] == [
        "Resource  Used  Owned  Limit  Free  Borrowed  Lent",
        "cpu          6      4      8     2         2     0",
    ]
    assert printed(print_queue, lender).splitlines()[-1].split() == ["cpu", "0", "4", "8", "2", "0", "2"]
    with pytest.raises(WrongName, match=r"there is no queue 'nope'.*there are .*speech"):
        find_queues(documents, "nope")


async def test_of_queues_of_one_name_that_of_the_given_namespace_is_meant() -> None:
    documents = await World().documents("queues")
    assert len(find_queues(documents, "jobs")) == 2
    (found,) = find_queues(documents, "jobs", "team-speech")
    assert found["spec"]["clusterQueue"] == "speech"
    assert find_queues(documents, "vision", "team-speech")


async def test_a_member_of_a_namespace_sees_the_limit_of_the_queue_behind_theirs() -> None:
    world = World()
    world.admits(world.waits("big", cpu=3, pods=2))
    (handle,) = find_queues(await world.documents("queues", "team-vision"), "jobs")
    lines = printed(print_queue, handle).splitlines()
    assert lines[-2].split()[-2:] == ["Limit", "Free"]
    assert lines[-1].split() == ["cpu", "6", "6", "8", "2"]


async def test_a_member_of_a_namespace_sees_its_queues_while_their_jobs_run() -> None:
    world = World()
    world.admits(world.waits("big", cpu=3, pods=2))
    text = printed(print_queues, await world.documents("queues", "team-vision"))
    assert "jobs, of vision" in text
    assert "cpu 6 ≤8" in text


async def test_a_member_of_a_namespace_sees_the_limit_before_any_job_runs() -> None:
    assert "cpu 0 ≤8" in printed(print_queues, await World().documents("queues", "team-vision"))


async def test_a_cohort_says_what_is_free_in_it() -> None:
    world = World()
    world.admits(world.waits("big", cpu=3, pods=2))
    (cohort,) = find_queues(await world.documents("queues"), "research")
    lines = printed(print_queue, cohort).splitlines()
    assert lines[-2].split()[:5] == ["Resource", "Used", "Owned", "Limit", "Free"]
    assert lines[-1].split()[:5] == ["cpu", "6", "8", "8", "2"]


async def test_without_queues_it_says_what_to_do() -> None:
    assert "apply a ClusterQueue" in printed(print_queues, [])


async def test_the_ledger_names_its_leader_and_every_reservation() -> None:
    world = World()
    world.stops(world.admits(world.waits("train", cpu=2, pods=2)), "Preempted")
    lease = render(LeaderRecord("reconciler-0", 6.0, "then", "now", 1))
    ((uid, held),) = world.view.ledger.entries.items()
    claim = Claim(replace(held, uid="later", name="later", stopping=None), (uid, "has-ended"))
    ledger = world.view.ledger.amended(claims={"later": claim})
    stored = {"metadata": {"annotations": {names.LEASE_ANNOTATION: lease}}, "data": encode(ledger)}
    text = printed(print_ledger, stored, NOW + 60)
    assert "kept for Job team-vision/later (2 pods, queue vision), once gone: Job team-vision/train\n" in text
    assert "leader reconciler-0" in text
    assert ", 1 reservation, " in text
    assert "Job team-vision/train" in text
    assert "4 cpu" in text
    assert "stopping: Preempted" in text
    stored["data"]["meta"] = "{}"
    with pytest.raises(NotFound, match="the leader rebuilds it"):
        printed(print_ledger, stored, NOW)


async def test_a_leader_whose_lease_has_run_out_leads_no_more() -> None:
    lease = LeaderRecord("reconciler-0", 6.0, "2027-01-15T07:00:00Z", micro_time_text(NOW), 1)
    stored = {"metadata": {"annotations": {names.LEASE_ANNOTATION: render(lease)}}, "data": encode(Ledger())}
    assert "leader reconciler-0 for 60m, renewed 5s ago" in printed(print_ledger, stored, NOW + 5)
    assert "renewed 0s ago" in printed(print_ledger, stored, NOW - 5), "renewed while something else was read"
    said = printed(print_ledger, stored, NOW + 90)
    assert "no replica leads: the lease of reconciler-0 expired 84s ago" in said
    assert "leader reconciler-0" not in said


def test_the_namespace_is_that_of_the_current_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    path = tmp_path / "config"
    contexts = [{"name": "a", "context": {"namespace": "team-a"}}, {"name": "b", "context": {}}]
    path.write_text(json.dumps({"current-context": "a", "contexts": contexts}))
    assert namespace_of(None, path) == "team-a"
    assert namespace_of("team-b", path) == "team-b"
    path.write_text(json.dumps({"current-context": "b", "contexts": contexts}))
    assert namespace_of(None, path) == "default"
    assert namespace_of(None, tmp_path / "absent") == "default"
