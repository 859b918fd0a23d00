"""What the reconciler writes: start, stop, restore, void, adopt."""

from dataclasses import replace

import pytest

from tests.unit.jobs.objects_of_kinds import NAMES, apply, flavor, kind_of, load, record_of, reservation_of
from webhook.core.ledger.record import with_places
from webhook.core.model.gang import Toleration
from webhook.core.notation import names
from webhook.dialects.compiler import compile_policy
from webhook.jobs.patches import job as patches
from webhook.jobs.patches import marking
from webhook.jobs.pricing.context import NO_CONTEXT, context_from
from webhook.jobs.reading import annotations
from webhook.jobs.reading.record import Requeue

SPOT = flavor("spot", {"pool/kind": "spot", "disk": "ssd"}, Toleration(key="spot", operator="Exists"))
BIG = flavor("big", {"pool/kind": "big"}, Toleration(key="own", operator="Exists"), Toleration(key="big", value="1"))
FLAVORS = {"spot": SPOT, "big": BIG}
REQUEUE = Requeue("Preempted", place_seconds=77.5, attempts=2, not_before_seconds=90.0, message="for research/other")


def held(name):
    obj = load(name)
    return apply(obj, marking.mark(kind_of(obj), obj))


def stopped_in_cluster(obj):
    """The job as its controller leaves it once it has come to rest."""
    status = {"conditions": [{"type": "Suspended", "status": "True"}]}
    return {**obj, "status": status}


def start(obj, counts=None, flavor_name="spot"):
    record = record_of(obj)
    flavors = {s.name: {"nvidia.com/gpu": flavor_name} for s in record.gang.pod_sets}
    reservation = reservation_of(record, counts, flavors)
    return apply(obj, patches.start(record, reservation, (3, 14), FLAVORS))


@pytest.mark.parametrize("name", NAMES)
def test_a_start_stamps_every_template_and_lets_the_job_go(name):
    waiting = held(name)
    running = record_of(start(waiting))
    assert not running.suspended
    assert running.admission.uid == running.uid
    assert (running.admission.epoch, running.admission.seq) == (3, 14)
    assert running.admission.counts == running.gang.counts
    for template in running.templates:
        assert template.marks[names.GANG_LABEL] == running.uid
        assert template.node_selector["pool/kind"] == "spot"
        assert template.has_annotations


@pytest.mark.parametrize("name", NAMES)
def test_stop_then_restore_gives_back_what_the_owner_wrote(name):
    waiting = held(name)
    stopped = start(waiting)
    stopped = stopped_in_cluster(apply(stopped, patches.stop(record_of(stopped), REQUEUE)))
    record = record_of(stopped)
    assert record.suspended
    assert record.admission is None
    assert record.gang.created_seconds == 77.5
    assert record.gang.not_before_seconds == 90.0
    restored = stopped if not patches.restore(record) else apply(stopped, patches.restore(record))
    assert patches.restore(record_of(restored)) == []
    for before, after in zip(record_of(waiting).templates, record_of(restored).templates, strict=True):
        assert after.node_selector == before.node_selector
        assert after.tolerations == before.tolerations
    assert record_of(restored).gang.pod_sets == record_of(waiting).gang.pod_sets


@pytest.mark.parametrize("name", NAMES)
def test_a_gang_not_yet_restored_asks_what_its_owner_wrote(name):
    waiting = held(name)
    running = start(waiting, flavor_name="big")
    stopped = apply(running, patches.stop(record_of(running), REQUEUE))
    assert record_of(stopped).gang.pod_sets == record_of(waiting).gang.pod_sets


def test_what_a_runtime_class_adds_is_no_part_of_what_a_start_wrote():
    scheduling = {"nodeSelector": {"runtime": "kata"}, "tolerations": [{"key": "kata", "operator": "Exists"}]}
    context = context_from(runtime_classes=[{"metadata": {"name": "kata"}, "scheduling": scheduling}])
    waiting = held("job")
    waiting["spec"]["template"]["spec"]["runtimeClassName"] = "kata"
    running = start(waiting)
    stopped = stopped_in_cluster(apply(running, patches.stop(record_of(running), REQUEUE)))
    assert record_of(stopped, context).gang.pod_sets == record_of(waiting, context).gang.pod_sets


