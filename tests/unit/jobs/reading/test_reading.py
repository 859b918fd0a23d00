"""Reading a job object: what it asks, where it stands."""

import copy
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.jobs.objects_of_kinds import CONTEXT, NAMES, kind_of, load, record_of
from webhook.core.notation import names
from webhook.core.notation.quantity import MILLI
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.pricing.context import ReadContext, context_from
from webhook.jobs.reading.job import read
from webhook.jobs.reading.record import JobRecord, Owner

MIB = 2**20 * MILLI
ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.floats(allow_nan=False) | st.text("ab/", max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "spec", "labels"]), inner),
    max_leaves=5,
)


def sets(record):
    return {s.name: s.count for s in record.gang.pod_sets}


def test_a_job_asks_for_its_parallelism_at_its_price():
    record = record_of(load("job"))
    assert record.problem is None
    assert sets(record) == {"main": 4}
    assert record.gang.requests()["nvidia.com/gpu"] == 4 * MILLI
    assert record.gang.queue == "gpu-queue"
    assert record.gang.pod_sets[0].node_selector == {"disk": "ssd"}
    assert (record.namespace, record.name, record.resource_version) == ("research", "trainer", 701)
    assert record.created_seconds == 1772359200.0


@pytest.mark.parametrize(
    ("parallelism", "completions", "pods"),
    [(None, None, 1), (3, None, 3), (None, 5, 1), (4, 2, 2), (2, 9, 2), (0, None, 0)],
)
def test_a_jobs_pods_are_the_lesser_of_parallelism_and_completions(parallelism, completions, pods):
    obj = load("job")
    obj["spec"] |= {"parallelism": parallelism, "completions": completions}
    assert record_of(obj).gang.pods == pods


def test_a_jobset_has_a_pod_set_for_each_replicated_job():
    record = record_of(load("jobset"))
    assert sets(record) == {"driver": 1, "workers": 4}
    assert record.gang.queue == "gpu-queue"


def test_replica_types_come_in_their_fixed_order_whatever_their_case():
    assert [s.name for s in record_of(load("pytorchjob")).gang.pod_sets] == ["master", "worker"]
    tfjob = record_of(load("tfjob"))
    assert [s.name for s in tfjob.gang.pod_sets] == ["ps", "worker"]
    assert tfjob.templates[1].path == "/spec/tfReplicaSpecs/worker/template"


def test_an_unknown_replica_type_is_named():
    obj = load("pytorchjob")
    obj["spec"]["pytorchReplicaSpecs"]["Helper"] = {}
    record = record_of(obj)
    assert record.gang is None
    assert "Helper" in str(record.problem)
    assert "Master, Worker" in str(record.problem)


@pytest.mark.parametrize("label", names.POD_GROUP_LABELS)
def test_a_pod_group_of_any_generation_is_found(label):
    obj = load("job")
    obj["spec"]["template"]["metadata"]["labels"][label] = "group"
    record = record_of(obj)
    assert record.gang.pod_group == "group"
    assert record.gang.quorum is None


def test_the_lightweight_label_gives_the_quorum():
    obj = load("job")
    labels = obj["spec"]["template"]["metadata"]["labels"]
    labels |= {names.POD_GROUP_LABELS[2]: "group", names.MIN_AVAILABLE_LABEL: "3"}
    assert record_of(obj).gang.quorum == 3
    labels[names.MIN_AVAILABLE_LABEL] = "5"
    assert record_of(obj).gang.quorum == 5, "other jobs of the group bring the rest"
    for odd in ("0", "three", ""):
        labels[names.MIN_AVAILABLE_LABEL] = odd
        assert names.MIN_AVAILABLE_LABEL in str(record_of(obj).problem)
    del labels[names.POD_GROUP_LABELS[2]]
    labels[names.MIN_AVAILABLE_LABEL] = "5"
    assert "only 4 pods" in str(record_of(obj).problem)


