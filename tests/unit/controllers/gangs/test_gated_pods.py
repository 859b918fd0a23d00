"""The next step for gangs whose pods wait behind our gates; each ledger rule that it keeps has its case."""

from dataclasses import replace

import pytest

from webhook.cluster.nodes.node import StoredNode
from webhook.cluster.nodes.occupancy import Occupancy
from webhook.cluster.rebuild import must_be_voided
from webhook.cluster.view import View
from webhook.cluster.waiting import waiting_gang
from webhook.controllers.gangs.assess import Step
from webhook.controllers.gangs.gated_pods import assess_pod_group, liftable, lifting, stopping, voiding
from webhook.controllers.gangs.next_step import next_step
from webhook.core.ledger.record import Ledger, Reservation, reserve
from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.core.model.pods import PodRecord, WaitingPod
from webhook.core.model.policy import HyperNode
from webhook.core.nodes.node import NodeRecord
from webhook.core.notation import names
from webhook.core.reasons.reasons import Code, Reason
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.plain_pods import groups
from webhook.jobs.plain_pods.pod_group import PodGroupRecord
from webhook.jobs.pricing.context import NO_CONTEXT
from webhook.jobs.reading import annotations
from webhook.jobs.reading import job as reading
from webhook.jobs.reading.record import Admission, JobRecord, Requeue

ONE = PodPrice({"nvidia.com/gpu": 1000})
SET = PodSet("pods", 3, ONE)
GANG = Gang("uid", "PodGroup.scheduling.x-k8s.io", "ns", "ring", "q", (SET,))
RESERVED = reserve(GANG, "q", {"pods": 3}, {"pods": {"nvidia.com/gpu": "any"}}, epoch=1, now_seconds=100.0)
REQUEUE = Requeue("Preempted", 50.0)
STOPPING = replace(RESERVED, stopping="Preempted")


def waits(number: int, **changes: object) -> PodRecord:
    behind = WaitingPod(replace(SET, count=1), {}, False, None, None, 0)
    return replace(runs(number, phase="Pending"), waiting=behind, admission="", **changes)  # type: ignore[arg-type]


def runs(number: int, *, since: float = 100.0, **changes: object) -> PodRecord:
    text = annotations.encode_admission(Admission("uid", 1, 5, "q", {"pods": 3}, since_seconds=since))
    name = f"ring-{number}"
    record = PodRecord(
        name, "ns", name, number + 1, ONE, "uid", "pods", "Running", node="node-1", group="ring", admission=text
    )
    return replace(record, node="node-1", **changes)  # type: ignore[arg-type]


def told(pod: PodRecord) -> PodRecord:
    assert pod.waiting is not None
    return replace(pod, waiting=replace(pod.waiting, requeue="{}"))


THREE = tuple(waits(number) for number in range(3))
WRITTEN = tuple(told(pod) for pod in THREE)
CASES: dict[str, tuple[tuple[PodRecord, ...], Reservation | None, bool, int | None, Step]] = {
    "pods that wait queue": (THREE, None, False, 3, Step.WAIT),
    "reserved ones are let go": (THREE, RESERVED, False, 3, Step.LIFT),
    "the rest follows when only some were let go": ((runs(0), waits(1), waits(2)), RESERVED, False, 3, Step.LIFT),
    "a whole one is left alone": ((runs(0), runs(1), runs(2)), RESERVED, False, 3, Step.NOTHING),
    "one more waits until its gang grows": ((runs(0), runs(1), runs(2), waits(3)), RESERVED, False, 3, Step.NOTHING),
    "one that ended leaves its place": (
        (runs(0, phase="Failed"), runs(1), runs(2), waits(3)),
        RESERVED,
        False,
        3,
        Step.LIFT,
    ),
    "too few to start are not let go": (THREE[:2], RESERVED, False, 3, Step.END),
    "as few as the quorum are": (THREE[:2], RESERVED, False, 2, Step.LIFT),
    "those that come when all has ended queue again": (
        (runs(0, phase="Succeeded"), waits(1)),
        RESERVED,
        False,
        1,
        Step.END,
    ),
    "what an earlier start left says nothing of this one": (
        (runs(7, phase="Succeeded", since=1.0), *THREE),
        RESERVED,
        False,
        3,
        Step.LIFT,
    ),
    "rule 8: an ended gang holds its entry while a pod is going": (
        (runs(0, terminating=True),),
        RESERVED,
        False,
        3,
        Step.NOTHING,
    ),
    "rule 8: it returns it when the last is gone": ((runs(0, phase="Succeeded"),), RESERVED, False, 3, Step.RELEASE),
    "a gang without pods returns its entry": ((), RESERVED, False, None, Step.RELEASE),
    "rule 2: a stopping gang's pods go first": ((runs(0), waits(1)), STOPPING, False, 3, Step.STOP),
    "rule 2: its entry stays until they are gone": (
        (runs(0, terminating=True),),
        STOPPING,
        True,
        3,
        Step.NOTHING,
    ),
    "rule 4: pods that wait are written before the entry goes": (THREE, STOPPING, False, 3, Step.VOID),
    "rule 4: also while others are going": (
        (runs(0, terminating=True), waits(1)),
        STOPPING,
        False,
        3,
        Step.VOID,
    ),
    "and then it goes": (WRITTEN, STOPPING, True, 3, Step.RELEASE),
    "what an earlier leader wrote is written again": (WRITTEN, STOPPING, False, 3, Step.VOID),
    "who comes while the others go is told the gang's place too": ((*WRITTEN, waits(3)), STOPPING, True, 3, Step.VOID),
    "nothing runs unreserved": ((runs(0),), None, False, 1, Step.SUSPEND),
    "pods wait until those that were stopped are gone": (
        (runs(0, terminating=True), waits(1)),
        None,
        False,
        1,
        Step.WITHDRAW,
    ),
    "an ended gang is over": ((runs(0, phase="Failed"),), None, False, 1, Step.WITHDRAW),
}


