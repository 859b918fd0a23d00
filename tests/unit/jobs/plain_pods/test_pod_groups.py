"""Plain pods that joined a PodGroup, read as one gang, and the patches that let them go or send them back."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from tests.unit.jobs.objects_of_kinds import apply, flavor
from webhook.core.ledger.record import Reservation, reserve
from webhook.core.model.gang import Toleration
from webhook.core.model.pods import PodRecord
from webhook.core.notation import names
from webhook.jobs.patches import pod as pod_patches
from webhook.jobs.patches.marking import gate_pod
from webhook.jobs.plain_pods import groups
from webhook.jobs.plain_pods import pod as pod_record
from webhook.jobs.pricing.context import NO_CONTEXT, ReadContext
from webhook.jobs.reading import annotations
from webhook.jobs.reading.record import JobRecord, Requeue

UID = groups.gang_uid("ns", "ring")
LABEL = "scheduling.x-k8s.io/pod-group"
FLAVORS = {"spot": flavor("spot", {"pool/kind": "spot"}, Toleration(key="spot", operator="Exists"))}

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
IN_ONE_HYPER_NODE = {"key": names.HOSTNAME, "operator": "In", "values": ["a0", "a1"]}
GPU: dict[str, Any] = {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}


def pod(number: int = 0, *, gpu: int = 1, version: int = 5, **spec: Any) -> dict[str, Any]:
    """Return a plain pod of the group as it is stored: gated."""
    resources = {"requests": {"nvidia.com/gpu": str(gpu)}, "limits": {"nvidia.com/gpu": str(gpu)}}
    written = {
        "metadata": {
            "name": f"ring-{number}",
            "namespace": "ns",
            "uid": f"pod-{number}",
            "resourceVersion": str(version),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {LABEL: "ring", "tutti.dev/queue-name": "research"},
        },
        "spec": {"containers": [{"name": "main", "image": "x", "resources": resources}], "priority": 7, **spec},
        "status": {"phase": "Pending"},
    }
    return apply(written, gate_pod(written, UID))


def decoded(obj: dict[str, Any]) -> PodRecord:
    return pod_record.decode(orjson.dumps(obj))


def gang_of(*pods: dict[str, Any], context: ReadContext = NO_CONTEXT) -> JobRecord:
    record = groups.read("ns", "ring", [decoded(obj) for obj in pods], context)
    assert record is not None
    return record


def reservation(record: JobRecord, flavors: dict[str, str] | None = None) -> Reservation:
    assert record.gang is not None
    taken = {s.name: flavors or {} for s in record.gang.pod_sets}
    return reserve(record.gang, "research", record.gang.counts, taken, epoch=3, now_seconds=100.0)


def lifted(obj: dict[str, Any], record: JobRecord) -> dict[str, Any]:
    patch = pod_patches.lift(decoded(obj), record, reservation(record), (3, 4), {})
    return apply(obj, patch)


def test_a_waiting_pod_tells_whose_it_is_and_what_it_asks() -> None:
    waiting = decoded(pod())
    assert (waiting.gang, waiting.group, waiting.gated, waiting.live) == (UID, "ring", True, True)
    assert waiting.waiting is not None
    assert waiting.waiting.asks.price == waiting.price
    assert waiting.pod_set == waiting.waiting.asks.name


def test_a_label_that_does_not_follow_from_the_group_makes_no_member() -> None:
    forged = pod()
    forged["metadata"]["labels"][LABEL] = "another"
    assert decoded(forged).group == ""


def test_pods_that_ask_the_same_are_one_pod_set() -> None:
    gang = gang_of(pod(0), pod(1), pod(2, gpu=2), pod(3, nodeSelector={"zone": "a"})).gang
    assert gang is not None
    assert sorted(gang.counts.values()) == [1, 1, 2]
    assert (gang.queue, gang.priority, gang.pod_group, gang.quorum) == ("research", 7, "ring", None)


def test_the_gang_waits_suspended_and_has_no_object_of_its_own() -> None:
    record = gang_of(pod(0), pod(1))
    assert (record.suspended, record.finished, record.marked, record.owner, record.waiting_pods) == (
        True,
        None,
        True,
        None,
        2,
    )
    assert record.uid == UID
    assert groups.read("ns", "ring", [], NO_CONTEXT) is None


def test_a_workload_priority_class_counts_before_the_pods_own() -> None:
    urgent = pod()
    urgent["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = "urgent"
    gang = gang_of(urgent, context=ReadContext(workload_priority_classes={"urgent": 90})).gang
    assert gang is not None
    assert gang.priority == 90


@pytest.mark.parametrize(
    ("named", "known", "priority", "missing"),
    [
        ({}, {"default": 3}, 3, ""),
        ({"tutti.dev/queue-name": ""}, {"default": 3}, 7, ""),
        ({}, {}, 7, ""),
        ({names.PRIORITY_CLASS_LABEL: "urgent"}, {"default": 3}, 7, "WorkloadPriorityClass 'urgent'"),
        ({names.PRIORITY_CLASS_LABEL: "urgent"}, {"default": 3, "urgent": 90}, 90, ""),
    ],
)
def test_the_class_of_plain_pods_is_found_as_that_of_jobs(
    named: dict[str, str], known: dict[str, int], priority: int, missing: str
) -> None:
    obj = pod()
    obj["metadata"]["labels"] |= named
    record = gang_of(obj, context=ReadContext(workload_priority_classes=known))
    assert record.gang is not None
    assert record.gang.priority == priority
    assert (record.missing_class.label if record.missing_class else "") == missing


def test_pods_of_different_workload_priority_classes_are_no_gang() -> None:
    low, high = pod(0), pod(1)
    low["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = "low"
    high["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = "high"
    record = gang_of(low, high, context=ReadContext(workload_priority_classes={"low": 1, "high": 100}))
    assert record.gang is None
    assert str(record.problem) == "its pods have different priorities (1, 100); give all of them the same"


@pytest.mark.parametrize("label", names.PREEMPTIBLE_LABELS)
def test_one_pod_that_rules_out_preemption_rules_it_out_for_its_gang(label: str) -> None:
    spared = pod(0)
    spared["metadata"]["labels"][label] = "false"
    gang, ordinary = gang_of(spared, pod(1)).gang, gang_of(pod(0), pod(1)).gang
    assert gang is not None
    assert ordinary is not None
    assert (gang.preemptible, ordinary.preemptible) == (False, True)


def test_who_comes_later_and_contradicts_those_that_run_changes_nothing_for_them() -> None:
    started = lifted(pod(0), gang_of(pod(0)))
    late = pod(1, version=9, priority=90)
    late["metadata"]["labels"]["tutti.dev/queue-name"] = "other"
    for pods in ((started, late), (late, started)):
        gang = gang_of(*pods).gang
        assert gang is not None
        assert (gang.queue, gang.priority, gang.pods) == ("research", 7, 1)
    agreeing = gang_of(started, pod(1, version=9)).gang
    assert agreeing is not None
    assert agreeing.pods == 2


def test_the_lightweight_label_brings_its_quorum_along() -> None:
    light = pod()
    light["metadata"]["labels"] |= {names.MIN_AVAILABLE_LABEL: "3"}
    gang = gang_of(light).gang
    assert gang is not None
    assert gang.quorum == 3


def sized(number: int, size: str, phase: str = "Pending", *, let_go: bool = False, **spec: Any) -> dict[str, Any]:
    """Return a pod of a group of Kueue's that says it has ``size`` pods."""
    obj = pod(number, version=number + 5, **spec)
    obj["metadata"]["labels"] = {
        names.GANG_LABEL: UID,
        names.KUEUE_POD_GROUP: "ring",
        names.QUEUE_LABELS[1]: "research",
    }
    obj["metadata"]["annotations"] = {names.KUEUE_POD_COUNT: size}
    obj["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{number:02}Z"
    obj["status"]["phase"] = phase
    return lifted(obj, gang_of(obj)) if let_go or phase != "Pending" else obj


def test_a_group_of_kueues_needs_all_of_its_pods() -> None:
    gang = gang_of(sized(0, "3"), sized(1, "3", gpu=2)).gang
    assert gang is not None
    assert (gang.queue, gang.pod_group, gang.quorum, gang.pods, len(gang.pod_sets)) == ("research", "ring", 3, 2, 2)


@pytest.mark.parametrize(
    ("phases", "quorum"),
    [
        (["Running", "Running", "Running"], 3),
        (["Succeeded", "Running", "Failed", "Pending"], 3),
        (["Succeeded", "Failed", "Failed", "Pending", "Pending"], 2),
        (["Succeeded", "Succeeded", "Failed", "Pending"], 1),
    ],
)
def test_what_has_succeeded_of_a_group_of_kueues_need_not_run_again(phases: list[str], quorum: int) -> None:
    """While some run, the gang is whole with those that have succeeded; once none does, the rest is all it lacks."""
    gang = gang_of(*(sized(number, "3", phase) for number, phase in enumerate(phases))).gang
    assert gang is not None
    assert gang.quorum == quorum


def test_a_group_of_kueues_that_has_succeeded_starts_nothing_more_while_its_pods_are_there() -> None:
    made = [sized(number, "2", "Succeeded") for number in range(2)]
    record = gang_of(*made, sized(2, "2"), sized(3, "2"))
    assert record.gang is None
    assert "all 2 pods of the group have succeeded; delete these" in str(record.problem)
    assert groups.seated([decoded(obj) for obj in (*made, sized(2, "2"))]) == []
    again = gang_of(sized(2, "2"), sized(3, "2")).gang
    assert again is not None
    assert (again.pods, again.quorum) == (2, 2)


@pytest.mark.parametrize(
    ("phases", "size", "outcome"),
    [
        (["Succeeded", "Succeeded"], "2", "Succeeded"),
        (["Failed", "Succeeded", "Succeeded"], "2", "Succeeded"),
        (["Failed", "Succeeded"], "2", "Failed"),
        (["Succeeded"], "2", "Succeeded"),
    ],
)
def test_a_group_of_kueues_has_succeeded_when_as_many_pods_have(phases: list[str], size: str, outcome: str) -> None:
    assert gang_of(*(sized(number, size, phase) for number, phase in enumerate(phases))).finished == outcome


def test_more_pods_than_a_group_of_kueues_has_are_no_part_of_its_gang() -> None:
    """The youngest of those that wait are left over, whatever was written on the others meanwhile."""
    pods = [sized(number, "2") for number in range(3)]
    pods[0]["metadata"]["resourceVersion"] = "99"
    record = gang_of(*pods)
    assert record.gang is not None
    assert (record.gang.pods, record.waiting_pods) == (2, 3)
    assert [each.name for each in groups.seated([decoded(obj) for obj in pods])] == ["ring-0", "ring-1"]
    late = sized(4, "2", let_go=True)
    assert [each.name for each in groups.seated([decoded(obj) for obj in (*pods, late)])] == ["ring-4", "ring-0"]


@pytest.mark.parametrize(
    ("phases", "free"),
    [
        ([], 2),
        (["Pending"], 1),
        (["Pending", "Pending"], 0),
        (["Succeeded", "Failed"], 1),
        (["Running", "Succeeded"], 0),
    ],
)
def test_who_has_succeeded_keeps_a_place_of_its_group_and_who_has_failed_does_not(phases: list[str], free: int) -> None:
    pods = [decoded(sized(number, "2", phase)) for number, phase in enumerate(phases)]
    assert groups.vacancies(pods, 2) == free


def test_pods_that_count_their_group_differently_are_no_gang() -> None:
    for other, said in ((sized(1, "3"), "2, 3"), (pod(1), "none, 2")):
        other["metadata"]["labels"]["tutti.dev/queue-name"] = "research"
        record = gang_of(sized(0, "2"), other)
        assert record.gang is None
        assert f"different {names.KUEUE_POD_COUNT} ({said})" in str(record.problem)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"labels": {"tutti.dev/queue-name": "other"}}, "different queues"), ({"priority": 9}, "different priorities")],
)
def test_pods_that_contradict_each_other_are_no_gang(change: dict[str, Any], words: str) -> None:
    other = pod(1)
    other["metadata"]["labels"] |= change.get("labels", {})
    other["spec"] |= {key: value for key, value in change.items() if key == "priority"}
    record = gang_of(pod(0), other)
    assert record.gang is None
    assert words in str(record.problem)


