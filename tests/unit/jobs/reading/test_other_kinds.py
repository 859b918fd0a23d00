"""Kinds that paths alone cannot read, and kinds that are held in another way than by a suspend field."""

import copy
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.jobs.objects_of_kinds import apply, kind_of, load, record_of, reservation_of, special
from tests.unit.jobs.patches.test_patches import FLAVORS, REQUEUE
from tests.unit.jobs.reading.test_reading import ODD, places
from webhook.core.notation import names
from webhook.core.notation.quantity import MILLI
from webhook.jobs.patches import job as patches
from webhook.jobs.patches import marking
from webhook.jobs.pod_sets.train_job import MANAGER
from webhook.jobs.pricing.context import NO_CONTEXT, ReadContext, context_from
from webhook.jobs.reading.gating import gated_by
from webhook.jobs.reading.job import read
from webhook.untyped import paths

GI = 1024**3 * MILLI
MI = 1024**2 * MILLI


RUNTIMES = context_from(training_runtimes=[special("runtime")])


def counts(record):
    assert record.gang is not None, record.problem
    return record.gang.counts


def refused(obj, *path_and_value, context=RUNTIMES):
    *path, value = path_and_value
    changed = copy.deepcopy(obj)
    node = changed
    for key in path[:-1]:
        node = node.setdefault(key, {}) if isinstance(node, dict) else node[key]
    node[path[-1]] = value
    return str(record_of(changed, context).problem or "")


@pytest.mark.parametrize(
    ("follow", "spec", "says"),
    [
        ("perhaps", {"completionMode": "Indexed"}, "neither true nor false"),
        ("true", {"completionMode": "NonIndexed"}, "only the completions of an Indexed Job"),
        ("true", {"completionMode": "Indexed", "completions": 9}, "only the completions of an Indexed Job"),
        ("true", {"completionMode": "Indexed"}, ""),
        ("false", {"completionMode": "NonIndexed", "completions": 9}, ""),
    ],
)
def test_completions_that_cannot_follow_are_told_at_the_door(follow, spec, says):
    obj = load("job")
    obj["metadata"]["annotations"] = {names.COMPLETIONS_FOLLOW: follow}
    obj["spec"] |= spec
    problem = record_of(obj).problem
    assert problem is None if not says else says in str(problem)


def test_a_ray_cluster_counts_hosts_of_each_worker_group():
    assert counts(record_of(load("raycluster"))) == {"head": 1, "gpu": 6, "cpu": 0}
    assert "enableInTreeAutoscaling" in refused(load("raycluster"), "spec", "enableInTreeAutoscaling", True)


def test_a_ray_job_is_its_cluster_and_its_submitter():
    obj = load("rayjob")
    assert counts(record_of(obj)) == {"head": 1, "gpu": 4, "submitter": 1}
    obj["spec"]["submissionMode"] = "HTTPMode"
    assert counts(record_of(obj)) == {"head": 1, "gpu": 4}
    assert "shutdownAfterJobFinishes" in refused(obj, "spec", "shutdownAfterJobFinishes", False)
    assert "clusterSelector" in refused(obj, "spec", "clusterSelector", {"a": "b"})


