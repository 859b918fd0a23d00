"""That nothing is left is asked in an order in which a late controller cannot slip between two answers."""

from dataclasses import replace

import pytest

from tests.unit.core.fleet.members import HUB, Member, Stored
from webhook.core.fleet.dispatch import Dispatch, DispatchPhase, Offer
from webhook.core.fleet.proof import Evidence, Proof, begun
from webhook.core.fleet.sight import Sight
from webhook.core.fleet.steps import HubStep, Wish, next_step

RECALLED = Dispatch(DispatchPhase.RECALLED, Offer(1, 1), "a", "cluster", "copy", "7")


def answer(member: Member, proof: Proof) -> bool:
    match proof.wanted:
        case Evidence.COPY:
            return "job" not in member.objects
        case Evidence.RESERVATION:
            return "copy" not in member.reserved
        case Evidence.PODS | Evidence.COMPLETE:
            return not member.pods.get("copy")


@pytest.mark.parametrize("when", range(6))
def test_a_pod_that_a_late_controller_makes_between_two_reads_is_found(when: int) -> None:
    member = Member("cluster", reserved={"copy"}, controller_saw={"copy"}, pods_of_job={"copy": "job"})
    proof = begun(RECALLED)
    for read in range(6):
        if read == when:
            if "copy" in member.reserved:
                member.pods["copy"] = 1
            member.lose_ledger()
        if proof.wanted is not Evidence.COMPLETE:
            proof = proof.found(gone=answer(member, proof))
        assert not (proof.proves(RECALLED) and member.pods.get("copy"))


def test_what_is_found_again_begins_the_proof_again() -> None:
    proof = begun(RECALLED).found(gone=True).found(gone=True)
    assert proof.wanted is Evidence.PODS
    assert proof.found(gone=False).wanted is Evidence.COPY
    assert proof.found(gone=True).proves(RECALLED)


@pytest.mark.parametrize(
    "dispatch",
    [
        Dispatch(DispatchPhase.GRANTED, RECALLED.offer, "a", "cluster", "copy"),
        Dispatch(DispatchPhase.RECALLED, RECALLED.offer, "a", "cluster", "another copy"),
        Dispatch(DispatchPhase.RECALLED, RECALLED.offer, "a", "another cluster", "copy"),
    ],
    ids=["granted", "another copy", "another cluster"],
)
def test_a_proof_is_good_for_the_dispatch_that_it_was_made_for_alone(dispatch: Dispatch) -> None:
    proof = begun(RECALLED).found(gone=True).found(gone=True).found(gone=True)
    assert proof.proves(RECALLED)
    assert not proof.proves(dispatch)


@pytest.mark.parametrize("phase", [DispatchPhase.GRANTED, DispatchPhase.RECALLED])
def test_what_another_cluster_does_not_have_is_no_evidence(phase: DispatchPhase) -> None:
    wish, dispatch = Wish(HUB, "uid", runs=True), replace(RECALLED, phase=phase)
    steps = [
        next_step(wish, dispatch, Sight(cluster, knows_permits=True), moves=False, complete=True)
        for cluster in ("another cluster", "cluster")
    ]
    assert steps[0] is HubStep.NOTHING
    assert steps[1] is not HubStep.NOTHING


def test_a_copy_that_is_listed_is_no_proof() -> None:
    member = Member("cluster", objects={"job": Stored("copy", HUB, "uid", Offer(1, 1))})
    assert begun(RECALLED).found(gone=answer(member, begun(RECALLED))).wanted is Evidence.COPY
