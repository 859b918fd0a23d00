"""``tutti top``: who may move a waiting job before others, and that it then starts before them."""

import pytest

from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.objects import job, pod_template
from tests.e2e.queues import QUEUE, give_queue, reservations
from tests.e2e.shell import Shell

pytestmark = [
    pytest.mark.needs("deployment/tutti-reconciler"),
    pytest.mark.usefixtures("tutti", "this_tutti"),
]


def test_only_who_has_the_right_moves_a_job_which_then_starts_before_older_ones(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, 4)
    for name in ("running", "older", "newer"):
        owner.apply(job(name, 4, pod_template(), QUEUE))
        wait_until(lambda: list(reservations(admin)) == ["running"], what="the first one holds the queue")
    command = f"tutti top job/newer -n {owner.namespace}"
    with pytest.raises(AssertionError) as refused:
        Shell(owner)(command)
    assert "tutti.dev/top" in str(refused.value)
    assert f"the verb top on workloads.visibility.tutti.dev in namespace {owner.namespace}" in str(refused.value)
    assert "is the first of its priority" in Shell(admin)(command)
    owner.delete("job", "running")
    wait_until(lambda: list(reservations(admin)) == ["newer"], 40, "the one that was moved starts")
    owner.delete("job", "newer")
    wait_until(lambda: list(reservations(admin)) == ["older"], 40, "the older one starts after it")
