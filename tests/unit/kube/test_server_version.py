"""What the log says at start about the release of Kubernetes."""

import asyncio
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from webhook.cluster.feeds import Feeds
from webhook.cluster.view import View
from webhook.config import Config, job_kinds
from webhook.kube.server_version import log_server_version, problem_of
from webhook.laboratory.simulated.cluster import SimulatedCluster


@pytest.mark.parametrize("version", ["v1.34.3", "v1.36.0+simulated", "1.35.1-gke.7", "v1.37.0-alpha.1", "unknown"])
def test_of_a_release_that_was_tried_or_is_newer_there_is_nothing_to_say(version: str) -> None:
    assert problem_of(version) == ""


def test_of_an_older_release_it_is_said_which_were_tried_and_below_the_oldest_that_it_is_too_old() -> None:
    assert "was tried on Kubernetes 1.33 to 1.36" in problem_of("v1.32.9-eks-5f1e1c2")
    assert "needs Kubernetes 1.30" in problem_of("v1.29.3")


@pytest.mark.virtual_time
@pytest.mark.parametrize(("release", "said"), [(36, ["kubernetes.release"]), (29, ["kubernetes.release"] * 2)])
async def test_the_release_is_said_once_and_warned_of_when_it_is_too_old(release: int, said: list[str]) -> None:
    async with SimulatedCluster(Random(1), release=release) as cluster:
        with capture_logs() as lines:
            await log_server_version(cluster.api())
        assert [line["event"].removesuffix("_untried") for line in lines] == said
        assert lines[0]["version"] == f"v1.{release}.0+simulated"


@pytest.mark.virtual_time
async def test_what_tutti_needs_and_is_not_served_is_an_error_in_the_log_and_what_it_may_lack_is_not() -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        api = cluster.api()
        request = api.request

        async def without_limit_ranges(method: str, path: str, **options: Any) -> bytes:
            return await request(method, path.replace("/v1/limitranges", "/v9/limitranges"), **options)

        api.request = without_limit_ranges  # type: ignore[method-assign]
        feeds = Feeds(api, View(), Config(), job_kinds(Config()), Random(1))
        with capture_logs() as lines:
            running = asyncio.create_task(feeds.run())
            await asyncio.sleep(5)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert [line["feed"] for line in lines if line["log_level"] == "error"] == ["limitranges"]
        assert any(line["event"] == "informer.not_served" for line in lines)
