"""When a gang counts as whole, and when it must be stopped for want of its quorum."""

from dataclasses import replace
from math import inf

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.controllers.gangs import test_gated_pods as plain
from tests.unit.controllers.gangs.test_assess import GANG, RESERVED, STARTED, job
from webhook.cluster.view import View
from webhook.config import Start
from webhook.controllers.gangs.pods_ready import PodsReady, Started
from webhook.controllers.gangs.requeues import is_hold, requeue_of
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import PodPrice, PodSet
from webhook.core.model.pods import PodRecord
from webhook.core.notation import names
from webhook.jobs.plain_pods.groups import POD_GROUP, gang_uid
from webhook.jobs.plain_pods.pod import decode
from webhook.jobs.plain_pods.pod_group import PodGroupRecord
from webhook.jobs.reading.ended import Ended
from webhook.jobs.reading.record import JobRecord

SETTINGS = Start(timeout_seconds=10, recovery_seconds=5, backoff_seconds=2, backoff_max_seconds=5)


def replaced(**settings: object) -> Start:
    return SETTINGS.model_copy(update=settings)


RUNNING = job(suspended=False)
"""Reserved at second 100, for two pods."""


def view_with(*phases: str) -> View:
    view = View()
    for number, phase in enumerate(phases):
        view.fences.put_pod(
            PodRecord(f"pod-{number}", "ns", f"pod-{number}", 1, PodPrice(), gang="uid", pod_set="main", phase=phase)
        )
    return view


def watched(*parts: Started, view: View, settings: Start = SETTINGS) -> PodsReady:
    """Return the clock of a gang that is looked at since its admission."""
    whole = PodsReady(settings)
    assert whole.overdue("uid", list(parts), view, 100) is None
    return whole


@pytest.mark.parametrize(
    ("phase", "why"),
    [
        (DispatchPhase.NOWHERE, "no member of the fleet took it within 10 s after its admission"),
        (DispatchPhase.OFFERED, "no member of the fleet took it within 10 s after its admission"),
        (DispatchPhase.GRANTED, "only 0 of the 2 pods it needs ran within 10 s after its admission"),
    ],
)
def test_of_a_hubs_gang_it_is_told_whether_a_member_had_it(phase: DispatchPhase, why: str) -> None:
    job = replace(RUNNING, for_a_member=True, dispatch=phase)
    requeue = watched((job, RESERVED), view=view_with()).overdue("uid", [(job, RESERVED)], view_with(), 110)
    assert requeue is not None
    assert requeue.message == why


def test_a_gang_that_never_reaches_its_quorum_is_stopped_after_the_start_time_out() -> None:
    whole = PodsReady(SETTINGS)
    assert whole.overdue("uid", [(RUNNING, RESERVED)], view_with("Running", "Pending"), 109.9) is None
    requeue = whole.overdue("uid", [(RUNNING, RESERVED)], view_with("Running", "Pending"), 110)
    assert requeue is not None
    assert requeue.message == "only 1 of the 2 pods it needs ran within 10 s after its admission"
    assert (requeue.reason, requeue.place_seconds, requeue.attempts) == ("PodsReadyTimeout", 110, 1)
    assert requeue.not_before_seconds == 112


@pytest.mark.parametrize(
    ("gates", "said"),
    [
        (["x.io/wait"], "; 2 wait behind scheduling gate x.io/wait, not Tutti's: whoever set that has to remove it"),
        (["x.io/a", "x.io/b"], "; 2 wait behind scheduling gates x.io/a, x.io/b, not Tutti's: whoever set that has to"),
        ([], "after its admission"),
    ],
    ids=["one", "two", "lifted, and the scheduler has not looked yet"],
)
def test_a_gang_that_somebody_elses_gates_hold_back_is_said_to_wait_behind_them(gates: list[str], said: str) -> None:
    """And not to have found no node: no scheduler has looked for one."""
    message = "Scheduling is blocked due to non-empty scheduling gates"
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": message}
    labels = {names.GANG_LABEL: "uid", names.POD_SET_LABEL: "main"}
    view = View()
    for number in range(2):
        metadata = {"uid": f"pod-{number}", "namespace": "ns", "name": f"pod-{number}", "labels": labels}
        spec = {"containers": [], "schedulingGates": [{"name": gate} for gate in gates]}
        item = {"metadata": metadata | {"resourceVersion": "1"}, "spec": spec}
        item["status"] = {"phase": "Pending", "conditions": [condition]}
        view.put_pod(decode(orjson.dumps(item)))
    requeue = watched((RUNNING, RESERVED), view=view).overdue("uid", [(RUNNING, RESERVED)], view, 110)
    assert requeue is not None
    assert said in requeue.message
    assert "found no node" not in requeue.message
    assert message not in requeue.message


