"""What the owner of a new job is warned about: it is stored, and may wait for ever or outlive its work."""

from operator import itemgetter
from typing import Any

import pytest

from tests.unit.jobs.objects_of_kinds import NAMES, kind_of, load, special
from tests.unit.server.reviews import GPU, ask, containers, create, job, review, stored, view, with_quota
from webhook.cluster.waiting import waiting_gang
from webhook.core.fleet.dispatch import Dispatch
from webhook.core.fleet.text import encode
from webhook.core.model.policy import LocalQueue, Policy, Queue
from webhook.core.notation import names
from webhook.core.reasons.reasons import Code, Reason
from webhook.jobs.kinds.registry import KINDS, of_hub
from webhook.jobs.patches.marking import marked
from webhook.jobs.plain_pods import pod_group
from webhook.jobs.plain_pods.pod_group import PodGroupRecord
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.reading.job import read
from webhook.server.handler import ReviewHandler
from webhook.untyped.editing import put


@pytest.fixture
def waiting() -> ReviewHandler:
    return ReviewHandler(view())


async def test_who_suspends_a_job_that_waits_is_told_how_to_hold_it() -> None:
    """It is stored suspended already, so nothing changes, and kubectl says only that."""
    told = await ask(ReviewHandler(view()), "/validate/jobs", review(stored(), old=stored(), operation="UPDATE"))
    assert told.allowed
    assert "To keep it from starting: tutti hold job/train -n team-a" in told.warnings[0]
    collected, free = stored(), stored(queue=None)
    collected["metadata"]["finalizers"] = ["example.org/accounting"]
    for new, old in ((collected, stored()), (free, free)):
        assert not (
            await ask(ReviewHandler(view()), "/validate/jobs", review(new, old=old, operation="UPDATE"))
        ).warnings