def test_a_start_without_restore_replaces_the_old_flavor():
    waiting = held("job")
    running = start(waiting)
    stopped = stopped_in_cluster(apply(running, patches.stop(record_of(running), REQUEUE)))
    again = start(stopped, flavor_name="big")
    spec = again["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"disk": "ssd", "pool/kind": "big"}
    assert spec["tolerations"] == [
        {"key": "own", "operator": "Exists"},
        {"key": "big", "operator": "Equal", "value": "1"},
    ]
    assert names.REQUEUE not in again["metadata"]["annotations"]
    assert record_of(again).admission.injected == {"main": {"nodeSelector": ["pool/kind"], "tolerations": 1}}


@pytest.mark.parametrize("name", NAMES)
def test_a_start_keeps_a_gang_to_its_domain_and_restore_lets_it_go(name):
    waiting = held(name)
    record = record_of(waiting)
    domains = {pod_set.name: {"cloud/rack": "r1"} for pod_set in record.gang.pod_sets}
    reservation = with_places(reservation_of(record, None, {}), {}, domains)
    running = apply(waiting, patches.start(record, reservation, (3, 14), FLAVORS))
    assert all(each.node_selector["cloud/rack"] == "r1" for each in record_of(running).templates)
    stopped = stopped_in_cluster(apply(running, patches.stop(record_of(running), REQUEUE)))
    restored = apply(stopped, patches.restore(record_of(stopped)))
    assert all("cloud/rack" not in (each.node_selector or {}) for each in record_of(restored).templates)


def test_a_toleration_that_ends_is_injected_with_its_end_and_is_another_than_one_that_does_not():
    brief = {"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 90}
    resource_flavor = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "brief"},
        "spec": {"tolerations": [brief]},
    }
    flavors = compile_policy([resource_flavor]).flavors
    for owners in (brief, {**brief, "tolerationSeconds": None}, {**brief, "tolerationSeconds": 0}):
        waiting = held("job")
        own = [{key: value for key, value in owners.items() if value is not None}]
        waiting["spec"]["template"]["spec"]["tolerations"] = own
        record = record_of(waiting)
        reservation = reservation_of(record, flavors={"main": {"cpu": "brief"}})
        running = apply(waiting, patches.start(record, reservation, (3, 14), flavors))
        tolerations = running["spec"]["template"]["spec"]["tolerations"]
        assert tolerations == (own if own == [brief] else [*own, brief])


def test_partial_admission_lowers_parallelism_and_restore_raises_it_again():
    obj = load("job")
    obj["metadata"]["annotations"] = {names.MIN_PARALLELISM: "2"}
    obj["spec"] |= {"parallelism": 9, "completions": 6}
    waiting = apply(obj, marking.mark(kind_of(obj), obj))
    assert record_of(waiting).gang.pod_sets[0].min_count == 2
    running = start(waiting, counts={"main": 2})
    assert running["spec"]["parallelism"] == 2
    record = record_of(running)
    assert record.problem is None
    assert record.gang.pods == 2
    assert record.admission.original_counts == {"main": 9}
    stopped = stopped_in_cluster(apply(running, patches.stop(record, REQUEUE)))
    assert record_of(stopped).gang.pods == 6
    assert apply(stopped, patches.restore(record_of(stopped)))["spec"]["parallelism"] == 9
    whole = start(stopped)
    assert whole["spec"]["parallelism"] == 9
    assert record_of(whole).admission.original_counts == {}
    lowered_again = start(stopped, counts={"main": 3})
    assert lowered_again["spec"]["parallelism"] == 3
    assert record_of(lowered_again).admission.original_counts == {"main": 9}