def test_a_gang_that_found_no_nodes_is_stopped_with_what_the_scheduler_says() -> None:
    """As the API server hands out the pod, with the condition that the scheduler wrote."""
    why = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
    labels = {names.GANG_LABEL: "uid", names.POD_SET_LABEL: "main"}
    view = View()
    for number in range(2):
        metadata = {"uid": f"pod-{number}", "namespace": "ns", "name": f"pod-{number}", "labels": labels}
        item = {"metadata": metadata | {"resourceVersion": "1"}, "spec": {"containers": []}}
        item["status"] = {"phase": "Pending", "conditions": [condition]}
        view.put_pod(decode(orjson.dumps(item)))
    requeue = watched((RUNNING, RESERVED), view=view).overdue("uid", [(RUNNING, RESERVED)], view, 110)
    assert requeue is not None
    assert requeue.message.endswith(f"within 10 s after its admission; 2 found no node: {why}")


@pytest.mark.parametrize("place", ["containerStatuses", "initContainerStatuses"])
def test_a_gang_whose_images_cannot_be_pulled_is_stopped_with_what_the_nodes_say(place: str) -> None:
    """As the API server hands out the pods, with the status that their kubelets wrote."""
    labels = {names.GANG_LABEL: "uid", names.POD_SET_LABEL: "main"}
    view = View()
    for number, reason in enumerate(("ErrImagePull", "ImagePullBackOff", "ImagePullBackOff", "ContainerCreating")):
        metadata = {"uid": f"pod-{number}", "namespace": "ns", "name": f"pod-{number}", "labels": labels}
        waiting = {"reason": reason, "message": f"image of pod-{number}"}
        item = {"metadata": metadata | {"resourceVersion": "1"}, "spec": {"containers": []}}
        item["status"] = {"phase": "Pending", place: [{"name": "main", "state": {"waiting": waiting}}]}
        view.put_pod(decode(orjson.dumps(item)))
    requeue = watched((RUNNING, RESERVED), view=view).overdue("uid", [(RUNNING, RESERVED)], view, 110)
    assert requeue is not None
    assert requeue.message.endswith("after its admission; 2 cannot start: ImagePullBackOff: image of pod-1")


def test_another_leader_counts_the_failed_starts_on() -> None:
    again = replace(RUNNING, admission=replace(STARTED, attempts=1))
    requeue = watched((again, RESERVED), view=view_with()).overdue("uid", [(again, RESERVED)], view_with(), 110)
    assert requeue is not None
    assert (requeue.attempts, requeue.not_before_seconds) == (2, 114)


def test_a_gang_that_loses_a_pod_is_given_the_recovery_time_from_then_on() -> None:
    whole = PodsReady(SETTINGS)
    assert whole.overdue("uid", [(RUNNING, RESERVED)], view_with("Running", "Running"), 150) is None
    assert whole.overdue("uid", [(RUNNING, RESERVED)], view_with("Running"), 154) is None
    requeue = whole.overdue("uid", [(RUNNING, RESERVED)], view_with("Running"), 155)
    assert requeue is not None
    assert "after losing others" in requeue.message


