"""A ledger that is rebuilt from what stands on the jobs holds what the lost one held."""

from dataclasses import fields, replace
from typing import Any

import pytest

from tests.unit.core.assignment.test_non_preemptible import Cluster, tree
from tests.unit.core.worlds import gang
from tests.unit.jobs.records import waiting_job
from webhook.cluster import rebuild
from webhook.cluster.view import View
from webhook.core.ledger import text
from webhook.core.ledger.record import Ledger, Membership, Reservation, reserve, with_places
from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.core.model.pods import PodRecord
from webhook.core.model.policy import FlavorQuotas, LocalQueue, Policy, Queue, ResourceGroup
from webhook.core.model.settings import EngineSettings, Transformation
from webhook.core.notation import names
from webhook.core.quota.allocations import Allocation
from webhook.core.quota.fence import Fence
from webhook.core.reasons.eviction import HELD
from webhook.jobs.reading import annotations
from webhook.jobs.reading.record import JobRecord, Requeue

GPU, CREDITS = "nvidia.com/gpu", "example.com/credits"
GANG = Gang("uid", "Job.batch", "ns", "train", "q", (PodSet("main", 2, PodPrice({GPU: 1000})),))
RESERVED = reserve(GANG, "q", {"main": 2}, {"main": {CREDITS: "any"}}, 4, 100.25, {"main": {CREDITS: 10_000}})
IN_CREDITS = EngineSettings(transformations=(Transformation(GPU, {CREDITS: 10_000}, replace=True),))


def rebuilt(entry: Reservation, asking: Gang = GANG) -> Reservation:
    """Return what a rebuild makes of the job that carries what ``entry`` had written on it."""
    admission = annotations.admission_of(entry, waiting_job(asking), (4, 9))
    text = annotations.encode_admission(admission)
    view = View()
    noted = annotations.decode_admission(text, "uid")
    view.put_job(waiting_job(asking, suspended=False, active=True, admission=noted))
    return replace(rebuild.rebuilt_ledger(view, None).entries["uid"], epoch=entry.epoch)


@pytest.mark.parametrize(
    "entry",
    [RESERVED, replace(RESERVED, adopted=True), reserve(GANG, "q", {"main": 1}, {"main": {GPU: "any"}}, 4, 1.5)],
    ids=["charged something else than it asks", "adopted", "charged what it asks"],
)
def test_it_is_charged_what_it_was_charged(entry: Reservation) -> None:
    assert rebuilt(entry) == entry
    assert rebuilt(entry).usage() == entry.usage()


NOT_REBUILT = {
    "epoch": "a rebuilt ledger is of a new one",
    "stopping": "the job says whether it was stopped, and by the re-queue annotation why",
    "places": "a wish, worked out again from the nodes",
    "job": "the engine's, while it takes an ensemble as one gang",
    "preemptible": "as its queue takes by now what its owner says",
    "unknown": "another release's, which alone knows what it means",
}


def test_every_field_of_an_entry_is_found_again_or_known_not_to_be() -> None:
    """One that is added is noticed here: it has to be in the annotation, or follow from the job."""
    price = PodPrice({GPU: 1000}, {GPU: 2000}, True, True, "high", True)
    asking = replace(
        GANG,
        pod_sets=(PodSet("main", 4, price),),
        priority=7,
        evictable=False,
        loose_pods=True,
    )
    charges, domain = {"main": {CREDITS: 10_000}}, {"example.com/rack": "r1"}
    made = reserve(asking, "q", {"main": 2}, {"main": {CREDITS: "any"}}, 4, 100.25, charges, ("below", "above"))
    entry = replace(with_places(made, {}, {"main": domain}), adopted=True, membership=Membership("crew", 2, 1))
    (held,) = entry.pod_sets
    for value in (entry, held):
        plain = [each.name for each in fields(value) if getattr(value, each.name) in (each.default, {}, None)]
        assert set(plain) <= NOT_REBUILT.keys(), "each is to have another value than it has when nothing is said"
    assert rebuilt(entry, asking) == entry