def test_a_job_shares_the_quorum_of_its_pod_group_unless_it_states_one_of_its_own():
    job, torch = load("job"), load("pytorchjob")
    job["spec"]["template"]["metadata"]["labels"][names.POD_GROUP_LABELS[0]] = "ring"
    assert record_of(job).gang.ensemble == "ring"
    for template in (torch["spec"]["pytorchReplicaSpecs"][role]["template"] for role in ("Master", "Worker")):
        template["metadata"] = {"labels": {names.POD_GROUP_LABELS[0]: "ring"}}
    assert record_of(torch).gang.ensemble == "ring"
    torch["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": 1}}
    assert record_of(torch).gang.ensemble == ""
    assert record_of(torch).gang.pod_group == "ring"


def test_two_pod_groups_in_one_gang_are_refused():
    obj = load("pytorchjob")
    for role, group in (("Master", "a"), ("Worker", "b")):
        template = obj["spec"]["pytorchReplicaSpecs"][role]["template"]
        template["metadata"] = {"labels": {names.POD_GROUP_LABELS[0]: group}}
    assert "several PodGroups" in str(record_of(obj).problem)


def test_priority_comes_from_label_then_kind_then_pods_then_default():
    context = ReadContext({"pods": 5, "kind": 6, "usual": 3}, "usual", {"work": 7})
    obj = load("pytorchjob")
    assert record_of(obj, context).gang.priority == 3
    assert record_of(obj).gang.priority == 0
    obj["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["priorityClassName"] = "pods"
    assert record_of(obj, context).gang.priority == 5
    obj["spec"]["runPolicy"] = {"schedulingPolicy": {"priorityClass": "kind"}}
    assert record_of(obj, context).gang.priority == 6
    obj["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = "work"
    assert record_of(obj, context).gang.priority == 7
    assert not record_of(obj, context).missing_class


def test_a_priority_class_that_does_not_exist_is_told_and_leaves_the_gang_readable():
    obj = load("pytorchjob")
    obj["spec"]["runPolicy"] = {"schedulingPolicy": {"priorityClass": "kind"}}
    obj["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = "gone"
    record = record_of(obj, ReadContext({"kind": 6}))
    assert record.missing_class.label == "WorkloadPriorityClass 'gone'"
    assert record.gang.priority == 6
    assert not record_of(obj, ReadContext({"kind": 6}, "", {"gone": 1})).missing_class


def test_the_default_priority_class_is_what_quota_scopes_see():
    context = ReadContext({"usual": 3}, "usual")
    assert record_of(load("job"), context).gang.pod_sets[0].price.priority_class == "usual"


def test_what_is_kept_of_jobs_that_cost_the_same_is_one_price():
    first, second = record_of(load("job")), record_of(load("job"))
    price = first.gang.pod_sets[0].price
    assert second.gang.pod_sets[0].price is price


def test_limit_ranges_and_runtime_overhead_are_part_of_the_price():
    limit = {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "default": {"cpu": "3"}}]}}
    kata = {"metadata": {"name": "kata"}, "overhead": {"podFixed": {"cpu": "500m"}}}
    context = replace(context_from(runtime_classes=[kata]), limit_ranges={"research": [limit]})
    obj = load("jobset")
    for job in obj["spec"]["replicatedJobs"]:
        job["template"]["spec"]["template"]["spec"]["runtimeClassName"] = "kata"
    driver, workers = record_of(obj, context).gang.pod_sets
    assert driver.price.requests["cpu"] == 1000
    assert workers.price.requests["cpu"] == 3500


def test_what_the_kinds_controller_adds_to_pods_is_part_of_the_price():
    obj = load("pytorchjob")
    master, worker = record_of(obj).gang.pod_sets
    assert worker.price.requests["memory"] == 10 * MIB
    assert worker.price.limits["memory"] == 20 * MIB
    assert worker.price.requests["cpu"] == MILLI // 20
    assert worker.added == {"cpu", "memory"}
    assert "memory" not in master.price.requests
    assert not master.added
    del obj["spec"]["pytorchReplicaSpecs"]["Master"]
    assert "memory" not in record_of(obj).gang.pod_sets[0].price.requests, "no worker waits where there is no master"


