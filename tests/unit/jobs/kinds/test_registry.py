"""Known kinds, found by every name, and kinds an operator adds by configuration."""

import pytest

from tests.unit.jobs.objects_of_kinds import CONTEXT, apply
from webhook.core.notation import names
from webhook.core.notation.quantity import MILLI
from webhook.errors import WrongInput
from webhook.jobs.kinds.custom_kinds import load_custom
from webhook.jobs.kinds.registry import KINDS, by_name, with_custom
from webhook.jobs.patches import marking
from webhook.jobs.reading.job import read

SWEEP = {
    "group": "example.com",
    "version": "v1",
    "kind": "Sweep",
    "plural": "sweeps",
    "suspend": "spec.run.paused",
    "podSets": [
        {"template": "spec.head", "name": "head"},
        {"list": "spec.workers", "name": "role", "template": "pod", "count": ["replicas", "hosts"], "minimum": "least"},
    ],
    "priorityClass": "spec.priority",
    "managedBy": {"path": "spec.managedBy", "controller": "example.com/sweeper"},
    "succeeded": {"path": "status.phase", "values": ["Done"]},
    "failed": [{"condition": "Broken"}],
    "active": {"path": "status.pods.*.running"},
    "ready": {"sum": ["status.ready"]},
    "controllerUsers": ["system:serviceaccount:sweeps:controller"],
}


def sweep():
    pod = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}}}]}}
    workers = [{"role": "Searcher", "replicas": 3, "hosts": 2, "least": 2, "pod": pod}]
    spec = {"head": pod, "workers": workers}
    metadata = {"name": "s", "namespace": "n", "uid": "u", "resourceVersion": "1"}
    return {"apiVersion": "example.com/v1", "kind": "Sweep", "metadata": metadata, "spec": spec}


def test_each_shipped_kind_is_found_by_key_resource_and_names():
    for key, kind in KINDS.items():
        assert kind.key == key
        assert by_name(key) is kind
        assert by_name(f"{kind.plural}.{kind.group}") is kind
    assert by_name("job") is KINDS["Job.batch"]
    assert by_name("Jobs") is KINDS["Job.batch"]
    assert by_name("jobset").key == "JobSet.jobset.x-k8s.io"
    assert by_name("pytorchjob").key == "PyTorchJob.kubeflow.org"
    assert by_name("deployment") is None
    assert len({(kind.group, kind.plural) for kind in KINDS.values()}) == len(KINDS)


def test_child_kinds_are_known_kinds():
    for kind in KINDS.values():
        assert kind.child_kinds <= KINDS.keys()
        assert kind.controller_users


@pytest.mark.parametrize("namespace", ["mpi-operator", "kubeflow"])
def test_the_mpi_operator_is_known_by_itself_and_as_a_part_of_kubeflow(namespace):
    assert f"system:serviceaccount:{namespace}:mpi-operator" in KINDS["MPIJob.kubeflow.org"].controller_users


def test_a_custom_kind_is_gated_read_and_started_like_a_shipped_one():
    kind = load_custom(SWEEP, KINDS)
    assert by_name("sweep", with_custom([SWEEP])) == kind
    held = apply(sweep(), marking.mark(kind, sweep()))
    assert held["spec"]["run"] == {"paused": True}
    assert held["spec"]["workers"][0]["pod"]["metadata"]["labels"][names.POD_SET_LABEL] == "searcher"
    record = read(kind, held, CONTEXT)
    assert {s.name: (s.count, s.min_count) for s in record.gang.pod_sets} == {"head": (1, None), "searcher": (6, 2)}
    running = {**held, "status": {"phase": "Done", "pods": {"a": {"running": 1}}, "ready": 7}}
    record = read(kind, running, CONTEXT)
    assert (record.finished, record.active, record.ready) == ("Succeeded", True, True)


def test_a_shipped_kind_can_be_corrected():
    kinds = with_custom([{"extends": "Job.batch", "controllerUsers": "me"}])
    assert kinds["Job.batch"].controller_users == {"me"}
    assert kinds["Job.batch"].pod_sets == KINDS["Job.batch"].pod_sets


def test_a_kind_held_by_gates_is_never_stopped():
    held = {key: value for key, value in SWEEP.items() if key != "suspend"} | {"schedulingGated": True}
    assert not load_custom(held | {"templateChange": "never"}, KINDS).evictable
    assert not load_custom(held, KINDS).evictable
    assert load_custom(SWEEP, KINDS).evictable


def test_what_a_controller_adds_to_pods_can_be_said_for_a_custom_kind_and_corrected_for_a_shipped_one():
    added = [{"requests": {"memory": "64Mi", "cpu": 2}, "podSets": "Searcher", "beside": "head"}]
    pod_sets = read(load_custom({**SWEEP, "addedContainers": added}, KINDS), sweep(), CONTEXT).gang.pod_sets
    assert [s.price.requests.get("memory", 0) for s in pod_sets] == [0, 64 * 2**20 * MILLI]
    assert [s.price.requests["cpu"] for s in pod_sets] == [1 * MILLI, 2 * MILLI]
    kinds = with_custom([{"extends": "PyTorchJob.kubeflow.org", "addedContainers": []}])
    assert kinds["PyTorchJob.kubeflow.org"].added == ()


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"suspend": None}, "suspend"),
        ({"schedulingGated": True}, "suspend"),
        ({"suspend": "spec..paused"}, "suspend"),
        ({"suspend": "spec.*.paused"}, "suspend"),
        ({"kind": ""}, "kind"),
        ({"podSets": []}, "podSets"),
        ({"podSets": [{"list": "a", "map": "b", "template": "t"}]}, "podSets.0"),
        ({"podSets": [{"template": "t", "lowerable": True}]}, "podSets.0"),
        ({"podSets": [{"count": "a"}]}, "podSets.0.template"),
        ({"succeeded": []}, "succeeded"),
        ({"succeeded": [{"condition": "A", "path": "b"}]}, "succeeded.0"),
        ({"sucseeded": []}, "sucseeded"),
        ({"templateChange": "sometimes"}, "templateChange"),
        ({"templateChange": "never"}, "templateChange"),
        ({"extends": "Nothing.here"}, "extends"),
        ({"addedContainers": [{"requests": {"cpu": "much"}}]}, "addedContainers.0.requests.cpu"),
        ({"addedContainers": [{"memory": "10Mi"}]}, "addedContainers.0.memory"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_place(change, place):
    with pytest.raises(WrongInput) as refusal:
        load_custom({**SWEEP, **change}, KINDS)
    assert [d for d in refusal.value.problems if d.path == f"kinds.{place}" and d.fix], refusal.value


def test_all_wrong_entries_are_told_at_once():
    with pytest.raises(WrongInput) as refusal:
        with_custom([{"kind": "A"}, SWEEP, {"extends": "B.c"}])
    assert {d.path.split(".")[0] for d in refusal.value.problems} == {"kinds[0]", "kinds[2]"}