def test_completions_follow_a_lowered_parallelism_where_the_owner_says_so():
    obj = load("job")
    obj["metadata"]["annotations"] = {names.MIN_PARALLELISM: "2", names.COMPLETIONS_FOLLOW: "true"}
    obj["spec"] |= {"parallelism": 6, "completions": 6, "completionMode": "Indexed"}
    waiting = apply(obj, marking.mark(kind_of(obj), obj))
    running = start(waiting, counts={"main": 2})
    assert (running["spec"]["parallelism"], running["spec"]["completions"]) == (2, 2)
    record = record_of(running)
    assert record.gang.pods == 2
    stopped = stopped_in_cluster(apply(running, patches.stop(record, REQUEUE)))
    assert record_of(stopped).gang.pods == 6
    for given_back in (
        patches.restore(record_of(stopped)),
        marking.strip(kind_of(stopped), stopped, NO_CONTEXT, suspend=None),
    ):
        spec = apply(stopped, given_back)["spec"]
        assert (spec["parallelism"], spec["completions"]) == (6, 6)
    lowered_again = start(stopped, counts={"main": 3})
    assert (lowered_again["spec"]["parallelism"], lowered_again["spec"]["completions"]) == (3, 3)


def test_a_start_with_all_that_is_left_of_a_job_leaves_its_numbers_as_they_are():
    obj = held("job")
    obj["metadata"]["annotations"] = {names.MIN_PARALLELISM: "1"}
    obj["spec"]["completions"] = 10
    obj["status"] = {"succeeded": 8}
    running = start(obj, {"main": 2})
    assert (running["spec"]["parallelism"], running["spec"]["completions"]) == (4, 10)
    assert record_of(running).admission.counts == {"main": 2}
    assert start(obj, {"main": 1})["spec"]["parallelism"] == 1, "a start with less still lowers it"


def test_a_gang_that_starts_with_its_quorum_keeps_its_parallelism_and_notes_its_growth():
    obj = load("job")
    obj["spec"] |= {"parallelism": 4, "completions": 4}
    running = start(apply(obj, marking.mark(kind_of(obj), obj)), counts={"main": 3})
    assert running["spec"]["parallelism"] == 4
    record = record_of(running)
    assert (dict(record.admission.counts), dict(record.admission.original_counts)) == ({"main": 3}, {})
    grown = apply(running, patches.grow(record, reservation_of(record, counts={"main": 4})))
    assert record_of(grown).admission == replace(record.admission, counts={"main": 4})
    assert grown["spec"] == running["spec"]


def test_a_count_that_the_owner_changed_while_stopped_is_kept():
    obj = load("job")
    obj["metadata"]["annotations"] = {names.MIN_PARALLELISM: "1"}
    running = start(apply(obj, marking.mark(kind_of(obj), obj)), counts={"main": 2})
    stopped = stopped_in_cluster(apply(running, patches.stop(record_of(running), REQUEUE)))
    stopped["spec"]["parallelism"] = 3
    assert record_of(stopped).gang.pods == 3
    assert apply(stopped, patches.restore(record_of(stopped)))["spec"]["parallelism"] == 3


def test_every_patch_names_uid_and_resource_version():
    waiting = held("job")
    record = record_of(waiting)
    reservation = reservation_of(record)
    running = record_of(start(waiting))
    for patch, version in (
        (patches.start(record, reservation, (1, 1), {}), record.resource_version),
        (patches.void(record, 2), record.resource_version),
        (patches.adopt(record, reservation, (1, 1)), record.resource_version),
        (patches.stop(running, REQUEUE), running.resource_version),
    ):
        assert patch[:2] == [
            {"op": "test", "path": "/metadata/uid", "value": record.uid},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": str(version)},
        ]


