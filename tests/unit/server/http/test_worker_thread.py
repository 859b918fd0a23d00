"""Policy is judged beside the loop, only so much of it at once, and so are the values of long reviews counted."""

import asyncio
import threading

from tests.unit.server.reviews import Answered, review, view
from webhook.server.handler import ReviewHandler
from webhook.server.http.worker_thread import OneThread
from webhook.server.review.settings import ReviewSettings

FLAVOR = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {}}
BODY = review(FLAVOR, resource="resourceflavors", namespace="")


async def test_policy_is_judged_in_another_thread_while_the_loop_goes_on() -> None:
    threads: list[threading.Thread] = []
    release = threading.Event()
    one = OneThread()

    async def beside(work):  # type: ignore[no-untyped-def]
        def slow() -> object:
            threads.append(threading.current_thread())
            release.wait(10)
            return work()

        return await one(slow)

    handler = ReviewHandler(view(), beside=beside)
    asked = asyncio.create_task(handler.review("/validate/policy", BODY, 5.0))
    while not threads:
        await asyncio.sleep(0.001)
    assert threads[0] is not threading.current_thread()
    release.set()
    assert Answered(*await asked).allowed


async def test_more_policy_at_once_than_can_be_judged_is_told_to_try_again() -> None:
    handler = ReviewHandler(view(), ReviewSettings(policy_in_flight_max=2), beside=OneThread())
    answers = await asyncio.gather(*(handler.review("/validate/policy", BODY, 5.0) for _ in range(5)))
    assert sorted(Answered(*answer).code for answer in answers) == [200, 200, 429, 429, 429]


async def test_policy_that_is_not_judged_in_time_is_told_to_try_again() -> None:
    async def never(_work: object) -> None:
        await asyncio.Event().wait()

    handler = ReviewHandler(view(), beside=never)  # type: ignore[arg-type]
    assert Answered(*await handler.review("/validate/policy", BODY, 0.01)).code == 429


LONG = {**FLAVOR, "metadata": {"name": "any", "annotations": {"long": "x" * (1 << 17)}}}


async def test_the_values_of_a_long_review_are_counted_beside_the_loop_of_a_short_one_at_once() -> None:
    asked: list[str] = []

    async def counting(work):  # type: ignore[no-untyped-def]
        asked.append("counted")
        return work()

    handler = ReviewHandler(view(), counting=counting)
    await handler.review("/validate/jobs", review(LONG), 5.0)
    assert asked == ["counted"]
    await handler.review("/validate/jobs", review(FLAVOR), 5.0)
    assert asked == ["counted"]


async def test_a_review_that_is_not_counted_in_time_is_told_to_try_again() -> None:
    async def never(_work: object) -> None:
        await asyncio.Event().wait()

    handler = ReviewHandler(view(), counting=never)  # type: ignore[arg-type]
    assert Answered(*await handler.review("/validate/jobs", review(LONG), 0.01)).code == 429
