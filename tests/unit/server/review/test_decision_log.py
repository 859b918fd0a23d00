"""Every review leaves one structured line, soon, and never more of a caller's text than is kept."""

import asyncio

import pytest
from structlog.testing import capture_logs

from tests.unit.server.reviews import job, review, view
from webhook.server.handler import ReviewHandler
from webhook.server.review.decision_log import LINES_MAX

pytestmark = pytest.mark.virtual_time


async def test_a_review_leaves_one_line() -> None:
    with capture_logs() as lines:
        await ReviewHandler(view()).review("/validate/jobs", review(job()), 1.0)
        await asyncio.sleep(0.02)
    (line,) = lines
    assert line["event"] == "review"
    assert (line["endpoint"], line["outcome"], line["code"]) == ("/validate/jobs", "Unsuspended", 403)
    assert (line["kind"], line["namespace"], line["name"]) == ("Job.batch", "team-a", "train")
    assert (line["operation"], line["user"], line["uid"]) == ("CREATE", "alice@example.com", "review-1")
    assert "spec.suspend" in line["message"]


async def test_lines_are_short_whatever_is_sent() -> None:
    with capture_logs() as lines:
        for uid in ("x" * 10_000, "a\nb\u202e"):
            await ReviewHandler(view()).review("/validate/jobs", review(job("n" * 100_000), uid=uid), 1.0)
        await asyncio.sleep(0.02)
    assert len(lines) == 2
    assert all(sum(len(str(value)) for value in line.values()) < 4000 for line in lines)


async def test_a_burst_is_written_without_waiting() -> None:
    handler = ReviewHandler(view())
    with capture_logs() as lines:
        for _ in range(LINES_MAX):
            await handler.review("/validate/jobs", review(job(queue=None)), 1.0)
        assert len(lines) == LINES_MAX
        await asyncio.sleep(0.02)
    assert len(lines) == LINES_MAX