@pytest.mark.parametrize("name", CASES)
def test_the_next_step_follows_from_what_is_stored(name: str) -> None:
    pods, reservation, voided, quorum, step = CASES[name]
    assert assess_pod_group(reservation, pods, voided, quorum) is step


def test_pods_that_nothing_can_be_written_on_do_not_keep_a_stopped_gangs_entry() -> None:
    """What refuses to have them told would refuse to have them let go as well."""
    stopped = replace(RESERVED, stopping="PodsReadyTimeout")
    assert assess_pod_group(stopped, [waits(0), waits(1)], True, None) is Step.VOID
    assert assess_pod_group(stopped, [waits(0), waits(1)], True, None, refused=True) is Step.RELEASE
    assert assess_pod_group(stopped, [waits(0), runs(1)], True, None, refused=True) is Step.STOP


def test_who_waits_longest_goes_first() -> None:
    """A lift whose outcome nobody knows is repeated before another pod takes its place."""
    pods = [waits(5, resource_version=9), waits(6, resource_version=3), runs(0), runs(1)]
    assert [pod.name for pod in liftable(pods, RESERVED)] == ["ring-6"]


def test_a_pod_that_asks_more_than_its_place_holds_stays() -> None:
    greedy = waits(0, price=PodPrice({"nvidia.com/gpu": 2000}))
    assert liftable([greedy], RESERVED) == ()
    assert liftable([waits(0, pod_set="other")], RESERVED) == ()


def test_a_pod_that_contradicts_those_that_run_does_not_join_them() -> None:
    strangers = (waits(1, priority=5), waits(1, labels=(("tutti.dev/queue-name", "other"),)))
    for stranger in strangers:
        assert liftable([runs(0), stranger], RESERVED) == ()
        assert liftable([runs(0, phase="Failed"), stranger], RESERVED) == (stranger,), "no pod runs that it contradicts"


@pytest.mark.parametrize("reservation", [None, STOPPING, replace(RESERVED, adopted=True)])
def test_nobody_goes_without_a_reservation_that_stands(reservation: Reservation | None) -> None:
    assert liftable(THREE, reservation) == ()


def sized(pod: PodRecord, seconds: float = 0.0) -> PodRecord:
    """Return a pod of a group of Kueue's that has three pods."""
    return replace(pod, group_size=3, created_seconds=seconds)


@pytest.mark.parametrize(
    ("first", "lifted"),
    [
        (runs(0), []),
        (runs(0, phase="Succeeded"), []),
        (runs(0, phase="Failed"), ["ring-3"]),
        (runs(0, terminating=True), ["ring-3"]),
    ],
)
def test_a_pod_too_many_of_a_group_of_kueues_takes_the_place_of_one_that_failed_only(
    first: PodRecord, lifted: list[str]
) -> None:
    pods = [sized(first), sized(runs(1)), sized(runs(2)), sized(waits(3))]
    assert [pod.name for pod in liftable(pods, RESERVED)] == lifted


def test_of_a_group_of_kueues_the_oldest_are_let_go_whatever_was_written_on_them_since() -> None:
    pods = [sized(waits(number), seconds=10.0 - number) for number in range(5)]
    assert {pod.name for pod in liftable(pods, RESERVED)} == {"ring-2", "ring-3", "ring-4"}


# -- with what the view says of them


def view_of(*pods: PodRecord) -> View:
    view = View()
    for pod in pods:
        view.fences.put_pod(pod)
    return view


def plain(*pods: PodRecord) -> JobRecord:
    record = groups.read("ns", "ring", pods, NO_CONTEXT)
    assert record is not None
    return record


def test_plain_pods_wait_for_their_pod_group_and_then_for_each_other() -> None:
    view, record = view_of(), plain(*THREE[:2])
    nobody = waiting_gang(record, view)
    assert isinstance(nobody, Reason)
    assert (nobody.code, nobody.help) == (Code.POD_GROUP_NOT_FOUND, "create it, or remove its label from the pods")
    view.pod_groups["ns", "ring"] = PodGroupRecord("ns", "ring", 3)
    few = waiting_gang(record, view)
    assert isinstance(few, Reason)
    assert (few.code, few.message) == (Code.WAITING_FOR_PODS, "it needs 3 pods, and 2 exist")
    whole = waiting_gang(plain(*THREE), view)
    assert isinstance(whole, Gang)
    assert (whole.pods, whole.quorum) == (3, 3)


