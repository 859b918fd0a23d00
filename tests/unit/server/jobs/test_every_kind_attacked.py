"""What tenants try on a job of each kind that ships, waiting or admitted: every kind against every attack."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.unit.jobs.objects_of_kinds import NAMES, kind_of, load, reservation_of, special
from tests.unit.server.reviews import ALICE, Answered, ask, review, view, with_ledger
from webhook.cluster.view import View
from webhook.core.notation import names
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.patches.marking import marked
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.reading.annotations import encode_requeue
from webhook.jobs.reading.gang import read_gang
from webhook.jobs.reading.job import read
from webhook.jobs.reading.record import Requeue
from webhook.server.handler import ReviewHandler
from webhook.untyped import editing

Object = dict[str, Any]
RUNTIME = special("runtime")
CONTEXT = ReadContext(training_runtimes={("", "torch-distributed"): RUNTIME})
OBJECTS = {name: load(name) for name in NAMES} | {
    name: special(name) for name in ("trainjob", "volcanojob", "workflow")
}
FOREIGN = "kueue.x-k8s.io/multikueue"
OTHERS_GANG = "99999999-9999-9999-9999-999999999999"
OTHERS_OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "other", "uid": OTHERS_GANG, "controller": True}
ALL = sorted(OBJECTS)


def test_every_kind_that_ships_is_attacked() -> None:
    assert {kind_of(obj).key for obj in OBJECTS.values()} == set(KINDS)


class Target:
    """One job of a kind, waiting in a queue or admitted, as the API server has it."""

    def __init__(self, name: str, *, admitted: bool) -> None:
        obj = copy.deepcopy(OBJECTS[name])
        obj["metadata"]["namespace"] = "team-a"
        self.kind: JobKind = kind_of(obj)
        self.name, self.admitted = name, admitted
        self.uid: str = obj["metadata"]["uid"]
        self.obj: Object = copy.deepcopy(dict(marked(self.kind, obj, CONTEXT)))
        record = read(self.kind, self.obj, CONTEXT)
        seen: View = view()
        if admitted:
            seen = with_ledger(seen, reservation_of(record))
            for site in self.sites():
                if site.metadata_path is not None:
                    place = (*site.metadata_path, "labels", names.GANG_LABEL)
                    self.obj = editing.put(self.obj, place, self.uid)
            if self.kind.suspend is not None:
                self.obj = editing.put(self.obj, self.kind.suspend, False)
        self.handler = ReviewHandler(seen, context=lambda: CONTEXT)

    def sites(self) -> list[Any]:
        return list(read_gang(self.kind, self.obj, CONTEXT).sites)

    async def tried(self, changed: Any, old: Any = None) -> Answered:
        body = review(changed, old=old or self.obj, operation="UPDATE", user=ALICE, resource=self.kind.plural)
        return await ask(self.handler, "/validate/jobs", body)


Attack = Callable[[Target], Iterator[Any]]


def _starts(target: Target) -> Iterator[Any]:
    if target.kind.suspend is not None and not target.admitted:
        started = editing.put(target.obj, target.kind.suspend, False)
        yield started
        yield editing.drop(started, target.kind.suspend)
        yield editing.put(started, ("metadata", "labels"), {})


def _leaves_its_queue(target: Target) -> Iterator[Any]:
    yield editing.put(target.obj, ("metadata", "labels"), {})
    yield editing.put(target.obj, ("metadata", "labels"), dict.fromkeys(names.QUEUE_LABELS, ""))
    if target.admitted:
        yield editing.put(target.obj, ("metadata", "labels"), {names.QUEUE_LABELS[0]: "other"})


def _is_given_to_another_controller(target: Target) -> Iterator[Any]:
    if target.kind.managed_by is not None:
        yield editing.put(target.obj, target.kind.managed_by, FOREIGN)


def _takes_another_owner(target: Target) -> Iterator[Any]:
    yield editing.put(target.obj, ("metadata", "ownerReferences"), [OTHERS_OWNER])


def _bears_another_gangs_mark(target: Target) -> Iterator[Any]:
    for site in target.sites():
        if site.metadata_path is not None:
            for label, value in ((names.GANG_LABEL, OTHERS_GANG), (names.POD_SET_LABEL, "another")):
                place = (*site.metadata_path, "labels", label)
                yield editing.put(target.obj, place, value)
                yield editing.drop(target.obj, place)
            yield editing.put(target.obj, (*site.metadata_path, "annotations"), {names.LEDGER_VERSION: "1/1"})


def _bears_our_notes(target: Target) -> Iterator[Any]:
    noted = encode_requeue(Requeue("Preempted", 1.0), target.uid)
    for name, value in ((names.REQUEUE, noted), (names.ADMISSION, "{}"), (names.VOIDED, "1/1"), (names.HOLD, "x")):
        yield editing.put(target.obj, ("metadata", "annotations"), {name: value})


def _names_its_node(target: Target) -> Iterator[Any]:
    # Volcano itself keeps the templates of its jobs, and pods that name their node are refused.
    if not target.admitted and target.kind.suspend is not None:
        for site in target.sites():
            if site.metadata_path is not None and site.template_path is not None:
                yield editing.put(target.obj, (*site.template_path, "spec", "nodeName"), "n1")


TABLE: dict[str, Attack] = {
    attack.__name__.strip("_"): attack
    for attack in (
        _starts,
        _leaves_its_queue,
        _is_given_to_another_controller,
        _takes_another_owner,
        _bears_another_gangs_mark,
        _bears_our_notes,
        _names_its_node,
    )
}


@pytest.mark.parametrize("admitted", [False, True], ids=["waiting", "admitted"])
@pytest.mark.parametrize("attack", TABLE)
@pytest.mark.parametrize("name", ALL)
async def test_no_kind_of_job_passes_by_its_gang(name: str, attack: str, admitted: bool) -> None:
    target = Target(name, admitted=admitted)
    for changed in TABLE[attack](target):
        assert changed != target.obj
        answer = await target.tried(changed)
        assert not answer.allowed, changed


@pytest.mark.parametrize("name", ALL)
async def test_no_kind_of_job_becomes_ours_while_it_runs(name: str) -> None:
    target = Target(name, admitted=False)
    runs = OBJECTS[name] | {"metadata": target.obj["metadata"]}
    if target.kind.suspend is not None:
        runs = editing.put(runs, target.kind.suspend, False)
    unlabelled = editing.put(runs, ("metadata", "labels"), {})
    assert not (await target.tried(runs, old=unlabelled)).allowed
    if target.kind.managed_by is not None:
        foreign = editing.put(runs, target.kind.managed_by, FOREIGN)
        for flipped in (runs, *(editing.put(runs, target.kind.managed_by, by) for by in target.kind.managers)):
            assert not (await target.tried(flipped, old=foreign)).allowed


CHIPS = {"limits": {"nvidia.com/gpu": "8"}}
POD = {"spec": {"containers": [{"name": "m", "image": "i", "resources": CHIPS}]}}
MORE: dict[str, dict[str, Any]] = {
    "job": {
        "spec": {"parallelism": 99, "completions": 99, "template": load("job")["spec"]["template"]},
        "spec.template": POD,
    },
    "jobset": {
        "spec.replicatedJobs.1.replicas": 9,
        "spec.replicatedJobs.1.template.spec": {"parallelism": 9, "completions": 9, "template": POD},
    },
    "mpijob": {"spec.mpiReplicaSpecs.Worker.replicas": 9, "spec.mpiReplicaSpecs.Launcher.template": POD},
    "pytorchjob": {"spec.pytorchReplicaSpecs.Worker.replicas": 99, "spec.pytorchReplicaSpecs.Worker.template": POD},
    "tfjob": {
        "spec.tfReplicaSpecs.Worker.replicas": 99,
        "spec.tfReplicaSpecs.Evaluator": {"replicas": 1, "template": POD},
    },
    "xgboostjob": {"spec.xgbReplicaSpecs.Worker": {"replicas": 99, "template": POD}},
    "paddlejob": {"spec.paddleReplicaSpecs.Worker": {"replicas": 99, "template": POD}},
    "jaxjob": {"spec.jaxReplicaSpecs.Worker": {"replicas": 99, "template": POD}},
    "raycluster": {
        "spec.workerGroupSpecs.0.replicas": 9,
        "spec.workerGroupSpecs.0.minReplicas": 9,
        "spec.workerGroupSpecs.0.numOfHosts": 9,
        "spec.workerGroupSpecs.1": {"groupName": "new", "replicas": 1, "template": POD},
        "spec.headGroupSpec.template": POD,
        "spec.enableInTreeAutoscaling": True,
    },
    "rayjob": {
        "spec.rayClusterSpec.workerGroupSpecs.0.replicas": 9,
        "spec.rayClusterSpec.workerGroupSpecs.0.numOfHosts": 9,
        "spec.rayClusterSpec.headGroupSpec.template": POD,
        "spec.rayClusterSpec.enableInTreeAutoscaling": True,
        "spec.submitterPodTemplate": POD,
        "spec.clusterSelector": {"ray.io/cluster": "another"},
        "spec.shutdownAfterJobFinishes": False,
    },
    "sparkapplication": {
        "spec.executor.instances": 9,
        "spec.executor.memory": "64g",
        "spec.executor.gpu": {"name": "nvidia.com/gpu", "quantity": 8},
        "spec.executor.sidecars": POD["spec"]["containers"],
        "spec.driver.initContainers": POD["spec"]["containers"],
        "spec.driver.template": POD,
        "spec.dynamicAllocation": {"enabled": True},
        "spec.sparkConf": {"spark.executor.instances": "9"},
        "spec.mode": "client",
    },
    "trainjob": {
        "spec.trainer.numNodes": 9,
        "spec.trainer.resourcesPerNode": {"limits": {"nvidia.com/gpu": "8"}},
        "spec.runtimeRef": {"name": "another"},
    },
    "volcanojob": {"spec.tasks.1.replicas": 9, "spec.tasks.0.template": POD, "spec.tasks.1.template": POD},
    "workflow": {"metadata.annotations": {"kube-queue/min-resources": "nvidia.com/gpu: 9"}},
    "appwrapper": {
        "spec.components.0.podSets": [{"replicas": 9, "path": "template.spec.template"}],
        "spec.components.0.template.spec.template": POD,
        "spec.components.1.template.spec.replicatedJobs.0.template.spec.template": POD,
    },
}
"""By kind, fields that bring more pods, or larger ones, or pods that nobody counts."""


def test_the_table_of_what_brings_more_has_every_kind() -> None:
    assert sorted(MORE) == ALL


def steps(path: str) -> tuple[Any, ...]:
    return tuple(int(step) if step.isdigit() else step for step in path.split("."))


@pytest.mark.parametrize(("name", "path"), [(name, path) for name, paths in MORE.items() for path in paths])
async def test_no_kind_of_job_grows_while_it_runs(name: str, path: str) -> None:
    target = Target(name, admitted=True)
    answer = await target.tried(editing.put(target.obj, steps(path), MORE[name][path]))
    assert not answer.allowed