@pytest.mark.parametrize("now", [-3, 0, 40])
def test_the_engine_goes_by_the_priority_of_today_before_and_after_a_rebuild(now: int) -> None:
    """An entry keeps the one with which its gang was admitted, a rebuilt one that of today; it counts for who is gone.

    Their job is gone from both, so that the rebuild takes the entry as it is.
    """
    asking = replace(GANG, priority=now)
    before = replace(RESERVED, priority=7)
    after = rebuilt(before, asking)
    assert (before.priority, after.priority) == (7, now)
    for entry in (before, after):
        assert Allocation(entry, entry.usage(), asking).priority == now
    view = View()
    view.put_pod(PodRecord("pod", "ns", "pod", 1, PodPrice({GPU: 1000}), gang="uid", pod_set="main"))
    view.set_ledger(Ledger(4, 1, {"uid": before}))
    assert rebuild.rebuilt_ledger(view, None).entries["uid"].priority == 7


def test_what_an_earlier_release_wrote_is_read() -> None:
    text = '{"uid":"uid","epoch":4,"seq":9,"queue":"q","counts":{"main":2},"since":100.25,"flavors":{"main":{"a":"b"}}}'
    noted = annotations.decode_admission(text, "uid")
    assert noted is not None
    assert (noted.charges, noted.adopted, noted.counts) == ({}, False, {"main": 2})


def test_pods_of_an_adopted_job_count_once_after_a_rebuild() -> None:
    """They bear no label of ours: its entry must claim no room beside them."""
    assert Fence("ns", "hard", {"pods": 4000}).claim(rebuilt(replace(RESERVED, adopted=True)), {}, {}) == {}


def test_an_adopted_job_is_charged_as_if_it_had_been_admitted() -> None:
    group = ResourceGroup((CREDITS,), (FlavorQuotas("any", {}),))
    policy = Policy(
        queues={"q": Queue("q", "kueue", resource_groups=(group,))},
        local_queues={("ns", "q"): LocalQueue("ns", "q", "q")},
    )
    job = waiting_job(GANG, suspended=False, active=True, marked=False)
    entry = rebuild.adopted(job, GANG, View(policy=policy), IN_CREDITS, 4, 100.25)
    assert {key.resource: amount for key, amount in entry.usage().items()} == {CREDITS: 20_000}


@pytest.mark.parametrize("preemptible", [True, False])
def test_an_adopted_job_counts_in_every_limit_that_it_would_count_in_had_it_been_admitted(preemptible: bool) -> None:
    limits = {"cpu": 4, "kube-queue/max-jobs": 3}
    policy = tree({"kube-queue/max-preempible-jobs": "1"}, a={"min": limits, "max": limits})
    asking = gang("train", None, 1, namespace="a", preemptible=preemptible)
    (admitted,) = Cluster(policy).submit(asking).plan().admitted
    job = replace(waiting_job(asking, suspended=False, active=True, marked=False), queue_label=None)
    assert rebuild.adopted(job, asking, View(policy=policy), EngineSettings(), 4, 100.25).usage() == admitted.usage()


@pytest.mark.parametrize("asks", [{}, {"cpu": 500}, {"cpu": 3000}], ids=["nothing", "less", "more"])
@pytest.mark.parametrize("preemptible", [True, False])
def test_an_adopted_job_is_charged_at_least_what_its_pods_were_given(asks: dict[str, int], preemptible: bool) -> None:
    """A LimitRange that filled their requests in may be gone, or say something else by now."""
    limits = {"cpu": 10, "kube-queue/max-jobs": 3}
    view = View(policy=tree({"kube-queue/max-preempible-jobs": "1"}, a={"min": limits, "max": limits}))
    sets = tuple(PodSet(name, count, PodPrice(asks)) for name, count in (("driver", 1), ("workers", 3)))
    asking = replace(gang("train", None, 1, namespace="a", preemptible=preemptible), pod_sets=sets)
    job = replace(waiting_job(asking, suspended=False, active=True, marked=False), queue_label=None)
    view.put_job(job)
    view.put_controller("train", "a", "")
    for number in range(5):
        # One more than there are to be: one of them is being replaced.
        price = PodPrice({"cpu": 2000})
        view.put_pod(PodRecord(f"pod-{number}", "a", f"pod-{number}", 1, price, owner_uid="train"))
    usage = rebuild.adopted(job, asking, view, EngineSettings(), 4, 100.25).usage()
    resource = "cpu" if preemptible else names.GUARANTEED + "cpu"
    paid = {key.resource: amount for key, amount in usage.items()}
    assert paid[resource] == paid["cpu"] == 4 * max(2000, asks.get("cpu", 0))