def test_the_start_time_of_the_last_run_is_cleared_under_the_same_precondition():
    obj = load("job")
    obj["spec"]["suspend"] = True
    obj = stopped_in_cluster(obj)
    obj["status"] |= {"failed": 1, "startTime": "2026-03-01T10:00:05Z"}
    patch = patches.clear(record_of(obj))
    assert {operation["path"] for operation in patch[:2]} == {"/metadata/uid", "/metadata/resourceVersion"}
    assert apply(obj, patch)["status"] == {key: obj["status"][key] for key in ("conditions", "failed")}


def test_voiding_twice_in_one_epoch_moves_the_object_twice():
    first = apply(held("job"), patches.void(record_of(held("job")), 7))
    second = apply(first, patches.void(record_of(first), 7))
    values = [obj["metadata"]["annotations"][names.VOIDED] for obj in (first, second)]
    assert values[0] != values[1]


def test_the_stop_of_a_job_that_was_never_started_moves_it_also_where_it_says_the_same_as_before():
    """Its start may still be on its way, and the API server stores no write that changes nothing."""
    first = apply(held("job"), patches.stop(record_of(held("job")), REQUEUE))
    second = apply(first, patches.stop(record_of(first), REQUEUE))
    notes = [obj["metadata"]["annotations"] for obj in (first, second)]
    assert notes[0][names.REQUEUE] == notes[1][names.REQUEUE]
    assert notes[0][names.VOIDED] != notes[1][names.VOIDED]


def test_a_hold_is_written_with_the_stop_and_removed_by_the_next_start():
    running = start(held("job"))
    stopped = stopped_in_cluster(apply(running, patches.stop(record_of(running), REQUEUE, hold=True)))
    assert record_of(stopped).held
    again = record_of(start(stopped))
    assert not again.held
    assert again.requeue is None


def test_a_job_that_its_owner_suspended_is_stopped_without_touching_suspend():
    running = start(held("job"))
    running["spec"]["suspend"] = True
    patch = patches.stop(record_of(running), REQUEUE, hold=True)
    assert not [operation for operation in patch if operation["path"] == "/spec/suspend"]


def test_stopping_a_job_without_run_policy_makes_it():
    obj = load("pytorchjob")
    stopped = apply(obj, patches.stop(record_of(obj), REQUEUE))
    assert stopped["spec"]["runPolicy"] == {"suspend": True}


def test_adoption_writes_the_admission_and_nothing_else():
    obj = load("job")
    record = record_of(obj)
    adopted = apply(obj, patches.adopt(record, reservation_of(record), (3, 9)))
    assert adopted["spec"] == obj["spec"]
    assert record_of(adopted).admission.counts == {"main": 4}


def test_strip_of_a_stopped_job_takes_back_flavors_and_annotations():
    obj = load("job")
    running = start(apply(obj, marking.mark(kind_of(obj), obj)))
    stopped = stopped_in_cluster(apply(running, patches.stop(record_of(running), REQUEUE, hold=True)))
    clean = apply(stopped, marking.strip(kind_of(obj), stopped, NO_CONTEXT, suspend=False))
    assert clean["spec"] == obj["spec"]
    assert "annotations" not in clean["metadata"]


def test_strip_of_a_running_job_touches_no_frozen_template():
    running = start(held("job"))
    patch = marking.strip(kind_of(running), running, NO_CONTEXT, suspend=None)
    assert patch
    assert all(operation["path"].startswith("/metadata/annotations") for operation in patch)


def test_an_annotation_of_another_job_is_not_believed():
    running = start(held("job"))
    running["metadata"]["uid"] = "another"
    assert record_of(running).admission is None
    text = annotations.encode_requeue(REQUEUE, "mine")
    assert annotations.decode_requeue(text, "mine") == REQUEUE
    assert annotations.decode_requeue(text, "yours") is None
    for odd in ("", "{", "[]", '{"uid":"mine"}', '{"uid":"mine","reason":1,"place":"x"}', None, 5):
        assert annotations.decode_requeue(odd, "mine") is None
        assert annotations.decode_admission(odd, "mine") is None