def test_a_submitter_beside_the_head_costs_the_head_more():
    obj = load("rayjob")
    obj["spec"] |= {"submissionMode": "SidecarMode", "submitterPodTemplate": None}
    head, workers = record_of(obj).gang.pod_sets
    assert head.price.requests == {"cpu": 2500, "memory": 200 * MI}
    assert head.price.limits == {"cpu": MILLI, "memory": GI}
    assert workers.price.requests == {"nvidia.com/gpu": MILLI, "cpu": 200, "memory": 256 * MI}
    containers = obj["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
    containers.append({"name": "ray-job-submitter", "image": "i", "resources": {"requests": {"cpu": "100m"}}})
    assert record_of(obj).gang.pod_sets[0].price.requests == {"cpu": 2100}


@pytest.mark.parametrize(
    ("deployment", "job", "ended"),
    [
        ("Complete", "SUCCEEDED", "Succeeded"),
        ("Complete", "FAILED", "Failed"),
        ("Failed", "", "Failed"),
        ("Running", "SUCCEEDED", None),
        ("Retrying", "FAILED", None),
    ],
)
def test_a_ray_job_has_ended_when_its_deployment_has(deployment, job, ended):
    obj = {**load("rayjob"), "status": {"jobDeploymentStatus": deployment, "jobStatus": job}}
    assert record_of(obj).finished == ended
    assert record_of(obj).active is (ended is None)


def test_spark_pods_cost_cores_and_memory_with_overhead():
    driver, executor = record_of(load("sparkapplication")).gang.pod_sets
    assert driver.price.requests == {"cpu": MILLI, "memory": (512 + 384) * MI}
    assert driver.price.limits == {"cpu": 1200, "memory": (512 + 384) * MI}
    assert executor.count == 3
    assert executor.price.requests == {"cpu": 2 * MILLI, "memory": 4 * GI + 512 * MI, "nvidia.com/gpu": MILLI}
    obj = load("sparkapplication")
    obj["spec"]["executor"] |= {"memoryOverhead": None, "sidecars": [{"resources": {"requests": {"cpu": "1"}}}]}
    executor = record_of(obj).gang.pod_sets[1]
    assert executor.price.requests["cpu"] == 3 * MILLI
    assert executor.price.requests["memory"] == (4096 + 1638) * MI


@pytest.mark.parametrize(
    ("role", "mebibytes"),
    [
        ({}, 1024 + 409),
        ({"memory": "3000"}, 3000 + 1200),
        ({"memory": 3000}, 3000 + 1200),
        ({"memory": "3000mb", "memoryOverhead": "700"}, 3700),
        ({"memory": "2T", "memoryOverhead": "1536k"}, 2 * 1024**2 + 1),
        ({"memory": "900m"}, 900 + 384),
    ],
)
def test_spark_counts_memory_in_whole_mebibytes(role, mebibytes):
    obj = load("sparkapplication")
    obj["spec"]["executor"] = {"instances": 1, **role}
    executor = record_of(obj).gang.pod_sets[1]
    assert executor.price.requests == {"cpu": MILLI, "memory": mebibytes * MI}
    assert executor.price.limits == {"memory": mebibytes * MI}


def test_a_memory_limit_of_spark_is_above_what_is_asked():
    obj = load("sparkapplication")
    obj["spec"]["driver"] |= {"memoryLimit": "2g", "gpu": {"quantity": 1}}
    driver = record_of(obj).gang.pod_sets[0]
    assert driver.price.requests == {"cpu": MILLI, "memory": (512 + 384) * MI}
    assert driver.price.limits == {"cpu": 1200, "memory": 2 * GI}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("mode",), "client"),
        (("dynamicAllocation", "enabled"), True),
        (("nodeSelector",), {"a": "b"}),
        (("executor", "instances"), None),
        (("executor", "memory"), "lots"),
        (("executor", "memory"), "512Mi"),
        (("memoryOverheadFactor",), "many"),
        (("sparkConf", "spark.executor.memory"), "9g"),
        (("sparkConf", "spark.executor.resource.gpu.amount"), "1"),
        (("sparkConf", "spark.kubernetes.executor.request.cores"), "9"),
        (("executor", "template"), {"spec": {"containers": [{}]}}),
    ],
)
def test_what_would_size_spark_pods_past_the_fields_is_refused(path, value):
    assert path[-1] in refused(load("sparkapplication"), "spec", *path, value)


def test_an_app_wrapper_is_its_declared_pod_sets():
    record = record_of(load("appwrapper"))
    assert counts(record) == {"wrapped-0": 3, "wrapped-1": 1}
    assert record.gang.pod_sets[0].node_selector == {"disk": "ssd"}
    held = apply(load("appwrapper"), marking.mark(kind_of(load("appwrapper")), load("appwrapper")))
    infos = held["spec"]["components"][0]["podSetInfos"]
    assert infos == [{"labels": {names.GANG_LABEL: "pending", names.POD_SET_LABEL: "wrapped-0"}}]
    clean = apply(held, marking.strip(kind_of(held), held, NO_CONTEXT, suspend=False))
    del clean["spec"]["suspend"]
    assert clean["spec"] == load("appwrapper")["spec"]
    assert "leads to no pod template" in refused(
        load("appwrapper"), "spec", "components", 0, "podSets", [{"path": "template.spec.nothing[3]"}]
    )