def test_pods_by_which_a_gang_grew_are_charged_though_its_job_does_not_tell_of_them_yet() -> None:
    """What it grew by is reserved first, and its controller may be faster than the write on the job."""
    noted = annotations.admission_of(replace(RESERVED, adopted=False), waiting_job(GANG), (4, 9))
    job = waiting_job(GANG, suspended=False, active=True, admission=replace(noted, counts={"main": 1}))
    view = View()
    view.put_job(job)
    view.put_controller("uid", "ns", "")
    gone = PodRecord("gone", "ns", "gone", 1, PodPrice({GPU: 1000}), gang="uid", pod_set="main", terminating=True)
    for number in range(2):
        view.put_pod(replace(gone, uid=f"pod-{number}", name=f"pod-{number}", terminating=False, owner_uid="uid"))
        view.put_pod(replace(gone, uid=f"gone-{number}", name=f"gone-{number}", owner_uid="uid"))
    assert rebuild.rebuilt_ledger(view, None).entries["uid"].counts == {"main": 2}


@pytest.mark.parametrize("preemptible", [True, False])
def test_what_a_tree_guarantees_is_charged_as_before(preemptible: bool) -> None:
    """Of what may not be preempted an ElasticQuotaTree counts the guaranteed part by itself."""
    limits = {"cpu": 4, "kube-queue/max-jobs": 3}
    policy = tree({"kube-queue/max-preempible-jobs": "1"}, a={"min": limits, "max": limits})
    asking = gang("train", None, 1, namespace="a", preemptible=preemptible)
    (admitted,) = Cluster(policy).submit(asking).plan().admitted
    guaranteed = {key for key in admitted.usage() if key.resource.startswith(names.GUARANTEED)}
    assert bool(guaranteed) is not preemptible
    noted = annotations.decode_admission(
        annotations.encode_admission(annotations.admission_of(admitted, waiting_job(asking), (4, 9))), asking.uid
    )
    view = View(policy=policy)
    view.put_job(replace(waiting_job(asking, suspended=False, active=True, admission=noted), queue_label=None))
    entry = rebuild.rebuilt_ledger(view, None).entries[asking.uid]
    assert entry.usage() == admitted.usage()
    assert entry.preemptible is preemptible


def test_nothing_is_written_of_what_is_0() -> None:
    """Neither at admission, nor of what was adopted, nor after a rebuild; of what a queue counts its flavor stays."""
    asks = PodPrice({GPU: 1000, "example.com/none": 0, "example.com/counted": 0}, {"example.com/none": 0})
    gang_of_zeros = replace(GANG, pod_sets=(PodSet("main", 2, asks),))
    group = ResourceGroup((GPU, "example.com/counted"), (FlavorQuotas("any", {}),))
    policy = Policy(
        queues={"q": Queue("q", "kueue", resource_groups=(group,), ignores_undeclared=True)},
        local_queues={("ns", "q"): LocalQueue("ns", "q", "q")},
    )
    job = waiting_job(gang_of_zeros, suspended=False, active=True, marked=False)
    settings = EngineSettings(excluded_prefixes=("example.org",))
    flavors = {"main": {GPU: "any", "example.com/counted": "any"}}
    entries = [
        reserve(gang_of_zeros, "q", {"main": 2}, flavors, 4, 1.5, {"main": dict(asks.requests)}),
        rebuild.adopted(job, gang_of_zeros, View(policy=policy), settings, 4, 1.5),
    ]
    entries += [rebuilt(entry, gang_of_zeros) for entry in entries]
    for entry in entries:
        (pod_set,) = entry.pod_sets
        assert pod_set.price.requests == {GPU: 1000}
        assert pod_set.price.limits == {}
        assert pod_set.charge in (None, {GPU: 1000})
        assert pod_set.flavors == {GPU: "any", "example.com/counted": "any"}
        assert "example.com/none" not in text.encode_entry(entry)