def test_lifting_a_gate_stamps_the_pod_with_its_admission_and_injects_the_flavor() -> None:
    record = gang_of(pod())
    reserved = reservation(record, {"nvidia.com/gpu": "spot"})
    let_go = apply(pod(), pod_patches.lift(decoded(pod()), record, reserved, (3, 4), FLAVORS))
    assert let_go["spec"]["schedulingGates"] == []
    assert let_go["spec"]["nodeSelector"] == {"pool/kind": "spot"}
    assert let_go["spec"]["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    assert let_go["metadata"]["labels"][names.POD_SET_LABEL] == decoded(pod()).pod_set
    assert let_go["metadata"]["annotations"][names.LEDGER_VERSION] == "3.4"
    started = gang_of(let_go)
    assert (started.suspended, started.waiting_pods) == (False, 0)
    assert started.admission is not None
    assert (started.admission.counts, started.admission.since_seconds) == (reserved.counts, 100.0)


@pytest.mark.parametrize(
    ("own", "terms"),
    [
        ({}, [{"matchExpressions": [IN_ONE_HYPER_NODE]}]),
        ({"nodeAffinity": None}, [{"matchExpressions": [IN_ONE_HYPER_NODE]}]),
        (
            {
                "podAntiAffinity": {"x": 1},
                "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [1]}, GPU]}},
            },
            [
                {"matchFields": [1], "matchExpressions": [IN_ONE_HYPER_NODE]},
                {"matchExpressions": [*GPU["matchExpressions"], IN_ONE_HYPER_NODE]},
            ],
        ),
        (
            {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}, GPU]}}},
            [{}, {"matchExpressions": [*GPU["matchExpressions"], IN_ONE_HYPER_NODE]}],
        ),
    ],
    ids=["of no affinity", "of an empty one", "beside its owner's terms", "beside a term that means no node"],
)
def test_who_has_to_be_in_a_hyper_node_is_held_to_its_nodes_by_name(own: dict[str, Any], terms: list[Any]) -> None:
    asked = pod(affinity=own) if own else pod()
    record = gang_of(asked)
    tier = {"topology.volcano.sh/tier-1": "s0"}
    reserved = reservation(record)
    reserved = replace(reserved, pod_sets=tuple(replace(each, domain=tier) for each in reserved.pod_sets))
    patch = pod_patches.lift(decoded(asked), record, reserved, (3, 4), {}, nodes=("a0", "a1"))
    spec = apply(asked, patch)["spec"]
    assert spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == terms
    assert spec["affinity"].get("podAntiAffinity") == own.get("podAntiAffinity")
    assert "nodeSelector" not in spec, "no node bears the label"