def test_what_a_controller_reports_does_not_outweigh_pods_that_were_seen_and_are_gone() -> None:
    whole, reported = PodsReady(SETTINGS), replace(RUNNING, ready=True)
    assert whole.overdue("uid", [(reported, RESERVED)], view_with("Running", "Running"), 150) is None
    assert whole.overdue("uid", [(reported, RESERVED)], view_with("Running"), 160) is not None
    ordered = PodsReady(SETTINGS)
    report = replace(reported, ordered_start=True)
    assert ordered.overdue("uid", [(report, RESERVED)], view_with("Running", "Running"), 150) is None
    assert ordered.overdue("uid", [(report, RESERVED)], view_with("Running"), 160) is None, (
        "it may let pods go while it runs"
    )


def test_a_report_counts_while_its_pods_have_proved_nothing() -> None:
    assert PodsReady(SETTINGS).overdue("uid", [(replace(RUNNING, ready=True), RESERVED)], view_with(), 200) is None


def test_pods_that_ended_count_whether_they_are_still_there_or_not() -> None:
    whole = PodsReady(SETTINGS)
    assert whole.overdue("uid", [(RUNNING, RESERVED)], view_with("Running", "Succeeded"), 200) is None
    gone = replace(RUNNING, ended={"main": Ended(1, 1)})
    assert whole.overdue("uid", [(gone, RESERVED)], view_with("Running"), 300) is None


LEFT = replace(RUNNING, gang=replace(GANG, pod_sets=(PodSet("main", 4, PodPrice()),)), ended={"main": Ended(2, 2)})
"""A Job of four pods at a time, with two left to run when it started again."""


def test_of_a_job_that_starts_again_what_is_left_has_to_run() -> None:
    whole, before = watched((LEFT, RESERVED), view=view_with(*["Succeeded"] * 8)), ["Succeeded"] * 8
    assert whole.overdue("uid", [(LEFT, RESERVED)], view_with(*before, "Running"), 109) is None
    requeue = whole.overdue("uid", [(LEFT, RESERVED)], view_with(*before, "Running"), 110)
    assert requeue is not None
    assert requeue.message == "only 1 of the 2 pods it needs ran within 10 s after its admission"
    assert whole.overdue("uid", [(LEFT, RESERVED)], view_with(*before, "Running", "Running"), 110) is None


def test_of_a_job_that_starts_again_those_that_have_ended_since_count() -> None:
    whole, before = watched((LEFT, RESERVED), view=view_with("Succeeded", "Succeeded")), ["Succeeded"] * 2
    assert whole.overdue("uid", [(LEFT, RESERVED)], view_with(*before, "Running", "Succeeded"), 200) is None
    counted = replace(LEFT, ended={"main": Ended(3, 3)})
    assert whole.overdue("uid", [(counted, RESERVED)], view_with("Running"), 300) is None


def test_what_is_left_of_a_job_has_to_run_though_its_minimum_was_less() -> None:
    smaller = replace(LEFT, gang=replace(GANG, pod_sets=(PodSet("main", 4, PodPrice(), min_count=2),)))
    assert watched((smaller, RESERVED), view=view_with()).overdue("uid", [(smaller, RESERVED)], view_with(), 110)


def test_what_a_job_reports_of_work_that_was_done_before_proves_nothing() -> None:
    reported = replace(LEFT, ready=True)
    whole = watched((reported, RESERVED), view=view_with())
    assert whole.overdue("uid", [(reported, RESERVED)], view_with("Running"), 110) is not None


def test_of_a_job_whose_pods_cannot_be_told_its_report_counts_all_the_same() -> None:
    older = replace(LEFT, ready=True, marked=False)
    assert watched((older, RESERVED), view=view_with()).overdue("uid", [(older, RESERVED)], view_with(), 900) is None


def test_a_work_queue_that_winds_down_lacks_no_pod() -> None:
    """One has succeeded: none that fails after it is replaced, and a job that is stopped then would be complete."""
    view, last = view_with("Succeeded", "Failed"), replace(RUNNING, winding_down=True)
    whole = watched((RUNNING, RESERVED), view=view)
    assert whole.overdue("uid", [(last, RESERVED)], view, 1000) is None
    assert whole.due_seconds("uid") == inf