def test_a_workflow_asks_what_its_annotation_says_and_its_pods_are_loose():
    obj = special("workflow")
    record = record_of(obj)
    assert record.gang.requests() == {"cpu": 4 * MILLI, "nvidia.com/gpu": 2 * MILLI}
    assert record.gang.loose_pods
    assert record.gang.least_counts == {"main": 1}, "it is charged as a whole, whatever it starts with"
    assert record.templates == ()
    assert not kind_of(obj).evictable
    held = apply(obj, marking.mark(kind_of(obj), obj))
    running = apply(held, patches.start(record_of(held), reservation_of(record_of(held)), (1, 1), FLAVORS))
    assert running["spec"]["suspend"] is False
    assert running["spec"]["templates"] == obj["spec"]["templates"]
    obj["metadata"]["annotations"] = {"kube-queue/min-resources": "{cpu: 2, memory: 1Gi}"}
    assert record_of(obj).gang.requests() == {"cpu": 2 * MILLI, "memory": GI}
    for odd in ({}, {"kube-queue/min-resources": "four"}, {"kube-queue/min-resources": "cpu: many"}):
        obj["metadata"]["annotations"] = odd
        assert record_of(obj).problem


@pytest.mark.parametrize(
    ("asked", "costs"),
    [
        ({}, {"cpu": 200, "memory": 256 * MI}),
        ({"requests": {"cpu": "2"}}, {"cpu": 2000, "memory": 256 * MI}),
        ({"limits": {"cpu": "100m", "memory": "1Gi"}}, {"cpu": 200, "memory": GI}),
    ],
)
def test_the_head_of_a_fault_tolerant_ray_cluster_covers_its_cleaning_up(asked, costs):
    for kind, cluster in (("raycluster", ("spec",)), ("rayjob", ("spec", "rayClusterSpec"))):
        obj = load(kind)
        spec = obj
        for key in cluster:
            spec = spec[key]
        spec["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"] = asked
        plain = record_of(obj).gang.pod_sets[0]
        assert plain.price.requests != costs
        obj["metadata"]["annotations"] = {"ray.io/ft-enabled": "TRUE"}
        by_annotation = record_of(obj)
        assert by_annotation.gang.pod_sets[0].price.requests == costs
        assert by_annotation.out_of_bounds == ""
        assert by_annotation.gang.pod_sets[0].tolerations == plain.tolerations
        del obj["metadata"]["annotations"]
        spec["gcsFaultToleranceOptions"] = {"redisAddress": "redis:6379"}
        assert record_of(obj).gang.pod_sets[0].price.requests == costs


def test_a_train_job_reclaims_the_pods_of_child_jobs_that_succeeded():
    obj = special("trainjob")
    obj["status"] = {"jobsStatus": [{"name": "dataset-initializer", "succeeded": 1}, {"name": "node", "active": 1}]}
    assert record_of(obj, RUNTIMES).reclaimed == {"dataset-initializer": 1}


def test_a_train_job_asks_again_for_what_a_restart_of_its_jobset_would_run_again():
    obj = special("trainjob")
    obj["status"] = {"jobsStatus": [{"name": "dataset-initializer", "succeeded": 1}]}
    assert record_of(obj, RUNTIMES).asks.counts["dataset-initializer"] == 0
    runtimes = copy.deepcopy(RUNTIMES.training_runtimes)
    for runtime in runtimes.values():
        runtime["spec"]["template"]["spec"]["failurePolicy"] = {"maxRestarts": 3}
    restarting = replace(RUNTIMES, training_runtimes=runtimes)
    assert record_of(obj, restarting).asks.counts["dataset-initializer"] == 1


def test_a_train_job_is_whole_once_each_of_its_child_jobs_is():
    obj = special("trainjob")
    obj["status"] = {"conditions": [{"type": "Suspended", "status": "False"}]}
    assert not record_of(obj, RUNTIMES).ready
    obj["status"]["jobsStatus"] = [{"name": "dataset-initializer", "succeeded": 1}]
    assert not record_of(obj, RUNTIMES).ready
    obj["status"]["jobsStatus"].append({"name": "node", "ready": 1})
    assert record_of(obj, RUNTIMES).ready