async def test_a_queue_that_the_same_apply_may_just_have_made_is_called_not_seen_yet(waiting: ReviewHandler) -> None:
    (warning,) = (await create(waiting, stored(queue="new"))).warnings
    assert "as far as Tutti has seen yet: the job waits until it exists; unless it was created just now" in warning


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ([], "create it: there is no other"),
        (["system-node-critical"], "create it: there is no other"),
        (["low", "high", "system-node-critical"], "create it, or name another: high, low"),
        ([f"class-{number:02}" for number in range(30)], "class-08, class-09 and 20 more"),
    ],
)
@pytest.mark.parametrize("ours", [False, True])
async def test_who_names_a_priority_class_that_does_not_exist_is_told_which_do(
    known: list[str], told: str, ours: bool
) -> None:
    classes = dict.fromkeys(known, 5)
    context = ReadContext(workload_priority_classes=classes) if ours else ReadContext(priority_classes=classes)
    handler, obj = ReviewHandler(view(), context=lambda: context), stored()
    if ours:
        obj["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = "hgih"
    else:
        obj["spec"]["template"]["spec"]["priorityClassName"] = "hgih"
    (warning,) = [
        text for text in (await create(handler, obj)).warnings if "PriorityClass 'hgih' does not exist" in text
    ]
    assert "as far as Tutti has seen yet: the job waits until it does" in warning, "the same apply may have made it"
    assert warning.endswith(told)
    record = read(KINDS["Job.batch"], obj, context)
    assert record is not None
    reason = waiting_gang(record, handler.view)
    assert isinstance(reason, Reason)
    assert reason.code is Code.PRIORITY_CLASS_NOT_FOUND
    assert reason.help.endswith(told)


async def test_who_asks_for_no_pods_is_told_that_none_starts_and_how_to_wait_instead(waiting: ReviewHandler) -> None:
    obj = stored()
    obj["spec"] |= {"parallelism": 0, "completions": 4}
    (warning,) = [text for text in (await create(waiting, obj)).warnings if "0 pods" in text]
    assert "cannot grow while it is admitted" in warning
    assert "tutti hold" in warning


@pytest.mark.parametrize("queue", ["lq", None])
async def test_a_name_under_ours_that_means_nothing_is_warned_about(waiting: ReviewHandler, queue: str | None) -> None:
    obj = stored(queue=queue) if queue else job(queue=None)
    obj["metadata"]["annotations"] = {"tutti.dev/min-count": "4", "tutti.dev/simulated-runtime": "5s"}
    obj["metadata"].setdefault("labels", {}).update({"tutti.dev/gpus": "many", "example.com/min-count": "4"})
    found = [text for text in (await create(waiting, obj)).warnings if "means nothing to Tutti" in text]
    assert [text.partition(" means")[0] for text in found] == [
        "label tutti.dev/gpus at metadata.labels",
        "annotation tutti.dev/min-count at metadata.annotations",
    ]


async def test_other_jobs_of_its_pod_group_may_bring_the_pods_that_a_quorum_lacks(waiting: ReviewHandler) -> None:
    obj = stored()
    labels = {names.POD_GROUP_LABELS[2]: "ring", names.MIN_AVAILABLE_LABEL: "5"}
    obj["spec"]["template"]["metadata"]["labels"] |= labels
    answer = await create(waiting, obj)
    assert answer.allowed
    assert "PodGroup ring needs 5 pods and its jobs bring 4 so far" in answer.warnings[-1]


async def test_a_job_is_told_how_many_pods_its_pod_group_still_needs_of_others(waiting: ReviewHandler) -> None:
    waiting.view.pod_groups["team-a", "ring"] = PodGroupRecord("team-a", "ring", 6)
    obj = stored()
    obj["spec"]["template"]["metadata"]["labels"] |= {names.POD_GROUP_LABELS[2]: "ring"}
    answer = await create(waiting, obj)
    assert answer.allowed
    assert "PodGroup ring needs 6 pods and its jobs bring 4 so far" in answer.warnings[-1]


@pytest.mark.parametrize(("policy", "told"), [(None, True), ("None", True), ("Running", False), ("All", False)])
async def test_pods_that_outlive_their_job_are_warned_about(
    waiting: ReviewHandler, policy: str | None, told: bool
) -> None:
    replicas = {"replicas": 1, "template": {"spec": {"containers": containers(gpu="1")}}}
    obj = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "ring", "namespace": "team-a", "labels": {"tutti.dev/queue-name": "research"}},
        "spec": {
            "runPolicy": {"cleanPodPolicy": policy},
            "mpiReplicaSpecs": {"Launcher": replicas, "Worker": replicas},
        },
    }
    held = dict(marked(KINDS["MPIJob.kubeflow.org"], obj))
    answer = await create(waiting, held)
    assert answer.allowed
    said = "pods of set worker keep running when the job has ended, and hold quota meanwhile"
    assert any(said in warning and "cleanPodPolicy: Running" in warning for warning in answer.warnings) is told
    del held["spec"]["mpiReplicaSpecs"]["Worker"]
    assert not any("run on" in warning for warning in (await create(waiting, held)).warnings)


@pytest.mark.parametrize("mode", ["hard", "soft"])
async def test_a_network_topology_of_volcano_is_said_not_to_be_followed(waiting: ReviewHandler, mode: str) -> None:
    task = {"name": "t", "replicas": 2, "template": {"spec": {"containers": containers(gpu="1")}}}
    obj: dict[str, Any] = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "ring", "namespace": "team-a", "labels": {"tutti.dev/queue-name": "research"}},
        "spec": {"tasks": [task], "networkTopology": {"mode": mode, "highestTierAllowed": 2}},
    }
    held = dict(marked(KINDS["Job.batch.volcano.sh"], obj))
    answer = await create(waiting, held)
    assert answer.allowed, answer.message
    assert any(warning.startswith("spec.networkTopology is not followed") for warning in answer.warnings)
    del held["spec"]["networkTopology"]
    assert not any("networkTopology" in warning for warning in (await create(waiting, held)).warnings)
    held["spec"]["tasks"][0]["partitionPolicy"] = {"totalPartitions": 2, "networkTopology": {"mode": mode}}
    warnings = (await create(waiting, held)).warnings
    assert any(warning.startswith("spec.tasks[].partitionPolicy is not followed") for warning in warnings)