def test_a_gang_is_ready_when_all_that_it_was_admitted_with_run_or_have_succeeded() -> None:
    gated = [pod(number, version=number + 1) for number in range(3)]
    record = gang_of(*gated)
    let_go = [apply(obj, pod_patches.lift(decoded(obj), record, reservation(record), (3, 4), {})) for obj in gated]
    running, done, failed = ({"status": {"phase": phase}} for phase in ("Running", "Succeeded", "Failed"))
    assert gang_of(*(obj | running for obj in let_go)).ready
    assert gang_of(let_go[0] | running, let_go[1] | running, let_go[2] | done).ready
    assert not gang_of(let_go[0] | running, let_go[1] | running).ready, "one was deleted"
    assert not gang_of(let_go[0] | running, let_go[1] | running, let_go[2] | failed).ready
    assert not gang_of(let_go[0] | running, let_go[1] | running, gated[2]).ready
    assert gang_of(*(obj | running for obj in let_go), pod(3, version=9)).ready, "one more waits for its gang to grow"


def test_only_our_gate_is_lifted() -> None:
    obj = pod(schedulingGates=[{"name": "theirs"}, {"name": names.SCHEDULING_GATE}])
    assert lifted(obj, gang_of(obj))["spec"]["schedulingGates"] == [{"name": "theirs"}]


