"""The labels by which controllers find a gang's pods stay: one that is let go of runs on when its gang is stopped."""

import copy

import pytest

from tests.unit.server.reviews import ALICE, ask, pod, reservation, review, view, with_ledger
from webhook.server.handler import ReviewHandler

pytestmark = pytest.mark.virtual_time
CONTROLLER = "system:serviceaccount:kube-system:job-controller"


async def relabelled(key: str, value: str | None, user: str = ALICE, gang: str | None = "job-1") -> bool:
    old = pod(gang=gang)
    old["metadata"]["labels"] |= {
        "controller-uid": "u",
        "ray.io/cluster": "c",
        "app": "a",
        "app.kubernetes.io/name": "n",
    }
    new = copy.deepcopy(old)
    new["metadata"]["labels"].pop(key, None)
    new["metadata"]["labels"] |= {} if value is None else {key: value}
    handler = ReviewHandler(with_ledger(view(), reservation()))
    return (await ask(handler, "/validate/pods", review(new, old=old, operation="UPDATE", user=user))).allowed


@pytest.mark.parametrize("value", [None, "other"])
@pytest.mark.parametrize("key", ["controller-uid", "ray.io/cluster"])
async def test_they_are_changed_by_controllers_alone(key: str, value: str | None) -> None:
    assert not await relabelled(key, value)
    assert await relabelled(key, value, CONTROLLER)
    assert await relabelled(key, value, gang=None), "a pod of no gang is anybody's"


@pytest.mark.parametrize(("key", "value"), [("app", None), ("app.kubernetes.io/name", "x"), ("example.com/new", "x")])
async def test_other_labels_are_their_users(key: str, value: str | None) -> None:
    assert await relabelled(key, value)