@pytest.mark.parametrize("active", [True, False])
def test_who_was_suspended_by_their_owner_while_nobody_led_holds_no_more_than_what_runs_of_it(active: bool) -> None:
    view = View()
    job = waiting_job(GANG, suspended=True, active=active)
    view.put_job(replace(job, admission=annotations.admission_of(RESERVED, job, (4, 9))))
    found = rebuild.rebuilt_ledger(view, None).entries
    assert {uid: entry.stopping for uid, entry in found.items()} == ({"uid": HELD} if active else {})
    assert bool(rebuild.unheld(view, Ledger(4, 8))) is active


def test_who_was_stopped_since_proves_how_far_the_ledger_had_come() -> None:
    """While pods of that start are left nothing else may say that they hold anything."""
    view, job = View(), waiting_job(GANG, suspended=True)
    start = annotations.admission_of(RESERVED, job, (4, 9))
    view.put_job(replace(job, requeue=Requeue("Preempted", 1.5, start=start)))
    assert rebuild.proved_seq(view) == 9
    assert rebuild.unheld(view, Ledger(4, 9)) == []
    view.put_pod(PodRecord("pod", "ns", "pod", 1, PodPrice({GPU: 1000}), gang="uid", pod_set="main"))
    assert rebuild.unheld(view, Ledger(4, 9)) == ["ns/train"]
    assert rebuild.rebuilt_ledger(view, None).version == (5, 10)


def test_a_start_of_which_nothing_is_left_proves_nothing_once_the_ledger_had_come_as_far() -> None:
    """A Workflow that had ended and is said to run again bears it while it has no pods, nor anything reserved."""
    view, job = View(), waiting_job(replace(GANG, evictable=False), suspended=False, active=True)
    view.put_job(replace(job, admission=annotations.admission_of(RESERVED, job, (4, 9))))
    assert rebuild.unheld(view, Ledger(5, 9)) == []
    assert rebuild.unheld(view, Ledger(5, 8)) == ["ns/train"]


def test_a_job_that_runs_proves_that_it_was_started_also_between_two_of_its_pods() -> None:
    """An old copy of the ledger counts on with each leader that takes it over, until it has come as far."""
    view, job = View(), waiting_job(GANG, suspended=False, active=True)
    view.put_job(replace(job, admission=annotations.admission_of(RESERVED, job, (4, 9))))
    assert rebuild.unheld(view, Ledger(7, 12)) == ["ns/train"]
    ended = replace(job, finished="Complete", admission=annotations.admission_of(RESERVED, job, (4, 9)))
    view.put_job(ended)
    assert rebuild.unheld(view, Ledger(7, 12)) == []


def test_a_few_proofs_of_an_old_ledger_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs what making a reservation does: of 50,000 all at once a new leader would renew its lease too late."""
    view, made = View(), list[str]()
    genuine = rebuild.from_annotation

    def counted(job: JobRecord, *others: Any) -> Reservation:
        made.append(job.uid)
        return genuine(job, *others)

    monkeypatch.setattr(rebuild, "from_annotation", counted)
    for number in range(20):
        asking = replace(GANG, uid=f"uid-{number}", name=f"job-{number}")
        job = waiting_job(asking, suspended=False, active=True)
        view.put_job(replace(job, admission=annotations.admission_of(replace(RESERVED, uid=job.uid), job, (4, 9))))
    known = replace(RESERVED, uid="uid-0")
    assert rebuild.unheld(view, Ledger(4, 8, {known.uid: known})) == ["ns/job-1", "ns/job-2", "ns/job-3"]
    assert made == ["uid-1", "uid-2", "uid-3"]