def test_a_pod_that_moved_on_is_not_lifted() -> None:
    waiting = decoded(pod())
    patch = pod_patches.lift(waiting, gang_of(pod()), reservation(gang_of(pod())), (3, 4), {})
    assert patch[:2] == [
        {"op": "test", "path": "/metadata/uid", "value": "pod-0"},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": str(waiting.resource_version)},
    ]


def test_a_pod_sent_back_says_its_place_and_a_start_takes_that_away() -> None:
    requeue = Requeue("PodsReadyTimeout", 50.0, attempts=2, not_before_seconds=70.0)
    back = apply(pod(), pod_patches.send_back(decoded(pod()), UID, requeue))
    record = gang_of(back)
    assert record.requeue == requeue
    assert record.gang is not None
    assert (record.gang.created_seconds, record.gang.not_before_seconds) == (50.0, 70.0)
    started = lifted(back, record)
    assert names.REQUEUE not in started["metadata"]["annotations"]
    assert gang_of(started).attempts == 2


def test_a_pod_sent_back_twice_with_the_same_note_is_moved_twice() -> None:
    """A lift may still be on its way, and the API server stores no write that changes nothing."""
    first = apply(pod(), pod_patches.send_back(decoded(pod()), UID, Requeue("Ended", 50.0)))
    second = apply(first, pod_patches.send_back(decoded(first), UID, Requeue("Ended", 50.0)))
    notes = [obj["metadata"]["annotations"] for obj in (first, second)]
    assert notes[0][names.REQUEUE] == notes[1][names.REQUEUE]
    assert notes[0][names.VOIDED] != notes[1][names.VOIDED]