def test_another_leader_counts_from_what_it_finds() -> None:
    whole, later = PodsReady(SETTINGS), replace(LEFT, ended={"main": Ended(3, 3)})
    assert whole.overdue("uid", [(later, RESERVED)], view_with("Running"), 500) is None
    assert whole.overdue("uid", [(later, RESERVED)], view_with(), 504) is None
    assert whole.overdue("uid", [(later, RESERVED)], view_with(), 505) is not None


def test_a_gang_that_was_spared_pods_that_have_to_run_again_is_stopped_to_ask_for_them() -> None:
    children = replace(LEFT, kind="JobSet.jobset.x-k8s.io")
    pods = view_with("Running", "Running")
    whole = PodsReady(SETTINGS)
    assert whole.overdue("uid", [(children, RESERVED)], pods, 150) is None
    restarted = replace(children, ended={})
    assert whole.overdue("uid", [(restarted, RESERVED)], pods, 154) is None
    assert whole.overdue("uid", [(restarted, RESERVED)], pods, 155) is not None


def test_the_quorum_of_its_pod_group_is_enough_for_a_running_gang() -> None:
    view, grouped = view_with("Running"), replace(RUNNING, gang=replace(GANG, pod_group="crew"))
    whole = watched((grouped, RESERVED), view=view)
    assert whole.overdue("uid", [(grouped, RESERVED)], view, 200) is not None
    view.pod_groups["ns", "crew"] = PodGroupRecord("ns", "crew", min_member=1)
    assert whole.overdue("uid", [(grouped, RESERVED)], view, 200) is None


def test_the_time_out_of_its_pod_group_is_that_of_a_gangs_start() -> None:
    whole, view = PodsReady(SETTINGS), view_with("Running")
    grouped = replace(RUNNING, gang=replace(GANG, pod_group="crew"))
    view.pod_groups["ns", "crew"] = PodGroupRecord("ns", "crew", min_member=2, schedule_timeout_seconds=30)
    assert whole.overdue("uid", [(grouped, RESERVED)], view, 129) is None
    requeue = whole.overdue("uid", [(grouped, RESERVED)], view, 130)
    assert requeue is not None
    assert requeue.message == "only 1 of the 2 pods it needs ran within 30 s after its admission"


def test_once_whole_a_gang_of_a_pod_group_is_given_the_configured_recovery_time() -> None:
    whole, view = PodsReady(SETTINGS), view_with("Running", "Running")
    grouped = replace(RUNNING, gang=replace(GANG, pod_group="crew"))
    view.pod_groups["ns", "crew"] = PodGroupRecord("ns", "crew", min_member=2, schedule_timeout_seconds=30)
    assert whole.overdue("uid", [(grouped, RESERVED)], view, 150) is None
    view.fences.drop_pod("ns", "pod-1")
    assert whole.overdue("uid", [(grouped, RESERVED)], view, 155) is not None


def test_a_gang_whose_pods_cannot_be_told_from_others_is_never_found_incomplete() -> None:
    loose = replace(RUNNING, gang=replace(GANG, loose_pods=True))
    assert PodsReady(SETTINGS).overdue("uid", [(loose, RESERVED)], view_with(), 1000) is None


def test_a_gang_keeps_its_place_where_creation_counts() -> None:
    created = replace(RUNNING, created_seconds=42.0)
    whole = watched((created, RESERVED), view=view_with(), settings=replaced(place="Creation"))
    requeue = whole.overdue("uid", [(created, RESERVED)], view_with(), 110)
    assert requeue is not None
    assert (requeue.place_seconds, requeue.not_before_seconds) == (42, 112)


def test_without_a_recovery_time_out_a_gang_that_was_whole_may_lack_pods_for_ever() -> None:
    whole = PodsReady(replaced(recovery_seconds=None))
    assert whole.overdue("uid", [(RUNNING, RESERVED)], view_with("Running", "Running"), 150) is None
    assert whole.overdue("uid", [(RUNNING, RESERVED)], view_with("Running"), 99_999) is None
    never_whole = watched((RUNNING, RESERVED), view=view_with(), settings=replaced(recovery_seconds=None))
    assert never_whole.overdue("uid", [(RUNNING, RESERVED)], view_with(), 110) is not None