async def test_who_joins_a_pod_group_of_volcano_is_told_what_of_it_is_not_followed(waiting: ReviewHandler) -> None:
    obj = stored()
    obj["spec"]["template"]["metadata"]["labels"] |= {names.POD_GROUP_LABELS[2]: "ring"}
    for spec, said in (
        ({"networkTopology": {"mode": "hard"}}, ["spec.networkTopology of PodGroup ring is not followed"]),
        ({"subGroupPolicy": [{"name": "a"}]}, ["spec.subGroupPolicy of PodGroup ring is not followed"]),
        ({"queue": "q"}, []),
    ):
        group = {"metadata": {"name": "ring", "namespace": "team-a", "uid": "u"}, "spec": {"minMember": 2, **spec}}
        waiting.view.pod_groups["team-a", "ring"] = pod_group.read("scheduling.volcano.sh", group)
        told = [each for each in (await create(waiting, obj)).warnings if "is not followed" in each]
        assert [each.partition(":")[0] for each in told] == said


async def test_an_unknown_queue_is_a_warning_that_names_those_that_exist() -> None:
    seen = view()
    queue = Queue("gpus", "kueue")
    local = LocalQueue("team-a", "training", "gpus")
    seen.policy = Policy(queues={"gpus": queue}, local_queues={("team-a", "training"): local})
    answer = await create(ReviewHandler(seen), stored())
    assert answer.allowed
    assert answer.warnings[0] == (
        "no queue 'research' in namespace team-a, as far as Tutti has seen yet: the job waits until it exists; "
        "unless it was created just now, create the queue or correct the label; known here: training"
    )
    seen.policy = Policy(local_queues={("team-a", "research"): LocalQueue("team-a", "research", "gone")})
    answer = await create(ReviewHandler(seen), stored())
    said = "LocalQueue team-a/research points to ClusterQueue 'gone', which does not exist"
    assert answer.warnings[0].startswith(said)


async def test_a_gang_that_can_never_fit_is_stored_with_the_numbers_in_a_warning() -> None:
    seen = view()
    seen.policy = Policy(queues={"research": Queue("research", "volcano")})
    never = Reason(Code.EXCEEDS_MAX_QUOTA, where="queue research", resource=GPU, asked=16_000, limit=8_000)
    answer = await create(ReviewHandler(seen, potential=lambda gang: never), stored(gpu="4"))
    assert answer.allowed
    assert "asks for 16 nvidia.com/gpu, queue research can hold at most 8" in answer.warnings[0]


async def test_a_gang_above_its_fence_is_warned_about() -> None:
    answer = await create(ReviewHandler(with_quota(view(), pods=2)), stored())
    assert answer.allowed
    assert any("ResourceQuota team-a/quota can hold at most 2" in warning for warning in answer.warnings)


def unlabelled(place: tuple[str, ...], key: str) -> dict[str, Any]:
    """Return a JobSet without a queue label, and with something like one in a map at ``place``."""
    obj: dict[str, Any] = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train", "namespace": "team-a"},
        "spec": {"replicatedJobs": [{"name": "w", "template": {"spec": {"template": {"spec": {}}}}}]},
    }
    node: Any = obj if place[0] == "metadata" else obj["spec"]["replicatedJobs"][0]
    for step in place:
        node = node.setdefault(step, {})
    node[key] = "research"
    return obj


