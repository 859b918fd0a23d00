"""What waits may be applied again as its owner wrote it, and lose, gain or rename pod sets on the way."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.jobs.objects_of_kinds import load
from tests.unit.server.reviews import Answered, ask, review, view, with_ledger
from webhook.cluster.view import View
from webhook.core.ledger.record import Reservation, reserve
from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.core.notation import names
from webhook.server.handler import ReviewHandler

Groups = list[dict[str, Any]]


def manifest() -> dict[str, Any]:
    """Return a RayCluster as its owner wrote it."""
    made = load("raycluster")
    made["metadata"] = {"name": "ray", "namespace": "team-a", "uid": "ray-1", "labels": {names.QUEUE_LABELS[0]: "q"}}
    return made


async def stored() -> dict[str, Any]:
    """Return it as it waits."""
    made: dict[str, Any] = (await ask(ReviewHandler(view()), "/mutate/jobs", review(manifest()))).applied(manifest())
    return made


async def changed(old: dict[str, Any], new: dict[str, Any], seen: View | None = None) -> tuple[Answered, Any]:
    """Return what validation says of a change, and the object as it would be stored."""
    handler = ReviewHandler(seen or view())
    made = (await ask(handler, "/mutate/jobs", review(new, old=old, operation="UPDATE"))).applied(new)
    return await ask(handler, "/validate/jobs", review(made, old=old, operation="UPDATE")), made


def applied(old: dict[str, Any], groups: Callable[[Groups], Groups] = lambda found: found) -> dict[str, Any]:
    """Return what `kubectl apply` of the manifest, its worker groups changed, writes over ``old``: lists whole."""
    new = copy.deepcopy(old)
    new["spec"]["workerGroupSpecs"] = groups(manifest()["spec"]["workerGroupSpecs"])
    return new


def marks(obj: dict[str, Any]) -> dict[str, object]:
    return {each["groupName"]: each["template"]["metadata"]["labels"] for each in obj["spec"]["workerGroupSpecs"]}


async def test_applied_again_it_stays_as_it_is_stored() -> None:
    old = await stored()
    answer, made = await changed(old, applied(old))
    assert answer.allowed
    assert made == old


@pytest.mark.parametrize(
    "groups",
    [lambda found: found[:1], lambda found: [found[0], found[1] | {"groupName": "many"}]],
    ids=["one less", "one renamed"],
)
async def test_a_job_that_waits_may_lose_and_rename_pod_sets(groups: Callable[[Groups], Groups]) -> None:
    old = await stored()
    answer, made = await changed(old, applied(old, groups))
    assert answer.allowed, answer.message
    for name, labels in marks(made).items():
        assert labels == {names.GANG_LABEL: names.GANG_PENDING, names.POD_SET_LABEL: name.lower()}
    # By a patch that leaves the others as they are, too: nothing asks for a mutation then.
    kept = copy.deepcopy(old)
    del kept["spec"]["workerGroupSpecs"][1]
    assert (await changed(old, kept))[0].allowed


@pytest.mark.parametrize(
    ("key", "value"),
    [(names.GANG_LABEL, "another"), (names.POD_SET_LABEL, "head"), (names.POD_SET_LABEL, "gpu")],
)
async def test_a_pod_set_that_is_new_bears_no_other_mark(key: str, value: str) -> None:
    old = await stored()

    def forged(found: Groups) -> Groups:
        other = copy.deepcopy(found[1]) | {"groupName": "many"}
        other["template"]["metadata"] = {"labels": {names.GANG_LABEL: names.GANG_PENDING, key: value}}
        return [*found, other]

    answer, _ = await changed(old, applied(old, forged))
    assert f"label {key} of pod set many is written only by Tutti" in answer.message


async def test_a_mark_that_is_taken_away_alone_is_put_back() -> None:
    old = await stored()
    bare = copy.deepcopy(old)
    del bare["spec"]["workerGroupSpecs"][0]["template"]["metadata"]["labels"]
    answer, made = await changed(old, bare)
    assert answer.allowed
    assert made == old
    # Where nobody mutates it, it is refused as ever.
    unmutated = await ask(ReviewHandler(view()), "/validate/jobs", review(bare, old=old, operation="UPDATE"))
    assert "label tutti.dev/gang of pod set gpu is written only by Tutti" in unmutated.message


def reserved() -> Reservation:
    """Return what was reserved for all of it."""
    sets = tuple(PodSet(name, count, PodPrice({})) for name, count in (("head", 1), ("gpu", 6), ("cpu", 1)))
    gang = Gang("ray-1", "RayCluster.ray.io", "team-a", "ray", "q", sets)
    return reserve(gang, "q", gang.counts, {}, 1, 0.0)


async def test_one_that_runs_loses_no_pod_set() -> None:
    """Its room is charged for all of them until it stops."""
    old = await stored()
    old["spec"]["suspend"] = False
    answer, _ = await changed(old, applied(old, lambda found: found[:1]), with_ledger(view(), reserved()))
    assert "pod set cpu cannot be taken out of a running gang" in answer.message
    again, made = await changed(old, applied(old), with_ledger(view(), reserved()))
    assert again.allowed
    assert made == old