def test_a_gang_that_used_up_its_attempts_is_held() -> None:
    whole = watched((RUNNING, RESERVED), view=view_with(), settings=replaced(attempts=1))
    first = whole.overdue("uid", [(RUNNING, RESERVED)], view_with(), 110)
    assert first is not None
    assert (first.reason, first.attempts) == ("PodsReadyTimeout", 1)
    again = replace(RUNNING, admission=replace(STARTED, attempts=1))
    last = whole.overdue("uid", [(again, RESERVED)], view_with(), 110)
    assert last is not None
    assert last.reason == "DeactivatedDueToRequeuingLimitExceeded"
    stopping = replace(RESERVED, stopping=last.reason)
    assert is_hold(again, stopping)
    assert requeue_of(again, stopping, last, 111).attempts == 0, "whoever lifts the hold gives it all attempts again"


def test_plain_pods_are_tried_for_ever() -> None:
    pods = replace(RUNNING, kind=POD_GROUP.key, admission=replace(STARTED, attempts=9))
    last = PodsReady(replaced(attempts=1)).requeue(pods, "why", 110)
    assert (last.reason, last.attempts) == ("PodsReadyTimeout", 10)


@pytest.mark.parametrize("ahead_seconds", [0.5, 3600, 400 * 86_400])
def test_what_was_reserved_by_a_clock_that_was_ahead_has_its_time_from_the_first_look_on(ahead_seconds: float) -> None:
    """It would hold its quota without pods until the present has come to where that clock was."""
    early = replace(RESERVED, since_seconds=100 + ahead_seconds)
    whole = PodsReady(SETTINGS)
    assert whole.overdue("uid", [(RUNNING, early)], view_with(), 100) is None
    assert whole.overdue("uid", [(RUNNING, early)], view_with(), 109) is None
    assert whole.due_seconds("uid") == 110
    assert whole.overdue("uid", [(RUNNING, early)], view_with(), 110) is not None


def test_another_leader_gives_a_gang_that_lacks_pods_the_recovery_time_anew() -> None:
    """When it lost them nobody knows any more; but it had been whole, or the earlier leader would have stopped it."""
    whole = PodsReady(SETTINGS)
    assert whole.overdue("uid", [(RUNNING, RESERVED)], view_with("Running"), 500) is None
    assert whole.overdue("uid", [(RUNNING, RESERVED)], view_with("Running"), 504) is None
    requeue = whole.overdue("uid", [(RUNNING, RESERVED)], view_with("Running"), 505)
    assert requeue is not None
    assert "within 5 s after losing others" in requeue.message


def test_another_leader_gives_the_time_to_start_anew_where_there_is_none_to_recover() -> None:
    whole = PodsReady(replaced(recovery_seconds=None))
    assert whole.overdue("uid", [(RUNNING, RESERVED)], view_with("Running"), 500) is None
    assert whole.overdue("uid", [(RUNNING, RESERVED)], view_with("Running"), 510) is not None


# -- plain pods: nobody but they themselves tells what they should be


def plain_view(*pods: PodRecord, least: int = 3) -> tuple[View, tuple[JobRecord, Reservation]]:
    """Return a view with the pods of a gang that was admitted at second 100 with three, and what it holds."""
    view, uid = View(), gang_uid("ns", "ring")
    view.pod_groups["ns", "ring"] = PodGroupRecord("ns", "ring", least)
    for pod in pods:
        view.fences.put_pod(replace(pod, gang=uid, admission=pod.admission.replace('"uid":"uid"', f'"uid":"{uid}"')))
    return view, (plain.plain(*view.fences.pods_of("ns", uid)), replace(plain.RESERVED, uid=uid))


def overdue(whole: PodsReady | None, now: float, *pods: PodRecord, least: int = 3) -> bool:
    """Ask the clock of the plain pods' gang, or one that was started with it and has not been asked since."""
    view, started = plain_view(*pods, least=least)
    if whole is None:
        whole = PodsReady(SETTINGS)
        assert whole.overdue("ring", [started], view, 100) is None
    return whole.overdue("ring", [started], view, now) is not None