@pytest.mark.parametrize(
    ("place", "key"),
    [
        (("template", "metadata", "labels"), "tutti.dev/queue-name"),
        (("template", "spec", "template", "metadata", "labels"), "kueue.x-k8s.io/queue-name"),
        (("metadata", "annotations"), "kueue.x-k8s.io/queue-name"),
        (("metadata", "labels"), "kueue.x-k8s.io/queue"),
        (("metadata", "labels"), "tutti.dev/queue"),
        (("metadata", "labels"), "kueue.x-k8s.io/queueName"),
        (("metadata", "labels"), "kueue.x-k8s.io/QueueName"),
        (("metadata", "labels"), "kueue.x-k8.io/queue-name"),
        (("metadata", "labels"), "tutti.dev/queuename"),
        (("metadata", "labels"), "Tutti.dev/Cluster_Queue"),
        (("metadata", "labels"), "queue-name"),
        (("metadata", "annotations"), "localQueueName"),
        (("metadata", "labels"), "volcano.sh/queue-name"),
        (("metadata", "annotations"), "scheduling.volcano.sh/queue-name"),
        (("template", "metadata", "annotations"), "scheduling.volcano.sh/queue-name"),
        (("template", "spec", "template", "metadata", "annotations"), "scheduling.volcano.sh/queue-name"),
        (("template", "spec", "template", "metadata", "labels"), "scheduling.volcano.sh/queue-name"),
    ],
)
async def test_a_queue_that_is_named_where_that_means_nothing_is_warned_about(
    waiting: ReviewHandler, place: tuple[str, ...], key: str
) -> None:
    obj = unlabelled(place, key)
    answer = await create(waiting, obj)
    assert answer.allowed
    (warning,) = answer.warnings
    assert key in warning
    assert "does not make the JobSet wait in a queue: it starts at once" in warning
    obj["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    assert (await create(waiting, obj)).warnings == []


def cron_job(own: dict[str, str], inner: dict[str, str], notes: dict[str, str] | None = None) -> dict[str, Any]:
    """A CronJob with these labels on its Jobs and on their pods, and annotations on its Jobs."""
    pods = {"metadata": {"labels": inner}, "spec": {"restartPolicy": "Never", "containers": []}}
    template = {"metadata": {"labels": own, "annotations": notes or {}}, "spec": {"template": pods}}
    metadata = {"name": "nightly", "namespace": "team-a"}
    spec = {"schedule": "@daily", "jobTemplate": template}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}


RIGHT, NEAR = {"tutti.dev/queue-name": "lq"}, {"kueue.x-k8s.io/queue": "lq"}


@pytest.mark.parametrize(
    ("own", "inner", "notes", "where"),
    [
        ({"app": "x"}, RIGHT, {}, "label tutti.dev/queue-name at spec.jobTemplate.spec.template.metadata.labels"),
        (NEAR, {}, {}, "label kueue.x-k8s.io/queue at spec.jobTemplate.metadata.labels"),
        ({}, NEAR, {}, "label kueue.x-k8s.io/queue at spec.jobTemplate.spec.template.metadata.labels"),
        ({}, {}, RIGHT, "annotation tutti.dev/queue-name at spec.jobTemplate.metadata.annotations"),
        (RIGHT, {}, {}, ""),
        (RIGHT, RIGHT, {}, ""),
        ({}, RIGHT, {}, ""),
        ({}, {"app": "x"}, {}, ""),
    ],
)
async def test_a_schedule_whose_jobs_will_not_wait_is_warned_about(
    waiting: ReviewHandler, own: dict[str, str], inner: dict[str, str], notes: dict[str, str], where: str
) -> None:
    """Jobs without labels of their own get those of their pod template, and wait by them."""
    answer = await create(waiting, cron_job(own, inner, notes))
    assert answer.allowed
    if not where:
        assert answer.warnings == []
        return
    (warning,) = answer.warnings
    assert warning.startswith(f"{where} does not make the Jobs of a CronJob wait in a queue: they start at once")
    assert "spec.jobTemplate.metadata.labels" in warning


@pytest.mark.parametrize("key", ["app", "queue", "example.com/queue", "queue-name-of-mine", "message-queue-name"])
@pytest.mark.parametrize("form", ["labels", "annotations"])
async def test_an_ordinary_job_without_a_queue_is_not_warned_about(waiting: ReviewHandler, key: str, form: str) -> None:
    assert (await create(waiting, unlabelled(("metadata", form), key))).warnings == []