def test_a_pod_group_that_asks_for_nobody_is_served_with_one() -> None:
    view = view_of()
    view.pod_groups["ns", "ring"] = PodGroupRecord("ns", "ring", 0)
    gang = waiting_gang(plain(*THREE), view)
    assert isinstance(gang, Gang)
    assert gang.quorum == 1


def test_the_quorum_of_a_pod_group_decides_how_few_may_go() -> None:
    record = plain(*THREE[:2])
    view = view_of(*(replace(pod, gang=record.uid) for pod in THREE[:2]))
    reserved = replace(RESERVED, uid=record.uid)
    assert next_step(view, KINDS, record, reserved, False) is Step.END
    view.pod_groups["ns", "ring"] = PodGroupRecord("ns", "ring", 2)
    assert next_step(view, KINDS, record, reserved, False) is Step.LIFT


def volcano_job(admission: Admission | None) -> JobRecord:
    obj = {"metadata": {"namespace": "ns", "name": "train", "uid": "uid", "resourceVersion": "7"}, "spec": {}}
    record = reading.read(KINDS["Job.batch.volcano.sh"], obj, NO_CONTEXT)
    return replace(record, gang=GANG, problem=None, admission=admission, suspended=admission is None, marked=True)


def test_the_pods_of_a_job_without_a_suspend_field_go_once_it_has_started_and_not_before() -> None:
    started = Admission("uid", 1, 5, "q", {"pods": 3}, since_seconds=100.0)
    reserved, view = replace(RESERVED, kind="Job.batch.volcano.sh"), view_of(*THREE[:1])
    assert next_step(view, KINDS, volcano_job(None), reserved, False) is Step.START
    assert next_step(view, KINDS, volcano_job(started), reserved, False) is Step.LIFT
    assert next_step(view_of(runs(0)), KINDS, volcano_job(started), reserved, False) is Step.NOTHING


def test_stopping_deletes_those_that_were_let_go_and_sends_the_others_back() -> None:
    effect = stopping(Step.STOP, plain(runs(0), waits(1)), [runs(0), waits(1), runs(2, phase="Failed")], REQUEUE)
    assert effect is not None
    assert [(write.pod.name, write.patch is None) for write in effect.pods] == [("ring-0", True), ("ring-1", False)]
    assert names.REQUEUE in str(effect.pods[1].patch)


def test_lifts_are_dropped_when_the_ledger_that_was_written_takes_them_back() -> None:
    record = plain(*THREE)
    for entries in ({}, {record.uid: replace(STOPPING, uid=record.uid)}):
        assert lifting(record, THREE, Ledger(1, 2, entries), View()) is None
    effect = lifting(record, THREE, Ledger(1, 2, {record.uid: replace(RESERVED, uid=record.uid)}), View())
    assert effect is not None
    assert [write.pod.resource_version for write in effect.pods] == [1, 2, 3]


def test_pods_that_have_to_be_in_a_hyper_node_go_to_its_nodes_and_wait_while_it_has_none() -> None:
    record, view = plain(*THREE), View(nodes=Occupancy())
    assert view.nodes is not None
    for name in ("b", "a", "c"):
        view.nodes.put_node(StoredNode(name, 1, NodeRecord(name)))
    within = replace(RESERVED.pod_sets[0], domain={"topology.volcano.sh/tier-2": "s4"})
    reserved = replace(RESERVED, uid=record.uid, pod_sets=(within,))
    ledger = Ledger(1, 2, {record.uid: reserved})
    assert lifting(record, THREE, ledger, view) is None
    members = (HyperNode("s4", 2, nodes=frozenset({"a", "b"})), HyperNode("s5", 2, nodes=frozenset({"c"})))
    assert view.nodes.take_hyper_nodes(members)
    assert not view.nodes.label_nodes(), "all are labelled"
    assert not view.nodes.take_hyper_nodes(members), "nothing has changed"
    effect = lifting(record, THREE, ledger, view)
    assert effect is not None
    assert all("'values': ['a', 'b']" in str(write.patch) for write in effect.pods)
    assert view.nodes.take_hyper_nodes(members[1:])
    assert not view.nodes.label_nodes()
    assert lifting(record, THREE, ledger, view) is None


def test_a_rebuild_voids_every_pod_that_waits() -> None:
    record = plain(runs(0), *THREE[1:])
    view = view_of(*(replace(pod, gang=record.uid) for pod in (runs(0), *THREE[1:])))
    assert must_be_voided(record, View())
    assert not must_be_voided(plain(runs(0)), View())
    assert sorted(write.pod.name for write in voiding(record, view, 4).pods) == ["ring-1", "ring-2"]