def test_a_spark_application_is_whole_once_its_executors_run():
    obj = load("sparkapplication")
    obj["spec"]["executor"]["instances"] = 2
    obj["status"] = {
        "applicationState": {"state": "RUNNING"},
        "executorState": {"exec-1": "RUNNING", "exec-2": "PENDING"},
    }
    assert not record_of(obj).ready
    obj["status"]["executorState"]["exec-2"] = "COMPLETED"
    assert record_of(obj).ready
    obj["status"]["applicationState"]["state"] = "FAILING"
    assert not record_of(obj).ready


def test_an_app_wrapper_infers_the_pods_of_kinds_that_its_controller_knows():
    wrapped = load("appwrapper")
    service = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]}}
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c"}]}}
    web = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 5, "template": {"spec": pod["spec"]}}}
    kinds = ("job", "jobset", "pytorchjob", "raycluster", "rayjob")
    inner = {kind: record_of(load(kind)).gang for kind in kinds}
    wrapped["spec"]["components"] = [{"template": t} for t in (service, pod, web, *map(load, kinds))]
    expected = [1, 5, *(s.count for kind in kinds for s in inner[kind].pod_sets if s.name != "submitter")]
    assert list(counts(record_of(wrapped)).values()) == expected
    assert list(counts(record_of(wrapped))) == [f"wrapped-{index}" for index in range(len(expected))]


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("kind", ["pytorchjob", "raycluster"])
def test_pods_of_an_app_wrapper_cost_what_they_cost_by_themselves(kind, declared):
    """Workers got no room for what their controller adds, and were refused where they ask for less than that."""
    wrapped, inner = load("appwrapper"), load(kind)
    small = {"limits": {"cpu": "10m", "memory": "1Mi"}}
    places: list[tuple[str | int, ...]] = {
        "pytorchjob": [("spec", "pytorchReplicaSpecs", name, "template") for name in ("Master", "Worker")],
        "raycluster": [("spec", "headGroupSpec", "template"), ("spec", "workerGroupSpecs", 0, "template")],
    }[kind]
    for place in places:
        paths.find_at(inner, place)["spec"]["containers"][0]["resources"] = small
    component = {"template": inner}
    if declared:
        steps = ["".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place) for place in places]
        component["podSets"] = [{"path": f"template{step}"} for step in steps]
    wrapped["spec"]["components"] = [component]
    prices = [pod_set.price for pod_set in record_of(wrapped).gang.pod_sets][:2]
    assert prices == [pod_set.price for pod_set in record_of(inner).gang.pod_sets][:2]
    assert prices[0] != prices[1]


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ({"apiVersion": "v1", "kind": "ConfigMap"}, "none has pods"),
        ({"apiVersion": "kubeflow.org/v1", "kind": "TFJob"}, "declares no pods of TFJob"),
        (
            {"apiVersion": "own.dev/v1", "kind": "Sweep", "spec": {"of": [{"containers": []}]}},
            "declares no pods of Sweep",
        ),
        ({"apiVersion": "batch/v1", "kind": "Job"}, "has no pod template"),
    ],
)
def test_pods_of_an_app_wrapper_that_nobody_counts_are_refused(template, says):
    wrapped = load("appwrapper")
    wrapped["spec"]["components"] = [{"template": template}]
    assert says in str(record_of(wrapped).problem)


@pytest.mark.parametrize(
    ("written", "pods"),
    [
        ({"replicas": 1, "minReplicas": 3, "maxReplicas": 5}, 9),
        ({"replicas": 8, "minReplicas": 3, "maxReplicas": 5}, 15),
        ({"replicas": 4, "minReplicas": 3, "maxReplicas": 5}, 12),
        ({"replicas": None, "minReplicas": 2}, 6),
        ({"replicas": None}, 0),
    ],
)
def test_a_group_of_ray_workers_has_as_many_pods_as_its_bounds_allow(written, pods):
    obj = load("raycluster")
    obj["spec"]["workerGroupSpecs"][0] |= written
    assert counts(record_of(obj))["gpu"] == pods


def test_a_train_job_is_what_its_runtime_makes_of_it():
    obj = special("trainjob")
    record = record_of(obj, RUNTIMES)
    assert counts(record) == {"dataset-initializer": 1, "node": 3}
    assert record.gang.requests()["nvidia.com/gpu"] == 12 * MILLI
    assert "torch-distributed" in str(record_of(obj).problem)
    assert "numNodes" in refused(obj, "spec", "trainer", "numNodes", "x")