@pytest.mark.parametrize(("scheduler", "warned"), [("volcano", False), ("default-scheduler", True), (None, True)])
async def test_the_annotation_of_volcano_is_warned_about_where_volcano_does_not_read_it(
    waiting: ReviewHandler, scheduler: str | None, warned: bool
) -> None:
    pods = ("template", "spec", "template", "metadata", "annotations")
    obj = unlabelled(pods, "scheduling.volcano.sh/queue-name")
    obj["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["schedulerName"] = scheduler
    assert bool((await create(waiting, obj)).warnings) is warned


async def test_the_label_of_kuberay_is_not_warned_about_on_its_kinds(waiting: ReviewHandler) -> None:
    obj = load("rayjob")
    obj["metadata"] = {"name": "train", "namespace": "team-a", "labels": {"volcano.sh/queue-name": "research"}}
    assert not any("does not make" in each for each in (await create(waiting, obj)).warnings)


@pytest.mark.parametrize("obj", [*map(load, NAMES), special("workflow"), special("volcanojob")], ids=itemgetter("kind"))
async def test_in_a_hub_who_makes_a_job_that_no_member_can_have_is_told_why(obj: dict[str, Any]) -> None:
    kinds = of_hub(KINDS)
    kind = kinds[kind_of(obj).key]
    obj["metadata"] |= {"namespace": "team-a", "labels": {names.QUEUE_LABELS[0]: "team"}}
    asked = review(marked(kind, obj), resource=kind.plural)
    told = {
        where: [each for each in (await ask(handler, "/validate/jobs", asked)).warnings if "a hub places no" in each]
        for where, handler in (("hub", ReviewHandler(view(), kinds=kinds)), ("elsewhere", ReviewHandler(view())))
    }
    assert not told["elsewhere"]
    why = {
        "Job.batch.volcano.sh": "the kind has no field that suspends it",
        "Workflow.argoproj.io": "suspending it leaves its pods",
    }
    would = ", so the job would start in this cluster"
    no_member = f"a hub places no {kind.kind} in a member: "
    assert told["hub"] == ([] if kind.dispatchable else [f"{no_member}{why[kind.key]}{would}"])


PLACED = Dispatch().offered(1, "left", "cluster-left")
GRANTED = PLACED.granted("copy-1", "7")


@pytest.mark.parametrize("where", [PLACED, GRANTED, GRANTED.recalled("it ends"), None], ids=lambda it: it and it.phase)
@pytest.mark.parametrize("change", ["spec", "label", "suspend", "note"])
@pytest.mark.parametrize("name", ["job", "pytorchjob", "jobset"])
async def test_in_a_hub_who_changes_a_job_that_a_member_has_is_told_that_it_has_no_effect_there(
    name: str, change: str, where: Dispatch | None
) -> None:
    kinds = of_hub(KINDS)
    kind, old = kinds[kind_of(load(name)).key], load(name)
    assert kind.suspend is not None
    assert kind.managed_by is not None
    old["metadata"] |= {"namespace": "team-a", "uid": "job-1", "labels": {names.QUEUE_LABELS[0]: "team"}}
    old["metadata"]["annotations"] = {} if where is None else {names.DISPATCH: encode(where)}
    old = put(put(old, kind.managed_by, names.HUB_MANAGER), kind.suspend, False)
    new = {
        "spec": put(old, (*kind.suspend[:-1], "activeDeadlineSeconds"), 30),
        "label": put(old, ("metadata", "labels", names.PRIORITY_CLASS_LABEL), "high"),
        "suspend": put(old, kind.suspend, True),
        "note": put(old, ("metadata", "annotations", "example.com/note"), "mine"),
    }[change]
    asked = review(new, old=old, operation="UPDATE", resource=kind.plural)
    answer = await ask(ReviewHandler(view(), kinds=kinds), "/validate/jobs", asked)
    assert answer.allowed
    told = [each for each in answer.warnings if each.startswith("left has the job as it was when it was offered")]
    assert bool(told) is (change in ("spec", "label") and where in (PLACED, GRANTED))


@pytest.mark.parametrize("key", names.QUEUE_LABELS)
async def test_an_empty_queue_label_is_said_to_name_no_queue(waiting: ReviewHandler, key: str) -> None:
    """A chart whose value was not given writes it so: the job would start at once without a word."""
    obj = job(queue=None)
    obj["metadata"]["labels"] = {key: ""}
    answer = await create(waiting, obj)
    assert answer.allowed
    assert [text for text in answer.warnings if f"label {key} is empty: the Job waits in no queue" in text]


async def test_a_queue_label_in_the_plural_is_warned_about(waiting: ReviewHandler) -> None:
    obj = job(queue=None)
    obj["metadata"]["labels"] = {"kueue.x-k8s.io/queue-names": "research"}
    (warning,) = (await create(waiting, obj)).warnings
    assert "does not make the Job wait in a queue" in warning
