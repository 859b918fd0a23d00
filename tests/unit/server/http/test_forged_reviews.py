"""Reviews that the API server never sends: they leave nothing behind, and cost no more than honest ones."""

import gc
import sys
import tracemalloc
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.server.reviews import ask, job, pod, price, review, view, with_quota
from webhook.core.notation.problem import Unreadable
from webhook.jobs.pricing import pod_requests
from webhook.server.handler import ReviewHandler
from webhook.server.pods.tally import ENTRIES_IN_ALL_MAX, ENTRIES_MAX, Tally
from webhook.server.review.bounds import VALUES_MAX, values_in
from webhook.server.sharding import ownership

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('ab\\"{[,', max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('ab\\"{,', max_size=5), inner, max_size=4),
    max_leaves=30,
)


def calls(work: Any) -> int:
    """Return how many Python functions ``work`` called: what it costs, whatever the machine does besides."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


# -- what a review holds


@given(JSON)
def test_values_are_counted_from_above_and_not_by_far(document: object) -> None:
    def values(node: object) -> int:
        below = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        return 1 + sum(map(values, below))

    counted = values_in(orjson.dumps(document), 1000)
    assert values(document) - 1 <= counted <= 2 * values(document)


def wide(path: str) -> list[bytes]:
    many: list[Any] = [
        [{}] * 300_000,
        [{"name": "a"}] * 200_000,
        {f"a{number}": "1" for number in range(200_000)},
        [[]] * 300_000,
    ]
    made = []
    for value in many:
        obj = pod() if path.endswith("pods") else job()
        obj["spec"]["containers"] = value
        made.append(review(obj))
    return made


@pytest.mark.parametrize("path", ["/validate/pods", "/validate/jobs", "/mutate/jobs", "/mutate/pods"])
async def test_a_review_of_hundreds_of_thousands_of_values_is_refused_unread(path: str) -> None:
    for body in wide(path):
        answer = await ask(ReviewHandler(view()), path, body)
        assert answer.code == 422
        assert str(VALUES_MAX) in answer.message


async def test_large_texts_are_few_values() -> None:
    large = job()
    large["metadata"]["annotations"] = {"note": '{"a": [1, 2, 3]}, ' * 100_000}
    assert (await ask(ReviewHandler(view()), "/mutate/jobs", review(large))).allowed


def test_pricing_a_pod_costs_what_it_holds_and_not_its_square() -> None:
    def sidecars(count: int) -> dict[str, Any]:
        init = [
            {"restartPolicy": "Always", "resources": {"limits": {f"a.b/{number % 100}": "1"}}}
            for number in range(count)
        ]
        return {"containers": [{}], "initContainers": init}

    small, large = (calls(lambda count=count: pod_requests.price(sidecars(count))) for count in (120, 480))
    assert large < 5 * small


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"containers": [{}] * 513}, "containers"),
        ({"containers": [{}], "initContainers": [{}] * 513}, "initContainers"),
    ],
)
def test_no_pod_has_hundreds_of_containers(spec: dict[str, Any], word: str) -> None:
    with pytest.raises(Unreadable, match=word):
        pod_requests.price(spec)


# -- what stays of it


@pytest.mark.parametrize("field", ["uid", "name", "namespace"])
async def test_a_text_longer_than_any_is_refused_and_not_kept(field: str) -> None:
    handler = ReviewHandler(with_quota(view(), gpu=8))
    answer = await ask(handler, "/validate/pods", review(pod(), **{field: "x" * 5000}))
    assert answer.code == 422
    assert field in answer.message
    assert len(handler.tally) == 0


async def test_a_pod_with_an_endless_uid_is_not_kept() -> None:
    handler = ReviewHandler(with_quota(view(), gpu=8))
    assert (await ask(handler, "/validate/pods", review(pod(uid="x" * 5000)))).code == 422
    assert len(handler.tally) == 0


async def test_reviews_of_five_megabytes_leave_nothing_of_them_behind() -> None:
    """Eight of them once left 45 MB, for ever."""
    handler = ReviewHandler(with_quota(view(), gpu=8))

    async def flood(letter: str) -> None:
        for number in range(8):
            long = letter * 5_000_000 + str(number)
            made = pod(uid=long)
            body = review(made, uid=long[:127]) if number % 2 else review(made, uid=long, namespace=long)
            assert (await ask(handler, "/validate/pods", body)).code == 422

    await flood("a")  # What is made once, such as caches, is there now.
    gc.collect()
    tracemalloc.start()
    try:
        await flood("b")
        gc.collect()
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left < 500_000, "less than a tenth of one of them"


@pytest.mark.parametrize("names", [[f"a.b/{number}" for number in range(65)], ["a.b/" + "x" * 5000]])
async def test_a_pod_that_names_endless_resources_is_not_kept(names: list[str]) -> None:
    handler = ReviewHandler(with_quota(view(), gpu=8))
    asking = pod()
    asking["spec"]["containers"][0]["resources"] = {"limits": dict.fromkeys(names, "1")}
    answer = await ask(handler, "/validate/pods", review(asking))
    assert answer.code == 422
    assert "resource" in answer.message
    assert len(handler.tally) == 0


async def test_invented_namespaces_leave_nothing_behind() -> None:
    handler = ReviewHandler(view())
    ownership.weight.cache_clear()
    for number in range(50):
        namespace = f"invented-{number}"
        made = pod(uid=f"pod-{number}")
        made["metadata"]["namespace"] = namespace
        assert (await ask(handler, "/validate/pods", review(made, namespace=namespace))).allowed
    assert len(handler.tally) == 0
    assert ownership.weight.cache_info().currsize == 0


def test_what_was_let_pass_ends_though_nobody_asks_about_its_namespace_again() -> None:
    tally = Tally(lambda namespace, uid: None)
    for number in range(100):
        tally.add(f"team-{number}", "pod", price(), 0.0)
    tally.add("team-a", "pod", price(), 15.0)
    assert len(tally) == 1


def test_the_tally_is_full_for_one_namespace_and_for_all() -> None:
    tally = Tally(lambda namespace, uid: None)
    for number in range(ENTRIES_MAX):
        tally.add("flooded", f"pod-{number}", price(), 0.0)
    assert tally.full("flooded", 1.0)
    assert not tally.full("team-a", 1.0)
    for number in range(ENTRIES_IN_ALL_MAX - ENTRIES_MAX):
        tally.add(f"team-{number % 50}", f"pod-{number}", price(), 0.0)
    assert tally.full("team-a", 14.9)
    assert not tally.full("team-a", 20.0), "who is told that it is full adds nothing, and is to be told otherwise"
    assert len(tally) == 0
