"""What a gang's controller made gets no pods beyond what the gang was given, whoever edits it."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.jobs.objects_of_kinds import special
from tests.unit.server.jobs.test_children import GATED, JOBSET, child, jobset, update
from tests.unit.server.reviews import ALICE, JOBSET_CONTROLLER, Answered, containers, reservation, view, with_ledger
from webhook.cluster.view import View
from webhook.core.notation import names
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.patches.marking import marked
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.reading.job import read

Change = Callable[[dict[str, Any]], object]
RAYJOB, WRAPPER = KINDS["RayJob.ray.io"], KINDS["AppWrapper.workload.codeflare.dev"]
OPERATOR = "system:serviceaccount:kuberay-system:kuberay-operator"


def ray_cluster(*, scaling: bool = False) -> dict[str, Any]:
    """Return a RayCluster of a head and two workers."""

    def template() -> dict[str, Any]:
        return {"metadata": {"labels": {}}, "spec": {"containers": containers(cpu="1")}}

    group = {"groupName": "w", "replicas": 2, "minReplicas": 0, "maxReplicas": 100, "template": template()}
    spec = {"headGroupSpec": {"template": template()}, "workerGroupSpecs": [group]}
    metadata = {"name": "c", "namespace": "team-a"}
    spec |= {"enableInTreeAutoscaling": True} if scaling else {}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec}


def made_by(owner: dict[str, Any], obj: dict[str, Any], *, pod_sets: tuple[str, str]) -> dict[str, Any]:
    """Return the RayCluster as the controller of an admitted ``owner`` made it, with the gang's labels."""
    names_it = {key: owner["metadata"][key] for key in ("name", "uid")}
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True} | names_it
    obj["metadata"] |= {"uid": "c-1", "ownerReferences": [reference]}
    for name, group in zip(pod_sets, groups(obj), strict=True):
        group["template"]["metadata"]["labels"] = {names.GANG_LABEL: "gang-1", names.POD_SET_LABEL: name}
    return obj


def groups(cluster: dict[str, Any]) -> list[dict[str, Any]]:
    return [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]


def admitted(kind: str, spec: dict[str, Any], *, scaling: bool) -> tuple[View, dict[str, Any]]:
    """Return a view with an admitted RayJob or AppWrapper, and its RayCluster."""
    top = KINDS[kind]
    metadata = {"name": "top", "namespace": "team-a", "uid": "gang-1", "labels": {names.QUEUE_LABELS[0]: "research"}}
    owner = marked(top, {"apiVersion": top.api_version, "kind": top.kind, "metadata": metadata, "spec": spec})
    owner["spec"]["suspend"] = False
    seen = view()
    seen.namespaces["team-a"] = dict(GATED)
    seen.put_job(read(top, owner, ReadContext()))
    with_ledger(seen, reservation("gang-1", kind=kind, name="top"))
    pod_sets = ("head", "w") if top is RAYJOB else ("top-0", "top-1")
    return seen, made_by(owner, ray_cluster(scaling=scaling), pod_sets=pod_sets)


def of_ray_job() -> tuple[View, dict[str, Any]]:
    spec = {"entrypoint": "x", "shutdownAfterJobFinishes": True, "submissionMode": "HTTPMode"}
    return admitted(RAYJOB.key, spec | {"rayClusterSpec": ray_cluster()["spec"]}, scaling=False)


def of_wrapper(*, scaling: bool) -> tuple[View, dict[str, Any]]:
    components = [{"template": ray_cluster(scaling=scaling)}]
    return admitted(WRAPPER.key, {"components": components}, scaling=scaling)


def of_adopted_set() -> tuple[View, dict[str, Any]]:
    """Return a view with a JobSet that ran before Tutti came, in a gated namespace, and one of its Jobs of 4 pods."""
    seen = view()
    seen.namespaces["team-a"] = dict(GATED)
    seen.put_job(read(JOBSET, jobset(queue=None) | {"spec": {**jobset()["spec"], "suspend": False}}, ReadContext()))
    return with_ledger(seen, reservation("set-1", kind=JOBSET.key, adopted=True)), child(suspend=False, gang=None)


MADE: dict[str, Callable[[], tuple[View, dict[str, Any]]]] = {
    "of a RayJob": of_ray_job,
    "of an AppWrapper": lambda: of_wrapper(scaling=False),
    "of an AppWrapper, with an autoscaler": lambda: of_wrapper(scaling=True),
}
RAY = pytest.mark.parametrize("made", MADE.values(), ids=MADE.keys())


async def edited(made: tuple[View, dict[str, Any]], change: Change, user: str = ALICE) -> Answered:
    seen, old = made
    new = copy.deepcopy(old)
    change(new)
    return await update(seen, old, new, user)


def another_group(cluster: dict[str, Any]) -> None:
    """Append a group as the owner writes it: without labels."""
    more = copy.deepcopy(cluster["spec"]["workerGroupSpecs"][0])
    more |= {"groupName": "more", "replicas": 100}
    more["template"]["metadata"]["labels"] = {}
    cluster["spec"]["workerGroupSpecs"].append(more)


def stripped(cluster: dict[str, Any]) -> None:
    groups(cluster)[1]["template"]["metadata"]["labels"] = {}
    groups(cluster)[1]["replicas"] = 100


def sized(replicas: int) -> Change:
    return lambda cluster: groups(cluster)[1].update(replicas=replicas, scaleStrategy={"workersToDelete": []})


@RAY
async def test_a_started_child_gets_no_pods_that_bear_no_label(made: Any) -> None:
    """They would pass as loose pods, and nobody sends these where no fence is."""
    answer = await edited(made(), another_group)
    assert not answer.allowed
    assert "pod set more is new; it belongs to the gang of" in answer.message
    assert (await edited(made(), another_group, OPERATOR)).allowed
    answer = await edited(made(), stripped)
    assert "written only by Tutti" in answer.message


