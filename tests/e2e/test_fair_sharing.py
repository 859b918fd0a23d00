"""Three teams share idle quota by weight: whoever holds more than its share gives running gangs back."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from tests.e2e.configuring import configured
from tests.e2e.controlplane.install import Installation
from tests.e2e.facts import CREATION_SECONDS, partly_created, told, uid_of
from tests.e2e.kubectl import Kubectl, stays, wait_until
from tests.e2e.objects import job, pod_template
from tests.e2e.queues import cluster_queue_of, entries
from tests.e2e.watching import Watch

pytestmark = [pytest.mark.usefixtures("tutti"), pytest.mark.needs("deployment/tutti-reconciler")]

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
TEAMS: Final = ("red", "green", "blue")
GPUS: Final = 12
"""What all teams share and none owns."""
GANG: Final = 2
"""GPUs of one gang, one a pod."""
STRATEGIES: Final = {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]}


@pytest.fixture(scope="module", autouse=True)
def _fair(tutti: Installation | None, kubectl: Kubectl) -> Iterator[None]:
    """Let reconcilers share fairly, as Kueue's configuration says it."""
    with configured(tutti, kubectl, fairSharing=STRATEGIES):
        yield


@pytest.fixture
def cohort(admin: Kubectl) -> None:
    """A cohort whose quota belongs to a queue that nobody uses, and the teams' queues, which own nothing."""
    admin.apply({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "any-node"}})
    admin.apply(in_cohort(admin, "idle", GPUS))
    for team in TEAMS:
        admin.apply(in_cohort(admin, team, 0))
        local = {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": team}}
        admin.apply(local | {"spec": {"clusterQueue": f"{admin.namespace}-{team}"}})


def in_cohort(admin: Kubectl, name: str, gpus: int, weight: int = 1) -> dict[str, Any]:
    """Return a ClusterQueue of the cohort, with a weight."""
    queue = cluster_queue_of(f"{admin.namespace}-{name}", gpus)
    queue["spec"] |= {
        "cohortName": admin.namespace,
        "preemption": {"reclaimWithinCohort": "Any"},
        "fairSharing": {"weight": str(weight)},
    }
    return queue


def submit(owner: Kubectl, team: str, gangs: int) -> None:
    """Apply a team's gangs, which run until they are stopped."""
    jobs = [job(f"{team}-{number}", GANG, pod_template(), team) for number in range(gangs)]
    owner.apply(yaml.safe_dump_all(jobs))


def shares(admin: Kubectl) -> tuple[int, ...]:
    """Return how many GPUs each team's running gangs hold; a gang that is being stopped holds its own still."""
    held = Counter(entry.name.rpartition("-")[0] for entry in entries(admin))
    return tuple(GANG * held[team] for team in TEAMS)


def running(owner: Kubectl) -> tuple[int, ...]:
    """Return how many pods of each team run."""
    pods = Counter(pod["metadata"]["labels"]["job-name"].rpartition("-")[0] for pod in owner.pods(phase="Running"))
    return tuple(pods[team] for team in TEAMS)


@pytest.mark.usefixtures("cohort")
def test_three_teams_converge_to_equal_shares_and_to_weighted_ones_by_stopping_whole_gangs(
    owner: Kubectl, admin: Kubectl
) -> None:
    with Watch(owner) as watch:
        submit(owner, "red", 6)
        wait_until(lambda: running(owner) == (12, 0, 0), 60, what="the first team may have all that is idle")
        submit(owner, "green", 6)
        wait_until(lambda: running(owner) == (6, 6, 0), 60, what="the second gets half")
        submit(owner, "blue", 6)
        wait_until(lambda: running(owner) == shares(admin) == (4, 4, 4), 60, what="the third gets a third")
        stays(lambda: shares(admin) == (4, 4, 4), 2, "nobody is stopped for nothing")
        evicted = [line for number in range(6) for line in told(owner, f"red-{number}", "Evicted")]
        assert len(evicted) >= 4
        assert all("InCohortFairSharing" in line for line in evicted)

        admin.apply(in_cohort(admin, "blue", 0, weight=4))
        wait_until(
            lambda: running(owner) == shares(admin) == (2, 2, 8), 90, what="four times the weight, four times as much"
        )
        stays(lambda: shares(admin) == (2, 2, 8), 2, "it stays so")

        watch.settle()
        sizes = {uid_of(owner, "job", f"{team}-{number}"): GANG for team in TEAMS for number in range(6)}
        assert max(partly_created(watch, sizes).values()) < CREATION_SECONDS
        for _, pods in watch.live():
            assert sum(1 for pod in pods.values() if pod["status"].get("phase") != "Succeeded") <= GPUS


@pytest.mark.usefixtures("cohort")
def test_a_team_that_is_within_its_share_is_not_stopped_for_one_that_has_as_much(
    owner: Kubectl, admin: Kubectl
) -> None:
    submit(owner, "red", 3)
    submit(owner, "green", 3)
    wait_until(lambda: running(owner) == (6, 6, 0), what="both run")
    owner.apply(job("red-more", GANG, pod_template(), "red"))
    why = wait_until(lambda: told(owner, "red-more", "Queued"), what="it says why it waits")[-1]
    assert "nvidia.com/gpu" in why
    stays(lambda: running(owner) == (6, 6, 0), 2, "everybody runs on")
