"""A ledger that is rebuilt from what stands on the jobs holds what the lost one held."""

from dataclasses import replace

import pytest

from tests.unit.core.assignment.test_non_preemptible import Cluster, tree
from tests.unit.core.worlds import gang
from tests.unit.jobs.records import waiting_job
from webhook.cluster import rebuild
from webhook.cluster.view import View
from webhook.core.ledger.record import Reservation, reserve
from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.core.model.policy import FlavorQuotas, LocalQueue, Policy, Queue, ResourceGroup
from webhook.core.model.settings import EngineSettings, Transformation
from webhook.core.quota.fence import Fence
from webhook.jobs.reading import annotations

GPU, CREDITS = "nvidia.com/gpu", "example.com/credits"
GANG = Gang("uid", "Job.batch", "ns", "train", "q", (PodSet("main", 2, PodPrice({GPU: 1000})),))
RESERVED = reserve(GANG, "q", {"main": 2}, {"main": {CREDITS: "any"}}, 4, 100.25, {"main": {CREDITS: 10_000}})
IN_CREDITS = EngineSettings(transformations=(Transformation(GPU, {CREDITS: 10_000}, replace=True),))


def rebuilt(entry: Reservation) -> Reservation:
    """Return what a rebuild makes of the job that carries what ``entry`` had written on it."""
    admission = annotations.admission_of(entry, waiting_job(GANG), (4, 9))
    text = annotations.encode_admission(admission)
    view = View()
    noted = annotations.decode_admission(text, "uid")
    view.put_job(waiting_job(GANG, suspended=False, active=True, admission=noted))
    return replace(rebuild.rebuilt_ledger(view, None).entries["uid"], epoch=entry.epoch)


@pytest.mark.parametrize(
    "entry",
    [RESERVED, replace(RESERVED, adopted=True), reserve(GANG, "q", {"main": 1}, {"main": {GPU: "any"}}, 4, 1.5)],
    ids=["charged something else than it asks", "adopted", "charged what it asks"],
)
def test_it_is_charged_what_it_was_charged(entry: Reservation) -> None:
    assert rebuilt(entry) == entry
    assert rebuilt(entry).usage() == entry.usage()


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
    entry = rebuild.adopted(job, GANG, policy, IN_CREDITS, 4, 100.25)
    assert {key.resource: amount for key, amount in entry.usage().items()} == {CREDITS: 20_000}


@pytest.mark.parametrize("preemptible", [True, False])
def test_an_adopted_job_counts_in_every_limit_that_it_would_count_in_had_it_been_admitted(preemptible: bool) -> None:
    limits = {"cpu": 4, "kube-queue/max-jobs": 3}
    policy = tree({"kube-queue/max-preempible-jobs": "1"}, a={"min": limits, "max": limits})
    asking = gang("train", None, 1, namespace="a", preemptible=preemptible)
    (admitted,) = Cluster(policy).submit(asking).plan().admitted
    job = replace(waiting_job(asking, suspended=False, active=True, marked=False), queue_label=None)
    assert rebuild.adopted(job, asking, policy, EngineSettings(), 4, 100.25).usage() == admitted.usage()