def renamed(cluster: dict[str, Any]) -> None:
    """Give the marked group another name, and its own, with its number, to a copy without labels."""
    workers = cluster["spec"]["workerGroupSpecs"]
    workers.append(copy.deepcopy(workers[0]))
    workers[0]["groupName"] = "x"
    workers[1]["template"]["metadata"]["labels"] = {}


def renamed_and_emptied(cluster: dict[str, Any]) -> None:
    renamed(cluster)
    cluster["spec"]["workerGroupSpecs"][0]["replicas"] = 0


@RAY
@pytest.mark.parametrize("replicas", [2, 100])
@pytest.mark.parametrize("change", [renamed, renamed_and_emptied])
async def test_the_name_of_pods_that_are_judged_one_by_one_makes_no_room_for_pods_that_are_not(
    made: Any, change: Change, replicas: int
) -> None:
    """An autoscaler, or whoever may edit the child, asks for as many of those as it likes: that is no bound."""
    seen, cluster = made()
    sized(replicas)(cluster)
    answer = await edited((seen, cluster), change)
    assert not answer.allowed
    assert "pod set w is new; it belongs to the gang of" in answer.message
    assert (await edited((seen, cluster), lambda each: groups(each)[1].update(groupName="x"))).allowed


@RAY
async def test_an_autoscaler_asks_for_what_its_gangs_pods_are_judged_by(made: Any) -> None:
    """Its pods bear the gang's label: beyond the reservation they are refused, one by one."""
    scaler = "system:serviceaccount:team-a:c"
    for replicas in (0, 1, 3, 100):
        assert (await edited(made(), sized(replicas), scaler)).allowed


async def test_where_its_pods_bear_no_label_an_autoscaler_only_takes_some_away() -> None:
    """The gang ran before Tutti came."""

    def adopted() -> tuple[View, dict[str, Any]]:
        seen, cluster = of_wrapper(scaling=True)
        for group in groups(cluster):
            group["template"]["metadata"]["labels"] = {}
        return seen, cluster

    assert "pod set w would have 3 pods, 2 are reserved" in (await edited(adopted(), sized(3))).message
    assert (await edited(adopted(), sized(1))).allowed


async def test_a_child_of_an_adopted_gang_only_shrinks() -> None:
    """Its pods bear no label, and the gang is charged for what it was when it was adopted."""

    def pods(**numbers: int) -> Change:
        return lambda job: job["spec"].update(numbers)

    answer = await edited(of_adopted_set(), pods(parallelism=12, completions=12))
    assert not answer.allowed
    assert "pod set main would have 12 pods, 4 are reserved; it belongs to the gang of JobSet train" in answer.message
    larger = containers(gpu="2", cpu="4", memory="16Gi")
    answer = await edited(of_adopted_set(), lambda job: job["spec"]["template"]["spec"].update(containers=larger))
    assert "each pod's limits would be 2" in answer.message or "each pod's requests would be 2" in answer.message
    for change in (pods(parallelism=1), pods(parallelism=0), pods(backoffLimit=3, ttlSecondsAfterFinished=60)):
        assert (await edited(of_adopted_set(), change)).allowed
    assert (await edited(of_adopted_set(), pods(parallelism=12, completions=12), JOBSET_CONTROLLER)).allowed
    assert (await edited(of_adopted_set(), lambda job: job["spec"].update(suspend=True))).allowed


async def test_children_of_a_job_that_waits_for_nobody_grow_freely() -> None:
    seen, job = view(), child(suspend=False, gang=None)
    seen.put_job(read(JOBSET, jobset(queue=None), ReadContext()))
    assert (await edited((seen, job), lambda it: it["spec"].update(parallelism=12, completions=12))).allowed


def unread() -> tuple[View, dict[str, Any]]:
    """Return the TrainJob of an admitted AppWrapper; its runtime is gone, so nobody knows its pods."""
    seen, cluster = of_wrapper(scaling=False)
    made = special("trainjob")
    made["metadata"] = cluster["metadata"] | {"name": "t"}
    made["spec"] |= {"runtimeRef": {"name": "gone", "kind": "TrainingRuntime"}, "suspend": False}
    return seen, made


async def test_what_cannot_be_read_keeps_its_spec() -> None:
    answer = await edited(unread(), lambda job: job["spec"].update(trainer={"numNodes": 100}))
    assert not answer.allowed
    assert "nobody can tell whether it would grow" in answer.message
    assert (await edited(unread(), lambda job: job["spec"].update(suspend=True))).allowed
    assert (await edited(unread(), lambda job: job["metadata"].update(labels={"team": "b"}))).allowed


async def test_an_orphan_of_an_adopted_gang_does_not_leave_it_for_a_pod_group_while_it_runs() -> None:
    """It would be adopted again, in no queue, and others would get the room of its pods beside them."""

    def orphan(*, suspend: bool) -> tuple[View, dict[str, Any]]:
        seen, cluster = of_wrapper(scaling=False)
        del cluster["metadata"]["ownerReferences"]
        cluster["spec"]["suspend"] = suspend
        for group in groups(cluster):
            group["template"]["metadata"]["labels"] = {}
        return seen, cluster

    def grouped(cluster: dict[str, Any]) -> None:
        for group in groups(cluster):
            group["template"]["metadata"]["labels"] = {names.POD_GROUP_LABELS[0]: "mine"}

    answer = await edited(orphan(suspend=False), grouped)
    assert not answer.allowed
    assert "it is already running; suspend it first" in answer.message
    assert (await edited(orphan(suspend=True), grouped)).allowed