def test_a_void_moves_the_version_and_says_nothing_else() -> None:
    waiting = decoded(pod())
    voided = apply(pod(), pod_patches.void(waiting, 8))
    assert voided["metadata"]["annotations"] == {names.VOIDED: f"8/{waiting.resource_version}"}
    assert gang_of(voided).gang == gang_of(pod()).gang


def test_what_an_earlier_start_left_behind_is_no_admission_of_those_that_wait() -> None:
    ended = lifted(pod(0), gang_of(pod(0))) | {"status": {"phase": "Succeeded"}}
    assert gang_of(ended).finished == "Succeeded"
    assert gang_of(ended).admission is not None
    again = gang_of(ended, pod(1))
    assert (again.finished, again.admission, again.suspended) == (None, None, True)
    assert again.gang is not None
    assert again.gang.pods == 1


def test_a_pod_of_a_job_that_starts_by_gates_alone_is_its_jobs() -> None:
    made = pod()
    made["metadata"]["labels"] = {names.GANG_LABEL: names.GANG_PENDING, names.POD_SET_LABEL: "worker", LABEL: "ring"}
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "job-1", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    waiting = decoded(made)
    assert (waiting.gang, waiting.group, waiting.pod_set) == ("job-1", "", "worker")
    free = apply(
        made, pod_patches.lift(waiting, gang_of(pod()), replace(reservation(gang_of(pod())), uid="job-1"), (3, 4), {})
    )
    assert names.ADMISSION not in free["metadata"]["annotations"]
    assert decoded(free).gang == "job-1"


def test_annotations_of_another_gang_are_not_believed() -> None:
    copied = pod()
    text = annotations.encode_requeue(Requeue("Preempted", 1.0), "somebody-else")
    copied["metadata"]["annotations"] = {names.REQUEUE: text}
    assert gang_of(copied).requeue is None


def test_a_group_of_more_pods_than_are_looked_at_in_one_go_waits_and_says_so() -> None:
    several = [replace(decoded(pod()), uid=f"{number}") for number in range(groups.PODS_MAX + 1)]
    record = groups.read("ns", "ring", several, NO_CONTEXT)
    assert record is not None
    assert record.gang is None
    assert "the group has 5001 pods, more than 5000" in str(record.problem)
    assert groups.read("ns", "ring", several[1:], NO_CONTEXT).gang is not None  # type: ignore[union-attr]