def test_what_asks_more_than_an_added_container_costs_what_it_asks():
    obj = load("pytorchjob")
    container = obj["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["resources"]["requests"] = {"memory": "1Gi"}
    worker = record_of(obj).gang.pod_sets[1]
    assert worker.price.requests["memory"] == 1024 * MIB
    assert worker.added == {"cpu"}


def test_an_added_container_that_a_limit_range_refuses_is_told_before_anything_starts():
    limits = [{"type": "Container", "min": {"memory": "64Mi"}, "defaultRequest": {"memory": "1Gi"}}]
    context = ReadContext(limit_ranges={"research": [{"spec": {"limits": limits}}]})
    assert record_of(load("pytorchjob"), context).out_of_bounds.startswith("pod set worker: container added")
    limits[0]["min"] = {"memory": "10Mi"}
    assert not record_of(load("pytorchjob"), context).out_of_bounds


def test_ray_workers_wait_for_their_head_and_a_launcher_fetches_kubectl_where_the_training_operator_runs_it():
    head, *workers = record_of(load("raycluster")).gang.pod_sets
    assert all(worker.price.requests["memory"] >= 256 * MIB for worker in workers)
    assert head.name == "head"
    mpi = load("mpijob")
    kind = kind_of(mpi)
    added = {v: read(replace(kind, version=v), mpi, CONTEXT).gang.pod_sets[0].price.requests for v in ("v1", "v2beta1")}
    assert added["v1"]["ephemeral-storage"] == 5120 * MIB
    assert "ephemeral-storage" not in added["v2beta1"]


def test_a_run_time_limit_is_the_label_or_the_kinds_own_deadline():
    obj = load("job")
    assert record_of(obj).gang.max_run_seconds is None
    obj["metadata"]["labels"][names.MAX_EXECUTION_LABEL] = "600"
    assert record_of(obj).gang.max_run_seconds == 600
    obj["spec"]["activeDeadlineSeconds"] = 60
    assert record_of(obj).gang.max_run_seconds == 60


def test_min_parallelism_must_be_below_the_count():
    obj = load("job")
    obj["metadata"]["annotations"] = {names.MIN_PARALLELISM: "3"}
    assert record_of(obj).gang.pod_sets[0].min_count == 3
    for odd in ("5", "0", "x"):
        obj["metadata"]["annotations"][names.MIN_PARALLELISM] = odd
        assert record_of(obj).problem is not None


def condition(kind, status="True"):
    return {"conditions": [{"type": kind, "status": status}]}


@pytest.mark.parametrize(
    ("name", "succeeded", "failed"),
    [("job", "Complete", "Failed"), ("jobset", "Completed", "Failed"), ("pytorchjob", "Succeeded", "Failed")],
)
def test_a_job_has_ended_when_its_condition_says_so(name, succeeded, failed):
    obj = load(name)
    assert record_of(obj).finished is None
    assert record_of({**obj, "status": condition(succeeded)}).finished == "Succeeded"
    assert record_of({**obj, "status": condition(failed)}).finished == "Failed"
    assert record_of({**obj, "status": condition(failed, "False")}).finished is None


def test_active_and_ready_follow_the_controllers_report():
    job = load("job")
    running = {**job, "status": {"active": 4, "ready": 2, "succeeded": 1}}
    assert record_of(running).active
    assert not record_of(running).ready
    running["status"]["uncountedTerminatedPods"] = {"succeeded": ["a-pod"]}
    assert record_of(running).ready
    jobset = load("jobset")
    jobset["status"] = {"replicatedJobsStatus": [{"name": "Driver", "ready": 1}, {"name": "workers", "active": 2}]}
    assert record_of(jobset).active
    assert not record_of(jobset).ready
    jobset["status"]["replicatedJobsStatus"][1] |= {"ready": 1, "succeeded": 1}
    assert record_of(jobset).ready
    torch = {**load("pytorchjob"), "status": {"replicaStatuses": {"Worker": {"active": 3}}, **condition("Running")}}
    assert record_of(torch).active
    assert not record_of(torch).ready
    torch["status"]["replicaStatuses"]["Master"] = {"active": 1}
    assert record_of(torch).ready


def test_templates_of_a_job_change_only_while_it_is_stopped():
    obj = load("job")
    assert not record_of(obj).restorable
    obj["spec"]["suspend"] = True
    assert record_of(obj).restorable
    obj["status"] = {"startTime": "2026-03-01T10:00:05Z"}
    assert not record_of(obj).restorable
    obj["status"] = condition("Suspended")
    assert record_of(obj).restorable
    obj["status"]["active"] = 1
    assert not record_of(obj).restorable


def test_a_start_time_is_left_over_once_the_controller_reports_the_job_stopped():
    obj = load("job")
    obj["status"] = {"startTime": "2026-03-01T10:00:05Z"} | condition("Suspended")
    assert not record_of(obj).start_time_left
    obj["spec"]["suspend"] = True
    assert (record_of(obj).restorable, record_of(obj).start_time_left) == (False, True)
    obj["status"]["active"] = 1
    assert not record_of(obj).start_time_left
    obj["status"] = {"startTime": "2026-03-01T10:00:05Z"}
    assert not record_of(obj).start_time_left


def test_owner_and_manager_are_read():
    obj = load("job")
    reference = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "u"}
    obj["metadata"]["ownerReferences"] = [reference]
    assert record_of(obj).owner is None
    reference["controller"] = True
    assert record_of(obj).owner == Owner("JobSet.jobset.x-k8s.io", "s", "u")
    assert record_of(obj, kinds={"Job.batch": KINDS["Job.batch"]}).owner is None, "nobody knows that kind here"
    assert not record_of(obj).managed_by_other
    obj["spec"]["managedBy"] = "kubernetes.io/job-controller"
    assert not record_of(obj).managed_by_other
    obj["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    assert record_of(obj).managed_by_other


def test_a_jobset_that_starts_in_order_says_so():
    obj = load("jobset")
    assert not record_of(obj).ordered_start
    obj["spec"]["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
    assert record_of(obj).ordered_start


def test_an_unpriceable_pod_is_a_problem_that_names_the_pod_set_and_field():
    obj = load("pytorchjob")
    obj["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["resourceClaims"] = [{"name": "g"}]
    record = record_of(obj)
    assert record.gang is None
    assert "worker" in str(record.problem)
    assert "spec.resourceClaims" in str(record.problem)


def places(node, path=()):
    yield path
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))


@given(st.sampled_from(NAMES), st.data())
def test_reading_never_raises_whatever_stands_at_any_place(name, data):
    obj = copy.deepcopy(load_once(name))
    obj["status"] = {"conditions": [{"type": "Complete"}], "active": 1, "replicatedJobsStatus": [{"name": "workers"}]}
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(list(places(obj))[1:]))
        node = obj
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = data.draw(ODD)
    record = read(kind_of(load_once(name)), obj, CONTEXT)
    assert isinstance(record, JobRecord)
    assert (record.gang is None) == (record.problem is not None)