@pytest.mark.parametrize("marked", [True, False])
def test_a_train_job_starts_in_two_patches_and_restores_in_one(marked):
    obj = special("trainjob")
    kind = kind_of(obj)
    obj["spec"]["suspend"] = True
    waiting = apply(obj, marking.mark(kind, obj, RUNTIMES)) if marked else obj
    assert record_of(waiting, RUNTIMES).marked is marked
    record = record_of(waiting, RUNTIMES)
    flavors = {s.name: {"nvidia.com/gpu": "spot"} for s in record.gang.pod_sets}
    reservation = reservation_of(record, flavors=flavors)
    prepared = apply(waiting, patches.start(record, reservation, (3, 1), FLAVORS))
    assert prepared["spec"]["suspend"] is True
    assert prepared["spec"]["runtimePatches"][0] == {"manager": "users/own"}
    entry = prepared["spec"]["runtimePatches"][1]
    assert entry["manager"] == MANAGER
    node = entry["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]
    assert node["spec"]["nodeSelector"]["pool/kind"] == "spot"
    assert node["metadata"]["labels"][names.GANG_LABEL] == record.uid
    half = record_of(prepared, RUNTIMES)
    assert half.suspended
    assert half.admission is None
    running = apply(prepared, patches.start(half, reservation, (3, 2), FLAVORS))
    assert running["spec"]["suspend"] is False
    assert running["spec"]["runtimePatches"] == prepared["spec"]["runtimePatches"]
    whole = record_of(running, RUNTIMES)
    assert whole.admission.since_seconds == reservation.since_seconds
    stopped = apply(running, patches.stop(whole, REQUEUE))
    restored = apply(stopped, patches.restore(record_of(stopped, RUNTIMES)))
    assert "nodeSelector" not in str(restored["spec"])
    assert record_of(restored, RUNTIMES).gang.pod_sets == record.gang.pod_sets
    clean = apply(restored, marking.strip(kind, restored, RUNTIMES, suspend=None))
    assert clean["spec"] == obj["spec"]


def test_a_train_job_keeps_what_others_say_about_its_nodes_and_their_taints():
    own = {"key": "team", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    obj, runtime = special("trainjob"), special("runtime")
    template = runtime["spec"]["template"]["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]
    template["spec"] |= {"nodeSelector": {"disk": "ssd", "zone": "a"}, "tolerations": [{"key": "of-runtime"}]}
    theirs = {"nodeSelector": {"zone": "b"}, "tolerations": [own]}
    patched = {"name": "node", "template": {"spec": {"template": {"spec": theirs}}}}
    jobs = {"template": {"spec": {"replicatedJobs": [patched]}}}
    obj["spec"] |= {"suspend": True, "runtimePatches": [{"manager": "users/own", "trainingRuntimeSpec": jobs}]}
    context = context_from(training_runtimes=[runtime])
    record = record_of(obj, context)
    node = record.gang.pod_sets[1]
    assert node.node_selector == {"disk": "ssd", "zone": "b"}
    assert [t.key for t in node.tolerations] == ["team"]
    reservation = reservation_of(record, flavors={"node": {"nvidia.com/gpu": "spot"}})
    prepared = apply(obj, patches.start(record, reservation, (3, 1), FLAVORS))
    entry = prepared["spec"]["runtimePatches"][1]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    written = entry[1]["template"]["spec"]["template"]["spec"]["tolerations"]
    assert written[0] == own
    assert len(written) == 1 + len(FLAVORS["spot"].tolerations) > 1
    assert "tolerations" not in entry[0]["template"]["spec"]["template"]["spec"]
    restored = apply(prepared, patches.restore(record_of(prepared, context)))
    assert record_of(restored, context).gang.pod_sets == record.gang.pod_sets


def test_a_train_job_prepared_for_an_earlier_reservation_is_prepared_again():
    obj = special("trainjob")
    obj["spec"]["suspend"] = True
    record = record_of(obj, RUNTIMES)
    first = reservation_of(record, flavors={s.name: {"nvidia.com/gpu": "spot"} for s in record.gang.pod_sets})
    prepared = apply(obj, patches.start(record, first, (3, 1), FLAVORS))
    half = record_of(prepared, RUNTIMES)
    other = {s.name: {"nvidia.com/gpu": "big"} for s in record.gang.pod_sets}
    second = replace(reservation_of(half, flavors=other), since_seconds=2000.0)
    again = apply(prepared, patches.start(half, second, (3, 5), FLAVORS))
    assert again["spec"]["suspend"] is True
    assert "spot" not in str(again["spec"])
    running = apply(again, patches.start(record_of(again, RUNTIMES), second, (3, 6), FLAVORS))
    assert running["spec"]["suspend"] is False


def test_a_volcano_job_is_held_by_gates_on_its_templates():
    obj = special("volcanojob")
    kind = kind_of(obj)
    held = apply(obj, marking.mark(kind, obj))
    assert marking.mark(kind, held) == []
    gate = {"name": names.SCHEDULING_GATE}
    assert held["spec"]["tasks"][0]["template"]["spec"]["schedulingGates"] == [gate]
    assert held["spec"]["tasks"][1]["template"]["spec"]["schedulingGates"] == [{"name": "someone/else"}, gate]
    record = record_of(held)
    assert record.suspended
    assert counts(record) == {"ps": 1, "worker": 4}
    assert record.gang.quorum == 3
    assert not record.gang.evictable, "a gate that was lifted cannot be put back"
    started = apply(held, patches.start(record, reservation_of(record), (1, 1), FLAVORS))
    assert started["spec"] == held["spec"]
    assert not record_of(started).suspended


def volcano_job(*tasks: tuple[str, int, int | None], **spec: object) -> dict[str, object]:
    obj = special("volcanojob")
    template = obj["spec"]["tasks"][0]["template"]
    obj["spec"] = {**obj["spec"], **spec, "tasks": []}
    for name, replicas, least in tasks:
        bound = {} if least is None else {"minAvailable": least}
        obj["spec"]["tasks"].append({"name": name, "replicas": replicas, "template": template, **bound})
    return obj


@pytest.mark.parametrize(
    ("tasks", "number", "least"),
    [
        ([("a", 2, None)], 0, {"a": 2}),
        ([("a", 4, 1), ("b", 3, 2)], 0, {"a": 1, "b": 2}),
        ([("a", 4, 0), ("b", 3, None)], 3, {"a": 0, "b": 3}),
        ([("a", 0, 0), ("b", 3, 3)], 3, {"a": 0, "b": 3}),
        ([("a", 4, 0)], 0, {"a": 1}),
        ([("a", 4, 1), ("b", 3, 1)], 6, {"a": 4, "b": 2}),
    ],
)
def test_a_volcano_job_starts_with_what_it_and_its_tasks_need(tasks, number, least):
    gang = record_of(volcano_job(*tasks, minAvailable=number)).gang
    assert gang.least_counts == least
    assert sum(least.values()) == gang.pods or gang.quorum is not None, "the rest follows only of a quorum"


def test_a_volcano_jobs_own_queue_does_not_gate_it():
    obj = special("volcanojob")
    del obj["metadata"]["labels"]
    assert gated_by(kind_of(obj), obj, {}, ()) is None
    assert record_of(obj).queue_label == "default"


@given(st.sampled_from(["workflow", "trainjob", "volcanojob"]), st.data())
def test_reading_and_marking_other_kinds_never_raise(name, data):
    obj = special(name)
    kind = kind_of(obj)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(list(places(obj))[1:]))
        node = obj
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = data.draw(ODD)
    record = read(kind, obj, RUNTIMES)
    assert (record.gang is None) == (record.problem is not None)
    marking.mark(kind, obj)
    marking.strip(kind, obj, NO_CONTEXT, suspend=None)


@given(st.data())
def test_an_odd_training_runtime_is_a_problem_and_no_crash(data):
    runtime = special("runtime")
    path = data.draw(st.sampled_from(list(places(runtime))[4:]))
    node = runtime
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = data.draw(ODD)
    context = ReadContext(training_runtimes={("", "torch-distributed"): runtime})
    obj = special("trainjob")
    record = read(kind_of(obj), obj, context)
    assert (record.gang is None) == (record.problem is not None)
