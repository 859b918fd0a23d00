"""What a gang's Workload document says, state by state."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.visibility.world import NOW, World
from webhook.cluster.waiting import waiting_gang
from webhook.controllers.gangs import requeues
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.core.model.gang import PodPrice
from webhook.core.model.pods import PodRecord
from webhook.core.reasons import eviction
from webhook.core.reasons.reasons import Code, Reason
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.plain_pods.pod_group import PodGroupRecord
from webhook.jobs.reading.ended import Ended
from webhook.jobs.reading.record import Admission, JobRecord, Owner, Requeue
from webhook.visibility.documents.workload import workload_name
from webhook.visibility.http.tables import row

pytestmark = pytest.mark.virtual_time


def condition(document: dict[str, Any], kind: str) -> dict[str, Any]:
    return next((c for c in document["status"]["conditions"] if c["type"] == kind), {})


async def test_a_workload_is_called_as_kueue_calls_it() -> None:
    uid = "46025962-0d11-4472-a180-6cc97fb5802d"
    assert workload_name(KINDS["PyTorchJob.kubeflow.org"], "pytorch-test", uid) == "pytorchjob-pytorch-test-8722d"


async def test_a_long_name_is_cut_so_that_its_hash_fits() -> None:
    name = workload_name(KINDS["Job.batch"], "x" * 253, "uid")
    assert len(name) == 253
    assert name[:4] == "job-"
    assert name[-6] == "-"


async def test_a_waiting_gang_says_why_with_numbers_and_holders() -> None:
    world = World()
    world.admits(world.waits("first", cpu=3, pods=2))
    late = world.waits("late", cpu=3, pods=1)
    document = await world.workload(late)
    reserved = condition(document, "QuotaReserved")
    assert (reserved["status"], reserved["reason"]) == ("False", "WaitingForQuota")
    assert "asks for 3 cpu; queue vision has 8, 6 used; held by team-vision/first (6)" in reserved["message"]
    reason = document["status"]["reason"]
    assert (reason["asked"], reason["used"], reason["limit"]) == ("3", "6", "8")
    assert reason["holders"] == [{"gang": "team-vision/first", "amount": "6"}]
    assert (document["status"]["position"], document["spec"]["queueName"]) == (0, "jobs")
    assert "admission" not in document["status"]
    assert condition(document, "Admitted")["status"] == "False"
    assert condition(document, "Finished") == {}


async def test_a_gang_that_waits_again_wants_what_is_left_of_it() -> None:
    world = World()
    job = world.waits("again", pods=3)
    world.view.put_job(replace(job, ended={"main": Ended(1, 1)}, spared={"main": 1}, gives_back=True))
    document = await world.workload(job)
    assert document["status"]["pods"]["wanted"] == 2
    assert document["status"]["reclaimablePods"] == [{"name": "main", "count": 1}]
    assert document["spec"]["podSets"][0]["count"] == 3, "what its owner wrote, as in Kueue"


async def test_positions_count_who_is_ahead_in_the_same_queue() -> None:
    world = World()
    world.admits(world.waits("holder", cpu=8, pods=1))
    for index, priority in enumerate((1, 5, 3)):
        world.waits(f"j{index}", priority=priority)
    other = world.waits("elsewhere", team="speech")
    found = {d["metadata"]["ownerReferences"][0]["name"]: d for d in await world.documents("workloads")}
    assert [found[f"j{i}"]["status"]["position"] for i in range(3)] == [2, 0, 1]
    assert (await world.workload(other))["status"]["position"] == 0


async def test_an_admitted_gang_shows_its_queue_flavors_and_usage_since_its_reservation() -> None:
    world = World()
    job = world.waits("train", cpu=2, pods=2, created=NOW - 90)
    world.now += 5
    world.admits(job)
    document = await world.workload(job)
    assert document["status"]["admission"] == {
        "clusterQueue": "vision",
        "podSetAssignments": [
            {"name": "main", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "4"}, "count": 2}
        ],
    }
    admitted = condition(document, "Admitted")
    assert (admitted["status"], admitted["lastTransitionTime"]) == ("True", "2027-01-15T08:00:05Z")
    assert document["metadata"]["creationTimestamp"] == "2027-01-15T07:58:30Z"
    assert condition(document, "PodsReady")["status"] == "False"
    assert "reason" not in document["status"]


async def test_a_stopped_gang_is_evicted_with_kueues_reason_and_waits_again() -> None:
    world = World()
    job = world.waits("train")
    reservation = world.admits(job)
    await world.workload(job)
    world.now += 60
    world.stops(reservation, "PodsReadyTimeout")
    evicted = condition(await world.workload(job), "Evicted")
    assert (evicted["status"], evicted["reason"]) == ("True", "PodsReadyTimeout")
    world.releases(reservation)
    requeue = Requeue("PodsReadyTimeout", world.now, 1, world.now + 60, "only 1 of 2 pods ran within 300 s")
    job = replace(job, requeue=requeue, resource_version=9)
    world.view.put_job(job)
    document = await world.workload(job)
    evicted, reserved = condition(document, "Evicted"), condition(document, "QuotaReserved")
    assert (evicted["status"], evicted["message"]) == ("True", "only 1 of 2 pods ran within 300 s")
    assert reserved["status"] == "False"
    assert evicted["lastTransitionTime"] == reserved["lastTransitionTime"] == "2027-01-15T08:01:00Z"
    assert document["status"]["requeueState"] == {"count": 1, "requeueAt": "2027-01-15T08:02:00Z"}


async def test_a_finished_gang_that_still_holds_its_quota_says_until_when() -> None:
    world = World()
    job = world.waits("train", cpu=2, pods=2)
    world.admits(job)
    job = replace(job, suspended=False, finished="Succeeded", finished_seconds=NOW, resource_version=9)
    world.view.put_job(job)
    finished = condition(await world.workload(job), "Finished")
    assert finished["message"] == "The job has succeeded; its quota is being returned"


async def test_a_gang_that_has_failed_says_why_in_its_controllers_words() -> None:
    world = World()
    job = world.waits("train", cpu=2, pods=2)
    failure = "BackoffLimitExceeded: Job has reached the specified backoff limit"
    job = replace(job, suspended=False, finished="Failed", failure=failure, finished_seconds=NOW, resource_version=9)
    world.view.put_job(job)
    assert condition(await world.workload(job), "Finished")["message"] == f"The job has failed: {failure}"


async def test_a_finished_gang_keeps_what_it_was_admitted_with_and_when_it_ended() -> None:
    world = World()
    job = world.waits("train", cpu=1, pods=2)
    reservation = world.admits(job)
    world.releases(reservation)
    admission = Admission(job.uid, 1, 1, "vision", {"main": 2}, {"main": {"cpu": "default"}}, NOW)
    done = replace(
        job, suspended=False, finished="Succeeded", ready=True, admission=admission, finished_seconds=NOW + 30
    )
    world.view.put_job(done)
    document = await world.workload(done)
    finished = condition(document, "Finished")
    assert (finished["status"], finished["reason"]) == ("True", "Succeeded")
    assert finished["lastTransitionTime"] == "2027-01-15T08:00:30Z"
    assert condition(document, "Admitted")["status"] == "True"
    assert document["status"]["admission"]["podSetAssignments"][0]["resourceUsage"] == {"cpu": "2"}


async def test_a_gang_that_its_owner_suspended_is_inactive_and_on_hold() -> None:
    world = World()
    job = world.waits("train", held=True)
    document = await world.workload(job)
    assert document["spec"]["active"] is False
    assert condition(document, "QuotaReserved")["reason"] == "OnHold"


async def test_a_gang_that_its_owner_stops_is_called_on_hold_while_it_stops_and_while_it_waits() -> None:
    """In the event, the ledger and both conditions: whoever looks one word up finds all there is on it."""
    world = World()
    job = world.waits("train")
    reservation = world.admits(job)
    world.stops(reservation, eviction.HELD)
    stopping = await world.workload(job)
    world.releases(reservation)
    world.view.put_job(replace(job, held=True, requeue=requeues.held(job), resource_version=9))
    waiting = await world.workload(job)
    assert condition(stopping, "Evicted")["reason"] == condition(waiting, "Evicted")["reason"] == "OnHold"
    assert waiting["status"]["reason"]["code"] == condition(waiting, "QuotaReserved")["reason"] == "OnHold"


async def test_a_gang_without_a_reservation_that_a_finalizer_keeps_is_terminating() -> None:
    world = World()
    job = replace(world.waits("train"), deleting=True, resource_version=9)
    world.view.put_job(job)
    assert (await world.workload(job))["status"]["reason"]["code"] == "Terminating"


async def test_a_gang_that_is_deleted_says_until_when_it_holds_its_quota() -> None:
    world = World()
    gang = world.waits("train")
    world.admits(gang)
    in_a_hub(world, gang, DispatchPhase.GRANTED)
    known = world.view.jobs[gang.uid]
    world.view.put_job(replace(known, deleting=True, resource_version=known.resource_version + 1))
    (document,) = await world.documents("workloads", "team-vision")
    assert condition(document, "QuotaReserved")["status"] == "True"
    told = document["status"]["reason"]
    assert told["code"] == "Terminating"
    assert "its member of the fleet has said that nothing of it is left" in told["help"]
    world.view.put_job(
        replace(known, deleting=True, dispatch=DispatchPhase.NOWHERE, resource_version=known.resource_version + 2)
    )
    (document,) = await world.documents("workloads", "team-vision")
    assert document["status"]["reason"]["help"] == "its quota returns when no pod is left"


async def test_a_copy_that_was_stopped_because_its_hub_is_silent_is_said_never_to_start_again() -> None:
    world = World()
    job = replace(world.waits("train"), given_up=True, resource_version=9)
    world.view.put_job(job)
    world.engine.withdraw(job.uid)
    reason = (await world.workload(job))["status"]["reason"]
    assert reason["code"] == "Suspended"
    assert "its hub has been silent" in reason["message"]
    assert "never starts again" in reason["help"]


@pytest.mark.parametrize(("gates", "code"), [("tutti.dev/owner", "OnHold"), ("tutti.dev/owner,a/b", "AdmissionGated")])
async def test_a_waiting_gang_is_on_hold_while_nobody_but_its_owner_keeps_it(gates: str, code: str) -> None:
    world = World()
    reason = waiting_gang(replace(world.waits("train"), admission_gates=gates), world.view)
    assert isinstance(reason, Reason)
    assert reason.code == code
    assert ("tutti release" in reason.help) == (code == "OnHold")


async def test_a_reason_that_keeps_a_gang_from_the_engine_is_shown_too() -> None:
    world = World()
    job = world.waits("train")
    world.engine.withdraw(job.uid)
    world.withheld[job.uid] = Reason(Code.POD_GROUP_NOT_FOUND, "PodGroup team-vision/g does not exist")
    assert condition(await world.workload(job), "QuotaReserved")["reason"] == "PodGroupNotFound"


async def test_a_reservation_whose_job_is_gone_is_still_shown() -> None:
    world = World()
    job = world.waits("train")
    world.admits(job)
    world.view.drop_job(world.view.jobs[job.uid])
    document = await world.workload(job)
    assert document["status"]["admission"]["clusterQueue"] == "vision"
    assert document["metadata"]["ownerReferences"][0]["name"] == "train"


async def test_a_part_of_anothers_gang_is_not_a_workload() -> None:
    world = World()
    world.waits("child", owner=Owner("JobSet.jobset.x-k8s.io", "parent", "p"))
    assert await world.documents("workloads") == []


async def test_labels_of_the_job_can_be_selected_by() -> None:
    world = World()
    job = world.waits("train", labels={"team": "a"})
    labels = (await world.workload(job))["metadata"]["labels"]
    assert labels == {"team": "a", "kueue.x-k8s.io/job-uid": job.uid}


async def test_the_quorum_is_that_of_the_gang_or_of_its_pod_group() -> None:
    world = World()
    own, grouped = world.waits("own", pods=4, quorum=2), world.waits("grouped", pods=4)
    assert grouped.gang is not None
    world.view.put_job(replace(grouped, gang=replace(grouped.gang, pod_group="group")))
    world.view.pod_groups["team-vision", "group"] = PodGroupRecord("team-vision", "group", 3)
    assert (await world.workload(own))["spec"]["quorum"] == 2
    assert (await world.workload(grouped))["spec"]["quorum"] == 3


async def test_a_gang_that_lost_pods_is_told_from_one_that_starts() -> None:
    world = World()
    job = world.waits("train")
    world.admits(job)
    told = []
    for ready in (False, True, False, True):
        world.now += 10
        job = replace(job, suspended=False, ready=ready, resource_version=job.resource_version + 1)
        world.view.put_job(job)
        told.append(condition(await world.workload(job), "PodsReady"))
    assert [(c["status"], c["reason"]) for c in told] == [
        ("False", "WaitForStart"),
        ("True", "Started"),
        ("False", "WaitForRecovery"),
        ("True", "Recovered"),
    ]
    assert [c["lastTransitionTime"][-3:-1] for c in told] == ["00", "20", "30", "40"]


def in_a_hub(world: World, job: JobRecord, phase: DispatchPhase) -> None:
    """Let a gang that the hub has admitted come so far into a member."""
    known = world.view.jobs[job.uid]
    version = known.resource_version + 1
    world.view.put_job(replace(known, suspended=False, for_a_member=True, dispatch=phase, resource_version=version))


async def test_of_a_hubs_job_that_a_member_has_no_pods_are_said_to_be_missing() -> None:
    world = World()
    job = world.waits("train")
    world.admits(job)
    in_a_hub(world, job, DispatchPhase.GRANTED)
    said = condition(await world.workload(job), "PodsReady")["message"]
    assert "a member runs its pods: the annotation tutti.dev/dispatch says which one, and why not the others" in said
    assert "if pods are missing" not in said


async def test_a_hubs_job_is_admitted_once_a_member_has_it() -> None:
    world = World()
    job = world.waits("train")
    world.admits(job)
    told = []
    since = []
    for phase in DispatchPhase:
        world.now += 60
        in_a_hub(world, job, phase)
        document = await world.workload(job)
        since.append(condition(document, "Admitted")["lastTransitionTime"][11:16])
        assert condition(document, "QuotaReserved")["status"] == "True"
        types = {each["type"] for each in document["status"]["conditions"]}
        admitted, why = condition(document, "Admitted"), row("workloads", document, world.now, "None")["cells"][-1]
        told.append((phase, admitted["status"], admitted["reason"], "PodsReady" in types, why))
    assert told == [
        (DispatchPhase.NOWHERE, "False", "UnsatisfiedChecks", False, "UnsatisfiedChecks"),
        (DispatchPhase.OFFERED, "False", "UnsatisfiedChecks", False, "UnsatisfiedChecks"),
        (DispatchPhase.GRANTED, "True", "Admitted", True, "WaitForStart"),
        (DispatchPhase.RECALLED, "True", "Admitted", True, "WaitForStart"),
    ]
    assert since == ["08:00", "08:00", "08:03", "08:03"], "when a member took it"


async def test_a_gang_that_starts_tells_the_schedulers_word_and_when_it_is_stopped() -> None:
    world = World()
    job = world.waits("train", pods=3)
    reservation = world.admits(job)
    said = condition(await world.workload(job), "PodsReady")["message"]
    missing = "if pods are missing, an event of the job, or of what creates its pods, says why"
    stopped = "it is stopped at 2027-01-15T08:05:00Z unless 3 of its pods run by then"
    assert said == f"0 exist of 3 pods; not all of them run yet; {missing}; {stopped}"
    for number, why in enumerate(("", "0/4 nodes are available", "0/4 nodes are available")):
        phase = "Pending" if why else "Running"
        place = {"gang": job.uid, "pod_set": "main", "phase": phase, "unscheduled": why}
        world.view.put_pod(PodRecord(f"p{number}", job.namespace, f"p{number}", 1, PodPrice(), **place))  # type: ignore[arg-type]
    found = "2 found no node: 0/4 nodes are available"
    said = condition(await world.workload(job), "PodsReady")["message"]
    assert said == f"3 exist of 3 pods; not all of them run yet; {found}; {stopped}"
    for pod in list(world.view.fences.pods_of(job.namespace, job.uid)):
        world.view.put_pod(replace(pod, unscheduled="0/5 nodes are available" if pod.unscheduled else ""))
    assert "0/5 nodes" in str(await world.workload(job)), "a new word is shown though nothing else changed"
    (first, *_) = world.view.fences.pods_of(job.namespace, job.uid)
    world.view.put_pod(replace(first, phase="Pending", unstarted="ErrImagePull: no such image"))
    said = condition(await world.workload(job), "PodsReady")["message"]
    assert (
        "2 found no node: 0/5 nodes are available; 1 cannot start: ErrImagePull: no such image; it is stopped" in said
    )
    world.stops(reservation, "Preempted")
    assert "is stopped at" not in str(await world.workload(job))


async def test_a_work_queue_is_not_said_to_be_stopped_once_one_of_its_pods_has_succeeded() -> None:
    world = World()
    job = world.waits("train", pods=3)
    world.admits(job)
    assert "is stopped at" in str(await world.workload(job))
    world.view.put_job(replace(world.view.jobs[job.uid], winding_down=True, resource_version=9))
    assert "0 exist of 3 pods" in condition(await world.workload(job), "PodsReady")["message"]
    assert "is stopped" not in str(await world.workload(job)), "it lacks none: no pod is replaced any more"


async def test_pods_of_an_adopted_gang_are_shown_while_it_ends() -> None:
    """They bear no label of ours: their controller tells."""
    world = World()
    job = world.waits("old")
    reservation = world.admits(job)
    world.view.set_ledger(world.view.ledger.amended(put=[replace(reservation, adopted=True)]))
    world.view.put_controller(job.uid, job.namespace, "")
    assert (await world.workload(job))["status"]["pods"]["present"] == 0
    for number in range(2):
        pod = PodRecord(f"p{number}", job.namespace, f"p{number}", 1, PodPrice(), owner_uid=job.uid, phase="Running")
        world.view.put_pod(pod)
    assert (await world.workload(job))["status"]["pods"]["present"] == 2


async def test_where_neighbours_are_hidden_no_name_of_another_namespace_is_told() -> None:
    for hidden in (False, True):
        world = World()
        world.view.hides_neighbours = hidden
        world.view.namespaces |= {"team-vision": {}, "team-speech": {}}
        world.admits(world.waits("secret", cpu=4, pods=2, team="speech"))
        late = world.waits("late", cpu=4, pods=1)
        document = await world.workload(late)
        assert ("team-speech/secret" in str(document)) is not hidden
        assert document["status"]["reason"]["holders"][0]["amount"] == "8"