@given(ODD)
def test_reading_never_raises_on_something_else_entirely(odd):
    for kind in KINDS.values():
        assert read(kind, odd, CONTEXT).problem is not None


LOADED = {}


def load_once(name):
    if name not in LOADED:
        LOADED[name] = load(name)
    return LOADED[name]


def test_records_of_equal_objects_are_equal():
    assert record_of(load("job")) == record_of(load("job"))
    assert replace(record_of(load("job")), suspended=True) != record_of(load("job"))


def test_who_has_to_agree_before_a_job_is_queued_is_read():
    obj = load("job")
    assert record_of(obj).admission_gates == ""
    obj["metadata"].setdefault("annotations", {})[names.ADMISSION_GATES] = "acme.com/budget"
    assert record_of(obj).admission_gates == "acme.com/budget"


def test_a_workload_priority_class_called_default_holds_for_jobs_in_a_queue_that_name_none():
    context = ReadContext({"kind": 6}, "", {"default": 4, "work": 7})
    obj = load("pytorchjob")
    obj["spec"]["runPolicy"] = {"schedulingPolicy": {"priorityClass": "kind"}}
    assert record_of(obj, context).gang.priority == 4
    obj["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = "work"
    assert record_of(obj, context).gang.priority == 7
    for label in (names.PRIORITY_CLASS_LABEL, *names.QUEUE_LABELS):
        obj["metadata"]["labels"].pop(label, None)
    assert record_of(obj, context).gang.priority == 6