def test_plain_pods_that_were_lost_are_missed() -> None:
    """Of a gang that is no more than its pods, those that are gone were counted as if nobody wanted them."""
    three = [plain.runs(number) for number in range(3)]
    for lost in ([], [plain.runs(2, phase="Failed")], [plain.runs(2, phase="Pending")]):
        started_so = PodsReady(SETTINGS)
        assert not overdue(started_so, 109, *three[:2], *lost)
        assert overdue(started_so, 110, *three[:2], *lost), "it never was whole"
        was_whole = PodsReady(SETTINGS)
        assert not overdue(was_whole, 150, *three)
        assert not overdue(was_whole, 154, *three[:2], *lost)
        assert overdue(was_whole, 155, *three[:2], *lost)


def test_plain_pods_may_be_as_few_as_their_pod_group_asks() -> None:
    assert not overdue(None, 500, plain.runs(0), plain.runs(1), least=2)
    assert overdue(None, 500, plain.runs(0), least=2)
    assert overdue(None, 500, plain.waits(0), plain.runs(1), least=2), "who waits does not run"


def test_plain_pods_that_succeeded_are_not_missed_when_they_are_deleted() -> None:
    whole, two = PodsReady(SETTINGS), [plain.runs(0), plain.runs(1)]
    assert not overdue(whole, 150, *two, plain.runs(2, phase="Succeeded"))
    assert not overdue(whole, 500, *two)
    assert overdue(whole, 900, two[0])
    assert overdue(None, 900, *two), "with another start it needs all of them again"


def test_what_an_earlier_start_left_behind_makes_no_gang_of_plain_pods_whole() -> None:
    old = plain.runs(7, phase="Succeeded", since=1.0)
    assert overdue(None, 500, plain.runs(0), plain.runs(1), old)


def test_plain_pods_of_which_one_contradicts_the_others_are_missed_all_the_same() -> None:
    low, high = (plain.runs(number, priority=priority) for number, priority in ((0, 1), (1, 2)))
    assert overdue(None, 500, low, high)


def stopped_at(steps: list[tuple[int, tuple[str, ...]]], start: Start, *, ordered: bool, resting: bool) -> float:
    """Return the second at which a gang is stopped, if ever, whose pods change so many seconds apart, half a second
    before a look; asked every second, or, ``resting``, only when it changed or is due.
    """
    whole, parts = PodsReady(start), [(replace(RUNNING, ordered_start=ordered), RESERVED)]
    changes, at = dict[int, View](), 100
    for gap, phases in steps:
        at += gap
        changes[at] = view_with(*phases)
    view, due = view_with(), 0.0
    for second in range(100, at + 40):
        if second in changes:
            view = changes[second]
            if resting and due > 0:
                whole.changed("uid", second - 0.5)
            due = 0.0
        if resting and second < due:
            continue
        if whole.overdue("uid", parts, view, second) is not None:
            return second
        due = whole.due_seconds("uid")
    return inf


PHASES = st.sampled_from([(), ("Running",), ("Running", "Pending"), ("Running", "Running"), ("Running", "Succeeded")])


@given(
    steps=st.lists(st.tuples(st.integers(0, 7), PHASES), max_size=6),
    start=st.sampled_from([SETTINGS, replaced(recovery_seconds=None), replaced(timeout_seconds=2)]),
    ordered=st.booleans(),
)
def test_a_gang_that_is_asked_about_when_it_changes_or_is_due_is_stopped_as_if_asked_every_second(
    steps: list[tuple[int, tuple[str, ...]]], start: Start, ordered: bool
) -> None:
    longer = None if start.recovery_seconds is None else start.recovery_seconds + 1
    first = stopped_at(steps, start, ordered=ordered, resting=False)
    last = stopped_at(steps, start.model_copy(update={"recovery_seconds": longer}), ordered=ordered, resting=False)
    # From the change on it has the time, not from the look before it.
    assert first <= stopped_at(steps, start, ordered=ordered, resting=True) <= last
